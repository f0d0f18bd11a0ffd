//! Encoding of the short protobuf fields before a text.

use prost::encoding::{WireType, encoded_len_varint};

/// The fields before a text, built on the stack and appended at once: appending byte by byte checks the capacity each time.
#[derive(Debug)]
pub(super) struct FieldPrefix {
    bytes: [u8; FieldPrefix::CAPACITY],
    length: usize,
}

impl Default for FieldPrefix {
    fn default() -> Self {
        Self { bytes: [0; Self::CAPACITY], length: 0 }
    }
}

impl FieldPrefix {
    /// Seven keys, a sequence number of ten bytes, five numbers of five bytes, and a timestamp with its padding.
    const CAPACITY: usize = 7 + 10 + 5 * 5 + Self::TIMESTAMP_BYTES;
    /// Two keys and numbers of ten and five bytes, padded so that they are copied in whole words.
    const TIMESTAMP_BYTES: usize = 24;

    /// The key and length of a message.
    pub(super) fn of_message(field: u8, length: usize) -> Self {
        let mut prefix = Self::default();
        prefix.length(field, length);
        prefix
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends a timestamp, copying a fixed number of bytes; the next field overwrites the padding.
    pub(super) fn timestamp(&mut self, timestamp: &Self) {
        self.bytes[self.length..][..Self::TIMESTAMP_BYTES].copy_from_slice(&timestamp.bytes[..Self::TIMESTAMP_BYTES]);
        self.length += timestamp.length;
    }

    /// Appends a number; zero is not encoded.
    pub(super) fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.put(field << 3, value);
        }
    }

    pub(super) fn length(&mut self, field: u8, length: usize) {
        self.put(field << 3 | WireType::LengthDelimited as u8, length as u64);
    }

    /// Appends a key and a number, which is short in most cases.
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

/// Encoded size of a length-delimited field. Its key takes one byte, as all keys here do.
pub(super) fn delimited_size(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// Encoded size of a numeric field; zero is not encoded.
pub(super) fn number_size(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}
