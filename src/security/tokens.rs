//! Bearer tokens from a file, each with a name and roles.

use std::{
    borrow::Cow,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use subtle::ConstantTimeEq;
use thiserror::Error;

use super::reloadable::Reloadable;

/// Shorter tokens can be guessed.
const TOKEN_MIN_BYTES: usize = 16;
/// A longer file is not a list of tokens.
const TOKEN_FILE_MAX_BYTES: u64 = 1 << 20;

/// Permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Submit, execute and cancel queries, and read their results.
    Submit,
    /// Read results, queries, workers, events and metrics.
    Read,
    /// Everything, including changes to the pool.
    Admin,
}

/// Roles of which a call requires one. `Admin` is enough for every call.
pub type RequiredRole = &'static [Role];

/// Reason for refusing a call. The texts hold nothing that helps to guess a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AuthError {
    #[error("this server needs a token; send it as authorization: Bearer <token>")]
    MissingToken,
    #[error("the token is not valid")]
    InvalidToken,
    #[error("the token does not have the role that this call needs: {}", list(.0))]
    MissingRole(RequiredRole),
}

#[derive(Debug, Error)]
pub enum TokenFileError {
    #[error("cannot read the token file {}: {error} (server.tokens)", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the token file {} is longer than 1 MiB (server.tokens)", .path.display())]
    TooLong { path: PathBuf },
    #[error("{}:{line}: {problem}; write on each line: a name, its roles (submit,read,admin) and the token", .path.display())]
    InvalidLine { path: PathBuf, line: usize, problem: Cow<'static, str> },
    #[error("the token file {} has no tokens, so every call would be refused (server.tokens)", .path.display())]
    Empty { path: PathBuf },
}

/// The valid tokens.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    current: Reloadable<Vec<Token>>,
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

impl Token {
    fn has_secret(&self, presented: &[u8]) -> bool {
        self.secret.ct_eq(presented).into()
    }
}

impl Tokens {
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let current = Reloadable::load(vec![path.to_owned()], || read(path))?;
        Ok(Self { path: path.to_owned(), current })
    }

    /// Reads the file again. If it cannot be used, the current tokens stay valid.
    pub fn reload(&self) -> Result<(), TokenFileError> {
        self.current.reload(|| read(&self.path))
    }

    /// True if the file has changed since it was read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.current.is_stale()
    }

    /// Checks an `authorization` header. Takes as long for a token that is nearly right as for any other.
    pub fn check(&self, header: Option<&[u8]>, required: RequiredRole) -> Result<(), AuthError> {
        let header = header.ok_or(AuthError::MissingToken)?;
        let (scheme, presented) = header.split_at_checked("Bearer ".len()).ok_or(AuthError::InvalidToken)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(AuthError::InvalidToken);
        }
        let tokens = self.current.get();
        // Every token is compared, also after a match.
        let matching = |found, token| if Token::has_secret(token, presented) { Some(token) } else { found };
        let token = tokens.iter().fold(None, matching).ok_or(AuthError::InvalidToken)?;
        let is_allowed = token.roles.iter().any(|role| *role == Role::Admin || required.contains(role));
        if is_allowed { Ok(()) } else { Err(AuthError::MissingRole(required)) }
    }
}

impl Role {
    const ALL: [Self; 3] = [Self::Submit, Self::Read, Self::Admin];

    fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

fn list(roles: &[Role]) -> String {
    roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(" or ")
}

fn read(path: &Path) -> Result<Vec<Token>, TokenFileError> {
    let unreadable = |error| TokenFileError::Unreadable { path: path.to_owned(), error };
    if fs::metadata(path).map_err(unreadable)?.len() > TOKEN_FILE_MAX_BYTES {
        return Err(TokenFileError::TooLong { path: path.to_owned() });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let lines = text.lines().map(str::trim).enumerate();
    let tokens = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(index, line)| {
        let invalid = |problem| TokenFileError::InvalidLine { path: path.to_owned(), line: index + 1, problem };
        parse_line(line).map_err(invalid)
    });
    let tokens: Vec<Token> = tokens.collect::<Result<_, _>>()?;
    if tokens.is_empty() { Err(TokenFileError::Empty { path: path.to_owned() }) } else { Ok(tokens) }
}

/// The error must not quote the line: it holds a secret.
fn parse_line(line: &str) -> Result<Token, Cow<'static, str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, roles, secret] = words[..] else { return Err("not three words".into()) };
    if secret.len() < TOKEN_MIN_BYTES {
        return Err("a token of less than 16 bytes, which can be guessed".into());
    }
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token with other than visible ASCII characters, which cannot be sent".into());
    }
    // Checked after the token, so that the word quoted here cannot be the token.
    let role = |word: &str| {
        let known = Role::ALL.into_iter().find(|role| role.name() == word);
        known.ok_or_else(|| format!("there is no role {word:?}"))
    };
    let roles = roles.split(',').map(role).collect::<Result<Vec<Role>, _>>()?;
    Ok(Token { name: name.into(), roles, secret: secret.as_bytes().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBMIT: RequiredRole = &[Role::Submit];
    const READ: RequiredRole = &[Role::Read];
    const EITHER: RequiredRole = &[Role::Submit, Role::Read];
    const ADMIN: RequiredRole = &[Role::Admin];

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
    fn token_grants_the_calls_of_its_roles() {
        let (_dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        let may = |token: &str, required| tokens.check(Some(&bearer(token)), required);
        for required in [SUBMIT, READ, EITHER] {
            assert_eq!(may("0123456789abcdef", required), Ok(()));
        }
        assert_eq!(may("0123456789abcdef", ADMIN), Err(AuthError::MissingRole(ADMIN)));
        for required in [SUBMIT, READ, EITHER, ADMIN] {
            assert_eq!(may("fedcba9876543210", required), Ok(()));
        }
        assert_eq!(may("aaaaaaaaaaaaaaaaaaaa", EITHER), Ok(()));
        assert_eq!(may("aaaaaaaaaaaaaaaaaaaa", SUBMIT), Err(AuthError::MissingRole(SUBMIT)));
    }

    #[test]
    fn token_must_match_whole() {
        let (_dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        let check = |header: &[u8]| tokens.check(Some(header), READ);
        assert_eq!(tokens.check(None, READ), Err(AuthError::MissingToken));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", " 0123456789abcdef", "ci"] {
            assert_eq!(check(&bearer(wrong)), Err(AuthError::InvalidToken), "{wrong:?}");
        }
        for header in [&b"0123456789abcdef"[..], b"Basic 0123456789abcdef", b"", b"Bearer", &[0xff; 40]] {
            assert_eq!(check(header), Err(AuthError::InvalidToken), "{header:?}");
        }
        assert_eq!(check(b"bearer 0123456789abcdef"), Ok(()), "the scheme's case does not count");
    }

    #[test]
    fn invalid_file_is_refused_without_quoting_secrets() {
        for (text, hint) in [
            ("ci submit\n", ":1: not three words"),
            ("\n\nci submit,root 0123456789abcdef\n", ":3: there is no role \"root\""),
            ("ci 0123456789abcdef submit\n", ":1: a token of less than 16 bytes"),
            ("ci submit hush\n", ":1: a token of less than 16 bytes"),
            ("# nothing\n", "has no tokens"),
        ] {
            let (_dir, tokens) = tokens(text);
            let message = tokens.unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
            assert!(!message.contains("hush") && !message.contains("0123456789abcdef"), "{message}");
        }
    }

    #[test]
    fn reload_replaces_the_tokens_unless_the_file_is_invalid() {
        let (dir, tokens) = tokens(FILE);
        let tokens = tokens.unwrap();
        fs::write(dir.path().join("tokens"), "broken").unwrap();
        assert!(tokens.reload().is_err());
        assert_eq!(tokens.check(Some(&bearer("0123456789abcdef")), READ), Ok(()));
        fs::write(dir.path().join("tokens"), "new read 11111111111111111\n").unwrap();
        tokens.reload().unwrap();
        assert_eq!(tokens.check(Some(&bearer("0123456789abcdef")), READ), Err(AuthError::InvalidToken));
        assert_eq!(tokens.check(Some(&bearer("11111111111111111")), READ), Ok(()));
        assert!(!format!("{tokens:?}").contains("1111"), "secrets are not printed");
    }
}
