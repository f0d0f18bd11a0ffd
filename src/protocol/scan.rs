//! Recognizes the frames that come by the thousand, `message` and `complete`, in a fraction of what a full parse takes.
//!
//! What is found here is what the full parse would find. What is not found here may still be a fine frame, in an unusual form:
//! that is for the full parse to say, and so is everything that is wrong with a line.

use std::borrow::Cow;

use memchr::memchr2;
use simdutf8::basic::from_utf8;

use super::inbound::WorkerFrame;

/// Deeper values are left to the full parse: a bit for each level says what it is.
const MAX_DEPTH: u32 = 63;

/// A frame with just the usual fields, in any order, none of them twice, and no escape in the short ones.
pub(super) fn scan(line: &[u8]) -> Option<WorkerFrame<'_>> {
    let text = plain(line)?;
    let mut cursor = Cursor { bytes: text.as_bytes(), at: 0 };
    let mut fields = Fields::default();
    cursor.expect(b'{')?;
    loop {
        cursor.space();
        fields.take(text, &mut cursor)?;
        cursor.space();
        match cursor.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    cursor.space();
    if cursor.at < cursor.bytes.len() {
        return None;
    }
    fields.frame()
}

/// Whether a text is one JSON value, without line breaks and not too deep. If not, it may still be one.
pub(super) fn is_json(text: &[u8]) -> bool {
    let value = |text: &str| {
        let mut cursor = Cursor { bytes: text.as_bytes(), at: 0 };
        cursor.space();
        cursor.value()?;
        cursor.space();
        (cursor.at == text.len()).then_some(())
    };
    plain(text).and_then(value).is_some()
}

/// The line as text, if it has no control characters. JSON allows those only between tokens, where few put any.
fn plain(line: &[u8]) -> Option<&str> {
    // Without a way out, so that many bytes are looked at in one step.
    let least = line.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if least < b' ' { None } else { from_utf8(line).ok() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Complete,
}

#[derive(Default)]
struct Fields<'a> {
    kind: Option<Kind>,
    request_id: Option<&'a str>,
    content: Option<&'a str>,
    result: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Takes one field, name and value.
    fn take(&mut self, text: &'a str, cursor: &mut Cursor<'a>) -> Option<()> {
        cursor.expect(b'"')?;
        if cursor.eat(b"type\"") {
            cursor.colon()?;
            let kind = match &text[cursor.short_string()?] {
                "message" => Kind::Message,
                "complete" => Kind::Complete,
                _ => return None,
            };
            once(&mut self.kind, kind)
        } else if cursor.eat(b"requestId\"") {
            cursor.colon()?;
            once(&mut self.request_id, &text[cursor.short_string()?])
        } else if cursor.eat(b"content\"") {
            cursor.colon()?;
            once(&mut self.content, &text[cursor.value()?])
        } else if cursor.eat(b"result\"") {
            cursor.colon()?;
            once(&mut self.result, &text[cursor.value()?])
        } else {
            None
        }
    }

    fn frame(self) -> Option<WorkerFrame<'a>> {
        let request_id = Cow::Borrowed(self.request_id?);
        match (self.kind?, self.content, self.result) {
            (Kind::Message, Some(content), None) => Some(WorkerFrame::Message { request_id, content }),
            (Kind::Complete, None, result) => {
                Some(WorkerFrame::Complete { request_id, result: result.unwrap_or("null") })
            }
            _ => None,
        }
    }
}

fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    let first = field.is_none();
    *field = Some(value);
    first.then_some(())
}

/// A place in a line that has no control characters, so that all white space is blanks.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Found = std::ops::Range<usize>;

impl Cursor<'_> {
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

    fn eat(&mut self, text: &[u8]) -> bool {
        let there = self.bytes[self.at..].starts_with(text);
        if there {
            self.at += text.len();
        }
        there
    }

    fn space(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn colon(&mut self) -> Option<()> {
        self.space();
        self.expect(b':')?;
        self.space();
        Some(())
    }

    /// What stands between the quotes of a string that is short and has no escapes.
    fn short_string(&mut self) -> Option<Found> {
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

    /// Skips the rest of a string whose first quote is behind us.
    fn string(&mut self) -> Option<()> {
        loop {
            self.at += memchr2(b'"', b'\\', &self.bytes[self.at..])? + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Some(());
            }
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Option<()> {
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

    /// Skips a value, and says where it stands.
    fn value(&mut self) -> Option<Found> {
        let start = self.at;
        // What we are within, the innermost last: 1 for an object, 0 for an array.
        let (mut within, mut depth) = (0_u64, 0);
        loop {
            match self.next()? {
                b'"' => self.string()?,
                b'{' => {
                    self.space();
                    if self.peek()? == b'}' {
                        self.at += 1;
                    } else {
                        (within, depth) = (within << 1 | 1, deeper(depth)?);
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.space();
                    if self.peek()? == b']' {
                        self.at += 1;
                    } else {
                        (within, depth) = (within << 1, deeper(depth)?);
                        continue;
                    }
                }
                first => self.scalar(first)?,
            }
            // A value has ended, and with it perhaps what it is in.
            loop {
                if depth == 0 {
                    return Some(start..self.at);
                }
                self.space();
                match (self.next()?, within & 1) {
                    (b',', 0) => {
                        self.space();
                        break;
                    }
                    (b',', _) => {
                        self.space();
                        self.name()?;
                        break;
                    }
                    (b']', 0) | (b'}', 1) => (within, depth) = (within >> 1, depth - 1),
                    _ => return None,
                }
            }
        }
    }

    /// Skips the name of a field up to its value.
    fn name(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.string()?;
        self.colon()
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b't' => self.eat(b"rue").then_some(()),
            b'f' => self.eat(b"alse").then_some(()),
            b'n' => self.eat(b"ull").then_some(()),
            b'-' => {
                let first = self.next()?;
                self.number(first)
            }
            digit => self.number(digit),
        }
    }

    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.eat(b".") {
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Some(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Option<()> {
        let start = self.at;
        self.digits();
        (self.at > start).then_some(())
    }
}

fn deeper(depth: u32) -> Option<u32> {
    (depth < MAX_DEPTH).then_some(depth + 1)
}
