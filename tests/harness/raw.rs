//! HTTP/2 by hand, for frames that no library would send.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use prost::Message;

use super::DEADLINE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of a call, each field written out.
pub(crate) fn call(path: &str) -> Vec<u8> {
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

pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
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
pub(crate) fn connect(address: &str, settings: &[(u16, u32)]) -> TcpStream {
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
pub(crate) struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// The next frame; `None` when the connection has ended, or when nothing came for as long as the socket waits.
pub(crate) fn next_frame(mut stream: &TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some(Frame { kind: head[3], flags: head[4], payload })
}

/// The error code of the GOAWAY with which the server ends the connection; `None` if it just ends.
pub(crate) fn farewell(stream: &TcpStream) -> Option<u32> {
    let frames = std::iter::from_fn(|| next_frame(stream));
    let goodbyes = frames.filter(|frame| frame.kind == GOAWAY);
    goodbyes.map(|frame| u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())).last()
}

/// Makes a call whose answer is one message, and gives that message; `None` if the call was refused.
pub(crate) fn unary<M: Message + Default>(
    mut stream: &TcpStream,
    id: u32,
    path: &str,
    message: &impl Message,
) -> Option<M> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let frames = [frame(HEADERS, END_HEADERS, id, &call(path)), frame(DATA, END_STREAM, id, &body)].concat();
    stream.write_all(&frames).unwrap();
    let mut answer = Vec::new();
    loop {
        let frame = next_frame(stream).expect("a call is answered");
        match frame.kind {
            DATA => answer.extend(frame.payload),
            HEADERS if frame.flags & END_STREAM != 0 => break,
            _ => {}
        }
    }
    (!answer.is_empty()).then(|| M::decode(&answer[5..]).expect("an answer is a message"))
}
