//! Lets a call through if its token allows it.

use std::sync::Arc;

use http::{Request, header::AUTHORIZATION};
use tonic::{Code, Status};
use tracing::debug;

use crate::auth::{Denied, Need, Tokens};

use super::errors;

#[derive(Debug)]
pub(super) struct Access {
    /// `None`: everybody may do everything.
    pub tokens: Option<Arc<Tokens>>,
}

impl Access {
    pub(super) fn check<A>(&self, request: &Request<A>) -> Result<(), Status> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let path = request.uri().path();
        let header = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        tokens.check(header, need(path)).map_err(|denied| {
            debug!(path, %denied, "call refused");
            refusal(denied)
        })
    }
}

fn refusal(denied: Denied) -> Status {
    let (code, reason) = match denied {
        Denied::NoToken => (Code::Unauthenticated, "NO_TOKEN"),
        Denied::BadToken => (Code::Unauthenticated, "BAD_TOKEN"),
        Denied::MissingRole(_) => (Code::PermissionDenied, "MISSING_ROLE"),
    };
    errors::plain(code, &denied.to_string(), reason)
}

/// What a method needs. One that is not listed here, and so is new, needs the most.
fn need(path: &str) -> Need {
    listed(path).unwrap_or(Need::Admin)
}

fn listed(path: &str) -> Option<Need> {
    let (service, method) = path.trim_start_matches('/').rsplit_once('/')?;
    Some(match (service, method) {
        ("remuda.v1.WorkerPool", "Submit" | "Execute" | "Cancel") => Need::Submit,
        ("remuda.v1.WorkerPool", "StreamResults" | "Health")
        | (
            "grpc.health.v1.Health"
            | "grpc.reflection.v1.ServerReflection"
            | "grpc.reflection.v1alpha.ServerReflection",
            _,
        ) => Need::SubmitOrRead,
        (
            "remuda.v1.PoolAdmin",
            "GetWorker" | "ListWorkers" | "GetQuery" | "ListQueries" | "ListDeadLetters" | "GetDeadLetter"
            | "WatchEvents",
        ) => Need::Read,
        (
            "remuda.v1.PoolAdmin",
            "ScaleKind" | "RestartWorker" | "EvictWorker" | "DrainWorker" | "ResumeWorker" | "DrainPool" | "ResumePool"
            | "Reload" | "RequeueDeadLetters" | "PurgeDeadLetters",
        ) => Need::Admin,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_listed_with_what_it_needs() {
        for method in super::super::methods() {
            assert!(listed(&format!("/{method}")).is_some(), "{method} is not listed");
        }
        assert_eq!(need("/remuda.v1.PoolAdmin/SomethingNew"), Need::Admin);
        assert_eq!(need("/"), Need::Admin);
    }
}
