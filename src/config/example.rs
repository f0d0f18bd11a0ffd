//! The commented example file: every key with its default and the reason for it, two kinds, and a type.

use super::keys::{self, Fallback, Key};
use super::page::Page;
use super::section::Section;

const INTRODUCTION: &str = "Remuda's configuration: every key, what it does, its default, and why.\n\
    A key behind a # has its default, or an example where there is none; remove the # to set it.\n\
    Durations look like \"5s\", \"1m 30s\" or \"200ms\", sizes like \"512MiB\" or \"64KB\".\n\
    Variables count more than this file: REMUDA__SERVER__LISTEN, REMUDA__KINDS__EMBED__MAX \
    (what is no letter or digit in a name becomes _). The flags --listen and --http count more than both.";

const EMBED_RECOVERY: &[(&str, &str)] = &[("strategy", r#""retry""#), ("attempts", "3")];

const EMBED: &[(&str, &str)] = &[("command", r#"["python3", "embed_worker.py"]"#), ("types", r#"["embed"]"#)];

const AGENT: &[(&str, &str)] = &[
    ("command", r#"["node", "agent.js"]"#),
    ("types", r#"["chat"]"#),
    ("max", "8"),
    ("keyed", "true"),
    ("pass_env", r#"["AGENT_API_KEY"]"#),
    ("timeout", r#""30m""#),
];

/// The text of the example file.
#[must_use]
pub fn example() -> String {
    let mut page = Page::default();
    page.comment(INTRODUCTION);
    page.comment(keys::LEGEND);
    for section in Section::ALL {
        let (header, set) = match section {
            Section::RecoveryType => ("recovery.types.embed", EMBED_RECOVERY),
            Section::Kind => ("kinds.embed", EMBED),
            other => (other.header(), &[][..]),
        };
        page.section(section.doc(), header);
        for key in keys::of(section) {
            let set = set.iter().find(|(name, _)| *name == key.name);
            entry(&mut page, key, set.map(|(_, value)| *value));
        }
    }
    page.section("A second kind, with only what differs from the defaults.", "kinds.agent");
    for (name, value) in AGENT {
        page.set(name, value);
    }
    page.into_text()
}

fn entry(page: &mut Page, key: &Key, set: Option<&str>) {
    page.line("");
    page.comment(&key.explanation());
    match (set, key.default) {
        (Some(value), _) => page.set(key.name, value),
        (None, Fallback::Value(text) | Fallback::Dependent(text) | Fallback::Unset(text)) => page.unset(key.name, text),
        (None, Fallback::Required(_)) => {}
    }
}
