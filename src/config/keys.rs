//! The table of every key: its section, its default, and what it does and why the default is what
//! it is.

use Fallback::{Dependent, Required, Unset, Value};

use super::section::Section;

/// What holds when a key is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The key must be written; the text says how.
    Required(&'static str),
    /// No value; the text is an example of one, in TOML.
    Unset(&'static str),
    /// A value, in TOML, as `show` would write it.
    Value(&'static str),
    /// Such a value too, of a key that must not be written unless another key has the right value.
    Dependent(&'static str),
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) section: Section,
    pub(super) name: &'static str,
    pub(super) default: Fallback,
    pub(super) doc: &'static str,
}

/// Defines a constant for each key, and the list of all of them, so that no key can miss in the
/// list.
macro_rules! keys {
    ($($constant:ident: $section:ident.$name:ident = $default:expr, $doc:expr;)*) => {
        $(pub(super) const $constant: Key = Key {
            section: Section::$section,
            name: stringify!($name),
            default: $default,
            doc: $doc,
        };)*
        pub(super) const ALL: &[Key] = &[$($constant),*];
    };
}

keys! {
    LISTEN: Server.listen = Value(r#""127.0.0.1:50051""#),
        "Where gRPC is served: an IP address and port, or the path of a Unix socket, like \
         \"/run/remuda.sock\". Only this machine by default, because whoever reaches the port can \
         run queries; a container needs \"0.0.0.0:50051\".";
    HTTP: Server.http = Value(r#""127.0.0.1:9090""#),
        "Where /metrics, /livez and /readyz are served; \"off\" for nowhere. A port of its own, \
         so that it can be open to the monitoring while the queries' port is not.";
    MAX_MESSAGE_BYTES: Server.max_message_bytes = Value(r#""4MiB""#),
        "The largest gRPC message that a client may send, and so the largest payload. 4MiB is the \
         usual limit of gRPC; what a worker may answer is limited by its kind's max_line_bytes.";
    MAX_METADATA_BYTES: Server.max_metadata_bytes = Value(r#""16KiB""#),
        "The most metadata (headers) of one call. Tokens and tracing fit well; it bounds what a \
         call costs before it is looked at.";
    MAX_CONNECTIONS: Server.max_connections = Value("1024"),
        "Connections open at once; more wait to be accepted. A client needs one for all of its \
         calls, so this is many clients. Each takes a file descriptor: raise the limit of open \
         files along with it.";
    MAX_CONCURRENT_STREAMS: Server.max_concurrent_streams = Value("1024"),
        "Calls open at once on one connection. Each reader of results holds one for as long as \
         its query runs, so the customary 100 would be soon used up.";
    KEEPALIVE_INTERVAL: Server.keepalive_interval = Value(r#""30s""#),
        "How often a silent connection is asked whether it still lives. Shorter than the minute \
         or more after which load balancers commonly drop silent connections.";
    KEEPALIVE_TIMEOUT: Server.keepalive_timeout = Value(r#""10s""#),
        "How long the answer to that may take before the connection counts as lost. Long enough \
         for a lost packet to be sent again.";

    MAX_WORKERS: Pool.max_workers = Value("16"),
        "Workers alive at once, over all kinds. Each is a process that may hold a model or a \
         browser, so the number is modest: raise it to what the machine's memory allows.";
    DRAIN_TIMEOUT: Pool.drain_timeout = Value(r#""30s""#),
        "How long running queries may go on after SIGTERM: most end within half a minute, and a \
         rollout is not held up for longer. After that they are stopped, which takes at most \
         cancel_grace and term_grace more: give whatever stops this server a longer time than the \
         three together (on Kubernetes terminationGracePeriodSeconds, which is 30 unless set).";
    SOCKET_DIR: Pool.socket_dir = Unset(r#""/run/remuda""#),
        "Where the private directory with the workers' sockets is made; a relative path is taken \
         from this file's directory. At most 60 bytes, because a socket's whole path has room for \
         108. The system's temporary directory unless set.";

    MAX_QUERIES: Queue.max_queries = Value("100_000"),
        "Queries that wait at once; more are refused with RESOURCE_EXHAUSTED. A bound on memory: \
         with payloads of 1 KiB this is some 100 MiB.";

    RECOVERY_STRATEGY: Recovery.strategy = Value(r#""reject""#),
        "\"reject\" ends the query in an error; \"retry\" runs it again, on another worker. Reject by \
         default, because nobody but you knows whether what was half done may be done again.";
    RECOVERY_ATTEMPTS: Recovery.attempts = Dependent("1"),
        "How often such a query is run again, 1 to 100; only with strategy = \"retry\". Once by \
         default, so it runs twice at most: that makes up for an accident, and a query that kills \
         its workers does not kill many.";

    TYPE_STRATEGY: RecoveryType.strategy = Required(r#"write strategy = "retry" or strategy = "reject""#),
        "\"reject\" or \"retry\", as above: retry what does no harm when it is done twice. Required, \
         since it is what such a section is for.";
    TYPE_ATTEMPTS: RecoveryType.attempts = Dependent("1"),
        "As above: how often such a query is run again; only with strategy = \"retry\". Once by \
         default here too, whatever [recovery] says, so that each section can be read alone.";

    RETRY_ATTEMPTS: Retry.attempts = Value("3"),
        "How often such a query is run again, at most 100; 0 switches it off. Three, whose pauses \
         are 1, 2 and 4 seconds: that outlasts a hiccup of whatever the worker depends on, and a \
         lasting fault is reported soon.";
    RETRY_BACKOFF: Retry.backoff = Value(r#""1s""#),
        "The pause before the first of these runs, doubled with each one after it: 1, 2, 4, 8 \
         seconds. At most backoff_max, and lowered to it unless set. A second lets an overloaded \
         service breathe, and a caller hardly notices it. Each pause is varied at random by a fixed \
         share, which is not configurable, so that queries that failed together do not return \
         together.";
    RETRY_BACKOFF_MAX: Retry.backoff_max = Value(r#""1m""#),
        "The longest such pause. A minute, because a fault that lasts longer is not mended by \
         waiting still longer, and without a bound the tenth would take more than 8 minutes.";

    DEAD_LETTERS_MAX: DeadLetters.max = Value("1000"),
        "How many are kept; the oldest goes first. 0 keeps none. A thousand is more than a person \
         looks through, and with payloads of 1 KiB a few MiB.";
    DEAD_LETTERS_MAX_AGE: DeadLetters.max_age = Value(r#""7days""#),
        "How long each is kept. A week, so that what failed on a Friday night is still there when \
         somebody looks.";

    MAX_EVENTS: Results.max_events = Value("100_000"),
        "Events kept of one query, beside its final one. An answer streamed word by word is far \
         shorter; a worker that floods is not.";
    MAX_BYTES: Results.max_bytes = Value(r#""64MiB""#),
        "Bytes kept of one query's events. Sixteen of the largest messages, so that one query \
         cannot take the server's memory.";
    RETENTION: Results.retention = Value(r#""10m""#),
        "How long events can be read after their query ended: time for a client to restart and \
         read the rest.";
    MAX_ENDED: Results.max_ended = Value("10_000"),
        "Ended queries kept at once; the one that ended first goes first, even before its \
         retention is over. It bounds memory under many short queries: at 17 a second retention \
         alone would keep as many.";
    OVERFLOW: Results.overflow = Value(r#""gap""#),
        "What happens when a query's log is full, by max_events or max_bytes, and its readers have \
         not caught up within max_stall. \"gap\" drops the oldest events, and who had yet to read \
         them gets a gap event instead. \"stall\" makes the worker wait on for as long as a reader is \
         attached, and is like gap when none is. \"fail\" ends the query in an error. A gap by \
         default, because then a slow reader harms only itself: the query still ends, and its worker \
         is free for the next.";
    MAX_STALL: Results.max_stall = Value(r#""5s""#),
        "How long a worker is made to wait for slow readers before that; \"0s\" for not at all. Long \
         enough for a reader to connect again, and short next to what most queries take.";

    COMMAND: Kind.command = Required(
        r#"write the program and its arguments, like command = ["python3", "worker.py"]"#
    ),
        "The program and its arguments, run without a shell. Required.";
    TYPES: Kind.types = Value("[]"),
        "The query types that this kind serves, so that a query need not name its kind. A type \
         belongs to one kind.";
    MIN: Kind.min = Value("1"),
        "Workers kept warm. One by default, so that the first query does not wait for a start; 0 \
         starts the first worker when the first query comes. Over all kinds at most \
         pool.max_workers.";
    MAX: Kind.max = Value("4"),
        "Workers alive at most, within pool.max_workers. 4 by default, or min if that is more, so \
         that one kind does not take the whole pool.";
    DIR: Kind.dir = Unset(r#""/srv/worker""#),
        "The working directory; a relative path is taken from this file's directory. The server's \
         own unless set.";
    ENV: Kind.env = Value("{}"),
        "Variables set for the worker, like { MODEL = \"small\" }. Names that start with REMUDA_ \
         are remuda's own.";
    PASS_ENV: Kind.pass_env = Value("[]"),
        "Names of the server's own variables that the worker gets too, beside PATH, HOME, LANG, \
         LC_ALL, TZ and TMPDIR. None by default, because a server's environment tends to hold \
         secrets. Where env sets the same name, env counts.";
    USER: Kind.user = Unset(r#""nobody""#),
        "The Unix user that the worker runs as, by name; the server must be allowed to change to \
         it. The server's own user unless set.";
    TRANSPORT: Kind.transport = Value(r#""socket""#),
        "\"socket\" or \"stdio\". A socket by default, because then a stray print cannot break \
         the protocol.";
    START_TIMEOUT: Kind.start_timeout = Value(r#""1m""#),
        "From spawn to ready. Agent SDKs take 2 to 12 seconds, and several times that when all \
         workers start at once on a cold disk. To stop a slow start and begin again only makes it \
         slower, while a crash is noticed at once whatever stands here; so this is long.";
    CONNECT_TIMEOUT: Kind.connect_timeout = Value(r#""10s""#),
        "From spawn to the connection; at most start_timeout, and lowered to it unless set. Raise \
         it for a worker that loads much before it connects.";
    TIMEOUT: Kind.timeout = Value(r#""5m""#),
        "How long a query may run, from dispatch; \"none\" for as long as it likes. Long enough \
         for an agent's turn; without a bound a hung worker would be lost for good.";
    QUEUE_TIMEOUT: Kind.queue_timeout = Value(r#""none""#),
        "How long a query may wait for a worker, from submit, unless it says otherwise; \"none\" for \
         as long as it takes. No bound by default, because only the caller knows how long an answer \
         is worth waiting for, and queue.max_queries bounds what waits.";
    CANCEL_GRACE: Kind.cancel_grace = Value(r#""2s""#),
        "How long a worker may take to end a query that was cancelled or timed out, before \
         SIGTERM. One that listens needs far less, and somebody may be waiting for its place.";
    TERM_GRACE: Kind.term_grace = Value(r#""5s""#),
        "How long it may then take to exit, before SIGKILL. Enough to close files and remove \
         temporary ones.";
    IDLE_AFTER: Kind.idle_after = Value(r#""5m""#),
        "How long without a query until a worker counts as idle. Longer than the pauses within a \
         conversation.";
    MAX_LINE_BYTES: Kind.max_line_bytes = Value(r#""4MiB""#),
        "The longest line of the worker's protocol, at least 1KiB; a longer one is a protocol \
         error. As large as the largest gRPC message, since a result larger than that could not \
         be delivered.";
    RESTART_BACKOFF: Kind.restart_backoff = Value(r#""200ms""#),
        "The pause before a worker that failed to start is replaced, doubled with each failure in \
         a row. Short, as the first failure is often a passing one.";
    RESTART_BACKOFF_MAX: Kind.restart_backoff_max = Value(r#""30s""#),
        "The longest such pause: a broken kind costs little, and is back soon after it was \
         mended.";
    CIRCUIT_FAILURES: Kind.circuit_failures = Value("5"),
        "How many workers in a row may end before they were of use, until the kind's circuit opens: \
         its queries then fail at once, with the reason, while one worker at a time tries whether \
         it is mended. Five, with pauses of some 3 seconds in all as restart_backoff has them: a \
         passing fault is over by then, and nobody waits long for a broken kind.";
    MAX_FAILURES: Kind.max_failures = Value("5"),
        "How many queries in a row one worker may fail, while others of its kind succeed, before it \
         is replaced; 0 switches it off. Five, because a few in a row may well be the queries' own \
         fault, and to replace a good worker costs a start.";
    HEARTBEAT_WARNING: Kind.heartbeat_warning = Value(r#""15s""#),
        "How long a worker that declared heartbeats may be silent before the log has a warning; \
         less than heartbeat_timeout, and half of it at most unless set. 15s is three of the \
         customary beats, every 5 seconds: one that is late is no news.";
    HEARTBEAT_TIMEOUT: Kind.heartbeat_timeout = Value(r#""30s""#),
        "How long it may be silent before it counts as hung and is stopped and replaced. Six beats, \
         because a long pause, like one to collect garbage, must not cost a good worker its life.";
    PING_INTERVAL: Kind.ping_interval = Value(r#""5s""#),
        "How often an idle worker that sends no heartbeats is asked whether it lives (health_check); \
         without an answer for heartbeat_timeout it is stopped. As often as others send a heartbeat: \
         it costs one short line, and a hung worker is found before it gets a query.";
}

/// Keys that belong to the design but not to this version: take a row out when its key is acted
/// upon.
const UNSUPPORTED_KEYS: &[(Section, &[&str])] = &[
    (
        Section::Pool,
        &["memory_budget", "eviction", "scale_up_after", "scale_up_step", "scale_up_depth", "scale_down_step"],
    ),
    (Section::Queue, &["aging"]),
    (
        Section::Kind,
        &[
            "memory",
            "keyed",
            "idle_ttl",
            "max_queries",
            "max_age",
            "capabilities",
            "retry",
            "balance",
            "scale_up_after",
            "scale_up_step",
            "scale_up_depth",
            "scale_down_step",
        ],
    ),
];

/// The keys of `section`, in the order of the table.
pub(super) fn of(section: Section) -> impl Iterator<Item = &'static Key> {
    ALL.iter().filter(move |key| key.section == section)
}

/// The keys of `section` that this version does not act upon.
pub(super) fn unsupported(section: Section) -> impl Iterator<Item = &'static str> {
    UNSUPPORTED_KEYS.iter().filter(move |(of, _)| *of == section).flat_map(|(_, names)| names.iter().copied())
}

/// The headers of the sections that have a key of this name.
pub(super) fn homes_of(name: &str) -> Vec<&'static str> {
    let named = ALL.iter().filter(|key| key.name == name);
    named.map(|key| key.section.header()).collect()
}
