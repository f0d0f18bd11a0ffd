//! HTTP/2 by hand, for frames that no library would send.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::harness::DEADLINE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_HEADERS: u8 = 4;
pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of a call, each field written out.
pub(super) fn call(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The length of a text: up to 126 in one byte, the rest of more in groups of seven bits.
fn length(length: usize) -> Vec<u8> {
    let Some(mut rest) = length.checked_sub(127) else { return vec![u8::try_from(length).unwrap()] };
    let mut bytes = vec![127];
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// A connection that has introduced itself with these settings.
pub(super) fn connect(address: &str, settings: &[(u16, u32)]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let settings: Vec<u8> =
        settings.iter().flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &settings)).unwrap();
    stream
}

/// A frame that the server has sent.
pub(super) struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// The next frame; `None` when the connection has ended, or when nothing came for as long as the socket waits.
pub(super) fn next_frame(mut stream: &TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some(Frame { kind: head[3], flags: head[4], payload })
}

/// The error code of the GOAWAY with which the server ends the connection; `None` if it just ends.
pub(super) fn farewell(stream: &TcpStream) -> Option<u32> {
    let frames = std::iter::from_fn(|| next_frame(stream));
    let goodbyes = frames.filter(|frame| frame.kind == GOAWAY);
    goodbyes.map(|frame| u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())).last()
}
