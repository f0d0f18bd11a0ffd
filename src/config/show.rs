//! Writes the effective configuration out again, in the same form in which it is read.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use super::choice::{AFFINITIES, BALANCES, COMPRESSIONS, EVICTIONS, OVERFLOWS, STRATEGIES, Strategy, TRANSPORTS};
use super::confinement::{self, PRIVATE, WorkDir};
use super::keys::{self, Fallback, Key};
use super::model::{
    Config, DeadLettersConfig, KindConfig, PoolConfig, QueueConfig, Recovery, ResultsConfig, RetryConfig, ServerConfig,
};
use super::page::Page;
use super::section::Section;
use super::values::{show_duration, show_listen, show_size};

/// A key and its value in TOML; `None` if it is unset.
pub(super) type Entry = (&'static Key, Option<String>);

/// The configuration in effect, as TOML that loads to the same again, each key with what it means.
/// It holds the kinds' `env` in full, secrets and all.
#[must_use]
pub fn show(config: &Config) -> String {
    let mut page = Page::default();
    page.comment("The configuration in effect, with the kinds' variables in full.");
    page.comment(keys::LEGEND);
    for section in Section::ALL {
        // What the keys mean is told once.
        for (index, (header, entries)) in written(section, config).iter().enumerate() {
            if index == 0 {
                page.section(section.doc(), header);
                explained(&mut page, entries);
            } else {
                page.section("", header);
                plain(&mut page, entries);
            }
        }
    }
    page.into_text()
}

/// The header and the entries of `section`; of one that there is for each NAME, those of each.
pub(super) fn written(section: Section, config: &Config) -> Vec<(String, Vec<Entry>)> {
    let one = |entries| vec![(section.header().to_owned(), entries)];
    match section {
        Section::Server => one(server(&config.server)),
        Section::Pool => one(pool(&config.pool)),
        Section::Queue => one(queue(&config.queue)),
        Section::Recovery => {
            one(recovery([&keys::RECOVERY_STRATEGY, &keys::RECOVERY_ATTEMPTS], config.recovery.default))
        }
        Section::RecoveryType => {
            let entries = |of| recovery([&keys::TYPE_STRATEGY, &keys::TYPE_ATTEMPTS], of);
            let types = config.recovery.types.iter();
            types.map(|(name, of)| (format!("recovery.types.{}", bare_or_quoted(name)), entries(*of))).collect()
        }
        Section::Retry => one(retry(&config.retry)),
        Section::DeadLetters => one(dead_letters(&config.dead_letters)),
        Section::Results => one(results(&config.results)),
        Section::Kind => {
            let kinds = config.kinds.iter();
            kinds.map(|config| (format!("kinds.{}", config.name), written_kind(config))).collect()
        }
    }
}

fn explained(page: &mut Page, entries: &[Entry]) {
    for entry in entries {
        page.line("");
        page.comment(&entry.0.explanation());
        plain(page, std::slice::from_ref(entry));
    }
}

/// The keys and their values, and the default where that is another one.
fn plain(page: &mut Page, entries: &[Entry]) {
    for (key, value) in entries {
        match (value, key.default) {
            (Some(value), Fallback::Value(default) | Fallback::Dependent(default)) if value != default => {
                page.set(key.name, &format!("{value}  # default: {default}"));
            }
            (Some(value), _) => page.set(key.name, value),
            (None, Fallback::Unset(example) | Fallback::Dependent(example)) => page.unset(key.name, example),
            (None, _) => {}
        }
    }
}

fn server(config: &ServerConfig) -> Vec<Entry> {
    let http = config.http.map_or("off".to_owned(), |address| address.to_string());
    let compression: Vec<_> = config.compression.iter().map(|compression| COMPRESSIONS.word(*compression)).collect();
    vec![
        set(&keys::LISTEN, string(show_listen(&config.listen))),
        set(&keys::HTTP, string(http)),
        (&keys::TLS_CERT, path(config.tls.as_ref().map(|tls| &*tls.cert))),
        (&keys::TLS_KEY, path(config.tls.as_ref().map(|tls| &*tls.key))),
        (&keys::TLS_CLIENT_CA, path(config.tls.as_ref().and_then(|tls| tls.client_ca.as_deref()))),
        (&keys::TOKENS, path(config.tokens.as_deref())),
        set(&keys::WORKERS_MAY_READ_SECRETS, config.workers_may_read_secrets.to_string()),
        set(&keys::ALLOW_INSECURE, config.allow_insecure.to_string()),
        set(&keys::HTTP_TLS, config.http_tls.to_string()),
        set(&keys::HTTP_OPEN_PATHS, strings(&config.http_open_paths)),
        (&keys::OTLP_ENDPOINT, config.otlp_endpoint.as_ref().map(string)),
        set(&keys::OTLP_SAMPLE, format!("{:?}", config.otlp_sample)),
        set(&keys::MAX_MESSAGE_BYTES, size(config.max_message_bytes)),
        set(&keys::MAX_METADATA_BYTES, size(config.max_metadata_bytes)),
        set(&keys::MAX_CONNECTIONS, count(config.max_connections)),
        set(&keys::MAX_HTTP_CONNECTIONS, count(config.max_http_connections)),
        set(&keys::MAX_CONCURRENT_STREAMS, count(config.max_concurrent_streams)),
        set(&keys::REQUEST_TIMEOUT, duration(config.request_timeout)),
        set(&keys::KEEPALIVE_INTERVAL, duration(config.keepalive_interval)),
        set(&keys::KEEPALIVE_TIMEOUT, duration(config.keepalive_timeout)),
        set(&keys::MAX_CONNECTION_AGE, or_word("none", config.max_connection_age.map(duration))),
        set(&keys::MAX_CONNECTION_AGE_GRACE, or_word("none", config.max_connection_age_grace.map(duration))),
        set(&keys::COMPRESSION, strings(&compression)),
    ]
}

fn pool(config: &PoolConfig) -> Vec<Entry> {
    vec![
        set(&keys::MAX_WORKERS, count(config.max_workers)),
        set(&keys::MEMORY_BUDGET, or_word("none", config.memory_budget.map(size))),
        set(&keys::EVICTION, string(EVICTIONS.word(config.eviction))),
        set(&keys::MAX_STARTING, count(config.max_starting)),
        set(&keys::DRAIN_PAUSE, duration(config.drain_pause)),
        set(&keys::DRAIN_TIMEOUT, duration(config.drain_timeout)),
        (&keys::SOCKET_DIR, path(config.socket_dir.as_deref())),
    ]
}

fn queue(config: &QueueConfig) -> Vec<Entry> {
    vec![
        set(&keys::MAX_QUERIES, count(config.max_queries)),
        set(&keys::QUEUE_MAX_BYTES, size(config.max_bytes)),
        set(&keys::AGING, or_word("off", config.aging.map(duration))),
        set(&keys::MAX_QUERIES_PER_OWNER, or_word("none", config.max_queries_per_owner.map(count))),
        set(&keys::MAX_RUNNING_PER_OWNER, or_word("none", config.max_running_per_owner.map(count))),
    ]
}

fn recovery([strategy, attempts]: [&'static Key; 2], config: Recovery) -> Vec<Entry> {
    let (word, number) = match config {
        Recovery::Reject => (Strategy::Reject, None),
        Recovery::Retry { attempts } => (Strategy::Retry, Some(attempts)),
    };
    vec![set(strategy, string(STRATEGIES.word(word))), (attempts, number.map(count))]
}

fn retry(config: &RetryConfig) -> Vec<Entry> {
    vec![
        set(&keys::RETRY_ATTEMPTS, count(config.attempts)),
        set(&keys::RETRY_BACKOFF, duration(config.backoff)),
        set(&keys::RETRY_BACKOFF_MAX, duration(config.backoff_max)),
    ]
}

fn dead_letters(config: &DeadLettersConfig) -> Vec<Entry> {
    vec![
        set(&keys::DEAD_LETTERS_MAX, count(config.max)),
        set(&keys::DEAD_LETTERS_MAX_BYTES, size(config.max_bytes)),
        set(&keys::DEAD_LETTERS_MAX_AGE, duration(config.max_age)),
    ]
}

fn results(config: &ResultsConfig) -> Vec<Entry> {
    vec![
        set(&keys::MAX_EVENTS, count(config.max_events)),
        set(&keys::MAX_BYTES, size(config.max_bytes)),
        set(&keys::RETENTION, duration(config.retention)),
        set(&keys::MAX_ENDED, count(config.max_ended)),
        set(&keys::MAX_TOTAL_BYTES, size(config.max_total_bytes)),
        set(&keys::OVERFLOW, string(OVERFLOWS.word(config.overflow))),
        set(&keys::MAX_STALL, duration(config.max_stall)),
    ]
}

/// The entries of one kind.
pub(super) fn written_kind(config: &KindConfig) -> Vec<Entry> {
    use keys::kind as keys;
    let env = config.env.clone().into_iter();
    let env = env.map(|(name, value)| (name, value.into())).collect();
    let mut entries = vec![
        set(&keys::COMMAND, strings(&config.command)),
        set(&keys::TYPES, strings(&config.types)),
        set(&keys::CAPABILITIES, strings(&config.capabilities)),
        set(&keys::MIN, count(config.min)),
        set(&keys::MAX, count(config.max)),
        set(&keys::DIR, work_dir(&config.dir)),
        set(&keys::ENV, toml::Value::Table(env).to_string()),
        set(&keys::PASS_ENV, strings(&config.pass_env)),
        (&keys::USER, config.user.as_deref().map(string)),
        (&keys::GROUP, config.group.as_deref().map(string)),
        set(&keys::TRANSPORT, string(TRANSPORTS.word(config.transport))),
        set(&keys::KEYED, config.keyed.to_string()),
        set(&keys::AFFINITY, string(AFFINITIES.word(config.affinity))),
        set(&keys::BALANCE, string(BALANCES.word(config.balance))),
        (&keys::MEMORY, config.memory.map(size)),
        set(&keys::MEMORY_SOFT, or_word("none", config.memory_soft.map(size))),
        set(&keys::MEMORY_LIMIT, or_word("none", config.memory_limit.map(size))),
        set(&keys::IDLE_TTL, or_word("none", config.idle_ttl.map(duration))),
        set(&keys::MAX_QUERIES, or_word("none", config.max_queries.map(count))),
        set(&keys::MAX_AGE, or_word("none", config.max_age.map(duration))),
        set(&keys::SCALE_UP_AFTER, duration(config.scale_up_after)),
        set(&keys::SCALE_UP_DEPTH, count(config.scale_up_depth)),
        set(&keys::SCALE_UP_STEP, count(config.scale_up_step)),
        set(&keys::SCALE_DOWN_AFTER, duration(config.scale_down_after)),
        set(&keys::SCALE_DOWN_STEP, count(config.scale_down_step)),
        set(&keys::START_TIMEOUT, duration(config.start_timeout)),
        set(&keys::CONNECT_TIMEOUT, duration(config.connect_timeout)),
        set(&keys::TIMEOUT, or_word("none", config.timeout.map(duration))),
        set(&keys::QUEUE_TIMEOUT, or_word("none", config.queue_timeout.map(duration))),
        set(&keys::CANCEL_GRACE, duration(config.cancel_grace)),
        set(&keys::TERM_GRACE, duration(config.term_grace)),
        set(&keys::IDLE_AFTER, duration(config.idle_after)),
        set(&keys::MAX_LINE_BYTES, size(config.max_line_bytes)),
        set(&keys::RESTART_BACKOFF, duration(config.restart_backoff)),
        set(&keys::RESTART_BACKOFF_MAX, duration(config.restart_backoff_max)),
        set(&keys::CIRCUIT_FAILURES, count(config.circuit_failures)),
        set(&keys::MAX_FAILURES, count(config.max_failures.map_or(0, NonZeroU32::get))),
        set(&keys::HEARTBEAT_WARNING, duration(config.heartbeat_warning)),
        set(&keys::HEARTBEAT_TIMEOUT, duration(config.heartbeat_timeout)),
        set(&keys::PING_INTERVAL, duration(config.ping_interval)),
    ];
    entries.extend(confinement::written(&config.confinement));
    entries
}

pub(super) fn set(key: &'static Key, value: String) -> Entry {
    (key, Some(value))
}

fn string(text: impl Into<String>) -> String {
    toml::Value::String(text.into()).to_string()
}

/// A name as a part of a header or a path. The quotes of a value would not do: those may span lines.
pub(super) fn bare_or_quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    let escaped = name.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// An array of strings in TOML.
pub(super) fn strings<T: AsRef<str>>(items: &[T]) -> String {
    let items = items.iter().map(|item| item.as_ref().to_owned().into());
    toml::Value::Array(items.collect()).to_string()
}

fn work_dir(dir: &WorkDir) -> String {
    match dir {
        WorkDir::At(path) => string(path.to_string_lossy()),
        WorkDir::Private => string(PRIVATE),
    }
}

fn path(path: Option<&Path>) -> Option<String> {
    path.map(|path| string(path.to_string_lossy()))
}

pub(super) fn duration(duration: Duration) -> String {
    string(show_duration(duration))
}

/// A value in TOML, or the word for none.
pub(super) fn or_word(word: &str, value: Option<String>) -> String {
    value.unwrap_or_else(|| string(word))
}

pub(super) fn size(bytes: u64) -> String {
    string(show_size(bytes))
}

/// Five digits and more are grouped by three.
pub(super) fn count(number: impl Display) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let lead = digits.len() % 3;
    let (head, tail) = digits.split_at(lead);
    let groups = tail.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let head = (lead > 0).then(|| head.into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join("_")
}
