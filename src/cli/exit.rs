//! How a command ends: its exit code, and why it could not do what it was asked for.

use std::{error::Error, io, process::ExitCode};

use thiserror::Error;

use crate::{
    client::{ClientError, Code, TlsTrouble},
    config::ConfigErrors,
};

/// The exit codes, as the help documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// Did what was asked; the query is complete; the pool is serving.
    Done = 0,
    /// Did not; the query failed; the pool is not serving; there is no such thing.
    Failed = 1,
    /// What was asked makes no sense.
    Usage = 2,
    /// The query was cancelled.
    Cancelled = 3,
    /// The query was never given to a worker.
    Rejected = 4,
    /// There is no server to talk to.
    Unreachable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command gave up, in words that a person can act on.
#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("{}{}", .0, advice(.0))]
    Call(#[from] ClientError),
    /// The server would not have the query.
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
        ClientError::Tls { trouble, .. } => tls_advice(*trouble),
        ClientError::Refused(refusal) if refusal.code == Code::Unauthenticated => {
            "; give the file that holds it: --token-file or REMUDA_TOKEN_FILE"
        }
        ClientError::Lost { .. } | ClientError::Refused(_) => "",
    }
}

fn tls_advice(trouble: TlsTrouble) -> &'static str {
    match trouble {
        TlsTrouble::OnlyServer => {
            "; it seems to speak TLS: write its address with https://, and name the authority of its certificate \
             (--tls-ca or REMUDA_TLS_CA)"
        }
        TlsTrouble::OnlyClient => "; it seems not to speak TLS: write its address with http://",
        TlsTrouble::UnknownServer => {
            "; name the authority of its certificate (--tls-ca or REMUDA_TLS_CA), and the name in it if the address has \
             another (--tls-name or REMUDA_TLS_NAME)"
        }
        TlsTrouble::RefusedClient => {
            "; if it asks for a certificate, show one that it accepts (--tls-cert and --tls-key, or REMUDA_TLS_CERT and \
             REMUDA_TLS_KEY)"
        }
    }
}

impl Failure {
    pub(super) fn system(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::System(error.into())
    }

    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Config(_) => Exit::Usage,
            Self::Call(error) | Self::CutOff { error, .. } => after_call(error),
            Self::NotAccepted(error) => after_submit(error),
            Self::NoEnd { .. } | Self::Output(_) | Self::System(_) => Exit::Failed,
        }
    }
}

fn after_call(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { .. } | ClientError::Tls { .. } | ClientError::Lost { .. } => Exit::Unreachable,
        ClientError::Refused(refusal) if matches!(refusal.code, Code::InvalidArgument | Code::OutOfRange) => {
            Exit::Usage
        }
        ClientError::Refused(_) => Exit::Failed,
    }
}

fn after_submit(error: &ClientError) -> Exit {
    match error {
        ClientError::Refused(refusal) => match refusal.code {
            Code::ResourceExhausted | Code::Unavailable => Exit::Rejected,
            Code::Cancelled => Exit::Cancelled,
            _ => after_call(error),
        },
        ClientError::Unreachable { .. } | ClientError::Tls { .. } | ClientError::Lost { .. } => after_call(error),
    }
}
