//! `remuda dead`: the queries that failed for good, to look at, run again or forget.

use std::fmt::Write;

use super::{
    args::{DeadCommand, DeadListArgs, DeadPurgeArgs, DeadRequeueArgs, DeadShowArgs, Letters},
    event,
    exit::{Exit, Failure},
    json, output,
    output::{BOLD, printable},
    table::{Align, Cell, Table, properties},
    words, workers,
};
use crate::{
    api::proto::{
        DeadLetter, FailedAttempt, GetDeadLetterRequest, ListDeadLettersRequest, PurgeDeadLettersRequest,
        RequeueDeadLettersRequest,
    },
    client::{Client, ClientError, Code, Endpoint},
    model::QueryId,
};

/// Fewer at once than of other things: a letter comes with its payload and its workers' last words.
const PAGE: usize = 100;
/// How much of a reason a line of the table has room for.
const REASON_WIDTH: usize = 60;

pub(super) async fn dead(server: &Endpoint, command: DeadCommand) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    match command {
        DeadCommand::List(args) => list(&client, args).await,
        DeadCommand::Show(args) => show(&client, args).await,
        DeadCommand::Requeue(args) => requeue(&client, args).await,
        DeadCommand::Purge(args) => purge(&client, args).await,
    }
}

async fn list(client: &Client, args: DeadListArgs) -> Result<Exit, Failure> {
    let mut request = ListDeadLettersRequest { kind: args.kind.unwrap_or_default(), ..Default::default() };
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut table = Listing::new();
    while left > 0 {
        request.page_size = u32::try_from(left.min(PAGE)).unwrap_or_default();
        let mut page = client.list_dead_letters(request.clone()).await?;
        page.letters.truncate(left);
        left -= page.letters.len();
        if args.json {
            page.letters.iter().try_for_each(|letter| output::line(&json::line(&json::DeadLetter::from(letter))))?;
        } else {
            page.letters.iter().for_each(|letter| table.add(letter));
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    match (args.json, table.is_empty) {
        (true, _) => {}
        (false, true) => output::note("there is no dead letter"),
        (false, false) => output::text(&table.render())?,
    }
    Ok(Exit::Done)
}

/// The letters as a table. It takes them one by one and keeps no more of them than it shows.
#[derive(Debug)]
pub(super) struct Listing {
    table: Table,
    is_empty: bool,
}

impl Listing {
    pub(super) fn new() -> Self {
        let table = Table::new(&[
            ("ID", Align::Left),
            ("KIND", Align::Left),
            ("TYPE", Align::Left),
            ("ATTEMPTS", Align::Right),
            ("FAILED AT", Align::Left),
            ("REASON", Align::Left),
        ]);
        Self { table, is_empty: true }
    }

    pub(super) fn add(&mut self, letter: &DeadLetter) {
        let query = letter.query.clone().unwrap_or_default();
        let reason = letter.failures.last().and_then(|last| last.error.as_ref()).map(|error| error.message.as_str());
        self.table.row([
            Cell::from(&query.query_id),
            Cell::from(&query.kind),
            Cell::from(&query.r#type),
            Cell::from(query.attempts),
            Cell::from(words::time(query.ended_at.as_ref())),
            Cell::from(words::beginning(reason.unwrap_or_default(), REASON_WIDTH)),
        ]);
        self.is_empty = false;
    }

    pub(super) fn render(&self) -> String {
        self.table.render()
    }
}

async fn show(client: &Client, args: DeadShowArgs) -> Result<Exit, Failure> {
    let response = client.get_dead_letter(GetDeadLetterRequest { query_id: args.id.to_string() }).await?;
    let letter = response.letter.unwrap_or_default();
    if args.json {
        output::line(&json::line(&json::DeadLetter::from(&letter)))?;
    } else {
        output::text(&render_one(&letter))?;
    }
    Ok(Exit::Done)
}

pub(super) fn render_one(letter: &DeadLetter) -> String {
    let query = letter.query.clone().unwrap_or_default();
    let requeued_from = match query.requeued_from.as_str() {
        "" => String::new(),
        first => format!("{first} (its first life: remuda queries {first})"),
    };
    let mut text = properties(&[
        ("query", query.query_id),
        ("state", words::query_state(query.state)),
        ("kind", query.kind),
        ("type", query.r#type),
        ("priority", query.priority.to_string()),
        ("owner", query.owner),
        ("key", query.key),
        ("attempts", query.attempts.to_string()),
        ("requeued from", requeued_from),
        ("submitted", words::time(query.submitted_at.as_ref())),
        ("started", words::time(query.started_at.as_ref())),
        ("failed", words::time(query.ended_at.as_ref())),
        ("payload", output::one_line(&letter.payload).into_owned()),
    ]);
    for failed in &letter.failures {
        let _ = write!(text, "\n{}", attempt(failed));
    }
    text
}

fn attempt(failed: &FailedAttempt) -> String {
    let error = failed.error.clone().unwrap_or_default();
    let mut text = format!(
        "{BOLD}attempt {} failed at {}: {}{BOLD:#}\n",
        failed.attempt,
        words::time(failed.at.as_ref()),
        words::error_reason(error.reason)
    );
    let _ = writeln!(text, "  {}", printable(&event::failure(&error)));
    if let Some(end) = &error.certificate {
        text.push_str(&workers::last_words(&end.stderr_tail, "  "));
    }
    text
}

async fn requeue(client: &Client, args: DeadRequeueArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    let mut none = true;
    for request in requests(args.letters) {
        let request = RequeueDeadLettersRequest { query_ids: request.ids, all: request.all, kind: request.kind };
        match client.requeue_dead_letters(request).await {
            Ok(response) => {
                none &= response.requeued.is_empty();
                for requeued in &response.requeued {
                    output::line(&if args.json {
                        json::line(&json::Requeued::from(requeued))
                    } else {
                        format!("{} -> {}", requeued.query_id, requeued.new_query_id)
                    })?;
                }
            }
            Err(error) => exit = go_on(error).map_err(Failure::NotAccepted)?,
        }
    }
    if none && exit == Exit::Done {
        output::note("there is no dead letter");
    }
    Ok(exit)
}

async fn purge(client: &Client, args: DeadPurgeArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    let mut purged = 0;
    for request in requests(args.letters) {
        let request = PurgeDeadLettersRequest { query_ids: request.ids, all: request.all, kind: request.kind };
        match client.purge_dead_letters(request).await {
            Ok(response) => purged += u64::from(response.purged),
            Err(error) => exit = go_on(error)?,
        }
    }
    output::text(&format!("purged {}\n", words::count(purged, "dead letter", "dead letters")))?;
    Ok(exit)
}

/// What one call asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    pub ids: Vec<String>,
    pub all: bool,
    pub kind: String,
}

/// One call for each id: a call that fails half way does not say what it has done.
pub(super) fn requests(letters: Letters) -> Vec<Selection> {
    if letters.all {
        return vec![Selection { ids: Vec::new(), all: true, kind: letters.kind.unwrap_or_default() }];
    }
    let one = |id: QueryId| Selection { ids: vec![id.to_string()], all: false, kind: String::new() };
    letters.ids.into_iter().map(one).collect()
}

/// A letter that is not there is no reason to leave the others alone.
fn go_on(error: ClientError) -> Result<Exit, ClientError> {
    match error {
        ClientError::Refused(refusal) if refusal.code == Code::NotFound => {
            output::error(&refusal.to_string());
            Ok(Exit::Failed)
        }
        error => Err(error),
    }
}
