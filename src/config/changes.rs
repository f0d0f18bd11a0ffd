//! Differences between two configurations, each with its effect in a reload.

use super::keys;
use super::keys::kind::KindConfig;
use super::model::Config;
use super::schema::{Effect, KeyValue};
use super::show::{kind_entries, written};
use super::text::{toml_key, toml_strings};

/// Shown in place of a variable's value, which may be a secret.
const HIDDEN: &str = "(hidden)";

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueChange {
    /// As `pool.max_workers` or `kinds.embed.max`; `kinds.embed` for a whole kind, and
    /// `kinds.embed.env.TOKEN` for a variable.
    pub path: String,
    /// The value as [`show`](super::show()) writes it; `None` if it is unset. Of a whole kind it is the
    /// command, and of a variable only that it is set.
    pub old: Option<String>,
    /// Likewise.
    pub new: Option<String>,
    pub effect: Effect,
}

/// Every difference between the configuration in effect and one that is to replace it: first those of the whole
/// server, then those of the kinds. In each of the two, removals come last. The order of the kinds is no difference.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Vec<ValueChange> {
    let mut changes = compare(&general_values(old), &general_values(new));
    changes.extend(changes_of_kinds(&old.kinds, &new.kinds));
    changes
}

impl KindConfig {
    /// True if workers started with `self` have to be replaced to be as `new` says.
    #[must_use]
    pub fn must_roll(&self, new: &KindConfig) -> bool {
        compare(&kind_values(self), &kind_values(new)).iter().any(|change| change.effect == Effect::Rolls)
    }
}

/// A value that is set.
struct SetValue {
    path: String,
    effect: Effect,
    value: String,
    is_secret: bool,
}

impl SetValue {
    fn new(header: &str, (key, value): KeyValue) -> Option<Self> {
        Some(Self { path: format!("{header}.{}", key.name), effect: key.effect, value: value?, is_secret: false })
    }

    fn shown(&self) -> String {
        if self.is_secret { HIDDEN.to_owned() } else { self.value.clone() }
    }
}

/// Everything but the kinds.
fn general_values(config: &Config) -> Vec<SetValue> {
    let general = written(config).into_iter().filter(|written| written.section.header != keys::KIND.header);
    general
        .flat_map(|written| written.entries.into_iter().filter_map(move |entry| SetValue::new(&written.header, entry)))
        .collect()
}

/// The values of a kind. Each variable is a value of its own.
fn kind_values(config: &KindConfig) -> Vec<SetValue> {
    let header = format!("kinds.{}", config.name);
    let mut values = Vec::new();
    for entry in kind_entries(config) {
        if entry.0.name == "env" {
            values.extend(config.env.iter().map(|(name, value)| SetValue {
                path: format!("{header}.env.{}", toml_key(name)),
                effect: entry.0.effect,
                value: value.clone(),
                is_secret: true,
            }));
        } else {
            values.extend(SetValue::new(&header, entry));
        }
    }
    values
}

fn compare(old: &[SetValue], new: &[SetValue]) -> Vec<ValueChange> {
    let find = |values: &'_ [SetValue], path: &str| values.iter().position(|value| value.path == path);
    let change = |value: &SetValue, old: Option<&SetValue>, new: Option<&SetValue>| ValueChange {
        path: value.path.clone(),
        old: old.map(SetValue::shown),
        new: new.map(SetValue::shown),
        effect: value.effect,
    };
    let set = new.iter().map(|value| (value, find(old, &value.path).map(|index| &old[index])));
    let set = set.filter(|(value, old)| old.is_none_or(|old| old.value != value.value));
    let unset = old.iter().filter(|value| find(new, &value.path).is_none());
    let set = set.map(|(value, old)| change(value, old, Some(value)));
    set.chain(unset.map(|value| change(value, Some(value), None))).collect()
}

fn changes_of_kinds(old: &[KindConfig], new: &[KindConfig]) -> Vec<ValueChange> {
    let find = |kinds: &'_ [KindConfig], name: &str| kinds.iter().position(|kind| *kind.name == *name);
    let whole = |kind: &KindConfig, effect| {
        let command = Some(toml_strings(&kind.command));
        let (old, new) = if effect == Effect::KindAdded { (None, command) } else { (command, None) };
        ValueChange { path: format!("kinds.{}", kind.name), old, new, effect }
    };
    let mut changes = Vec::new();
    for kind in new {
        match find(old, &kind.name) {
            Some(index) => changes.extend(compare(&kind_values(&old[index]), &kind_values(kind))),
            None => changes.push(whole(kind, Effect::KindAdded)),
        }
    }
    let removed = old.iter().filter(|kind| find(new, &kind.name).is_none());
    changes.extend(removed.map(|kind| whole(kind, Effect::KindRemoved)));
    changes
}
