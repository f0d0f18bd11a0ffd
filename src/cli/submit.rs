//! `remuda submit`, and the query that `run` and `submit` make of their arguments.

use super::{
    args::{QueryArgs, SubmitArgs},
    exit::{CliError, CliExit},
    format, json, output, payload,
};
use crate::{
    api::proto::{DisconnectPolicy, Query, RecoveryPolicy, RecoveryStrategy, SubmitRequest},
    client::{Client, Endpoint},
};

pub(super) async fn submit(server: &Endpoint, args: SubmitArgs) -> Result<CliExit, CliError> {
    let query_id = args.query.id.as_ref().map(ToString::to_string).unwrap_or_default();
    let query = Some(query(args.query)?);
    let client = Client::connect(server).await?;
    let accepted = client.call(client.pool().submit(SubmitRequest { query_id, query })).await;
    let accepted = accepted.map_err(CliError::NotAccepted)?;
    if args.json {
        output::line(json::submitted(&accepted).get())?;
        return Ok(CliExit::Done);
    }
    output::line(&accepted.query_id)?;
    if accepted.existed {
        output::note(&existed(&accepted.query_id, accepted.state));
    }
    Ok(CliExit::Done)
}

/// Reads the payload, which may wait for standard input.
pub(super) fn query(args: QueryArgs) -> Result<Query, CliError> {
    Ok(Query {
        payload: payload::read(&args.payload)?,
        recovery: recovery(&args),
        on_disconnect: args.on_disconnect.map(|policy| DisconnectPolicy { policy: Some(policy) }),
        kind: args.kind.unwrap_or_default(),
        r#type: args.query_type.unwrap_or_default(),
        priority: args.priority,
        key: args.key.unwrap_or_default(),
        owner: args.owner.unwrap_or_default(),
        timeout: args.timeout.and_then(|timeout| timeout.try_into().ok()),
        queue_timeout: args.queue_timeout.and_then(|timeout| timeout.try_into().ok()),
        session_id: args.session.unwrap_or_default(),
        capabilities: args.capability,
        reject_if_busy: args.reject_if_busy,
    })
}

fn recovery(args: &QueryArgs) -> Option<RecoveryPolicy> {
    let policy = |strategy: RecoveryStrategy, attempts| RecoveryPolicy { strategy: strategy.into(), attempts };
    match args.retry {
        Some(attempts) => Some(policy(RecoveryStrategy::Retry, attempts)),
        None if args.no_retry => Some(policy(RecoveryStrategy::Reject, 0)),
        None => None,
    }
}

pub(super) fn existed(query_id: &str, state: i32) -> String {
    format!("query {query_id} was here already ({}) and is not run again", format::query_state(state))
}
