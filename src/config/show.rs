//! Writes the configuration in effect, and the commented example file.

use super::keys::kind::KindConfig;
use super::keys::{self, SECTIONS};
use super::model::Config;
use super::schema::{ConfigKey, Effect, Fallback, KeyValue, Section};
use super::text::toml_key;

const COMMENT_MAX_CHARS: usize = 100;

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
    page.text
}

/// Every section of `config` with its keys.
pub(super) fn written(config: &Config) -> Vec<WrittenSection> {
    let one = |section: &'static Section, entries: Vec<KeyValue>| {
        let header = section.header.to_owned();
        WrittenSection { section, header, entries }
    };
    let mut sections = vec![
        one(&keys::SERVER, config.server.entries(&keys::SERVER)),
        one(&keys::POOL, config.pool.entries(&keys::POOL)),
        one(&keys::QUEUE, config.queue.entries(&keys::QUEUE)),
        one(&keys::RECOVERY, config.recovery.default.entries(&keys::RECOVERY)),
    ];
    sections.extend(config.recovery.types.iter().map(|(name, recovery)| WrittenSection {
        section: &keys::RECOVERY_TYPE,
        header: format!("recovery.types.{}", toml_key(name)),
        entries: recovery.entries(&keys::RECOVERY_TYPE),
    }));
    sections.push(one(&keys::RETRY, config.retry.entries(&keys::RETRY)));
    sections.push(one(&keys::DEAD_LETTERS, config.dead_letters.entries(&keys::DEAD_LETTERS)));
    sections.push(one(&keys::RESULTS, config.results.entries(&keys::RESULTS)));
    sections.extend(config.kinds.iter().map(|kind| WrittenSection {
        section: &keys::KIND,
        header: format!("kinds.{}", kind.name),
        entries: kind_entries(kind),
    }));
    sections
}

/// The keys of one kind, with those of its confinement.
pub(super) fn kind_entries(kind: &KindConfig) -> Vec<KeyValue> {
    [kind.entries(&keys::KIND), kind.confinement.entries(&keys::KIND)].concat()
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
    page.text
}

/// A TOML document in the making.
#[derive(Default)]
struct TomlPage {
    text: String,
}

impl TomlPage {
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// A section's header, after an empty line and its documentation.
    fn section(&mut self, doc: &str, header: &str) {
        self.line("");
        self.comment(doc);
        self.line(&format!("[{header}]"));
    }

    fn set(&mut self, name: &str, value: &str) {
        self.line(&format!("{name} = {value}"));
    }

    /// A key behind a #: not set, but ready to be.
    fn unset(&mut self, name: &str, value: &str) {
        self.line(&format!("#{name} = {value}"));
    }

    /// Each line of `text` is a paragraph.
    fn comment(&mut self, text: &str) {
        for paragraph in text.lines() {
            let mut line = "#".to_owned();
            for word in paragraph.split(' ') {
                if line.chars().count() + 1 + word.chars().count() > COMMENT_MAX_CHARS {
                    self.line(&line);
                    line.truncate(1);
                }
                line.push(' ');
                line += word;
            }
            self.line(&line);
        }
    }
}
