//! `remuda submit`, and the query that `run` and `submit` make of their arguments.

use super::{
    args::{OnDisconnect, QueryArgs, SubmitArgs},
    exit::{Exit, Failure},
    json::{self, Submitted},
    output, payload, words,
};
use crate::{
    api::proto::{DisconnectPolicy, Query, RecoveryPolicy, RecoveryStrategy, SubmitRequest, disconnect_policy::Policy},
    client::{Client, Endpoint},
};

pub(super) async fn submit(server: &Endpoint, args: SubmitArgs) -> Result<Exit, Failure> {
    let query_id = args.query.id.as_ref().map(ToString::to_string).unwrap_or_default();
    let query = Some(query(args.query)?);
    let client = Client::connect(server).await?;
    let accepted = client.submit(SubmitRequest { query_id, query }).await.map_err(Failure::NotAccepted)?;
    if args.json {
        output::line(&json::line(&Submitted::from(&accepted)))?;
        return Ok(Exit::Done);
    }
    output::line(&accepted.query_id)?;
    if accepted.existed {
        output::note(&existed(&accepted.query_id, accepted.state));
    }
    Ok(Exit::Done)
}

/// Reads the payload, which may wait for standard input.
pub(super) fn query(args: QueryArgs) -> Result<Query, Failure> {
    Ok(Query {
        payload: payload::read(&args.payload)?,
        recovery: recovery(&args),
        on_disconnect: args.on_disconnect.map(disconnect_policy),
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

fn disconnect_policy(policy: OnDisconnect) -> DisconnectPolicy {
    let policy = match policy {
        OnDisconnect::Keep => Some(Policy::Keep(true)),
        OnDisconnect::Cancel => Some(Policy::Cancel(true)),
        OnDisconnect::Detach(patience) => patience.try_into().ok().map(Policy::Detach),
    };
    DisconnectPolicy { policy }
}

pub(super) fn existed(query_id: &str, state: i32) -> String {
    format!("query {query_id} was here already ({}) and is not run again", words::query_state(state))
}
