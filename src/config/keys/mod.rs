//! The table of every key: its section, its default, what a reload does with it, and what it does
//! and why the default is what it is.

/// Defines a constant for each key, and the table of all of them, so that no key can miss in the
/// table.
macro_rules! keys {
    ($table:ident: $($constant:ident: $section:ident.$name:ident = $default:expr, $reload:expr, $doc:expr;)*) => {
        $(pub(in crate::config) const $constant: $crate::config::keys::Key = $crate::config::keys::Key {
            section: $crate::config::section::Section::$section,
            name: stringify!($name),
            default: $default,
            reload: $reload,
            doc: $doc,
        };)*
        pub(super) const $table: &[$crate::config::keys::Key] = &[$($constant),*];
    };
}

pub(super) mod confinement;
mod general;
pub(super) mod kind;

pub(super) use general::*;

use super::section::Section;

/// What holds when a key is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The key must be written; the text says how.
    Required(&'static str),
    /// No value; the text is an example of one, in TOML.
    Unset(&'static str),
    /// A value, in TOML, as `show` would write it.
    Value(&'static str),
    /// Such a value too, of a key that must not be written unless another key has the right value.
    Dependent(&'static str),
}

/// What it takes for a value that a reload changed to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// Nothing: whoever needs the value looks it up.
    AtOnce,
    /// New workers: one that runs keeps what it was started with.
    Rolls,
    /// A new server.
    Restart,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) section: Section,
    pub(super) name: &'static str,
    pub(super) default: Fallback,
    pub(super) reload: Reload,
    pub(super) doc: &'static str,
}

/// Keys that belong to the design but not to this version: take a row out when its key is acted
/// upon.
const UNSUPPORTED_KEYS: &[(Section, &[&str])] = &[(Section::Kind, &["retry"])];

/// What the marks behind what a key does stand for.
pub(super) const LEGEND: &str = "A reload makes a changed value hold at once, unless the key is marked: (rolls), the \
    kind's workers are replaced, one after the other; (restart), only a restart of the server will do.";

impl Key {
    /// What it does and why its default is what it is, and the mark of what a reload does.
    pub(super) fn explanation(&self) -> String {
        let mark = match self.reload {
            Reload::AtOnce => "",
            Reload::Rolls => " (rolls)",
            Reload::Restart => " (restart)",
        };
        format!("{}{mark}", self.doc)
    }
}

/// Every key, in the order of the sections.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    GENERAL.iter().chain(kind::TABLE).chain(confinement::TABLE)
}

/// The keys of `section`, in the order of the table.
pub(super) fn of(section: Section) -> impl Iterator<Item = &'static Key> {
    all().filter(move |key| key.section == section)
}

/// The keys of `section` that this version does not act upon.
pub(super) fn unsupported(section: Section) -> impl Iterator<Item = &'static str> {
    UNSUPPORTED_KEYS.iter().filter(move |(of, _)| *of == section).flat_map(|(_, names)| names.iter().copied())
}

/// The headers of the sections that have a key of this name.
pub(super) fn homes_of(name: &str) -> Vec<&'static str> {
    let named = all().filter(|key| key.name == name);
    named.map(|key| key.section.header()).collect()
}
