//! Tests of the configuration as a user meets it: files that load, files that are refused, and in which words.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod changes;
mod confinement;
mod defaults;
mod hostile;
mod layers;
mod layout;
mod limits;
mod mistakes;
mod recovery;
mod scaling;
mod show;
mod sources;

use std::path::PathBuf;

use super::keys::SECTIONS;
use super::schema::{ConfigKey, Fallback, Section};
use super::{Config, ConfigErrors, ConfigSource, Overrides};

/// The shortest config that loads.
const MINIMAL: &str = "[kinds.k]\ncommand = [\"w\"]\n";

fn load_with(text: &str, env: &[(&str, &str)], overrides: &Overrides) -> Result<Config, ConfigErrors> {
    let source = ConfigSource::Text {
        name: "remuda.toml".to_owned(),
        text: text.to_owned(),
        base_dir: PathBuf::from("/etc/remuda"),
    };
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Config::load(source, env, overrides)
}

fn load(text: &str) -> Result<Config, ConfigErrors> {
    load_with(text, &[], &Overrides::default())
}

#[track_caller]
fn loaded(text: &str) -> Config {
    load(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The report of all mistakes in `text`.
#[track_caller]
fn refused(text: &str) -> String {
    load(text).expect_err("this must not load").to_string()
}

/// Expects exactly `lines`, and the count of them as the last line.
#[track_caller]
fn expect_mistakes(errors: &str, lines: &[&str]) {
    let count = match lines.len() {
        1 => "1 mistake in remuda.toml".to_owned(),
        count => format!("{count} mistakes in remuda.toml"),
    };
    assert_eq!(errors, format!("{}\n{count}", lines.join("\n")));
}

/// Writes `line` as the third of a kind that is right otherwise, and expects `mistakes`.
#[track_caller]
fn expect_in_kind(line: &str, mistakes: &[&str]) {
    expect_mistakes(&refused(&format!("{MINIMAL}{line}\n")), mistakes);
}

/// Writes `lines` from the second on, in `[section]`, and expects `mistakes`.
#[track_caller]
fn expect_in(section: &str, lines: &str, mistakes: &[&str]) {
    expect_mistakes(&refused(&format!("[{section}]\n{lines}\n{MINIMAL}")), mistakes);
}

/// A key and its section.
#[derive(Clone, Copy)]
struct KeyIn {
    section: &'static Section,
    key: &'static ConfigKey,
}

fn all_keys() -> impl Iterator<Item = KeyIn> {
    SECTIONS.into_iter().flat_map(|section| section.keys().map(move |key| KeyIn { section, key }))
}

impl KeyIn {
    /// The section as it is in a path; of a named one that of `k`.
    fn section(self) -> String {
        self.section.header.replace("NAME", "k")
    }

    fn path(self) -> String {
        format!("{}.{}", self.section(), self.key.name)
    }
}

/// A config that sets `key` to `value`, and is right otherwise.
fn with_key(key: KeyIn, value: &str) -> String {
    let (section, name) = (key.section(), key.key.name);
    let before = match (section.as_str(), key.key.fallback) {
        ("kinds.k", _) if name == "command" => return format!("[kinds.k]\ncommand = {value}\n"),
        ("kinds.k", _) => return format!("{MINIMAL}{name} = {value}\n"),
        (_, Fallback::Dependent(_)) => "strategy = \"retry\"\n",
        // TLS files are refused without the others that they need.
        ("server", _) if name == "tls_cert" => "tls_key = \"key\"\n",
        ("server", _) if name == "tls_key" => "tls_cert = \"cert\"\n",
        ("server", _) if name == "tls_client_ca" => "tls_cert = \"cert\"\ntls_key = \"key\"\n",
        _ => "",
    };
    format!("[{section}]\n{before}{name} = {value}\n{MINIMAL}")
}
