//! Cuts the bytes that a worker sends into lines of bounded length.

use std::fmt;
use std::ops::Range;

use bytes::BufMut;
use memchr::memchr;

use super::error::{ProtocolError, quote};

/// Maximum of one read. A Unix socket rarely has more to give at once.
pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Capacity for the first read. Most workers send little at a time, and there may be many of them; a read that fills its
/// capacity doubles it for the next one.
const FIRST_CHUNK_BYTES: usize = 4 * 1024;

/// Capacity that the buffer keeps. A long line makes it grow beyond, until that line has been taken.
const RETAINED_BYTES: usize = 4 * READ_CHUNK_BYTES;

/// Bytes in, lines out. Fill [`spare`](Self::spare) with one read, take lines until there is none,
/// and repeat:
///
/// ```
/// # use bytes::BufMut;
/// # use remuda::protocol::LineBuffer;
/// let mut lines = LineBuffer::new(1024);
/// // With an async reader: `reader.read_buf(&mut lines.spare()).await?`
/// lines.spare().put_slice(b"{\"type\":\"ready\"}\n{\"ty");
/// assert_eq!(lines.next_line()?, Some(&b"{\"type\":\"ready\"}"[..]));
/// assert_eq!(lines.next_line()?, None);
/// assert!(lines.finish().is_err());
/// # Ok::<(), remuda::protocol::ProtocolError>(())
/// ```
///
/// It holds no more than one line of `max_line_bytes`, one read, and 256 KiB of lines that were taken,
/// if all lines are taken between reads. The first error is final: each later call returns it again.
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Start of the first line that has not been taken.
    start: usize,
    /// No newline is between `start` and here, so each byte is looked at once however it arrives.
    scanned: usize,
    max_line_bytes: usize,
    /// Capacity for the next read.
    chunk: usize,
    failure: Option<ProtocolError>,
}

impl LineBuffer {
    /// `max_line_bytes` bounds a line without its ending.
    #[must_use]
    pub fn new(max_line_bytes: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, scanned: 0, max_line_bytes, chunk: FIRST_CHUNK_BYTES, failure: None }
    }

    /// Buffer for the next read. It takes up to [`READ_CHUNK_BYTES`] bytes; its capacity follows the size of the last reads.
    pub fn spare(&mut self) -> impl BufMut {
        if self.bytes.len() == self.bytes.capacity() && !self.bytes.is_empty() {
            self.chunk = READ_CHUNK_BYTES.min(2 * self.chunk);
        }
        self.reserve_chunk();
        (&mut self.bytes).limit(READ_CHUNK_BYTES)
    }

    /// Reserves capacity for a read. A partial line is not moved while the buffer may grow: moving it took a sixth of the time
    /// of a 64 KiB message.
    fn reserve_chunk(&mut self) {
        let is_partial = self.start < self.bytes.len() && self.failure.is_none();
        let may_stay = self.bytes.len() + self.chunk <= RETAINED_BYTES;
        if !(is_partial && may_stay) {
            self.discard_taken();
        }
        self.bytes.reserve(self.chunk);
    }

    /// Frees the capacity beyond that of a first read, if the buffer is empty. To be called now and then.
    pub fn shrink(&mut self) {
        if self.waiting() == 0 && self.bytes.capacity() > FIRST_CHUNK_BYTES {
            self.discard_taken();
            self.bytes.shrink_to(FIRST_CHUNK_BYTES);
            self.chunk = FIRST_CHUNK_BYTES;
        }
    }

    /// The next complete line that is not blank, without its `\n` or `\r\n`.
    ///
    /// # Errors
    ///
    /// A line that is too long, even if its end has not been seen yet.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, ProtocolError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        while let Some(line) = self.take_line() {
            self.check_length(&line)?;
            if !is_blank(&self.bytes[line.clone()]) {
                return Ok(Some(&self.bytes[line]));
            }
        }
        self.check_length(&self.partial_line())?;
        Ok(None)
    }

    /// Number of bytes that have not been taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Checks that the bytes may end here. To be called when [`next_line`](Self::next_line) has found no more.
    ///
    /// # Errors
    ///
    /// The last line lacks its newline, or the buffer has failed before.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let partial = &self.bytes[self.partial_line()];
        if is_blank(partial) { Ok(()) } else { Err(ProtocolError::EndedMidLine { quote: quote(partial) }) }
    }

    fn take_line(&mut self) -> Option<Range<usize>> {
        let Some(offset) = memchr(b'\n', &self.bytes[self.scanned..]) else {
            self.scanned = self.bytes.len();
            return None;
        };
        let newline = self.scanned + offset;
        let line = self.without_return(self.start..newline);
        self.start = newline + 1;
        self.scanned = newline + 1;
        Some(line)
    }

    fn partial_line(&self) -> Range<usize> {
        self.without_return(self.start..self.bytes.len())
    }

    /// A return at the end belongs to the line's ending. In a partial line it may yet turn out to, so that the length check does
    /// not depend on where a read happened to end.
    fn without_return(&self, line: Range<usize>) -> Range<usize> {
        let returns = usize::from(self.bytes[line.clone()].ends_with(b"\r"));
        line.start..line.end - returns
    }

    fn check_length(&mut self, line: &Range<usize>) -> Result<(), ProtocolError> {
        if line.len() <= self.max_line_bytes {
            return Ok(());
        }
        let quote = quote(&self.bytes[line.start..=line.start + self.max_line_bytes]);
        let failure = ProtocolError::LineTooLong { limit: self.max_line_bytes, quote };
        self.failure = Some(failure.clone());
        Err(failure)
    }

    fn discard_taken(&mut self) {
        if self.failure.is_some() {
            // No line will be taken any more, so further reads must not make the buffer grow.
            self.start = self.bytes.len();
            self.scanned = self.bytes.len();
        }
        self.bytes.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if self.bytes.capacity() > RETAINED_BYTES && self.bytes.len() + READ_CHUNK_BYTES <= RETAINED_BYTES {
            self.bytes.shrink_to(RETAINED_BYTES);
        }
    }
}

/// Leaves the bytes out: they may be long and confidential.
impl fmt::Debug for LineBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineBuffer")
            .field("waiting", &self.waiting())
            .field("max_line_bytes", &self.max_line_bytes)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// True if a line holds nothing but white space as JSON defines it.
fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(lines: &mut LineBuffer, bytes: &[u8]) {
        lines.spare().put_slice(bytes);
    }

    /// Takes a line that fills the room for one read, and says how much that was.
    fn fill_room(lines: &mut LineBuffer) -> usize {
        let room = lines.spare().chunk_mut().len();
        let mut spare = lines.spare();
        spare.put_bytes(b'x', room - 1);
        spare.put_slice(b"\n");
        drop(spare);
        assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(room - 1));
        room
    }

    #[test]
    fn capacity_for_reads_grows_with_them_and_is_freed_when_the_buffer_is_empty() {
        let mut lines = LineBuffer::new(READ_CHUNK_BYTES);
        let rooms: Vec<usize> = (0..6).map(|_| fill_room(&mut lines)).collect();
        assert_eq!(rooms, [4, 8, 16, 32, 64, 64].map(|kib| kib * 1024));
        feed(&mut lines, b"half a li");
        lines.shrink();
        assert!(lines.bytes.capacity() >= READ_CHUNK_BYTES, "something waits");
        feed(&mut lines, b"ne\n");
        assert_eq!(lines.next_line().unwrap(), Some(&b"half a line"[..]));
        lines.shrink();
        assert_eq!(lines.bytes.capacity(), FIRST_CHUNK_BYTES);
        assert_eq!(fill_room(&mut lines), FIRST_CHUNK_BYTES);
    }

    fn flood(lines: &mut LineBuffer, byte: u8) {
        lines.spare().put_bytes(byte, READ_CHUNK_BYTES);
    }

    fn take_all(lines: &mut LineBuffer) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lines.next_line().unwrap().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn line_endings_are_stripped_and_blank_lines_skipped() {
        let mut lines = LineBuffer::new(10);
        feed(&mut lines, b"a\n\r\n \t\nb\r\n\nc\r\r\n");
        assert_eq!(take_all(&mut lines), [&b"a"[..], b"b", b"c\r"]);
        assert_eq!(lines.finish(), Ok(()));
    }

    #[test]
    fn line_may_come_in_pieces() {
        let mut lines = LineBuffer::new(10);
        for piece in [&b"ab"[..], b"", b"c\r"] {
            feed(&mut lines, piece);
            assert_eq!(lines.next_line(), Ok(None));
        }
        feed(&mut lines, b"\nd");
        assert_eq!(take_all(&mut lines), [b"abc"]);
    }

    #[test]
    fn end_in_mid_line_quotes_the_line() {
        let mut lines = LineBuffer::new(100);
        feed(&mut lines, b"{}\n{\"type\":\"mess");
        assert_eq!(take_all(&mut lines), [b"{}"]);
        let error = lines.finish().unwrap_err().to_string();
        assert!(error.starts_with("connection ended in the middle of a line, before its newline;"));
        assert!(error.ends_with("; line began: {\"type\":\"mess"));
    }

    #[test]
    fn end_after_trailing_white_space_is_clean() {
        let mut lines = LineBuffer::new(10);
        feed(&mut lines, b"a\n  \r");
        assert_eq!(take_all(&mut lines), [b"a"]);
        assert_eq!(lines.finish(), Ok(()));
    }

    #[test]
    fn line_of_exactly_the_limit_passes_with_either_ending() {
        let mut lines = LineBuffer::new(4);
        for piece in [&b"abcd\nabcd\r"[..], b"\nabcd", b"\r", b"\n"] {
            feed(&mut lines, piece);
            while let Some(line) = lines.next_line().unwrap() {
                assert_eq!(line, b"abcd");
            }
        }
        assert_eq!(lines.finish(), Ok(()));
    }

    #[test]
    fn line_too_long_fails_before_its_newline_comes() {
        for bytes in [&b"ok\nabcde"[..], b"ok\nabcde\n", b"ok\nabcd\re", b"ok\nabcd\r\r"] {
            let mut lines = LineBuffer::new(4);
            feed(&mut lines, bytes);
            assert_eq!(lines.next_line(), Ok(Some(&b"ok"[..])));
            let error = lines.next_line().unwrap_err();
            assert!(matches!(error, ProtocolError::LineTooLong { limit: 4, .. }), "{error}");
        }
    }

    #[test]
    fn error_about_length_names_the_setting() {
        let mut lines = LineBuffer::new(4);
        feed(&mut lines, b"abcdefgh");
        assert_eq!(
            lines.next_line().unwrap_err().to_string(),
            "line is longer than the 4 bytes of max_line_bytes; line began: abcde"
        );
    }

    #[test]
    fn first_error_is_final_and_later_reads_are_dropped() {
        let mut lines = LineBuffer::new(4);
        feed(&mut lines, b"abcdefgh");
        let error = lines.next_line().unwrap_err();
        for _ in 0..100 {
            flood(&mut lines, b'\n');
            assert_eq!(lines.next_line(), Err(error.clone()));
        }
        assert_eq!(lines.finish(), Err(error));
        assert!(lines.bytes.capacity() <= RETAINED_BYTES);
    }

    #[test]
    fn flood_without_newline_is_bounded_by_the_limit_and_one_read() {
        let limit = 10 * READ_CHUNK_BYTES;
        let mut lines = LineBuffer::new(limit);
        while lines.next_line().is_ok() {
            flood(&mut lines, b'x');
        }
        assert!(lines.bytes.len() <= limit + READ_CHUNK_BYTES);
    }

    #[test]
    fn spare_room_is_one_chunk_even_when_the_buffer_has_grown() {
        let mut lines = LineBuffer::new(usize::MAX);
        for _ in 0..20 {
            assert_eq!(lines.spare().remaining_mut(), READ_CHUNK_BYTES);
            flood(&mut lines, b'x');
        }
    }

    #[test]
    fn buffer_gives_memory_back_after_a_huge_line() {
        let mut lines = LineBuffer::new(usize::MAX);
        for _ in 0..100 {
            flood(&mut lines, b'x');
            assert_eq!(lines.next_line(), Ok(None));
        }
        assert!(lines.bytes.capacity() > RETAINED_BYTES);
        feed(&mut lines, b"\npartial");
        assert_eq!(lines.next_line().unwrap().unwrap().len(), 100 * READ_CHUNK_BYTES);
        feed(&mut lines, b" line\n");
        assert!(lines.bytes.capacity() <= RETAINED_BYTES);
        assert_eq!(take_all(&mut lines), [b"partial line"]);
    }

    #[test]
    fn partial_line_is_scanned_once() {
        let mut lines = LineBuffer::new(usize::MAX);
        for read in 1..=5 {
            feed(&mut lines, b"1234");
            assert_eq!(lines.next_line(), Ok(None));
            assert_eq!(lines.scanned, 4 * read);
        }
    }
}
