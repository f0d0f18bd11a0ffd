//! The command line: its output and its exit codes.

mod admin;
mod bench;
mod commands;
mod dead_letters;
