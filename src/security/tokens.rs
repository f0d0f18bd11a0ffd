//! Who may do what: bearer tokens from a file, each with a name and roles.

use std::{
    borrow::Cow,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::RwLock;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;
/// No list of tokens is this long; the path is that of something else.
const MOST_BYTES: u64 = 1 << 20;

/// What the bearer of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Submit, execute and cancel queries, and read their results.
    Submit,
    /// Look at results, queries, workers, events, metrics.
    Read,
    /// Everything, also what changes the pool.
    Admin,
}

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Submit,
    Read,
    /// Either of the two.
    SubmitOrRead,
    Admin,
}

/// Why a call is refused. The texts tell nothing that helps to guess a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Denied {
    #[error("this server needs a token; send it as authorization: Bearer <token>")]
    NoToken,
    #[error("the token is not valid")]
    BadToken,
    #[error("the token does not have the role that this call needs: {0}")]
    MissingRole(Need),
}

/// A line of the token file that cannot be used, or the file itself.
#[derive(Debug, Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {}: {error} (server.tokens)", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the token file {} is longer than 1 MiB (server.tokens)", .path.display())]
    TooLong { path: PathBuf },
    #[error("{}:{line}: {problem}; write on each line: a name, its roles (submit,read,admin) and the token", .path.display())]
    BadLine { path: PathBuf, line: usize, problem: Cow<'static, str> },
    #[error("the token file {} has no token in it, so nobody could do anything (server.tokens)", .path.display())]
    Empty { path: PathBuf },
}

/// The tokens that are valid now.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    current: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    tokens: Arc<[Token]>,
    stamp: Option<SystemTime>,
}

struct Token {
    name: Box<str>,
    roles: Vec<Role>,
    secret: Box<[u8]>,
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secret.
        write!(formatter, "{}: {:?}", self.name, self.roles)
    }
}

impl Tokens {
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        Ok(Self { path: path.to_owned(), current: RwLock::new(read(path)?) })
    }

    /// Reads the file again. If it cannot be used, what was valid stays valid.
    pub fn reload(&self) -> Result<(), TokenFileError> {
        let loaded = read(&self.path);
        if loaded.is_err() {
            // Told once, and not each time someone looks.
            self.current.write().stamp = stamp(&self.path);
        }
        *self.current.write() = loaded?;
        Ok(())
    }

    /// Whether the file was changed since it was read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        stamp(&self.path) != self.current.read().stamp
    }

    /// Whether an `authorization` header allows something. Takes as long for a token that is nearly right as for any other.
    pub fn check(&self, header: Option<&[u8]>, need: Need) -> Result<(), Denied> {
        let header = header.ok_or(Denied::NoToken)?;
        let (scheme, presented) = header.split_at_checked("Bearer ".len()).ok_or(Denied::BadToken)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(Denied::BadToken);
        }
        let tokens = self.current.read().tokens.clone();
        let mut found = None;
        for token in tokens.iter() {
            // Every token is compared, also after a match.
            if bool::from(token.secret.ct_eq(presented)) {
                found = Some(token);
            }
        }
        let token = found.ok_or(Denied::BadToken)?;
        if need.is_met_by(&token.roles) { Ok(()) } else { Err(Denied::MissingRole(need)) }
    }
}

impl Need {
    fn is_met_by(self, roles: &[Role]) -> bool {
        let has = |role| roles.contains(&role);
        has(Role::Admin)
            || match self {
                Self::Submit => has(Role::Submit),
                Self::Read => has(Role::Read),
                Self::SubmitOrRead => has(Role::Submit) || has(Role::Read),
                Self::Admin => false,
            }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::SubmitOrRead => "submit or read",
            Self::Admin => "admin",
        })
    }
}

fn stamp(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read(path: &Path) -> Result<Loaded, TokenFileError> {
    // Before the file is read: a change while it is being read is then seen later.
    let stamp = stamp(path);
    let unreadable = |error| TokenFileError::Unreadable { path: path.to_owned(), error };
    if fs::metadata(path).map_err(unreadable)?.len() > MOST_BYTES {
        return Err(TokenFileError::TooLong { path: path.to_owned() });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = parse(line).map_err(|problem| TokenFileError::BadLine {
            path: path.to_owned(),
            line: number + 1,
            problem,
        })?;
        tokens.push(token);
    }
    if tokens.is_empty() {
        return Err(TokenFileError::Empty { path: path.to_owned() });
    }
    Ok(Loaded { tokens: tokens.into(), stamp })
}

/// The problem must not quote the line: it holds a secret.
fn parse(line: &str) -> Result<Token, Cow<'static, str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, roles, secret] = words[..] else { return Err("not three words".into()) };
    if secret.len() < SHORTEST {
        return Err("a token of less than 16 bytes, which can be guessed".into());
    }
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token with other than visible ASCII characters, which cannot be sent".into());
    }
    // After the token, which is then known not to be one of these words.
    let role = |word: &str| match word {
        "submit" => Ok(Role::Submit),
        "read" => Ok(Role::Read),
        "admin" => Ok(Role::Admin),
        _ => Err(format!("there is no role {word:?}")),
    };
    let roles = roles.split(',').map(role).collect::<Result<Vec<Role>, _>>()?;
    Ok(Token { name: name.into(), roles, secret: secret.as_bytes().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# who  what  token\nci submit,read 0123456789abcdef\nops\tadmin\tfedcba9876543210\n\
        grafana read aaaaaaaaaaaaaaaaaaaa\n";

    fn tokens(text: &str) -> (tempfile::TempDir, Result<Tokens, TokenFileError>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        fs::write(&path, text).unwrap();
        let tokens = Tokens::load(&path);
        (dir, tokens)
    }

    fn bearer(token: &str) -> Vec<u8> {
        format!("Bearer {token}").into_bytes()
    }

    #[test]
    fn a_token_may_do_what_its_roles_say() {
        let (_dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        let may = |token: &str, need| tokens.check(Some(&bearer(token)), need);
        for need in [Need::Submit, Need::Read, Need::SubmitOrRead] {
            assert_eq!(may("0123456789abcdef", need), Ok(()));
        }
        assert_eq!(may("0123456789abcdef", Need::Admin), Err(Denied::MissingRole(Need::Admin)));
        for need in [Need::Submit, Need::Read, Need::SubmitOrRead, Need::Admin] {
            assert_eq!(may("fedcba9876543210", need), Ok(()));
        }
        assert_eq!(may("aaaaaaaaaaaaaaaaaaaa", Need::SubmitOrRead), Ok(()));
        assert_eq!(may("aaaaaaaaaaaaaaaaaaaa", Need::Submit), Err(Denied::MissingRole(Need::Submit)));
    }

    #[test]
    fn nothing_but_a_whole_token_is_a_token() {
        let (_dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        let check = |header: &[u8]| tokens.check(Some(header), Need::Read);
        assert_eq!(tokens.check(None, Need::Read), Err(Denied::NoToken));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", " 0123456789abcdef", "ci"] {
            assert_eq!(check(&bearer(wrong)), Err(Denied::BadToken), "{wrong:?}");
        }
        for header in [&b"0123456789abcdef"[..], b"Basic 0123456789abcdef", b"", b"Bearer", &[0xff; 40]] {
            assert_eq!(check(header), Err(Denied::BadToken), "{header:?}");
        }
        assert_eq!(check(b"bearer 0123456789abcdef"), Ok(()), "the scheme's case does not count");
    }

    #[test]
    fn a_bad_file_is_refused_without_telling_its_secrets() {
        for (text, hint) in [
            ("ci submit\n", ":1: not three words"),
            ("\n\nci submit,root 0123456789abcdef\n", ":3: there is no role \"root\""),
            ("ci 0123456789abcdef submit\n", ":1: a token of less than 16 bytes"),
            ("ci submit hush\n", ":1: a token of less than 16 bytes"),
            ("# nothing\n", "has no token in it"),
        ] {
            let (_dir, tokens) = tokens(text);
            let message = tokens.unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
            assert!(!message.contains("hush") && !message.contains("0123456789abcdef"), "{message}");
        }
    }

    #[test]
    fn a_reload_changes_what_is_valid_unless_the_file_is_bad() {
        let (dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        fs::write(dir.path().join("tokens"), "broken").unwrap();
        assert!(tokens.reload().is_err());
        assert_eq!(tokens.check(Some(&bearer("0123456789abcdef")), Need::Read), Ok(()));
        fs::write(dir.path().join("tokens"), "new read 11111111111111111\n").unwrap();
        tokens.reload().unwrap();
        assert_eq!(tokens.check(Some(&bearer("0123456789abcdef")), Need::Read), Err(Denied::BadToken));
        assert_eq!(tokens.check(Some(&bearer("11111111111111111")), Need::Read), Ok(()));
        assert!(!format!("{tokens:?}").contains("1111"), "secrets are not printed");
    }
}
