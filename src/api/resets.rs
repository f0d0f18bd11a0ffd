//! Counts the calls that a client takes back before they are looked at, in the bytes as they come: what a flood of these
//! would cost is not spent on them.

use std::time::{Duration, Instant};

/// How many a client may take back in a second. One who has never had a call let through may do so with few, or each new
/// connection would cost as much as a crowd of calls. Someone who stops many calls at once has mostly been heard before.
const AT_FIRST: usize = 32;
const SETTLED: usize = 128;
const WINDOW: Duration = Duration::from_secs(1);

/// What a client sends before its first frame.
pub(super) const PREFACE: usize = 24;
/// Length, kind, flags and stream.
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;

/// What is known of a client's frames.
#[derive(Debug)]
pub(super) struct Resets {
    /// How many bytes there are to come before the next frame.
    missing: usize,
    head: [u8; HEAD],
    /// How much of the head has come.
    known: usize,
    /// The last stream that was opened, and the last of those that have been looked at.
    opened: u32,
    seen: u32,
    /// How many of the others were taken back, and since when they are counted.
    unseen: usize,
    since: Option<Instant>,
}

impl Resets {
    pub(super) fn new() -> Self {
        Self { missing: PREFACE, head: [0; HEAD], known: 0, opened: 0, seen: 0, unseen: 0, since: None }
    }

    /// There was nothing to read for a moment, so that the calls so far are looked at.
    pub(super) fn pause(&mut self) {
        self.seen = self.opened;
    }

    /// Whether the client has taken back too many calls with these bytes.
    pub(super) fn are_too_many_with(&mut self, mut bytes: &[u8], settled: impl FnOnce() -> bool) -> bool {
        let before = self.unseen;
        while !bytes.is_empty() {
            let of_frame = bytes.len().min(self.missing);
            self.missing -= of_frame;
            bytes = &bytes[of_frame..];
            let of_head = bytes.len().min(HEAD - self.known);
            self.head[self.known..][..of_head].copy_from_slice(&bytes[..of_head]);
            self.known += of_head;
            bytes = &bytes[of_head..];
            if self.known == HEAD {
                self.known = 0;
                self.begin_frame();
            }
        }
        self.unseen > before && self.have_become_too_many(before, settled)
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, _flags, stream @ ..] = self.head;
        self.missing = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream);
        match kind {
            HEADERS => self.opened = self.opened.max(stream),
            RST_STREAM if stream > self.seen => self.unseen += 1,
            _ => {}
        }
    }

    fn have_become_too_many(&mut self, before: usize, settled: impl FnOnce() -> bool) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= WINDOW) {
            self.since = Some(Instant::now());
            self.unseen -= before;
        }
        self.unseen > AT_FIRST && (self.unseen > SETTLED || !settled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, 4]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// So many calls, each taken back at once, after what every client says first.
    fn taken_back(count: usize) -> Vec<u8> {
        let mut bytes = [&[b'P'; PREFACE][..], &frame(4, 0, &[0; 6])].concat();
        for stream in (1..).step_by(2).take(count) {
            bytes.extend(frame(HEADERS, stream, &[RST_STREAM; 100]));
            bytes.extend(frame(RST_STREAM, stream, &[0; 4]));
        }
        bytes
    }

    #[test]
    fn who_has_settled_may_take_back_more_and_nobody_any_number() {
        for (count, new, settled) in [(32, false, false), (33, true, false), (128, true, false), (129, true, true)] {
            let bytes = taken_back(count);
            assert_eq!(Resets::new().are_too_many_with(&bytes, || false), new, "{count}");
            assert_eq!(Resets::new().are_too_many_with(&bytes, || true), settled, "{count}");
        }
    }

    #[test]
    fn they_are_found_however_the_bytes_come() {
        for size in [1, 2, 7, 9, 100, 1_000] {
            let mut resets = Resets::new();
            let bytes = taken_back(129);
            let found = bytes.chunks(size).position(|part| resets.are_too_many_with(part, || true));
            assert_eq!(found, Some((bytes.len() - 4).div_ceil(size) - 1), "in pieces of {size}");
        }
    }

    #[test]
    fn calls_that_were_looked_at_may_be_stopped_all_at_once() {
        let mut resets = Resets::new();
        let streams = (1..2_000).step_by(2);
        let calls: Vec<u8> = streams.clone().flat_map(|stream| frame(HEADERS, stream, &[0; 100])).collect();
        let stops: Vec<u8> = streams.flat_map(|stream| frame(RST_STREAM, stream, &[0; 4])).collect();
        assert!(!resets.are_too_many_with(&[&[0; PREFACE], &calls[..]].concat(), || false));
        resets.pause();
        assert!(!resets.are_too_many_with(&stops, || false));
    }

    #[test]
    fn those_of_long_ago_do_not_count() {
        let mut resets = Resets::new();
        assert!(!resets.are_too_many_with(&taken_back(AT_FIRST), || false));
        resets.since = Instant::now().checked_sub(WINDOW);
        let again = frame(RST_STREAM, 65, &[0; 4]);
        assert!(!resets.are_too_many_with(&again.repeat(AT_FIRST), || false));
        assert!(resets.are_too_many_with(&again, || false));
    }
}
