//! TOML text as a tree in which every key and value knows its place.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Mistakes, Place};
use super::problem::Problem;

/// A value and where it was written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A TOML value. No key takes a date, so those are only known by name.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    /// `None` if it does not fit 64 bits.
    Integer(Option<i64>),
    Float(f64),
    Boolean(bool),
    Other(&'static str),
    Array(Vec<Node>),
    Table(Table),
}

impl Value {
    /// The type, as a mistake names it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "a number",
            Self::Float(_) => "a fraction",
            Self::Boolean(_) => "a boolean",
            Self::Other(name) => name,
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// A table, in the order in which it was written.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) fields: Vec<Field>,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// The key's place; the value has its own.
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The table called `name`, if there is one.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        match &self.get(name)?.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Sets `name` to `node`, whatever it was before.
    pub(super) fn set(&mut self, name: &str, node: Node) {
        match self.fields.iter_mut().find(|field| field.name == name) {
            Some(field) => field.node = node,
            None => self.fields.push(Field { name: name.to_owned(), place: node.place.clone(), node }),
        }
    }

    /// The table called `name`, made if there is nothing of that name; `None` if that is no table.
    pub(super) fn table_mut(&mut self, name: &str, place: &Place) -> Option<&mut Table> {
        if self.get(name).is_none() {
            let place = place.clone();
            let value = Value::Table(Table::default());
            self.set(name, Node { place, value });
        }
        let field = self.fields.iter_mut().find(|field| field.name == name)?;
        match &mut field.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

/// Parses a whole document; with a syntax error in it there is no telling what the rest means.
pub(super) fn parse_document(text: &str, mistakes: &mut Mistakes) -> Option<Table> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = error.span().map_or(Place::Whole, |span| lines.place(span.start));
        mistakes.add(&place, "", Problem::Syntax(error.message().to_owned()));
    }
    errors.is_empty().then(|| table(document.into_inner(), &|offset| lines.place(offset)))
}

/// Reads `text` as a TOML value if it is one, else as a plain string: nobody wants to quote twice
/// in a shell.
pub(super) fn parse_value(text: &str, place: &Place) -> Node {
    match DeValue::parse(text) {
        Ok(value) => node(value, &|_| place.clone()),
        Err(_) => Node { place: place.clone(), value: Value::Text(text.to_owned()) },
    }
}

fn node(value: Spanned<DeValue<'_>>, place_of: &dyn Fn(usize) -> Place) -> Node {
    let place = place_of(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("a fraction"), Value::Float),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(items) => Value::Array(items.into_iter().map(|item| node(item, place_of)).collect()),
        DeValue::Table(fields) => Value::Table(table(fields, place_of)),
    };
    Node { place, value }
}

fn table(fields: DeTable<'_>, place_of: &dyn Fn(usize) -> Place) -> Table {
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by_key(|(name, _)| name.span().start);
    let field = |(name, value): (Spanned<_>, _)| Field {
        place: place_of(name.span().start),
        name: std::borrow::Cow::into_owned(name.into_inner()),
        node: node(value, place_of),
    };
    Table { fields: fields.into_iter().map(field).collect() }
}

/// Turns byte offsets into lines and columns.
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(offset, _)| offset + 1);
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        Place::At { line, column: before.chars().count() + 1 }
    }
}
