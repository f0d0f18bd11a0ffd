//! The record that every worker's end leaves behind.

use std::{
    fmt, io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{QueryId, WorkerId};
use crate::state::named_enum;

named_enum! {
    /// Reason for a worker's end. The first cause wins: its consequences do not overwrite it.
    pub enum DeathCause {
        Crash => "crash",
        OomKernel => "oom_kernel",
        OomLimit => "oom_limit",
        NoHeartbeat => "no_heartbeat",
        Timeout => "timeout",
        Cancel => "cancel",
        ProtocolError => "protocol_error",
        StartFailed => "start_failed",
        StartTimeout => "start_timeout",
        Disconnected => "disconnected",
        RecycledQueries => "recycled_queries",
        RecycledAge => "recycled_age",
        Idle => "idle",
        ScaledDown => "scaled_down",
        Evicted => "evicted",
        Reloaded => "reloaded",
        Shutdown => "shutdown",
        /// It used more memory than it should keep.
        RecycledMemory => "recycled_memory",
        /// An operator asked for it to be replaced.
        Restarted => "restarted",
    }
}

impl DeathCause {
    /// True if the worker failed, false if it was stopped on purpose.
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

/// End of the process itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// There was no process, or it could not be reaped.
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
    let signal: nix::Result<nix::sys::signal::Signal> = number.try_into();
    signal.map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// Characters of last words that a summary quotes; the certificate itself keeps more.
const LAST_WORDS_MAX_CHARS: usize = 300;

/// Record of a worker's end: its cause, the exit status, and the end of its standard error.
#[derive(Debug, Clone, PartialEq)]
pub struct DeathCertificate {
    pub worker: WorkerId,
    pub kind: Arc<str>,
    pub pid: Option<u32>,
    pub cause: DeathCause,
    pub exit: Exit,
    /// Details of the cause: the protocol error, the start failure.
    pub detail: Option<String>,
    pub query: Option<QueryId>,
    pub uptime: Duration,
    pub queries_processed: u64,
    pub peak_rss: Option<u64>,
    pub stderr_tail: String,
    pub at: SystemTime,
}

impl DeathCertificate {
    /// One sentence that a person can act on.
    #[must_use]
    pub fn summary(&self) -> String {
        self.summary_of_attempt("")
    }

    /// The summary for the query that the worker ran, with `attempt` inserted, such as "; attempt 2 of 2".
    #[must_use]
    pub fn summary_of_attempt(&self, attempt: &str) -> String {
        let age = self.uptime.as_secs_f64();
        let end = match &self.detail {
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
            "worker {} ({}) {end}{}{}{attempt}; {words}",
            self.worker,
            self.kind,
            peak.unwrap_or_default(),
            purpose.unwrap_or_default()
        )
    }

    /// The last three lines of standard error, joined and cut.
    #[must_use]
    pub fn last_words(&self) -> Option<String> {
        let lines: Vec<&str> = self.stderr_tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let words = lines[lines.len().saturating_sub(3)..].join(" | ");
        let excess = words.chars().count().saturating_sub(LAST_WORDS_MAX_CHARS);
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
    fn summary_of_a_crash_has_signal_age_memory_and_last_words() {
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
    fn summary_of_an_intended_end_says_so() {
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
    fn cause_names_are_distinct() {
        let mut names: Vec<_> = DeathCause::ALL.iter().map(|cause| cause.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DeathCause::ALL.len());
    }
}
