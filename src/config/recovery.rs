//! Reads what happens to a query whose worker died under it: the default, and the types that differ.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::{STRATEGIES, Strategy};
use super::error::Mistakes;
use super::keys::{self, Key};
use super::model::{Recovery, RecoveryConfig};
use super::problem::Problem;
use super::reader::{Origin, SectionReader};
use super::section::Section;
use super::sections::{Input, MOST_ATTEMPTS, as_table, open};
use super::suggest::{first_few, quote, segment};
use super::tree::{Field, Table};
use super::values::{check_text, count};

/// Reads the default and all types; `served` is every type that there can be, if that is known.
pub(super) fn read(input: &Input<'_>, served: Option<&BTreeSet<String>>, mistakes: &mut Mistakes) -> RecoveryConfig {
    let default = default(open(input, Section::Recovery, mistakes));
    let mut types = BTreeMap::new();
    for field in fields(input.tree, mistakes) {
        let path = format!("recovery.types.{}", segment(&field.name));
        if let Err(problem) = check_name(&field.name, served) {
            mistakes.add(&field.place, &path, problem);
        }
        if let Some(table) = as_table(field, &path, &path, mistakes) {
            let found = (table, field.place.clone());
            let section = SectionReader::new(Section::RecoveryType, path, found, mistakes);
            types.insert(field.name.clone(), of_type(section));
        }
    }
    RecoveryConfig { default, types }
}

fn fields<'a>(tree: &'a Table, mistakes: &mut Mistakes) -> &'a [Field] {
    // Something else in place of [recovery] was reported when that was opened.
    let types = tree.table("recovery").and_then(|recovery| recovery.get("types"));
    let types = types.and_then(|field| as_table(field, "recovery.types", Section::RecoveryType.header(), mistakes));
    types.map_or(&[], |types| &types.fields)
}

fn check_name(name: &str, served: Option<&BTreeSet<String>>) -> Result<(), Problem> {
    check_text(name)?;
    match served {
        Some(served) if !served.contains(name) => {
            Err(Problem::UnservedType { served: first_few(served.iter().map(|name| quote(name))) })
        }
        _ => Ok(()),
    }
}

fn default(mut section: SectionReader<'_>) -> Recovery {
    let strategy = section.read(&keys::RECOVERY_STRATEGY, |node| STRATEGIES.parse(node));
    with_attempts(strategy.valid().copied(), &keys::RECOVERY_ATTEMPTS, &mut section)
}

fn of_type(mut section: SectionReader<'_>) -> Recovery {
    let strategy = section.read_required(&keys::TYPE_STRATEGY, |node| STRATEGIES.parse(node));
    with_attempts(strategy, &keys::TYPE_ATTEMPTS, &mut section)
}

/// Without a strategy, which was reported, there is no telling whether attempts fit it.
fn with_attempts(strategy: Option<Strategy>, key: &Key, section: &mut SectionReader<'_>) -> Recovery {
    let attempts = section.read(key, count(1..=MOST_ATTEMPTS));
    match (strategy, &attempts.origin) {
        (Some(Strategy::Retry), _) => return Recovery::Retry { attempts: attempts.value },
        (Some(Strategy::Reject), Origin::Written(place)) => section.mistake(key, place, Problem::UnusedAttempts),
        (Some(Strategy::Reject) | None, _) => {}
    }
    Recovery::Reject
}
