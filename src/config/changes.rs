//! What a reload changes: each value that differs, and what it takes for the new one to hold.

use std::collections::{HashMap, HashSet};

use super::keys::{self, Key, Reload};
use super::model::{Config, KindConfig};
use super::section::Section;
use super::show::{Entry, bare_or_quoted, strings, written, written_kind};

/// What stands for a variable's value, which may be a secret.
const HIDDEN: &str = "(hidden)";

/// Every difference between two configurations: first what holds for the whole server, then the kinds.
/// In each of the two, what is gone comes last. The order of the kinds is no difference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    pub changes: Vec<Change>,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As `pool.max_workers` or `kinds.embed.max`; `kinds.embed` for a whole kind, and
    /// `kinds.embed.env.TOKEN` for a variable.
    pub path: String,
    /// As [`show`](super::show()) writes it; `None` if it is unset. Of a whole kind it is the
    /// command, and of a variable only that it is set.
    pub old: Option<String>,
    /// Likewise.
    pub new: Option<String>,
    pub effect: Effect,
}

/// What it takes for a new value to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It holds at once.
    Applied,
    /// The kind's workers are replaced, one after the other.
    Rolls,
    KindAdded,
    KindRemoved,
    /// Only a restart of the server makes it hold.
    NeedsRestart,
}

impl From<Reload> for Effect {
    fn from(reload: Reload) -> Self {
        match reload {
            Reload::AtOnce => Self::Applied,
            Reload::Rolls => Self::Rolls,
            Reload::Restart => Self::NeedsRestart,
        }
    }
}

/// What differs between the configuration in effect and one that is to take its place.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Changes {
    let mut changes = compare("", &general_lines(old), &general_lines(new));
    changes.extend(changes_of_kinds(&old.kinds, &new.kinds));
    Changes { changes }
}

impl KindConfig {
    /// Whether workers started with `self` have to be replaced to be as `new` says.
    #[must_use]
    pub fn must_roll(&self, new: &KindConfig) -> bool {
        let changes = compare("", &kind_lines(self), &kind_lines(new));
        changes.iter().any(|change| change.effect == Effect::Rolls)
    }
}

/// A value that is set.
struct Line {
    path: String,
    key: &'static Key,
    value: String,
    /// Whether the value must not be shown.
    secret: bool,
}

impl Line {
    fn new(section: &str, (key, value): Entry) -> Option<Self> {
        let path = if section.is_empty() { key.name.to_owned() } else { format!("{section}.{}", key.name) };
        Some(Self { path, key, value: value?, secret: false })
    }

    fn shown(&self) -> String {
        if self.secret { HIDDEN.to_owned() } else { self.value.clone() }
    }
}

/// Everything but the kinds.
fn general_lines(config: &Config) -> Vec<Line> {
    let sections = Section::ALL.into_iter().filter(|section| *section != Section::Kind);
    let sections = sections.flat_map(|section| written(section, config));
    sections
        .flat_map(|(header, entries)| entries.into_iter().filter_map(move |entry| Line::new(&header, entry)))
        .collect()
}

/// The values of a kind, their paths starting at its section. Each variable is a value of its own.
fn kind_lines(config: &KindConfig) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in written_kind(config) {
        if entry.0.name == keys::kind::ENV.name {
            lines.extend(config.env.iter().map(variable));
        } else {
            lines.extend(Line::new("", entry));
        }
    }
    lines
}

fn variable((name, value): (&String, &String)) -> Line {
    let key = &keys::kind::ENV;
    Line { path: format!("{}.{}", key.name, bare_or_quoted(name)), key, value: value.clone(), secret: true }
}

/// The lines that differ, each path after `prefix`.
fn compare(prefix: &str, old: &[Line], new: &[Line]) -> Vec<Change> {
    let before: HashMap<&str, &Line> = old.iter().map(|line| (line.path.as_str(), line)).collect();
    let after: HashSet<&str> = new.iter().map(|line| line.path.as_str()).collect();
    let change = |old: Option<&Line>, new: Option<&Line>| {
        let line = new.or(old).expect("one of the two is there");
        Change {
            path: format!("{prefix}{}", line.path),
            old: old.map(Line::shown),
            new: new.map(Line::shown),
            effect: line.key.reload.into(),
        }
    };
    let set = new.iter().filter_map(|line| match before.get(line.path.as_str()) {
        Some(old) if old.value == line.value => None,
        old => Some(change(old.copied(), Some(line))),
    });
    let unset = old.iter().filter(|line| !after.contains(line.path.as_str()));
    set.chain(unset.map(|line| change(Some(line), None))).collect()
}

fn by_name(kinds: &[KindConfig]) -> HashMap<&str, &KindConfig> {
    kinds.iter().map(|kind| (&*kind.name, kind)).collect()
}

fn changes_of_kinds(old: &[KindConfig], new: &[KindConfig]) -> Vec<Change> {
    let (before, after) = (by_name(old), by_name(new));
    let mut changes = Vec::new();
    for kind in new {
        let path = format!("kinds.{}", kind.name);
        match before.get(&*kind.name) {
            Some(old) => changes.extend(compare(&format!("{path}."), &kind_lines(old), &kind_lines(kind))),
            None => {
                changes.push(Change { path, old: None, new: Some(strings(&kind.command)), effect: Effect::KindAdded });
            }
        }
    }
    let removed = old.iter().filter(|kind| !after.contains_key(&*kind.name));
    changes.extend(removed.map(|kind| Change {
        path: format!("kinds.{}", kind.name),
        old: Some(strings(&kind.command)),
        new: None,
        effect: Effect::KindRemoved,
    }));
    changes
}
