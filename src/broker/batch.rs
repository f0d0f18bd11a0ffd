//! Messages that arrived together, kept in one block of memory, so that a small message costs little more than its bytes.

use std::{cell::RefCell, fmt, mem, ops::Range, time::SystemTime};

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::protocol::{JsonText, READ_CHUNK_BYTES};

use super::Output;

/// A message of this size or more stays out of batches: sharing a block saves it nothing and costs a second copy.
pub const BATCH_MAX_ITEM_BYTES: usize = 16 * 1024;

/// Blocks that each thread keeps for reuse.
const FREE_BLOCKS_MAX: usize = 16;

/// Several messages of one query. Each is an event.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageBatch {
    /// Sequence number of the first message; the others follow. The log sets it, the attempt and the time.
    pub first: u64,
    pub attempt: u32,
    pub at: SystemTime,
    /// The JSON texts, one after another.
    bytes: Vec<u8>,
    /// End of each text; it begins where the one before it ends.
    ends: Vec<usize>,
}

/// Collects the messages of one read.
#[derive(Debug, Default)]
pub struct MessageBatchBuilder {
    /// The first message, while it is the only one.
    first: Option<JsonText>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl MessageBatchBuilder {
    /// Copies a text that was checked before. `expected_bytes` estimates the size of the whole batch.
    pub fn push_checked(&mut self, text: &str, expected_bytes: usize) {
        if self.first.is_none() && self.ends.is_empty() {
            self.first = Some(JsonText::from_checked(text));
            return;
        }
        if let Some(first) = self.first.take() {
            self.bytes = allocate_block(expected_bytes);
            self.push_bytes(first.as_bytes());
        }
        debug_assert!(serde_json::from_str::<IgnoredAny>(text).is_ok(), "text must be JSON");
        self.push_bytes(text.as_bytes());
    }

    fn push_bytes(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// The messages since the last call: one by itself, or several as a batch.
    pub fn take(&mut self) -> Option<Output> {
        if let Some(only) = self.first.take() {
            return Some(Output::Message(only));
        }
        if self.ends.is_empty() {
            return None;
        }
        let (mut bytes, ends) = (mem::take(&mut self.bytes), mem::take(&mut self.ends));
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
        }
        Some(Output::Messages(MessageBatch { first: 0, attempt: 0, at: SystemTime::UNIX_EPOCH, bytes, ends }))
    }
}

impl MessageBatch {
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch has at least two messages")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn sequence(&self, index: usize) -> u64 {
        self.first + index as u64
    }

    /// Size of the messages in a range, in bytes.
    #[must_use]
    pub fn size(&self, range: Range<usize>) -> usize {
        self.start(range.end) - self.start(range.start)
    }

    #[must_use]
    pub fn message(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index)..self.ends[index]]
    }

    /// A copy of one message.
    #[must_use]
    pub fn json_text(&self, index: usize) -> JsonText {
        JsonText::from_checked_bytes(Bytes::copy_from_slice(self.message(index)))
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

impl Drop for MessageBatch {
    fn drop(&mut self) {
        free_block(mem::take(&mut self.bytes));
    }
}

/// Leaves the texts out: there may be many.
impl fmt::Debug for MessageBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageBatch({} messages, {} bytes)", self.len(), self.bytes.len())
    }
}

thread_local! {
    /// Blocks of [`READ_CHUNK_BYTES`] bytes for reuse. The allocator searches long for a place of that size among all that is kept
    /// of ended queries.
    static FREE_BLOCKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn allocate_block(bytes: usize) -> Vec<u8> {
    if bytes < READ_CHUNK_BYTES / 2 {
        return Vec::with_capacity(bytes);
    }
    let free = FREE_BLOCKS.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    free.unwrap_or_else(|| Vec::with_capacity(READ_CHUNK_BYTES))
}

fn free_block(mut block: Vec<u8>) {
    if block.capacity() == READ_CHUNK_BYTES {
        block.clear();
        // Fails in a thread that is ending, which keeps nothing.
        let _ = FREE_BLOCKS.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_BLOCKS_MAX {
                free.push(block);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 4] = ["1", r#"{"a":[]}"#, "null", r#""é""#];

    fn built(texts: &[&str], expected_bytes: usize) -> Option<Output> {
        let mut builder = MessageBatchBuilder::default();
        for text in texts {
            builder.push_checked(text, expected_bytes);
        }
        let output = builder.take();
        assert_eq!(builder.take(), None);
        output
    }

    #[test]
    fn batch_returns_each_message() {
        let Some(Output::Messages(batch)) = built(&TEXTS, 4) else { panic!("there are several") };
        assert_eq!((batch.len(), batch.size(0..4)), (4, 17));
        for (index, text) in TEXTS.iter().enumerate() {
            assert_eq!(batch.json_text(index).as_str(), *text);
            assert_eq!(batch.message(index), text.as_bytes());
        }
        assert_eq!((batch.size(1..3), batch.size(2..2)), (12, 0));
    }

    #[test]
    fn single_message_makes_no_batch() {
        assert_eq!(built(&["22"], 4), Some(Output::Message(JsonText::parse("22").unwrap())));
        assert_eq!(built(&[], 4), None);
    }

    #[test]
    fn reused_block_holds_the_new_messages_only() {
        let large = "7".repeat(READ_CHUNK_BYTES / 3);
        for texts in [[large.as_str(), "1", "2"], ["3", &large, "4"], ["5", "6", &large]] {
            let Some(Output::Messages(batch)) = built(&texts, READ_CHUNK_BYTES) else { panic!("there are several") };
            assert_eq!([0, 1, 2].map(|index| batch.json_text(index)), texts.map(JsonText::from_checked));
        }
    }
}
