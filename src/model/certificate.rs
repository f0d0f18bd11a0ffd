//! The record that every worker's end leaves behind.

use std::{
    fmt, io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{QueryId, WorkerId};

/// Why a worker ended. The first cause wins: what follows from it does not overwrite it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeathCause {
    Crash,
    OomKernel,
    OomLimit,
    NoHeartbeat,
    Timeout,
    Cancel,
    ProtocolError,
    StartFailed,
    StartTimeout,
    Disconnected,
    RecycledQueries,
    RecycledAge,
    Idle,
    ScaledDown,
    Evicted,
    Reloaded,
    Shutdown,
    /// It used more memory than it should keep.
    RecycledMemory,
    /// Someone asked for it to be replaced.
    Restarted,
}

impl DeathCause {
    pub const ALL: [Self; 19] = [
        Self::Crash,
        Self::OomKernel,
        Self::OomLimit,
        Self::NoHeartbeat,
        Self::Timeout,
        Self::Cancel,
        Self::ProtocolError,
        Self::StartFailed,
        Self::StartTimeout,
        Self::Disconnected,
        Self::RecycledQueries,
        Self::RecycledAge,
        Self::Idle,
        Self::ScaledDown,
        Self::Evicted,
        Self::Reloaded,
        Self::Shutdown,
        Self::RecycledMemory,
        Self::Restarted,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::OomKernel => "oom_kernel",
            Self::OomLimit => "oom_limit",
            Self::NoHeartbeat => "no_heartbeat",
            Self::Timeout => "timeout",
            Self::Cancel => "cancel",
            Self::ProtocolError => "protocol_error",
            Self::StartFailed => "start_failed",
            Self::StartTimeout => "start_timeout",
            Self::Disconnected => "disconnected",
            Self::RecycledQueries => "recycled_queries",
            Self::RecycledAge => "recycled_age",
            Self::Idle => "idle",
            Self::ScaledDown => "scaled_down",
            Self::Evicted => "evicted",
            Self::Reloaded => "reloaded",
            Self::Shutdown => "shutdown",
            Self::RecycledMemory => "recycled_memory",
            Self::Restarted => "restarted",
        }
    }

    /// Whether the worker failed, as opposed to being stopped on purpose.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Crash
            | Self::OomKernel
            | Self::OomLimit
            | Self::NoHeartbeat
            | Self::Timeout
            | Self::ProtocolError
            | Self::StartFailed
            | Self::StartTimeout
            | Self::Disconnected => true,
            Self::Cancel
            | Self::RecycledQueries
            | Self::RecycledAge
            | Self::Idle
            | Self::ScaledDown
            | Self::Evicted
            | Self::Reloaded
            | Self::Shutdown
            | Self::RecycledMemory
            | Self::Restarted => false,
        }
    }
}

impl fmt::Display for DeathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the process itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// There was no process, or the kernel would not give it back.
    Unknown,
}

impl Exit {
    #[must_use]
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            _ => None,
        }
    }

    /// The name of the signal that killed it, such as `SIGKILL`.
    #[must_use]
    pub fn signal_name(self) -> Option<String> {
        match self {
            Self::Signal(number) => Some(signal_name(number)),
            _ => None,
        }
    }
}

impl From<io::Result<ExitStatus>> for Exit {
    fn from(status: io::Result<ExitStatus>) -> Self {
        let Ok(status) = status else { return Self::Unknown };
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (_, Some(signal)) => Self::Signal(signal),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(number) => write!(f, "was killed by {}", signal_name(*number)),
            Self::Unknown => f.write_str("ended in an unknown way"),
        }
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

/// How many characters of last words a summary quotes; the certificate itself keeps more.
const LAST_WORDS: usize = 300;

/// Who ended, how, why, and with which last words.
#[derive(Debug, Clone, PartialEq)]
pub struct DeathCertificate {
    pub worker: WorkerId,
    pub kind: Arc<str>,
    pub pid: Option<u32>,
    pub cause: DeathCause,
    pub exit: Exit,
    /// What led to the end, where the cause alone does not say it: a protocol error, a start failure.
    pub detail: Option<String>,
    pub query: Option<QueryId>,
    pub uptime: Duration,
    pub queries_processed: u64,
    pub peak_rss: Option<u64>,
    pub stderr_tail: String,
    pub at: SystemTime,
}

impl DeathCertificate {
    /// The whole story in a sentence that a person can act on.
    #[must_use]
    pub fn summary(&self) -> String {
        self.tell("")
    }

    /// The same for a query that ran under it: `attempt` is put in, such as "; attempt 2 of 2".
    #[must_use]
    pub fn tell(&self, attempt: &str) -> String {
        let age = self.uptime.as_secs_f64();
        let what = match &self.detail {
            Some(detail) => format!("{detail}; it had lived {age:.1} s"),
            None => format!("{} after {age:.1} s", self.exit),
        };
        let peak = self.peak_rss.map(|peak| format!(", {} peak", bytesize::ByteSize::b(peak).display().iec()));
        let purpose = match self.cause {
            DeathCause::OomKernel => Some("; likely the kernel's out-of-memory killer".to_owned()),
            cause if cause.is_failure() => None,
            cause => Some(format!("; stopped on purpose: {cause}")),
        };
        let words = match self.last_words() {
            Some(words) => format!("its last words: {words}"),
            None => "it left no last words on stderr".to_owned(),
        };
        format!(
            "worker {} ({}) {what}{}{}{attempt}; {words}",
            self.worker,
            self.kind,
            peak.unwrap_or_default(),
            purpose.unwrap_or_default()
        )
    }

    /// The last lines of its standard error, on one line and not too long.
    #[must_use]
    pub fn last_words(&self) -> Option<String> {
        let lines: Vec<&str> = self.stderr_tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let words = lines[lines.len().saturating_sub(3)..].join(" | ");
        let excess = words.chars().count().saturating_sub(LAST_WORDS);
        match excess {
            0 if words.is_empty() => None,
            0 => Some(words),
            _ => Some(format!("…{}", words.chars().skip(excess).collect::<String>())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> DeathCertificate {
        DeathCertificate {
            worker: WorkerId(7),
            kind: "embed".into(),
            pid: Some(4242),
            cause: DeathCause::Crash,
            exit: Exit::Signal(9),
            detail: None,
            query: None,
            uptime: Duration::from_millis(3_200),
            queries_processed: 4,
            peak_rss: Some(412 * 1024 * 1024),
            stderr_tail: "loading\nboom\n".to_owned(),
            at: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_crash_tells_signal_age_memory_and_last_words() {
        assert_eq!(
            certificate().summary(),
            "worker 7 (embed) was killed by SIGKILL after 3.2 s, 412.0 MiB peak; its last words: loading | boom"
        );
    }

    #[test]
    fn long_last_words_are_cut_at_the_front() {
        let talkative = DeathCertificate { stderr_tail: format!("{}the end", "ä".repeat(1_000)), ..certificate() };
        let summary = talkative.summary();
        assert!(summary.ends_with("äthe end"), "{summary}");
        assert!(summary.contains("its last words: …ä"), "{summary}");
        assert!(summary.chars().count() < 400, "{summary}");
    }

    #[test]
    fn an_intended_end_says_so() {
        let stopped = DeathCertificate {
            cause: DeathCause::Shutdown,
            exit: Exit::Code(0),
            peak_rss: None,
            stderr_tail: String::new(),
            ..certificate()
        };
        assert_eq!(
            stopped.summary(),
            "worker 7 (embed) exited with code 0 after 3.2 s; stopped on purpose: shutdown; it left no last words on stderr"
        );
    }

    #[test]
    fn every_cause_has_its_own_name() {
        let mut names: Vec<_> = DeathCause::ALL.iter().map(|cause| cause.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DeathCause::ALL.len());
    }
}
