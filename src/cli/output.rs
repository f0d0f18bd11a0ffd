//! Printing: data to standard output, everything else to standard error.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};

use super::{
    exit::{CliError, CliExit},
    json::Json,
};

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BUSY: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// Prints the answer to a command: as a line of JSON, or as text for people.
pub(super) fn answer(
    as_json: bool,
    json: impl FnOnce() -> Json,
    for_people: impl FnOnce() -> String,
) -> Result<CliExit, CliError> {
    if as_json {
        line(json().get())?;
    } else {
        text(&for_people())?;
    }
    Ok(CliExit::Done)
}

/// Writes text for people and flushes it. Colours reach a terminal only, and not if `NO_COLOR` is set.
pub(super) fn text(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Writes one line of data as it is and flushes it.
pub(super) fn line(line: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(CliError::Output)
}

/// Writes text for people to standard error.
pub(super) fn stderr_text(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

pub(super) fn note(text: &str) {
    labelled(BOLD, "note", text);
}

pub(super) fn warning(text: &str) {
    labelled(BUSY.bold(), "warning", text);
}

pub(super) fn error(text: &str) {
    labelled(BAD.bold(), "error", text);
}

/// Ignores a failed write to standard error: there is no place left to report it.
fn labelled(style: Style, label: &str, text: &str) {
    let _ = writeln!(anstream::stderr(), "{style}{label}:{style:#} {}", printable(text));
}

/// Text from elsewhere with control characters escaped, except for line breaks and tabs: it must not control the terminal.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let must_escape = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(must_escape) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if must_escape(c) {
            let _ = write!(clean, "{}", c.escape_default());
        } else {
            clean.push(c);
        }
    }
    Cow::Owned(clean)
}

/// JSON text on one line. JSON allows no line break inside a string, so each of them is white space.
pub(super) fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { Cow::Owned(json.replace(['\n', '\r'], " ")) } else { Cow::Borrowed(json) }
}
