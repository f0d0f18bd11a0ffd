//! Keys of `[pool]`: bounds of all workers together.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::error::Location;
use super::super::format::{Checked, Optional};
use super::super::numbers::{ANY_TIME, Integer, MAX_LIVE, MEMORY_BYTES, Or, Size, Time};
use super::super::reader::SectionReader;
use super::super::schema::keys;
use super::super::strings::{Choice, FilePath, Word, check_length, words};

/// The pool appends the names of its directory and a socket, which must fit in the 108 bytes of a socket's path.
const SOCKET_DIR_MAX_BYTES: usize = 60;

keys! {
    /// Limits of all workers together.
    pub struct PoolConfig, PoolSettings {
        /// Workers alive at once, over all kinds. Each is a process that may hold a model or a browser, so the number
        /// is modest: raise it to what the machine's memory allows.
        max_workers: NonZeroUsize = Integer(1..=MAX_LIVE), Default(16), Applied;
        /// The memory that all workers may need together; "none" for no limit. Each worker's share, its kind's
        /// `memory`, is reserved before it starts, so every kind must then set it. None by default, because only you
        /// know what else the machine has to hold.
        memory_budget: Option<u64> = Or("none", Size(MEMORY_BYTES)), Default("none"), Applied;
        /// Choice of the idle worker that is stopped when the pool is full and a query needs a kind or a key that has
        /// no worker: "lru", the one unused for the longest time; "oldest", the one that started first; "least_used",
        /// the one that has run the fewest queries; "largest", the one that takes the most memory. By default the
        /// longest unused, as it is the least likely to be wanted soon. A worker that runs a query is never evicted.
        eviction: Eviction = Choice, Default("lru"), Applied;
        /// Workers that start at the same time, over all kinds; others wait their turn. A start loads the processor
        /// and the disk more than a query does: more than a few at once only slow down each other, and the running
        /// queries too.
        max_starting: NonZeroUsize = Integer(1..=MAX_LIVE), Default(4), Applied;
        /// Time after SIGTERM in which queries are still accepted while health and /readyz already report that the
        /// server does not serve: time for load balancers to notice and to send nothing here any more. None by
        /// default, as it makes every stop longer; behind a load balancer, and so on Kubernetes, "5s".
        drain_pause: Duration = Time(ANY_TIME), Default("0s"), Applied;
        /// Time that the accepted queries may go on after that: most end within half a minute, and a rollout is not
        /// held up for longer. The rest is stopped, and the server has ended at most cancel_grace and term_grace later;
        /// if these are shorter than two seconds together, stopping begins up to a second earlier. The supervisor of
        /// this server must wait longer than the four together (on Kubernetes terminationGracePeriodSeconds, which is
        /// 30 unless set).
        drain_timeout: Duration = Time(ANY_TIME), Default("30s"), Applied;
        /// Parent of the directory with the workers' sockets and private directories; a relative path is taken from
        /// this file's directory. At most 60 bytes, because a socket's whole path has room for 108. The system's
        /// temporary directory unless set.
        socket_dir: Option<PathBuf> = Optional(Checked(FilePath, |dir: &PathBuf| check_socket_dir(dir))),
            Unset("/run/remuda"), NeedsRestart;
    }
}

words! {
    /// Choice of the idle worker that makes room for one that is needed more.
    pub enum Eviction {
        /// The one unused for the longest time.
        Lru = "lru",
        /// The one that started first.
        Oldest = "oldest",
        /// The one that has run the fewest queries.
        LeastUsed = "least_used",
        /// The one that takes the most memory.
        Largest = "largest",
    }
}

impl Eviction {
    pub const ALL: [Self; 4] = [Self::Lru, Self::Oldest, Self::LeastUsed, Self::Largest];

    /// The word for it in the configuration and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.word()
    }
}

impl PoolConfig {
    /// Parent of the directory with the workers' sockets.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        self.socket_dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

fn check_socket_dir(dir: &Path) -> Result<(), String> {
    check_length(dir, SOCKET_DIR_MAX_BYTES, "leave room for a socket's name")
}

/// Reads the section; `temporary_dir` is the variable `TMPDIR`, which holds the sockets unless `socket_dir` is set.
pub(in crate::config) fn read<'t>(section: &SectionReader<'t>, temporary_dir: Option<&str>) -> PoolSettings<'t> {
    let settings = PoolSettings::read(section);
    if settings.socket_dir.is_default()
        && let Some(Err(problem)) = temporary_dir.map(|dir| check_socket_dir(Path::new(dir)))
    {
        section.mistakes.add(&Location::Variable("TMPDIR".to_owned()), "pool.socket_dir", problem);
    }
    settings
}
