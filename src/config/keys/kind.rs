//! The keys of a kind of worker.

use super::Fallback::{Required, Unset, Value};
use super::Reload::{AtOnce, Rolls};

keys! { TABLE:
    COMMAND: Kind.command = Required(
        r#"write the program and its arguments, like command = ["python3", "worker.py"]"#
    ), Rolls,
        "The program and its arguments, run without a shell. Required. Where each worker has a directory \
         of its own, see dir, a program or argument with a slash or a dot in it that names a file as seen from the \
         server's working directory is passed as an absolute path; for others write \"./worker\".";
    TYPES: Kind.types = Value("[]"), AtOnce,
        "The query types that this kind serves, so that a query need not name its kind. A type \
         belongs to one kind.";
    CAPABILITIES: Kind.capabilities = Value("[]"), AtOnce,
        "What this kind can do, in words of your own, like [\"gpu\", \"large\"]: a query that asks for \
         capabilities goes to a kind that has all of them. At most 64, of at most 64 bytes each.";
    MIN: Kind.min = Value("1"), AtOnce,
        "Workers kept warm. One by default, so that the first query does not wait for a start; 0 \
         starts the first worker when the first query comes. Over all kinds at most \
         pool.max_workers.";
    MAX: Kind.max = Value("4"), AtOnce,
        "Workers alive at most, within pool.max_workers; while one is being replaced, one more. 4 by \
         default, or min if that is more, so that one kind does not take the whole pool.";
    DIR: Kind.dir = Value(r#""private""#), Rolls,
        "The working directory. \"private\", an empty one for each worker under pool.socket_dir, which is its \
         TMPDIR too unless env has one, and which is removed when the worker has ended: no worker \
         finds what another has left. Else a path, relative to this file's directory, that all workers \
         share, like \".\"; the command's arguments are then passed as they are. For a directory of that \
         name write \"./private\".";
    ENV: Kind.env = Value("{}"), Rolls,
        "Variables set for the worker, like { MODEL = \"small\" }. Names that start with REMUDA_ \
         are remuda's own.";
    PASS_ENV: Kind.pass_env = Value("[]"), Rolls,
        "Names of the server's own variables that the worker gets too, beside PATH, HOME, LANG, \
         LC_ALL, TZ and TMPDIR. None by default, because a server's environment tends to hold \
         secrets. Where env sets the same name, env counts.";
    USER: Kind.user = Unset(r#""nobody""#), Rolls,
        "The Unix user that the worker runs as, by name; the server must be allowed to change to \
         it, which takes root. The server's own user unless set. Other users can pass through \
         the private directory in pool.socket_dir, and must be able to reach it.";
    GROUP: Kind.group = Unset(r#""nogroup""#), Rolls,
        "The Unix group that the worker runs in, by name. Unless set, that of the user. Beside it the \
         worker has the further groups of the user, or none if no user is set.";
    TRANSPORT: Kind.transport = Value(r#""socket""#), Rolls,
        "\"socket\" or \"stdio\". A socket by default, because then a stray print cannot break \
         the protocol.";
    KEYED: Kind.keyed = Value("false"), Rolls,
        "Whether there is one worker for each key: a worker then serves queries of the key that it \
         is bound to and no others, for its whole life, and every query must have a key. For \
         workers that hold what belongs to one workspace or user. Off by default, because then every \
         worker can serve every query.";
    AFFINITY: Kind.affinity = Value(r#""prefer""#), AtOnce,
        "For a query with a key or a session, if the kind is not keyed, what the worker that served \
         the same before means. \"prefer\": that one if it is free, else any; \"strict\": the query \
         waits for it as long as it lives; \"off\": nothing, the worker is only told the key. Prefer by \
         default: a warm cache is used where there is one, and nobody waits for it. A keyed kind is \
         always strict.";
    BALANCE: Kind.balance = Value(r#""round_robin""#), AtOnce,
        "Which of several free workers gets a query: \"round_robin\", each in turn; \"least_loaded\", \
         the one that has run the fewest queries; \"most_recent\", the one that was used last, so that \
         the others can go when there is little to do. In turn by default: all stay warm and wear \
         evenly.";
    MEMORY: Kind.memory = Unset(r#""512MiB""#), Rolls,
        "What one worker is expected to need: set aside out of pool.memory_budget before it starts, \
         and given back when it has ended. Required if there is a budget, of no effect otherwise.";
    MEMORY_SOFT: Kind.memory_soft = Value(r#""none""#), Rolls,
        "A worker measured above this is replaced as soon as it has no query; \"none\" for never. At \
         least 1MiB, and less than memory_limit. For workers that leak: no query is lost. None by \
         default, because what is much differs from one kind to another.";
    MEMORY_LIMIT: Kind.memory_limit = Value(r#""none""#), Rolls,
        "A worker measured above this is stopped at once, and its query with it (cause oom_limit); \
         \"none\" for never. At least 1MiB. It protects the machine, and the other workers, from one \
         that runs away. None by default, because a limit that is too low costs good queries.";
    IDLE_TTL: Kind.idle_ttl = Value(r#""10m""#), AtOnce,
        "A worker without a query for this long is stopped, if there are more than min; \"none\" for \
         never. Ten minutes: what a burst started goes when the burst is over, and stays if the next \
         one comes soon.";
    MAX_QUERIES: Kind.max_queries = Value(r#""none""#), Rolls,
        "After how many queries a worker is replaced; \"none\" for never. It serves on until the new \
         one is ready. The number is lowered by up to a tenth, at random for each worker, so that \
         those that started together are not replaced together; with exactly 1 no worker is ever used \
         twice. None by default: set it for workers that leak or collect state.";
    MAX_AGE: Kind.max_age = Value(r#""none""#), Rolls,
        "At what age a worker is replaced, in the same way and lowered likewise; \"none\" for never. \
         None by default, because a start costs something and most workers do not wear out.";
    SCALE_UP_AFTER: Kind.scale_up_after = Value(r#""100ms""#), AtOnce,
        "How long the oldest query must have waited before a further worker starts, up to max; \"0s\" \
         for at once. A worker that is busy is often free again within 100 milliseconds, and a \
         start takes longer.";
    SCALE_UP_DEPTH: Kind.scale_up_depth = Value("50"), AtOnce,
        "When more queries than this wait, workers start by scale_up_step at once and not one by one. \
         As many as 50 are a burst that one more worker does not clear.";
    SCALE_UP_STEP: Kind.scale_up_step = Value("10"), AtOnce,
        "How many workers such a burst starts at once, up to max and within pool.max_starting. Ten, so \
         that a large kind is at its full size after a few steps.";
    SCALE_DOWN_AFTER: Kind.scale_down_after = Value(r#""1m""#), AtOnce,
        "How long no query must have waited, and fewer than 5 workers been busy, before the kind \
         shrinks towards min. A minute, because load comes in waves, and a worker that was stopped \
         too soon must be started again.";
    SCALE_DOWN_STEP: Kind.scale_down_step = Value("5"), AtOnce,
        "How many workers then go at once. Fewer than scale_up_step: to have too many for a while \
         costs less than to have too few.";
    START_TIMEOUT: Kind.start_timeout = Value(r#""1m""#), AtOnce,
        "From spawn to ready. Agent SDKs take 2 to 12 seconds, and several times that when all \
         workers start at once on a cold disk. To stop a slow start and begin again only makes it \
         slower, while a crash is noticed at once whatever stands here; so this is long.";
    CONNECT_TIMEOUT: Kind.connect_timeout = Value(r#""10s""#), AtOnce,
        "From spawn to the connection; at most start_timeout, and lowered to it unless set. Raise \
         it for a worker that loads much before it connects.";
    TIMEOUT: Kind.timeout = Value(r#""5m""#), Rolls,
        "How long a query may run, from dispatch; \"none\" for as long as it likes. Long enough \
         for an agent's turn; without a bound a hung worker would be lost for good.";
    QUEUE_TIMEOUT: Kind.queue_timeout = Value(r#""none""#), AtOnce,
        "How long a query may wait for a worker, from submit, unless it says otherwise; \"none\" for \
         as long as it takes. No bound by default, because only the caller knows how long an answer \
         is worth waiting for, and queue.max_queries bounds what waits.";
    CANCEL_GRACE: Kind.cancel_grace = Value(r#""2s""#), Rolls,
        "How long a worker may take to end a query that was cancelled or timed out, before \
         SIGTERM. One that listens needs far less, and somebody may be waiting for its place.";
    TERM_GRACE: Kind.term_grace = Value(r#""5s""#), Rolls,
        "How long it may then take to exit, before SIGKILL. Enough to close files and remove \
         temporary ones.";
    IDLE_AFTER: Kind.idle_after = Value(r#""5m""#), Rolls,
        "How long without a query until a worker counts as idle. Longer than the pauses within a \
         conversation.";
    MAX_LINE_BYTES: Kind.max_line_bytes = Value(r#""4MiB""#), Rolls,
        "The longest line of the worker's protocol, at least 1KiB; a longer one is a protocol \
         error. As large as the largest gRPC message, since a result larger than that could not \
         be delivered.";
    RESTART_BACKOFF: Kind.restart_backoff = Value(r#""200ms""#), AtOnce,
        "The pause before a worker that failed to start is replaced, doubled with each failure in \
         a row. Short, as the first failure is often a passing one.";
    RESTART_BACKOFF_MAX: Kind.restart_backoff_max = Value(r#""30s""#), AtOnce,
        "The longest such pause: a broken kind costs little, and is back soon after it was \
         mended.";
    CIRCUIT_FAILURES: Kind.circuit_failures = Value("5"), AtOnce,
        "How many workers in a row may end before they were of use, until the kind's circuit opens: \
         its queries then fail at once, with the reason, while one worker at a time tries whether \
         it is mended. Five, with pauses of some 3 seconds in all as restart_backoff has them: a \
         passing fault is over by then, and nobody waits long for a broken kind.";
    MAX_FAILURES: Kind.max_failures = Value("5"), Rolls,
        "How many queries in a row one worker may fail, while others of its kind succeed, before it \
         is replaced; 0 switches it off. Five, because a few in a row may well be the queries' own \
         fault, and to replace a good worker costs a start.";
    HEARTBEAT_WARNING: Kind.heartbeat_warning = Value(r#""15s""#), Rolls,
        "How long a worker that declared heartbeats may be silent before the log has a warning; \
         less than heartbeat_timeout, and half of it at most unless set. 15s is three of the \
         customary beats, every 5 seconds: one that is late is no news.";
    HEARTBEAT_TIMEOUT: Kind.heartbeat_timeout = Value(r#""30s""#), Rolls,
        "How long it may be silent before it counts as hung and is stopped and replaced. Six beats, \
         because a long pause, like one to collect garbage, must not cost a good worker its life.";
    PING_INTERVAL: Kind.ping_interval = Value(r#""5s""#), Rolls,
        "How often an idle worker that sends no heartbeats is asked whether it lives (health_check); \
         without an answer for heartbeat_timeout it is stopped. As often as others send a heartbeat: \
         it costs one short line, and a hung worker is found before it gets a query.";
}
