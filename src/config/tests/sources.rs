//! Tests of files that cannot be read, and of paths relative to the file.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{Config, ConfigSource, Overrides, WorkDir, environment};
use super::MINIMAL;

/// A directory that is gone after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("remuda-config-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn load(path: &Path) -> Result<Config, String> {
    let source = ConfigSource::File(path.to_owned());
    Config::load(source, [], &Overrides::default()).map_err(|errors| errors.to_string())
}

#[track_caller]
fn expect_refused(path: &Path, mistake: &str) {
    let name = path.display();
    let expected = format!("{name}{mistake}\n1 mistake in {name}");
    assert_eq!(load(path).unwrap_err(), expected);
}

#[test]
fn unreadable_file_is_reported_with_the_reason() {
    let dir = Directory::new("unreadable");
    let missing = dir.0.join("missing.toml");
    expect_refused(&missing, ": cannot be read: No such file or directory (os error 2)");
    expect_refused(&dir.0, ": cannot be read: Is a directory (os error 21)");
}

#[test]
fn file_that_is_not_utf8_is_reported_with_the_location() {
    let dir = Directory::new("binary");
    let path = dir.file("remuda.toml", b"[server]\n# \xc3\xa4\xff\n");
    expect_refused(&path, ":2:4: is not valid UTF-8");
}

#[test]
fn endless_file_is_not_read_to_its_end() {
    expect_refused(Path::new("/dev/zero"), ": is larger than 256KiB, more than any config file needs");
}

#[test]
fn relative_paths_start_at_the_file() {
    let dir = Directory::new("relative");
    let path = dir.file("remuda.toml", format!("{MINIMAL}dir = \"work\"\n"));
    let config = load(&path).unwrap();
    assert_eq!(config.kinds[0].dir, WorkDir::At(dir.0.join("work")));
}

#[test]
fn byte_order_mark_is_ignored() {
    let dir = Directory::new("mark");
    let path = dir.file("remuda.toml", "\u{feff}server = 3\r\n[kinds.k]\r\ncommand = [\"w\"]");
    expect_refused(&path, ":1:10: server: must be a section, written [server], not a number");
}

#[cfg(unix)]
#[test]
fn executable_whose_path_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let executable = std::ffi::OsString::from_vec(vec![b'/', 0xff]).into();
    let errors = Config::load(ConfigSource::BuiltIn { executable }, [], &Overrides::default());
    assert_eq!(
        errors.unwrap_err().to_string(),
        "the built-in config: is not valid UTF-8\n1 mistake in the built-in config"
    );
}

#[test]
fn environment_is_that_of_the_process() {
    assert!(environment().any(|(name, _)| name == "PATH"));
}
