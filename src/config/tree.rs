//! TOML text as a tree in which every key and value knows its location.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Location, Mistakes};

/// A value and where it was written.
#[derive(Debug)]
pub(super) struct TomlNode {
    pub(super) location: Location,
    pub(super) value: TomlValue,
}

/// A TOML value. No key takes a date, so those are only known by name.
#[derive(Debug)]
pub(super) enum TomlValue {
    Text(String),
    /// `None` if it does not fit 64 bits.
    Integer(Option<i64>),
    Float(f64),
    Boolean(bool),
    Other(&'static str),
    Array(Vec<TomlNode>),
    Table(TomlTable),
}

impl TomlNode {
    /// The type, as a mistake names it.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.value {
            TomlValue::Text(_) => "a string",
            TomlValue::Integer(_) => "a number",
            TomlValue::Float(_) => "a fraction",
            TomlValue::Boolean(_) => "a boolean",
            TomlValue::Other(name) => name,
            TomlValue::Array(_) => "an array",
            TomlValue::Table(_) => "a table",
        }
    }

    /// The items, if it is an array.
    pub(super) fn items(&self) -> &[TomlNode] {
        if let TomlValue::Array(items) = &self.value { items } else { &[] }
    }

    /// The text, if it is a string.
    pub(super) fn text(&self) -> Option<&str> {
        if let TomlValue::Text(text) = &self.value { Some(text) } else { None }
    }

    pub(super) fn table(&self) -> Option<&TomlTable> {
        if let TomlValue::Table(table) = &self.value { Some(table) } else { None }
    }
}

/// A table, in the order in which it was written.
#[derive(Debug, Default)]
pub(super) struct TomlTable {
    pub(super) fields: Vec<TomlField>,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct TomlField {
    pub(super) name: String,
    /// The key's location; the value has its own.
    pub(super) location: Location,
    pub(super) node: TomlNode,
}

impl TomlTable {
    pub(super) fn get(&self, name: &str) -> Option<&TomlField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The table called `name`, if there is one.
    pub(super) fn table(&self, name: &str) -> Option<&TomlTable> {
        self.get(name)?.node.table()
    }

    /// Sets `name` to `node`, in place of any value that it had.
    pub(super) fn set(&mut self, name: &str, node: TomlNode) {
        match self.fields.iter_mut().find(|field| field.name == name) {
            Some(field) => field.node = node,
            None => self.fields.push(TomlField { name: name.to_owned(), location: node.location.clone(), node }),
        }
    }

    /// The table called `name`, made if there is nothing of that name; `None` if that is no table.
    pub(super) fn table_mut(&mut self, name: &str, location: &Location) -> Option<&mut TomlTable> {
        if self.get(name).is_none() {
            self.set(name, TomlNode { location: location.clone(), value: TomlValue::Table(TomlTable::default()) });
        }
        let field = self.fields.iter_mut().find(|field| field.name == name)?;
        if let TomlValue::Table(table) = &mut field.node.value { Some(table) } else { None }
    }
}

/// Parses a whole document; `None` if it has a syntax error, after which the meaning of the rest is uncertain.
pub(super) fn parse_document(text: &str, mistakes: &Mistakes) -> Option<TomlTable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = LineIndex::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let location = error.span().map_or(Location::File, |span| lines.location(span.start));
        mistakes.add(&location, "", format!("not valid TOML: {}", error.message()));
    }
    errors.is_empty().then(|| table(document.into_inner(), &|offset| lines.location(offset)))
}

/// Reads `text` as a TOML value if it is one, else as a plain string: nobody wants to quote twice
/// in a shell.
pub(super) fn parse_value(text: &str, location: &Location) -> TomlNode {
    match DeValue::parse(text) {
        Ok(value) => node(value, &|_| location.clone()),
        Err(_) => TomlNode { location: location.clone(), value: TomlValue::Text(text.to_owned()) },
    }
}

fn node(value: Spanned<DeValue<'_>>, locate: &dyn Fn(usize) -> Location) -> TomlNode {
    let location = locate(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => TomlValue::Text(text.into_owned()),
        DeValue::Integer(number) => TomlValue::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => number.as_str().parse().map_or(TomlValue::Other("a fraction"), TomlValue::Float),
        DeValue::Boolean(value) => TomlValue::Boolean(value),
        DeValue::Datetime(_) => TomlValue::Other("a date or time"),
        DeValue::Array(items) => TomlValue::Array(items.into_iter().map(|item| node(item, locate)).collect()),
        DeValue::Table(fields) => TomlValue::Table(table(fields, locate)),
    };
    TomlNode { location, value }
}

fn table(fields: DeTable<'_>, locate: &dyn Fn(usize) -> Location) -> TomlTable {
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by_key(|(name, _)| name.span().start);
    let field = |(name, value): (Spanned<_>, _)| TomlField {
        location: locate(name.span().start),
        name: std::borrow::Cow::into_owned(name.into_inner()),
        node: node(value, locate),
    };
    TomlTable { fields: fields.into_iter().map(field).collect() }
}

/// Turns byte offsets into lines and columns.
pub(super) struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(offset, _)| offset + 1);
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    pub(super) fn location(&self, offset: usize) -> Location {
        let line = self.starts.partition_point(|start| *start <= offset);
        let before = self.text.get(self.starts[line - 1]..offset).unwrap_or_default();
        Location::At { line, column: before.chars().count() + 1 }
    }
}
