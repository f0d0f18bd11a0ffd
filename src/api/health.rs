//! The standard `grpc.health.v1.Health`: the server as a whole, its services, and each kind by name.

use std::{pin::Pin, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::{Stream, StreamExt, wrappers::IntervalStream};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

use crate::pool::Pool;

/// How soon a watcher learns of a change.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// Service names that stand for the whole server.
const WHOLE: [&str; 3] = ["", "remuda.v1.WorkerPool", "remuda.v1.PoolAdmin"];

#[derive(Debug)]
pub(super) struct HealthService {
    pub pool: Pool,
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

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        let status = status(&self.pool, &service).ok_or_else(|| {
            let kinds = self.pool.kind_names().join(", ");
            Status::not_found(format!("there is no service {service:?}; ask for \"\" or a kind: {kinds}"))
        })?;
        Ok(Response::new(response(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let pool = self.pool.clone();
        let mut ticks = interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        let changes = IntervalStream::new(ticks).filter_map(move |_| {
            let now = status(&pool, &service).unwrap_or(ServingStatus::ServiceUnknown);
            (told.replace(now) != Some(now)).then(|| Ok(response(now)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
