//! Reads the kinds of worker, and checks the rules within each kind and between them.

use std::collections::{BTreeSet, HashMap};

use super::error::Location;
use super::keys::confinement::{self, Confinement};
use super::keys::kind::{Affinity, KindConfig, KindSettings};
use super::keys::pool::PoolSettings;
use super::numbers::{show_duration, show_size};
use super::reader::SectionReader;
use super::strings::Word;
use super::text::{first_few, quote, segment};

/// A query's capabilities are compared with every one of a kind's, so these are few.
const MAX_CAPABILITIES: usize = 64;

/// One kind as it was read, for the rules between kinds.
pub(super) struct ReadKind<'t> {
    name: String,
    settings: KindSettings<'t>,
    confinement: Confinement,
    section: SectionReader<'t>,
}

impl<'t> ReadKind<'t> {
    /// Reads the kind called `name` and checks its own rules.
    pub(super) fn read(name: &str, section: SectionReader<'t>) -> Self {
        let mut settings = KindSettings::read(&section);
        if settings.command.written().is_some_and(Vec::is_empty) {
            section.report(&settings.command, "must not be empty");
        }
        check_capabilities(&settings, &section);
        check_sizes(&mut settings, &section);
        check_times(&mut settings, &section);
        check_affinity(&mut settings, &section);
        let confinement = confinement::read(&section);
        Self { name: name.to_owned(), settings, confinement, section }
    }

    pub(super) fn into_config(self) -> KindConfig {
        self.settings.into_config(self.name.into(), self.confinement)
    }

    fn min(&self) -> u64 {
        self.settings.min.value as u64
    }

    /// Memory of the workers that are kept warm.
    fn min_memory(&self) -> u64 {
        self.settings.memory.value.unwrap_or(0).saturating_mul(self.min())
    }
}

pub(super) fn check_kind_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_well && name.len() <= 63 && name.chars().all(is_allowed) {
        return Ok(());
    }
    Err("is not a kind's name: use 1 to 63 of a-z, 0-9, _ and -, starting with a letter".to_owned())
}

fn check_capabilities(settings: &KindSettings<'_>, section: &SectionReader<'_>) {
    let items = settings.capabilities.items();
    if items.len() > MAX_CAPABILITIES {
        let problem = format!("lists {}; at most {MAX_CAPABILITIES} are allowed", items.len());
        return section.report(&settings.capabilities, problem);
    }
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(text) = item.text()
            && !seen.insert(text)
        {
            section.report_item(&settings.capabilities, index, format!("{} is listed twice", quote(text)));
        }
    }
}

fn check_sizes(settings: &mut KindSettings<'_>, section: &SectionReader<'_>) {
    let (min, max) = (&settings.min, &mut settings.max);
    if max.is_default() {
        max.value = max.value.max(min.value.try_into().unwrap_or(max.value));
    }
    if let (Some(min_value), Some(max)) = (min.written(), max.valid())
        && *min_value > max.get()
    {
        section.report(min, format!("{min_value} is more than `max`, which is {max}"));
    }
    let (soft, limit) = (&settings.memory_soft, settings.memory_limit.value);
    if let (Some(Some(low)), Some(high)) = (soft.written(), limit)
        && *low >= high
    {
        let (low, high) = (show_size(*low), show_size(high));
        section.report(soft, format!("{low} is not less than `memory_limit`, which is {high}"));
    }
}

fn check_times(settings: &mut KindSettings<'_>, section: &SectionReader<'_>) {
    section.keep_order(&mut settings.connect_timeout, &settings.start_timeout, show_duration);
    section.keep_order(&mut settings.restart_backoff, &settings.restart_backoff_max, show_duration);
    let (warning, timeout) = (&mut settings.heartbeat_warning, &settings.heartbeat_timeout);
    if warning.is_default() {
        warning.value = warning.value.min(timeout.value / 2);
    }
    if let (Some(low), Some(high)) = (warning.written(), timeout.valid())
        && low >= high
    {
        let (low, high) = (show_duration(*low), show_duration(*high));
        section.report(warning, format!("{low} is not less than `heartbeat_timeout`, which is {high}"));
    }
}

/// A keyed kind is strict by nature, so any other affinity is a mistake there.
fn check_affinity(settings: &mut KindSettings<'_>, section: &SectionReader<'_>) {
    let affinity = &mut settings.affinity;
    if !settings.keyed.value {
        return;
    }
    if let Some(written @ (Affinity::Off | Affinity::Prefer)) = affinity.written() {
        let word = written.word();
        let problem = format!("is \"{word}\", but a keyed kind is always \"strict\": remove `affinity`, or `keyed`");
        section.report(affinity, problem);
    }
    affinity.value = Affinity::Strict;
}

/// Checks the rules between kinds, and that the pool has room for them.
pub(super) fn check_together(kinds: &[ReadKind<'_>], pool: &PoolSettings<'_>) {
    report_shared_types(kinds);
    if let Some(limit) = pool.max_workers.valid() {
        report_too_many(kinds, limit.get() as u64);
    }
    // A mistaken budget reads as none, so the kinds are not held to it.
    if let Some(budget) = pool.memory_budget.value {
        report_over_budget(kinds, budget);
    }
}

/// Every type that the kinds serve; `None` if that is unknown, as when a kind serves any or has a mistaken list.
pub(super) fn served_types(kinds: &[ReadKind<'_>]) -> Option<BTreeSet<String>> {
    let lists_types = |kind: &ReadKind<'_>| kind.settings.types.valid().is_some_and(|types| !types.is_empty());
    // Without any kind there is another mistake to mend first.
    let is_known = !kinds.is_empty() && kinds.iter().all(lists_types);
    is_known.then(|| kinds.iter().flat_map(|kind| kind.settings.types.value.iter().cloned()).collect())
}

/// A query that names only its type must find one kind.
fn report_shared_types(kinds: &[ReadKind<'_>]) {
    let mut first: HashMap<&str, (&str, &Location)> = HashMap::new();
    for kind in kinds {
        for (index, item) in kind.settings.types.items().iter().enumerate() {
            let Some(text) = item.text() else {
                continue;
            };
            let problem = match first.get(text) {
                None => {
                    first.insert(text, (&kind.name, &item.location));
                    continue;
                }
                Some((other, _)) if *other == kind.name => format!("{} is listed twice", quote(text)),
                Some((other, location)) => format!(
                    "{} is already served by kind `{other}` ({}); a type belongs to one kind",
                    quote(text),
                    location.in_file(&kind.section.mistakes.file)
                ),
            };
            kind.section.report_item(&kind.settings.types, index, problem);
        }
    }
}

/// The pool must have room for the `min` of each kind, and of all of them together.
fn report_too_many(kinds: &[ReadKind<'_>], limit: u64) {
    let mut is_each_fitting = true;
    for kind in kinds.iter().filter(|kind| kind.min() > limit) {
        is_each_fitting = false;
        let problem = format!("{} is more than `pool.max_workers`, which is {limit}", kind.min());
        kind.section.report(&kind.settings.min, problem);
    }
    if !is_each_fitting || kinds.iter().any(|kind| kind.settings.min.valid().is_none()) {
        return;
    }
    if let Some((kind, sum)) = crossing(kinds, limit, ReadKind::min) {
        let parts = first_few(kinds.iter().map(|kind| format!("{} {}", segment(&kind.name), kind.min())));
        let problem =
            format!("the kinds' `min` add up to {sum} ({parts}), more than pool.max_workers, which is {limit}");
        kind.section.report(&kind.settings.min, problem);
    }
}

/// Each kind must set the memory of a worker, one worker must fit the budget, and so must those that are kept warm.
fn report_over_budget(kinds: &[ReadKind<'_>], budget: u64) {
    let shown_budget = show_size(budget);
    let mut is_each_fitting = true;
    for kind in kinds {
        let memory = &kind.settings.memory;
        is_each_fitting &= memory.written().is_some() && kind.settings.min.valid().is_some();
        if memory.is_default() {
            let problem = format!(
                "is required, because pool.memory_budget is {shown_budget}: write what one worker needs, like \
                 memory = \"512MiB\", or remove the budget"
            );
            kind.section.report(memory, problem);
        } else if let Some(bytes) = memory.value.filter(|bytes| *bytes > budget) {
            is_each_fitting = false;
            let problem = format!(
                "one worker needs {}, more than pool.memory_budget, which is {shown_budget}, so none could ever \
                 start: lower `memory`, or raise the budget",
                show_size(bytes)
            );
            kind.section.report(memory, problem);
        }
    }
    if let Some((kind, sum)) = crossing(kinds, budget, ReadKind::min_memory).filter(|_| is_each_fitting) {
        let part = |kind: &ReadKind<'_>| {
            format!("{} {} x {}", segment(&kind.name), kind.min(), show_size(kind.settings.memory.value.unwrap_or(0)))
        };
        let problem = format!(
            "the kinds' `min` workers need {} together ({}), more than pool.memory_budget, which is {shown_budget}: \
             lower `min` or `memory`, or raise the budget",
            show_size(sum),
            first_few(kinds.iter().map(part))
        );
        kind.section.report(&kind.settings.min, problem);
    }
}

/// The kind with which the sum of `need` exceeds `limit`, if it does, and the whole sum.
fn crossing<'k, 't>(
    kinds: &'k [ReadKind<'t>],
    limit: u64,
    need: impl Fn(&ReadKind<'t>) -> u64,
) -> Option<(&'k ReadKind<'t>, u64)> {
    let mut sum = 0_u64;
    let mut crossing = None;
    for kind in kinds {
        sum = sum.saturating_add(need(kind));
        if sum > limit {
            crossing = crossing.or(Some(kind));
        }
    }
    crossing.map(|kind| (kind, sum))
}
