//! Protobuf for all services of this server, with small buffers: thousands of calls may wait for their next event.

use std::marker::PhantomData;

use bytes::BufMut;
use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// First size of a call's buffer. tonic's 8 KiB would be more than half of what a waiting call costs.
const BUFFER_BYTES: usize = 768;
/// Messages that are ready are gathered up to this size before they are sent.
const BATCH_BYTES: usize = 32 * 1024;
/// tonic's prefix of a message: a flag and its length.
const PREFIX_BYTES: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct SmallBufferCodec<T, U>(PhantomData<(T, U)>);

/// Encodes messages into buffers that begin as large as the last one became.
#[derive(Debug)]
pub(crate) struct SizedEncoder<T> {
    /// Bytes in the buffer that is being filled, and the room that it says is left.
    filled: usize,
    remaining: usize,
    messages: PhantomData<T>,
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, BATCH_BYTES)
}

impl<T, U> Default for SmallBufferCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBufferCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        SizedEncoder { filled: 0, remaining: usize::MAX, messages: PhantomData }
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}

impl<T: Message> Encoder for SizedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let length = item.encoded_len();
        // A buffer that was sent leaves an empty one behind, which would grow by doubling: a tenth of a message's cost.
        if buffer.remaining_mut() > self.remaining {
            let expected = 2 * std::mem::take(&mut self.filled);
            buffer.reserve(length + PREFIX_BYTES + expected.min(BATCH_BYTES));
        } else {
            buffer.reserve(length);
        }
        item.encode_raw(buffer);
        self.filled += PREFIX_BYTES + length;
        self.remaining = buffer.remaining_mut();
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}
