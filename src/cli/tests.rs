//! What people and scripts see: arguments, exit codes, lines, tables.

mod arguments;
mod dead;
mod events;
mod exits;
mod operate;
mod tables;

/// As a file or a pipe gets it.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
