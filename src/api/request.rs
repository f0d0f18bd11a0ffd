//! Validation of requests: every field is checked, and every error is reported.

use std::time::Duration;

use tonic::Status;

use crate::{
    config::Recovery,
    model::{QueryId, QueryOptions, QuerySpec},
    pool::{DeadLetterSelection, QueryRequest, ScaleTarget},
    protocol::JsonText,
    state::QueryState,
};

use super::{
    convert::query_state_from_proto,
    errors::{Violations, invalid},
    proto::{self, RecoveryStrategy, disconnect_policy::Policy, scale_kind_request::Target},
};

const PRIORITY_MAX: u32 = 1_000;
const NAME_MAX_BYTES: usize = 256;
const ATTEMPTS_MAX: u32 = 100;
const CAPABILITIES_MAX: usize = 16;
const CAPABILITY_MAX_BYTES: usize = 64;
const REASON_MAX_BYTES: usize = 1_024;
const DURATION_MAX: Duration = Duration::from_hours(365 * 24);
const PAGE_SIZE_MAX: u32 = 1_000;
const PAGE_SIZE_DEFAULT: u32 = 100;
const SELECTED_IDS_MAX: usize = 1_000;

/// Reads a query and its id. `default_abandon_after` applies if the query has no disconnect policy.
pub(super) fn query(
    id: &str,
    query: Option<proto::Query>,
    default_abandon_after: Option<Duration>,
) -> Result<QueryRequest, Status> {
    let Some(query) = query else {
        return Err(invalid("query", "is missing; it holds the payload to run"));
    };
    let mut found = Violations::default();
    let id = optional_id(id, &mut found);
    let payload = payload(query.payload, &mut found);
    if query.priority > PRIORITY_MAX {
        let problem = format!("is {}; at most {PRIORITY_MAX} is allowed, 0 is served first", query.priority);
        found.add("query.priority", problem);
    }
    let kind = name("query.kind", query.kind, &mut found);
    let query_type = name("query.type", query.r#type, &mut found);
    let key = name("query.key", query.key, &mut found);
    let owner = name("query.owner", query.owner, &mut found);
    let session_id = name("query.session_id", query.session_id, &mut found);
    let timeout = duration("query.timeout", query.timeout, &mut found);
    let queue_timeout = duration("query.queue_timeout", query.queue_timeout, &mut found);
    let recovery = query.recovery.and_then(|policy| recovery(policy, &mut found));
    let capabilities = capabilities(query.capabilities, &mut found);
    let abandon_after = match query.on_disconnect.and_then(|disconnect| disconnect.policy) {
        None => default_abandon_after,
        Some(Policy::Cancel(_)) => Some(Duration::ZERO),
        Some(Policy::Detach(limit)) => duration("query.on_disconnect.detach", Some(limit), &mut found),
        Some(Policy::Keep(_)) => None,
    };
    found.check()?;
    let boxed = |text: Option<String>| text.map(String::into_boxed_str);
    Ok(QueryRequest {
        id,
        kind,
        spec: QuerySpec {
            kind: "".into(),
            query_type: boxed(query_type),
            payload: payload.expect("a missing payload is a violation"),
            priority: query.priority,
            key: boxed(key),
            owner: boxed(owner),
            queue_timeout,
            options: QueryOptions { timeout, session_id: boxed(session_id), recovery, capabilities }.boxed(),
            reject_if_busy: query.reject_if_busy,
        },
        deadline: None,
        abandon_after,
        caller: None,
    })
}

pub(super) fn query_id(id: &str) -> Result<QueryId, Status> {
    QueryId::parse(id).map_err(|error| invalid("query_id", error.to_string()))
}

pub(super) fn reason(reason: &str) -> Result<(), Status> {
    if reason.len() <= REASON_MAX_BYTES {
        return Ok(());
    }
    Err(invalid("reason", format!("has {} bytes; at most {REASON_MAX_BYTES} are allowed", reason.len())))
}

pub(super) fn scale(request: &proto::ScaleKindRequest) -> Result<ScaleTarget, Status> {
    let mut found = Violations::default();
    if request.kind.is_empty() {
        found.add("kind", "is missing; name the kind to scale");
    }
    match request.target {
        None => found.add("target", "is missing; set `workers` to the number of workers, or `by` to the difference"),
        Some(Target::By(0)) => found.add("by", "is 0, which changes nothing; give a positive or negative number"),
        Some(Target::Workers(_) | Target::By(_)) => {}
    }
    found.check()?;
    Ok(match request.target.expect("a missing target is a violation") {
        Target::Workers(count) => ScaleTarget::Workers(count as usize),
        Target::By(count) => ScaleTarget::By(count.into()),
    })
}

/// Reads the page of a listing: the number that it starts after, and its size.
pub(super) fn page(size: u32, token: &str) -> Result<(u64, usize), Status> {
    let mut found = Violations::default();
    if size > PAGE_SIZE_MAX {
        found.add("page_size", format!("is {size}; at most {PAGE_SIZE_MAX} is allowed"));
    }
    let after = if token.is_empty() { Ok(0) } else { token.parse() };
    if after.is_err() {
        found.add("page_token", "is not from this server; omit it for the first page");
    }
    found.check()?;
    let size = if size == 0 { PAGE_SIZE_DEFAULT } else { size };
    Ok((after.unwrap_or(0), size as usize))
}

pub(super) fn states(wanted: &[i32]) -> Result<Vec<QueryState>, Status> {
    let read = |number: &i32| {
        let state = proto::QueryState::try_from(*number).ok().and_then(query_state_from_proto);
        state.ok_or_else(|| {
            let known: Vec<_> = QueryState::ALL.iter().map(|state| state.name()).collect();
            invalid("states", format!("has {number}, which is no state; known are: {}", known.join(", ")))
        })
    };
    wanted.iter().map(read).collect()
}

/// Reads a selection of dead letters: some by their ids, or all of them.
pub(super) fn selection(ids: &[String], all: bool, kind: Option<String>) -> Result<DeadLetterSelection, Status> {
    let mut found = Violations::default();
    match (all, ids.len()) {
        (false, 0) => found.add("query_ids", "is empty; name dead letters, or set `all`"),
        (true, 1..) => found.add("query_ids", "must be empty if `all` is set"),
        (false, count) if count > SELECTED_IDS_MAX => {
            found.add("query_ids", format!("has {count} ids; at most {SELECTED_IDS_MAX} are allowed"));
        }
        _ => {}
    }
    if !all && kind.is_some() {
        found.add("kind", "goes with `all` only");
    }
    found.check()?;
    if all {
        return Ok(DeadLetterSelection::All { kind });
    }
    let parse = |id: &String| QueryId::parse(id).map_err(|error| invalid("query_ids", error.to_string()));
    ids.iter().map(parse).collect::<Result<_, _>>().map(DeadLetterSelection::Ids)
}

fn recovery(policy: proto::RecoveryPolicy, found: &mut Violations) -> Option<Recovery> {
    let strategy = policy.strategy();
    if policy.attempts > ATTEMPTS_MAX {
        found.add("query.recovery.attempts", format!("is {}; at most {ATTEMPTS_MAX} are allowed", policy.attempts));
    }
    if policy.attempts > 0 && strategy != RecoveryStrategy::Retry {
        found.add("query.recovery.attempts", "is only for the strategy RETRY; omit it");
    }
    match strategy {
        RecoveryStrategy::Unspecified => None,
        RecoveryStrategy::Reject => Some(Recovery::Reject),
        RecoveryStrategy::Retry => Some(Recovery::Retry { attempts: policy.attempts.max(1) }),
    }
}

fn capabilities(names: Vec<String>, found: &mut Violations) -> Box<[Box<str>]> {
    let field = "query.capabilities";
    if names.len() > CAPABILITIES_MAX {
        found.add(field, format!("has {} entries; at most {CAPABILITIES_MAX} are allowed", names.len()));
    }
    if let Some(wrong) = names.iter().find(|name| !(1..=CAPABILITY_MAX_BYTES).contains(&name.len())) {
        found.add(field, format!("has an entry of {} bytes; 1 to {CAPABILITY_MAX_BYTES} are allowed", wrong.len()));
    }
    if names.iter().any(|name| name.contains(char::is_control)) {
        found.add(field, "has an entry with a control character; only printable text is allowed");
    }
    names.into_iter().map(String::into_boxed_str).collect()
}

fn optional_id(id: &str, found: &mut Violations) -> Option<QueryId> {
    if id.is_empty() {
        return None;
    }
    QueryId::parse(id).map_err(|error| found.add("query_id", error.to_string())).ok()
}

fn payload(text: String, found: &mut Violations) -> Option<JsonText> {
    if text.is_empty() {
        found.add("query.payload", "is empty; it must be JSON text, such as {\"hello\":\"world\"} or null");
        return None;
    }
    JsonText::parse(text).map_err(|error| found.add("query.payload", format!("is not JSON: {error}"))).ok()
}

fn name(field: &str, text: String, found: &mut Violations) -> Option<String> {
    if text.len() > NAME_MAX_BYTES {
        found.add(field, format!("has {} bytes; at most {NAME_MAX_BYTES} are allowed", text.len()));
    }
    if text.contains(char::is_control) {
        found.add(field, "has a control character; only printable text is allowed");
    }
    (!text.is_empty()).then_some(text)
}

fn duration(field: &str, value: Option<prost_types::Duration>, found: &mut Violations) -> Option<Duration> {
    let problem = match Duration::try_from(value?) {
        Err(_) => "is negative; give a time above zero",
        Ok(duration) if duration.is_zero() => "is zero; omit it for no limit of its own, or give a time above zero",
        Ok(duration) if duration > DURATION_MAX => "is longer than a year; omit it for no limit of its own",
        Ok(duration) => return Some(duration),
    };
    found.add(field, problem);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<QueryRequest, Status>) -> String {
        result.unwrap_err().message().to_owned()
    }

    fn with_payload(payload: &str) -> proto::Query {
        proto::Query { payload: payload.to_owned(), ..Default::default() }
    }

    #[test]
    fn invalid_fields_are_all_named_with_their_limits() {
        assert_eq!(message(query("", None, None)), "query: is missing; it holds the payload to run");
        assert_eq!(
            message(query("", Some(with_payload("")), None)),
            "query.payload: is empty; it must be JSON text, such as {\"hello\":\"world\"} or null"
        );
        let bad = proto::Query {
            priority: 1_001,
            kind: "k".repeat(257),
            r#type: "a\nb".to_owned(),
            timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
            queue_timeout: Some(prost_types::Duration { seconds: 0, nanos: 0 }),
            ..with_payload("{")
        };
        let text = message(query("a b", Some(bad), None));
        for part in [
            "query_id: has the character ' '",
            "query.payload: is not JSON",
            "query.priority: is 1001; at most 1000 is allowed",
            "query.kind: has 257 bytes; at most 256 are allowed",
            "query.type: has a control character",
            "query.timeout: is negative",
            "query.queue_timeout: is zero",
        ] {
            assert!(text.contains(part), "{part:?} is missing in: {text}");
        }
    }

    #[test]
    fn capabilities_are_few_and_short() {
        let with = |capabilities| query("", Some(proto::Query { capabilities, ..with_payload("1") }), None);
        let most: Vec<String> = (0..16).map(|n| format!("{n:064}")).collect();
        let read = with(most.clone()).unwrap().spec;
        assert!(read.capabilities().iter().map(|name| &**name).eq(&most));
        assert!(!read.reject_if_busy);
        for (wrong, text) in [
            (vec!["a".to_owned(); 17], "query.capabilities: has 17 entries; at most 16 are allowed"),
            (vec![String::new()], "query.capabilities: has an entry of 0 bytes; 1 to 64 are allowed"),
            (vec!["a".repeat(65)], "query.capabilities: has an entry of 65 bytes; 1 to 64 are allowed"),
            (
                vec!["\u{7}".to_owned()],
                "query.capabilities: has an entry with a control character; only printable text is allowed",
            ),
        ] {
            assert_eq!(message(with(wrong)), text);
        }
    }

    #[test]
    fn scaling_requires_a_kind_and_a_number() {
        let read = |kind: &str, target| scale(&proto::ScaleKindRequest { kind: kind.to_owned(), target });
        assert_eq!(read("k", Some(Target::Workers(0))).unwrap(), ScaleTarget::Workers(0));
        assert_eq!(read("k", Some(Target::By(-2))).unwrap(), ScaleTarget::By(-2));
        assert!(read("", Some(Target::By(0))).unwrap_err().message().starts_with("kind: is missing; name the kind"));
        assert!(read("k", Some(Target::By(0))).unwrap_err().message().starts_with("by: is 0, which changes nothing"));
        assert!(read("k", None).unwrap_err().message().starts_with("target: is missing; set `workers`"));
    }

    #[test]
    fn page_has_a_default_size_and_a_maximum() {
        assert_eq!(page(0, "").unwrap(), (0, 100));
        assert_eq!(page(1_000, "17").unwrap(), (17, 1_000));
        assert_eq!(
            page(1_001, "x").unwrap_err().message(),
            "page_size: is 1001; at most 1000 is allowed; page_token: is not from this server; omit it for the first page"
        );
    }
}
