//! Tests of `config show` and of the example file.

use std::path::PathBuf;

use super::super::schema::Fallback;
use super::super::{Config, ConfigSource, Overrides, example, show};
use super::{MINIMAL, all_keys, loaded, with_key};

/// Every value differs from its default, and strings hold characters that are hard to quote.
const UNUSUAL: &str = r##"
[server]
listen = "unix:re\"muda"
http = "off"
max_message_bytes = "5000B"
max_metadata_bytes = "3KB"
max_connections = 12345
max_http_connections = 12346
max_concurrent_streams = 999_999
request_timeout = "31s"
keepalive_interval = "1h 1m 1s 1ms 1us 1ns"
keepalive_timeout = "1year"
max_connection_age = "30m"
max_connection_age_grace = "0s"
compression = ["zstd", "gzip"]
[pool]
max_workers = 1_000_000
memory_budget = "64TiB"
eviction = "least_used"
max_starting = 1_000_000
drain_pause = "7s"
drain_timeout = "0s"
socket_dir = "/run/#remuda"
[queue]
max_queries = 1
max_bytes = "1KiB"
aging = "1ms"
max_queries_per_owner = 1_000_000_000
max_running_per_owner = 1
[recovery]
strategy = "retry"
attempts = 100
[recovery.types." "]
strategy = "reject"
[recovery.types.bare_1-]
strategy = "retry"
[recovery.types."x.y/z ä \n\r\"\"\"\\'\u001b\u007f\U0001F40E"]
strategy = "retry"
attempts = 2
[retry]
attempts = 100
backoff = "1ms"
backoff_max = "1h"
[dead_letters]
max = 1_000_000_000
max_bytes = "3KB"
max_age = "1ms"
[results]
overflow = "stall"
max_stall = "1us"
max_events = 1
max_bytes = "1TiB"
retention = "40days"
max_ended = 123456
max_total_bytes = "1TiB"
[kinds.first]
command = ["a", "b c", "'\"\\", "ä\t\n\u001b"]
types = ["x.y/z", " "]
capabilities = ["g p u", "ä\n"]
min = 0
max = 9
keyed = true
balance = "most_recent"
memory = "1025KiB"
memory_soft = "1MiB"
memory_limit = "1048577B"
idle_ttl = "none"
max_queries = 1
max_age = "1year"
scale_up_after = "0s"
scale_up_depth = 1
scale_up_step = 1_000_000
scale_down_after = "1ms"
scale_down_step = 12345
dir = "there/../it's"
env = { A = "1\n2\n\"\"\"3'''", "b c" = "", "É" = "#" }
pass_env = ["HTTPS_PROXY"]
user = "a.b-c_d"
group = "_G"
landlock_read = ["there/../it's", "/"]
landlock_write = []
max_open_files = 12345
max_processes = 1
max_core_size = "none"
max_file_size = "1B"
max_address_space = "1MiB"
max_cpu_time = "1h 1s"
transport = "stdio"
start_timeout = "2m"
connect_timeout = "90s"
timeout = "none"
cancel_grace = "1ms"
term_grace = "0s"
idle_after = "7months"
max_line_bytes = "1025B"
restart_backoff = "1s"
restart_backoff_max = "1s"
queue_timeout = "1s"
heartbeat_warning = "20s"
heartbeat_timeout = "21s"
ping_interval = "1ms"
circuit_failures = 1_000_000
max_failures = 0
[kinds.second]
command = ["a"]
memory = "1GiB"
affinity = "off"
dir = "private"
no_new_privs = false
min = 7
"##;

#[test]
fn shown_config_loads_to_the_same_again() {
    for text in [MINIMAL, UNUSUAL, &example()] {
        let config = loaded(text);
        let shown = show(&config);
        let source =
            ConfigSource::Text { name: "shown".to_owned(), text: shown.clone(), base_dir: PathBuf::from("/elsewhere") };
        let again = Config::load(source, [], &Overrides::default());
        let again = again.unwrap_or_else(|errors| panic!("{errors}\n{shown}"));
        assert_eq!(again, config, "{shown}");
        assert_eq!(show(&again), shown);
    }
}

#[test]
fn every_key_is_shown_and_explained() {
    let shown = show(&loaded(&format!("{MINIMAL}[recovery.types.t]\nstrategy = \"reject\"\n")));
    let page = shown.replace("\n# ", " ");
    for key in all_keys() {
        let is_line = |line: &str| {
            let line = line.strip_prefix('#').unwrap_or(line);
            line.starts_with(&format!("{} = ", key.key.name))
        };
        assert!(shown.lines().any(is_line), "{} is not shown", key.key.name);
        assert!(page.contains(key.key.doc()), "{} is not explained", key.key.name);
    }
}

#[test]
fn default_is_shown_only_beside_another_value() {
    assert_eq!(show(&loaded(MINIMAL)).matches("  # default:").count(), 0);
    let shown = show(&loaded(&format!("[pool]\nmax_workers = 20_000\n{MINIMAL}")));
    assert!(shown.contains("\nmax_workers = 20_000  # default: 16\n"), "{shown}");
}

#[test]
fn comments_are_at_most_100_characters_wide() {
    for line in show(&loaded(MINIMAL)).lines().chain(example().lines()) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

fn example_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/remuda.example.toml")
}

/// With `UPDATE_EXAMPLE` set the file is written instead of compared.
#[test]
fn example_file_is_up_to_date() {
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        std::fs::write(example_path(), example()).unwrap();
    }
    let on_disk = std::fs::read_to_string(example_path()).unwrap();
    assert!(
        on_disk == example(),
        "deploy/remuda.example.toml differs from the declared keys; update it with \
         `UPDATE_EXAMPLE=1 cargo test --lib example_file`"
    );
}

#[test]
fn example_is_the_defaults_two_kinds_and_a_type() {
    let config = loaded(&example());
    let minimal = loaded(
        "[kinds.embed]\ncommand = [\"python3\", \"embed_worker.py\"]\ntypes = [\"embed\"]\n\
         [kinds.agent]\ncommand = [\"node\", \"agent.js\"]\ntypes = [\"chat\"]\nmax = 8\nkeyed = true\n\
         pass_env = [\"AGENT_API_KEY\"]\ntimeout = \"30m\"\n\
         [recovery.types.embed]\nstrategy = \"retry\"\nattempts = 3\n",
    );
    assert_eq!(config, minimal);
}

#[test]
fn defaults_in_the_example_are_the_real_ones() {
    let defaults: Vec<_> = all_keys()
        .filter_map(|key| match key.key.fallback {
            Fallback::Default(default) => Some(format!("#{} = {default}", key.key.name)),
            _ => None,
        })
        .collect();
    let uncomment = |line: &str| {
        let is_default = defaults.iter().any(|default| default == line);
        format!("{}\n", if is_default { &line[1..] } else { line })
    };
    let text: String = example().lines().map(uncomment).collect();
    assert!(text.contains("\nlisten = "), "{text}");
    assert_eq!(loaded(&text), loaded(&example()));
}

#[test]
fn examples_of_unset_keys_are_valid() {
    for key in all_keys() {
        if let Fallback::Unset(value) = key.key.fallback {
            loaded(&with_key(key, value));
        }
    }
}
