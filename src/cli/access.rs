//! The options for protected servers, and the credentials that they name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use super::exit::CliError;
use crate::client::Credentials;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Access")]
pub(super) struct AccessArgs {
    /// File with the token to send
    #[arg(long, global = true, env = "REMUDA_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// For https: the authority of the server's certificate (PEM) [default: those of the system]
    #[arg(long, global = true, env = "REMUDA_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// For https: the client certificate (PEM)
    #[arg(long, global = true, env = "REMUDA_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// For https: the key of the client certificate (PEM)
    #[arg(long, global = true, env = "REMUDA_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// For https: the name in the server's certificate, if it is not the one in --endpoint
    #[arg(long, global = true, env = "REMUDA_TLS_NAME", value_name = "NAME")]
    pub tls_name: Option<String>,
}

pub(super) fn credentials(args: AccessArgs) -> Result<Credentials, CliError> {
    let read = |flag: &str, path: &Path| {
        fs::read(path).map_err(|error| CliError::Usage(format!("{flag} {}: {error}", path.display())))
    };
    let token = args.token_file.map(|path| read("--token-file", &path)).transpose()?;
    let token = token.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let identity = match (args.tls_cert, args.tls_key) {
        (Some(cert), Some(key)) => Some((read("--tls-cert", &cert)?, read("--tls-key", &key)?)),
        _ => None,
    };
    let ca = args.tls_ca.map(|path| read("--tls-ca", &path)).transpose()?;
    Ok(Credentials { token, ca, identity, server_name: args.tls_name })
}
