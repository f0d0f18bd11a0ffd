//! Formats of values: how each is parsed from TOML, checked, and written back.
//!
//! A key's declaration names its format, like `Size(KIB..=GIB)` or `Or("none", Time(SOME_TIME))`.

use std::path::Path;

use super::error::Mistakes;
use super::tree::{TomlNode, TomlValue};

/// Format of a single TOML value.
pub(super) trait Scalar<T> {
    /// Parses `node`, or says what is wrong with it. Relative paths start at `base`.
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<T, String>;
    /// The value in TOML.
    fn write(&self, value: &T) -> String;
}

/// Format of a key's value, which may consist of several scalars.
pub(super) trait Format<T> {
    /// Reads `node`, reporting every mistake in it; `None` if there was any.
    fn read(&self, node: &TomlNode, report: &ValueReport<'_>) -> Option<T>;
    /// The value in TOML; `None` if it is unset.
    fn show(&self, value: &T) -> Option<String>;
    /// The value of a key that is not written and has no default.
    fn unset(&self) -> T {
        unreachable!("only optional keys have no default")
    }
}

/// Collects the mistakes in one key's value.
pub(super) struct ValueReport<'a> {
    /// As `kinds.embed.types`.
    pub(super) path: String,
    /// Relative paths start here.
    pub(super) base: &'a Path,
    pub(super) mistakes: &'a Mistakes,
}

impl<T, S: Scalar<T>> Format<T> for S {
    fn read(&self, node: &TomlNode, report: &ValueReport<'_>) -> Option<T> {
        let value = self.parse(node, report.base);
        value.map_err(|problem| report.mistakes.add(&node.location, &report.path, problem)).ok()
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(self.write(value))
    }
}

/// A value that may be left unset.
pub(super) struct Optional<F>(pub(super) F);

impl<T, F: Format<T>> Format<Option<T>> for Optional<F> {
    fn read(&self, node: &TomlNode, report: &ValueReport<'_>) -> Option<Option<T>> {
        self.0.read(node, report).map(Some)
    }

    fn show(&self, value: &Option<T>) -> Option<String> {
        self.0.show(value.as_ref()?)
    }

    fn unset(&self) -> Option<T> {
        None
    }
}

/// A format whose values must pass a check as well.
pub(super) struct Checked<S, T>(pub(super) S, pub(super) fn(&T) -> Result<(), String>);

impl<T, S: Scalar<T>> Scalar<T> for Checked<S, T> {
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<T, String> {
        let value = self.0.parse(node, base)?;
        (self.1)(&value).map(|()| value)
    }

    fn write(&self, value: &T) -> String {
        self.0.write(value)
    }
}

/// An array of strings. Its items are checked one by one, so each mistake has its own location.
pub(super) struct List<S>(pub(super) S);

impl<T, S: Scalar<T>> Format<Vec<T>> for List<S> {
    fn read(&self, node: &TomlNode, report: &ValueReport<'_>) -> Option<Vec<T>> {
        let TomlValue::Array(nodes) = &node.value else {
            let problem = wrong_type(node, "an array of strings, like [\"a\", \"b\"]");
            report.mistakes.add(&node.location, &report.path, problem);
            return None;
        };
        let mut items = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            match self.0.parse(node, report.base) {
                Ok(value) => items.push(value),
                Err(problem) => report.mistakes.add(&node.location, format!("{}[{index}]", report.path), problem),
            }
        }
        (items.len() == nodes.len()).then_some(items)
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        let items: Vec<_> = value.iter().map(|item| self.0.write(item)).collect();
        Some(format!("[{}]", items.join(", ")))
    }
}

pub(super) fn wrong_type(node: &TomlNode, wanted: &str) -> String {
    format!("must be {wanted}, not {}", node.type_name())
}

/// The text of a string; `wanted` describes it to a user who wrote something else.
pub(super) fn string<'a>(node: &'a TomlNode, wanted: &str) -> Result<&'a str, String> {
    node.text().ok_or_else(|| wrong_type(node, wanted))
}
