//! A changed configuration comes into force while queries run.

pub(crate) mod config;
mod kinds;
mod rules;
