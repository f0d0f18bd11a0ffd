//! A query as its client described it.

use std::{sync::Arc, time::Duration};

use crate::{config::Recovery, protocol::JsonText};

/// One unit of work as the client described it, its kind already chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct QuerySpec {
    pub kind: Arc<str>,
    pub query_type: Option<Box<str>>,
    pub payload: JsonText,
    /// 0 is served first.
    pub priority: u32,
    pub key: Option<Box<str>>,
    pub owner: Option<Box<str>>,
    /// Bounds the wait for a worker, from submit.
    pub queue_timeout: Option<Duration>,
    pub options: Option<Box<QueryOptions>>,
    /// The query ends at once if no worker is ready.
    pub reject_if_busy: bool,
}

/// Rarely used options, boxed together so that the other queries of a long queue do not pay for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryOptions {
    /// Bounds each attempt, from dispatch; the kind's own limit applies where it is absent.
    pub timeout: Option<Duration>,
    pub session_id: Option<Box<str>>,
    /// Recovery after the worker's death; the configuration decides where it is absent.
    pub recovery: Option<Recovery>,
    /// Capabilities that the worker must have.
    pub capabilities: Box<[Box<str>]>,
}

impl QueryOptions {
    /// `None` if nothing is asked for.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl QuerySpec {
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.options.as_ref()?.timeout
    }

    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.options.as_ref()?.session_id.as_deref()
    }

    #[must_use]
    pub fn recovery(&self) -> Option<Recovery> {
        self.options.as_ref()?.recovery
    }

    #[must_use]
    pub fn capabilities(&self) -> &[Box<str>] {
        self.options.as_ref().map_or(&[], |options| &options.capabilities)
    }
}
