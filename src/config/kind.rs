//! Reads one kind of worker.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use super::choice::{AFFINITIES, BALANCES, TRANSPORTS};
use super::confinement;
use super::error::Place;
use super::keys::{Key, kind as keys};
use super::model::{Affinity, KindConfig};
use super::problem::Problem;
use super::reader::{Item, Origin, SectionReader, Setting, values};
use super::sections::{Input, MEMORY_SIZES, MESSAGE_SIZES, MOST_RECORDS, MOST_THINGS};
use super::suggest::{quote, segment};
use super::tree::Node;
use super::values::{
    ANY_DURATION, HALVABLE_DURATION, SOME_DURATION, argument, boolean, count, duration, group, or_none, positive,
    show_duration, show_size, size, text, user, variable_name,
};

/// Nobody counts further before acting; a larger number is a slip of the hand.
const MOST_FAILURES: u32 = 1_000_000;

/// What a query asks for is compared with every one of these, so they are few and short.
const MOST_CAPABILITIES: usize = 64;
const MOST_CAPABILITY_BYTES: usize = 64;

/// A kind, with what the rules between kinds need to know.
pub(super) struct ReadKind {
    pub(super) config: KindConfig,
    pub(super) min: Setting<usize>,
    pub(super) types: Setting<Vec<Item>>,
    pub(super) memory: Setting<Option<u64>>,
    /// Its header.
    pub(super) place: Place,
}

impl ReadKind {
    /// Where `min` is written, or the header if it is not.
    pub(super) fn min_place(&self) -> &Place {
        match &self.min.origin {
            Origin::Written(place) => place,
            Origin::Default | Origin::Mistaken => &self.place,
        }
    }

    pub(super) fn path_of(&self, key: &Key) -> String {
        format!("kinds.{}.{}", segment(&self.config.name), key.name)
    }
}

/// Reads the kind called `name`.
pub(super) fn read(mut section: SectionReader<'_>, name: &str, input: &Input<'_>) -> ReadKind {
    let command = section.read_list(&keys::COMMAND, text);
    let types = section.read_list(&keys::TYPES, text);
    let capabilities = capabilities(&mut section);
    let (min, max) = size_of_kind(&mut section);
    let (connect_timeout, start_timeout) = start_times(&mut section);
    let (restart_backoff, restart_backoff_max) = backoffs(&mut section);
    let (heartbeat_warning, heartbeat_timeout) = heartbeats(&mut section);
    let keyed = section.read(&keys::KEYED, boolean);
    let memory = section.read_optional(&keys::MEMORY, size(MEMORY_SIZES));
    let (memory_soft, memory_limit) = memory_bounds(&mut section);
    let max_queries = section.read(&keys::MAX_QUERIES, or_none(count(1..=MOST_RECORDS as u64)));
    let circuit_failures = section.read(&keys::CIRCUIT_FAILURES, count(1..=MOST_FAILURES));
    let max_failures = section.read(&keys::MAX_FAILURES, count(0..=MOST_FAILURES));
    let config = KindConfig {
        name: name.into(),
        command: values(command.value),
        types: values(types.value.clone()),
        capabilities,
        min: min.value,
        max,
        keyed: keyed.value,
        affinity: affinity(&mut section, &keyed),
        balance: section.read(&keys::BALANCE, |node| BALANCES.parse(node)).value,
        memory: memory.value,
        memory_soft,
        memory_limit,
        idle_ttl: section.read(&keys::IDLE_TTL, or_none(duration(SOME_DURATION))).value,
        max_queries: max_queries.value.and_then(NonZeroU64::new),
        max_age: section.read(&keys::MAX_AGE, or_none(duration(SOME_DURATION))).value,
        scale_up_after: section.read(&keys::SCALE_UP_AFTER, duration(ANY_DURATION)).value,
        scale_up_depth: section.read(&keys::SCALE_UP_DEPTH, count(1..=MOST_RECORDS)).value,
        scale_up_step: section.read(&keys::SCALE_UP_STEP, positive(MOST_THINGS)).value,
        scale_down_after: section.read(&keys::SCALE_DOWN_AFTER, duration(SOME_DURATION)).value,
        scale_down_step: section.read(&keys::SCALE_DOWN_STEP, positive(MOST_THINGS)).value,
        dir: section.read(&keys::DIR, |node| confinement::work_dir(input, node)).value,
        env: section.read_strings(&keys::ENV, variable_name, argument),
        pass_env: values(section.read_list(&keys::PASS_ENV, passed_name).value),
        user: section.read_optional(&keys::USER, user).value,
        group: section.read_optional(&keys::GROUP, group).value,
        confinement: confinement::read(&mut section, input),
        transport: section.read(&keys::TRANSPORT, |node| TRANSPORTS.parse(node)).value,
        start_timeout: start_timeout.value,
        connect_timeout: connect_timeout.value,
        timeout: section.read(&keys::TIMEOUT, or_none(duration(SOME_DURATION))).value,
        queue_timeout: section.read(&keys::QUEUE_TIMEOUT, or_none(duration(SOME_DURATION))).value,
        cancel_grace: section.read(&keys::CANCEL_GRACE, duration(ANY_DURATION)).value,
        term_grace: section.read(&keys::TERM_GRACE, duration(ANY_DURATION)).value,
        idle_after: section.read(&keys::IDLE_AFTER, duration(SOME_DURATION)).value,
        max_line_bytes: section.read(&keys::MAX_LINE_BYTES, size(MESSAGE_SIZES)).value,
        restart_backoff: restart_backoff.value,
        restart_backoff_max: restart_backoff_max.value,
        circuit_failures: NonZeroU32::new(circuit_failures.value).expect("the range starts at 1"),
        max_failures: NonZeroU32::new(max_failures.value),
        heartbeat_warning,
        heartbeat_timeout,
        ping_interval: section.read(&keys::PING_INTERVAL, duration(SOME_DURATION)).value,
    };
    ReadKind { config, min, types, memory, place: section.place }
}

/// The words for what the kind can do; each once.
fn capabilities(section: &mut SectionReader<'_>) -> Vec<String> {
    let list = section.read_list(&keys::CAPABILITIES, short_word);
    if let Origin::Written(place) = &list.origin
        && list.value.len() > MOST_CAPABILITIES
    {
        let problem = Problem::TooMany { got: list.value.len(), most: MOST_CAPABILITIES };
        section.mistake(&keys::CAPABILITIES, place, problem);
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    for item in list.value.iter().filter(|item| !seen.insert(item.value.as_str())) {
        section.mistake_in(item, Problem::ListedTwice { text: quote(&item.value) });
    }
    values(list.value)
}

fn short_word(node: &Node) -> Result<String, Problem> {
    let word = text(node)?;
    if word.len() > MOST_CAPABILITY_BYTES {
        return Err(Problem::TooLong { text: quote(&word), bytes: word.len(), most: MOST_CAPABILITY_BYTES });
    }
    Ok(word)
}

fn passed_name(node: &Node) -> Result<String, Problem> {
    let name = argument(node)?;
    variable_name(&name).map(|()| name)
}

/// `min` and `max`; a `max` that nobody wrote is at least `min`.
fn size_of_kind(section: &mut SectionReader<'_>) -> (Setting<usize>, NonZeroUsize) {
    let mut min = section.read(&keys::MIN, count(0..=MOST_THINGS));
    let mut max = section.read(&keys::MAX, count(1..=MOST_THINGS));
    if max.is_default() {
        max.value = max.value.max(min.value);
    }
    section.keep_order((&keys::MIN, &mut min), (&keys::MAX, &max), |n| n.to_string());
    let max = NonZeroUsize::new(max.value).expect("the range starts at 1");
    (min, max)
}

type Durations = (Setting<Duration>, Setting<Duration>);

fn start_times(section: &mut SectionReader<'_>) -> Durations {
    let mut connect = section.read(&keys::CONNECT_TIMEOUT, duration(SOME_DURATION));
    let start = section.read(&keys::START_TIMEOUT, duration(SOME_DURATION));
    let (low, high) = ((&keys::CONNECT_TIMEOUT, &mut connect), (&keys::START_TIMEOUT, &start));
    section.keep_order(low, high, show_duration);
    (connect, start)
}

fn backoffs(section: &mut SectionReader<'_>) -> Durations {
    let mut first = section.read(&keys::RESTART_BACKOFF, duration(SOME_DURATION));
    let longest = section.read(&keys::RESTART_BACKOFF_MAX, duration(SOME_DURATION));
    let (low, high) = ((&keys::RESTART_BACKOFF, &mut first), (&keys::RESTART_BACKOFF_MAX, &longest));
    section.keep_order(low, high, show_duration);
    (first, longest)
}

/// The time to warn and the time to stop; the first, unless written, is at most half of the second.
fn heartbeats(section: &mut SectionReader<'_>) -> (Duration, Duration) {
    let warning = section.read(&keys::HEARTBEAT_WARNING, duration(SOME_DURATION));
    let timeout = section.read(&keys::HEARTBEAT_TIMEOUT, duration(HALVABLE_DURATION));
    if warning.is_default() {
        return (warning.value.min(timeout.value / 2), timeout.value);
    }
    if let (Origin::Written(place), Some(limit)) = (&warning.origin, timeout.valid())
        && warning.value >= *limit
    {
        let (value, limit) = (show_duration(warning.value), show_duration(*limit));
        let problem = Problem::NotLess { value, other: keys::HEARTBEAT_TIMEOUT.name, limit };
        section.mistake(&keys::HEARTBEAT_WARNING, place, problem);
    }
    (warning.value, timeout.value)
}

/// A keyed kind is strict by nature, so there anything else is a mistake.
fn affinity(section: &mut SectionReader<'_>, keyed: &Setting<bool>) -> Affinity {
    let affinity = section.read(&keys::AFFINITY, |node| AFFINITIES.parse(node));
    if !keyed.value {
        return affinity.value;
    }
    if let Origin::Written(place) = &affinity.origin
        && affinity.value != Affinity::Strict
    {
        section.mistake(&keys::AFFINITY, place, Problem::KeyedAffinity { text: AFFINITIES.word(affinity.value) });
    }
    Affinity::Strict
}

/// The memory above which a worker is replaced, and the memory above which it is stopped.
fn memory_bounds(section: &mut SectionReader<'_>) -> (Option<u64>, Option<u64>) {
    let soft = section.read(&keys::MEMORY_SOFT, or_none(size(MEMORY_SIZES)));
    let limit = section.read(&keys::MEMORY_LIMIT, or_none(size(MEMORY_SIZES)));
    if let (Origin::Written(place), Some(low), Some(high)) = (&soft.origin, soft.value, limit.value)
        && low >= high
    {
        let (value, limit) = (show_size(low), show_size(high));
        let problem = Problem::NotLess { value, other: keys::MEMORY_LIMIT.name, limit };
        section.mistake(&keys::MEMORY_SOFT, place, problem);
    }
    (soft.value, limit.value)
}
