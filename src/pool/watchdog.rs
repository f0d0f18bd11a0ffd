//! Watchdog: detects a supervisor that is stuck, which only a restart of the server mends.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A pass takes milliseconds, and there are at least two per second: one that takes this long will not end.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// The time of the supervisor's last pass. A supervisor that ends needs no watching: the server ends with it.
#[derive(Debug)]
pub(super) struct Watchdog(Mutex<Instant>);

impl Watchdog {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(now))
    }

    pub(super) fn record_pass(&self, now: Instant) {
        *self.0.lock() = now;
    }

    /// Reason to restart the server, if there is one.
    pub(super) fn stuck_reason(&self, now: Instant) -> Option<String> {
        let since = now.saturating_duration_since(*self.0.lock());
        let stuck = || format!("the supervisor of the workers has been stuck for {} s", since.as_secs());
        (since >= STUCK_AFTER).then(stuck)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, path::PathBuf, sync::Arc};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    use super::*;
    use crate::{
        broker::Broker,
        config::{Config, ConfigSource, Overrides},
        http,
        metrics::Metrics,
        pool::{Pool, PoolParams, PoolParts},
        server,
    };

    #[test]
    fn supervisor_is_stuck_after_thirty_seconds_without_a_pass() {
        let start = Instant::now();
        let nearly = Duration::from_millis(29_999);
        let watchdog = Watchdog::new(start);
        assert_eq!(watchdog.stuck_reason(start), None);
        assert_eq!(watchdog.stuck_reason(start + nearly), None);
        let reason = watchdog.stuck_reason(start + STUCK_AFTER);
        assert_eq!(reason.as_deref(), Some("the supervisor of the workers has been stuck for 30 s"));
        watchdog.record_pass(start + STUCK_AFTER);
        assert_eq!(watchdog.stuck_reason(start + STUCK_AFTER + nearly), None, "it goes on");
        assert!(watchdog.stuck_reason(start + STUCK_AFTER * 2).is_some());
    }

    /// A pool whose supervisor is never run.
    fn unattended() -> Pool {
        let text = "[kinds.k]\ncommand = [\"w\"]\n".to_owned();
        let source = ConfigSource::Text { name: "test".to_owned(), text, base_dir: "/".into() };
        let config = Config::load(source, [], &Overrides::default()).expect("a sound config");
        let metrics = Arc::new(Metrics::new());
        let broker = Broker::memory(server::limits(&config), metrics.query.clone());
        let (launcher, reloader) = (PathBuf::new(), None);
        let params = PoolParams { config, broker, metrics, launcher, environment: |_| Vec::new(), reloader };
        Pool { parts: Arc::new(PoolParts::new(params)) }
    }

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(STUCK_AFTER, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        answer
    }

    #[tokio::test]
    async fn livez_fails_while_the_supervisor_is_stuck() {
        let pool = unattended();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let access = http::HttpAccess { tls: None, tokens: None, open_paths: Arc::default(), max_connections: 4 };
        tokio::spawn(http::serve(listener, pool.clone(), access, std::future::pending()));
        assert!(ask(address).await.starts_with("HTTP/1.1 200"));

        let long_ago = Instant::now().checked_sub(STUCK_AFTER * 2).expect("the machine has been up for a minute");
        pool.parts.watchdog.record_pass(long_ago);
        let answer = ask(address).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("\r\n\r\nthe supervisor of the workers has been stuck for 6"), "{answer}");

        pool.parts.watchdog.record_pass(Instant::now());
        assert!(ask(address).await.starts_with("HTTP/1.1 200"), "it goes on");
    }
}
