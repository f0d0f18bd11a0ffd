//! Loads a configuration: reads its source, applies the layers above it, and checks the result.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{ConfigErrors, Location, Mistakes};
use super::layers::{apply_flag, apply_variables};
use super::model::{Config, ConfigReader};
use super::numbers::show_size;
use super::text::toml_strings;
use super::tree::{LineIndex, parse_document};

/// Thousands of kinds fit; a larger file is a mix-up, like the path of a log or a device.
const FILE_MAX_BYTES: u64 = 256 << 10;
const NOT_UTF8: &str = "is not valid UTF-8";

/// Source of the configuration.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// A TOML file.
    File(PathBuf),
    /// TOML text; mistakes are reported under `name`, and relative paths start at `base_dir`.
    Text { name: String, text: String, base_dir: PathBuf },
    /// The defaults and one kind, `echo`, served by the given `remuda` executable.
    BuiltIn { executable: PathBuf },
}

/// Values of flags, which override the environment and the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<String>,
    /// `--http`
    pub http: Option<String>,
}

/// The variables of this process, for [`Config::load`]. Bytes that are not UTF-8 are replaced, not
/// left out: a variable that sets a key must not be ignored in silence.
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
    /// Every mistake that was found, or the reason why the file could not be read.
    pub fn load(
        source: ConfigSource,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigErrors> {
        let SourceText { name, base, text } = source.open();
        let mistakes = Mistakes::new(name);
        let text = text.map_err(|(location, problem)| mistakes.add(&location, "", problem)).ok();
        let tree = text.and_then(|text| parse_document(&text, &mistakes));
        let Some(mut tree) = tree else {
            return Err(mistakes.finish().expect_err("there is no tree for a reason that was reported"));
        };
        let variables: Vec<_> = env.into_iter().collect();
        apply_variables(&variables, &mut tree, &mistakes);
        for (flag, key, text) in [("--listen", "listen", &overrides.listen), ("--http", "http", &overrides.http)] {
            if let Some(text) = text {
                apply_flag(flag, key, text, &mut tree);
            }
        }
        let temporary_dir = variables.iter().find(|(name, _)| name == "TMPDIR").map(|(_, value)| value.as_str());
        let config = ConfigReader { tree: &tree, base: &base, temporary_dir, mistakes: &mistakes }.read();
        mistakes.finish().map(|()| config)
    }
}

/// A source that was opened.
struct SourceText {
    /// The name that mistakes are reported under.
    name: String,
    /// Relative paths start here.
    base: PathBuf,
    text: Result<String, (Location, String)>,
}

impl ConfigSource {
    fn open(self) -> SourceText {
        match self {
            Self::File(path) => SourceText {
                name: path.display().to_string(),
                base: path.parent().unwrap_or(Path::new("")).to_owned(),
                text: read_file(&path),
            },
            Self::Text { name, text, base_dir } => SourceText { name, base: base_dir, text: Ok(text) },
            Self::BuiltIn { executable } => SourceText {
                name: "the built-in config".to_owned(),
                base: PathBuf::new(),
                text: executable.to_str().map(built_in).ok_or((Location::File, NOT_UTF8.to_owned())),
            },
        }
    }
}

/// Two workers, so that a first try shows them working side by side.
fn built_in(executable: &str) -> String {
    let command = toml_strings(&[executable, "worker", "echo"]);
    format!("[kinds.echo]\ncommand = {command}\nmin = 2\nmax = 4\n")
}

fn read_file(path: &Path) -> Result<String, (Location, String)> {
    let bytes = read_bytes(path).map_err(|error| (Location::File, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        let problem = format!("is larger than {}, more than any config file needs", show_size(FILE_MAX_BYTES));
        return Err((Location::File, problem));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        (LineIndex::new(&before).location(valid), NOT_UTF8.to_owned())
    })
}

/// Reads one byte more than allowed at most, so that even an endless file comes to an end.
fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
