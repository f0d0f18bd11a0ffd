//! Formats of strings: words, addresses, paths, names, and tables of variables.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::format::{Format, Scalar, ValueReport, string, wrong_type};
use super::text::{quote, segment, toml_string};
use super::tree::TomlNode;

/// A Unix socket's path has room for 108 bytes, the last of them a NUL.
const SOCKET_PATH_MAX_BYTES: usize = 107;
const CAPABILITY_MAX_BYTES: usize = 64;

/// Declares an enum whose values are words in the file, each with its word.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $crate::config::strings::Word for $name {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }
    };
}
pub(super) use words;

/// An enum that is declared with [`words!`].
pub(super) trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(&'static str, Self)];

    /// The word in the file.
    fn word(self) -> &'static str {
        let (word, _) = Self::ALL.iter().find(|(_, value)| *value == self).expect("each value has its word");
        word
    }
}

/// One of the words of an enum.
pub(super) struct Choice;

impl<T: Word> Scalar<T> for Choice {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<T, String> {
        let words = || T::ALL.iter().map(|(word, _)| toml_string(*word)).collect::<Vec<_>>().join(", ");
        let text = node.text().ok_or_else(|| wrong_type(node, &format!("one of {}", words())))?;
        let found = T::ALL.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| format!("{} is not one of {}", quote(text), words()))
    }

    fn write(&self, value: &T) -> String {
        toml_string(value.word())
    }
}

/// A string that passes a check.
pub(super) struct Text(pub(super) fn(&str) -> Result<(), String>);

impl Scalar<String> for Text {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<String, String> {
        let text = string(node, "a string")?;
        (self.0)(text).map(|()| text.to_owned())
    }

    fn write(&self, value: &String) -> String {
        toml_string(value)
    }
}

/// Accepts a string that a process can be given, even an empty one.
pub(super) fn without_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') { Err("must not hold a NUL character".to_owned()) } else { Ok(()) }
}

pub(super) fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { without_nul(text) }
}

pub(super) fn url(text: &str) -> Result<(), String> {
    not_empty(text)?;
    let fits = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    if text.parse().is_ok_and(|uri| fits(&uri)) {
        return Ok(());
    }
    Err(format!("{} is not a URL: write one like \"http://127.0.0.1:4317\"", quote(text)))
}

/// Accepts a path that the HTTP endpoint serves.
pub(super) fn http_path(path: &str) -> Result<(), String> {
    const PATHS: [&str; 4] = ["/", "/metrics", "/livez", "/readyz"];
    if PATHS.contains(&path) {
        return Ok(());
    }
    Err(format!("{} is not one of {}", quote(path), PATHS.map(toml_string).join(", ")))
}

/// Accepts the form of a user's name; the launcher finds out if the user exists.
pub(super) fn user_name(name: &str) -> Result<(), String> {
    if is_account(name) { Ok(()) } else { Err(format!("{} is not a Unix user name", quote(name))) }
}

pub(super) fn group_name(name: &str) -> Result<(), String> {
    if is_account(name) { Ok(()) } else { Err(format!("{} is not a Unix group name", quote(name))) }
}

fn is_account(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && name.len() <= 32 && name.chars().all(is_allowed)
}

/// Accepts the name of a variable that a worker may be given.
pub(super) fn variable_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        let name = quote(name);
        return Err(format!("{name} is not a variable's name: it must not be empty or hold `=` or a NUL character"));
    }
    if name.starts_with("REMUDA_") {
        return Err("names that start with REMUDA_ are set by remuda itself".to_owned());
    }
    Ok(())
}

/// Accepts a short word; each query's words are compared with all of a kind's.
pub(super) fn capability(word: &str) -> Result<(), String> {
    not_empty(word)?;
    let (bytes, most) = (word.len(), CAPABILITY_MAX_BYTES);
    if bytes <= most {
        return Ok(());
    }
    Err(format!("{} is {bytes} bytes long; at most {most} are allowed", quote(word)))
}

/// A table of environment variables.
pub(super) struct Variables;

impl Format<BTreeMap<String, String>> for Variables {
    fn read(&self, node: &TomlNode, report: &ValueReport<'_>) -> Option<BTreeMap<String, String>> {
        let Some(table) = node.table() else {
            let problem = wrong_type(node, "a table of strings, like { A = \"b\" }");
            report.mistakes.add(&node.location, &report.path, problem);
            return None;
        };
        let mut variables = BTreeMap::new();
        for field in &table.fields {
            let path = format!("{}.{}", report.path, segment(&field.name));
            if let Err(problem) = variable_name(&field.name) {
                report.mistakes.add(&field.location, path.clone(), problem);
            }
            match Text(without_nul).parse(&field.node, report.base) {
                Ok(value) => drop(variables.insert(field.name.clone(), value)),
                Err(problem) => report.mistakes.add(&field.node.location, path, problem),
            }
        }
        Some(variables)
    }

    fn show(&self, value: &BTreeMap<String, String>) -> Option<String> {
        let fields = value.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        Some(toml::Value::Table(fields.collect()).to_string())
    }
}

/// Address that gRPC is served at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// In the form of a client's endpoint.
impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// A listen address: a path if it has a slash or follows `unix:`, else IP and port.
pub(super) struct ListenAddress;

impl Scalar<Listen> for ListenAddress {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<Listen, String> {
        let text = string(node, "an address, like \"127.0.0.1:50051\"")?;
        let not_an_address = || {
            format!(
                "{} is not an address: write an IP address and port, like \"127.0.0.1:50051\" or \"[::]:50051\", \
                 or the path of a Unix socket, like \"/run/remuda.sock\"",
                quote(text)
            )
        };
        let path = match text.strip_prefix("unix:") {
            Some(path) => path.strip_prefix("//").unwrap_or(path),
            None if text.contains('/') => text,
            None => return text.parse().map(Listen::Tcp).map_err(|_| not_an_address()),
        };
        if path.is_empty() {
            return Err(not_an_address());
        }
        without_nul(path)?;
        check_length(Path::new(path), SOCKET_PATH_MAX_BYTES, "fit in a socket's path")?;
        Ok(Listen::Unix(PathBuf::from(path)))
    }

    fn write(&self, value: &Listen) -> String {
        toml_string(match value {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => match path.to_string_lossy() {
                path if path.contains('/') && !path.starts_with("unix:") => path.into_owned(),
                path => format!("unix:{path}"),
            },
        })
    }
}

/// Fails if `path` takes more than `most` bytes; `reason` completes "at most 107 bytes ...".
pub(super) fn check_length(path: &Path, most: usize, reason: &str) -> Result<(), String> {
    let bytes = path.as_os_str().len();
    if bytes <= most {
        return Ok(());
    }
    Err(format!("{} is {bytes} bytes long; at most {most} {reason}", quote(&path.to_string_lossy())))
}

/// An address to serve HTTP at.
pub(super) struct HttpAddress;

impl Scalar<SocketAddr> for HttpAddress {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<SocketAddr, String> {
        let text = string(node, "an address, like \"127.0.0.1:9090\", or \"off\"")?;
        let form = "write an IP address and port, like \"127.0.0.1:9090\", or \"off\"";
        text.parse().map_err(|_| format!("{} is not an address: {form}", quote(text)))
    }

    fn write(&self, value: &SocketAddr) -> String {
        toml_string(value.to_string())
    }
}

/// A path, made absolute.
pub(super) struct FilePath;

impl Scalar<PathBuf> for FilePath {
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<PathBuf, String> {
        let joined = base.join(Text(not_empty).parse(node, base)?);
        // This fails only if the process has no working directory left; then no path is better.
        Ok(std::path::absolute(&joined).unwrap_or(joined))
    }

    fn write(&self, value: &PathBuf) -> String {
        toml_string(value.to_string_lossy())
    }
}

/// A path, made absolute, as text.
pub(super) struct PathText;

impl Scalar<String> for PathText {
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<String, String> {
        FilePath.parse(node, base).map(|path| path.to_string_lossy().into_owned())
    }

    fn write(&self, value: &String) -> String {
        toml_string(value)
    }
}

/// Working directory of a kind's workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkDir {
    /// Absolute.
    At(PathBuf),
    /// One of its own for each worker, empty at first and removed with the worker.
    Private,
}

/// The word for a directory of the worker's own.
const PRIVATE: &str = "private";

/// A path, made absolute, or the word for a private directory.
pub(super) struct WorkDirPath;

impl Scalar<WorkDir> for WorkDirPath {
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<WorkDir, String> {
        if node.text() == Some(PRIVATE) { Ok(WorkDir::Private) } else { FilePath.parse(node, base).map(WorkDir::At) }
    }

    fn write(&self, value: &WorkDir) -> String {
        match value {
            WorkDir::At(path) => FilePath.write(path),
            WorkDir::Private => toml_string(PRIVATE),
        }
    }
}
