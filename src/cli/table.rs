//! Tables and lists of properties for people.

use std::fmt::Write;

use anstyle::Style;

use super::output::{BOLD, printable};

/// Between two columns.
const GAP: &str = "  ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// What stands in one place of a table, on one line.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [(&'static str, Align)],
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
    pub(super) fn new(columns: &'static [(&'static str, Align)]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn row<const COLUMNS: usize>(&mut self, cells: [Cell; COLUMNS]) {
        debug_assert_eq!(COLUMNS, self.columns.len());
        self.rows.push(cells.into());
    }

    /// The head and the rows; every line ends with a newline, and none with a space.
    pub(super) fn render(&self) -> String {
        let head: Vec<_> = self.columns.iter().map(|(name, _)| Cell::styled(name, BOLD)).collect();
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
        for (column, cell) in row.iter().enumerate() {
            let align = self.columns[column].1;
            let space = widths[column] - cell.width();
            let (before, after) = match align {
                Align::Right => (space, 0),
                Align::Left if column == last => (0, 0),
                Align::Left => (0, space),
            };
            let style = cell.style;
            let _ = write!(text, "{:before$}{style}{}{style:#}{:after$}", "", cell.text, "");
            text.push_str(if column == last { "\n" } else { GAP });
        }
    }
}

/// Properties of one thing, a line each; those that are empty are left out.
pub(super) fn properties(entries: &[(&str, String)]) -> String {
    let told = || entries.iter().filter(|(_, value)| !value.is_empty());
    let width = told().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in told() {
        let value = printable(value);
        let _ = writeln!(text, "{BOLD}{name:width$}{BOLD:#}{GAP}{value}");
    }
    text
}
