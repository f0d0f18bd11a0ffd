//! Reads the kinds, and checks the rules that tie several of them together.

use std::collections::{BTreeSet, HashMap};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::choice::TRANSPORTS;
use super::error::{Mistakes, Place};
use super::keys;
use super::model::KindConfig;
use super::problem::Problem;
use super::reader::{Item, Origin, SectionReader, Setting, values};
use super::section::Section;
use super::sections::{Input, MESSAGE_SIZES, MOST_THINGS, as_table};
use super::suggest::{first_few, quote, segment};
use super::tree::{Field, Node, Table};
use super::values::{
    ANY_DURATION, HALVABLE_DURATION, SOME_DURATION, argument, count, duration, duration_or_none, path, show_duration,
    size, text, user, variable_name,
};

/// Nobody counts further before acting; a larger number is a slip of the hand.
const MOST_FAILURES: u32 = 1_000_000;

/// The kinds, and what the other sections need to know about them.
pub(super) struct ReadKinds {
    pub(super) configs: Vec<KindConfig>,
    /// Every type that a query can have; `None` if that is not known, as when a kind takes any.
    pub(super) served_types: Option<BTreeSet<String>>,
}

/// A kind, with what the rules between kinds need to know.
struct ReadKind {
    config: KindConfig,
    min: Setting<usize>,
    types: Setting<Vec<Item>>,
    /// Its header.
    place: Place,
}

/// Reads all kinds; `limit` is the pool's `max_workers`, unless that is mistaken.
pub(super) fn read(input: &Input<'_>, limit: Option<usize>, mistakes: &mut Mistakes) -> ReadKinds {
    let mut kinds = Vec::new();
    let fields = fields(input.tree, mistakes);
    for field in fields {
        let section_path = format!("kinds.{}", segment(&field.name));
        if !is_kind_name(&field.name) {
            mistakes.add(&field.place, &section_path, Problem::KindName);
        }
        if let Some(table) = as_table(field, &section_path, &section_path, mistakes) {
            let found = (table, field.place.clone());
            let section = SectionReader::new(Section::Kind, section_path, found, mistakes);
            kinds.push(kind(section, &field.name, input));
        }
    }
    report_shared_types(&kinds, mistakes);
    if let Some(limit) = limit {
        report_too_many(&kinds, limit, mistakes);
    }
    // A kind that could not be read may serve anything.
    let served_types = if kinds.len() == fields.len() { served_types(&kinds) } else { None };
    ReadKinds { configs: kinds.into_iter().map(|kind| kind.config).collect(), served_types }
}

/// The types of all kinds together. With no kinds there is something else to mend first.
fn served_types(kinds: &[ReadKind]) -> Option<BTreeSet<String>> {
    let listed = |kind: &ReadKind| kind.types.valid().is_some_and(|types| !types.is_empty());
    if kinds.is_empty() || !kinds.iter().all(listed) {
        return None;
    }
    Some(kinds.iter().flat_map(|kind| kind.config.types.iter().cloned()).collect())
}

fn fields<'a>(tree: &'a Table, mistakes: &mut Mistakes) -> &'a [Field] {
    let Some(field) = tree.get("kinds") else {
        mistakes.add(&Place::Whole, "kinds", Problem::NoKinds);
        return &[];
    };
    let Some(table) = as_table(field, "kinds", Section::Kind.header(), mistakes) else {
        return &[];
    };
    if table.fields.is_empty() {
        mistakes.add(&field.place, "kinds", Problem::NoKinds);
    }
    &table.fields
}

fn is_kind_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(allowed)
}

fn kind(mut section: SectionReader<'_>, name: &str, input: &Input<'_>) -> ReadKind {
    let command = section.read_list(&keys::COMMAND, text);
    let types = section.read_list(&keys::TYPES, text);
    let (min, max) = size_of_kind(&mut section);
    let (connect_timeout, start_timeout) = start_times(&mut section);
    let (restart_backoff, restart_backoff_max) = backoffs(&mut section);
    let (heartbeat_warning, heartbeat_timeout) = heartbeats(&mut section);
    let circuit_failures = section.read(&keys::CIRCUIT_FAILURES, count(1..=MOST_FAILURES));
    let max_failures = section.read(&keys::MAX_FAILURES, count(0..=MOST_FAILURES));
    let config = KindConfig {
        name: name.into(),
        command: values(command.value),
        types: values(types.value.clone()),
        min: min.value,
        max,
        dir: section.read_optional(&keys::DIR, path(input.base)),
        env: section.read_strings(&keys::ENV, variable_name, argument),
        pass_env: values(section.read_list(&keys::PASS_ENV, passed_name).value),
        user: section.read_optional(&keys::USER, user),
        transport: section.read(&keys::TRANSPORT, |node| TRANSPORTS.parse(node)).value,
        start_timeout: start_timeout.value,
        connect_timeout: connect_timeout.value,
        timeout: section.read(&keys::TIMEOUT, duration_or_none).value,
        queue_timeout: section.read(&keys::QUEUE_TIMEOUT, duration_or_none).value,
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
    ReadKind { config, min, types, place: section.place }
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

/// A query that names only its type must find one kind.
fn report_shared_types(kinds: &[ReadKind], mistakes: &mut Mistakes) {
    let mut first: HashMap<&str, (&str, &Place)> = HashMap::new();
    for kind in kinds {
        for item in &kind.types.value {
            let name = &*kind.config.name;
            let text = quote(&item.value);
            let problem = match first.get(item.value.as_str()) {
                None => {
                    first.insert(&item.value, (name, &item.place));
                    continue;
                }
                Some((other, _)) if *other == name => Problem::ListedTwice { text },
                Some((other, place)) => {
                    Problem::TypeTaken { text, kind: (*other).to_owned(), place: place.in_file(mistakes.file()) }
                }
            };
            mistakes.add(&item.place, &item.path, problem);
        }
    }
}

/// The pool must have room for the `min` of each kind, and of all of them together.
fn report_too_many(kinds: &[ReadKind], limit: usize, mistakes: &mut Mistakes) {
    let mut alone = false;
    for kind in kinds.iter().filter(|kind| kind.config.min > limit) {
        alone = true;
        let problem = Problem::Exceeds {
            value: kind.config.min.to_string(),
            other: "pool.max_workers",
            limit: limit.to_string(),
        };
        mistakes.add(kind.min_place(), kind.min_path(), problem);
    }
    if !alone && kinds.iter().all(|kind| kind.min.valid().is_some()) {
        report_sum(kinds, limit, mistakes);
    }
}

/// Reports a sum of `min` over the limit at the kind that crosses it.
fn report_sum(kinds: &[ReadKind], limit: usize, mistakes: &mut Mistakes) {
    let mut before = 0;
    let crossing = kinds.iter().find(|kind| {
        before += kind.config.min;
        before > limit
    });
    if let Some(kind) = crossing {
        let problem =
            Problem::MinSum { sum: kinds.iter().map(|kind| kind.config.min).sum(), parts: list_mins(kinds), limit };
        mistakes.add(kind.min_place(), kind.min_path(), problem);
    }
}

fn list_mins(kinds: &[ReadKind]) -> String {
    first_few(kinds.iter().map(|kind| format!("{} {}", segment(&kind.config.name), kind.config.min)))
}

impl ReadKind {
    fn min_place(&self) -> &Place {
        match &self.min.origin {
            Origin::Written(place) => place,
            Origin::Default | Origin::Mistaken => &self.place,
        }
    }

    fn min_path(&self) -> String {
        format!("kinds.{}.min", segment(&self.config.name))
    }
}
