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
    /// Bounds each attempt, from dispatch; the kind's own limit applies where it is absent.
    pub timeout: Option<Duration>,
    /// Bounds the wait for a worker, from submit.
    pub queue_timeout: Option<Duration>,
    pub session_id: Option<Box<str>>,
    /// What happens if the worker dies under it; the configuration decides where it is absent.
    pub recovery: Option<Recovery>,
    /// What its worker must be able to do.
    pub capabilities: Box<[Box<str>]>,
    /// Ends at once, rather than wait, if no worker is ready.
    pub reject_if_busy: bool,
}
