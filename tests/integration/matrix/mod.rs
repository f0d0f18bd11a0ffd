//! Every way a worker can misbehave, at every moment of its life, under both recovery policies: one terminal event with
//! the right reason, one certificate with the right cause, the pool back to its size, and nothing left behind.
//!
//! Each test is one phase under one policy: one server with a kind for each misbehaviour, all of them provoked at once.

mod aftermath;
mod provoke;
mod query;
mod scripts;
mod shutdown;
mod table;

use table::{Cell, Phase, Policy, TABLE};

#[test]
fn table_holds_every_combination() {
    let mut names: Vec<_> = TABLE.iter().map(|(misbehaviour, _)| misbehaviour.name()).collect();
    names.sort_unstable();
    names.dedup();
    let cells = TABLE.iter().flat_map(|(_, cells)| cells);
    let senseless = cells.filter(|cell| matches!(cell, Cell::Senseless(_))).count();
    let policies = 2;
    assert_eq!(names.len() * Phase::ALL.len() * policies, 264);
    assert_eq!(senseless * policies, 16, "the combinations that make no sense");
}

#[tokio::test]
async fn trouble_before_ready_costs_a_start_and_no_attempt() {
    provoke::all(Phase::BeforeReady, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_before_ready_is_no_reason_to_retry() {
    provoke::all(Phase::BeforeReady, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_of_an_idle_worker_costs_a_worker_and_no_attempt() {
    provoke::all(Phase::Idle, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_of_an_idle_worker_is_no_reason_to_retry() {
    provoke::all(Phase::Idle, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_before_the_first_message_ends_the_query_with_its_reason() {
    provoke::all(Phase::BeforeFirstMessage, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_before_the_first_message_is_retried_where_the_worker_died() {
    provoke::all(Phase::BeforeFirstMessage, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_in_mid_stream_ends_the_query_with_its_reason() {
    provoke::all(Phase::MidStream, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_in_mid_stream_is_retried_where_the_worker_died() {
    provoke::all(Phase::MidStream, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_after_complete_leaves_the_result_alone() {
    provoke::all(Phase::AfterComplete, Policy::Reject).await;
}

#[tokio::test]
async fn result_that_has_arrived_is_never_retried() {
    provoke::all(Phase::AfterComplete, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_while_draining_ends_the_query_with_its_reason() {
    shutdown::all(Phase::WhileDraining, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_while_draining_is_still_retried_where_the_worker_died() {
    shutdown::all(Phase::WhileDraining, Policy::Retry).await;
}

#[tokio::test]
async fn trouble_during_shutdown_neither_delays_it_nor_counts_as_a_failure() {
    shutdown::all(Phase::DuringShutdown, Policy::Reject).await;
}

#[tokio::test]
async fn trouble_during_shutdown_starts_nothing_again() {
    shutdown::all(Phase::DuringShutdown, Policy::Retry).await;
}
