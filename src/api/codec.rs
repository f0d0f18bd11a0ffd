//! The protobuf codec of all services, with small buffers: thousands of calls may wait for their next event.

use std::marker::PhantomData;

use bytes::BufMut;
use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Initial size of a call's buffer. tonic's 8 KiB would be more than half of the memory of a waiting call.
const INITIAL_BUFFER_BYTES: usize = 768;
/// Size up to which messages that are ready are gathered before they are sent.
const SEND_BATCH_BYTES: usize = 32 * 1024;
/// Length of tonic's prefix of a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct SmallBufferCodec<T, U>(PhantomData<(T, U)>);

/// Encodes messages into buffers with twice the size of the last one.
#[derive(Debug)]
pub(crate) struct SizedEncoder<T> {
    /// Bytes in the current buffer, and the capacity that it reported as left.
    filled: usize,
    remaining: usize,
    messages: PhantomData<T>,
}

fn buffers() -> BufferSettings {
    BufferSettings::new(INITIAL_BUFFER_BYTES, SEND_BATCH_BYTES)
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
        // After a send the buffer is empty and would grow by doubling, which costs a tenth of a message.
        if buffer.remaining_mut() > self.remaining {
            let expected = 2 * std::mem::take(&mut self.filled);
            buffer.reserve(length + PREFIX_BYTES + expected.min(SEND_BATCH_BYTES));
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
