//! Tests of arguments, exit codes, lines and tables.

mod arguments;
mod dead;
mod events;
mod exits;
mod operate;
mod tables;

/// The text without colours.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
