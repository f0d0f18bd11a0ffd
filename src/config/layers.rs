//! What overrides the file: environment variables first, then flags.

use super::error::{Mistakes, Place};
use super::keys;
use super::problem::{Hint, Problem};
use super::section::Section;
use super::suggest::{closest, segment};
use super::tree::{self, Node, Table, Value};

/// Variables that start so are ours. One underscore less is what workers get, like `REMUDA_SOCKET`.
const PREFIX: &str = "REMUDA__";

/// A key that a variable can set.
struct Target {
    /// As `REMUDA__KINDS__EMBED__MIN`.
    variable: String,
    section: Section,
    /// Of a section that there is once for each NAME, which one.
    name: Option<String>,
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

/// Every key that a variable can set; those of kinds depend on which kinds there are, and those of
/// types likewise. Unsupported ones are among them, so that they are reported as that.
fn targets(tree: &Table) -> Vec<Target> {
    let mut targets = Vec::new();
    for section in Section::ALL {
        let names = || keys::of(section).map(|key| key.name);
        for key in names().chain(keys::unsupported(section)) {
            if section.named_after().is_some() {
                targets.extend(names_in(tree, section).map(|name| Target::new(section, Some(name), key)));
            } else {
                targets.push(Target::new(section, None, key));
            }
        }
    }
    targets
}

/// The NAMEs for which there is such a section.
fn names_in(tree: &Table, section: Section) -> impl Iterator<Item = &str> {
    let table = section.tables().iter().try_fold(tree, |table, name| table.table(name));
    table.into_iter().flat_map(|table| &table.fields).map(|field| field.name.as_str())
}

impl Target {
    fn new(section: Section, name: Option<&str>, key: &'static str) -> Self {
        let parts = section.tables().iter().copied().chain(name).chain([key]);
        let variable = format!("{PREFIX}{}", parts.collect::<Vec<_>>().join("__"));
        // Shells take no other characters in a variable's name.
        let variable = variable.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
        Self { variable, section, name: name.map(str::to_owned), key }
    }

    fn shown_name(&self) -> String {
        self.name.as_deref().map(segment).unwrap_or_default()
    }
}

fn find<'a>(targets: &'a [Target], name: &str) -> Result<&'a Target, Problem> {
    let upper = name.to_ascii_uppercase();
    let mut found = targets.iter().filter(|target| target.variable == upper);
    match (found.next(), found.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => Err(unknown(targets, &upper)),
        (Some(first), Some(second)) => Err(Problem::AmbiguousVariable {
            what: first.section.named_after().unwrap_or_default(),
            first: first.shown_name(),
            second: second.shown_name(),
        }),
    }
}

fn unknown(targets: &[Target], upper: &str) -> Problem {
    let known = targets.iter().map(|target| target.variable.as_str());
    Problem::UnknownVariable(match closest(upper, known) {
        Some(meant) => Hint::DidYouMean(meant.to_owned()),
        None => Hint::Form(
            "REMUDA__SECTION__KEY, or REMUDA__KINDS__NAME__KEY for a kind that the file defines, or \
             REMUDA__RECOVERY__TYPES__NAME__KEY for a type that has a section there",
        ),
    })
}

/// Where the file has something else than a section, that is the mistake to report, and the
/// variable has no place.
fn set(tree: &mut Table, target: &Target, node: Node) {
    let place = node.place.clone();
    let mut steps = target.section.tables().iter().copied().chain(target.name.as_deref());
    if let Some(table) = steps.try_fold(tree, |table, name| table.table_mut(name, &place)) {
        table.set(target.key, node);
    }
}
