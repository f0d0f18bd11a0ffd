//! Writes the effective configuration out again, in the same form in which it is read.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use super::keys::{self, Fallback, Key, Section};
use super::model::{Config, KindConfig, PoolConfig, QueueConfig, ResultsConfig, ServerConfig};
use super::page::Page;
use super::values::{show_duration, show_listen, show_size, show_transport};

/// A key and its value in TOML; `None` if it is unset.
type Entry = (&'static Key, Option<String>);

/// The configuration in effect, as TOML that loads to the same again, each key with what it means.
/// It holds the kinds' `env` in full, secrets and all.
#[must_use]
pub fn show(config: &Config) -> String {
    let mut page = Page::default();
    page.comment("The configuration in effect, with the kinds' variables in full.");
    let sections = [
        (Section::Server, server(&config.server)),
        (Section::Pool, pool(&config.pool)),
        (Section::Queue, queue(&config.queue)),
        (Section::Results, results(&config.results)),
    ];
    for (section, entries) in sections {
        page.section(section.doc(), section.header());
        explained(&mut page, &entries);
    }
    for (index, config) in config.kinds.iter().enumerate() {
        let header = format!("kinds.{}", config.name);
        // What the keys mean is told once.
        if index == 0 {
            page.section(Section::Kind.doc(), &header);
            explained(&mut page, &kind(config));
        } else {
            page.section("", &header);
            plain(&mut page, &kind(config));
        }
    }
    page.into_text()
}

fn explained(page: &mut Page, entries: &[Entry]) {
    for entry in entries {
        page.line("");
        page.comment(entry.0.doc);
        plain(page, std::slice::from_ref(entry));
    }
}

/// The keys and their values, and the default where that is another one.
fn plain(page: &mut Page, entries: &[Entry]) {
    for (key, value) in entries {
        match (value, key.default) {
            (Some(value), Fallback::Value(default)) if value != default => {
                page.set(key.name, &format!("{value}  # default: {default}"));
            }
            (Some(value), _) => page.set(key.name, value),
            (None, Fallback::Unset(example)) => page.unset(key.name, example),
            (None, _) => {}
        }
    }
}

fn server(config: &ServerConfig) -> Vec<Entry> {
    let http = config.http.map_or("off".to_owned(), |address| address.to_string());
    vec![
        set(&keys::LISTEN, string(show_listen(&config.listen))),
        set(&keys::HTTP, string(http)),
        set(&keys::MAX_MESSAGE_BYTES, size(config.max_message_bytes)),
        set(&keys::MAX_METADATA_BYTES, size(config.max_metadata_bytes)),
        set(&keys::MAX_CONNECTIONS, count(config.max_connections)),
        set(&keys::MAX_CONCURRENT_STREAMS, count(config.max_concurrent_streams)),
        set(&keys::KEEPALIVE_INTERVAL, duration(config.keepalive_interval)),
        set(&keys::KEEPALIVE_TIMEOUT, duration(config.keepalive_timeout)),
    ]
}

fn pool(config: &PoolConfig) -> Vec<Entry> {
    vec![
        set(&keys::MAX_WORKERS, count(config.max_workers)),
        set(&keys::DRAIN_TIMEOUT, duration(config.drain_timeout)),
        (&keys::SOCKET_DIR, path(config.socket_dir.as_deref())),
    ]
}

fn queue(config: &QueueConfig) -> Vec<Entry> {
    vec![set(&keys::MAX_QUERIES, count(config.max_queries))]
}

fn results(config: &ResultsConfig) -> Vec<Entry> {
    vec![
        set(&keys::MAX_EVENTS, count(config.max_events)),
        set(&keys::MAX_BYTES, size(config.max_bytes)),
        set(&keys::RETENTION, duration(config.retention)),
        set(&keys::MAX_ENDED, count(config.max_ended)),
    ]
}

fn kind(config: &KindConfig) -> Vec<Entry> {
    let timeout = config.timeout.map_or("none".to_owned(), show_duration);
    let env = config.env.clone().into_iter();
    let env = env.map(|(name, value)| (name, value.into())).collect();
    vec![
        set(&keys::COMMAND, strings(&config.command)),
        set(&keys::TYPES, strings(&config.types)),
        set(&keys::MIN, count(config.min)),
        set(&keys::MAX, count(config.max)),
        (&keys::DIR, path(config.dir.as_deref())),
        set(&keys::ENV, toml::Value::Table(env).to_string()),
        set(&keys::PASS_ENV, strings(&config.pass_env)),
        (&keys::USER, config.user.as_deref().map(string)),
        set(&keys::TRANSPORT, string(show_transport(config.transport))),
        set(&keys::START_TIMEOUT, duration(config.start_timeout)),
        set(&keys::CONNECT_TIMEOUT, duration(config.connect_timeout)),
        set(&keys::TIMEOUT, string(timeout)),
        set(&keys::CANCEL_GRACE, duration(config.cancel_grace)),
        set(&keys::TERM_GRACE, duration(config.term_grace)),
        set(&keys::IDLE_AFTER, duration(config.idle_after)),
        set(&keys::MAX_LINE_BYTES, size(config.max_line_bytes)),
        set(&keys::RESTART_BACKOFF, duration(config.restart_backoff)),
        set(&keys::RESTART_BACKOFF_MAX, duration(config.restart_backoff_max)),
    ]
}

fn set(key: &'static Key, value: String) -> Entry {
    (key, Some(value))
}

fn string(text: impl Into<String>) -> String {
    toml::Value::String(text.into()).to_string()
}

/// An array of strings in TOML.
pub(super) fn strings<T: AsRef<str>>(items: &[T]) -> String {
    let items = items.iter().map(|item| item.as_ref().to_owned().into());
    toml::Value::Array(items.collect()).to_string()
}

fn path(path: Option<&Path>) -> Option<String> {
    path.map(|path| string(path.to_string_lossy()))
}

fn duration(duration: Duration) -> String {
    string(show_duration(duration))
}

fn size(bytes: u64) -> String {
    string(show_size(bytes))
}

/// Five digits and more are grouped by three.
fn count(number: impl Display) -> String {
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
