//! What the server says, as JSON: the names of the protos, plain words for states, `null` for what there is none of.
#![expect(clippy::struct_field_names, reason = "the names are those of the protos")]

mod letters;
mod operate;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{output, words};
use crate::api::proto;

pub(super) use letters::{DeadLetter, Requeued};
pub(super) use operate::{Done, PoolEvent, Reload, Scaled};

/// A value as one line.
pub(super) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with text keys can always be written as JSON")
}

/// `null` for the empty text, which is how protos say that there is none.
fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn owned(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn number(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

fn seconds(duration: Option<&prost_types::Duration>) -> Option<f64> {
    words::duration(duration).map(|duration| duration.as_secs_f64())
}

/// JSON text to be put into JSON; a text that is none, against the protocol, as a string.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Raw {
    Json(Box<RawValue>),
    Text(String),
}

impl Raw {
    pub(super) fn new(json: &str) -> Self {
        let json = output::one_line(json);
        match serde_json::from_str(&json) {
            Ok(raw) => Self::Json(raw),
            Err(_) => Self::Text(json.into_owned()),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Submitted<'a> {
    query_id: &'a str,
    kind: &'a str,
    state: String,
    existed: bool,
}

impl<'a> From<&'a proto::SubmitResponse> for Submitted<'a> {
    fn from(response: &'a proto::SubmitResponse) -> Self {
        Self {
            query_id: &response.query_id,
            kind: &response.kind,
            state: words::query_state(response.state),
            existed: response.existed,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Cancelled {
    found: String,
    state: String,
}

impl From<&proto::CancelResponse> for Cancelled {
    fn from(response: &proto::CancelResponse) -> Self {
        Self { found: words::cancel_found(response.found), state: words::query_state(response.state) }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Certificate<'a> {
    worker_id: u64,
    kind: &'a str,
    pid: Option<u64>,
    cause: String,
    exit_code: Option<i32>,
    signal: Option<&'a str>,
    query_id: Option<&'a str>,
    uptime_seconds: Option<f64>,
    queries_processed: u64,
    peak_rss_bytes: Option<u64>,
    stderr_tail: &'a str,
    summary: &'a str,
    at: Option<String>,
}

impl<'a> From<&'a proto::DeathCertificate> for Certificate<'a> {
    fn from(certificate: &'a proto::DeathCertificate) -> Self {
        Self {
            worker_id: certificate.worker_id,
            kind: &certificate.kind,
            pid: number(certificate.pid.into()),
            cause: words::death_cause(certificate.cause),
            exit_code: certificate.exit_code,
            signal: text(&certificate.signal),
            query_id: text(&certificate.query_id),
            uptime_seconds: seconds(certificate.uptime.as_ref()),
            queries_processed: certificate.queries_processed,
            peak_rss_bytes: number(certificate.peak_rss_bytes),
            stderr_tail: &certificate.stderr_tail,
            summary: &certificate.summary,
            at: owned(words::time(certificate.at.as_ref())),
        }
    }
}

/// How a query, or one attempt at it, failed.
#[derive(Debug, Serialize)]
pub(super) struct Error<'a> {
    reason: String,
    message: &'a str,
    code: Option<&'a str>,
    retryable: bool,
    details: Option<Raw>,
    certificate: Option<Certificate<'a>>,
}

impl<'a> From<&'a proto::ErrorEvent> for Error<'a> {
    fn from(error: &'a proto::ErrorEvent) -> Self {
        Self {
            reason: words::error_reason(error.reason),
            message: &error.message,
            code: text(&error.code),
            retryable: error.retryable,
            details: text(&error.details).map(Raw::new),
            certificate: error.certificate.as_ref().map(Certificate::from),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Worker<'a> {
    worker_id: u64,
    kind: &'a str,
    pid: Option<u64>,
    state: String,
    query_id: Option<&'a str>,
    queries_processed: u64,
    started_at: Option<String>,
    uptime_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    rss_bytes: Option<u64>,
    cpu_percent: Option<f64>,
    last_heard_seconds: Option<f64>,
    name: Option<&'a str>,
    version: Option<&'a str>,
    capabilities: &'a [String],
    key: Option<&'a str>,
    drained: bool,
    reserved_memory_bytes: Option<u64>,
}

impl<'a> From<&'a proto::Worker> for Worker<'a> {
    fn from(worker: &'a proto::Worker) -> Self {
        Self {
            worker_id: worker.worker_id,
            kind: &worker.kind,
            pid: number(worker.pid.into()),
            state: words::worker_state(worker.state),
            query_id: text(&worker.query_id),
            queries_processed: worker.queries_processed,
            started_at: owned(words::time(worker.started_at.as_ref())),
            uptime_seconds: seconds(worker.uptime.as_ref()),
            peak_rss_bytes: number(worker.peak_rss_bytes),
            rss_bytes: number(worker.rss_bytes),
            // Both are measured in one look.
            cpu_percent: number(worker.rss_bytes).map(|_| worker.cpu_percent),
            last_heard_seconds: seconds(worker.last_heard.as_ref()),
            name: text(&worker.name),
            version: text(&worker.version),
            capabilities: &worker.capabilities,
            key: text(&worker.key),
            drained: worker.drained,
            reserved_memory_bytes: number(worker.reserved_memory_bytes),
        }
    }
}

#[derive(Debug, Serialize)]
struct Transition<'a> {
    from: String,
    to: String,
    at: Option<String>,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct Sample {
    at: Option<String>,
    rss_bytes: u64,
    cpu_percent: f64,
}

/// A worker with its history and its end.
#[derive(Debug, Serialize)]
pub(super) struct WholeWorker<'a> {
    worker: Option<Worker<'a>>,
    history: Vec<Transition<'a>>,
    certificate: Option<Certificate<'a>>,
    samples: Vec<Sample>,
}

impl<'a> From<&'a proto::GetWorkerResponse> for WholeWorker<'a> {
    fn from(response: &'a proto::GetWorkerResponse) -> Self {
        let transition = |step: &'a proto::WorkerTransition| Transition {
            from: words::worker_state(step.from),
            to: words::worker_state(step.to),
            at: owned(words::time(step.at.as_ref())),
            reason: &step.reason,
        };
        let sample = |sample: &proto::ResourceSample| Sample {
            at: owned(words::time(sample.at.as_ref())),
            rss_bytes: sample.rss_bytes,
            cpu_percent: sample.cpu_percent,
        };
        Self {
            worker: response.worker.as_ref().map(Worker::from),
            history: response.history.iter().map(transition).collect(),
            certificate: response.certificate.as_ref().map(Certificate::from),
            samples: response.samples.iter().map(sample).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Query<'a> {
    query_id: &'a str,
    kind: &'a str,
    r#type: Option<&'a str>,
    priority: u32,
    owner: Option<&'a str>,
    key: Option<&'a str>,
    state: String,
    attempts: u32,
    worker_id: Option<u64>,
    submitted_at: Option<String>,
    started_at: Option<String>,
    ended_at: Option<String>,
    next_sequence: u64,
    first_sequence: u64,
    dead_letter: bool,
    requeued_from: Option<&'a str>,
    requeued_as: Option<&'a str>,
}

impl<'a> From<&'a proto::QueryInfo> for Query<'a> {
    fn from(query: &'a proto::QueryInfo) -> Self {
        Self {
            query_id: &query.query_id,
            kind: &query.kind,
            r#type: text(&query.r#type),
            priority: query.priority,
            owner: text(&query.owner),
            key: text(&query.key),
            state: words::query_state(query.state),
            attempts: query.attempts,
            worker_id: number(query.worker_id),
            submitted_at: owned(words::time(query.submitted_at.as_ref())),
            started_at: owned(words::time(query.started_at.as_ref())),
            ended_at: owned(words::time(query.ended_at.as_ref())),
            next_sequence: query.next_sequence,
            first_sequence: query.first_sequence,
            dead_letter: query.dead_letter,
            requeued_from: text(&query.requeued_from),
            requeued_as: text(&query.requeued_as),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Health<'a> {
    serving: bool,
    reasons: &'a [String],
    lifecycle: &'a str,
    occupancy: &'a str,
    kinds: Vec<Kind<'a>>,
    queries_waiting: u64,
    version: &'a str,
    uptime_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Kind<'a> {
    kind: &'a str,
    serving: bool,
    reason: Option<&'a str>,
    /// How many are in each state.
    workers: BTreeMap<String, u32>,
    min: u32,
    max: u32,
    queries_waiting: u64,
    last_failure: Option<Certificate<'a>>,
}

impl<'a> From<&'a proto::HealthResponse> for Health<'a> {
    fn from(health: &'a proto::HealthResponse) -> Self {
        Self {
            serving: health.serving,
            reasons: &health.reasons,
            lifecycle: &health.lifecycle,
            occupancy: &health.occupancy,
            kinds: health.kinds.iter().map(Kind::from).collect(),
            queries_waiting: health.queries_waiting,
            version: &health.version,
            uptime_seconds: seconds(health.uptime.as_ref()),
        }
    }
}

impl<'a> From<&'a proto::KindHealth> for Kind<'a> {
    fn from(kind: &'a proto::KindHealth) -> Self {
        Self {
            kind: &kind.kind,
            serving: kind.serving,
            reason: text(&kind.reason),
            workers: kind.workers.iter().map(|count| (words::worker_state(count.state), count.count)).collect(),
            min: kind.min,
            max: kind.max,
            queries_waiting: kind.queries_waiting,
            last_failure: kind.last_failure.as_ref().map(Certificate::from),
        }
    }
}
