//! A raw round trip: a query's line over a Unix socket to an echo worker and back, without a server in between.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use memchr::memchr_iter;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    drive::RoundLength,
    process::ChildProcess,
    round::{Round, RoundCounts},
};
use crate::{model::QueryId, protocol::PoolFrame};

const BUFFER_BYTES: usize = 64 * 1024;
/// Time limit of the worker's start, and of each answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of checks that the worker has connected.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct RawRoundTrip {
    stream: UnixStream,
    // Dropped in this order: the worker before its files.
    _worker: ChildProcess,
    _files: TempDir,
    query: BytesMut,
    /// Lines of an answer: its messages and the result.
    lines: u64,
    buffer: Vec<u8>,
}

impl RawRoundTrip {
    pub(super) fn start(program: &Path, temp_dir: &Path, payload: &str, messages: u64) -> io::Result<Self> {
        let files = tempfile::tempdir_in(temp_dir)?;
        let socket = files.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        let arguments: [&OsStr; 2] = ["worker".as_ref(), "echo".as_ref()];
        let mut worker = ChildProcess::start(program, &arguments, &[("REMUDA_SOCKET", socket.as_os_str())])?;
        let stream = accept(&listener, &mut worker)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut query = BytesMut::new();
        let id = QueryId::generate();
        PoolFrame::Query {
            request_id: id.as_str(),
            payload,
            attempt: Some(1),
            query_type: None,
            key: None,
            session_id: None,
            timeout_ms: None,
            traceparent: None,
        }
        .encode(&mut query);
        let mut raw =
            Self { stream, _worker: worker, _files: files, query, lines: messages + 1, buffer: vec![0; BUFFER_BYTES] };
        raw.receive(1)?; // The ready frame.
        Ok(raw)
    }

    /// Blocks until the round is over.
    pub(super) fn run(&mut self, length: RoundLength, stop: &CancellationToken) -> io::Result<Round> {
        let begun = Instant::now();
        let mut counts = RoundCounts::new();
        loop {
            let over = match length {
                RoundLength::Duration(duration) => begun.elapsed() >= duration,
                RoundLength::Queries(count) => counts.completed >= count,
            };
            if over || stop.is_cancelled() {
                return Ok(Round { counts, took: begun.elapsed(), killed: 0 });
            }
            let sent = Instant::now();
            self.stream.write_all(&self.query)?;
            self.receive(self.lines)?;
            counts.record_completed(self.lines - 1, sent.elapsed(), None);
        }
    }

    fn receive(&mut self, lines: u64) -> io::Result<()> {
        let mut seen = 0;
        while seen < lines {
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(io::Error::other("the echo worker has ended")),
                read => seen += memchr_iter(b'\n', &self.buffer[..read]).count() as u64,
            }
        }
        Ok(())
    }
}

fn accept(listener: &UnixListener, worker: &mut ChildProcess) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream.set_nonblocking(false).map(|()| stream),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if worker.has_ended() => return Err(io::Error::other("the echo worker ended before it connected")),
            Err(_) if Instant::now() > deadline => {
                return Err(io::Error::other("the echo worker did not connect in time"));
            }
            Err(_) => std::thread::sleep(CONNECT_POLL_INTERVAL),
        }
    }
}
