//! Errors of the worker protocol, in words that the worker's author can act on.

use thiserror::Error;

use super::names::FrameType;

/// Bytes of an offending line that an error quotes: enough to recognise it, short enough for a log line.
const QUOTE_MAX_BYTES: usize = 120;

/// A breach of the worker protocol. Its worker gets no further query.
///
/// `quote` is the start of the offending line, made printable: at most 120 bytes of it, invalid
/// UTF-8 replaced, control characters escaped, "…" appended if there was more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("line is longer than the {limit} bytes of max_line_bytes; line began: {quote}")]
    LineTooLong { limit: usize, quote: String },

    #[error("connection ended in the middle of a line, before its newline; line began: {quote}")]
    EndedMidLine { quote: String },

    #[error("line is not valid UTF-8 at column {column}; line began: {quote}")]
    InvalidUtf8 { column: usize, quote: String },

    #[error("invalid JSON at column {column}: {reason}; line began: {quote}")]
    InvalidJson { column: usize, reason: String, quote: String },

    #[error("frame is not a JSON object; line began: {quote}")]
    NotAnObject { quote: String },

    #[error("frame has the field \"{field}\" twice; line began: {quote}")]
    DuplicateField { field: &'static str, quote: String },

    #[error("frame has no \"type\" that is a string; known: {}; line began: {quote}", FrameType::all_names())]
    MissingType { quote: String },

    /// `found` is made printable and cut like a quote.
    #[error("unknown frame type \"{found}\"; known: {}; line began: {quote}", FrameType::all_names())]
    UnknownType { found: String, quote: String },

    #[error("\"{frame_type}\" frame lacks the field \"{field}\"; line began: {quote}")]
    MissingField { frame_type: FrameType, field: &'static str, quote: String },

    #[error("field \"{field}\" of a \"{frame_type}\" frame must be {expected}; line began: {quote}")]
    WrongFieldType { frame_type: FrameType, field: &'static str, expected: &'static str, quote: String },

    #[error("worker sent \"ready\" a second time; it must send it once, as its first frame")]
    SecondReady,

    #[error("worker sent \"{frame_type}\" before \"ready\"; its first frame must be \"ready\"")]
    NotReady { frame_type: FrameType },

    #[error("worker speaks protocol version {got}, but this pool speaks only version {supported}")]
    UnsupportedVersion { got: u32, supported: u32 },
}

/// Makes the start of `line` printable for an error.
pub(super) fn quote(line: &[u8]) -> String {
    let Some(start) = line.get(..QUOTE_MAX_BYTES).filter(|start| start.len() < line.len()) else {
        return printable(&String::from_utf8_lossy(line));
    };
    // The cut may have split a character, whose remains would look like invalid UTF-8 from the worker.
    let start = String::from_utf8_lossy(start);
    printable(start.trim_end_matches(char::REPLACEMENT_CHARACTER)) + "…"
}

fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_line_is_quoted_whole() {
        assert_eq!(quote(br#"{"type":"x"}"#), r#"{"type":"x"}"#);
        assert_eq!(quote(&[b'a'; QUOTE_MAX_BYTES]), "a".repeat(QUOTE_MAX_BYTES));
    }

    #[test]
    fn long_line_is_cut_and_marked() {
        assert_eq!(quote(&[b'a'; QUOTE_MAX_BYTES + 1]), "a".repeat(QUOTE_MAX_BYTES) + "…");
    }

    #[test]
    fn cut_never_leaves_half_a_character() {
        let line = format!("a{}", "é".repeat(QUOTE_MAX_BYTES));
        assert_eq!(quote(line.as_bytes()), format!("a{}…", "é".repeat(QUOTE_MAX_BYTES / 2 - 1)));
    }

    #[test]
    fn control_characters_are_escaped_and_bad_bytes_replaced() {
        assert_eq!(quote(b"a\tb\x1b[31m\0\xff"), "a\\tb\\u{1b}[31m\\u{0}\u{fffd}");
    }

    #[test]
    fn order_errors_say_what_to_send() {
        let texts = [ProtocolError::SecondReady, ProtocolError::NotReady { frame_type: FrameType::HealthOk }]
            .map(|error| error.to_string());
        assert_eq!(texts[0], r#"worker sent "ready" a second time; it must send it once, as its first frame"#);
        assert_eq!(texts[1], r#"worker sent "health_ok" before "ready"; its first frame must be "ready""#);
        let version = ProtocolError::UnsupportedVersion { got: 7, supported: 1 }.to_string();
        assert_eq!(version, "worker speaks protocol version 7, but this pool speaks only version 1");
    }
}
