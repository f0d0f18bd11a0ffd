//! The standard `grpc.health.v1.Health` service: the whole server, its services, and each kind by name.

use std::{pin::Pin, time::Duration};

use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

use crate::pool::Pool;

use super::{Reply, errors};

/// Interval at which the status of a watched service is checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Service names that stand for the whole server.
const SERVER_NAMES: [&str; 3] = ["", "remuda.v1.WorkerPool", "remuda.v1.PoolAdmin"];

#[derive(Debug)]
pub(super) struct HealthService {
    pub pool: Pool,
    /// Cancelled when the streams of watchers must end, after a last check.
    pub closing: CancellationToken,
}

/// The status of a service; `None` if there is none of that name.
fn status(pool: &Pool, service: &str) -> Option<ServingStatus> {
    let health = pool.health();
    let serving = if SERVER_NAMES.contains(&service) { health.serving } else { health.of_kind(service)?.serving };
    Some(if serving { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Reply<HealthCheckResponse> {
        let service = request.into_inner().service;
        let status = status(&self.pool, &service).ok_or_else(|| {
            let kinds = self.pool.kind_names().join(", ");
            let message = format!("there is no service {service:?}; ask for \"\" or a kind: {kinds}");
            errors::status(Code::NotFound, "SERVICE_NOT_FOUND", &message, &[])
        })?;
        Ok(Response::new(response(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Reply<Self::WatchStream> {
        let service = request.into_inner().service;
        let pool = self.pool.clone();
        let mut ticks = interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One item for each check; the last one is made when the server closes.
        let checks = stream::unfold(Some((ticks, self.closing.clone())), async |state| {
            let (mut ticks, closing) = state?;
            let is_open = closing.run_until_cancelled(ticks.tick()).await.is_some();
            Some(((), is_open.then_some((ticks, closing))))
        });
        let mut sent = None;
        let changes = checks.filter_map(move |()| {
            let now = status(&pool, &service).unwrap_or(ServingStatus::ServiceUnknown);
            (sent.replace(now) != Some(now)).then(|| Ok(response(now)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
