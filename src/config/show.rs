//! Writes the configuration in effect, and the commented example file.

use super::keys::{self, SECTIONS, Section};
use super::model::Config;
use super::page::TomlPage;
use super::schema::{ConfigKey, Effect, Fallback, KeyValue};
use super::text::toml_key;

/// Explanation of the marks behind the documentation of a key.
const LEGEND: &str = "A reload applies a changed value at once, unless the key is marked: (rolls), the kind's workers \
    are replaced, one after the other; (restart), the server must be restarted.";

const INTRODUCTION: &str = "Remuda's configuration: every key, its meaning, its default, and the reason for it.\n\
    A key behind a # has its default, or an example if there is none; remove the # to set it.\n\
    Durations look like \"5s\", \"1m 30s\" or \"200ms\", sizes like \"512MiB\" or \"64KB\".\n\
    Variables override this file: REMUDA__SERVER__LISTEN, REMUDA__KINDS__EMBED__MAX (other characters than letters \
    and digits in a name become _). The flags --listen and --http override both.";

/// Keys that the example file sets, with the NAME of their section.
const EXAMPLE_TYPE: (&str, &[(&str, &str)]) = ("embed", &[("strategy", r#""retry""#), ("attempts", "3")]);
const EXAMPLE_KIND: (&str, &[(&str, &str)]) =
    ("embed", &[("command", r#"["python3", "embed_worker.py"]"#), ("types", r#"["embed"]"#)]);

const EXAMPLE_SECOND_KIND: &[(&str, &str)] = &[
    ("command", r#"["node", "agent.js"]"#),
    ("types", r#"["chat"]"#),
    ("max", "8"),
    ("keyed", "true"),
    ("pass_env", r#"["AGENT_API_KEY"]"#),
    ("timeout", r#""30m""#),
];

/// A written section: its header and its keys.
pub(super) struct WrittenSection {
    pub(super) section: &'static Section,
    pub(super) header: String,
    pub(super) entries: Vec<KeyValue>,
}

/// The configuration in effect, as TOML that loads to the same again, each key with its documentation.
/// It holds the kinds' `env` in full, including secrets.
#[must_use]
pub fn show(config: &Config) -> String {
    let mut page = TomlPage::default();
    page.comment("The configuration in effect, with the kinds' variables in full.");
    page.comment(LEGEND);
    let mut explained: Option<&Section> = None;
    for WrittenSection { section, header, entries } in written(config) {
        // Further sections of the same keys go without their documentation.
        let is_first = explained.is_none_or(|explained| explained.header != section.header);
        explained = Some(section);
        page.section(if is_first { section.doc } else { "" }, &header);
        for (key, value) in entries {
            if is_first {
                explain(&mut page, key);
            }
            write(&mut page, key, value);
        }
    }
    page.into_text()
}

/// Every section of `config` with its keys.
pub(super) fn written(config: &Config) -> Vec<WrittenSection> {
    let one = |section: &'static Section, entries| {
        let header = section.header.to_owned();
        WrittenSection { section, header, entries }
    };
    let mut sections = vec![
        one(&keys::SERVER, config.server.entries()),
        one(&keys::POOL, config.pool.entries()),
        one(&keys::QUEUE, config.queue.entries()),
        one(&keys::RECOVERY, config.recovery.default.default_entries()),
    ];
    sections.extend(config.recovery.types.iter().map(|(name, recovery)| WrittenSection {
        section: &keys::RECOVERY_TYPE,
        header: format!("recovery.types.{}", toml_key(name)),
        entries: recovery.type_entries(),
    }));
    sections.push(one(&keys::RETRY, config.retry.entries()));
    sections.push(one(&keys::DEAD_LETTERS, config.dead_letters.entries()));
    sections.push(one(&keys::RESULTS, config.results.entries()));
    sections.extend(config.kinds.iter().map(|kind| WrittenSection {
        section: &keys::KIND,
        header: format!("kinds.{}", kind.name),
        entries: [kind.entries(), kind.confinement.entries()].concat(),
    }));
    sections
}

/// The documentation of a key, with the mark of its effect in a reload.
fn explain(page: &mut TomlPage, key: &ConfigKey) {
    let mark = match key.effect {
        Effect::Rolls => " (rolls)",
        Effect::NeedsRestart => " (restart)",
        Effect::Applied | Effect::KindAdded | Effect::KindRemoved => "",
    };
    page.line("");
    page.comment(&format!("{}{mark}", key.doc()));
}

/// A key with its value, and with its default if that is another one.
fn write(page: &mut TomlPage, key: &ConfigKey, value: Option<String>) {
    match (value, key.fallback) {
        (Some(value), Fallback::Default(default) | Fallback::Dependent(default)) if value != default => {
            page.set(key.name, &format!("{value}  # default: {default}"));
        }
        (Some(value), _) => page.set(key.name, &value),
        (
            None,
            Fallback::Required(text, _) | Fallback::Unset(text) | Fallback::Default(text) | Fallback::Dependent(text),
        ) => page.unset(key.name, text),
    }
}

/// The commented example file: every key with its default, two kinds, and a type.
#[must_use]
pub fn example() -> String {
    let mut page = TomlPage::default();
    page.comment(INTRODUCTION);
    page.comment(LEGEND);
    for section in SECTIONS {
        let (name, set) = match section.header {
            header if header == keys::RECOVERY_TYPE.header => EXAMPLE_TYPE,
            header if header == keys::KIND.header => EXAMPLE_KIND,
            _ => ("", &[][..]),
        };
        page.section(section.doc, &section.header.replace("NAME", name));
        for key in section.keys() {
            explain(&mut page, key);
            match set.iter().find(|(name, _)| *name == key.name) {
                Some((name, value)) => page.set(name, value),
                None => write(&mut page, key, None),
            }
        }
    }
    page.section("A second kind, with only the keys that differ from their defaults.", "kinds.agent");
    for (name, value) in EXAMPLE_SECOND_KIND {
        page.set(name, value);
    }
    page.into_text()
}
