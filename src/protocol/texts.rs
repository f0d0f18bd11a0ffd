//! JSON texts that came together: one block of memory for all of them, so that each costs little more than its bytes.

use std::{fmt, ops::Range};

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::{JsonText, error::quote};

/// A text of at least this length is better kept and sent by itself: there is nothing to save, and it need not be copied again.
pub const ALONE: usize = 16 * 1024;

/// Several JSON texts, one after another.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonTexts {
    bytes: Vec<u8>,
    /// Where each of them ends; it begins where the one before it ends.
    ends: Vec<usize>,
}

/// Puts texts together that come one by one.
#[derive(Debug, Default)]
pub struct Gathering {
    /// The first of them, for as long as it is the only one.
    first: Option<JsonText>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// What was put together.
#[derive(Debug, PartialEq, Eq)]
pub enum Gathered {
    One(JsonText),
    Several(JsonTexts),
}

impl Gathering {
    /// Copies a text that was checked before. All that are put together will hardly take more than `bytes`.
    pub fn add_checked(&mut self, text: &str, bytes: usize) {
        if self.ends.is_empty() && self.first.is_none() {
            self.first = Some(JsonText::from_checked(text));
            return;
        }
        debug_assert!(
            serde_json::from_str::<IgnoredAny>(text).is_ok(),
            "text must be JSON: {}",
            quote(text.as_bytes())
        );
        if let Some(first) = self.first.take() {
            self.bytes = blocks::with_capacity(bytes);
            self.push(first.as_bytes());
        }
        self.push(text.as_bytes());
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// All that was added since the last time.
    pub fn take(&mut self) -> Option<Gathered> {
        if let Some(one) = self.first.take() {
            return Some(Gathered::One(one));
        }
        if self.ends.is_empty() {
            return None;
        }
        let (mut bytes, ends) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.ends));
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
        }
        Some(Gathered::Several(JsonTexts { bytes, ends }))
    }
}

impl Drop for JsonTexts {
    fn drop(&mut self) {
        blocks::give_back(std::mem::take(&mut self.bytes));
    }
}

/// Memory of one size that goes from one use to the next. The allocator takes long to find a place for as much among all that
/// is kept of ended queries.
mod blocks {
    use std::cell::RefCell;

    use crate::protocol::READ_CHUNK;

    /// What each thread keeps at most.
    const KEPT: usize = 16;

    thread_local! {
        static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn with_capacity(bytes: usize) -> Vec<u8> {
        if bytes < READ_CHUNK / 2 {
            return Vec::with_capacity(bytes);
        }
        let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        free.unwrap_or_else(|| Vec::with_capacity(READ_CHUNK))
    }

    pub(super) fn give_back(mut block: Vec<u8>) {
        if block.capacity() == READ_CHUNK {
            block.clear();
            // A thread that is ending keeps nothing.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < KEPT {
                    free.push(block);
                }
            });
        }
    }
}

impl JsonTexts {
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there are always several")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of those in a range.
    #[must_use]
    pub fn bytes_of(&self, range: &Range<usize>) -> usize {
        self.begin(range.end) - self.begin(range.start)
    }

    #[must_use]
    pub fn as_bytes(&self, index: usize) -> &[u8] {
        &self.bytes[self.begin(index)..self.ends[index]]
    }

    /// A copy of one of them.
    #[must_use]
    pub fn text(&self, index: usize) -> JsonText {
        JsonText::from_checked_bytes(Bytes::copy_from_slice(self.as_bytes(index)))
    }

    fn begin(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// Leaves the texts out: there may be many.
impl fmt::Debug for JsonTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonTexts({} of {} bytes)", self.len(), self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::READ_CHUNK;

    const TEXTS: [&str; 4] = ["1", r#"{"a":[]}"#, "null", r#""é""#];

    fn gathered(texts: &[&str]) -> Option<Gathered> {
        let mut gathering = Gathering::default();
        for text in texts {
            gathering.add_checked(text, 4);
        }
        let gathered = gathering.take();
        assert_eq!(gathering.take(), None);
        gathered
    }

    #[test]
    fn each_text_is_found_again() {
        let Some(Gathered::Several(all)) = gathered(&TEXTS) else { panic!("there are several") };
        assert_eq!((all.len(), all.bytes()), (4, 17));
        for (index, text) in TEXTS.iter().enumerate() {
            assert_eq!(all.text(index).as_str(), *text);
            assert_eq!(all.as_bytes(index), text.as_bytes());
        }
        assert_eq!((all.bytes_of(&(1..3)), all.bytes_of(&(0..4)), all.bytes_of(&(2..2))), (12, 17, 0));
    }

    #[test]
    fn one_text_stands_by_itself() {
        assert_eq!(gathered(&["22"]), Some(Gathered::One(JsonText::parse("22").unwrap())));
        assert_eq!(gathered(&[]), None);
    }

    #[test]
    fn memory_that_was_given_back_holds_the_next_texts_only() {
        let large = "7".repeat(READ_CHUNK / 3);
        for texts in [[large.as_str(), "1", "2"], ["3", &large, "4"], ["5", "6", &large]] {
            let mut gathering = Gathering::default();
            for text in texts {
                gathering.add_checked(text, READ_CHUNK);
            }
            let Some(Gathered::Several(all)) = gathering.take() else { panic!("there are several") };
            assert_eq!([0, 1, 2].map(|index| all.text(index)), texts.map(JsonText::from_checked));
        }
    }
}
