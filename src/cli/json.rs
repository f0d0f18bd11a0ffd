//! The server's answers as JSON: the names of the protos, words for states, `null` for absent values.

use std::{collections::BTreeMap, fmt::Write};

use prost_types::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{format, output};
use crate::api::proto::{self, event::Body as QueryBody, pool_event::Body as PoolBody};

pub(super) type Json = Box<RawValue>;

/// A JSON object that is written field by field, so that fields keep their order and raw JSON its exact text.
struct JsonObject(String);

impl JsonObject {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn field(mut self, name: &str, value: impl Serialize) -> Self {
        let separator = if self.0.len() > 1 { "," } else { "" };
        let _ = write!(self.0, "{separator}\"{name}\":{}", to_json(&value));
        self
    }

    fn end(self) -> Json {
        RawValue::from_string(self.0 + "}").expect("fields in braces are an object")
    }
}

/// A value that derives its JSON form.
pub(super) fn to_json(value: &impl Serialize) -> Json {
    to_raw_value(value).expect("plain data with text keys can be written as JSON")
}

/// JSON text from a worker or a client; invalid text, against the protocol, as a string.
fn raw(text: &str) -> Json {
    let text = output::one_line(text);
    serde_json::from_str(&text).unwrap_or_else(|_| to_json(&text))
}

/// `None` for the empty text, which protos use for an absent one.
fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn number(number: impl Into<u64>) -> Option<u64> {
    Some(number.into()).filter(|number| *number != 0)
}

fn seconds(duration: Option<&prost_types::Duration>) -> Option<f64> {
    format::duration(duration).map(|duration| duration.as_secs_f64())
}

fn time(at: Option<&Timestamp>) -> Option<String> {
    Some(format::time(at)).filter(|text| !text.is_empty())
}

pub(super) fn submitted(response: &proto::SubmitResponse) -> Json {
    JsonObject::new()
        .field("query_id", &response.query_id)
        .field("kind", &response.kind)
        .field("state", format::query_state(response.state))
        .field("existed", response.existed)
        .end()
}

pub(super) fn cancelled(response: proto::CancelResponse) -> Json {
    JsonObject::new()
        .field("found", format::cancel_found(response.found))
        .field("state", format::query_state(response.state))
        .end()
}

fn certificate(certificate: &proto::DeathCertificate) -> Json {
    JsonObject::new()
        .field("worker_id", certificate.worker_id)
        .field("kind", &certificate.kind)
        .field("pid", number(certificate.pid))
        .field("cause", format::death_cause(certificate.cause))
        .field("exit_code", certificate.exit_code)
        .field("signal", text(&certificate.signal))
        .field("query_id", text(&certificate.query_id))
        .field("uptime_seconds", seconds(certificate.uptime.as_ref()))
        .field("queries_processed", certificate.queries_processed)
        .field("peak_rss_bytes", number(certificate.peak_rss_bytes))
        .field("stderr_tail", &certificate.stderr_tail)
        .field("summary", &certificate.summary)
        .field("at", time(certificate.at.as_ref()))
        .end()
}

/// Adds the fields of a failed query, or of a failed attempt.
fn error_fields(object: JsonObject, error: &proto::ErrorEvent) -> JsonObject {
    object
        .field("reason", format::error_reason(error.reason))
        .field("message", &error.message)
        .field("code", text(&error.code))
        .field("retryable", error.retryable)
        .field("details", text(&error.details).map(raw))
        .field("certificate", error.certificate.as_ref().map(certificate))
}

pub(super) fn worker(worker: &proto::Worker) -> Json {
    JsonObject::new()
        .field("worker_id", worker.worker_id)
        .field("kind", &worker.kind)
        .field("pid", number(worker.pid))
        .field("state", format::worker_state(worker.state))
        .field("query_id", text(&worker.query_id))
        .field("queries_processed", worker.queries_processed)
        .field("started_at", time(worker.started_at.as_ref()))
        .field("uptime_seconds", seconds(worker.uptime.as_ref()))
        .field("peak_rss_bytes", number(worker.peak_rss_bytes))
        .field("rss_bytes", number(worker.rss_bytes))
        // Memory and processor are sampled together: without the one there is no figure for the other.
        .field("cpu_percent", number(worker.rss_bytes).map(|_| worker.cpu_percent))
        .field("last_heard_seconds", seconds(worker.last_heard.as_ref()))
        .field("name", text(&worker.name))
        .field("version", text(&worker.version))
        .field("capabilities", &worker.capabilities)
        .field("key", text(&worker.key))
        .field("drained", worker.drained)
        .field("reserved_memory_bytes", number(worker.reserved_memory_bytes))
        .end()
}

/// A worker with its history and its death certificate.
pub(super) fn worker_details(response: &proto::GetWorkerResponse) -> Json {
    let transition = |step: &proto::WorkerTransition| {
        JsonObject::new()
            .field("from", format::worker_state(step.from))
            .field("to", format::worker_state(step.to))
            .field("at", time(step.at.as_ref()))
            .field("reason", &step.reason)
            .end()
    };
    let sample = |sample: &proto::ResourceSample| {
        JsonObject::new()
            .field("at", time(sample.at.as_ref()))
            .field("rss_bytes", sample.rss_bytes)
            .field("cpu_percent", sample.cpu_percent)
            .end()
    };
    JsonObject::new()
        .field("worker", response.worker.as_ref().map(worker))
        .field("history", response.history.iter().map(transition).collect::<Vec<_>>())
        .field("certificate", response.certificate.as_ref().map(certificate))
        .field("samples", response.samples.iter().map(sample).collect::<Vec<_>>())
        .end()
}

pub(super) fn query(query: &proto::QueryInfo) -> Json {
    JsonObject::new()
        .field("query_id", &query.query_id)
        .field("kind", &query.kind)
        .field("type", text(&query.r#type))
        .field("priority", query.priority)
        .field("owner", text(&query.owner))
        .field("key", text(&query.key))
        .field("state", format::query_state(query.state))
        .field("attempts", query.attempts)
        .field("worker_id", number(query.worker_id))
        .field("submitted_at", time(query.submitted_at.as_ref()))
        .field("started_at", time(query.started_at.as_ref()))
        .field("ended_at", time(query.ended_at.as_ref()))
        .field("next_sequence", query.next_sequence)
        .field("first_sequence", query.first_sequence)
        .field("dead_letter", query.dead_letter)
        .field("requeued_from", text(&query.requeued_from))
        .field("requeued_as", text(&query.requeued_as))
        .end()
}

pub(super) fn dead_letter(letter: &proto::DeadLetter) -> Json {
    let failure = |failed: &proto::FailedAttempt| {
        JsonObject::new()
            .field("attempt", failed.attempt)
            .field("at", time(failed.at.as_ref()))
            .field("error", failed.error.as_ref().map(|error| error_fields(JsonObject::new(), error).end()))
            .end()
    };
    JsonObject::new()
        .field("query", letter.query.as_ref().map(query))
        .field("payload", raw(&letter.payload))
        .field("failures", letter.failures.iter().map(failure).collect::<Vec<_>>())
        .end()
}

pub(super) fn requeued(requeued: &proto::Requeued) -> Json {
    JsonObject::new().field("query_id", &requeued.query_id).field("new_query_id", &requeued.new_query_id).end()
}

pub(super) fn health(health: &proto::HealthResponse) -> Json {
    let kind = |kind: &proto::KindHealth| {
        let workers = kind.workers.iter().map(|count| (format::worker_state(count.state), count.count));
        JsonObject::new()
            .field("kind", &kind.kind)
            .field("serving", kind.serving)
            .field("reason", text(&kind.reason))
            .field("workers", workers.collect::<BTreeMap<_, _>>())
            .field("min", kind.min)
            .field("max", kind.max)
            .field("queries_waiting", kind.queries_waiting)
            .field("last_failure", kind.last_failure.as_ref().map(certificate))
            .end()
    };
    JsonObject::new()
        .field("serving", health.serving)
        .field("reasons", &health.reasons)
        .field("lifecycle", &health.lifecycle)
        .field("occupancy", &health.occupancy)
        .field("kinds", health.kinds.iter().map(kind).collect::<Vec<_>>())
        .field("queries_waiting", health.queries_waiting)
        .field("version", &health.version)
        .field("uptime_seconds", seconds(health.uptime.as_ref()))
        .end()
}

pub(super) fn scaled(response: &proto::ScaleKindResponse) -> Json {
    JsonObject::new().field("kind", &response.kind).field("from", response.from).field("to", response.to).end()
}

/// An action on a worker, or on the whole pool.
pub(super) fn done(action: &str, worker_id: Option<u64>) -> Json {
    JsonObject::new().field("done", action).field("worker_id", worker_id).end()
}

pub(super) fn reload(response: &proto::ReloadResponse) -> Json {
    let change = |change: &proto::ConfigChange| {
        JsonObject::new()
            .field("path", &change.path)
            .field("old", &change.old)
            .field("new", &change.new)
            .field("effect", format::config_effect(change.effect))
            .end()
    };
    JsonObject::new()
        .field("changes", response.changes.iter().map(change).collect::<Vec<_>>())
        .field("applied", response.applied)
        .end()
}

/// An event of a query.
pub(super) fn event(query_id: &str, event: &proto::Event) -> Json {
    let object = JsonObject::new()
        .field("query_id", query_id)
        .field("sequence", event.sequence)
        .field("attempt", event.attempt)
        .field("at", format::time(event.at.as_ref()));
    let object = |name| object.field("type", name);
    match &event.body {
        Some(QueryBody::Session(session)) => object("session").field("session_id", &session.session_id),
        Some(QueryBody::Message(message)) => object("message").field("content", raw(&message.content)),
        Some(QueryBody::Retrying(retrying)) => object("retrying")
            .field("failed_attempt", retrying.failed_attempt)
            .field("max_attempts", retrying.max_attempts)
            .field("message", &retrying.message)
            .field("delay_seconds", seconds(retrying.delay.as_ref()).unwrap_or_default())
            .field("certificate", retrying.certificate.as_ref().map(certificate)),
        Some(QueryBody::Complete(complete)) => object("complete").field("result", raw(&complete.result)),
        Some(QueryBody::Error(error)) => error_fields(object("error"), error),
        Some(QueryBody::Cancelled(cancelled)) => {
            object("cancelled").field("reason", &cancelled.reason).field("stage", format::stop_stage(cancelled.stage))
        }
        Some(QueryBody::Rejected(rejected)) => object("rejected")
            .field("reason", format::reject_reason(rejected.reason))
            .field("message", &rejected.message),
        Some(QueryBody::Gap(gap)) => object("gap").field("first", gap.first).field("last", gap.last),
        None => object("unknown"),
    }
    .end()
}

/// An event of the pool.
pub(super) fn pool_event(event: &proto::PoolEvent) -> Json {
    let object = JsonObject::new()
        .field("sequence", event.sequence)
        .field("at", time(event.at.as_ref()))
        .field("name", &event.name)
        .field("kind", text(&event.kind));
    match &event.body {
        Some(PoolBody::WorkerMoved(moved)) => {
            let is_first = moved.from() == proto::WorkerState::Unspecified;
            object
                .field("worker_id", moved.worker_id)
                .field("from", (!is_first).then(|| format::worker_state(moved.from)))
                .field("to", format::worker_state(moved.to))
                .field("reason", &moved.reason)
                .field("query_id", text(&moved.query_id))
                .field("key", text(&moved.key))
        }
        Some(PoolBody::WorkerEnded(ended)) => object
            .field("worker_id", ended.certificate.as_ref().map(|certificate| certificate.worker_id))
            .field("certificate", ended.certificate.as_ref().map(certificate)),
        Some(PoolBody::Scaled(scaled)) => {
            object.field("from", scaled.from).field("to", scaled.to).field("reason", &scaled.reason)
        }
        Some(PoolBody::Evicted(evicted)) => object
            .field("worker_id", evicted.worker_id)
            .field("strategy", &evicted.strategy)
            .field("reason", &evicted.reason),
        Some(PoolBody::Circuit(circuit)) => {
            object.field("state", format::circuit_state(circuit.state)).field("reason", &circuit.reason)
        }
        Some(PoolBody::Pool(pool)) => object.field("state", &pool.state).field("reason", &pool.reason),
        Some(PoolBody::Reloaded(reloaded)) => object.field("changes", &reloaded.changes),
        Some(PoolBody::Missed(missed)) => object.field("missed", missed.count),
        None => object,
    }
    .end()
}
