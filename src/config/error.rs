//! Mistakes in the configuration: where, in which key, and what; collected until all of it was
//! read.

use std::fmt;

use super::problem::Problem;

/// Where a value was written. The order is that of a report: the file from top to bottom, then the
/// variables, then the flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The file as a whole, for what is nowhere in it.
    Whole,
    /// Both count from 1; the column counts characters.
    At { line: usize, column: usize },
    /// An environment variable, by name.
    Variable(String),
    /// A command-line flag, with its dashes.
    Flag(&'static str),
}

impl Place {
    /// The place as a person looks it up, in the file called `file`.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        match self {
            Self::Whole => file.to_owned(),
            Self::At { line, column } => format!("{file}:{line}:{column}"),
            Self::Variable(name) => name.clone(),
            Self::Flag(flag) => (*flag).to_owned(),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub place: Place,
    /// The section and key, as `kinds.embed.min`; empty when the mistake is in no key.
    pub path: String,
    pub problem: Problem,
}

/// Every mistake of one configuration, in the order of their places; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    mistakes: Vec<Mistake>,
}

impl ConfigErrors {
    /// The file's name, as it is printed.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            write!(f, "{}: ", mistake.place.in_file(&self.file))?;
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
    file: String,
    found: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(file: String) -> Self {
        Self { file, found: Vec::new() }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn add(&mut self, place: &Place, path: impl Into<String>, problem: Problem) {
        self.found.push(Mistake { place: place.clone(), path: path.into(), problem });
    }

    /// `Ok` if there were none.
    pub(super) fn finish(mut self) -> Result<(), ConfigErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_by(|a, b| a.place.cmp(&b.place));
        // A broken bracket is found once for each level that it leaves open.
        self.found.dedup();
        Err(ConfigErrors { file: self.file, mistakes: self.found })
    }
}
