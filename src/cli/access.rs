//! Reads what it takes to be let in by a protected server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use super::exit::Failure;
use crate::client::Credentials;

/// What it takes to be let in by a server that is protected.
#[derive(Debug, Default, Args)]
pub(super) struct AccessArgs {
    #[arg(
        long,
        global = true,
        env = "REMUDA_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Access",
        help = "A file with the token to send"
    )]
    pub token_file: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        env = "REMUDA_TLS_CA",
        value_name = "FILE",
        help_heading = "Access",
        help = "For https: the authority of the server's certificate (PEM); the system's own if left out"
    )]
    pub tls_ca: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        env = "REMUDA_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Access",
        help = "For https: the certificate to show (PEM)"
    )]
    pub tls_cert: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        env = "REMUDA_TLS_KEY",
        value_name = "FILE",
        help_heading = "Access",
        help = "For https: the key of that certificate (PEM)"
    )]
    pub tls_key: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        env = "REMUDA_TLS_NAME",
        value_name = "NAME",
        help_heading = "Access",
        help = "For https: the name in the server's certificate, if it is not the one in --endpoint"
    )]
    pub tls_name: Option<String>,
}

pub(super) fn credentials(args: AccessArgs) -> Result<Credentials, Failure> {
    let read = |flag: &str, path: &Path| {
        fs::read(path).map_err(|error| Failure::Usage(format!("{flag} {}: {error}", path.display())))
    };
    let token = args.token_file.map(|path| read("--token-file", &path)).transpose()?;
    let token = token.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let identity = match (args.tls_cert, args.tls_key) {
        (Some(cert), Some(key)) => Some((read("--tls-cert", &cert)?, read("--tls-key", &key)?)),
        _ => None,
    };
    Ok(Credentials {
        token,
        ca: args.tls_ca.map(|path| read("--tls-ca", &path)).transpose()?,
        identity,
        server_name: args.tls_name,
    })
}
