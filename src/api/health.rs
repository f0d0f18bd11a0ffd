//! The standard `grpc.health.v1.Health`: the server as a whole, its services, and each kind by name.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

use crate::pool::Pool;

use super::errors;

/// How soon a watcher learns of a change.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// Service names that stand for the whole server.
const WHOLE: [&str; 3] = ["", "remuda.v1.WorkerPool", "remuda.v1.PoolAdmin"];

#[derive(Debug)]
pub(super) struct HealthService {
    pub pool: Pool,
    /// Watchers are told the last of it, and that is all.
    pub closing: CancellationToken,
}

/// The answer for a service name; `None` if there is none of that name.
fn status(pool: &Pool, service: &str) -> Option<ServingStatus> {
    let health = pool.health();
    let serving = if WHOLE.contains(&service) { health.serving } else { health.of_kind(service)?.serving };
    Some(if serving { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// The moments at which a watcher's answer may have changed: the server's end is the last of them.
struct Looks {
    ticks: Interval,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Looks {
    fn new(closing: CancellationToken) -> Self {
        let mut ticks = interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, closing: Some(Box::pin(closing.cancelled_owned())) }
    }
}

impl Stream for Looks {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Some(closing) = &mut self.closing else { return Poll::Ready(None) };
        if closing.as_mut().poll(context).is_ready() {
            self.closing = None;
            return Poll::Ready(Some(()));
        }
        self.ticks.poll_tick(context).map(|_| Some(()))
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        let status = status(&self.pool, &service).ok_or_else(|| {
            let kinds = self.pool.kind_names().join(", ");
            let message = format!("there is no service {service:?}; ask for \"\" or a kind: {kinds}");
            errors::plain(Code::NotFound, &message, "SERVICE_NOT_FOUND")
        })?;
        Ok(Response::new(response(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let pool = self.pool.clone();
        let mut told = None;
        let changes = Looks::new(self.closing.clone()).filter_map(move |()| {
            let now = status(&pool, &service).unwrap_or(ServingStatus::ServiceUnknown);
            (told.replace(now) != Some(now)).then(|| Ok(response(now)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
