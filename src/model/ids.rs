//! The names of queries and workers.

use std::{fmt, sync::Arc};

use thiserror::Error;
use uuid::fmt::Hyphenated;

use super::fresh::fresh;

/// The longest id a client may give a query.
const MAX_QUERY_ID: usize = 128;

/// The name of a query: given by the client, or made by the server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId(Arc<str>);

/// An id that a query cannot have.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadQueryId {
    #[error("must not be empty")]
    Empty,
    #[error("has {0} bytes; at most {MAX_QUERY_ID} are allowed")]
    TooLong(usize),
    #[error("has the character {0:?}; only visible ASCII characters are allowed")]
    Character(char),
}

impl QueryId {
    /// Makes an id that sorts by time, so that listings and logs read in order.
    #[must_use]
    pub fn generate() -> Self {
        let mut text = [0; Hyphenated::LENGTH];
        Self(Arc::from(&*fresh().hyphenated().encode_lower(&mut text)))
    }

    pub fn parse(text: &str) -> Result<Self, BadQueryId> {
        if text.is_empty() {
            return Err(BadQueryId::Empty);
        }
        if text.len() > MAX_QUERY_ID {
            return Err(BadQueryId::TooLong(text.len()));
        }
        match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(c) => Err(BadQueryId::Character(c)),
            None => Ok(Self(text.into())),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a worker, never reused while the pool lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_short_and_visible() {
        assert_eq!(QueryId::parse("").unwrap_err().to_string(), "must not be empty");
        assert_eq!(QueryId::parse(&"x".repeat(129)).unwrap_err().to_string(), "has 129 bytes; at most 128 are allowed");
        assert_eq!(
            QueryId::parse("a b").unwrap_err().to_string(),
            "has the character ' '; only visible ASCII characters are allowed"
        );
        assert_eq!(QueryId::parse("job-7/retry:2").unwrap().as_str(), "job-7/retry:2");
    }

    #[test]
    fn made_ids_are_valid_and_distinct() {
        let (a, b) = (QueryId::generate(), QueryId::generate());
        assert_ne!(a, b);
        assert_eq!(QueryId::parse(a.as_str()), Ok(a));
    }
}
