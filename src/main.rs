//! The `remuda` command.

fn main() {}
