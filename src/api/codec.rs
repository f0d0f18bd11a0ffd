//! Protobuf as tonic-prost encodes it, with small buffers: thousands of calls may wait for their next event.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// First size of a call's buffer, which grows as needed. tonic's 8 KiB would be more than half of what a waiting call costs.
const BUFFER_BYTES: usize = 768;
/// Messages that are ready are gathered up to this size before they are sent.
const BATCH_BYTES: usize = 32 * 1024;

/// The codec of all services of this server.
#[derive(Debug, Clone)]
pub(crate) struct SmallBufferCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBufferCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, BATCH_BYTES)
}

impl<T, U> Codec for SmallBufferCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}
