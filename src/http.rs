//! The HTTP side: metrics for Prometheus, and the two questions an orchestrator asks.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode, Uri,
        header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    pool::{Health, Pool},
    security::{AuthError, Alpn, RequiredRole, Tls, Tokens},
    transport::{ConnectionLimiter, MaybeTlsStream, Slot},
};

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
/// What is left to a connection that must make room for another: time to read an answer that is on its way.
const FAREWELL: Duration = Duration::from_millis(200);
/// Bounds the head of a request; bodies are not read.
const MAX_HEAD: usize = 16 * 1024;
/// How long to wait after an accept failed: at the descriptor limit it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is let in.
#[derive(Debug, Clone)]
pub struct Door {
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
    /// These paths need no token.
    pub open_paths: Arc<[String]>,
    pub max_connections: usize,
}

/// Serves on at most so many connections at once, the oldest of which makes room for a new one, until `stop` resolves and all answers are sent.
pub async fn serve(listener: TcpListener, pool: Pool, door: Door, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router(pool, door.clone()));
    let closing = CancellationToken::new();
    let limiter = ConnectionLimiter::new(door.max_connections, closing.clone());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            stream = accept(&listener) => stream,
        };
        let slot = tokio::select! {
            () = &mut stop => break,
            slot = limiter.clone().acquire() => slot,
        };
        let service = service.clone();
        let stream = MaybeTlsStream::new(stream, door.tls.as_deref(), Alpn::Http1);
        connections.spawn(async move { attend(stream, service, slot, LIFETIME).await });
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
async fn attend(stream: MaybeTlsStream, service: TowerToHyperService<Router>, slot: Slot, lifetime: Duration) {
    let heard = AtomicBool::new(false);
    let service = service_fn(|request| {
        heard.store(true, Relaxed);
        service.call(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service)
    );
    let patience = tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(lifetime) => PATIENCE,
        () = slot.entry.wait_for_leave_request() => if slot.entry.is_leaving() { FAREWELL } else { PATIENCE },
    };
    if patience == FAREWELL && !heard.load(Relaxed) {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(patience, connection).await;
}

fn router(pool: Pool, door: Door) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(unknown)
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n"))
        .layer(middleware::from_fn_with_state(door, admit))
        .with_state(pool)
}

/// Lets a request through if its token allows it. Whatever is served here is for looking at.
async fn admit(State(door): State<Door>, request: Request, next: Next) -> Response {
    let Some(tokens) = &door.tokens else { return next.run(request).await };
    if door.open_paths.iter().any(|path| path == request.uri().path()) {
        return next.run(request).await;
    }
    let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match tokens.check(header, RequiredRole::Read) {
        Ok(()) => next.run(request).await,
        Err(denied @ AuthError::MissingRole(_)) => (StatusCode::FORBIDDEN, format!("{denied}\n")).into_response(),
        Err(denied) => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], format!("{denied}\n")).into_response()
        }
    }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIFE: Duration = Duration::from_millis(300);

    async fn answer_late() -> &'static str {
        sleep(2 * LIFE).await;
        "late\n"
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_life_and_after_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut idle = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut asking = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let limiter = ConnectionLimiter::new(2, CancellationToken::new());
        for _ in 0..2 {
            let stream = MaybeTlsStream::new(listener.accept().await.unwrap().0, None, Alpn::Http1);
            let service = TowerToHyperService::new(Router::new().route("/", get(answer_late)));
            let slot = limiter.try_acquire().unwrap();
            tokio::spawn(attend(stream, service, slot, LIFE));
        }
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        asking.write_all(request).await.unwrap();
        let (mut nothing, mut answer) = (Vec::new(), String::new());
        timeout(PATIENCE / 2, idle.read_to_end(&mut nothing)).await.expect("it is closed in time").unwrap();
        assert!(nothing.is_empty());
        timeout(PATIENCE / 2, asking.read_to_string(&mut answer)).await.expect("it is closed in time").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late\n"), "{answer}");
    }
}
