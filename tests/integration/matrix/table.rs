//! The expectation for every combination.

use remuda::api::proto::DeathCause;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misbehaviour {
    Exit0,
    Exit3,
    Segfault,
    Killed,
    Abort,
    SocketClosed,
    HalfLineThenExit,
    GarbageLine,
    LineTooLong,
    InvalidUtf8,
    UnknownType,
    StaleFrame,
    SecondReady,
    MessageAfterComplete,
    TwoCompletes,
    SilentHang,
    Stopped,
    IgnoresCancel,
    IgnoresSigterm,
    GrandchildHoldsSocket,
    FloodsStderr,
    ClosesStdout,
}

/// When the worker misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has connected.
    BeforeReady,
    /// It is ready and has had no query.
    Idle,
    BeforeFirstMessage,
    MidStream,
    /// Its first query is over.
    AfterComplete,
    /// In mid-stream, too, while the server lets running queries end. What is expected is the same.
    WhileDraining,
    /// It has been told to go; the query that ran when the server was told to stop has ended.
    DuringShutdown,
}

/// The recovery policy of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Reject,
    Retry,
}

/// The fate of the query and of the worker. Where the query completes, it does so in its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// There is no such combination, for this reason.
    Senseless(&'static str),
    /// The query completes and the worker lives on.
    Harmless,
    /// The query completes, or is none of this worker's; the worker ends with this cause.
    Ends(DeathCause),
    /// The worker ends with this cause under its query: with `reject` the query ends as `WORKER_DIED`, with `retry`
    /// there is one `retrying` event and the second attempt completes.
    Dies(DeathCause),
    /// The query ends as `TIMED_OUT`, whatever the policy, and takes the worker along.
    TimesOut,
    /// The query is cancelled and ends so on SIGTERM, whatever the policy, and takes the worker along.
    Cancelled,
    /// The query is still there at the end of the drain and ends as `SHUTDOWN`, whatever the policy.
    CutShort,
}

use Cell::{Cancelled, CutShort, Dies, Ends, Harmless, Senseless, TimesOut};
use DeathCause::{Crash, Disconnected, NoHeartbeat, ProtocolError, Shutdown, StartFailed, StartTimeout};
use Misbehaviour::{
    Abort, ClosesStdout, Exit0, Exit3, FloodsStderr, GarbageLine, GrandchildHoldsSocket, HalfLineThenExit,
    IgnoresCancel, IgnoresSigterm, InvalidUtf8, Killed, LineTooLong, MessageAfterComplete, SecondReady, Segfault,
    SilentHang, SocketClosed, StaleFrame, Stopped, TwoCompletes, UnknownType,
};

const NO_QUERY: Cell = Senseless("no query has completed yet");
const NOTHING_TO_CANCEL: Cell = Senseless("there is nothing to cancel");
const FIRST_READY: Cell = Senseless("a ready before ready is the first");
const STOPS: Cell = Ends(Shutdown);

/// One row for each misbehaviour, one column for each of [`Phase::ALL`].
#[rustfmt::skip]
pub(super) const TABLE: [(Misbehaviour, [Cell; 6]); 22] = [
    //                      before ready         idle                 first message        mid-stream           after complete       shutdown
    (Exit0,                 [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (Exit3,                 [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (Segfault,              [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (Killed,                [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (Abort,                 [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (SocketClosed,          [Ends(Disconnected),  Ends(Disconnected),  Dies(Disconnected),  Dies(Disconnected),  Ends(Disconnected),  STOPS]),
    (HalfLineThenExit,      [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (GarbageLine,           [Ends(ProtocolError), Ends(ProtocolError), Dies(ProtocolError), Dies(ProtocolError), Ends(ProtocolError), STOPS]),
    (LineTooLong,           [Ends(ProtocolError), Ends(ProtocolError), Dies(ProtocolError), Dies(ProtocolError), Ends(ProtocolError), STOPS]),
    (InvalidUtf8,           [Ends(ProtocolError), Ends(ProtocolError), Dies(ProtocolError), Dies(ProtocolError), Ends(ProtocolError), STOPS]),
    (UnknownType,           [Ends(ProtocolError), Ends(ProtocolError), Dies(ProtocolError), Dies(ProtocolError), Ends(ProtocolError), STOPS]),
    (StaleFrame,            [Ends(ProtocolError), Harmless,            Harmless,            Harmless,            Harmless,            STOPS]),
    (SecondReady,           [FIRST_READY,         Ends(ProtocolError), Dies(ProtocolError), Dies(ProtocolError), Ends(ProtocolError), STOPS]),
    (MessageAfterComplete,  [NO_QUERY,            NO_QUERY,            Harmless,            Harmless,            Harmless,            STOPS]),
    (TwoCompletes,          [NO_QUERY,            NO_QUERY,            Harmless,            Harmless,            Harmless,            STOPS]),
    (SilentHang,            [Ends(StartTimeout),  Ends(NoHeartbeat),   TimesOut,            TimesOut,            Ends(NoHeartbeat),   STOPS]),
    (Stopped,               [Ends(StartTimeout),  Ends(NoHeartbeat),   Dies(NoHeartbeat),   Dies(NoHeartbeat),   Ends(NoHeartbeat),   STOPS]),
    (IgnoresCancel,         [NOTHING_TO_CANCEL,   NOTHING_TO_CANCEL,   Cancelled,           Cancelled,           NOTHING_TO_CANCEL,   CutShort]),
    (IgnoresSigterm,        [Ends(StartTimeout),  Ends(NoHeartbeat),   TimesOut,            TimesOut,            Ends(NoHeartbeat),   STOPS]),
    (GrandchildHoldsSocket, [Ends(StartFailed),   Ends(Crash),         Dies(Crash),         Dies(Crash),         Ends(Crash),         STOPS]),
    (FloodsStderr,          [Harmless,            Harmless,            Harmless,            Harmless,            Harmless,            STOPS]),
    (ClosesStdout,          [Harmless,            Harmless,            Harmless,            Harmless,            Harmless,            STOPS]),
];

/// One combination that is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub misbehaviour: Misbehaviour,
    pub phase: Phase,
    pub policy: Policy,
    pub cell: Cell,
}

impl Misbehaviour {
    /// Also the name of the kind whose workers do it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Exit0 => "exit-0",
            Exit3 => "exit-3",
            Segfault => "segfault",
            Killed => "killed",
            Abort => "abort",
            SocketClosed => "socket-closed",
            HalfLineThenExit => "half-line-then-exit",
            GarbageLine => "garbage-line",
            LineTooLong => "line-too-long",
            InvalidUtf8 => "invalid-utf8",
            UnknownType => "unknown-type",
            StaleFrame => "stale-frame",
            SecondReady => "second-ready",
            MessageAfterComplete => "message-after-complete",
            TwoCompletes => "two-completes",
            SilentHang => "silent-hang",
            Stopped => "stopped",
            IgnoresCancel => "ignores-cancel",
            IgnoresSigterm => "ignores-sigterm",
            GrandchildHoldsSocket => "grandchild-holds-socket",
            FloodsStderr => "floods-stderr",
            ClosesStdout => "closes-stdout",
        }
    }

    /// The exit code or the signal that its certificate must tell: its own, or the one that had to be sent.
    pub(super) fn exit(self) -> (Option<i32>, &'static str) {
        match self {
            Exit0 => (Some(0), ""),
            Exit3 | HalfLineThenExit | GrandchildHoldsSocket => (Some(3), ""),
            Segfault => (None, "SIGSEGV"),
            Abort => (None, "SIGABRT"),
            // Neither a stopped process nor one that ignores it ends on SIGTERM.
            Killed | Stopped | IgnoresSigterm => (None, "SIGKILL"),
            _ => (None, "SIGTERM"),
        }
    }

    /// Exit code and signal of a worker that misbehaves so when it is asked to stop, if it stops by itself.
    pub(super) fn own_exit(self) -> Option<(Option<i32>, &'static str)> {
        match self {
            Exit0 | Exit3 | Segfault | Killed | Abort | HalfLineThenExit | GrandchildHoldsSocket => Some(self.exit()),
            SocketClosed | SilentHang | Stopped | IgnoresCancel | IgnoresSigterm => None,
            _ => Some((Some(0), "")),
        }
    }

    /// True if it is counted as a stale frame.
    pub(super) fn is_stale(self) -> bool {
        matches!(self, StaleFrame | MessageAfterComplete | TwoCompletes)
    }
}

impl Phase {
    /// The columns of the table.
    pub(super) const ALL: [Self; 6] = [
        Self::BeforeReady,
        Self::Idle,
        Self::BeforeFirstMessage,
        Self::MidStream,
        Self::AfterComplete,
        Self::DuringShutdown,
    ];

    /// The combinations of this phase that make sense.
    pub(super) fn rows(self, policy: Policy) -> Vec<Row> {
        let column_of = if self == Self::WhileDraining { Self::MidStream } else { self };
        let column = Self::ALL.iter().position(|phase| *phase == column_of).expect("the table has its column");
        let row = |(misbehaviour, cells): &(Misbehaviour, [Cell; 6])| Row {
            misbehaviour: *misbehaviour,
            phase: self,
            policy,
            cell: cells[column],
        };
        TABLE.iter().map(row).filter(|row| !matches!(row.cell, Senseless(_))).collect()
    }

    /// True if the worker misbehaves while its query runs.
    pub(super) fn is_within_query(self) -> bool {
        matches!(self, Self::BeforeFirstMessage | Self::MidStream | Self::WhileDraining)
    }

    /// True if the misbehaving worker has no query: then it is the second one of its kind, after the first was killed.
    pub(super) fn is_without_query(self) -> bool {
        matches!(self, Self::BeforeReady | Self::Idle)
    }
}

impl Row {
    pub(super) fn kind(&self) -> &'static str {
        self.misbehaviour.name()
    }

    /// Cause of the misbehaving worker's end, if it ends.
    pub(super) fn cause(&self) -> Option<DeathCause> {
        match self.cell {
            Senseless(_) | Harmless => None,
            Ends(cause) | Dies(cause) => Some(cause),
            TimesOut => Some(DeathCause::Timeout),
            Cancelled => Some(DeathCause::Cancel),
            CutShort => Some(Shutdown),
        }
    }

    /// Causes of the ends of the kind's workers, in order, before the server stops.
    pub(super) fn deaths(&self) -> Vec<DeathCause> {
        let killed = self.phase.is_without_query().then_some(Crash);
        killed.into_iter().chain(self.cause()).collect()
    }

    /// True if a second attempt is expected.
    pub(super) fn is_retried(&self) -> bool {
        matches!(self.cell, Dies(_)) && self.policy == Policy::Retry
    }

    pub(super) fn stale_frames(&self) -> u32 {
        u32::from(self.cell == Harmless && self.misbehaviour.is_stale())
    }
}
