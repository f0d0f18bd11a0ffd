//! A fast path for the most frequent frames, `message` and `complete`, in a fraction of the time of a full parse.
//!
//! A frame found here is the one that the full parse would find. A line that is not recognized here may still be a valid frame
//! in an unusual form; the full parse decides, and reports errors.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;
use simdutf8::basic::from_utf8;

use super::worker_frame::WorkerFrame;

/// Deeper values are left to the full parse: one bit of a `u64` tells for each level whether it is an object.
const SCAN_MAX_DEPTH: u32 = 63;

/// Recognizes a frame with only the usual fields, in any order, none twice, and no escape in the short ones.
pub(super) fn scan(line: &[u8]) -> Option<WorkerFrame<'_>> {
    let text = without_controls(line)?;
    let mut cursor = JsonCursor { bytes: text.as_bytes(), at: 0 };
    let mut fields = ScannedFields::default();
    cursor.expect(b'{')?;
    loop {
        cursor.skip_spaces();
        fields.read_field(text, &mut cursor)?;
        cursor.skip_spaces();
        match cursor.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    cursor.skip_spaces();
    if cursor.at < cursor.bytes.len() {
        return None;
    }
    fields.frame()
}

/// True if a text is one JSON value without line breaks and not too deep. If false, it may still be a JSON value.
pub(super) fn is_json(text: &[u8]) -> bool {
    let value = |text: &str| {
        let mut cursor = JsonCursor { bytes: text.as_bytes(), at: 0 };
        cursor.skip_spaces();
        cursor.skip_value()?;
        cursor.skip_spaces();
        (cursor.at == text.len()).then_some(())
    };
    without_controls(text).and_then(value).is_some()
}

/// The line as text, if it has no control characters. JSON allows those only between tokens, where they are rare.
fn without_controls(line: &[u8]) -> Option<&str> {
    // No early exit, so that the loop is vectorized.
    let least = line.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if least < b' ' { None } else { from_utf8(line).ok() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScannedType {
    Message,
    Complete,
}

#[derive(Default)]
struct ScannedFields<'a> {
    frame_type: Option<ScannedType>,
    request_id: Option<&'a str>,
    content: Option<&'a str>,
    result: Option<&'a str>,
}

impl<'a> ScannedFields<'a> {
    /// Reads one field, name and value.
    fn read_field(&mut self, text: &'a str, cursor: &mut JsonCursor<'a>) -> Option<()> {
        cursor.expect(b'"')?;
        if cursor.skip_if(b"type\"") {
            cursor.skip_colon()?;
            let frame_type = match &text[cursor.short_string()?] {
                "message" => ScannedType::Message,
                "complete" => ScannedType::Complete,
                _ => return None,
            };
            set_once(&mut self.frame_type, frame_type)
        } else if cursor.skip_if(b"requestId\"") {
            cursor.skip_colon()?;
            set_once(&mut self.request_id, &text[cursor.short_string()?])
        } else if cursor.skip_if(b"content\"") {
            cursor.skip_colon()?;
            set_once(&mut self.content, &text[cursor.skip_value()?])
        } else if cursor.skip_if(b"result\"") {
            cursor.skip_colon()?;
            set_once(&mut self.result, &text[cursor.skip_value()?])
        } else {
            None
        }
    }

    fn frame(self) -> Option<WorkerFrame<'a>> {
        let request_id = Cow::Borrowed(self.request_id?);
        match (self.frame_type?, self.content, self.result) {
            (ScannedType::Message, Some(content), None) => Some(WorkerFrame::Message { request_id, content }),
            (ScannedType::Complete, None, result) => {
                Some(WorkerFrame::Complete { request_id, result: result.unwrap_or("null") })
            }
            _ => None,
        }
    }
}

fn set_once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// Position in a line that has no control characters, so that all white space is blanks.
struct JsonCursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl JsonCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_if(&mut self, text: &[u8]) -> bool {
        let there = self.bytes[self.at..].starts_with(text);
        if there {
            self.at += text.len();
        }
        there
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn skip_colon(&mut self) -> Option<()> {
        self.skip_spaces();
        self.expect(b':')?;
        self.skip_spaces();
        Some(())
    }

    /// The text between the quotes of a short string without escapes.
    fn short_string(&mut self) -> Option<Range<usize>> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.next()? {
                b'"' => return Some(start..self.at - 1),
                b'\\' => return None,
                _ => {}
            }
        }
    }

    /// Skips the rest of a string after its first quote.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            self.at += memchr2(b'"', b'\\', &self.bytes[self.at..])? + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Some(());
            }
            self.skip_escape()?;
        }
    }

    fn skip_escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    /// Skips a value and returns its range.
    ///
    /// The loop is a parser without recursion: `nesting` holds one bit for each open array (0) or object (1), the innermost last.
    /// A value may close any number of them; then either a comma leads to the next value, or the outermost value is complete.
    fn skip_value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let (mut nesting, mut depth) = (0_u64, 0);
        loop {
            match self.next()? {
                b'"' => self.skip_string()?,
                b'{' => {
                    self.skip_spaces();
                    if self.peek()? == b'}' {
                        self.at += 1;
                    } else {
                        (nesting, depth) = (nesting << 1 | 1, deepen(depth)?);
                        self.skip_name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.skip_spaces();
                    if self.peek()? == b']' {
                        self.at += 1;
                    } else {
                        (nesting, depth) = (nesting << 1, deepen(depth)?);
                        continue;
                    }
                }
                first => self.skip_scalar(first)?,
            }
            loop {
                if depth == 0 {
                    return Some(start..self.at);
                }
                self.skip_spaces();
                match (self.next()?, nesting & 1) {
                    (b',', 0) => {
                        self.skip_spaces();
                        break;
                    }
                    (b',', _) => {
                        self.skip_spaces();
                        self.skip_name()?;
                        break;
                    }
                    (b']', 0) | (b'}', 1) => (nesting, depth) = (nesting >> 1, depth - 1),
                    _ => return None,
                }
            }
        }
    }

    /// Skips the name of a field and the colon.
    fn skip_name(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.skip_string()?;
        self.skip_colon()
    }

    fn skip_scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b't' => self.skip_if(b"rue").then_some(()),
            b'f' => self.skip_if(b"alse").then_some(()),
            b'n' => self.skip_if(b"ull").then_some(()),
            b'-' => {
                let first = self.next()?;
                self.skip_number(first)
            }
            digit => self.skip_number(digit),
        }
    }

    fn skip_number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        if self.skip_if(b".") {
            self.skip_some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.skip_some_digits()?;
        }
        Some(())
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn skip_some_digits(&mut self) -> Option<()> {
        let start = self.at;
        self.skip_digits();
        (self.at > start).then_some(())
    }
}

fn deepen(depth: u32) -> Option<u32> {
    (depth < SCAN_MAX_DEPTH).then_some(depth + 1)
}
