//! What each kind of value looks like in TOML: how it is read, and how it is written.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::model::Listen;
use super::problem::Problem;
use super::suggest::quote;
use super::tree::{Node, Value};

/// A year, in humantime's sense. Far more than anybody waits, and so little that adding it to a
/// clock cannot overflow.
const LONGEST: Duration = Duration::from_hours(365 * 24 + 6);
/// Timers count milliseconds, so anything shorter is as good as nothing.
const SHORTEST: Duration = Duration::from_millis(1);

/// For a wait that may be skipped.
pub(super) const ANY_DURATION: RangeInclusive<Duration> = Duration::ZERO..=LONGEST;
/// For a wait that there must be.
pub(super) const SOME_DURATION: RangeInclusive<Duration> = SHORTEST..=LONGEST;
/// For a wait of which half must still be one.
pub(super) const HALVABLE_DURATION: RangeInclusive<Duration> = Duration::from_millis(2)..=LONGEST;

/// A Unix socket's path has room for 108 bytes, the last of them a NUL.
const MOST_SOCKET_PATH: usize = 107;

fn wrong_type(node: &Node, wanted: &'static str) -> Problem {
    let got = node.value.type_name();
    Problem::WrongType { wanted, got }
}

fn string<'a>(node: &'a Node, wanted: &'static str) -> Result<&'a str, Problem> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => Err(wrong_type(node, wanted)),
    }
}

fn within<T: PartialOrd>(value: T, range: &RangeInclusive<T>, show: impl Fn(&T) -> String) -> Result<T, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Problem::OutOfRange { least: show(range.start()), most: show(range.end()), got: show(&value) })
}

/// A string that a process can be given: not empty, and without NUL.
pub(super) fn text(node: &Node) -> Result<String, Problem> {
    let text = string(node, "a string")?;
    check_text(text).map(|()| text.to_owned())
}

/// Fails if `text` is empty or has a NUL.
pub(super) fn check_text(text: &str) -> Result<(), Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    check_argument(text)
}

/// A string that may be empty, but has no NUL.
pub(super) fn argument(node: &Node) -> Result<String, Problem> {
    let text = string(node, "a string")?;
    check_argument(text).map(|()| text.to_owned())
}

fn check_argument(text: &str) -> Result<(), Problem> {
    if text.contains('\0') { Err(Problem::Nul) } else { Ok(()) }
}

/// A part of a whole.
pub(super) fn share(node: &Node) -> Result<f64, Problem> {
    let number = match node.value {
        Value::Float(number) => number,
        Value::Integer(Some(whole)) => f64::from(i32::try_from(whole).unwrap_or(i32::MAX)),
        _ => return Err(wrong_type(node, "a number, like 0.1, without quotes")),
    };
    within(number, &(0.0..=1.0), |number| format!("{number:?}"))
}

/// The address of another server.
pub(super) fn url(node: &Node) -> Result<String, Problem> {
    let url = text(node)?;
    let parsed: Option<http::Uri> = url.parse().ok();
    let fits = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    if parsed.as_ref().is_some_and(fits) { Ok(url) } else { Err(Problem::NotAUrl { text: quote(&url) }) }
}

/// Yes or no.
pub(super) fn boolean(node: &Node) -> Result<bool, Problem> {
    match node.value {
        Value::Boolean(value) => Ok(value),
        _ => Err(wrong_type(node, "true or false, without quotes")),
    }
}

/// A whole number in `range`.
pub(super) fn count<T>(range: RangeInclusive<T>) -> impl Fn(&Node) -> Result<T, Problem>
where
    T: TryFrom<i64> + PartialOrd + Display,
{
    move |node| {
        let Value::Integer(number) = node.value else {
            return Err(wrong_type(node, "a whole number, without quotes"));
        };
        let out_of_range = || Problem::OutOfRange {
            least: range.start().to_string(),
            most: range.end().to_string(),
            got: number.map_or("beyond 64 bits".to_owned(), |number| number.to_string()),
        };
        number
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(out_of_range)
    }
}

/// A whole number from 1 to `most`.
pub(super) fn positive(most: usize) -> impl Fn(&Node) -> Result<NonZeroUsize, Problem> {
    let count = count(1..=most);
    move |node| {
        let number = NonZeroUsize::new(count(node)?);
        Ok(number.expect("the range starts at 1"))
    }
}

/// A time with its unit, in `range`.
pub(super) fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Node) -> Result<Duration, Problem> {
    move |node| {
        let text = match &node.value {
            Value::Integer(Some(number @ 0..)) => return Err(no_unit(format!("{number}s"))),
            _ => string(node, "a duration, like \"30s\"")?,
        };
        if is_number(text) {
            return Err(no_unit(format!("{text}s")));
        }
        let parsed = humantime::parse_duration(text).map_err(|_| Problem::NotADuration { text: quote(text) })?;
        within(parsed, &range, |duration| show_duration(*duration))
    }
}

/// What `parse` reads, or "none".
pub(super) fn or_none<T>(parse: impl Fn(&Node) -> Result<T, Problem>) -> impl Fn(&Node) -> Result<Option<T>, Problem> {
    or_word("none", parse)
}

/// What `parse` reads, or "off".
pub(super) fn or_off<T>(parse: impl Fn(&Node) -> Result<T, Problem>) -> impl Fn(&Node) -> Result<Option<T>, Problem> {
    or_word("off", parse)
}

fn or_word<T>(
    word: &'static str,
    parse: impl Fn(&Node) -> Result<T, Problem>,
) -> impl Fn(&Node) -> Result<Option<T>, Problem> {
    move |node| match &node.value {
        Value::Text(text) if text == word => Ok(None),
        // A bound is lifted and a thing is switched off; whoever mixes the two up should not have to search.
        Value::Text(text) if text == "none" || text == "off" => {
            Err(Problem::OtherWord { text: quote(text), write: word })
        }
        _ => parse(node).map(Some),
    }
}

/// A number of bytes with its unit, in `range`.
pub(super) fn size(range: RangeInclusive<u64>) -> impl Fn(&Node) -> Result<u64, Problem> {
    move |node| {
        let text = match &node.value {
            Value::Integer(Some(number @ 0..)) => {
                return Err(no_unit(size_hint(&number.to_string())));
            }
            _ => string(node, "a size, like \"4MiB\"")?,
        };
        if is_number(text) {
            return Err(no_unit(size_hint(text)));
        }
        let parsed: ByteSize = text.parse().map_err(|_| Problem::NotASize { text: quote(text) })?;
        within(parsed.as_u64(), &range, |bytes| show_size(*bytes))
    }
}

fn no_unit(write: String) -> Problem {
    Problem::NoUnit { write }
}

/// Digits only, and few enough that somebody meant them.
fn is_number(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn size_hint(number: &str) -> String {
    number.parse().map_or_else(|_| format!("{number}B"), show_size)
}

/// An address to serve gRPC at: with a slash or after `unix:` a path, else IP and port.
pub(super) fn listen(node: &Node) -> Result<Listen, Problem> {
    let text = string(node, "an address, like \"127.0.0.1:50051\"")?;
    let not_an_address = || Problem::NotAListenAddress { text: quote(text) };
    let path = match text.strip_prefix("unix:") {
        Some(path) => path.strip_prefix("//").unwrap_or(path),
        None if text.contains('/') => text,
        None => return text.parse().map(Listen::Tcp).map_err(|_| not_an_address()),
    };
    if path.is_empty() {
        return Err(not_an_address());
    }
    if path.contains('\0') {
        return Err(Problem::Nul);
    }
    short_path(Path::new(path), MOST_SOCKET_PATH, "fit in a socket's path")?;
    Ok(Listen::Unix(PathBuf::from(path)))
}

/// Fails if `path` takes more than `most` bytes; `reason` completes "at most 107 bytes ...".
pub(super) fn short_path(path: &Path, most: usize, reason: &'static str) -> Result<(), Problem> {
    let bytes = path.as_os_str().len();
    if bytes <= most {
        return Ok(());
    }
    Err(Problem::PathTooLong { path: quote(&path.to_string_lossy()), bytes, most, reason })
}

/// An address to serve HTTP at, or "off".
pub(super) fn http(node: &Node) -> Result<Option<SocketAddr>, Problem> {
    match string(node, "an address, like \"127.0.0.1:9090\", or \"off\"")? {
        "off" => Ok(None),
        text => match text.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => Err(Problem::NotAnHttpAddress { text: quote(text) }),
        },
    }
}

/// A path, made absolute from `base`.
pub(super) fn path(base: &Path) -> impl Fn(&Node) -> Result<PathBuf, Problem> {
    move |node| {
        let joined = base.join(text(node)?);
        // This fails only if the process has no working directory left; then the path is as good as
        // any.
        Ok(std::path::absolute(&joined).unwrap_or(joined))
    }
}

/// The form of a user's name; whether there is such a user is for the launcher to find out.
pub(super) fn user(node: &Node) -> Result<String, Problem> {
    let name = string(node, "a Unix user name")?;
    if is_account(name) { Ok(name.to_owned()) } else { Err(Problem::NotAUser { text: quote(name) }) }
}

/// The same of a group.
pub(super) fn group(node: &Node) -> Result<String, Problem> {
    let name = string(node, "a Unix group name")?;
    if is_account(name) { Ok(name.to_owned()) } else { Err(Problem::NotAGroup { text: quote(name) }) }
}

fn is_account(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && name.len() <= 32 && name.chars().all(allowed)
}

/// The name of a variable that a worker may be given.
pub(super) fn variable_name(name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Problem::NotAVariableName { text: quote(name) });
    }
    if name.starts_with("REMUDA_") {
        return Err(Problem::ReservedVariable);
    }
    Ok(())
}

pub(super) fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// In the largest unit that loses nothing.
pub(super) fn show_size(bytes: u64) -> String {
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

pub(super) fn show_listen(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => {
            let path = path.to_string_lossy();
            if path.contains('/') && !path.starts_with("unix:") { path.into_owned() } else { format!("unix:{path}") }
        }
    }
}
