//! The protocol as a whole: golden transcripts, malformed frames, and properties over generated
//! ones.

mod golden;
mod malformed;
mod properties;
mod scan;

use bytes::BytesMut;

use super::PoolFrame;

fn encoded(frame: &PoolFrame<'_>) -> String {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    String::from_utf8(out.to_vec()).unwrap()
}
