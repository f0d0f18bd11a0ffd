//! Reads the keys of one section: parses what is written, falls back to defaults, reports mistakes.

use std::path::Path;

use super::error::{Location, Mistakes};
use super::format::{Format, ValueReport};
use super::schema::{ConfigKey, Fallback, Section};
use super::tree::{TomlNode, TomlTable, parse_value};

/// A value that was read, and its origin.
pub(super) struct Setting<'t, T> {
    key: &'static ConfigKey,
    /// The default in place of a mistaken value: reading goes on only to find the other mistakes.
    pub(super) value: T,
    /// The value as it is written, if it is.
    pub(super) node: Option<&'t TomlNode>,
    /// Already reported; rules that tie this value to another have nothing to add.
    is_mistaken: bool,
}

impl<'t, T> Setting<'t, T> {
    /// True if the value is not written and need not be.
    pub(super) fn is_default(&self) -> bool {
        self.node.is_none() && !self.is_mistaken
    }

    /// The value, unless it is mistaken.
    pub(super) fn valid(&self) -> Option<&T> {
        (!self.is_mistaken).then_some(&self.value)
    }

    /// The items of an array as they are written, mistaken or not.
    pub(super) fn items(&self) -> &'t [TomlNode] {
        self.node.map_or(&[], TomlNode::items)
    }

    /// The value if it is written, and not mistaken.
    pub(super) fn written(&self) -> Option<&T> {
        self.valid().filter(|_| self.node.is_some())
    }
}

/// Reads one section.
pub(super) struct SectionReader<'t> {
    pub(super) section: &'static Section,
    /// As `server` or `kinds.embed`.
    pub(super) path: String,
    /// The location of the section's header; the whole file if there is none.
    pub(super) header: Location,
    pub(super) table: &'t TomlTable,
    /// Relative paths start here.
    pub(super) base: &'t Path,
    pub(super) mistakes: &'t Mistakes,
}

impl<'t> SectionReader<'t> {
    pub(super) fn read<T>(&self, name: &str, format: &impl Format<T>) -> Setting<'t, T> {
        let key = self.section.key(name);
        let node = self.table.get(key.name).map(|field| &field.node);
        let value = node.and_then(|node| {
            let path = format!("{}.{}", self.path, key.name);
            format.read(node, &ValueReport { path, base: self.base, mistakes: self.mistakes })
        });
        let is_missing = node.is_none() && matches!(key.fallback, Fallback::Required(..));
        let is_mistaken = is_missing || (node.is_some() && value.is_none());
        let value = value.unwrap_or_else(|| fallback(key, format));
        let setting = Setting { key, value, node, is_mistaken };
        if let Fallback::Required(_, how) = key.fallback
            && is_missing
        {
            self.report(&setting, format!("is required: {how}"));
        }
        setting
    }

    /// Reports a mistake in `setting`: where it is written, or at the section's header.
    pub(super) fn report<T>(&self, setting: &Setting<'_, T>, problem: impl Into<String>) {
        let location = setting.node.map_or(&self.header, |node| &node.location);
        self.mistakes.add(location, format!("{}.{}", self.path, setting.key.name), problem);
    }

    /// Reports a mistake in one item of an array.
    pub(super) fn report_item<T>(&self, setting: &Setting<'_, T>, index: usize, problem: impl Into<String>) {
        let path = format!("{}.{}[{index}]", self.path, setting.key.name);
        self.mistakes.add(&setting.items()[index].location, path, problem);
    }

    /// Reports `low` if it is more than `high`. A `low` that is not written is lowered instead.
    pub(super) fn keep_order<T: PartialOrd + Copy>(
        &self,
        low: &mut Setting<'_, T>,
        high: &Setting<'_, T>,
        show: impl Fn(T) -> String,
    ) {
        let Some(limit) = high.valid().filter(|limit| low.value > **limit) else {
            return;
        };
        if low.is_default() {
            low.value = *limit;
        } else if let Some(value) = low.written() {
            let problem = format!("{} is more than `{}`, which is {}", show(*value), high.key.name, show(*limit));
            self.report(low, problem);
        }
    }
}

fn fallback<T>(key: &ConfigKey, format: &impl Format<T>) -> T {
    let (Fallback::Default(text) | Fallback::Dependent(text) | Fallback::Required(text, _)) = key.fallback else {
        return format.unset();
    };
    let mistakes = Mistakes::new(String::new());
    let report = ValueReport { path: String::new(), base: Path::new(""), mistakes: &mistakes };
    format.read(&parse_value(text, &Location::File), &report).expect("the declared value is valid")
}
