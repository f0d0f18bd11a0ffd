//! Mistakes in the configuration: where, in which key, and what; collected until all of it was read.

use std::cell::RefCell;
use std::fmt;

/// The place where a value was written. The order is that of a report: the file from top to bottom,
/// then the variables, then the flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    /// The file as a whole, for something that is missing from it.
    File,
    /// Both count from 1; the column counts characters.
    At { line: usize, column: usize },
    /// An environment variable, by name.
    Variable(String),
    /// A command-line flag, with its dashes.
    Flag(&'static str),
}

impl Location {
    /// The location as a person looks it up, in the file called `file`.
    pub(super) fn in_file(&self, file: &str) -> String {
        match self {
            Self::File => file.to_owned(),
            Self::At { line, column } => format!("{file}:{line}:{column}"),
            Self::Variable(name) => name.clone(),
            Self::Flag(flag) => (*flag).to_owned(),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) location: Location,
    /// The section and key, as `kinds.embed.min`; empty when the mistake is in no key.
    pub(super) path: String,
    /// The problem, on one line.
    pub(super) problem: String,
}

/// Every mistake of one configuration, in the order of their locations; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    pub(super) mistakes: Vec<Mistake>,
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            write!(f, "{}: ", mistake.location.in_file(&self.file))?;
            if !mistake.path.is_empty() {
                write!(f, "{}: ", mistake.path)?;
            }
            writeln!(f, "{}", mistake.problem)?;
        }
        match self.mistakes.len() {
            1 => write!(f, "1 mistake in {}", self.file),
            count => write!(f, "{count} mistakes in {}", self.file),
        }
    }
}

/// Collects mistakes while the configuration is read.
#[derive(Debug)]
pub(super) struct Mistakes {
    /// The file's name, as it is printed.
    pub(super) file: String,
    found: RefCell<Vec<Mistake>>,
}

impl Mistakes {
    pub(super) fn new(file: String) -> Self {
        Self { file, found: RefCell::default() }
    }

    pub(super) fn add(&self, location: &Location, path: impl Into<String>, problem: impl Into<String>) {
        let mistake = Mistake { location: location.clone(), path: path.into(), problem: problem.into() };
        self.found.borrow_mut().push(mistake);
    }

    /// Returns `Ok` if there were none.
    pub(super) fn finish(self) -> Result<(), ConfigErrors> {
        let mut mistakes = self.found.into_inner();
        if mistakes.is_empty() {
            return Ok(());
        }
        mistakes.sort_by(|a, b| a.location.cmp(&b.location));
        // The parser reports a broken bracket once for each level that it leaves open.
        mistakes.dedup();
        Err(ConfigErrors { file: self.file, mistakes })
    }
}
