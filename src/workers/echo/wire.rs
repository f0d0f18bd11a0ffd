//! The worker protocol from the worker's side: commands in, frames out.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A frame from the pool.
#[derive(Debug)]
pub(super) enum PoolCommand {
    Query { request_id: String, payload: Box<RawValue> },
    Cancel { request_id: String },
    Shutdown { graceful: bool },
    HealthCheck,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommandFields {
    r#type: String,
    request_id: Option<String>,
    /// Not an `Option`, for which the payload `null` would be absent.
    #[serde(default = "null")]
    payload: Box<RawValue>,
    graceful: Option<bool>,
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

impl PoolCommand {
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let fields: CommandFields = serde_json::from_slice(line).ok()?;
        match fields.r#type.as_str() {
            "query" => Some(Self::Query { request_id: fields.request_id?, payload: fields.payload }),
            "cancel" => Some(Self::Cancel { request_id: fields.request_id? }),
            "shutdown" => Some(Self::Shutdown { graceful: fields.graceful.unwrap_or(true) }),
            "health_check" => Some(Self::HealthCheck),
            _ => None,
        }
    }
}

/// A frame to the pool.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum EchoFrame<'a> {
    Ready {
        protocol: u32,
        name: &'a str,
        version: &'a str,
    },
    Session {
        request_id: &'a str,
        session_id: &'a str,
    },
    Message {
        request_id: &'a str,
        content: &'a RawValue,
    },
    Complete {
        request_id: &'a str,
        result: &'a RawValue,
    },
    Error {
        request_id: &'a str,
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retryable: Option<bool>,
    },
    HealthOk {
        uptime: f64,
        queries_processed: u64,
    },
    ShutdownAck,
}

impl EchoFrame<'_> {
    /// The frame as a line with its newline.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a frame can always be written as JSON");
        line.push(b'\n');
        line
    }
}
