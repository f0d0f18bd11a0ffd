//! What overrides the file: environment variables first, then flags.

use super::error::{Mistakes, Place};
use super::keys::{self, Section};
use super::problem::{Hint, Problem};
use super::suggest::closest;
use super::tree::{self, Node, Table, Value};

/// Variables that start so are ours. One underscore less is what workers get, like `REMUDA_SOCKET`.
const PREFIX: &str = "REMUDA__";

/// A key that a variable can set.
struct Target {
    /// As `REMUDA__KINDS__EMBED__MIN`.
    variable: String,
    /// For a key of a kind, the kind.
    kind: Option<String>,
    section: Section,
    key: &'static str,
}

/// Puts the variables over `tree` and reports those that set nothing.
pub(super) fn apply_variables(variables: &[(String, String)], tree: &mut Table, mistakes: &mut Mistakes) {
    let targets = targets(tree);
    let ours = variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
    for (name, text) in ours {
        let place = Place::Variable(name.clone());
        match find(&targets, name) {
            Ok(target) => set(tree, target, tree::parse_value(text, &place)),
            Err(problem) => mistakes.add(&place, "", problem),
        }
    }
}

/// Puts a flag's text over `server.key`.
pub(super) fn apply_flag(flag: &'static str, key: &keys::Key, text: &str, tree: &mut Table) {
    let place = Place::Flag(flag);
    let value = Value::Text(text.to_owned());
    if let Some(table) = tree.table_mut(key.section.table(), &place) {
        table.set(key.name, Node { place, value });
    }
}

/// Every key that a variable can set; those of kinds depend on which kinds there are. Unsupported
/// ones are among them, so that they are reported as that.
fn targets(tree: &Table) -> Vec<Target> {
    let mut targets = Vec::new();
    for section in Section::ALL {
        let names = || keys::of(section).map(|key| key.name);
        for key in names().chain(keys::unsupported(section)) {
            if section == Section::Kind {
                targets.extend(kind_names(tree).map(|kind| Target::new(section, Some(kind), key)));
            } else {
                targets.push(Target::new(section, None, key));
            }
        }
    }
    targets
}

fn kind_names(tree: &Table) -> impl Iterator<Item = &str> {
    let kinds = match tree.get("kinds").map(|field| &field.node.value) {
        Some(Value::Table(kinds)) => kinds.fields.as_slice(),
        _ => &[],
    };
    kinds.iter().map(|field| field.name.as_str())
}

impl Target {
    fn new(section: Section, kind: Option<&str>, key: &'static str) -> Self {
        let parts = [Some(section.table()), kind, Some(key)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let variable = format!("{PREFIX}{}", parts.join("__"));
        Self { variable: variable.replace('-', "_").to_ascii_uppercase(), kind: kind.map(str::to_owned), section, key }
    }
}

fn find<'a>(targets: &'a [Target], name: &str) -> Result<&'a Target, Problem> {
    let upper = name.to_ascii_uppercase();
    let mut found = targets.iter().filter(|target| target.variable == upper);
    match (found.next(), found.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => Err(unknown(targets, &upper)),
        (Some(first), Some(second)) => Err(Problem::AmbiguousVariable {
            first: first.kind.clone().unwrap_or_default(),
            second: second.kind.clone().unwrap_or_default(),
        }),
    }
}

fn unknown(targets: &[Target], upper: &str) -> Problem {
    let section = upper[PREFIX.len()..].split("__").next().unwrap_or_default();
    let section = section.to_ascii_lowercase();
    if keys::UNSUPPORTED_SECTIONS.contains(&section.as_str()) {
        return Problem::NotSupported(section);
    }
    let known = targets.iter().map(|target| target.variable.as_str());
    Problem::UnknownVariable(match closest(upper, known) {
        Some(meant) => Hint::DidYouMean(meant.to_owned()),
        None => Hint::Form("REMUDA__SECTION__KEY, or REMUDA__KINDS__NAME__KEY for a kind that the file defines"),
    })
}

/// Where the file has something else than a section, that is the mistake to report, and the
/// variable has no place.
fn set(tree: &mut Table, target: &Target, node: Node) {
    let place = node.place.clone();
    let section = tree.table_mut(target.section.table(), &place);
    let table = match &target.kind {
        None => section,
        Some(kind) => section.and_then(|kinds| kinds.table_mut(kind, &place)),
    };
    if let Some(table) = table {
        table.set(target.key, node);
    }
}
