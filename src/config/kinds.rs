//! Reads the kinds, and checks the rules that tie several of them together.

use std::collections::{BTreeSet, HashMap};

use super::budget;
use super::error::{Mistakes, Place};
use super::keys::kind as keys;
use super::kind::{self, ReadKind};
use super::model::KindConfig;
use super::problem::Problem;
use super::reader::SectionReader;
use super::section::Section;
use super::sections::{Input, as_table};
use super::suggest::{first_few, quote, segment};
use super::tree::{Field, Table};

/// The kinds, and what the other sections need to know about them.
pub(super) struct ReadKinds {
    pub(super) configs: Vec<KindConfig>,
    /// Every type that a query can have; `None` if that is not known, as when a kind takes any.
    pub(super) served_types: Option<BTreeSet<String>>,
}

/// What the pool has room for; `None` if that has no bound, or is mistaken.
pub(super) struct Room {
    pub(super) workers: Option<usize>,
    pub(super) memory: Option<u64>,
}

/// Reads all kinds, which must find `room` in the pool.
pub(super) fn read(input: &Input<'_>, room: &Room, mistakes: &mut Mistakes) -> ReadKinds {
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
            kinds.push(kind::read(section, &field.name, input));
        }
    }
    report_shared_types(&kinds, mistakes);
    if let Some(limit) = room.workers {
        report_too_many(&kinds, limit, mistakes);
    }
    if let Some(budget) = room.memory {
        budget::report(&kinds, budget, mistakes);
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
        mistakes.add(kind.min_place(), kind.path_of(&keys::MIN), problem);
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
        mistakes.add(kind.min_place(), kind.path_of(&keys::MIN), problem);
    }
}

fn list_mins(kinds: &[ReadKind]) -> String {
    first_few(kinds.iter().map(|kind| format!("{} {}", segment(&kind.config.name), kind.config.min)))
}
