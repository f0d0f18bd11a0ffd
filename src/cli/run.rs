//! `remuda run`: runs a query and prints its events; an interrupt cancels it.

use std::{future::Future, io, pin::pin, time::Duration};

use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use super::{
    args::RunArgs,
    cancel,
    event::EventView,
    exit::{CliError, CliExit},
    output,
    stream::EventPrinter,
    submit,
};
use crate::{
    api::proto::{CancelFound, CancelRequest, ExecuteRequest},
    client::{Client, ClientError, Code, Endpoint},
    model::QueryId,
};

/// Time after an interrupt during which further signals are ignored.
const INTERRUPT_DEBOUNCE: Duration = Duration::from_secs(1);

pub(super) async fn run(server: &Endpoint, args: RunArgs) -> Result<CliExit, CliError> {
    // The id is made here, so that the query can be cancelled before the server has answered.
    let id = args.query.id.clone().unwrap_or_else(QueryId::generate).to_string();
    let has_policy = args.query.on_disconnect.is_some();
    let query = Some(submit::query(args.query)?);
    let client = Client::connect(server).await?;
    let request = ExecuteRequest { query_id: id.clone(), query };
    let work = execute(&client, request, EventView::new(args.events));
    let ended = until_interrupted(&client, &id, work).await;
    // With --on-disconnect, the server knows what to do.
    if !has_policy && ended.as_ref().is_err_and(CliError::is_broken_pipe) {
        let _ = client.call(client.pool().cancel(cancel_request(&id, "its output has no reader any more"))).await;
    }
    ended
}

async fn execute(client: &Client, request: ExecuteRequest, view: EventView) -> Result<CliExit, CliError> {
    let (accepted, events) = client.execute(request).await.map_err(CliError::NotAccepted)?;
    if accepted.existed {
        output::note(&submit::existed(&accepted.query_id, accepted.state));
    }
    EventPrinter { query_id: accepted.query_id, view, next: 0 }.print_all(events).await
}

/// Awaits the work. The first Ctrl-C or SIGTERM cancels the query; a second one ends the command at once.
async fn until_interrupted(
    client: &Client,
    id: &str,
    work: impl Future<Output = Result<CliExit, CliError>>,
) -> Result<CliExit, CliError> {
    let mut interrupts = Interrupts::listen().map_err(CliError::system)?;
    let mut work = pin!(work);
    select! {
        ended = &mut work => return ended,
        () = interrupts.next() => {}
    }
    let cancelled = select! {
        cancelled = interrupt(client, id) => cancelled?,
        () = interrupts.again() => return Ok(CliExit::Cancelled),
    };
    if cancelled {
        return Ok(CliExit::Cancelled);
    }
    // The query had ended already: its last events are still to be printed.
    select! {
        ended = work => ended,
        () = interrupts.again() => Ok(CliExit::Cancelled),
    }
}

/// Cancels the query; returns false if it had ended already.
async fn interrupt(client: &Client, id: &str) -> Result<bool, CliError> {
    match client.call(client.pool().cancel(cancel_request(id, "interrupted on the command line"))).await {
        Ok(response) => {
            output::note(&cancel::describe(id, response));
            Ok(response.found() != CancelFound::Ended)
        }
        Err(ClientError::Refused(refusal)) if refusal.code == Code::NotFound => {
            output::note("interrupted before the query was accepted");
            Ok(true)
        }
        Err(error) => Err(CliError::Call(error)),
    }
}

fn cancel_request(id: &str, reason: &str) -> CancelRequest {
    CancelRequest { query_id: id.to_owned(), reason: reason.to_owned() }
}

/// SIGINT, as Ctrl-C sends it, and SIGTERM, as `timeout` and service managers do.
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

    /// The next one after a while: some senders, like `timeout`, signal twice at once.
    async fn again(&mut self) {
        sleep(INTERRUPT_DEBOUNCE).await;
        self.next().await;
    }
}
