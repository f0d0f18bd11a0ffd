//! Turns what the pool knows into protobuf messages.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    broker::{CancelOutcome, DeadLetter, FailedAttempt, QueryInfo},
    config::{Change, Effect},
    model::{
        DeathCause, DeathCertificate, Event, EventBody, Failure, FailureReason, Outcome, RejectReason, Retrying,
        StopStage,
    },
    pool::{Accepted, Health, KindHealth, Reload, Scaled},
    state::{QueryState, Transition, WorkerState},
    worker::{Sample, Snapshot},
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
        EventBody::Ended(Outcome::Cancelled { reason, stage }) => {
            Body::Cancelled(proto::CancelledEvent { reason: reason.into(), stage: self::stage(stage).into() })
        }
        EventBody::Ended(Outcome::Rejected { reason, message }) => {
            Body::Rejected(proto::RejectedEvent { reason: reject_reason(reason).into(), message: message.into() })
        }
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
    let reason = match failure.reason {
        FailureReason::Reported => proto::ErrorReason::Reported,
        FailureReason::WorkerDied => proto::ErrorReason::WorkerDied,
        FailureReason::TimedOut => proto::ErrorReason::TimedOut,
        FailureReason::Shutdown => proto::ErrorReason::Shutdown,
        FailureReason::Overflow => proto::ErrorReason::Overflow,
    };
    proto::ErrorEvent {
        reason: reason.into(),
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
        cause: cause(certificate.cause).into(),
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
        state: query_state(accepted.submitted.state).into(),
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
    proto::CancelResponse { found: found.into(), state: query_state(state).into() }
}

pub(super) fn query(query: QueryInfo) -> proto::QueryInfo {
    proto::QueryInfo {
        query_id: query.id.to_string(),
        kind: query.kind.to_string(),
        r#type: query.query_type.unwrap_or_default().into(),
        priority: query.priority,
        owner: query.owner.unwrap_or_default().into(),
        key: query.key.unwrap_or_default().into(),
        state: query_state(query.state).into(),
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

pub(super) fn worker(worker: Snapshot) -> proto::Worker {
    proto::Worker {
        worker_id: worker.id.0,
        kind: worker.kind.to_string(),
        pid: worker.pid.unwrap_or_default(),
        state: worker_state(worker.state).into(),
        query_id: worker.query.map(|query| query.to_string()).unwrap_or_default(),
        queries_processed: worker.queries_processed,
        started_at: Some(worker.started_at.into()),
        uptime: duration(worker.uptime),
        peak_rss_bytes: worker.peak_rss.unwrap_or_default(),
        name: worker.introduction.name.unwrap_or_default(),
        version: worker.introduction.version.unwrap_or_default(),
        capabilities: worker.introduction.capabilities,
        rss_bytes: worker.usage.map_or(0, |usage| usage.rss),
        cpu_percent: worker.usage.map_or(0.0, |usage| usage.cpu_percent),
        last_heard: duration(worker.last_heard),
        key: worker.key.map(|key| key.to_string()).unwrap_or_default(),
        drained: worker.drained,
        reserved_memory_bytes: worker.reserved,
    }
}

pub(super) fn sample(sample: &Sample) -> proto::ResourceSample {
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
        from: worker_state(transition.from).into(),
        to: worker_state(transition.to).into(),
        at: SystemTime::now().checked_sub(age).map(Into::into),
        reason: transition.reason.to_string(),
    }
}

pub(super) fn health(health: &Health, kinds: Vec<proto::KindHealth>) -> proto::HealthResponse {
    proto::HealthResponse {
        serving: health.serving,
        reasons: health.reasons.clone(),
        lifecycle: health.lifecycle.to_string(),
        occupancy: health.occupancy.to_string(),
        queries_waiting: health.kinds.iter().map(|kind| kind.waiting as u64).sum(),
        kinds,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: duration(health.uptime),
    }
}

/// A kind serves only while the pool is open.
pub(super) fn kind_health(kind: &KindHealth, open: bool) -> proto::KindHealth {
    let count = |(state, count): &(WorkerState, usize)| proto::StateCount {
        state: worker_state(*state).into(),
        count: narrow(*count),
    };
    proto::KindHealth {
        kind: kind.kind.name.to_string(),
        serving: open && kind.reason.is_none(),
        reason: kind.reason.clone().unwrap_or_default(),
        workers: kind.workers.iter().map(count).collect(),
        min: narrow(kind.kind.min),
        max: narrow(kind.kind.max.get()),
        queries_waiting: kind.waiting as u64,
        last_failure: kind.last_failure.as_deref().map(certificate),
    }
}

pub(super) fn scaled(scaled: &Scaled) -> proto::ScaleKindResponse {
    proto::ScaleKindResponse { kind: scaled.kind.to_string(), from: narrow(scaled.from), to: narrow(scaled.to) }
}

pub(super) fn reload(reload: Reload) -> proto::ReloadResponse {
    let change = |change: Change| proto::ConfigChange {
        path: change.path,
        old: change.old,
        new: change.new,
        effect: config_effect(change.effect).into(),
    };
    proto::ReloadResponse { changes: reload.changes.into_iter().map(change).collect(), applied: reload.applied }
}

fn config_effect(effect: Effect) -> proto::ConfigEffect {
    match effect {
        Effect::Applied => proto::ConfigEffect::Applied,
        Effect::Rolls => proto::ConfigEffect::Rolls,
        Effect::KindAdded => proto::ConfigEffect::KindAdded,
        Effect::KindRemoved => proto::ConfigEffect::KindRemoved,
        Effect::NeedsRestart => proto::ConfigEffect::NeedsRestart,
    }
}

pub(super) fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

pub(super) fn query_state(state: QueryState) -> proto::QueryState {
    match state {
        QueryState::Pending => proto::QueryState::Pending,
        QueryState::Processing => proto::QueryState::Processing,
        QueryState::Streaming => proto::QueryState::Streaming,
        QueryState::RetryPending => proto::QueryState::RetryPending,
        QueryState::Complete => proto::QueryState::Complete,
        QueryState::Error => proto::QueryState::Error,
        QueryState::Cancelled => proto::QueryState::Cancelled,
        QueryState::Rejected => proto::QueryState::Rejected,
    }
}

pub(super) fn state_from_proto(state: proto::QueryState) -> Option<QueryState> {
    use crate::state::State;
    QueryState::ALL.iter().copied().find(|known| query_state(*known) == state)
}

pub(super) fn worker_state(state: WorkerState) -> proto::WorkerState {
    match state {
        WorkerState::Spawning => proto::WorkerState::Spawning,
        WorkerState::Loading => proto::WorkerState::Loading,
        WorkerState::Ready => proto::WorkerState::Ready,
        WorkerState::Processing => proto::WorkerState::Processing,
        WorkerState::Idle => proto::WorkerState::Idle,
        WorkerState::Evicting => proto::WorkerState::Evicting,
        WorkerState::Dead => proto::WorkerState::Dead,
        WorkerState::Failed => proto::WorkerState::Failed,
    }
}

fn stage(stage: StopStage) -> proto::StopStage {
    match stage {
        StopStage::Queued => proto::StopStage::Queued,
        StopStage::CancelFrame => proto::StopStage::CancelFrame,
        StopStage::Sigterm => proto::StopStage::Sigterm,
        StopStage::Sigkill => proto::StopStage::Sigkill,
    }
}

fn reject_reason(reason: RejectReason) -> proto::RejectReason {
    match reason {
        RejectReason::Deadline => proto::RejectReason::Deadline,
        RejectReason::Shutdown => proto::RejectReason::Shutdown,
        RejectReason::CircuitOpen => proto::RejectReason::CircuitOpen,
        RejectReason::Busy => proto::RejectReason::Busy,
        RejectReason::Shed => proto::RejectReason::Shed,
    }
}

fn cause(cause: DeathCause) -> proto::DeathCause {
    match cause {
        DeathCause::Crash => proto::DeathCause::Crash,
        DeathCause::OomKernel => proto::DeathCause::OomKernel,
        DeathCause::OomLimit => proto::DeathCause::OomLimit,
        DeathCause::NoHeartbeat => proto::DeathCause::NoHeartbeat,
        DeathCause::Timeout => proto::DeathCause::Timeout,
        DeathCause::Cancel => proto::DeathCause::Cancel,
        DeathCause::ProtocolError => proto::DeathCause::ProtocolError,
        DeathCause::StartFailed => proto::DeathCause::StartFailed,
        DeathCause::StartTimeout => proto::DeathCause::StartTimeout,
        DeathCause::Disconnected => proto::DeathCause::Disconnected,
        DeathCause::RecycledQueries => proto::DeathCause::RecycledQueries,
        DeathCause::RecycledAge => proto::DeathCause::RecycledAge,
        DeathCause::Idle => proto::DeathCause::Idle,
        DeathCause::ScaledDown => proto::DeathCause::ScaledDown,
        DeathCause::Evicted => proto::DeathCause::Evicted,
        DeathCause::Reloaded => proto::DeathCause::Reloaded,
        DeathCause::Shutdown => proto::DeathCause::Shutdown,
        DeathCause::RecycledMemory => proto::DeathCause::RecycledMemory,
        DeathCause::Restarted => proto::DeathCause::Restarted,
    }
}
