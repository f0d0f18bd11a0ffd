//! Where the configuration comes from, and the commands that look at it.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{
    args::ConfigPlace,
    exit::{Exit, Failure},
    output, words,
};
use crate::{
    config::{self, Config, ConfigSource, Listen, Overrides, ServerConfig},
    pool::Reloader,
    security::{self, Security},
};

/// Taken from the working directory if nothing else is said.
const USUAL_FILE: &str = "remuda.toml";
/// By this name our own binary is found even after the file was replaced or removed.
pub(super) const OWN_BINARY: &str = "/proc/self/exe";

fn file(place: ConfigPlace) -> Option<PathBuf> {
    let usual = || Path::new(USUAL_FILE).exists().then(|| PathBuf::from(USUAL_FILE));
    place.config.or_else(usual)
}

/// Reads the file that `serve` was started with again, if there was one. Kinds whose workers could get at the secrets that
/// the server was started with are a mistake too.
pub(super) fn reloader(place: ConfigPlace, overrides: Overrides, server: ServerConfig) -> Option<Reloader> {
    let file = file(place)?;
    Some(Reloader::new(move || {
        let loaded = Config::load(ConfigSource::File(file.clone()), config::environment(), &overrides);
        let loaded = loaded.map_err(|mistakes| mistakes.to_string())?;
        let kept = security::check_secret_access(&server, &loaded.kinds, Path::new(OWN_BINARY));
        kept.map(|()| loaded).map_err(|error| error.to_string())
    }))
}

/// Loads what `serve` uses, and tells where it is from.
pub(super) fn load(place: ConfigPlace, overrides: &Overrides) -> Result<(Config, String), Failure> {
    let (source, origin) = if let Some(file) = file(place) {
        (ConfigSource::File(file.clone()), file.display().to_string())
    } else {
        let executable = env::current_exe().map_err(Failure::system)?;
        (ConfigSource::BuiltIn { executable }, "built-in defaults".to_owned())
    };
    Ok((Config::load(source, config::environment(), overrides)?, origin))
}

/// Says of a file what `serve` would say of it, and of the files that protect the server.
pub(super) fn check(file: PathBuf) -> Result<Exit, Failure> {
    let name = file.display().to_string();
    let config = Config::load(ConfigSource::File(file), config::environment(), &Overrides::default())?;
    let (_, risks) = Security::load(&config, Path::new(OWN_BINARY)).map_err(Failure::system)?;
    for risk in risks {
        output::warning(&risk.to_string());
    }
    output::text(&format!("{name}: no mistakes; {}\n", summary(&config)))?;
    Ok(Exit::Done)
}

pub(super) fn show(place: ConfigPlace) -> Result<Exit, Failure> {
    let (config, origin) = load(place, &Overrides::default())?;
    output::note(&format!("from {origin}"));
    output::text(&config::show(&config))?;
    Ok(Exit::Done)
}

pub(super) fn example() -> Result<Exit, Failure> {
    output::text(&config::example())?;
    Ok(Exit::Done)
}

fn summary(config: &Config) -> String {
    let kinds: Vec<_> = config.kinds.iter().map(|kind| &*kind.name).collect();
    let listen = match &config.server.listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => path.display().to_string(),
    };
    let count = words::count(kinds.len() as u64, "kind", "kinds");
    format!("{count} ({}), listening on {listen}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_named_is_where_the_configuration_is_from() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("some.toml");
        std::fs::write(&file, "[kinds.a]\ncommand = [\"x\"]\n").unwrap();
        let place = ConfigPlace { config: Some(file.clone()) };
        let (config, origin) = load(place, &Overrides::default()).unwrap();
        assert_eq!(origin, file.display().to_string());
        assert_eq!(summary(&config), "1 kind (a), listening on 127.0.0.1:50051");
    }

    #[test]
    fn without_a_file_the_echo_worker_is_served() {
        let (config, origin) = load(ConfigPlace { config: None }, &Overrides::default()).unwrap();
        assert_eq!(origin, "built-in defaults");
        assert_eq!(config.kinds[0].command[1..], ["worker", "echo"]);
    }

    #[test]
    fn mistake_in_the_configuration_is_a_usage_error() {
        let place = ConfigPlace { config: Some("/nowhere/remuda.toml".into()) };
        let failure = load(place, &Overrides::default()).unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(failure.to_string().starts_with("/nowhere/remuda.toml: cannot be read"), "{failure}");
    }
}
