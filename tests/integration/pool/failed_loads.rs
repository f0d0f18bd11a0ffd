//! A thousand failed starts beside workers that serve: all resources are given back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use remuda::api::proto::Query;
use serde_json::json;

use crate::harness::{Gate, Server, eventually, fake_kind, query, zombies_of};

const FAILING: usize = 6;
const FAILURES: usize = 1_000;
const MIB: usize = 1 << 20;

const POOL: &str = "[pool]\nmemory_budget = \"110MiB\"\nmax_starting = 8\n";

fn name(number: usize) -> String {
    format!("bad{number}")
}

/// Kinds whose workers exit at once until the gate is open, beside one that works.
fn config(gate: &Gate) -> String {
    let worker = env!("CARGO_BIN_EXE_fake-worker");
    let script = format!("test -e {} && exec {worker}; exit 3", gate.path().display());
    let settings = "min = 1\nmax = 2\nmemory = \"10MiB\"\ncircuit_failures = 10000\n\
                    restart_backoff = \"1ms\"\nrestart_backoff_max = \"1ms\"";
    let bad = (0..FAILING)
        .map(|number| format!("[kinds.{}]\ncommand = [\"sh\", \"-c\", {script:?}]\n{settings}\n", name(number)));
    let bad: String = bad.collect();
    let good = fake_kind("good", &[], "min = 2\nmax = 2\nmemory = \"20MiB\"");
    format!("{POOL}{bad}{good}")
}

fn failures(server: &Server) -> usize {
    let (_, text) = server.get("/metrics");
    let counts = text.lines().filter_map(|line| line.strip_prefix("remuda_worker_exits_total{cause=\"start_failed\","));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_failed_starts_leave_nothing_behind_and_disturb_nobody() {
    let gate = Gate::closed();
    let server = Server::start(&config(&gate));
    let mut client = server.client().await;
    let enough = Arc::new(AtomicBool::new(false));
    let traffic = tokio::spawn({
        let (mut client, enough) = (client.clone(), enough.clone());
        async move {
            let mut answers = 0usize;
            while !enough.load(Relaxed) {
                client.served_by(Query { kind: "good".to_owned(), ..query(&json!(null)) }).await;
                answers += 1;
            }
            answers
        }
    });
    let mut failed = 0;
    while failed < FAILURES {
        failed = eventually("further failures", || {
            assert!(server.metric_sum("remuda_memory_reserved_bytes") as usize <= 110 * MIB);
            Some(failures(&server)).filter(|now| *now > failed)
        });
    }
    gate.open();
    eventually("the others to start after all", || {
        (0..FAILING).all(|number| server.in_service(&name(number)) == 1).then_some(())
    });
    enough.store(true, Relaxed);
    assert!(traffic.await.unwrap() > 0);

    let live = client.workers().await;
    assert_eq!(live.len(), FAILING + 2);
    let started = live.iter().map(|worker| worker.worker_id).max().unwrap() as usize;
    assert_eq!(failures(&server), started - live.len(), "every one is accounted for");
    assert_eq!(server.all_exits("good"), []);
    assert_eq!(server.metric_sum("remuda_memory_reserved_bytes") as usize, (FAILING * 10 + 2 * 20) * MIB);
    assert_eq!(zombies_of(server.pid()), Vec::<u32>::new());
    assert_eq!(server.worker_pids().len(), live.len());
    assert_eq!(server.belongings().len(), live.len(), "a directory for each worker");

    // When the last of them has gone, nothing is left of what they took.
    let on_demand = fake_kind("other", &[], "min = 0\nmemory = \"20MiB\"");
    server.rewrite(&format!("{POOL}{on_demand}"));
    assert!(client.reload(false).await.unwrap().applied);
    eventually("all to be gone", || server.worker_pids().is_empty().then_some(()));
    eventually("all memory to be given back", || {
        (server.metric_sum("remuda_memory_reserved_bytes") as usize == 0).then_some(())
    });
    assert_eq!(failures(&server), started - live.len(), "no further one failed");
    assert_eq!(zombies_of(server.pid()), Vec::<u32>::new());
    assert!(server.belongings().is_empty());
    assert_eq!(server.stop_cleanly().code(), Some(0));
}
