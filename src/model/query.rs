//! What a client asks for.

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
    pub terms: Option<Box<Terms>>,
    /// Ends at once, rather than wait, if no worker is ready.
    pub reject_if_busy: bool,
}

/// What few queries ask for, in one place, so that the others of a long queue pay for none of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Terms {
    /// Bounds each attempt, from dispatch; the kind's own limit applies where it is absent.
    pub timeout: Option<Duration>,
    pub session_id: Option<Box<str>>,
    /// What happens if the worker dies under it; the configuration decides where it is absent.
    pub recovery: Option<Recovery>,
    /// What its worker must be able to do.
    pub capabilities: Box<[Box<str>]>,
}

impl Terms {
    /// `None` if nothing is asked for.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl QuerySpec {
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.terms.as_ref()?.timeout
    }

    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.terms.as_ref()?.session_id.as_deref()
    }

    #[must_use]
    pub fn recovery(&self) -> Option<Recovery> {
        self.terms.as_ref()?.recovery
    }

    #[must_use]
    pub fn capabilities(&self) -> &[Box<str>] {
        self.terms.as_ref().map_or(&[], |terms| &terms.capabilities)
    }
}
