//! The environment that workers get: little of the server's own, because that tends to hold secrets.

use super::keys::kind::KindConfig;
use super::load::environment;

/// The server's variables that every worker gets. No other reaches a worker unless `pass_env` names it.
const BASE_ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The variables of a kind's workers, except those that identify each worker.
#[must_use]
pub fn worker_environment(kind: &KindConfig) -> Vec<(String, String)> {
    compose(kind, environment())
}

fn compose(kind: &KindConfig, server: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let is_passed = |name: &str| BASE_ENVIRONMENT.contains(&name) || kind.pass_env.iter().any(|passed| passed == name);
    let mut variables: Vec<_> = server.filter(|(name, _)| is_passed(name) && !kind.env.contains_key(name)).collect();
    variables.extend(kind.env.clone());
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSource, Overrides};

    #[test]
    fn worker_gets_base_passed_and_set_variables() {
        let text = "[kinds.k]\ncommand = [\"x\"]\npass_env = [\"CUDA\"]\nenv = { LANG = \"C\", MODE = \"fast\" }\n";
        let source = ConfigSource::Text { name: "t.toml".to_owned(), text: text.to_owned(), base_dir: "/".into() };
        let config = Config::load(source, [], &Overrides::default()).unwrap();
        let server = [("PATH", "/bin"), ("LANG", "de"), ("CUDA", "0"), ("TOKEN", "secret")];
        let server = server.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
        let mut variables = compose(&config.kinds[0], server);
        variables.sort();
        let expected = [("CUDA", "0"), ("LANG", "C"), ("MODE", "fast"), ("PATH", "/bin")];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
