//! Turns the whole tree into a `Config`, section by section.

use std::num::NonZeroU32;
use std::path::Path;

use super::choice::{COMPRESSIONS, EVICTIONS, OVERFLOWS};
use super::doors;
use super::error::{Mistakes, Place};
use super::keys;
use super::kinds::{self, Room};
use super::model::{
    Config, DeadLettersConfig, Listen, PoolConfig, QueueConfig, ResultsConfig, RetryConfig, ServerConfig,
};
use super::problem::Problem;
use super::reader::{Origin, SectionReader, Setting, values};
use super::recovery;
use super::section::Section;
use super::suggest::{segment, unknown_section};
use super::tree::{Field, Table, Value};
use super::values::{
    ANY_DURATION, SOME_DURATION, boolean, count, duration, http, listen, or_none, or_off, path, positive, share,
    short_path, show_duration, size, url,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// No machine runs more processes, connections or calls than this; a larger number is a slip of the
/// hand.
pub(super) const MOST_THINGS: usize = 1_000_000;
/// Bounds of what is only counted, not kept open.
pub(super) const MOST_RECORDS: usize = 1_000_000_000;
/// Nobody waits for more runs of one query; a larger number is meant to be without end.
pub(super) const MOST_ATTEMPTS: u32 = 100;
/// gRPC counts a message's bytes in 32 bits, and many clients in a signed number.
pub(super) const MESSAGE_SIZES: std::ops::RangeInclusive<u64> = KIB..=GIB;
/// No process needs less than a MiB, and no machine has more than 64 TiB.
pub(super) const MEMORY_SIZES: std::ops::RangeInclusive<u64> = MIB..=64 * 1024 * GIB;
/// What the pool appends to `socket_dir` must fit in the rest of the 108 bytes.
const MOST_SOCKET_DIR: usize = 60;

/// What the sections are read from.
pub(super) struct Input<'a> {
    pub(super) tree: &'a Table,
    /// Relative paths start here.
    pub(super) base: &'a Path,
    /// The variable `TMPDIR`, which decides where sockets go unless `socket_dir` does.
    pub(super) temporary: Option<&'a str>,
}

/// Reads everything. If there are mistakes, the result is good for nothing else than finding more
/// of them.
pub(super) fn read(input: &Input<'_>, mistakes: &mut Mistakes) -> Config {
    report_unknown_sections(input.tree, mistakes);
    let server = server(open(input, Section::Server, mistakes), input);
    let (pool, room) = pool(open(input, Section::Pool, mistakes), input);
    let queue = queue(open(input, Section::Queue, mistakes));
    let retry = retry(open(input, Section::Retry, mistakes));
    let dead_letters = dead_letters(open(input, Section::DeadLetters, mistakes));
    let results = results(open(input, Section::Results, mistakes));
    let kinds = kinds::read(input, &room, mistakes);
    let recovery = recovery::read(input, kinds.served_types.as_ref(), mistakes);
    Config { server, pool, queue, recovery, retry, dead_letters, results, kinds: kinds.configs }
}

fn report_unknown_sections(tree: &Table, mistakes: &mut Mistakes) {
    let is_known = |name: &str| Section::ALL.iter().any(|section| section.table() == name);
    for field in tree.fields.iter().filter(|field| !is_known(&field.name)) {
        mistakes.add(&field.place, segment(&field.name), unknown_section(&field.name));
    }
}

/// Starts with `section`; one that is not written has its defaults.
pub(super) fn open<'a>(input: &Input<'a>, section: Section, mistakes: &'a mut Mistakes) -> SectionReader<'a> {
    const EMPTY: &Table = &Table { fields: Vec::new() };
    let name = section.table();
    let found = match input.tree.get(name) {
        None => (EMPTY, Place::Whole),
        Some(field) => (as_table(field, name, name, mistakes).unwrap_or(EMPTY), field.place.clone()),
    };
    SectionReader::new(section, name.to_owned(), found, mistakes)
}

/// The table that `field`, called `path`, must be; reports what is none.
pub(super) fn as_table<'a>(field: &'a Field, path: &str, header: &str, mistakes: &mut Mistakes) -> Option<&'a Table> {
    if let Value::Table(table) = &field.node.value {
        return Some(table);
    }
    let problem = Problem::NotASection { header: header.to_owned(), got: field.node.value.type_name() };
    mistakes.add(&field.node.place, path, problem);
    None
}

fn server(mut section: SectionReader<'_>, input: &Input<'_>) -> ServerConfig {
    let listen = section.read(&keys::LISTEN, listen);
    let http = section.read(&keys::HTTP, http);
    report_same_address(&mut section, &listen, &http);
    let streams = section.read(&keys::MAX_CONCURRENT_STREAMS, positive(MOST_THINGS));
    ServerConfig {
        listen: listen.value,
        http: http.value,
        tls: doors::tls(&mut section, input),
        tokens: section.read_optional(&keys::TOKENS, path(input.base)).value,
        workers_may_read_secrets: section.read(&keys::WORKERS_MAY_READ_SECRETS, boolean).value,
        allow_insecure: section.read(&keys::ALLOW_INSECURE, boolean).value,
        http_tls: section.read(&keys::HTTP_TLS, boolean).value,
        http_open_paths: doors::open_paths(&mut section),
        otlp_endpoint: section.read_optional(&keys::OTLP_ENDPOINT, url).value,
        otlp_sample: section.read(&keys::OTLP_SAMPLE, share).value,
        max_message_bytes: section.read(&keys::MAX_MESSAGE_BYTES, size(MESSAGE_SIZES)).value,
        max_metadata_bytes: section.read(&keys::MAX_METADATA_BYTES, size(KIB..=16 * MIB)).value,
        max_connections: section.read(&keys::MAX_CONNECTIONS, positive(MOST_THINGS)).value,
        max_http_connections: section.read(&keys::MAX_HTTP_CONNECTIONS, positive(MOST_THINGS)).value,
        max_concurrent_streams: NonZeroU32::try_from(streams.value).expect("a million fits 32 bits"),
        request_timeout: section.read(&keys::REQUEST_TIMEOUT, duration(SOME_DURATION)).value,
        keepalive_interval: section.read(&keys::KEEPALIVE_INTERVAL, duration(SOME_DURATION)).value,
        keepalive_timeout: section.read(&keys::KEEPALIVE_TIMEOUT, duration(SOME_DURATION)).value,
        max_connection_age: section.read(&keys::MAX_CONNECTION_AGE, or_none(duration(SOME_DURATION))).value,
        max_connection_age_grace: section.read(&keys::MAX_CONNECTION_AGE_GRACE, or_none(duration(ANY_DURATION))).value,
        compression: values(section.read_list(&keys::COMPRESSION, |node| COMPRESSIONS.parse(node)).value),
    }
}

/// Port 0 stands for any free port, so there the same address twice is no conflict.
fn report_same_address(
    section: &mut SectionReader<'_>,
    listen: &Setting<Listen>,
    http: &Setting<Option<std::net::SocketAddr>>,
) {
    let (Some(Listen::Tcp(grpc)), Some(Some(address))) = (listen.valid(), http.valid()) else {
        return;
    };
    if grpc != address || address.port() == 0 {
        return;
    }
    // The defaults differ, so at least one of the two was written.
    if let Origin::Written(place) = &http.origin {
        let other = "server.listen";
        section.mistake(&keys::HTTP, place, Problem::SameAddress { other });
    } else if let Origin::Written(place) = &listen.origin {
        let other = "server.http";
        section.mistake(&keys::LISTEN, place, Problem::SameAddress { other });
    }
}

fn pool(mut section: SectionReader<'_>, input: &Input<'_>) -> (PoolConfig, Room) {
    let max_workers = section.read(&keys::MAX_WORKERS, positive(MOST_THINGS));
    let memory_budget = section.read(&keys::MEMORY_BUDGET, or_none(size(MEMORY_SIZES))).value;
    let socket_dir = section.read_optional(&keys::SOCKET_DIR, |node| {
        let dir = path(input.base)(node)?;
        short_socket_dir(&dir).map(|()| dir)
    });
    let socket_dir = socket_dir.value;
    report_long_temporary(&mut section, input);
    let config = PoolConfig {
        max_workers: max_workers.value,
        memory_budget,
        eviction: section.read(&keys::EVICTION, |node| EVICTIONS.parse(node)).value,
        max_starting: section.read(&keys::MAX_STARTING, positive(MOST_THINGS)).value,
        drain_pause: section.read(&keys::DRAIN_PAUSE, duration(ANY_DURATION)).value,
        drain_timeout: section.read(&keys::DRAIN_TIMEOUT, duration(ANY_DURATION)).value,
        socket_dir,
    };
    // A mistaken budget reads as none, so the kinds are not held to it.
    let room = Room { workers: max_workers.valid().map(|most| most.get()), memory: memory_budget };
    (config, room)
}

/// Without `socket_dir` the sockets go to the temporary directory, whose name can be too long as
/// well.
fn report_long_temporary(section: &mut SectionReader<'_>, input: &Input<'_>) {
    let Some(temporary) = input.temporary.filter(|_| !section.has(&keys::SOCKET_DIR)) else {
        return;
    };
    if let Err(problem) = short_socket_dir(Path::new(temporary)) {
        let place = Place::Variable("TMPDIR".to_owned());
        section.mistake(&keys::SOCKET_DIR, &place, problem);
    }
}

fn short_socket_dir(dir: &Path) -> Result<(), Problem> {
    short_path(dir, MOST_SOCKET_DIR, "leave room for a socket's name")
}

fn queue(mut section: SectionReader<'_>) -> QueueConfig {
    QueueConfig {
        max_queries: section.read(&keys::MAX_QUERIES, positive(MOST_RECORDS)).value,
        max_bytes: section.read(&keys::QUEUE_MAX_BYTES, size(KIB..=1024 * GIB)).value,
        aging: section.read(&keys::AGING, or_off(duration(SOME_DURATION))).value,
        max_queries_per_owner: section.read(&keys::MAX_QUERIES_PER_OWNER, or_none(positive(MOST_RECORDS))).value,
        max_running_per_owner: section.read(&keys::MAX_RUNNING_PER_OWNER, or_none(positive(MOST_THINGS))).value,
    }
}

fn retry(mut section: SectionReader<'_>) -> RetryConfig {
    let mut backoff = section.read(&keys::RETRY_BACKOFF, duration(SOME_DURATION));
    let backoff_max = section.read(&keys::RETRY_BACKOFF_MAX, duration(SOME_DURATION));
    let (low, high) = ((&keys::RETRY_BACKOFF, &mut backoff), (&keys::RETRY_BACKOFF_MAX, &backoff_max));
    section.keep_order(low, high, show_duration);
    RetryConfig {
        attempts: section.read(&keys::RETRY_ATTEMPTS, count(0..=MOST_ATTEMPTS)).value,
        backoff: backoff.value,
        backoff_max: backoff_max.value,
    }
}

fn dead_letters(mut section: SectionReader<'_>) -> DeadLettersConfig {
    DeadLettersConfig {
        max: section.read(&keys::DEAD_LETTERS_MAX, count(0..=MOST_RECORDS)).value,
        max_bytes: section.read(&keys::DEAD_LETTERS_MAX_BYTES, size(KIB..=1024 * GIB)).value,
        max_age: section.read(&keys::DEAD_LETTERS_MAX_AGE, duration(SOME_DURATION)).value,
    }
}

fn results(mut section: SectionReader<'_>) -> ResultsConfig {
    ResultsConfig {
        max_events: section.read(&keys::MAX_EVENTS, positive(MOST_RECORDS)).value,
        max_bytes: section.read(&keys::MAX_BYTES, size(KIB..=1024 * GIB)).value,
        retention: section.read(&keys::RETENTION, duration(ANY_DURATION)).value,
        max_ended: section.read(&keys::MAX_ENDED, positive(MOST_RECORDS)).value,
        max_total_bytes: section.read(&keys::MAX_TOTAL_BYTES, size(KIB..=1024 * GIB)).value,
        overflow: section.read(&keys::OVERFLOW, |node| OVERFLOWS.parse(node)).value,
        max_stall: section.read(&keys::MAX_STALL, duration(ANY_DURATION)).value,
    }
}
