//! The calls of a load generator: a query from its request to its status. The request is encoded once, and of the answer nothing is
//! decoded but what is counted, because the load shares its machine with what it measures.

use std::{future::poll_fn, time::Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{AUTHORIZATION, CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::{Status, body::Body, transport::Channel};
use tower::Service;

use super::{
    Client,
    glance::{Glance, Kind},
    root_cause,
};
use crate::{api::proto, metrics::GRPC_CODES};

const EXECUTE: &str = "/remuda.v1.WorkerPool/Execute";
const SUBMIT: &str = "/remuda.v1.WorkerPool/Submit";

/// Makes the same call again and again.
#[derive(Debug, Clone)]
pub struct Caller {
    channel: Channel,
    uri: Uri,
    headers: HeaderMap,
    /// The request as gRPC frames it.
    frame: Bytes,
    /// Whether the answer must hold a result.
    wants_result: bool,
}

/// What a query that is complete has given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    pub messages: u64,
    /// When the first of them came.
    pub first_message: Option<Instant>,
}

/// A query that did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The name of its gRPC status.
    pub code: &'static str,
    pub message: String,
}

impl Client {
    /// To run the query to its end.
    #[must_use]
    pub fn executing(&self, query: proto::Query) -> Caller {
        let request = proto::ExecuteRequest { query_id: String::new(), query: Some(query) };
        Caller { wants_result: true, ..self.calling(EXECUTE, &request) }
    }

    /// To hand over the query, and wait for no more than that.
    #[must_use]
    pub fn submitting(&self, query: proto::Query) -> Caller {
        let request = proto::SubmitRequest { query_id: String::new(), query: Some(query) };
        self.calling(SUBMIT, &request)
    }

    fn calling(&self, path: &'static str, request: &impl Message) -> Caller {
        let mut headers = HeaderMap::new();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let Some(bearer) = self.endpoint.credentials.bearer_header() {
            headers.insert(AUTHORIZATION, bearer);
        }
        let mut frame = BytesMut::new();
        frame.put_u8(0); // Not compressed.
        frame.put_u32(u32::try_from(request.encoded_len()).expect("no request has 4 GiB"));
        request.encode(&mut frame).expect("the buffer grows");
        let frame = frame.freeze();
        Caller { channel: self.channel.clone(), uri: Uri::from_static(path), headers, frame, wants_result: false }
    }
}

impl Caller {
    pub async fn call(&mut self) -> Result<Heard, Failed> {
        let broken = |error| Failed { code: "UNAVAILABLE", message: root_cause(&error) };
        poll_fn(|context| self.channel.poll_ready(context)).await.map_err(broken)?;
        let answer = self.channel.call(self.request()).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(unknown(&format!("the server answered with HTTP status {}", answer.status())));
        }
        let (parts, mut body) = answer.into_parts();
        let (mut glance, mut heard, mut complete) = (Glance::default(), Heard::default(), false);
        // A call that fails at once has its status here.
        let mut status = Status::from_header_map(&parts.headers);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|status| failed(&status))?;
            match frame.into_data() {
                Ok(data) => glance.at(&data, |kind| match kind {
                    Kind::Message => {
                        heard.messages += 1;
                        heard.first_message.get_or_insert_with(Instant::now);
                    }
                    Kind::Complete => complete = true,
                    Kind::Other => {}
                }),
                Err(frame) => status = frame.trailers_ref().and_then(Status::from_header_map).or(status),
            }
        }
        match status {
            None => Err(unknown("the answer ended without a status")),
            Some(status) if status.code() != tonic::Code::Ok => Err(failed(&status)),
            Some(_) if self.wants_result && !complete => Err(unknown("the answer ended without a result")),
            Some(_) => Ok(heard),
        }
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::new(Full::new(self.frame.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn unknown(message: &str) -> Failed {
    Failed { code: "UNKNOWN", message: message.to_owned() }
}

fn failed(status: &Status) -> Failed {
    let code = usize::try_from(i32::from(status.code())).ok().and_then(|number| GRPC_CODES.get(number).copied());
    let message = match std::error::Error::source(status) {
        Some(cause) => root_cause(cause),
        None => status.message().to_owned(),
    };
    Failed { code: code.unwrap_or("UNKNOWN"), message }
}
