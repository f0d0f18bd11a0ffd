//! Dead letters, and what became of them.

use serde::Serialize;

use super::{Error, Query, Raw, owned};
use crate::{api::proto, cli::words};

#[derive(Debug, Serialize)]
pub(in crate::cli) struct DeadLetter<'a> {
    query: Option<Query<'a>>,
    payload: Raw,
    failures: Vec<FailedAttempt<'a>>,
}

#[derive(Debug, Serialize)]
struct FailedAttempt<'a> {
    attempt: u32,
    at: Option<String>,
    error: Option<Error<'a>>,
}

impl<'a> From<&'a proto::DeadLetter> for DeadLetter<'a> {
    fn from(letter: &'a proto::DeadLetter) -> Self {
        let failed = |failed: &'a proto::FailedAttempt| FailedAttempt {
            attempt: failed.attempt,
            at: owned(words::time(failed.at.as_ref())),
            error: failed.error.as_ref().map(Error::from),
        };
        Self {
            query: letter.query.as_ref().map(Query::from),
            payload: Raw::new(&letter.payload),
            failures: letter.failures.iter().map(failed).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Requeued<'a> {
    query_id: &'a str,
    new_query_id: &'a str,
}

impl<'a> From<&'a proto::Requeued> for Requeued<'a> {
    fn from(requeued: &'a proto::Requeued) -> Self {
        Self { query_id: &requeued.query_id, new_query_id: &requeued.new_query_id }
    }
}
