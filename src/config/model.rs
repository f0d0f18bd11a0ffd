//! The whole configuration, read and checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::{Location, Mistakes};
use super::keys;
use super::keys::dead_letters::{DeadLettersConfig, DeadLettersSettings};
use super::keys::kind::KindConfig;
use super::keys::pool::PoolConfig;
use super::keys::queue::{QueueConfig, QueueSettings};
use super::keys::recovery::{Recovery, RecoveryConfig};
use super::keys::results::{ResultsConfig, ResultsSettings};
use super::keys::retry::RetryConfig;
use super::keys::server::ServerConfig;
use super::kinds::{ReadKind, check_kind_name, check_together, served_types};
use super::reader::SectionReader;
use super::schema::Section;
use super::strings::not_empty;
use super::text::{first_few, quote, segment};
use super::tree::{TomlField, TomlTable};
use super::unknown::{unknown_key, unknown_section};

/// The whole configuration. Each key is declared and documented in `keys/`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub server: ServerConfig,
    pub pool: PoolConfig,
    pub queue: QueueConfig,
    pub recovery: RecoveryConfig,
    pub retry: RetryConfig,
    pub dead_letters: DeadLettersConfig,
    pub results: ResultsConfig,
    /// At least one, in the order of the file.
    pub kinds: Vec<KindConfig>,
}

const EMPTY: &TomlTable = &TomlTable { fields: Vec::new() };

/// A tree that is read into a [`Config`].
pub(super) struct ConfigReader<'a> {
    pub(super) tree: &'a TomlTable,
    /// Relative paths start here.
    pub(super) base: &'a Path,
    /// The variable `TMPDIR`.
    pub(super) temporary_dir: Option<&'a str>,
    pub(super) mistakes: &'a Mistakes,
}

impl<'a> ConfigReader<'a> {
    /// Reads everything. If there are mistakes, the result serves only to find more of them.
    pub(super) fn read(&self) -> Config {
        for field in &self.tree.fields {
            if let Some(problem) = unknown_section(&field.name) {
                self.mistakes.add(&field.location, segment(&field.name), problem);
            }
        }
        let server = keys::server::read(&self.open(&keys::SERVER));
        let pool = keys::pool::read(&self.open(&keys::POOL), self.temporary_dir);
        let queue = QueueSettings::read(&self.open(&keys::QUEUE)).into_config();
        let retry = keys::retry::read(&self.open(&keys::RETRY));
        let dead_letters = DeadLettersSettings::read(&self.open(&keys::DEAD_LETTERS)).into_config();
        let results = ResultsSettings::read(&self.open(&keys::RESULTS)).into_config();
        let (kinds, is_complete) = self.kinds();
        check_together(&kinds, &pool);
        // A kind that could not be read may serve any type.
        let known_types = served_types(&kinds).filter(|_| is_complete);
        let recovery = self.recovery(known_types.as_ref());
        let kinds = kinds.into_iter().map(ReadKind::into_config).collect();
        Config { server, pool: pool.into_config(), queue, recovery, retry, dead_letters, results, kinds }
    }

    /// Opens the only section of its kind; one that is not written is empty.
    fn open(&self, section: &'static Section) -> SectionReader<'a> {
        let path = section.root().to_owned();
        let field = self.tree.get(&path);
        let header = field.map_or(Location::File, |field| field.location.clone());
        let table = field.and_then(|field| self.table(field, &path, &path)).unwrap_or(EMPTY);
        self.open_table(section, path, table, header)
    }

    /// Opens `table` as a section, and reports the keys that it should not have.
    fn open_table(
        &self,
        section: &'static Section,
        path: String,
        table: &'a TomlTable,
        header: Location,
    ) -> SectionReader<'a> {
        for field in &table.fields {
            if let Some(problem) = unknown_key(section, &field.name) {
                self.mistakes.add(&field.location, format!("{path}.{}", segment(&field.name)), problem);
            }
        }
        SectionReader { section, path, header, table, base: self.base, mistakes: self.mistakes }
    }

    /// The table that `field`, called `path`, must be; reports another value.
    fn table(&self, field: &'a TomlField, path: &str, header: &str) -> Option<&'a TomlTable> {
        let table = field.node.table();
        if table.is_none() {
            let problem = format!("must be a section, written [{header}], not {}", field.node.type_name());
            self.mistakes.add(&field.node.location, path, problem);
        }
        table
    }

    /// Opens the section of each NAME, and reports names that fail the check. A section that is no table is reported and
    /// has no reader. `None` if the table of all these sections is none itself.
    fn open_named(
        &self,
        section: &'static Section,
        check_name: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Vec<(&'a str, Option<SectionReader<'a>>)>> {
        let path = section.path().collect::<Vec<_>>().join(".");
        // Another value in place of an outer section was reported when that was opened.
        let (outer, inner) = path
            .split_once('.')
            .map_or((self.tree, &*path), |(outer, inner)| (self.tree.table(outer).unwrap_or(EMPTY), inner));
        let Some(field) = outer.get(inner) else {
            return Some(Vec::new());
        };
        let open = |field: &'a TomlField| {
            let path = format!("{path}.{}", segment(&field.name));
            if let Err(problem) = check_name(&field.name) {
                self.mistakes.add(&field.location, &path, problem);
            }
            let table = self.table(field, &path, &path)?;
            Some(self.open_table(section, path, table, field.location.clone()))
        };
        let table = self.table(field, &path, section.header)?;
        Some(table.fields.iter().map(|field| (field.name.as_str(), open(field))).collect())
    }

    /// The kinds that could be read, and true if these are all.
    fn kinds(&self) -> (Vec<ReadKind<'a>>, bool) {
        let Some(sections) = self.open_named(&keys::KIND, check_kind_name) else {
            return (Vec::new(), false);
        };
        if sections.is_empty() {
            let header = self.tree.get("kinds").map_or(&Location::File, |field| &field.location);
            let problem = "no kind of worker is defined: add a [kinds.NAME] section with a `command`";
            self.mistakes.add(header, "kinds", problem);
        }
        let count = sections.len();
        let read = |(name, section): (&str, Option<_>)| Some(ReadKind::read(name, section?));
        let kinds: Vec<_> = sections.into_iter().filter_map(read).collect();
        let is_complete = kinds.len() == count;
        (kinds, is_complete)
    }

    /// The recovery of all types; `served` are the types that there can be, if these are known.
    fn recovery(&self, served: Option<&BTreeSet<String>>) -> RecoveryConfig {
        let default = Recovery::read(&self.open(&keys::RECOVERY));
        let sections = self.open_named(&keys::RECOVERY_TYPE, |name| check_type_name(name, served)).unwrap_or_default();
        let read = |(name, section): (&str, Option<_>)| Some((name.to_owned(), Recovery::read(&section?)));
        RecoveryConfig { default, types: sections.into_iter().filter_map(read).collect() }
    }
}

fn check_type_name(name: &str, served: Option<&BTreeSet<String>>) -> Result<(), String> {
    not_empty(name)?;
    match served {
        Some(served) if !served.contains(name) => {
            let served = first_few(served.iter().map(|name| quote(name)));
            Err(format!("no kind serves this type; served are {served}"))
        }
        _ => Ok(()),
    }
}
