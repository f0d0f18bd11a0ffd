//! HTTP endpoints: metrics for Prometheus, liveness and readiness for orchestrators.

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
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    pool::{Pool, PoolHealth},
    security::{Alpn, AuthError, Role, Tls, Tokens},
    transport::{ConnectionLimiter, MaybeTlsStream, Slot, accept_tls},
};

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str = "remuda\n\n\
    /metrics  for Prometheus\n\
    /livez    liveness: 503 only if the process should be restarted\n\
    /readyz   readiness: 503 if no query could start, with the reasons\n";

/// Time for a client to send a request, the first one or the next.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Age at which a connection is closed, after the current response: clients that do not read must not lock others out.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(5);
/// Time for a connection that must make room to finish its response.
const EVICTION_GRACE: Duration = Duration::from_millis(200);
/// Bounds the head of a request; bodies are not read.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Pause after a failed accept: at the descriptor limit the next one would fail at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Access to the HTTP listener.
#[derive(Debug, Clone)]
pub struct HttpAccess {
    pub tls: Option<Arc<Tls>>,
    pub tokens: Option<Arc<Tokens>>,
    /// Paths that need no token.
    pub open_paths: Arc<[String]>,
    /// When this many are open, a new connection displaces the oldest.
    pub max_connections: usize,
}

/// Serves until `stop` resolves and all responses are sent.
pub async fn serve(listener: TcpListener, pool: Pool, access: HttpAccess, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router(pool, access.clone()));
    let closing = CancellationToken::new();
    let limiter = ConnectionLimiter::new(access.max_connections, closing.clone());
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
        let (tls, service) = (access.tls.clone(), service.clone());
        connections.spawn(async move {
            let first_request = Instant::now() + REQUEST_TIMEOUT;
            let stream = tokio::select! {
                stream = timeout_at(first_request, accept_tls(stream, tls.as_deref(), Alpn::Http1)) => stream,
                () = slot.entry.wait_for_leave_request() => return,
            };
            if let Ok(Ok(stream)) = stream {
                serve_connection(stream, service, slot, first_request, MAX_CONNECTION_AGE).await;
            }
        });
    }
    closing.cancel();
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(%error, "cannot accept an HTTP connection; retrying");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves one connection. Its errors are the client's and not logged.
async fn serve_connection(
    stream: MaybeTlsStream,
    service: TowerToHyperService<Router>,
    slot: Slot,
    first_request: Instant,
    max_age: Duration,
) {
    let had_request = AtomicBool::new(false);
    let service = service_fn(|request| {
        had_request.store(true, Relaxed);
        service.call(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    // The TLS handshake counts towards the time for the first request.
    let no_request = async {
        sleep_until(first_request).await;
        if had_request.load(Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = no_request => return,
        () = sleep(max_age) => {}
        () = slot.entry.wait_for_leave_request() => {}
    }
    let must_make_room = slot.entry.is_leaving();
    if must_make_room && !had_request.load(Relaxed) {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(if must_make_room { EVICTION_GRACE } else { REQUEST_TIMEOUT }, connection).await;
}

fn router(pool: Pool, access: HttpAccess) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(not_found)
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n"))
        .layer(middleware::from_fn_with_state(access, authorize))
        .with_state(pool)
}

/// Refuses requests without a token that may read, except to open paths.
async fn authorize(State(access): State<HttpAccess>, request: Request, next: Next) -> Response {
    let Some(tokens) = &access.tokens else { return next.run(request).await };
    if access.open_paths.iter().any(|path| path == request.uri().path()) {
        return next.run(request).await;
    }
    let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match tokens.check(header, &[Role::Read]) {
        Ok(()) => next.run(request).await,
        Err(error @ AuthError::MissingRole(_)) => (StatusCode::FORBIDDEN, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], format!("{error}\n")).into_response(),
    }
}

async fn not_found(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(100).collect();
    (StatusCode::NOT_FOUND, format!("there is no {path} here\n\n{INDEX}")).into_response()
}

async fn metrics(State(pool): State<Pool>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS_TEXT)], pool.render_metrics()).into_response()
}

/// 503 only if a restart helps. Workers that fail to start are no reason, because a restart would not change that.
async fn livez(State(pool): State<Pool>) -> Response {
    match pool.stuck_reason() {
        None => "ok\n".into_response(),
        Some(alarm) => (StatusCode::SERVICE_UNAVAILABLE, format!("{alarm}\n")).into_response(),
    }
}

/// 200 if a query could start, 503 otherwise. The body has the reasons in both cases, because single kinds may fail.
async fn readyz(State(pool): State<Pool>) -> Response {
    let health = pool.health();
    let code = if health.serving { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, [(CONTENT_TYPE, "application/json")], format!("{}\n", describe(&health))).into_response()
}

fn describe(health: &PoolHealth) -> serde_json::Value {
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

    const MAX_AGE: Duration = Duration::from_millis(300);

    async fn answer_late() -> &'static str {
        sleep(2 * MAX_AGE).await;
        "late\n"
    }

    #[tokio::test]
    async fn connection_ends_at_its_maximum_age_after_its_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut idle = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut asking = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let limiter = ConnectionLimiter::new(2, CancellationToken::new());
        for _ in 0..2 {
            let stream = MaybeTlsStream::Left(listener.accept().await.unwrap().0);
            let service = TowerToHyperService::new(Router::new().route("/", get(answer_late)));
            let slot = limiter.try_acquire().unwrap();
            tokio::spawn(serve_connection(stream, service, slot, Instant::now() + REQUEST_TIMEOUT, MAX_AGE));
        }
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        asking.write_all(request).await.unwrap();
        let (mut nothing, mut answer) = (Vec::new(), String::new());
        timeout(REQUEST_TIMEOUT / 2, idle.read_to_end(&mut nothing)).await.expect("it is closed in time").unwrap();
        assert!(nothing.is_empty());
        timeout(REQUEST_TIMEOUT / 2, asking.read_to_string(&mut answer)).await.expect("it is closed in time").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late\n"), "{answer}");
    }
}
