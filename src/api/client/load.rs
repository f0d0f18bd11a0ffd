//! The calls of a load generator: a query from its request to its status, of which nothing is kept but what is counted.

use std::time::Instant;

use http::uri::PathAndQuery;
use tonic::{Request, Status, client::Grpc};
use tonic_prost::ProstCodec;

use super::{Authorized, Client, root_cause};
use crate::{api::proto, metrics::CODES};

const EXECUTE: PathAndQuery = PathAndQuery::from_static("/remuda.v1.WorkerPool/Execute");
const SUBMIT: PathAndQuery = PathAndQuery::from_static("/remuda.v1.WorkerPool/Submit");

/// Makes one call after the other.
#[derive(Debug, Clone)]
pub struct Caller {
    grpc: Grpc<Authorized>,
}

/// What a query that is complete has given.
#[derive(Debug, Clone, Copy, Default)]
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

/// An `ExecuteResponse` of which only the kind of its event is read; the rest is passed over without a copy.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(message, optional, tag = "2")]
    event: Option<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Event {
    #[prost(message, optional, tag = "5")]
    message: Option<()>,
    #[prost(message, optional, tag = "7")]
    complete: Option<()>,
}

impl Client {
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller { grpc: Grpc::new(self.channel()).max_decoding_message_size(usize::MAX) }
    }
}

impl Caller {
    /// Runs a query to its end.
    pub async fn execute(&mut self, request: proto::ExecuteRequest) -> Result<Heard, Failed> {
        self.ready().await?;
        let codec = ProstCodec::<proto::ExecuteRequest, Response>::default();
        let answer = self.grpc.server_streaming(Request::new(request), EXECUTE, codec).await;
        let mut stream = answer.map_err(|status| failed(&status))?.into_inner();
        let (mut heard, mut complete) = (Heard::default(), false);
        while let Some(response) = stream.message().await.map_err(|status| failed(&status))? {
            let event = response.event.unwrap_or_default();
            complete |= event.complete.is_some();
            if event.message.is_some() {
                heard.messages += 1;
                heard.first_message.get_or_insert_with(Instant::now);
            }
        }
        let cut_off = || Failed { code: "UNKNOWN", message: "the stream ended without a result".to_owned() };
        complete.then_some(heard).ok_or_else(cut_off)
    }

    /// Hands over a query, and waits for no more than that.
    pub async fn submit(&mut self, request: proto::SubmitRequest) -> Result<Heard, Failed> {
        self.ready().await?;
        let codec = ProstCodec::<proto::SubmitRequest, ()>::default();
        let answer = self.grpc.unary(Request::new(request), SUBMIT, codec).await;
        answer.map(|_| Heard::default()).map_err(|status| failed(&status))
    }

    async fn ready(&mut self) -> Result<(), Failed> {
        let broken = |error| Failed { code: "UNAVAILABLE", message: root_cause(&error) };
        self.grpc.ready().await.map_err(broken)
    }
}

fn failed(status: &Status) -> Failed {
    let code = usize::try_from(i32::from(status.code())).ok().and_then(|number| CODES.get(number).copied());
    let message = match std::error::Error::source(status) {
        Some(cause) => root_cause(cause),
        None => status.message().to_owned(),
    };
    Failed { code: code.unwrap_or("UNKNOWN"), message }
}
