//! Reads the keys of one section, falls back to their defaults, and notes every mistake on the way.

use std::collections::BTreeMap;

use super::error::{Mistakes, Place};
use super::keys::{self, Fallback, Key};
use super::problem::Problem;
use super::section::Section;
use super::suggest::{segment, unknown_key};
use super::tree::{self, Node, Table, Value};

/// A value that was read, and where it comes from.
#[derive(Debug, Clone)]
pub(super) struct Setting<T> {
    /// The default in place of a mistaken value: reading goes on only to find the other mistakes.
    pub(super) value: T,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    Written(Place),
    /// Already reported; rules that tie this value to another have nothing to add.
    Mistaken,
}

impl<T> Setting<T> {
    pub(super) fn is_default(&self) -> bool {
        self.origin == Origin::Default
    }

    /// The value, unless it is mistaken.
    pub(super) fn valid(&self) -> Option<&T> {
        (self.origin != Origin::Mistaken).then_some(&self.value)
    }
}

/// One value of an array.
#[derive(Debug, Clone)]
pub(super) struct Item<T = String> {
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) path: String,
}

/// The value of every item.
pub(super) fn values<T>(items: Vec<Item<T>>) -> Vec<T> {
    items.into_iter().map(|item| item.value).collect()
}

/// Reads one section.
pub(super) struct SectionReader<'a> {
    /// As `server` or `kinds.embed`.
    pub(super) path: String,
    /// The section's header; the whole file if there is none.
    pub(super) place: Place,
    table: &'a Table,
    mistakes: &'a mut Mistakes,
}

impl<'a> SectionReader<'a> {
    /// Starts with `section`, called `path`, and reports the keys that it should not have.
    pub(super) fn new(
        section: Section,
        path: String,
        (table, place): (&'a Table, Place),
        mistakes: &'a mut Mistakes,
    ) -> Self {
        let is_known = |name: &str| {
            keys::of(section).any(|key| key.name == name) || section.inner_tables().any(|table| table == name)
        };
        for field in table.fields.iter().filter(|field| !is_known(&field.name)) {
            let key_path = format!("{path}.{}", segment(&field.name));
            mistakes.add(&field.place, key_path, unknown_key(section, &field.name));
        }
        Self { path, place, table, mistakes }
    }

    pub(super) fn path_of(&self, key: &Key) -> String {
        format!("{}.{}", self.path, key.name)
    }

    pub(super) fn mistake(&mut self, key: &Key, place: &Place, problem: Problem) {
        self.mistakes.add(place, self.path_of(key), problem);
    }

    pub(super) fn mistake_in(&mut self, item: &Item, problem: Problem) {
        self.mistakes.add(&item.place, &item.path, problem);
    }

    /// Whether the key is written, rightly or not.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.node(key).is_some()
    }

    /// A key with a default.
    pub(super) fn read<T>(&mut self, key: &Key, parse: impl Fn(&Node) -> Result<T, Problem>) -> Setting<T> {
        let default =
            |origin| Setting { value: parse(&default_node(key)).expect("the table's defaults are valid"), origin };
        let Some(node) = self.node(key) else {
            return default(Origin::Default);
        };
        match parse(node) {
            Ok(value) => Setting { value, origin: Origin::Written(node.place.clone()) },
            Err(problem) => {
                self.mistake(key, &node.place, problem);
                default(Origin::Mistaken)
            }
        }
    }

    /// A key that must be written; `None` if it is not, or mistaken.
    pub(super) fn read_required<T>(&mut self, key: &Key, parse: impl Fn(&Node) -> Result<T, Problem>) -> Option<T> {
        if !self.has(key) {
            self.report_missing(key);
        }
        self.read_optional(key, parse).value
    }

    /// A key that may be left unset.
    pub(super) fn read_optional<T>(
        &mut self,
        key: &Key,
        parse: impl Fn(&Node) -> Result<T, Problem>,
    ) -> Setting<Option<T>> {
        let unset = |origin| Setting { value: None, origin };
        let Some(node) = self.node(key) else {
            return unset(Origin::Default);
        };
        match parse(node) {
            Ok(value) => Setting { value: Some(value), origin: Origin::Written(node.place.clone()) },
            Err(problem) => {
                self.mistake(key, &node.place, problem);
                unset(Origin::Mistaken)
            }
        }
    }

    /// A key whose value is an array of strings. Its items are checked one by one, so each mistake
    /// has its own place, and the right ones are returned; the whole is mistaken if any of them is.
    pub(super) fn read_list<T>(
        &mut self,
        key: &Key,
        parse: impl Fn(&Node) -> Result<T, Problem>,
    ) -> Setting<Vec<Item<T>>> {
        let empty = |origin| Setting { value: Vec::new(), origin };
        let Some(node) = self.node(key) else {
            self.report_missing(key);
            return empty(Origin::Default);
        };
        let Value::Array(nodes) = &node.value else {
            let (wanted, got) = ("an array of strings, like [\"a\", \"b\"]", node.value.type_name());
            self.mistake(key, &node.place, Problem::WrongType { wanted, got });
            return empty(Origin::Mistaken);
        };
        if nodes.is_empty() && matches!(key.default, Fallback::Required(_)) {
            self.mistake(key, &node.place, Problem::Empty);
        }
        let path = self.path_of(key);
        let mut items = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let (path, place) = (format!("{path}[{index}]"), node.place.clone());
            match parse(node) {
                Ok(value) => items.push(Item { value, place, path }),
                Err(problem) => self.mistakes.add(&place, path, problem),
            }
        }
        let origin = if items.len() == nodes.len() { Origin::Written(node.place.clone()) } else { Origin::Mistaken };
        Setting { value: items, origin }
    }

    /// A key whose value is a table of strings.
    pub(super) fn read_strings(
        &mut self,
        key: &Key,
        check_name: impl Fn(&str) -> Result<(), Problem>,
        parse: impl Fn(&Node) -> Result<String, Problem>,
    ) -> BTreeMap<String, String> {
        let mut strings = BTreeMap::new();
        let Some(node) = self.node(key) else {
            return strings;
        };
        let Value::Table(table) = &node.value else {
            let (wanted, got) = ("a table of strings, like { A = \"b\" }", node.value.type_name());
            self.mistake(key, &node.place, Problem::WrongType { wanted, got });
            return strings;
        };
        for field in &table.fields {
            let path = format!("{}.{}", self.path_of(key), segment(&field.name));
            if let Err(problem) = check_name(&field.name) {
                self.mistakes.add(&field.place, path.clone(), problem);
            }
            match parse(&field.node) {
                Ok(value) => drop(strings.insert(field.name.clone(), value)),
                Err(problem) => self.mistakes.add(&field.node.place, path, problem),
            }
        }
        strings
    }

    /// Reports `low` if it is more than `high`. A `low` that nobody wrote gives way instead.
    pub(super) fn keep_order<T: PartialOrd + Copy>(
        &mut self,
        (low_key, low): (&Key, &mut Setting<T>),
        (high_key, high): (&Key, &Setting<T>),
        show: impl Fn(T) -> String,
    ) {
        let Some(high) = high.valid().filter(|high| low.value > **high) else {
            return;
        };
        match &low.origin {
            Origin::Mistaken => {}
            Origin::Default => low.value = *high,
            Origin::Written(place) => {
                let problem = Problem::Exceeds { value: show(low.value), other: high_key.name, limit: show(*high) };
                self.mistake(low_key, place, problem);
            }
        }
    }

    fn report_missing(&mut self, key: &Key) {
        if let Fallback::Required(how) = key.default {
            let place = self.place.clone();
            self.mistake(key, &place, Problem::Missing(how));
        }
    }

    fn node(&self, key: &Key) -> Option<&'a Node> {
        self.table.get(key.name).map(|field| &field.node)
    }
}

fn default_node(key: &Key) -> Node {
    match key.default {
        Fallback::Value(text) | Fallback::Dependent(text) => tree::parse_value(text, &Place::Whole),
        Fallback::Unset(_) | Fallback::Required(_) => {
            unreachable!("`{}` has no default to read", key.name)
        }
    }
}
