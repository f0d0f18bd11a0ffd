//! The exit codes of commands, and the errors that they stand for.

use std::{error::Error, io, process::ExitCode};

use thiserror::Error;

use crate::{
    client::{ClientError, Code, TlsMismatch},
    config::ConfigErrors,
};

/// The exit codes, documented in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CliExit {
    /// The command succeeded; the query is complete; the pool is serving.
    Done = 0,
    /// The command or the query failed; the pool is not serving; the object does not exist.
    Failed = 1,
    /// The arguments or the configuration are wrong.
    Usage = 2,
    /// The query was cancelled.
    Cancelled = 3,
    /// No worker received the query.
    Rejected = 4,
    /// The server cannot be reached.
    Unreachable = 5,
}

impl From<CliExit> for ExitCode {
    fn from(exit: CliExit) -> Self {
        Self::from(exit as u8)
    }
}

/// Failure of a command, with a text that a person can act on.
#[derive(Debug, Error)]
pub(super) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("{}{}", .0, advice(.0))]
    Call(#[from] ClientError),
    /// The server refused the query.
    #[error("{}{}", .0, advice(.0))]
    NotAccepted(ClientError),
    /// The connection broke while a query's events were read.
    #[error("{error}\n  the query may still run; read on with: remuda stream {query_id} --from {next}")]
    CutOff { error: ClientError, query_id: String, next: u64 },
    /// The events stopped without a final one.
    #[error(
        "the events of query {query_id} stopped before its end; read on with: remuda stream {query_id} --from {next}"
    )]
    NoEnd { query_id: String, next: u64 },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("{0}")]
    System(Box<dyn Error + Send + Sync>),
}

fn advice(error: &ClientError) -> &'static str {
    match error {
        ClientError::Unreachable { .. } => "; is it running? start it with: remuda serve",
        ClientError::Tls { mismatch, .. } => tls_advice(*mismatch),
        ClientError::Refused(refusal) if refusal.code == Code::Unauthenticated => {
            "; give the file that holds it: --token-file or REMUDA_TOKEN_FILE"
        }
        ClientError::Lost { .. } | ClientError::Refused(_) => "",
    }
}

fn tls_advice(mismatch: TlsMismatch) -> &'static str {
    match mismatch {
        TlsMismatch::OnlyServer => {
            "; it seems to speak TLS: use https:// in its address, and name the authority of its certificate \
             (--tls-ca or REMUDA_TLS_CA)"
        }
        TlsMismatch::OnlyClient => "; it seems not to speak TLS: use http:// in its address",
        TlsMismatch::UnknownServer => {
            "; name the authority of its certificate (--tls-ca or REMUDA_TLS_CA), and the name in it if the address has \
             another (--tls-name or REMUDA_TLS_NAME)"
        }
        TlsMismatch::RefusedClient => {
            "; if it asks for a certificate, give one that it accepts (--tls-cert and --tls-key, or REMUDA_TLS_CERT and \
             REMUDA_TLS_KEY)"
        }
    }
}

impl CliError {
    pub(super) fn system(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::System(error.into())
    }

    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(super) fn exit(&self) -> CliExit {
        match self {
            Self::Usage(_) | Self::Config(_) => CliExit::Usage,
            Self::Call(error) | Self::CutOff { error, .. } => exit_after_call(error),
            Self::NotAccepted(error) => exit_after_submit(error),
            Self::NoEnd { .. } | Self::Output(_) | Self::System(_) => CliExit::Failed,
        }
    }
}

fn exit_after_call(error: &ClientError) -> CliExit {
    let ClientError::Refused(refusal) = error else { return CliExit::Unreachable };
    match refusal.code {
        Code::InvalidArgument | Code::OutOfRange => CliExit::Usage,
        _ => CliExit::Failed,
    }
}

fn exit_after_submit(error: &ClientError) -> CliExit {
    let ClientError::Refused(refusal) = error else { return CliExit::Unreachable };
    match refusal.code {
        Code::ResourceExhausted | Code::Unavailable => CliExit::Rejected,
        Code::Cancelled => CliExit::Cancelled,
        _ => exit_after_call(error),
    }
}
