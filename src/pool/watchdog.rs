//! Notices if the supervisor stands still: then only a restart of the server helps.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A pass takes milliseconds, and there are two a second at the least. One that takes this long will not end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Knows when the supervisor last got through a pass. One that ends takes the server with it, and needs no watching.
#[derive(Debug)]
pub(super) struct Watchdog(Mutex<Instant>);

impl Watchdog {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(now))
    }

    /// The supervisor got through a pass.
    pub(super) fn passed(&self, now: Instant) {
        *self.0.lock() = now;
    }

    /// Why the server should be restarted, if it should.
    pub(super) fn alarm(&self, now: Instant) -> Option<String> {
        let since = now.saturating_duration_since(*self.0.lock());
        let stuck = || format!("the supervisor of the workers has been stuck for {} s", since.as_secs());
        (since >= PATIENCE).then(stuck)
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
        config::{Config, Overrides, Source},
        http,
        metrics::Metrics,
        pool::{Inner, Parts, Pool},
        server,
    };

    #[test]
    fn raises_the_alarm_when_there_was_no_pass_for_long() {
        let start = Instant::now();
        let nearly = Duration::from_millis(29_999);
        let watchdog = Watchdog::new(start);
        assert_eq!(watchdog.alarm(start), None);
        assert_eq!(watchdog.alarm(start + nearly), None);
        let alarm = watchdog.alarm(start + PATIENCE);
        assert_eq!(alarm.as_deref(), Some("the supervisor of the workers has been stuck for 30 s"));
        watchdog.passed(start + PATIENCE);
        assert_eq!(watchdog.alarm(start + PATIENCE + nearly), None, "it goes on");
        assert!(watchdog.alarm(start + PATIENCE * 2).is_some());
    }

    /// A pool whose supervisor is never run.
    fn unattended() -> Pool {
        let text = "[kinds.k]\ncommand = [\"w\"]\n".to_owned();
        let source = Source::Text { name: "test".to_owned(), text, base_dir: "/".into() };
        let config = Config::load(source, [], &Overrides::default()).expect("a sound config");
        let metrics = Arc::new(Metrics::new());
        let broker = Broker::memory(server::limits(&config), metrics.query.clone());
        let (launcher, reloader) = (PathBuf::new(), None);
        let parts = Parts { config, broker, metrics, launcher, environment: |_| Vec::new(), reloader };
        Pool { inner: Arc::new(Inner::new(parts)) }
    }

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        answer
    }

    #[tokio::test]
    async fn whoever_asks_for_livez_is_told_that_the_supervisor_is_stuck() {
        let pool = unattended();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let access = http::HttpAccess { tls: None, tokens: None, open_paths: Arc::default(), max_connections: 4 };
        tokio::spawn(http::serve(listener, pool.clone(), access, std::future::pending()));
        assert!(ask(address).await.starts_with("HTTP/1.1 200"));

        let long_ago = Instant::now().checked_sub(PATIENCE * 2).expect("the machine has been up for a minute");
        pool.inner.watchdog.passed(long_ago);
        let answer = ask(address).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("\r\n\r\nthe supervisor of the workers has been stuck for 6"), "{answer}");

        pool.inner.watchdog.passed(Instant::now());
        assert!(ask(address).await.starts_with("HTTP/1.1 200"), "it goes on");
    }
}
