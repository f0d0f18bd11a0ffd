//! Conversions from the types of the pool to protobuf messages.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    broker::{CancelOutcome, DeadLetter, FailedAttempt, QueryInfo},
    config::{Effect, ValueChange},
    model::{
        DeathCause, DeathCertificate, Event, EventBody, Failure, FailureReason, Outcome, RejectReason, Retrying,
        StopStage,
    },
    pool::{Accepted, KindHealth, PoolHealth, ReloadOutcome, ScaleOutcome},
    state::{CircuitState, QueryState, Transition, WorkerState},
    worker::{UsageSample, WorkerSnapshot},
};

use super::proto;

pub(super) fn event(event: Event) -> proto::Event {
    proto::Event {
        sequence: event.sequence,
        attempt: event.attempt,
        at: Some(event.at.into()),
        body: Some(body(event.body)),
    }
}

fn body(body: EventBody) -> proto::event::Body {
    use proto::event::Body;
    match body {
        EventBody::Session { session_id } => Body::Session(proto::SessionEvent { session_id: session_id.into() }),
        EventBody::Message { content } => Body::Message(proto::MessageEvent { content: content.as_str().to_owned() }),
        EventBody::Retrying(retrying) => Body::Retrying(self::retrying(*retrying)),
        EventBody::Gap { first, last } => Body::Gap(proto::GapEvent { first, last }),
        EventBody::Ended(Outcome::Complete { result }) => {
            Body::Complete(proto::CompleteEvent { result: result.as_str().to_owned() })
        }
        EventBody::Ended(Outcome::Error(failure)) => Body::Error(self::failure(*failure)),
        EventBody::Ended(Outcome::Cancelled { reason, stage }) => Body::Cancelled(proto::CancelledEvent {
            reason: reason.into(),
            stage: proto::StopStage::from(stage).into(),
        }),
        EventBody::Ended(Outcome::Rejected { reason, message }) => Body::Rejected(proto::RejectedEvent {
            reason: proto::RejectReason::from(reason).into(),
            message: message.into(),
        }),
    }
}

fn retrying(retrying: Retrying) -> proto::RetryingEvent {
    proto::RetryingEvent {
        failed_attempt: retrying.failed_attempt,
        max_attempts: retrying.max_attempts,
        message: retrying.failure.message.into(),
        delay: duration(retrying.delay),
        certificate: retrying.failure.certificate.as_deref().map(certificate),
    }
}

fn failure(failure: Failure) -> proto::ErrorEvent {
    proto::ErrorEvent {
        reason: proto::ErrorReason::from(failure.reason).into(),
        message: failure.message.into(),
        code: failure.code.unwrap_or_default().into(),
        retryable: failure.retryable,
        details: failure.details.map(|details| details.as_str().to_owned()).unwrap_or_default(),
        certificate: failure.certificate.as_deref().map(certificate),
    }
}

pub(super) fn certificate(certificate: &DeathCertificate) -> proto::DeathCertificate {
    proto::DeathCertificate {
        worker_id: certificate.worker.0,
        kind: certificate.kind.to_string(),
        pid: certificate.pid.unwrap_or_default(),
        cause: proto::DeathCause::from(certificate.cause).into(),
        exit_code: certificate.exit.code(),
        signal: certificate.exit.signal_name().unwrap_or_default(),
        query_id: certificate.query.as_ref().map(ToString::to_string).unwrap_or_default(),
        uptime: duration(certificate.uptime),
        queries_processed: certificate.queries_processed,
        peak_rss_bytes: certificate.peak_rss.unwrap_or_default(),
        stderr_tail: certificate.stderr_tail.clone(),
        summary: certificate.summary(),
        at: Some(certificate.at.into()),
    }
}

pub(super) fn submit_response(accepted: &Accepted) -> proto::SubmitResponse {
    proto::SubmitResponse {
        query_id: accepted.id.as_str().to_owned(),
        kind: accepted.kind.as_ref().to_owned(),
        state: proto::QueryState::from(accepted.submitted.state).into(),
        existed: accepted.submitted.existed,
    }
}

pub(super) fn cancel_found(found: CancelOutcome) -> proto::CancelResponse {
    let (found, state) = match found {
        CancelOutcome::Queued => (proto::CancelFound::Queued, QueryState::Cancelled),
        CancelOutcome::Running(state) => (proto::CancelFound::Running, state),
        CancelOutcome::Cancelling(state) => (proto::CancelFound::Cancelling, state),
        CancelOutcome::Ended(state) => (proto::CancelFound::Ended, state),
    };
    proto::CancelResponse { found: found.into(), state: proto::QueryState::from(state).into() }
}

pub(super) fn query(query: QueryInfo) -> proto::QueryInfo {
    proto::QueryInfo {
        query_id: query.id.to_string(),
        kind: query.kind.to_string(),
        r#type: query.query_type.unwrap_or_default().into(),
        priority: query.priority,
        owner: query.owner.unwrap_or_default().into(),
        key: query.key.unwrap_or_default().into(),
        state: proto::QueryState::from(query.state).into(),
        attempts: query.attempts,
        worker_id: query.worker.map_or(0, |worker| worker.0),
        submitted_at: Some(query.submitted_at.into()),
        started_at: query.started_at.map(Into::into),
        ended_at: query.ended_at.map(Into::into),
        next_sequence: query.next_sequence,
        first_sequence: query.first_sequence,
        dead_letter: query.dead_letter,
        requeued_from: query.requeued_from.map(|id| id.to_string()).unwrap_or_default(),
        requeued_as: query.requeued_as.map(|id| id.to_string()).unwrap_or_default(),
    }
}

pub(super) fn worker(worker: WorkerSnapshot) -> proto::Worker {
    proto::Worker {
        worker_id: worker.id.0,
        kind: worker.kind.to_string(),
        pid: worker.pid.unwrap_or_default(),
        state: proto::WorkerState::from(worker.stats.state).into(),
        query_id: worker.query.map(|query| query.to_string()).unwrap_or_default(),
        queries_processed: worker.stats.queries_processed,
        started_at: Some(worker.started_at.into()),
        uptime: duration(worker.stats.age),
        peak_rss_bytes: worker.peak_rss.unwrap_or_default(),
        name: worker.ready_info.name.unwrap_or_default(),
        version: worker.ready_info.version.unwrap_or_default(),
        capabilities: worker.ready_info.capabilities,
        rss_bytes: worker.usage.map_or(0, |usage| usage.rss),
        cpu_percent: worker.usage.map_or(0.0, |usage| usage.cpu_percent),
        last_heard: duration(worker.stats.silence),
        key: worker.key.map(|key| key.to_string()).unwrap_or_default(),
        drained: worker.stats.drained,
        reserved_memory_bytes: worker.stats.reserved,
    }
}

pub(super) fn sample(sample: &UsageSample) -> proto::ResourceSample {
    proto::ResourceSample { at: Some(sample.at.into()), rss_bytes: sample.rss, cpu_percent: sample.cpu_percent }
}

pub(super) fn dead_letter(letter: DeadLetter) -> proto::DeadLetter {
    let attempt = |failed: FailedAttempt| proto::FailedAttempt {
        attempt: failed.attempt,
        at: Some(failed.at.into()),
        error: Some(failure(failed.failure)),
    };
    proto::DeadLetter {
        query: Some(query(letter.query)),
        payload: letter.payload.as_str().to_owned(),
        failures: letter.failures.into_iter().map(attempt).collect(),
    }
}

pub(super) fn transition(transition: &Transition<WorkerState>) -> proto::WorkerTransition {
    let age = Instant::now().saturating_duration_since(transition.at);
    proto::WorkerTransition {
        from: proto::WorkerState::from(transition.from).into(),
        to: proto::WorkerState::from(transition.to).into(),
        at: SystemTime::now().checked_sub(age).map(Into::into),
        reason: transition.reason.to_string(),
    }
}

pub(super) fn health(health: &PoolHealth) -> proto::HealthResponse {
    let is_open = health.closed.is_none();
    proto::HealthResponse {
        serving: health.serving,
        reasons: health.reasons.clone(),
        lifecycle: health.lifecycle.to_string(),
        occupancy: health.occupancy.to_string(),
        queries_waiting: health.kinds.iter().map(|kind| kind.waiting as u64).sum(),
        kinds: health.kinds.iter().map(|kind| kind_health(kind, is_open)).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: duration(health.uptime),
    }
}

/// A kind serves only while the pool is open.
fn kind_health(kind: &KindHealth, is_open: bool) -> proto::KindHealth {
    let count = |(state, count): &(WorkerState, usize)| proto::StateCount {
        state: proto::WorkerState::from(*state).into(),
        count: saturated(*count),
    };
    proto::KindHealth {
        kind: kind.kind.name.to_string(),
        serving: is_open && kind.reason.is_none(),
        reason: kind.reason.clone().unwrap_or_default(),
        workers: kind.workers.iter().map(count).collect(),
        min: saturated(kind.kind.min),
        max: saturated(kind.kind.max.get()),
        queries_waiting: kind.waiting as u64,
        last_failure: kind.last_failure.as_deref().map(certificate),
    }
}

pub(super) fn scaled(scaled: &ScaleOutcome) -> proto::ScaleKindResponse {
    proto::ScaleKindResponse { kind: scaled.kind.to_string(), from: saturated(scaled.from), to: saturated(scaled.to) }
}

pub(super) fn reload(reload: ReloadOutcome) -> proto::ReloadResponse {
    let change = |change: ValueChange| proto::ConfigChange {
        path: change.path,
        old: change.old,
        new: change.new,
        effect: proto::ConfigEffect::from(change.effect).into(),
    };
    proto::ReloadResponse { changes: reload.changes.into_iter().map(change).collect(), applied: reload.applied }
}

/// A count for the wire; larger ones than it can hold are capped.
pub(super) fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

/// Converts an enum of the server to one of the contract. A variant that is missing here does not compile.
macro_rules! convert_enum {
    ($from:ident => $to:ident: $($variant:ident)+) => {
        impl From<$from> for proto::$to {
            fn from(value: $from) -> Self {
                match value {
                    $($from::$variant => Self::$variant,)+
                }
            }
        }
    };
}

convert_enum!(QueryState => QueryState: Pending Processing Streaming RetryPending Complete Error Cancelled Rejected);
convert_enum!(WorkerState => WorkerState: Spawning Loading Ready Processing Idle Evicting Dead Failed);
convert_enum!(StopStage => StopStage: Queued CancelFrame Sigterm Sigkill);
convert_enum!(FailureReason => ErrorReason: Reported WorkerDied TimedOut Shutdown Overflow);
convert_enum!(RejectReason => RejectReason: Deadline Shutdown CircuitOpen Busy Shed);
convert_enum!(CircuitState => CircuitState: Open HalfOpen Closed);
convert_enum!(Effect => ConfigEffect: Applied Rolls KindAdded KindRemoved NeedsRestart);
convert_enum!(DeathCause => DeathCause:
    Crash OomKernel OomLimit NoHeartbeat Timeout Cancel ProtocolError StartFailed StartTimeout Disconnected RecycledQueries
    RecycledAge RecycledMemory Idle ScaledDown Evicted Reloaded Restarted Shutdown
);

/// The state of the server for one of the contract; `None` for unspecified.
pub(super) fn query_state_from_proto(state: proto::QueryState) -> Option<QueryState> {
    QueryState::ALL.iter().copied().find(|known| proto::QueryState::from(*known) == state)
}
