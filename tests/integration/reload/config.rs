//! A changed configuration comes into force while queries run, or not at all.

use std::collections::HashSet;

use nix::sys::signal::Signal;
use remuda::api::proto::{ConfigEffect, DeathCause, WorkerState};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::harness::{Client, Load, Server, eventually, eventually_async, fake_kind, output_of, query, remuda, run};

/// A kind with this many workers, whose answers name their version.
fn version(version: &str, workers: usize) -> String {
    fake_kind("k", &[], &format!("min = {workers}\nmax = {workers}\nenv = {{ VERSION = \"{version}\" }}"))
}

fn tells_version() -> Value {
    json!({"steps": ["env"]})
}

fn version_of(result: &Value) -> &str {
    result["env"]["VERSION"].as_str().expect("a version")
}

fn is_up(state: WorkerState) -> bool {
    matches!(state, WorkerState::Ready | WorkerState::Processing | WorkerState::Idle)
}

/// Waits until just so many workers are there, all of them up and younger than worker `after`.
pub(crate) async fn only_new_workers(client: &Client, workers: usize, after: u64) -> HashSet<u64> {
    eventually_async("only new workers to be there", || {
        let mut client = client.clone();
        async move {
            let there = client.workers().await;
            let fine = there.iter().all(|worker| worker.worker_id > after && is_up(worker.state()));
            (fine && there.len() == workers).then(|| there.iter().map(|worker| worker.worker_id).collect())
        }
    })
    .await
}

/// Waits until so many workers are up.
pub(crate) async fn workers_up(client: &Client, workers: usize) {
    only_new_workers(client, workers, 0).await;
}

/// Checks a reload under load, however it is requested.
async fn rolls_under_load(pool: &str, reload: impl FnOnce(&Server)) {
    let server = Server::start(&format!("{pool}{}", version("old", 4)));
    let mut client = server.client().await;
    workers_up(&client, 4).await;
    let load = Load::start(&server, 16, &tells_version()).await;
    server.rewrite(&format!("{pool}{}", version("new", 6)));
    reload(&server);
    only_new_workers(&client, 6, 4).await;
    for _ in 0..20 {
        assert_eq!(version_of(&client.execute(query(&tells_version())).await.result()), "new");
    }
    for id in 1..=4 {
        let certificate = client.worker(id).await.certificate.expect("it has ended");
        assert_eq!(certificate.cause(), DeathCause::Reloaded, "{}", certificate.summary);
    }
    let answers = load.stop().await;
    assert!(answers.iter().flatten().any(|result| version_of(result) == "old"), "it began before the reload");
    let failed = server.metric(r#"remuda_query_results_total{kind="k",outcome="error",type="none"}"#);
    assert!(failed.abs() < f64::EPSILON, "{failed} queries failed");
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_rolls_a_new_command_and_size_through_without_losing_a_query() {
    rolls_under_load("", |server| server.signal(Signal::SIGHUP)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_command_rolls_them_through_a_full_pool_too() {
    rolls_under_load("[pool]\nmax_workers = 6\n", |server| {
        let (code, out, err) = run(server, &["reload"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("kinds.k.env.VERSION  (hidden) -> (hidden)  as workers are replaced"), "{out}");
        assert!(out.contains("kinds.k.min          4 -> 6                at once"), "{out}");
        assert!(err.contains("3 changes put in force"), "{err}");
    })
    .await;
}

/// Each change as its path, whether it has an old and a new value, and what comes of it.
fn told_changes(reload: &remuda::api::proto::ReloadResponse) -> Vec<(&str, ConfigEffect)> {
    reload.changes.iter().map(|change| (change.path.as_str(), change.effect())).collect()
}

async fn ids(client: &mut Client) -> Vec<u64> {
    client.workers().await.iter().map(|worker| worker.worker_id).collect()
}

#[tokio::test]
async fn file_with_mistakes_changes_nothing_and_all_of_them_are_reported() {
    let server = Server::start(&version("old", 2));
    let mut client = server.client().await;
    workers_up(&client, 2).await;
    let bad = format!("[pool]\nmax_worker = 3\n{}timeout = 30\n", version("new", 2));
    server.rewrite(&bad);
    for dry_run in [true, false] {
        let status = client.reload(dry_run).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(status.get_error_details().error_info().unwrap().reason, "BAD_CONFIG");
        for part in ["nothing was changed", "max_workers", "kinds.k.timeout", "30s", "2 mistakes"] {
            assert!(status.message().contains(part), "{part:?} is missing in: {}", status.message());
        }
    }
    for arguments in [&["reload"][..], &["reload", "--dry-run"], &["reload", "--json"]] {
        let (code, out, err) = run(&server, arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("max_workers") && err.contains("kinds.k.timeout"), "{err}");
    }
    server.signal(Signal::SIGHUP);
    let line = server.logs("reload on SIGHUP failed");
    assert!(line.contains("max_workers") && line.contains("2 mistakes"), "{line}");
    // A file that is gone is no reason to change anything either.
    std::fs::remove_file(server.dir.path().join("remuda.toml")).unwrap();
    let status = client.reload(false).await.unwrap_err();
    assert!(status.message().contains("remuda.toml: cannot be read"), "{status}");
    server.rewrite(&version("old", 2));
    let reload = client.reload(false).await.unwrap();
    assert_eq!((told_changes(&reload), reload.applied), (vec![], false));
    assert_eq!(ids(&mut client).await, [1, 2], "the same workers");
    assert_eq!(version_of(&client.execute(query(&tells_version())).await.result()), "old");
}

#[tokio::test]
async fn dry_run_shows_the_difference_and_changes_nothing() {
    let server = Server::start(&version("old", 2));
    let mut client = server.client().await;
    workers_up(&client, 2).await;
    server.rewrite(&version("new", 3));
    let expected = vec![
        ("kinds.k.min", ConfigEffect::Applied),
        ("kinds.k.max", ConfigEffect::Applied),
        ("kinds.k.env.VERSION", ConfigEffect::Rolls),
    ];
    for _ in 0..2 {
        let reload = client.reload(true).await.unwrap();
        assert_eq!((told_changes(&reload), reload.applied), (expected.clone(), false));
    }
    let (code, out, err) = run(&server, &["reload", "--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("kinds.k.min          2 -> 3"), "{out}");
    assert!(err.contains("3 changes found; this was a dry run, and nothing was done"), "{err}");
    let (code, out, _) = run(&server, &["reload", "--dry-run", "--json"]);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &shown["applied"]), (0, &json!(false)));
    assert_eq!(shown["changes"][0], json!({"path": "kinds.k.min", "old": "2", "new": "3", "effect": "applied"}));
    assert_eq!(ids(&mut client).await, [1, 2]);
    assert_eq!(version_of(&client.execute(query(&tells_version())).await.result()), "old");
    let reload = client.reload(false).await.unwrap();
    assert_eq!((told_changes(&reload), reload.applied), (expected, true));
    only_new_workers(&client, 3, 2).await;
}

#[tokio::test]
async fn change_that_needs_a_restart_is_reported_at_every_reload() {
    let server = Server::start(&version("v", 1));
    let mut client = server.client().await;
    workers_up(&client, 1).await;
    server.rewrite(&format!("{}[queue]\nmax_queries = 7\n", version("v", 1)));
    for _ in 0..3 {
        let reload = client.reload(false).await.unwrap();
        assert_eq!(told_changes(&reload), [("queue.max_queries", ConfigEffect::NeedsRestart)]);
        assert!(!reload.applied, "nothing of it is in force");
        let (code, out, err) = run(&server, &["reload"]);
        assert!(code == 0 && out.contains("needs a restart of the server"), "{out}");
        assert_eq!(err, "note: 1 change in force only when the server is started again\n");
    }
    // What can be put in force beside it is.
    server.rewrite(&format!("{}[queue]\nmax_queries = 7\n", version("v", 2)));
    let reload = client.reload(false).await.unwrap();
    assert!(reload.applied && reload.changes.len() == 3, "{reload:?}");
    workers_up(&client, 2).await;
    assert_eq!(told_changes(&client.reload(false).await.unwrap()).len(), 1);
    assert_eq!(ids(&mut client).await[0], 1, "the worker that was there stays");
}

#[tokio::test]
async fn secrets_are_in_no_difference_log_or_event() {
    let config = |token: &str, rest: &str| {
        let env = format!("env = {{ TOKEN = \"{token}\" }}");
        fake_kind("k", &[], &format!("min = 1\nmax = 1\n{env}{rest}"))
    };
    let server = Server::start_with(&config("sesame-one", ""), |command| {
        command.env("REMUDA_LOG", "debug");
    });
    let mut client = server.client().await;
    workers_up(&client, 1).await;
    let mut watcher = crate::harness::Watcher::new(&mut client).await;
    server.rewrite(&config("sesame-two", ""));
    let mut shown = vec![format!("{:?}", client.reload(true).await.unwrap())];
    for arguments in [&["reload", "--dry-run"][..], &["reload", "--dry-run", "--json"], &["reload"]] {
        let (code, out, err) = run(&server, arguments);
        assert!(code == 0 && out.contains("kinds.k.env.TOKEN"), "{out} {err}");
        shown.extend([out, err]);
    }
    only_new_workers(&client, 1, 1).await;
    watcher.worker("worker:ended", 1).await;
    // Mistakes on and beside the line with the secret, and one that TOML itself does not know what to do with.
    let mistakes = ["\nenvv = 1", " extra", "\nenv = { TOKEN = \"sesame-three\" }"];
    for (told, mistake) in (1..).zip(mistakes) {
        server.rewrite(&config("sesame-three", mistake));
        shown.push(client.reload(false).await.unwrap_err().message().to_owned());
        server.signal(Signal::SIGHUP);
        eventually("the mistake to be in the log", || {
            (server.log().iter().filter(|line| line.contains("reload on SIGHUP failed")).count() == told).then_some(())
        });
    }
    shown.push(format!("{:?}{}", watcher.seen, server.log().join("\n")));
    let shown = shown.join("\n");
    assert!(shown.contains("TOKEN"), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
}

#[tokio::test]
async fn reload_without_a_config_file_is_refused() {
    let server = Server::start_without_file();
    let mut client = server.client().await;
    let status = client.reload(false).await.unwrap_err();
    let text = "the server was started without a config file, so there is nothing to reload";
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, text));
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "NO_CONFIG_FILE");
    let (code, out, err) = run(&server, &["reload"]);
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", format!("error: {text}\n").as_str()));
    server.signal(Signal::SIGHUP);
    server.logs("reload on SIGHUP failed: the server was started without a config file");
    assert_eq!(client.execute(query(&json!(1))).await.result(), json!({"echo": 1}), "it serves on");
    let output = remuda().args(["--endpoint", "127.0.0.1:1", "reload"]).output().unwrap();
    assert_eq!(output_of(&output).0, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reloads_find_the_change_once() {
    let server = Server::start(&version("old", 2));
    let client = server.client().await;
    workers_up(&client, 2).await;
    server.rewrite(&version("new", 2));
    let reload = || {
        let mut client = client.clone();
        tokio::spawn(async move { client.reload(false).await.unwrap() })
    };
    let reloads: Vec<_> = (0..8).map(|_| reload()).collect();
    let mut found = 0;
    for reload in reloads {
        let reload = reload.await.unwrap();
        assert_eq!(reload.applied, !reload.changes.is_empty());
        found += usize::from(reload.applied);
    }
    assert_eq!(found, 1);
    // Another change while the first one is still rolled through.
    server.rewrite(&version("newest", 2));
    assert!(reload().await.unwrap().applied);
    eventually_async("the last one to be in force everywhere", || {
        let mut client = client.clone();
        async move {
            let workers = client.workers().await;
            let mut versions = HashSet::new();
            for _ in 0..4 {
                versions.insert(version_of(&client.execute(query(&tells_version())).await.result()).to_owned());
            }
            (workers.len() == 2 && versions.len() == 1 && versions.contains("newest")).then_some(())
        }
    })
    .await;
}
