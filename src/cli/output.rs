//! Where words and data go: data to standard output, words about it to standard error.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};

use super::exit::Failure;

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BUSY: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// Writes text for a person, at once. Colours reach a terminal only, and not if `NO_COLOR` is set.
pub(super) fn text(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes one line of data as it is, at once.
pub(super) fn line(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(Failure::Output)
}

/// Writes words for a person beside the data.
pub(super) fn words(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Says something that is worth knowing.
pub(super) fn note(words: &str) {
    say(BOLD, "note", words);
}

/// Says what may go wrong.
pub(super) fn warning(words: &str) {
    say(BUSY.bold(), "warning", words);
}

/// Says what went wrong.
pub(super) fn error(words: &str) {
    say(BAD.bold(), "error", words);
}

/// Where not even standard error can be written to, there is nobody to tell.
fn say(style: Style, label: &str, words: &str) {
    let words = printable(words);
    let _ = writeln!(anstream::stderr(), "{style}{label}:{style:#} {words}");
}

/// A text from elsewhere without the control characters that could make a terminal do things; lines stay lines.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            let _ = write!(clean, "{}", c.escape_default());
        } else {
            clean.push(c);
        }
    }
    Cow::Owned(clean)
}

/// A JSON text on one line. JSON allows no line break inside a string, so each of them is white space.
pub(super) fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { Cow::Owned(json.replace(['\n', '\r'], " ")) } else { Cow::Borrowed(json) }
}
