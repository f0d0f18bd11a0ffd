//! The HTTP side: metrics for Prometheus, and the two questions an orchestrator asks.

use std::future::Future;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::pool::{Health, Pool};

/// The text format's own content type.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str =
    "remuda\n\n/metrics  for Prometheus\n/livez    is the process alive\n/readyz   could a query start now\n";

/// Serves until `stop` resolves and all answers are sent.
pub async fn serve(
    listener: TcpListener,
    pool: Pool,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(pool);
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn metrics(State(pool): State<Pool>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS_TEXT)], pool.render_metrics()).into_response()
}

/// 200 if a query could start; otherwise 503. The body says why in both cases, for kinds may fail one by one.
async fn readyz(State(pool): State<Pool>) -> Response {
    let health = pool.health();
    let code = if health.serving { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, [(CONTENT_TYPE, "application/json")], format!("{}\n", describe(&health))).into_response()
}

fn describe(health: &Health) -> serde_json::Value {
    json!({
        "serving": health.serving,
        "reasons": health.reasons,
        "lifecycle": health.lifecycle.to_string(),
        "occupancy": health.occupancy.to_string(),
    })
}
