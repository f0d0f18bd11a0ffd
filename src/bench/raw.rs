//! A raw round trip: a query's line over a Unix socket to an echo worker and its answer back, with nothing between them.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use memchr::memchr_iter;
use tokio_util::sync::CancellationToken;

use super::{
    drive::Extent,
    process::Started,
    round::{Round, Tally},
    temp_dir::TempDir,
};
use crate::{model::QueryId, protocol::PoolFrame};

const BUFFER: usize = 64 * 1024;
/// What the worker's start, and each answer, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether the worker has connected.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Raw {
    stream: UnixStream,
    // Dropped in this order: the worker's files go after it.
    _worker: Started,
    _files: TempDir,
    query: BytesMut,
    /// Of an answer: its messages and the result.
    lines: u64,
    buffer: Vec<u8>,
}

impl Raw {
    pub(super) fn start(program: &Path, place: &Path, payload: &str, messages: u64) -> io::Result<Self> {
        let files = TempDir::new(place)?;
        let socket = files.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        let arguments: [&OsStr; 2] = ["worker".as_ref(), "echo".as_ref()];
        let mut worker = Started::new(program, &arguments, &[("REMUDA_SOCKET", socket.as_os_str())])?;
        let stream = accept(&listener, &mut worker)?;
        stream.set_read_timeout(Some(PATIENCE))?;
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
            Self { stream, _worker: worker, _files: files, query, lines: messages + 1, buffer: vec![0; BUFFER] };
        raw.receive(1)?; // That it is ready.
        Ok(raw)
    }

    /// Blocks until the round is over.
    pub(super) fn drive(&mut self, extent: Extent, stop: &CancellationToken) -> io::Result<Round> {
        let begun = Instant::now();
        let mut tally = Tally::new();
        loop {
            let over = match extent {
                Extent::For(duration) => begun.elapsed() >= duration,
                Extent::Count(count) => tally.completed >= count,
            };
            if over || stop.is_cancelled() {
                return Ok(Round { tally, took: begun.elapsed() });
            }
            let sent = Instant::now();
            self.stream.write_all(&self.query)?;
            self.receive(self.lines)?;
            tally.completed(self.lines - 1, sent.elapsed(), None);
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

fn accept(listener: &UnixListener, worker: &mut Started) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream.set_nonblocking(false).map(|()| stream),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if worker.has_ended() => return Err(io::Error::other("the echo worker ended before it connected")),
            Err(_) if Instant::now() > deadline => {
                return Err(io::Error::other("the echo worker did not connect in time"));
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}
