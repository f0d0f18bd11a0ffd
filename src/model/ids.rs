//! The names of queries and workers.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use thiserror::Error;
use uuid::{Uuid, fmt::Hyphenated};

/// The longest id a client may give a query.
const MAX_QUERY_ID: usize = 128;

/// What fits into an id itself: more than those that the server makes.
const SHORT: usize = 38;

/// The name of a query: given by the client, or made by the server.
#[derive(Clone)]
pub struct QueryId(Text);

/// Most are short, and are kept in place: a long queue has an id for each of its queries.
#[derive(Clone)]
enum Text {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

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
        Self::from_checked(Uuid::now_v7().hyphenated().encode_lower(&mut text))
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
            None => Ok(Self::from_checked(text)),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("an id is ASCII from its construction on")
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { length, bytes } => &bytes[..usize::from(*length)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    fn from_checked(text: &str) -> Self {
        if text.len() > SHORT {
            return Self(Text::Long(text.into()));
        }
        let mut bytes = [0; SHORT];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(Text::Short { length: u8::try_from(text.len()).expect("it is short"), bytes })
    }
}

impl PartialEq for QueryId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for QueryId {}

impl Hash for QueryId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for QueryId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueryId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    fn an_id_is_the_same_wherever_its_text_is_kept() {
        let texts: Vec<String> = (1..=MAX_QUERY_ID).map(|length| "x".repeat(length)).collect();
        let ids: Vec<QueryId> = texts.iter().map(|text| QueryId::parse(text).unwrap()).collect();
        assert!(ids.iter().zip(&texts).all(|(id, text)| id.as_str() == text));
        assert!(ids.is_sorted_by(|a, b| a < b), "as their texts are");
        assert_eq!(ids[SHORT].clone(), ids[SHORT]);
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), MAX_QUERY_ID);
    }

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
