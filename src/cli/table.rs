//! Tables and lists of properties for people.

use std::fmt::Write;

use anstyle::Style;

use super::output::{BOLD, printable};

/// Space between two columns.
const COLUMN_GAP: &str = "  ";

/// One cell of a table, on one line.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [&'static str],
    /// One character per column: `<` for left, `>` for right.
    alignment: &'static str,
    rows: Vec<Vec<Cell>>,
}

impl<T: ToString> From<T> for Cell {
    fn from(value: T) -> Self {
        let text = value.to_string();
        let text = if text.is_empty() { "-".to_owned() } else { printable(&text).replace(['\n', '\t'], " ") };
        Self { text, style: Style::new() }
    }
}

impl Cell {
    pub(super) fn styled(value: impl ToString, style: Style) -> Self {
        Self { style, ..Self::from(value) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl Table {
    /// `alignment` has one character per column, as in a format string: `<` for left, `>` for right.
    pub(super) fn new(columns: &'static [&'static str], alignment: &'static str) -> Self {
        debug_assert_eq!(columns.len(), alignment.len());
        Self { columns, alignment, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The head and the rows; every line ends with a newline, and none with a space.
    pub(super) fn render(&self) -> String {
        let head: Vec<_> = self.columns.iter().map(|name| Cell::styled(name, BOLD)).collect();
        let widths: Vec<_> = (0..head.len())
            .map(|column| self.rows.iter().chain([&head]).map(|row| row[column].width()).max().unwrap_or_default())
            .collect();
        let mut text = String::new();
        for row in [&head].into_iter().chain(&self.rows) {
            self.render_row(&mut text, row, &widths);
        }
        text
    }

    fn render_row(&self, text: &mut String, row: &[Cell], widths: &[usize]) {
        let last = row.len() - 1;
        for (column, (cell, alignment)) in row.iter().zip(self.alignment.chars()).enumerate() {
            let space = widths[column] - cell.width();
            let (before, after) = match alignment {
                '>' => (space, 0),
                _ if column == last => (0, 0),
                _ => (0, space),
            };
            let style = cell.style;
            let _ = write!(text, "{:before$}{style}{}{style:#}{:after$}", "", cell.text, "");
            text.push_str(if column == last { "\n" } else { COLUMN_GAP });
        }
    }
}

/// Properties of one thing, a line each, without the empty ones.
pub(super) fn properties(entries: &[(&str, String)]) -> String {
    let present = || entries.iter().filter(|(_, value)| !value.is_empty());
    let width = present().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in present() {
        let value = printable(value);
        let _ = writeln!(text, "{BOLD}{name:width$}{BOLD:#}{COLUMN_GAP}{value}");
    }
    text
}
