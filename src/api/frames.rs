//! Looks at the heads of a client's frames, as the bytes come, for what does harm: nothing more is spent on it than that.

use std::time::{Duration, Instant};

/// How many calls a client may take back in a second before they are looked at. One who has never had a call let through may
/// do so with few, or each new connection would cost as much as a crowd of calls. Someone who stops many calls at once has
/// mostly been heard before.
const RESETS_AT_FIRST: usize = 32;
const RESETS: usize = 128;
const WINDOW: Duration = Duration::from_secs(1);

/// Metadata that is this many times too large, and this large anyway, is not even refused.
const METADATA: usize = 2;
const MUCH_METADATA: usize = 32 << 10;

/// What a client sends before its first frame.
pub(super) const PREFACE: usize = 24;
/// Length, kind, flags and stream.
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// What a client does to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    Resets,
    Metadata,
}

/// What is known of a client's frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// How many bytes there are to come before the next frame.
    missing: usize,
    head: [u8; HEAD],
    /// How much of the head has come.
    known: usize,
    /// The last stream that was opened, and the last of those that have been looked at.
    opened: u32,
    seen: u32,
    /// How many of the others were taken back, and since when they are counted.
    resets: usize,
    since: Option<Instant>,
    /// The size of the metadata that came last, as it is sent, and what is too much.
    metadata: usize,
    too_much: usize,
}

impl Frames {
    pub(super) fn new(max_metadata_bytes: u64) -> Self {
        let max = usize::try_from(max_metadata_bytes).unwrap_or(usize::MAX);
        Self {
            missing: PREFACE,
            head: [0; HEAD],
            known: 0,
            opened: 0,
            seen: 0,
            resets: 0,
            since: None,
            metadata: 0,
            too_much: max.saturating_mul(METADATA).max(MUCH_METADATA),
        }
    }

    /// There was nothing to read for a moment, so that the calls so far are looked at.
    pub(super) fn pause(&mut self) {
        self.seen = self.opened;
    }

    /// The harm that the client has done with these bytes, if it has.
    pub(super) fn harm(&mut self, mut bytes: &[u8], settled: impl FnOnce() -> bool) -> Option<Harm> {
        let before = self.resets;
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
                if self.metadata > self.too_much {
                    return Some(Harm::Metadata);
                }
            }
        }
        (self.resets > before && self.resets_are_too_many(before, settled)).then_some(Harm::Resets)
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, _flags, stream @ ..] = self.head;
        self.missing = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream);
        match kind {
            HEADERS => {
                self.opened = self.opened.max(stream);
                self.metadata = self.missing;
            }
            CONTINUATION => self.metadata = self.metadata.saturating_add(self.missing),
            RST_STREAM if stream > self.seen => self.resets += 1,
            _ => {}
        }
    }

    fn resets_are_too_many(&mut self, before: usize, settled: impl FnOnce() -> bool) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= WINDOW) {
            self.since = Some(Instant::now());
            self.resets -= before;
        }
        self.resets > RESETS_AT_FIRST && (self.resets > RESETS || !settled())
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
            let harm = |is_settled: bool| Frames::new(16 << 10).harm(&bytes, || is_settled) == Some(Harm::Resets);
            assert_eq!((harm(false), harm(true)), (new, settled), "{count}");
        }
    }

    #[test]
    fn they_are_found_however_the_bytes_come() {
        for size in [1, 2, 7, 9, 100, 1_000] {
            let mut frames = Frames::new(16 << 10);
            let bytes = taken_back(129);
            let found = bytes.chunks(size).position(|part| frames.harm(part, || true).is_some());
            assert_eq!(found, Some((bytes.len() - 4).div_ceil(size) - 1), "in pieces of {size}");
        }
    }

    #[test]
    fn calls_that_were_looked_at_may_be_stopped_all_at_once() {
        let mut frames = Frames::new(16 << 10);
        let streams = (1..2_000).step_by(2);
        let calls: Vec<u8> = streams.clone().flat_map(|stream| frame(HEADERS, stream, &[0; 100])).collect();
        let stops: Vec<u8> = streams.flat_map(|stream| frame(RST_STREAM, stream, &[0; 4])).collect();
        assert_eq!(frames.harm(&[&[0; PREFACE], &calls[..]].concat(), || false), None);
        frames.pause();
        assert_eq!(frames.harm(&stops, || false), None);
    }

    #[test]
    fn those_of_long_ago_do_not_count() {
        let mut frames = Frames::new(16 << 10);
        assert_eq!(frames.harm(&taken_back(RESETS_AT_FIRST), || false), None);
        frames.since = Instant::now().checked_sub(WINDOW);
        let again = frame(RST_STREAM, 65, &[0; 4]);
        assert_eq!(frames.harm(&again.repeat(RESETS_AT_FIRST), || false), None);
        assert_eq!(frames.harm(&again, || false), Some(Harm::Resets));
    }

    #[test]
    fn metadata_that_is_far_too_large_is_not_read_to_its_end() {
        let more = |kind, size: usize| frame(kind, 1, &vec![0; size]);
        let large = [vec![0; PREFACE], more(HEADERS, 16 << 10), more(CONTINUATION, 16 << 10)].concat();
        let mut frames = Frames::new(16 << 10);
        assert_eq!(frames.harm(&large, || true), None);
        assert_eq!(frames.harm(&more(HEADERS, 8 << 10), || true), None);
        assert_eq!(frames.harm(&more(CONTINUATION, 24 << 10), || true), None);
        assert_eq!(frames.harm(&more(CONTINUATION, 1)[..HEAD], || true), Some(Harm::Metadata));
    }
}
