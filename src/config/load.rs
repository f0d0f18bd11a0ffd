//! Loads a configuration: the source, then what overrides it, then the reading.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{ConfigErrors, Mistakes, Place};
use super::model::Config;
use super::problem::Problem;
use super::sections::Input;
use super::tree::Lines;
use super::{keys, layers, sections, show, tree, values};

/// Thousands of kinds fit; a larger file is a mix-up, like the path of a log or a device.
const MOST_FILE_BYTES: u64 = 256 << 10;

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A TOML file.
    File(PathBuf),
    /// TOML text; mistakes are reported under `name`, and relative paths start at `base_dir`.
    Text { name: String, text: String, base_dir: PathBuf },
    /// The defaults and one kind, `echo`, served by the given `remuda` executable.
    BuiltIn { executable: PathBuf },
}

/// What flags say; it counts more than the environment and the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<String>,
    /// `--http`
    pub http: Option<String>,
}

/// The variables of this process, for [`Config::load`]. Bytes that are not UTF-8 are replaced, not
/// left out: a variable that is meant for us must not be passed over in silence.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (lossy(name), lossy(value)))
}

impl Config {
    /// Reads the source, puts the variables named `REMUDA__...` and then the overrides over it, and
    /// checks it all.
    ///
    /// # Errors
    ///
    /// Every mistake that was found, or why the file could not be read.
    pub fn load(
        source: Source,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigErrors> {
        let mut mistakes = Mistakes::new(source.name());
        let base = source.base_dir();
        let tree = source
            .text()
            .map_err(|(place, problem)| mistakes.add(&place, "", problem))
            .ok()
            .and_then(|text| tree::parse_document(&text, &mut mistakes));
        let Some(mut tree) = tree else {
            return Err(mistakes.finish().expect_err("no tree for a reason given"));
        };
        let variables: Vec<_> = env.into_iter().collect();
        layers::apply_variables(&variables, &mut tree, &mut mistakes);
        apply_overrides(overrides, &mut tree);
        let input = Input { tree: &tree, base: &base, temporary: value_of(&variables, "TMPDIR") };
        let config = sections::read(&input, &mut mistakes);
        mistakes.finish().map(|()| config)
    }
}

fn apply_overrides(overrides: &Overrides, tree: &mut tree::Table) {
    let flags = [("--listen", &keys::LISTEN, &overrides.listen), ("--http", &keys::HTTP, &overrides.http)];
    for (flag, key, text) in flags {
        if let Some(text) = text {
            layers::apply_flag(flag, key, text, tree);
        }
    }
}

fn value_of<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().find(|(variable, _)| variable == name);
    found.map(|(_, value)| value.as_str())
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
            Self::BuiltIn { .. } => "the built-in config".to_owned(),
        }
    }

    fn base_dir(&self) -> PathBuf {
        match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")).to_owned(),
            Self::Text { base_dir, .. } => base_dir.clone(),
            Self::BuiltIn { .. } => PathBuf::new(),
        }
    }

    fn text(self) -> Result<String, (Place, Problem)> {
        match self {
            Self::File(path) => read_file(&path),
            Self::Text { text, .. } => Ok(text),
            Self::BuiltIn { executable } => match executable.to_str() {
                Some(executable) => Ok(built_in(executable)),
                None => Err((Place::Whole, Problem::NotUtf8)),
            },
        }
    }
}

/// Two workers, so that a first try shows them working side by side.
fn built_in(executable: &str) -> String {
    let command = show::strings(&[executable, "worker", "echo"]);
    format!("[kinds.echo]\ncommand = {command}\nmin = 2\nmax = 4\n")
}

fn read_file(path: &Path) -> Result<String, (Place, Problem)> {
    let bytes = read_bytes(path).map_err(|error| (Place::Whole, Problem::Unreadable(error.to_string())))?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        let most = values::show_size(MOST_FILE_BYTES);
        return Err((Place::Whole, Problem::TooLarge { most }));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        (Lines::new(&before).place(valid), Problem::NotUtf8)
    })
}

/// One byte more than allowed at most, so that even an endless file comes to an end.
fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
