//! The connection to the pool, and the frames that go out on it.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::Stdio,
    sync::Mutex,
};

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

/// The transport of the worker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport {
    Socket,
    Stdio,
}

pub(crate) struct Wire {
    /// `None` means stdin and stdout.
    socket: Option<UnixStream>,
    /// Two threads write, one frame at a time.
    turn: Mutex<()>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Frame<'a> {
    Ready {
        #[serde(flatten)]
        more: &'a Map<String, Value>,
    },
    Session {
        request_id: &'a str,
        session_id: &'a str,
    },
    Message {
        request_id: &'a str,
        content: &'a RawValue,
    },
    Complete {
        request_id: &'a str,
        result: &'a RawValue,
    },
    Error {
        request_id: &'a str,
        #[serde(flatten)]
        body: &'a Map<String, Value>,
    },
    Heartbeat {
        state: &'a str,
        memory: u64,
        tasks: usize,
    },
    HealthOk {
        uptime: f64,
        queries_processed: u64,
    },
    ShutdownAck,
    NoSuchType,
}

impl Wire {
    pub(crate) fn open(transport: Transport) -> io::Result<Self> {
        let socket = match transport {
            Transport::Socket => {
                let path = env::var_os("REMUDA_SOCKET").ok_or_else(|| io::Error::other("REMUDA_SOCKET is not set"))?;
                Some(UnixStream::connect(path)?)
            }
            Transport::Stdio => None,
        };
        Ok(Self { socket, turn: Mutex::new(()) })
    }

    pub(crate) fn send(&self, frame: &Frame<'_>) {
        self.write(frame.line().as_bytes());
    }

    /// Writes the bytes as they are. If the pool is gone there is nobody to tell; the reader notices.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let _turn = self.turn.lock().expect("no writer panics");
        let _ = match &self.socket {
            Some(socket) => (&mut &*socket).write_all(bytes),
            None => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        };
    }

    pub(crate) fn reader(&self) -> Box<dyn BufRead + '_> {
        match &self.socket {
            Some(socket) => Box::new(BufReader::new(socket)),
            None => Box::new(io::stdin().lock()),
        }
    }

    /// Ends the connection for everyone who holds it.
    pub(crate) fn close(&self) {
        let _ = match &self.socket {
            Some(socket) => socket.shutdown(Shutdown::Both),
            None => rustix::net::shutdown(io::stdin(), rustix::net::Shutdown::Both).map_err(io::Error::from),
        };
    }

    /// The connection as a child's stdin.
    pub(crate) fn share(&self) -> io::Result<Stdio> {
        match &self.socket {
            Some(socket) => Ok(std::os::fd::OwnedFd::from(socket.try_clone()?).into()),
            None => Ok(Stdio::inherit()),
        }
    }
}

impl Frame<'_> {
    /// The frame with its newline.
    pub(crate) fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a frame can always be written to memory");
        line.push('\n');
        line
    }
}
