//! `remuda config`, and the source of the configuration that `serve` uses.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{
    args::ConfigFileArgs,
    exit::{CliError, CliExit},
    format, output,
};
use crate::{
    config::{self, Config, ConfigSource, Listen, Overrides, ServerConfig},
    pool::Reloader,
    security::{self, Security},
};

/// The file that is used if it exists and no other is named.
const DEFAULT_FILE: &str = "remuda.toml";
/// Path of this binary, valid even after its file was replaced or removed.
pub(super) const OWN_BINARY: &str = "/proc/self/exe";

fn file(args: ConfigFileArgs) -> Option<PathBuf> {
    let default = || Path::new(DEFAULT_FILE).exists().then(|| PathBuf::from(DEFAULT_FILE));
    args.config.or_else(default)
}

/// Reads the file that `serve` was started with again, if there was one. A kind whose workers could read the secrets of the
/// running server is a mistake too.
pub(super) fn reloader(args: ConfigFileArgs, overrides: Overrides, server: ServerConfig) -> Option<Reloader> {
    let file = file(args)?;
    Some(Reloader::new(move || {
        let loaded = Config::load(ConfigSource::File(file.clone()), config::environment(), &overrides);
        let loaded = loaded.map_err(|mistakes| mistakes.to_string())?;
        let checked = security::check_secret_access(&server, &loaded.kinds, Path::new(OWN_BINARY));
        checked.map(|()| loaded).map_err(|error| error.to_string())
    }))
}

/// Loads the configuration that `serve` uses; returns it with the name of its source.
pub(super) fn load(args: ConfigFileArgs, overrides: &Overrides) -> Result<(Config, String), CliError> {
    let (source, origin) = if let Some(file) = file(args) {
        (ConfigSource::File(file.clone()), file.display().to_string())
    } else {
        let executable = env::current_exe().map_err(CliError::system)?;
        (ConfigSource::BuiltIn { executable }, "built-in defaults".to_owned())
    };
    Ok((Config::load(source, config::environment(), overrides)?, origin))
}

/// Reports the mistakes and warnings of a file, and of the certificates and tokens that it names, as `serve` would.
pub(super) fn check(file: PathBuf) -> Result<CliExit, CliError> {
    let name = file.display().to_string();
    let config = Config::load(ConfigSource::File(file), config::environment(), &Overrides::default())?;
    let (_, risks) = Security::load(&config, Path::new(OWN_BINARY)).map_err(CliError::system)?;
    for risk in risks {
        output::warning(&risk.to_string());
    }
    output::text(&format!("{name}: no mistakes; {}\n", summary(&config)))?;
    Ok(CliExit::Done)
}

pub(super) fn show(args: ConfigFileArgs) -> Result<CliExit, CliError> {
    let (config, origin) = load(args, &Overrides::default())?;
    output::note(&format!("from {origin}"));
    output::text(&config::show(&config))?;
    Ok(CliExit::Done)
}

pub(super) fn example() -> Result<CliExit, CliError> {
    output::text(&config::example())?;
    Ok(CliExit::Done)
}

fn summary(config: &Config) -> String {
    let kinds: Vec<_> = config.kinds.iter().map(|kind| &*kind.name).collect();
    let listen = match &config.server.listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => path.display().to_string(),
    };
    let count = format::plural(kinds.len() as u64, "kind", "kinds");
    format!("{count} ({}), listening on {listen}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_file_is_the_source_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("some.toml");
        std::fs::write(&file, "[kinds.a]\ncommand = [\"x\"]\n").unwrap();
        let place = ConfigFileArgs { config: Some(file.clone()) };
        let (config, origin) = load(place, &Overrides::default()).unwrap();
        assert_eq!(origin, file.display().to_string());
        assert_eq!(summary(&config), "1 kind (a), listening on 127.0.0.1:50051");
    }

    #[test]
    fn echo_worker_is_served_without_a_file() {
        let (config, origin) = load(ConfigFileArgs { config: None }, &Overrides::default()).unwrap();
        assert_eq!(origin, "built-in defaults");
        assert_eq!(config.kinds[0].command[1..], ["worker", "echo"]);
    }

    #[test]
    fn mistake_in_the_configuration_is_a_usage_error() {
        let place = ConfigFileArgs { config: Some("/nowhere/remuda.toml".into()) };
        let failure = load(place, &Overrides::default()).unwrap_err();
        assert_eq!(failure.exit(), CliExit::Usage);
        assert!(failure.to_string().starts_with("/nowhere/remuda.toml: cannot be read"), "{failure}");
    }
}
