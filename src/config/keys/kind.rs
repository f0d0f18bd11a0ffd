//! Keys of `[kinds.NAME]`: one kind of worker. Those of its confinement are in their own file.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use super::super::format::{List, Optional};
use super::super::numbers::{
    ANY_TIME, Boolean, HALVABLE_TIME, Integer, MAX_COUNTED, MAX_LIVE, MEMORY_BYTES, MESSAGE_BYTES, Or, SOME_TIME, Size,
    Time,
};
use super::super::schema::keys;
use super::super::strings::{
    Choice, Text, Variables, WorkDir, WorkDirPath, capability, group_name, not_empty, user_name, variable_name, words,
};
use super::confinement::Confinement;

/// Bound of failures in a row: nobody counts further before acting, so a larger number is a typing error.
const MAX_FAILURES: u64 = 1_000_000;

keys! {
    /// One kind of worker.
    pub struct KindConfig, KindSettings {
        /// The program and its arguments, run without a shell. Required. If each worker has a directory of its own,
        /// see dir, a program or argument with a slash or a dot in it that names a file as seen from the server's
        /// working directory is passed as an absolute path; for others write "./worker".
        command: Vec<String> = List(Text(not_empty)), Required(
            ["python3", "worker.py"],
            "write the program and its arguments, like command = [\"python3\", \"worker.py\"]"
        ), Rolls;
        /// The query types that this kind serves, so that a query need not name its kind. A type belongs to one kind.
        types: Vec<String> = List(Text(not_empty)), Default([]), Applied;
        /// Capabilities of this kind, in words of your own, like ["gpu", "large"]: a query that asks for capabilities
        /// goes to a kind that has all of them. At most 64, of at most 64 bytes each.
        capabilities: Vec<String> = List(Text(capability)), Default([]), Applied;
        /// Workers kept warm. One by default, so that the first query does not wait for a start; with 0 the first
        /// worker starts when the first query comes. Over all kinds at most pool.max_workers.
        min: usize = Integer(0..=MAX_LIVE), Default(1), Applied;
        /// Workers alive at most, within pool.max_workers; while one is being replaced, one more. 4 by default, or min
        /// if that is more, so that one kind does not take the whole pool.
        max: NonZeroUsize = Integer(1..=MAX_LIVE), Default(4), Applied;
        /// The working directory. "private", an empty one for each worker under pool.socket_dir, which is its TMPDIR
        /// too unless env has one, and which is removed when the worker has ended: no worker finds files that another
        /// has left. Else a path, relative to this file's directory, that all workers share, like "."; the command's
        /// arguments are then passed as they are. For a directory of that name write "./private".
        dir: WorkDir = WorkDirPath, Default("private"), Rolls;
        /// Variables set for the worker, like { MODEL = "small" }. Names that start with REMUDA_ are reserved.
        env: BTreeMap<String, String> = Variables, Default({}), Rolls;
        /// Names of the server's own variables that the worker gets too, beside PATH, HOME, LANG, LC_ALL, TZ and
        /// TMPDIR. None by default, because a server's environment tends to hold secrets. If env sets the same name,
        /// env wins.
        pass_env: Vec<String> = List(Text(variable_name)), Default([]), Rolls;
        /// The Unix user that the worker runs as, by name; the server must be allowed to change to it, which takes
        /// root. The server's own user unless set. Other users can pass through the private directory in
        /// pool.socket_dir, and must be able to reach it.
        user: Option<String> = Optional(Text(user_name)), Unset("nobody"), Rolls;
        /// The Unix group that the worker runs in, by name. That of the user unless set. Beside it the worker has the
        /// supplementary groups of the user, or none if no user is set.
        group: Option<String> = Optional(Text(group_name)), Unset("nogroup"), Rolls;
        /// "socket" or "stdio". A socket by default, because then a stray print cannot break the protocol.
        transport: Transport = Choice, Default("socket"), Rolls;
        /// Binds each worker to one key: it serves queries of that key and no others, for its whole life, and every
        /// query must have a key. For workers that hold the data of one workspace or user. False by default, because
        /// then every worker can serve every query.
        keyed: bool = Boolean, Default(false), Rolls;
        /// Preference, unless the kind is keyed, for the worker that served the same key or session before. "prefer":
        /// that one if it is free, else any; "strict": the query waits for it as long as it lives; "off": none, the
        /// worker only receives the key. Prefer by default: a warm cache is used if there is one, and nobody waits for
        /// it. A keyed kind is always strict.
        affinity: Affinity = Choice, Default("prefer"), Applied;
        /// Choice among several free workers: "round_robin", each in turn; "least_loaded", the one that has run the
        /// fewest queries; "most_recent", the one that was used last, so that the others can be stopped when there is
        /// little to do. In turn by default: all stay warm and wear evenly.
        balance: Balance = Choice, Default("round_robin"), Applied;
        /// The memory that one worker is expected to need: reserved out of pool.memory_budget before it starts, and
        /// released when it has ended. Required if there is a budget, of no effect otherwise.
        memory: Option<u64> = Optional(Size(MEMORY_BYTES)), Unset("512MiB"), Rolls;
        /// A worker measured above this is replaced as soon as it has no query; "none" for never. At least 1MiB, and
        /// less than memory_limit. For workers that leak: no query is lost. None by default, because the usual amount
        /// differs from one kind to another.
        memory_soft: Option<u64> = Or("none", Size(MEMORY_BYTES)), Default("none"), Rolls;
        /// A worker measured above this is stopped at once, and its query with it (cause oom_limit); "none" for never.
        /// At least 1MiB. It protects the machine, and the other workers, from one that runs away. None by default,
        /// because a limit that is too low costs good queries.
        memory_limit: Option<u64> = Or("none", Size(MEMORY_BYTES)), Default("none"), Rolls;
        /// A worker without a query for this long is stopped, if there are more than min; "none" for never. Ten
        /// minutes: workers that a burst started are stopped when the burst is over, and stay if the next one comes
        /// soon.
        idle_ttl: Option<Duration> = Or("none", Time(SOME_TIME)), Default("10m"), Applied;
        /// Queries after which a worker is replaced; "none" for never. It serves on until the new one is ready. The
        /// number is lowered by up to a tenth, at random for each worker, so that those that started together are not
        /// replaced together; with exactly 1 no worker is ever used twice. None by default: set it for workers that
        /// leak or collect state.
        max_queries: Option<NonZeroU64> = Or("none", Integer(1..=MAX_COUNTED)), Default("none"), Rolls;
        /// Age at which a worker is replaced, in the same way and lowered likewise; "none" for never. None by default,
        /// because a start has a cost and most workers do not wear out.
        max_age: Option<Duration> = Or("none", Time(SOME_TIME)), Default("none"), Rolls;
        /// Time that the oldest query must have waited before a further worker starts, up to max; "0s" for none. A
        /// worker that is busy is often free again within 100 milliseconds, and a start takes longer.
        scale_up_after: Duration = Time(ANY_TIME), Default("100ms"), Applied;
        /// When more queries than this wait, workers start by scale_up_step at once and not one by one. As many as 50
        /// are a burst that one more worker does not clear.
        scale_up_depth: usize = Integer(1..=MAX_COUNTED), Default(50), Applied;
        /// Workers that such a burst starts at once, up to max and within pool.max_starting. Ten, so that a large kind
        /// is at its full size after a few steps.
        scale_up_step: NonZeroUsize = Integer(1..=MAX_LIVE), Default(10), Applied;
        /// Time in which no query must have waited, and fewer than 5 workers been busy, before the kind shrinks towards
        /// min. A minute, because load comes in waves, and a worker that was stopped too soon must be started again.
        scale_down_after: Duration = Time(SOME_TIME), Default("1m"), Applied;
        /// Workers that are then stopped at once. Fewer than scale_up_step: to have too many for a while costs less
        /// than to have too few.
        scale_down_step: NonZeroUsize = Integer(1..=MAX_LIVE), Default(5), Applied;
        /// Time from spawn to ready. Agent SDKs take 2 to 12 seconds, and several times that when all workers start at
        /// once on a cold disk. To stop a slow start and begin again only makes it slower, while a crash is noticed at
        /// once in any case; so this is long.
        start_timeout: Duration = Time(SOME_TIME), Default("1m"), Applied;
        /// Time from spawn to the connection; at most start_timeout, and lowered to it unless set. Raise it for a
        /// worker that loads much before it connects.
        connect_timeout: Duration = Time(SOME_TIME), Default("10s"), Applied;
        /// Time that a query may run, from dispatch; "none" for no limit. Long enough for an agent's turn; without a
        /// limit a hung worker would be lost for good.
        timeout: Option<Duration> = Or("none", Time(SOME_TIME)), Default("5m"), Rolls;
        /// Time that a query may wait for a worker, from submit, unless it says otherwise; "none" for no limit, which
        /// is the default, because only the caller knows how long an answer is worth waiting for, and queue.max_queries
        /// bounds the queue.
        queue_timeout: Option<Duration> = Or("none", Time(SOME_TIME)), Default("none"), Applied;
        /// Time that a worker may take to end a query that was cancelled or timed out, before SIGTERM. One that listens
        /// needs far less, and another query may be waiting for it.
        cancel_grace: Duration = Time(ANY_TIME), Default("2s"), Rolls;
        /// Time that it may then take to exit, before SIGKILL. Enough to close files and remove temporary ones.
        term_grace: Duration = Time(ANY_TIME), Default("5s"), Rolls;
        /// Time without a query after which a worker counts as idle. Longer than the pauses within a conversation.
        idle_after: Duration = Time(SOME_TIME), Default("5m"), Rolls;
        /// The longest line of the worker's protocol, at least 1KiB; a longer one is a protocol error. As large as the
        /// largest gRPC message, since a result larger than that could not be delivered.
        max_line_bytes: u64 = Size(MESSAGE_BYTES), Default("4MiB"), Rolls;
        /// The pause before a worker that failed to start is replaced, doubled with each failure in a row; at most
        /// restart_backoff_max. Short, as the first failure is often a passing one.
        restart_backoff: Duration = Time(SOME_TIME), Default("200ms"), Applied;
        /// The longest such pause: a broken kind costs little, and is back soon after it was mended.
        restart_backoff_max: Duration = Time(SOME_TIME), Default("30s"), Applied;
        /// Workers in a row that may end before they were of use, until the kind's circuit opens: its queries then fail
        /// at once, with the reason, while one worker at a time tests if the kind is mended. Five, with pauses of
        /// some 3 seconds in all at the default restart_backoff: a passing fault is over by then, and nobody waits long
        /// for a broken kind.
        circuit_failures: NonZeroU32 = Integer(1..=MAX_FAILURES), Default(5), Applied;
        /// Queries in a row that one worker may fail, while others of its kind succeed, before it is replaced; 0 for no
        /// limit. Five, because a few in a row may well be the queries' own fault, and to replace a good worker costs a
        /// start.
        max_failures: u32 = Integer(0..=MAX_FAILURES), Default(5), Rolls;
        /// Time that a worker that declared heartbeats may be silent before the log has a warning; less than
        /// heartbeat_timeout, and half of it at most unless set. 15s is three of the customary beats, every 5 seconds:
        /// one that is late is no news.
        heartbeat_warning: Duration = Time(SOME_TIME), Default("15s"), Rolls;
        /// Time that it may be silent before it counts as hung and is stopped and replaced. Six beats, because a long
        /// pause, like one to collect garbage, must not cost a good worker its life.
        heartbeat_timeout: Duration = Time(HALVABLE_TIME), Default("30s"), Rolls;
        /// Interval of the health checks of an idle worker that sends no heartbeats (health_check); without an answer
        /// for heartbeat_timeout it is stopped. As often as others send a heartbeat: it costs one short line, and a
        /// hung worker is found before it gets a query.
        ping_interval: Duration = Time(SOME_TIME), Default("5s"), Rolls;
    }
    with {
        /// 1 to 63 of `a-z`, `0-9`, `_` and `-`, starting with a letter; unique.
        name: Arc<str>,
        confinement: Confinement,
    }
}

words! {
    /// Transport of the worker protocol.
    pub enum Transport {
        Socket = "socket",
        Stdio = "stdio",
    }
}

words! {
    /// Preference of a query with a key or a session for the worker that served the same before.
    pub enum Affinity {
        /// None.
        Off = "off",
        /// The query goes to that worker if it is free, else to any.
        Prefer = "prefer",
        /// The query waits for that worker as long as it lives.
        Strict = "strict",
    }
}

words! {
    /// Choice of one of several free workers for a query.
    pub enum Balance {
        /// Each in turn.
        RoundRobin = "round_robin",
        /// The one that has run the fewest queries.
        LeastLoaded = "least_loaded",
        /// The one that was used last.
        MostRecent = "most_recent",
    }
}
