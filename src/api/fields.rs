//! The short protobuf fields before a text, put together on the stack.

use prost::encoding::{WireType, encoded_len_varint};

/// The fields before a text, put together on the stack and appended in one go: appending byte by byte asks for room each time.
#[derive(Debug)]
pub(super) struct Head {
    bytes: [u8; Head::CAPACITY],
    length: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; Self::CAPACITY], length: 0 }
    }
}

impl Head {
    /// Seven keys, a sequence number of ten bytes and five numbers of five, and a timestamp, which is written with its slack.
    const CAPACITY: usize = 7 + 10 + 5 * 5 + Self::TIMESTAMP;
    /// Two keys and numbers of ten and five bytes; more, so that it is copied in whole words.
    const TIMESTAMP: usize = 24;

    /// The key and length of a message.
    pub(super) fn of(field: u8, length: usize) -> Self {
        let mut head = Self::default();
        head.length(field, length);
        head
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends a timestamp, copying a fixed number of bytes: all of it, and some that the next field overwrites.
    pub(super) fn timestamp(&mut self, timestamp: &Self) {
        self.bytes[self.length..][..Self::TIMESTAMP].copy_from_slice(&timestamp.bytes[..Self::TIMESTAMP]);
        self.length += timestamp.length;
    }

    /// Zero is not sent.
    pub(super) fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.put(field << 3, value);
        }
    }

    pub(super) fn length(&mut self, field: u8, length: usize) {
        self.put(field << 3 | WireType::LengthDelimited as u8, length as u64);
    }

    /// Appends a key and a number, which is mostly short.
    #[inline]
    fn put(&mut self, key: u8, value: u64) {
        if value < 1 << 7 {
            self.push([key, low_bits(value)]);
        } else if value < 1 << 14 {
            self.push([key, low_bits(value) | 0x80, low_bits(value >> 7)]);
        } else {
            self.put_long(key, value);
        }
    }

    fn put_long(&mut self, key: u8, mut value: u64) {
        self.push([key]);
        while value >= 0x80 {
            self.push([low_bits(value) | 0x80]);
            value >>= 7;
        }
        self.push([low_bits(value)]);
    }

    #[inline]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.length..][..N].copy_from_slice(&bytes);
        self.length += N;
    }
}

fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

/// Size of a field with a length; its key takes one byte, as all keys here do.
pub(super) fn delimited(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// Size of a field with a number; zero is not sent.
pub(super) fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}
