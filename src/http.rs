//! The HTTP side: metrics for Prometheus, and the two questions an orchestrator asks.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::pool::{Health, Pool};

/// The text format's own content type.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str = "remuda\n\n\
    /metrics  for Prometheus\n\
    /livez    is the process alive: 503 only if it should be restarted\n\
    /readyz   could a query start now: 503 if not, and why\n";

/// How long a client may take to ask, for the first time or again.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection is closed after this long, between two requests, and what is left of it soon after: a client that does not
/// read its answer must not keep others out.
const LIFETIME: Duration = Duration::from_mins(5);
/// Bounds the head of a request; bodies are not read.
const MAX_HEAD: usize = 16 * 1024;
/// How long to wait after an accept failed: at the descriptor limit it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves on at most so many connections at once, until `stop` resolves and all answers are sent.
pub async fn serve(listener: TcpListener, pool: Pool, max_connections: usize, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router(pool));
    let slots = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let closing = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let next = async {
            let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            (slot, accept(&listener).await)
        };
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (slot, stream) = next => {
                let (service, closing) = (service.clone(), closing.clone());
                connections.spawn(async move {
                    attend(stream, service, closing).await;
                    drop(slot);
                });
            }
        }
    }
    closing.cancel();
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(%error, "cannot accept an HTTP connection; trying again shortly");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection. What goes wrong with it is the client's to find.
async fn attend(stream: TcpStream, service: TowerToHyperService<Router>, closing: CancellationToken) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(LIFETIME) => {}
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(PATIENCE, connection).await;
}

fn router(pool: Pool) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(unknown)
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n"))
        .with_state(pool)
}

async fn unknown(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(100).collect();
    (StatusCode::NOT_FOUND, format!("there is no {path} here\n\n{INDEX}")).into_response()
}

async fn metrics(State(pool): State<Pool>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS_TEXT)], pool.render_metrics()).into_response()
}

/// 503 only if nothing but a restart helps. Workers that do not start are no reason: a restart would not mend them.
async fn livez(State(pool): State<Pool>) -> Response {
    match pool.alarm() {
        None => "ok\n".into_response(),
        Some(alarm) => (StatusCode::SERVICE_UNAVAILABLE, format!("{alarm}\n")).into_response(),
    }
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
