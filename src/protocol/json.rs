//! A valid JSON text: checked once, then passed on byte for byte.

use std::fmt;

use bytes::Bytes;
use memchr::{memchr_iter, memchr2_iter, memrchr};
use serde::de::IgnoredAny;
use simdutf8::basic::from_utf8;
use thiserror::Error;

use super::{error::quote, scan::is_json};

/// Deepest nesting of arrays and objects. A reader built on `serde_json` gives up below 127 levels, and the frame around the
/// text is one of them: a deeper payload would break worker after worker.
const JSON_MAX_DEPTH: usize = 126;

/// Exactly one JSON value as text, shared rather than copied by `clone`.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

/// Error of a text that is not acceptable as JSON. Lines count from 1; a column is the number of bytes in its line up to and
/// including the wrong one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    #[error("not valid UTF-8 at line {line} column {column}")]
    InvalidUtf8 { line: usize, column: usize },

    #[error("invalid JSON at line {line} column {column}: {reason}")]
    Invalid { line: usize, column: usize, reason: String },

    #[error("JSON nests deeper than {limit} levels")]
    TooDeep { limit: usize },
}

impl JsonText {
    /// Takes over a text from outside, without copying it and without building a tree.
    ///
    /// # Errors
    ///
    /// A text that is not UTF-8, not exactly one JSON value, or nested too deep for ordinary
    /// readers.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, JsonError> {
        let bytes = text.into();
        if is_json(&bytes) {
            return Ok(Self(bytes));
        }
        let text = str::from_utf8(&bytes).map_err(|error| utf8_error(&bytes[..error.valid_up_to()]))?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| JsonError::Invalid {
            line: error.line(),
            column: error.column(),
            reason: reason(&error),
        })?;
        if nests_deeper(text.as_bytes(), JSON_MAX_DEPTH) {
            return Err(JsonError::TooDeep { limit: JSON_MAX_DEPTH });
        }
        Ok(Self(bytes))
    }

    /// Copies a text that was checked before, such as the raw field of a frame.
    #[must_use]
    pub fn from_checked(text: &str) -> Self {
        debug_assert!(
            serde_json::from_str::<IgnoredAny>(text).is_ok(),
            "text must be JSON: {}",
            quote(text.as_bytes())
        );
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Takes over bytes that were checked before.
    pub(crate) fn from_checked_bytes(bytes: Bytes) -> Self {
        debug_assert!(serde_json::from_slice::<IgnoredAny>(&bytes).is_ok(), "text must be JSON: {}", quote(&bytes));
        Self(bytes)
    }

    /// The text. This checks the UTF-8 again, at the speed of memory; [`Self::as_bytes`] is free.
    #[must_use]
    pub fn as_str(&self) -> &str {
        from_utf8(&self.0).expect("a JSON text is valid UTF-8 from its construction on")
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no JSON text is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Shows the start only, so that a large payload cannot flood a log.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} bytes: {})", self.len(), quote(&self.0))
    }
}

/// The message of a `serde_json` error without the position that it appends.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(position) => text[..position].to_owned(),
        None => text,
    }
}

fn utf8_error(valid: &[u8]) -> JsonError {
    let line_start = memrchr(b'\n', valid).map_or(0, |newline| newline + 1);
    JsonError::InvalidUtf8 { line: memchr_iter(b'\n', valid).count() + 1, column: valid.len() - line_start + 1 }
}

/// True if a valid JSON text nests deeper than `limit`. `serde_json` skips values without recursing, so it does not check.
fn nests_deeper(text: &[u8], limit: usize) -> bool {
    let few_brackets = memchr2_iter(b'[', b'{', text).nth(limit).is_none();
    !few_brackets && depth(text) > limit
}

fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(text: &'static [u8]) -> String {
        JsonText::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn json_value_is_kept_byte_for_byte() {
        for text in ["null", " {\n\"a\" : 1.0e5 }\r\n", "12345678901234567890123", r#""\u00e9\ud800é""#, "1e999"] {
            assert_eq!(JsonText::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn text_is_taken_over_and_cloned_without_a_copy() {
        let text = Bytes::from(String::from(r#"{"a":1}"#));
        let parsed = JsonText::parse(text.clone()).unwrap();
        assert_eq!(parsed.as_bytes().as_ptr(), text.as_ptr());
        assert_eq!(parsed.clone().as_bytes().as_ptr(), text.as_ptr());
    }

    #[test]
    fn error_names_line_and_column() {
        assert_eq!(error_text(b"{\n  \"a\": tru }"), "invalid JSON at line 2 column 11: expected ident");
        assert_eq!(error_text(b"1 2"), "invalid JSON at line 1 column 3: trailing characters");
        assert_eq!(error_text(b""), "invalid JSON at line 1 column 0: EOF while parsing a value");
        assert_eq!(error_text(b"[1,\n\"\xff\"]"), "not valid UTF-8 at line 2 column 2");
    }

    #[test]
    fn raw_newline_inside_a_string_is_refused() {
        assert!(error_text(b"\"a\nb\"").contains("control character"));
    }

    #[test]
    fn depth_is_limited_where_a_whole_frame_would_become_unreadable() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let frame = |payload: &str| serde_json::from_str::<serde_json::Value>(&format!(r#"{{"payload":{payload}}}"#));

        assert!(JsonText::parse(nested(JSON_MAX_DEPTH)).is_ok());
        assert!(frame(&nested(JSON_MAX_DEPTH)).is_ok());

        let error = JsonText::parse(nested(JSON_MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(error.to_string(), "JSON nests deeper than 126 levels");
        assert!(frame(&nested(JSON_MAX_DEPTH + 1)).is_err());

        assert!(JsonText::parse(nested(1_000_000)).is_err());
    }

    #[test]
    fn many_brackets_side_by_side_or_in_strings_are_not_depth() {
        let wide = format!("[{}[]]", "[],".repeat(500));
        let quoted = format!(r#"["\"{}\\"]"#, "[{".repeat(500));
        assert!(JsonText::parse(wide).is_ok());
        assert!(JsonText::parse(quoted).is_ok());
    }

    #[test]
    fn debug_shows_only_the_start() {
        assert_eq!(format!("{:?}", JsonText::from_checked("[1]")), "JsonText(3 bytes: [1])");
        let long = JsonText::from_checked(&format!("[{}1]", "1,".repeat(10_000)));
        assert!(format!("{long:?}").len() < 200);
    }
}
