//! Tests of the defaults.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::super::schema::Fallback;
use super::super::{
    Affinity, Balance, Config, ConfigSource, Confinement, DeadLettersConfig, Eviction, KindConfig, Listen, Overflow,
    Overrides, PoolConfig, QueueConfig, Recovery, RecoveryConfig, ResultsConfig, RetryConfig, ServerConfig, Transport,
    WorkDir,
};
use super::{MINIMAL, all_keys, loaded, with_key};

fn nonzero(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn documented() -> Config {
    Config {
        server: ServerConfig {
            listen: Listen::Tcp("127.0.0.1:50051".parse().unwrap()),
            http: Some("127.0.0.1:9090".parse().unwrap()),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tokens: None,
            workers_may_read_secrets: false,
            allow_insecure: false,
            http_tls: true,
            http_open_paths: Vec::new(),
            otlp_endpoint: None,
            otlp_sample: 1.0,
            max_message_bytes: 4 << 20,
            max_metadata_bytes: 16 << 10,
            max_connections: nonzero(1024),
            max_http_connections: nonzero(128),
            max_concurrent_streams: NonZeroU32::new(1024).unwrap(),
            request_timeout: seconds(30),
            keepalive_interval: seconds(30),
            keepalive_timeout: seconds(10),
            max_connection_age: None,
            max_connection_age_grace: None,
            compression: Vec::new(),
        },
        pool: PoolConfig {
            max_workers: nonzero(16),
            memory_budget: None,
            eviction: Eviction::Lru,
            max_starting: nonzero(4),
            drain_pause: seconds(0),
            drain_timeout: seconds(30),
            socket_dir: None,
        },
        queue: QueueConfig {
            max_queries: nonzero(100_000),
            max_bytes: 1 << 30,
            aging: None,
            max_queries_per_owner: None,
            max_running_per_owner: None,
        },
        recovery: RecoveryConfig { default: Recovery::Reject, types: BTreeMap::new() },
        retry: RetryConfig { attempts: 3, backoff: seconds(1), backoff_max: seconds(60) },
        dead_letters: DeadLettersConfig { max: 1000, max_bytes: 256 << 20, max_age: seconds(7 * 24 * 3600) },
        results: ResultsConfig {
            max_events: nonzero(100_000),
            max_bytes: 64 << 20,
            retention: seconds(600),
            max_ended: nonzero(10_000),
            max_total_bytes: 1 << 30,
            overflow: Overflow::Gap,
            max_stall: seconds(5),
        },
        kinds: vec![documented_kind()],
    }
}

fn documented_kind() -> KindConfig {
    KindConfig {
        name: "k".into(),
        command: vec!["w".to_owned()],
        types: Vec::new(),
        capabilities: Vec::new(),
        min: 1,
        max: nonzero(4),
        keyed: false,
        affinity: Affinity::Prefer,
        balance: Balance::RoundRobin,
        memory: None,
        memory_soft: None,
        memory_limit: None,
        idle_ttl: Some(seconds(600)),
        max_queries: None,
        max_age: None,
        scale_up_after: Duration::from_millis(100),
        scale_up_depth: 50,
        scale_up_step: nonzero(10),
        scale_down_after: seconds(60),
        scale_down_step: nonzero(5),
        dir: WorkDir::Private,
        env: BTreeMap::new(),
        pass_env: Vec::new(),
        user: None,
        group: None,
        confinement: Confinement {
            no_new_privs: true,
            landlock_read: None,
            landlock_write: None,
            max_open_files: None,
            max_processes: None,
            max_core_size: Some(0),
            max_file_size: None,
            max_address_space: None,
            max_cpu_time: None,
        },
        transport: Transport::Socket,
        start_timeout: seconds(60),
        connect_timeout: seconds(10),
        timeout: Some(seconds(300)),
        queue_timeout: None,
        cancel_grace: seconds(2),
        term_grace: seconds(5),
        idle_after: seconds(300),
        max_line_bytes: 4 << 20,
        restart_backoff: Duration::from_millis(200),
        restart_backoff_max: seconds(30),
        circuit_failures: NonZeroU32::new(5).unwrap(),
        max_failures: 5,
        heartbeat_warning: seconds(15),
        heartbeat_timeout: seconds(30),
        ping_interval: seconds(5),
    }
}

#[test]
fn command_is_the_only_required_key() {
    assert_eq!(loaded(MINIMAL), documented());
}

#[test]
fn writing_a_default_changes_nothing() {
    for key in all_keys() {
        let Fallback::Default(default) = key.key.fallback else {
            continue;
        };
        assert_eq!(loaded(&with_key(key, default)), documented(), "{}", key.path());
    }
}

#[test]
fn built_in_config_serves_the_echo_worker() {
    let executable = PathBuf::from("/opt/re \"muda\\/remuda");
    let source = ConfigSource::BuiltIn { executable };
    let config = Config::load(source, [], &Overrides::default()).unwrap();
    assert_eq!(config.server, documented().server);
    let echo = KindConfig {
        name: "echo".into(),
        command: ["/opt/re \"muda\\/remuda", "worker", "echo"].map(str::to_owned).to_vec(),
        min: 2,
        ..documented_kind()
    };
    assert_eq!(config.kinds, [echo]);
}

#[test]
fn max_is_at_least_min_unless_written() {
    let kind = &loaded(&format!("{MINIMAL}min = 7\n")).kinds[0];
    assert_eq!((kind.min, kind.max.get()), (7, 7));
    let kind = &loaded(&format!("{MINIMAL}min = 0\n")).kinds[0];
    assert_eq!((kind.min, kind.max.get()), (0, 4));
}

#[test]
fn default_is_lowered_to_a_written_maximum() {
    let text =
        format!("[retry]\nbackoff_max = \"300ms\"\n{MINIMAL}start_timeout = \"3s\"\nrestart_backoff_max = \"100ms\"\n");
    let config = loaded(&text);
    assert_eq!(config.retry.backoff, Duration::from_millis(300));
    let kind = &config.kinds[0];
    assert_eq!(kind.connect_timeout, seconds(3));
    assert_eq!(kind.restart_backoff, Duration::from_millis(100));
}

#[test]
fn default_heartbeat_warning_is_at_most_half_the_timeout() {
    for (timeout, warning) in [("2m", seconds(15)), ("20s", seconds(10)), ("2ms", Duration::from_millis(1))] {
        let kind = &loaded(&format!("{MINIMAL}heartbeat_timeout = \"{timeout}\"\n")).kinds[0];
        assert_eq!(kind.heartbeat_warning, warning, "{timeout}");
    }
}

#[test]
fn kinds_keep_the_order_of_the_file() {
    let text = "[kinds.zebra]\ncommand = [\"z\"]\n[kinds.ape]\ncommand = [\"a\"]\n\
                [kinds.m-1_x]\ncommand = [\"m\"]\n";
    let names: Vec<_> = loaded(text).kinds.into_iter().map(|k| k.name.to_string()).collect();
    assert_eq!(names, ["zebra", "ape", "m-1_x"]);
}

#[test]
fn every_value_can_be_written() {
    let config = loaded(
        r#"
        server = { listen = "unix:///run/r.sock", http = "off", max_message_bytes = "1.5 MiB" }
        pool.socket_dir = "sockets"
        [results]
        max_bytes = "64KB"
        retention = "0s"
        overflow = "fail"
        max_stall = "0s"
        [retry]
        attempts = 0
        [dead_letters]
        max = 0
        max_age = "1h"
        [kinds.k]
        command = ["w", "--fast"]
        dir = "work"
        env = { MODEL = "small", EMPTY = "" }
        pass_env = ["CUDA_HOME"]
        user = "_remuda"
        transport = "stdio"
        timeout = "none"
        idle_after = "1h 30m 5s 200ms"
        max = 0x10
        queue_timeout = "90s"
        max_failures = 0
        circuit_failures = 1
        "#,
    );
    assert_eq!(config.server.listen, Listen::Unix("/run/r.sock".into()));
    assert_eq!(config.server.http, None);
    assert_eq!(config.server.max_message_bytes, 3 << 19);
    assert_eq!(config.pool.socket_dir, Some("/etc/remuda/sockets".into()));
    assert_eq!(config.results.max_bytes, 64_000);
    assert_eq!(config.results.retention, Duration::ZERO);
    assert_eq!(config.results.overflow, Overflow::Fail);
    assert_eq!(config.results.max_stall, Duration::ZERO);
    assert_eq!(config.retry.attempts, 0);
    assert_eq!(config.dead_letters, DeadLettersConfig { max: 0, max_bytes: 256 << 20, max_age: seconds(3600) });
    let kind = &config.kinds[0];
    assert_eq!(kind.command, ["w", "--fast"]);
    assert_eq!(kind.dir, WorkDir::At("/etc/remuda/work".into()));
    assert_eq!(kind.env["MODEL"], "small");
    assert_eq!(kind.env["EMPTY"], "");
    assert_eq!(kind.pass_env, ["CUDA_HOME"]);
    assert_eq!(kind.user.as_deref(), Some("_remuda"));
    assert_eq!(kind.transport, Transport::Stdio);
    assert_eq!(kind.timeout, None);
    assert_eq!(kind.idle_after, Duration::from_millis(5_405_200));
    assert_eq!(kind.max.get(), 16);
    assert_eq!(kind.queue_timeout, Some(seconds(90)));
    assert_eq!(kind.max_failures, 0);
    assert_eq!(kind.circuit_failures.get(), 1);
}

#[test]
fn slash_or_scheme_makes_a_listen_address_a_path() {
    for (text, path) in [
        ("/run/r.sock", "/run/r.sock"),
        ("./r.sock", "./r.sock"),
        ("unix:r.sock", "r.sock"),
        ("unix:/run/r.sock", "/run/r.sock"),
    ] {
        let config = loaded(&format!("[server]\nlisten = \"{text}\"\n{MINIMAL}"));
        assert_eq!(config.server.listen, Listen::Unix(path.into()), "{text}");
    }
    let config = loaded(&format!("[server]\nlisten = \"[::]:0\"\nhttp = \"[::]:0\"\n{MINIMAL}"));
    assert_eq!(config.server.listen, Listen::Tcp("[::]:0".parse().unwrap()));
}
