//! The answer to a call, and how it is sent: as fast as the client takes it.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{SendStream, server::SendResponse};
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame};
use tonic::{Status, body::Body};

use super::{
    events::Events,
    grpc::{Reply, trailers},
};

/// The first piece of an answer is handed to the connection without asking whether the client has room for it, if it is not
/// longer than this. Most answers are one such piece.
const UNASKED: usize = 16 * 1024;

/// The body of an answer.
#[derive(Default)]
pub(super) enum Answer {
    Events(Events),
    Reply(Reply),
    /// Of a service that tonic serves.
    Other(Body),
    /// All has been said in the headers.
    #[default]
    Nothing,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Events(events) => Pin::new(events).poll_frame(context),
            Self::Reply(reply) => Pin::new(reply).poll_frame(context),
            Self::Other(body) => Pin::new(body).poll_frame(context),
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Events(events) => events.is_end_stream(),
            Self::Reply(reply) => reply.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
            Self::Nothing => true,
        }
    }
}

/// Sends an answer to its end; fails if the client leaves before. `note` is told of the headers and of the trailers.
pub(super) async fn send(
    response: Response<Answer>,
    mut respond: SendResponse<Bytes>,
    mut note: impl FnMut(&HeaderMap),
) -> Result<(), h2::Error> {
    let (head, mut body) = response.into_parts();
    if let Answer::Events(events) = &mut body {
        poll_fn(|context| match events.poll_company(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => gone(respond.poll_reset(context)),
        })
        .await?;
    }
    note(&head.headers);
    let over = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(head, ()), over)?;
    drop(respond);
    if over {
        return Ok(());
    }
    let mut body = pin!(body);
    let mut first = true;
    loop {
        let frame = match poll_fn(|context| next(body.as_mut(), &mut stream, context)).await? {
            Some(Ok(frame)) => frame,
            Some(Err(status)) => Frame::trailers(trailers(Some(&status))),
            None => return stream.send_data(Bytes::new(), true),
        };
        let frame = match frame.into_data() {
            Ok(data) => {
                if !std::mem::take(&mut first) || data.len() > UNASKED {
                    room(&mut stream).await?;
                }
                stream.send_data(data, false)?;
                continue;
            }
            Err(frame) => frame,
        };
        if let Ok(trailers) = frame.into_trailers() {
            note(&trailers);
            return stream.send_trailers(trailers);
        }
    }
}

type NextFrame = Option<Result<Frame<Bytes>, Status>>;

/// What is to be sent next.
fn next(
    body: Pin<&mut Answer>,
    stream: &mut SendStream<Bytes>,
    context: &mut Context<'_>,
) -> Poll<Result<NextFrame, h2::Error>> {
    match body.poll_frame(context) {
        Poll::Ready(frame) => Poll::Ready(Ok(frame)),
        Poll::Pending => gone(stream.poll_reset(context)),
    }
}

/// Waits until the client has room for some of what comes next.
async fn room(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    stream.reserve_capacity(1);
    poll_fn(|context| {
        while stream.capacity() == 0 {
            match stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Err(h2::Reason::CANCEL.into())),
                Poll::Pending => return gone(stream.poll_reset(context)),
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Fails when the client takes its call back, and never succeeds.
fn gone<T>(reset: Poll<Result<h2::Reason, h2::Error>>) -> Poll<Result<T, h2::Error>> {
    let reason = ready!(reset)?;
    Poll::Ready(Err(reason.into()))
}
