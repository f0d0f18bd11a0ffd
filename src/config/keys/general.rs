//! The keys of every section but the kinds' own.

use super::Fallback::{Dependent, Required, Unset, Value};
use super::Reload::{AtOnce, Restart};

keys! { GENERAL:
    LISTEN: Server.listen = Value(r#""127.0.0.1:50051""#), Restart,
        "Where gRPC is served: an IP address and port, or the path of a Unix socket, like \
         \"/run/remuda.sock\". Only this machine by default, because whoever reaches the port can \
         run queries; a container needs \"0.0.0.0:50051\".";
    HTTP: Server.http = Value(r#""127.0.0.1:9090""#), Restart,
        "Where /metrics, /livez and /readyz are served; \"off\" for nowhere. A port of its own, \
         so that it can be open to the monitoring while the queries' port is not.";
    TLS_CERT: Server.tls_cert = Unset(r#""/etc/remuda/tls.crt""#), Restart,
        "The server's certificate in PEM, with those between it and its root, for TLS on both \
         addresses; needs tls_key. A relative path is taken from this file's directory. When the file \
         changes, new connections get the new certificate within seconds, without a restart.";
    TLS_KEY: Server.tls_key = Unset(r#""/etc/remuda/tls.key""#), Restart,
        "The private key of that certificate in PEM. Keep it readable for the server's user only; workers \
         must not be able to read it either (workers_may_read_secrets).";
    TLS_CLIENT_CA: Server.tls_client_ca = Unset(r#""/etc/remuda/clients.crt""#), Restart,
        "Authorities in PEM: a client must then show a certificate that one of them has signed. Needs \
         tls_cert and tls_key. With tokens too, a client needs both.";
    TOKENS: Server.tokens = Unset(r#""/etc/remuda/tokens""#), Restart,
        "A file with the tokens that clients must send (authorization: Bearer ...), one on each line: a \
         name, its roles, the token of at least 16 characters. The roles are submit (run queries and read \
         their results), read (look at everything) and admin (everything), separated by commas. When the \
         file changes, what it says holds within seconds. Health checks, probes and scrapes need to know of \
         tokens and TLS too: see \"With TLS and tokens\" in docs/deploy.md.";
    WORKERS_MAY_READ_SECRETS: Server.workers_may_read_secrets = Value("false"), Restart,
        "Whether workers may be able to read tls_key and tokens. False by default: then the server does not \
         start, nor take a kind on, if a kind's workers could read or replace these files. Its workers cannot \
         if they have a user of their own, or are shut in (landlock_read). True where you trust every program \
         that workers run, and whatever they may be made to do.";
    ALLOW_INSECURE: Server.allow_insecure = Value("false"), Restart,
        "Whether listen and http may be reached from other machines though neither TLS nor tokens \
         protect them. False by default, because whoever reaches the port can run queries; true where the \
         network itself is closed, as that of a pod with a network policy.";
    HTTP_TLS: Server.http_tls = Value("true"), Restart,
        "Whether TLS, if there is any, is on http too. False where whoever scrapes and probes does not \
         speak TLS, or has no certificate to show, and the address is safe by other means.";
    HTTP_OPEN_PATHS: Server.http_open_paths = Value("[]"), Restart,
        "Paths of http that need no token though there are tokens, like [\"/livez\", \"/readyz\"] for \
         an orchestrator whose probes cannot send one. None by default.";
    OTLP_ENDPOINT: Server.otlp_endpoint = Unset(r#""http://127.0.0.1:4317""#), Restart,
        "The OpenTelemetry collector that gets a span for each call, query and attempt, over OTLP with \
         gRPC; with https:// it must show a certificate that this machine trusts. Unset, no spans are made. \
         A collector that is slow or gone costs spans, never queries.";
    OTLP_SAMPLE: Server.otlp_sample = Value("1.0"), Restart,
        "The share of traces to export, from 0.0 to 1.0, of those that begin here. Where the caller has \
         sent a traceparent, its own decision counts.";
    MAX_MESSAGE_BYTES: Server.max_message_bytes = Value(r#""4MiB""#), Restart,
        "The largest gRPC message that a client may send, and so the largest payload. 4MiB is the \
         usual limit of gRPC; what a worker may answer is limited by its kind's max_line_bytes.";
    MAX_METADATA_BYTES: Server.max_metadata_bytes = Value(r#""16KiB""#), Restart,
        "The most metadata (headers) of one call. Tokens and tracing fit well; it bounds what a \
         call costs before it is looked at.";
    MAX_CONNECTIONS: Server.max_connections = Value("1024"), Restart,
        "Connections open at once. When there are as many, one on which no call has been let through yet \
         makes room for the next, or the one that has been without a call for longest; if each has a call, \
         the next one waits. A client needs one for all of its calls, so this is many clients. Each takes a file descriptor: raise the limit of open \
         files along with it.";
    MAX_HTTP_CONNECTIONS: Server.max_http_connections = Value("128"), Restart,
        "Connections open at once on the port of /metrics; the oldest makes room for one more. Monitoring and \
         probes need a handful; the bound keeps whoever else finds the port from taking all file \
         descriptors.";
    MAX_CONCURRENT_STREAMS: Server.max_concurrent_streams = Value("1024"), Restart,
        "Calls open at once on one connection. Each reader of results holds one for as long as \
         its query runs, so the customary 100 would be soon used up.";
    REQUEST_TIMEOUT: Server.request_timeout = Value(r#""30s""#), Restart,
        "How long a request may take to arrive, from its headers to its last byte; later it is refused \
         with DEADLINE_EXCEEDED. The largest message has time even on a slow line, and a client that \
         sends a byte now and then does not hold a call open. It says nothing about how long a query runs. \
         In reflection, where a call has many requests, it is the time from one to the next.";
    KEEPALIVE_INTERVAL: Server.keepalive_interval = Value(r#""30s""#), Restart,
        "How often a silent connection is asked whether it still lives. Shorter than the minute \
         or more after which load balancers commonly drop silent connections.";
    KEEPALIVE_TIMEOUT: Server.keepalive_timeout = Value(r#""10s""#), Restart,
        "How long the answer to that may take before the connection counts as lost. Long enough \
         for a lost packet to be sent again.";
    MAX_CONNECTION_AGE: Server.max_connection_age = Value(r#""none""#), Restart,
        "After this long a connection is told to send no more calls (GOAWAY), and its client opens another one; varied \
         by up to a tenth. \"none\" for no bound. None by default. Behind a load balancer that spreads connections, \
         not calls, \"30m\" lets new replicas get their share.";
    MAX_CONNECTION_AGE_GRACE: Server.max_connection_age_grace = Value(r#""none""#), Restart,
        "How long the calls of such a connection may go on before it is closed. \"none\" for no bound, which is the \
         default: no call is cut short.";
    COMPRESSION: Server.compression = Value("[]"), Restart,
        "Compressions of answers, like [\"zstd\", \"gzip\"], each used for clients that say they accept it. None by \
         default, because it costs more processor time than a fast network saves. Compressed requests, with gzip or \
         zstd, are always accepted.";

    MAX_WORKERS: Pool.max_workers = Value("16"), AtOnce,
        "Workers alive at once, over all kinds. Each is a process that may hold a model or a \
         browser, so the number is modest: raise it to what the machine's memory allows.";
    MEMORY_BUDGET: Pool.memory_budget = Value(r#""none""#), AtOnce,
        "The memory that all workers may need together; \"none\" for no bound. Each worker's share, its \
         kind's `memory`, is set aside before it starts, so every kind must then say how much that is. \
         None by default, because only you know what else the machine has to hold.";
    EVICTION: Pool.eviction = Value(r#""lru""#), AtOnce,
        "Which worker without a query makes room when the pool is full and a query needs a kind or a \
         key that has no worker: \"lru\", the one unused for the longest time; \"oldest\", the one that \
         started first; \"least_used\", the one that has run the fewest queries; \"largest\", the one that \
         takes the most memory. By default the longest unused, as it is the least likely to be wanted \
         soon. A worker that runs a query is never evicted.";
    MAX_STARTING: Pool.max_starting = Value("4"), AtOnce,
        "Workers that start at the same time, over all kinds; others wait their turn. A start loads \
         the processor and the disk more than a query does: more than a few at once only make each \
         other slow, and the queries that run too.";
    DRAIN_PAUSE: Pool.drain_pause = Value(r#""0s""#), AtOnce,
        "How long queries are still taken after SIGTERM while health and /readyz say already that the \
         server does not serve: time for load balancers to hear of it and to send nobody here any more. \
         None by default, as it makes every stop longer; behind a load balancer, and so on Kubernetes, \
         \"5s\".";
    DRAIN_TIMEOUT: Pool.drain_timeout = Value(r#""30s""#), AtOnce,
        "How long the queries that were taken may go on after that: most end within half a minute, and \
         a rollout is not held up for longer. What is left is stopped, and the server has ended at most \
         cancel_grace and term_grace later; if these are shorter than two seconds together, stopping begins up \
         to a second earlier. Give whatever stops this server longer than the four together (on Kubernetes \
         terminationGracePeriodSeconds, which is 30 unless set).";
    SOCKET_DIR: Pool.socket_dir = Unset(r#""/run/remuda""#), Restart,
        "Where the directory with the workers' sockets and private directories is made; a relative path is taken \
         from this file's directory. At most 60 bytes, because a socket's whole path has room for \
         108. The system's temporary directory unless set.";

    MAX_QUERIES: Queue.max_queries = Value("100_000"), Restart,
        "Queries that wait at once; more are refused with RESOURCE_EXHAUSTED, except that one of a \
         higher priority pushes out the newest of the lowest. A bound on memory: with payloads of \
         1 KiB this is some 100 MiB.";
    QUEUE_MAX_BYTES: Queue.max_bytes = Value(r#""1GiB""#), Restart,
        "Bytes of all payloads that wait at once; a query that would make them more is refused with \
         RESOURCE_EXHAUSTED, unless the newest of the lowest priority can make way for one of a higher. \
         max_queries alone would let as many of the largest payloads wait, 400 GiB. A query that waits \
         alone may be of any size.";

    AGING: Queue.aging = Value(r#""off""#), Restart,
        "With a time like \"30s\", the priority of a query that waits improves by one each time that \
         passes, at most up to 0, the highest; so one of low priority does not wait for ever behind \
         others. Owners then share the workers fairly only among queries of about the same age. Off by \
         default: then priorities mean what they say.";
    MAX_QUERIES_PER_OWNER: Queue.max_queries_per_owner = Value(r#""none""#), Restart,
        "Queries of one owner that wait at once; more are refused with RESOURCE_EXHAUSTED. \"none\" for \
         no bound but max_queries. None by default, because owners share the workers fairly anyway; \
         set it if one of them could fill the queue.";
    MAX_RUNNING_PER_OWNER: Queue.max_running_per_owner = Value(r#""none""#), Restart,
        "Queries of one owner that run at once; others of that owner wait, while those of other owners \
         pass them. \"none\" for no bound. None by default, so that no worker stands idle while there \
         is work.";

    RECOVERY_STRATEGY: Recovery.strategy = Value(r#""reject""#), AtOnce,
        "\"reject\" ends the query in an error; \"retry\" runs it again, on another worker. Reject by \
         default, because nobody but you knows whether what was half done may be done again.";
    RECOVERY_ATTEMPTS: Recovery.attempts = Dependent("1"), AtOnce,
        "How often such a query is run again, 1 to 100; only with strategy = \"retry\". Once by \
         default, so it runs twice at most: that makes up for an accident, and a query that kills \
         its workers does not kill many.";

    TYPE_STRATEGY: RecoveryType.strategy = Required(r#"write strategy = "retry" or strategy = "reject""#), AtOnce,
        "\"reject\" or \"retry\", as above: retry what does no harm when it is done twice. Required, \
         since it is what such a section is for.";
    TYPE_ATTEMPTS: RecoveryType.attempts = Dependent("1"), AtOnce,
        "As above: how often such a query is run again; only with strategy = \"retry\". Once by \
         default here too, whatever [recovery] says, so that each section can be read alone.";

    RETRY_ATTEMPTS: Retry.attempts = Value("3"), AtOnce,
        "How often such a query is run again, at most 100; 0 switches it off. Three, whose pauses \
         are 1, 2 and 4 seconds: that outlasts a hiccup of whatever the worker depends on, and a \
         lasting fault is reported soon.";
    RETRY_BACKOFF: Retry.backoff = Value(r#""1s""#), AtOnce,
        "The pause before the first of these runs, doubled with each one after it: 1, 2, 4, 8 \
         seconds. At most backoff_max, and lowered to it unless set. A second lets an overloaded \
         service breathe, and a caller hardly notices it. Each pause is varied at random by a fixed \
         share, which is not configurable, so that queries that failed together do not return \
         together.";
    RETRY_BACKOFF_MAX: Retry.backoff_max = Value(r#""1m""#), AtOnce,
        "The longest such pause. A minute, because a fault that lasts longer is not mended by \
         waiting still longer, and without a bound the tenth would take more than 8 minutes.";

    DEAD_LETTERS_MAX: DeadLetters.max = Value("1000"), Restart,
        "How many are kept; the oldest goes first. 0 keeps none. A thousand is more than a person \
         looks through, and with payloads of 1 KiB a few MiB.";
    DEAD_LETTERS_MAX_BYTES: DeadLetters.max_bytes = Value(r#""256MiB""#), Restart,
        "Bytes kept of all of them: their payloads, events and failures. The oldest goes first; the newest \
         stays, whatever its size.";
    DEAD_LETTERS_MAX_AGE: DeadLetters.max_age = Value(r#""7days""#), Restart,
        "How long each is kept. A week, so that what failed on a Friday night is still there when \
         somebody looks.";

    MAX_EVENTS: Results.max_events = Value("100_000"), Restart,
        "Events kept of one query, beside its final one. An answer streamed word by word is far \
         shorter; a worker that floods is not.";
    MAX_BYTES: Results.max_bytes = Value(r#""64MiB""#), Restart,
        "Bytes kept of one query's events. Sixteen of the largest messages, so that one query \
         cannot take the server's memory.";
    RETENTION: Results.retention = Value(r#""10m""#), Restart,
        "How long events can be read after their query ended: time for a client to restart and \
         read the rest.";
    MAX_ENDED: Results.max_ended = Value("10_000"), Restart,
        "Ended queries kept at once; the one that ended first goes first, even before its \
         retention is over. It bounds memory under many short queries: at 17 a second retention \
         alone would keep as many.";
    MAX_TOTAL_BYTES: Results.max_total_bytes = Value(r#""1GiB""#), Restart,
        "Bytes kept of all ended queries, dead letters not counted: their payloads and events. The one that \
         ended first goes first, even before its retention is over; one that has not ended never does. \
         Without it, max_ended of the largest would be 640 GiB.";
    OVERFLOW: Results.overflow = Value(r#""gap""#), Restart,
        "What happens when a query's log is full, by max_events or max_bytes, and its readers have \
         not caught up within max_stall. \"gap\" drops the oldest events, and who had yet to read \
         them gets a gap event instead. \"stall\" makes the worker wait on for as long as a reader is \
         attached, and is like gap when none is. \"fail\" ends the query in an error. A gap by \
         default, because then a slow reader harms only itself: the query still ends, and its worker \
         is free for the next.";
    MAX_STALL: Results.max_stall = Value(r#""5s""#), Restart,
        "How long a worker is made to wait for slow readers before that; \"0s\" for not at all. Long \
         enough for a reader to connect again, and short next to what most queries take.";
}
