//! Invariants of every event log.

use remuda::api::proto::{Event, QueryState, event::Body};

/// The final state of the query, after a check of its whole log: numbered from 0 without holes, attempts in order, exactly one
/// final event, and nothing after it.
#[track_caller]
pub(crate) fn end_of(events: &[Event]) -> QueryState {
    for (expected, event) in (0..).zip(events) {
        assert_eq!(event.sequence, expected, "a hole in the log: {events:?}");
    }
    assert!(events.is_sorted_by_key(|event| event.attempt), "attempts out of order: {events:?}");
    let ends: Vec<QueryState> = events.iter().filter_map(final_state).collect();
    assert_eq!(ends.len(), 1, "not exactly one final event: {events:?}");
    events.last().and_then(final_state).unwrap_or_else(|| panic!("something follows the final event: {events:?}"))
}

fn final_state(event: &Event) -> Option<QueryState> {
    match event.body.as_ref().expect("an event has a body") {
        Body::Complete(_) => Some(QueryState::Complete),
        Body::Error(_) => Some(QueryState::Error),
        Body::Cancelled(_) => Some(QueryState::Cancelled),
        Body::Rejected(_) => Some(QueryState::Rejected),
        Body::Session(_) | Body::Message(_) | Body::Retrying(_) | Body::Gap(_) => None,
    }
}
