//! `remuda dead`: lists, shows, requeues and purges dead letters.

use std::fmt::Write;

use super::{
    args::{DeadCommand, DeadLetterArgs, DeadListArgs, DeadPurgeArgs, DeadRequeueArgs, DeadShowArgs},
    event,
    exit::{CliError, CliExit},
    format, json,
    list::ListPrinter,
    output::{self, BOLD, printable},
    table::{Cell, Table, properties},
    workers,
};
use crate::{
    api::proto::{
        DeadLetter, FailedAttempt, GetDeadLetterRequest, ListDeadLettersRequest, PurgeDeadLettersRequest,
        RequeueDeadLettersRequest,
    },
    client::{Client, ClientError, Code, Endpoint},
    model::QueryId,
};

/// Smaller than for other lists: a letter comes with its payload and the output of its workers.
const PAGE_SIZE: u32 = 100;
/// Characters of a reason in the table.
const REASON_WIDTH: usize = 60;

pub(super) async fn dead(server: &Endpoint, command: DeadCommand) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    match command {
        DeadCommand::List(args) => list(&client, args).await,
        DeadCommand::Show(args) => show(&client, args).await,
        DeadCommand::Requeue(args) => requeue(&client, args).await,
        DeadCommand::Purge(args) => purge(&client, args).await,
    }
}

async fn list(client: &Client, args: DeadListArgs) -> Result<CliExit, CliError> {
    let kind = args.kind.unwrap_or_default();
    let list = ListPrinter {
        json: args.json,
        limit: args.limit,
        page_size: PAGE_SIZE,
        to_json: json::dead_letter,
        table: table(),
        to_row: row,
        empty_note: "there is no dead letter",
    };
    list.print(async |page_size, page_token| {
        let request = ListDeadLettersRequest { kind: kind.clone(), page_size, page_token };
        let page = client.call(client.admin().list_dead_letters(request)).await?;
        Ok((page.letters, page.next_page_token))
    })
    .await
}

pub(super) fn table() -> Table {
    Table::new(&["ID", "KIND", "TYPE", "ATTEMPTS", "FAILED AT", "REASON"], "<<<><<")
}

pub(super) fn row(letter: &DeadLetter) -> Vec<Cell> {
    let query = letter.query.clone().unwrap_or_default();
    let reason = letter.failures.last().and_then(|last| last.error.as_ref()).map(|error| error.message.as_str());
    vec![
        query.query_id.into(),
        query.kind.into(),
        query.r#type.into(),
        query.attempts.into(),
        format::time(query.ended_at.as_ref()).into(),
        format::first_line(reason.unwrap_or_default(), REASON_WIDTH).into(),
    ]
}

async fn show(client: &Client, args: DeadShowArgs) -> Result<CliExit, CliError> {
    let request = GetDeadLetterRequest { query_id: args.id.to_string() };
    let letter = client.call(client.admin().get_dead_letter(request)).await?.letter.unwrap_or_default();
    output::answer(args.json, || json::dead_letter(&letter), || render_details(&letter))
}

pub(super) fn render_details(letter: &DeadLetter) -> String {
    let query = letter.query.clone().unwrap_or_default();
    let requeued_from = match query.requeued_from.as_str() {
        "" => String::new(),
        first => format!("{first} (its first life: remuda queries {first})"),
    };
    let mut text = properties(&[
        ("query", query.query_id),
        ("state", format::query_state(query.state)),
        ("kind", query.kind),
        ("type", query.r#type),
        ("priority", query.priority.to_string()),
        ("owner", query.owner),
        ("key", query.key),
        ("attempts", query.attempts.to_string()),
        ("requeued from", requeued_from),
        ("submitted", format::time(query.submitted_at.as_ref())),
        ("started", format::time(query.started_at.as_ref())),
        ("failed", format::time(query.ended_at.as_ref())),
        ("payload", output::one_line(&letter.payload).into_owned()),
    ]);
    for failed in &letter.failures {
        let _ = write!(text, "\n{}", attempt(failed));
    }
    text
}

fn attempt(failed: &FailedAttempt) -> String {
    let error = failed.error.clone().unwrap_or_default();
    let (at, reason) = (format::time(failed.at.as_ref()), format::error_reason(error.reason));
    let mut text = format!("{BOLD}attempt {} failed at {at}: {reason}{BOLD:#}\n", failed.attempt);
    let _ = writeln!(text, "  {}", printable(&event::describe_error(&error)));
    if let Some(end) = &error.certificate {
        text.push_str(&workers::stderr_tail(&end.stderr_tail, "  "));
    }
    text
}

async fn requeue(client: &Client, args: DeadRequeueArgs) -> Result<CliExit, CliError> {
    let mut exit = CliExit::Done;
    let mut none = true;
    for DeadLetterCall { ids: query_ids, all, kind } in calls(args.letters) {
        let request = RequeueDeadLettersRequest { query_ids, all, kind };
        match client.call(client.admin().requeue_dead_letters(request)).await {
            Ok(response) => {
                none &= response.requeued.is_empty();
                for requeued in &response.requeued {
                    let text = || format!("{} -> {}\n", requeued.query_id, requeued.new_query_id);
                    output::answer(args.json, || json::requeued(requeued), text)?;
                }
            }
            Err(error) => exit = report_not_found(error).map_err(CliError::NotAccepted)?,
        }
    }
    if none && exit == CliExit::Done {
        output::note("there is no dead letter");
    }
    Ok(exit)
}

async fn purge(client: &Client, args: DeadPurgeArgs) -> Result<CliExit, CliError> {
    let mut exit = CliExit::Done;
    let mut purged = 0;
    for DeadLetterCall { ids: query_ids, all, kind } in calls(args.letters) {
        let request = PurgeDeadLettersRequest { query_ids, all, kind };
        match client.call(client.admin().purge_dead_letters(request)).await {
            Ok(response) => purged += u64::from(response.purged),
            Err(error) => exit = report_not_found(error)?,
        }
    }
    output::text(&format!("purged {}\n", format::plural(purged, "dead letter", "dead letters")))?;
    Ok(exit)
}

/// The letters of one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeadLetterCall {
    pub ids: Vec<String>,
    pub all: bool,
    pub kind: String,
}

/// One call for each id: a call that fails half way does not say what it has done.
pub(super) fn calls(letters: DeadLetterArgs) -> Vec<DeadLetterCall> {
    if letters.all {
        return vec![DeadLetterCall { ids: Vec::new(), all: true, kind: letters.kind.unwrap_or_default() }];
    }
    let one = |id: QueryId| DeadLetterCall { ids: vec![id.to_string()], all: false, kind: String::new() };
    letters.ids.into_iter().map(one).collect()
}

/// Reports a letter that does not exist, so that the command goes on with the others.
fn report_not_found(error: ClientError) -> Result<CliExit, ClientError> {
    match error {
        ClientError::Refused(refusal) if refusal.code == Code::NotFound => {
            output::error(&refusal.to_string());
            Ok(CliExit::Failed)
        }
        error => Err(error),
    }
}
