//! Mistakes about names that the configuration does not have, each with the name that was probably meant.

use super::keys::SECTIONS;
use super::schema::Section;
use super::text::closest;

/// The mistake about a key that `section` does not have; `None` if it has it.
pub(super) fn unknown_key(section: &Section, name: &str) -> Option<String> {
    let known: Vec<_> = section.keys().map(|key| key.name).chain(inner_tables(section)).collect();
    if known.contains(&name) {
        return None;
    }
    if section.unsupported.contains(&name) {
        return Some(format!("`{name}` is not supported by this version of remuda; remove it"));
    }
    Some(misplaced_key(name).unwrap_or_else(|| format!("unknown key; {}", hint(name, &known, &known))))
}

/// The tables inside `section` that lead to other sections.
fn inner_tables(section: &Section) -> impl Iterator<Item = &'static str> {
    SECTIONS.into_iter().filter_map(|other| {
        let mut path = other.path();
        path.next().filter(|outer| *outer == section.header).and(path.next())
    })
}

/// The mistake about a section that does not exist; `None` if it does.
pub(super) fn unknown_section(name: &str) -> Option<String> {
    let roots = SECTIONS.map(Section::root);
    if roots.contains(&name) {
        return None;
    }
    let headers = SECTIONS.map(|section| section.header);
    Some(misplaced_key(name).unwrap_or_else(|| format!("unknown section; {}", hint(name, &roots, &headers))))
}

/// The mistake about a key that exists, but in other sections.
fn misplaced_key(name: &str) -> Option<String> {
    let has_key = |section: &&Section| section.keys().any(|key| key.name == name);
    let homes: Vec<_> = SECTIONS.into_iter().filter(has_key).map(|section| section.header).collect();
    (!homes.is_empty()).then(|| format!("unknown key; it belongs in [{}]", homes.join("] or [")))
}

fn hint(name: &str, candidates: &[&str], known: &[&str]) -> String {
    match closest(name, candidates.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}
