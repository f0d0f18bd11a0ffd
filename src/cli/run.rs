//! `remuda run`: a query from its payload to its end, cancelled if the user loses interest.

use std::{future::Future, io, pin::pin, time::Duration};

use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use super::{
    args::RunArgs,
    cancel,
    event::Show,
    exit::{Exit, Failure},
    output,
    stream::Reading,
    submit,
};
use crate::{
    api::proto::{CancelFound, CancelRequest, ExecuteRequest},
    client::{Client, ClientError, Code, Endpoint},
    model::QueryId,
};

/// How long a cancel may take before a second signal counts.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn run(server: &Endpoint, args: RunArgs) -> Result<Exit, Failure> {
    // The id is made here, so that the query can be cancelled whatever has been heard of it.
    let id = args.query.id.clone().unwrap_or_else(QueryId::generate).to_string();
    let policy = args.query.on_disconnect;
    let query = Some(submit::query(args.query)?);
    let client = Client::connect(server).await?;
    let request = ExecuteRequest { query_id: id.clone(), query };
    let work = execute(&client, request, Show::of(args.events));
    let ended = until_interrupted(&client, &id, work).await;
    // Who has said what shall happen then has said it to the server.
    if policy.is_none() && ended.as_ref().is_err_and(Failure::is_broken_pipe) {
        let _ = client.cancel(cancel_request(&id, "nobody reads its output any more")).await;
    }
    ended
}

async fn execute(client: &Client, request: ExecuteRequest, show: Show) -> Result<Exit, Failure> {
    let (accepted, events) = client.execute(request).await.map_err(Failure::NotAccepted)?;
    if accepted.existed {
        output::note(&submit::existed(&accepted.query_id, accepted.state));
    }
    Reading { query_id: accepted.query_id, show, next: 0 }.finish(events).await
}

/// Does the work. The first Ctrl-C or SIGTERM cancels the query; a second one does not wait for anything.
async fn until_interrupted(
    client: &Client,
    id: &str,
    work: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen().map_err(Failure::system)?;
    let mut work = pin!(work);
    select! {
        ended = &mut work => return ended,
        () = interrupts.next() => {}
    }
    let cancelled = select! {
        cancelled = interrupt(client, id) => cancelled?,
        () = interrupts.again() => return Ok(Exit::Cancelled),
    };
    if cancelled {
        return Ok(Exit::Cancelled);
    }
    // It had ended before: what is left to read tells how.
    select! {
        ended = work => ended,
        () = interrupts.again() => Ok(Exit::Cancelled),
    }
}

/// Cancels the query; `false` if it was over already.
async fn interrupt(client: &Client, id: &str) -> Result<bool, Failure> {
    match client.cancel(cancel_request(id, "interrupted on the command line")).await {
        Ok(response) => {
            output::note(&cancel::found(id, response));
            Ok(response.found() != CancelFound::Ended)
        }
        Err(ClientError::Refused(refusal)) if refusal.code == Code::NotFound => {
            output::note("interrupted before the query was accepted");
            Ok(true)
        }
        Err(error) => Err(Failure::Call(error)),
    }
}

fn cancel_request(id: &str, reason: &str) -> CancelRequest {
    CancelRequest { query_id: id.to_owned(), reason: reason.to_owned() }
}

/// Ctrl-C, and what `timeout` and service managers send.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) {
        select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// The next one after a while: some senders, like `timeout`, signal twice and mean it once.
    async fn again(&mut self) {
        sleep(PATIENCE).await;
        self.next().await;
    }
}
