//! Failed calls as plain errors.

use std::{error::Error, fmt, time::Duration};

use thiserror::Error;
use tonic::{Code, Status, transport};
use tonic_types::StatusExt;

use super::{Endpoint, TlsMismatch};

/// A call without the answer that was asked for.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is no connection.
    #[error("cannot reach remuda at {endpoint}: {message}")]
    Unreachable { endpoint: String, message: String },
    /// There is a server, but the two sides do not agree on TLS.
    #[error("cannot talk to remuda at {endpoint}: {message}")]
    Tls { endpoint: String, message: String, mismatch: TlsMismatch },
    /// There was a connection, and then no answer.
    #[error("lost the connection to remuda at {endpoint}: {message}")]
    Lost { endpoint: String, message: String },
    /// The server answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
}

/// A status other than OK, with the details that the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Invalid fields of the request, each with its mistake.
    pub fields: Vec<(String, String)>,
    /// Time after which a retry may succeed.
    pub retry_after: Option<Duration>,
}

impl ClientError {
    /// A status that came over the wire has no source; one that has was made here, of a broken connection.
    pub(super) fn new(endpoint: &Endpoint, status: &Status) -> Self {
        if let Some(error) = status.source() {
            return Self::tls(endpoint, error).unwrap_or_else(|message| Self::lost(endpoint, &message));
        }
        // tonic's text for an answer that is not from a gRPC server.
        if status.message().starts_with("grpc-status header missing") {
            let message = "the server there does not speak gRPC (is it the HTTP port?)".to_owned();
            return Self::Unreachable { endpoint: endpoint.to_string(), message };
        }
        Self::Refused(Box::new(Refusal::from(status)))
    }

    pub(super) fn unreachable(endpoint: &Endpoint, error: &transport::Error) -> Self {
        let unreachable = |message| Self::Unreachable { endpoint: endpoint.to_string(), message };
        Self::tls(endpoint, error).unwrap_or_else(unreachable)
    }

    pub(super) fn lost(endpoint: &Endpoint, message: &str) -> Self {
        Self::Lost { endpoint: endpoint.to_string(), message: message.to_owned() }
    }

    /// The error if TLS is its cause, or else the message of the root cause.
    fn tls(endpoint: &Endpoint, error: &(dyn Error + 'static)) -> Result<Self, String> {
        let message = root_cause(error);
        match TlsMismatch::from_message(&message) {
            Some(mismatch) => Ok(Self::Tls { endpoint: endpoint.to_string(), message, mismatch }),
            None => Err(message),
        }
    }
}

/// Text of the innermost error, which names the cause, in lower case as the end of a sentence.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            fields: violations.iter().map(|field| (field.field.clone(), field.description.clone())).collect(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "the server answered {:?} without a message", self.code)?,
            message => f.write_str(message)?,
        }
        for (field, description) in self.fields.iter().filter(|(_, text)| !self.message.contains(text)) {
            write!(f, "; {field}: {description}")?;
        }
        match self.retry_after {
            Some(delay) => write!(f, "; try again in {}", humantime::format_duration(delay)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_each_wrong_field_once_and_when_to_retry() {
        let refusal = Refusal {
            code: Code::ResourceExhausted,
            message: "kind: there is no kind `x`".to_owned(),
            fields: vec![
                ("kind".to_owned(), "there is no kind `x`".to_owned()),
                ("priority".to_owned(), "is over 1000".to_owned()),
            ],
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(refusal.to_string(), "kind: there is no kind `x`; priority: is over 1000; try again in 2s");
    }

    #[test]
    fn details_of_a_status_are_kept() {
        let details = tonic_types::ErrorDetails::with_bad_request_violation("query.payload", "is not JSON");
        let status = Status::with_error_details(Code::InvalidArgument, "bad request", details);
        let error = ClientError::new(&"a:1".parse().unwrap(), &status);
        let ClientError::Refused(refusal) = error else { panic!("not refused") };
        assert_eq!(refusal.code, Code::InvalidArgument);
        assert_eq!(refusal.to_string(), "bad request; query.payload: is not JSON");
    }
}
