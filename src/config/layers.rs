//! Layers above the file: environment variables first, then flags.

use super::error::{Location, Mistakes};
use super::keys::{SECTIONS, SERVER};
use super::schema::Section;
use super::text::{closest, segment};
use super::tree::{TomlNode, TomlTable, TomlValue, parse_value};

/// Prefix of the variables that set keys. One underscore less is for workers, like `REMUDA_SOCKET`.
const PREFIX: &str = "REMUDA__";

/// A key that a variable can set.
struct VariableTarget {
    /// As `REMUDA__KINDS__EMBED__MIN`.
    variable: String,
    section: &'static Section,
    /// The NAME, if the section has one.
    name: Option<String>,
    key: &'static str,
}

/// Puts the variables over `tree` and reports those that set nothing.
pub(super) fn apply_variables(variables: &[(String, String)], tree: &mut TomlTable, mistakes: &Mistakes) {
    let targets = targets(tree);
    for (name, text) in variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let location = Location::Variable(name.clone());
        match find(&targets, name) {
            Ok(target) => target.set(tree, parse_value(text, &location)),
            Err(problem) => mistakes.add(&location, "", problem),
        }
    }
}

/// Puts a flag's text over a key of `[server]`.
pub(super) fn apply_flag(flag: &'static str, key: &str, text: &str, tree: &mut TomlTable) {
    let location = Location::Flag(flag);
    if let Some(table) = tree.table_mut(SERVER.header, &location) {
        table.set(key, TomlNode { location, value: TomlValue::Text(text.to_owned()) });
    }
}

/// Every key that a variable can set, those of named sections for each NAME in the file. Unsupported keys are among
/// them, so that they are reported as such.
fn targets(tree: &TomlTable) -> Vec<VariableTarget> {
    let mut targets = Vec::new();
    for section in SECTIONS {
        for key in section.keys().map(|key| key.name).chain(section.unsupported.iter().copied()) {
            if section.is_named() {
                targets.extend(names_in(tree, section).map(|name| VariableTarget::new(section, Some(name), key)));
            } else {
                targets.push(VariableTarget::new(section, None, key));
            }
        }
    }
    targets
}

/// The NAMEs of the sections in the file.
fn names_in<'a>(tree: &'a TomlTable, section: &Section) -> impl Iterator<Item = &'a str> {
    let table = section.path().try_fold(tree, |table, name| table.table(name));
    table.into_iter().flat_map(|table| &table.fields).map(|field| field.name.as_str())
}

impl VariableTarget {
    fn new(section: &'static Section, name: Option<&str>, key: &'static str) -> Self {
        let parts: Vec<_> = section.path().chain(name).chain([key]).collect();
        // Shells take no other characters in a variable's name.
        let variable = parts.join("__").replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
        Self { variable: format!("{PREFIX}{variable}"), section, name: name.map(str::to_owned), key }
    }

    /// Sets the key. If the file has another value in place of the section, that is the mistake to report, and the
    /// variable is ignored.
    fn set(&self, tree: &mut TomlTable, node: TomlNode) {
        let mut steps = self.section.path().chain(self.name.as_deref());
        if let Some(table) = steps.try_fold(tree, |table, name| table.table_mut(name, &node.location)) {
            table.set(self.key, node);
        }
    }

    /// As ``kind `embed` ``.
    fn shown_section(&self) -> String {
        // The table of all kinds is called `kinds`, that of all types `types`.
        let what = self.section.path().last().unwrap_or_default().trim_end_matches('s');
        format!("{what} `{}`", self.name.as_deref().map(segment).unwrap_or_default())
    }
}

fn find<'a>(targets: &'a [VariableTarget], name: &str) -> Result<&'a VariableTarget, String> {
    let upper = name.to_ascii_uppercase();
    let mut found = targets.iter().filter(|target| target.variable == upper);
    match (found.next(), found.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => Err(unknown_variable(targets, &upper)),
        (Some(first), Some(second)) => Err(format!(
            "could mean {} or {}; set the key in the file instead",
            first.shown_section(),
            second.shown_section()
        )),
    }
}

fn unknown_variable(targets: &[VariableTarget], upper: &str) -> String {
    match closest(upper, targets.iter().map(|target| target.variable.as_str())) {
        Some(meant) => format!("unknown variable; did you mean `{meant}`?"),
        None => "unknown variable; write REMUDA__SECTION__KEY, or REMUDA__KINDS__NAME__KEY for a kind that the file \
                 defines, or REMUDA__RECOVERY__TYPES__NAME__KEY for a type that has a section there"
            .to_owned(),
    }
}
