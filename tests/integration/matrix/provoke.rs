//! Provokes all misbehaviours of one phase in one server that goes on serving.

use std::fs;

use nix::sys::signal::Signal;
use remuda::api::proto::{CancelFound, Event, WorkerState};

use crate::harness::{Client, Server, eventually, eventually_async, send_signal};

use super::{
    aftermath::{Aftermath, descriptors},
    query,
    scripts::{self, Signs},
    table::{Cell, Phase, Policy, Row},
};

pub(super) async fn all(phase: Phase, policy: Policy) {
    let rows = phase.rows(policy);
    let signs = Signs::new();
    let server = Server::start(&scripts::config(&rows, &signs));
    let mut client = server.client().await;
    all_ready(&client, rows.len()).await;
    let aftermath = Aftermath { server: &server, rows: &rows, descriptors_before: descriptors(server.pid()) };
    if phase.is_without_query() {
        second_lives_misbehave(&mut client, &rows, &signs).await;
    }
    if phase != Phase::Idle {
        for (row, events) in rows.iter().zip(run_queries(&mut client, &rows, &signs).await) {
            query::check_provoking(row, &events);
        }
    }
    eventually("all signs to be seen", || rows.iter().all(|row| !signs.armed(row).exists()).then_some(()));
    aftermath.settled().await;
    check_service(&mut client, &rows).await;
    aftermath.check(&mut client).await;
    drop(client);
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

pub(super) async fn all_ready(client: &Client, count: usize) {
    eventually_async("all workers to be ready", || {
        let mut client = client.clone();
        async move {
            let workers = client.workers().await;
            let ready = workers.iter().filter(|worker| worker.state() == WorkerState::Ready).count();
            (ready == count).then_some(())
        }
    })
    .await;
}

/// Kills every worker, so that the next one of its kind misbehaves where it has no query to be told by.
async fn second_lives_misbehave(client: &mut Client, rows: &[Row], signs: &Signs) {
    for row in rows {
        fs::write(signs.armed(row), "").unwrap();
    }
    let first_lives = client.workers().await;
    for worker in &first_lives {
        send_signal(worker.pid, Signal::SIGKILL);
    }
    for worker in first_lives {
        eventually_async("the first life to end", || {
            let mut client = client.clone();
            async move { client.worker(worker.worker_id).await.certificate }
        })
        .await;
    }
}

/// Runs one query of each row, all at once, and gives their events.
async fn run_queries(client: &mut Client, rows: &[Row], signs: &Signs) -> Vec<Vec<Event>> {
    let mut ids = Vec::new();
    for row in rows {
        ids.push(client.submit(query::provoking(row, &signs.gate())).await.expect("the query is accepted"));
    }
    cancel_in_vain(client, rows, &ids).await;
    let mut all = Vec::new();
    for id in &ids {
        all.push(client.read(id, 0, usize::MAX).await.expect("the query is known"));
    }
    all
}

/// Cancels the queries that are to be cancelled, once their workers do not listen any more.
async fn cancel_in_vain(client: &mut Client, rows: &[Row], ids: &[String]) {
    for (row, id) in rows.iter().zip(ids).filter(|(row, _)| row.cell == Cell::Cancelled) {
        // Its session comes after its messages, and tells that.
        client.read(id, 0, scripts::messages_per_attempt(row.phase) + 1).await.expect("the query is known");
        let answer = client.cancel(id, "enough").await.expect("the query is known");
        assert_eq!(answer.found(), CancelFound::Running, "{row:?}");
    }
}

/// Every kind serves after all that happened.
async fn check_service(client: &mut Client, rows: &[Row]) {
    let mut ids = Vec::new();
    for row in rows {
        ids.push(client.submit(query::harmless(row)).await.expect("the query is accepted"));
    }
    for (row, id) in rows.iter().zip(&ids) {
        query::check_harmless(row, &client.read(id, 0, usize::MAX).await.expect("the query is known"));
    }
}
