//! The commands on queries whose workers die: retries, dead letters and their requeueing.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::harness::{Server, eventually, fake_kind, remuda, run};

const CRASH: &str = r#"{"steps":[{"stderr":"no such model"},{"exit":3}]}"#;

fn server() -> Server {
    Server::start(&fake_kind("k", &[], "min = 1\nmax = 1"))
}

/// Runs a query to its death.
fn crash(server: &Server, id: &str) {
    let (code, _, err) = run(server, &["run", "--id", id, CRASH]);
    assert!(code == 1 && err.contains("exited with code 3"), "{code} {err}");
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn dead_letter_is_listed_shown_requeued_and_purged() {
    let server = server();
    let (code, out, err) = run(&server, &["dead", "list"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("there is no dead letter"), "{err}");
    crash(&server, "a");

    let (code, table, _) = run(&server, &["dead", "list", "--kind", "k"]);
    let row = table.lines().nth(1).unwrap();
    assert!(code == 0 && row.starts_with("a   k ") && row.contains("(k) exited with code 3 after "), "{table}");
    let (code, text, _) = run(&server, &["dead", "show", "a"]);
    assert!(code == 0 && text.contains(&format!("payload    {CRASH}\n")), "{text}");
    assert!(text.contains("attempt 1 failed at ") && text.contains("standard error:\n    no such model\n"), "{text}");
    assert!(run(&server, &["queries", "a"]).1.contains("dead letter  remuda dead show a\n"));

    let (code, out, _) = run(&server, &["dead", "requeue", "a"]);
    let new = out.trim().strip_prefix("a -> ").unwrap();
    assert_eq!(code, 0, "{out}");
    assert!(run(&server, &["queries", "a"]).1.contains(&format!("requeued as  {new}\n")));
    assert_eq!(run(&server, &["stream", new]).0, 1);
    let letters = lines(&run(&server, &["dead", "list", "--json"]).1);
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0]["query"]["query_id"], &letters[0]["query"]["requeued_from"]), (&json!(new), &json!("a")));
    assert!(run(&server, &["dead", "show", new]).1.contains("requeued from  a (its first life: remuda queries a)\n"));

    assert_eq!(run(&server, &["dead", "purge", new]), (0, "purged 1 dead letter\n".to_owned(), String::new()));
    assert_eq!(run(&server, &["dead", "list", "--json"]), (0, String::new(), String::new()));
}

#[tokio::test]
async fn missing_letter_does_not_keep_the_others() {
    let server = server();
    for id in ["a", "b", "c", "d"] {
        crash(&server, id);
    }
    assert_eq!(lines(&run(&server, &["dead", "list", "--json", "--limit", "3"]).1).len(), 3);
    let missing = "there is no dead letter nobody";
    let (code, _, err) = run(&server, &["dead", "show", "nobody"]);
    assert!(code == 1 && err.contains(missing), "{code} {err}");
    let (code, out, err) = run(&server, &["dead", "requeue", "nobody", "a", "--json"]);
    assert!(code == 1 && err.contains(missing), "{code} {err}");
    let requeued = lines(&out);
    assert_eq!((requeued.len(), &requeued[0]["query_id"]), (1, &json!("a")));
    let second = requeued[0]["new_query_id"].as_str().unwrap();
    assert_eq!(run(&server, &["stream", second]).0, 1);
    let (code, out, err) = run(&server, &["dead", "purge", "nobody", "b"]);
    assert_eq!((code, out.as_str()), (1, "purged 1 dead letter\n"));
    assert!(err.contains(missing), "{err}");
    let (code, _, err) = run(&server, &["dead", "purge", "--all", "--kind", "x"]);
    assert!(code == 1 && err.contains("there is no kind \"x\""), "{code} {err}");
    assert_eq!(run(&server, &["dead", "purge", "--all", "--kind", "k"]).1, "purged 3 dead letters\n");
    let (code, out, err) = run(&server, &["dead", "requeue", "--all"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("there is no dead letter"), "{err}");
}

#[tokio::test]
async fn retry_runs_a_query_again_and_says_so() {
    let server = server();
    let (code, out, err) = run(&server, &["run", "--retry", "--id", "a", CRASH]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("note: attempt 1 of 2 of query a failed, trying again: worker 1 (k) exited"), "{err}");
    assert!(err.contains("error: query a failed: worker 2 (k) exited with code 3"), "{err}");
    assert!(err.contains("attempt 2 of 2"), "{err}");
    let (code, events, err) = run(&server, &["run", "--retry=2", "--events", CRASH]);
    let events = lines(&events);
    assert_eq!((code, events.len()), (1, 3));
    for (event, attempt) in events[..2].iter().zip(1..) {
        assert_eq!((&event["type"], &event["failed_attempt"]), (&json!("retrying"), &json!(attempt)));
        assert_eq!((&event["max_attempts"], &event["certificate"]["exit_code"]), (&json!(3), &json!(3)));
    }
    assert!(!err.contains("note:"), "{err}");
    let letter: Value = serde_json::from_str(&run(&server, &["dead", "show", "a", "--json"]).1).unwrap();
    assert_eq!(letter["failures"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn no_retry_flag_overrides_the_configuration() {
    let server =
        Server::start(&format!("[recovery]\nstrategy = \"retry\"\n{}", fake_kind("k", &[], "min = 1\nmax = 1")));
    assert!(run(&server, &["run", CRASH]).2.contains("attempt 1 of 2"));
    let (code, _, err) = run(&server, &["run", "--no-retry", CRASH]);
    assert!(code == 1 && !err.contains("note:") && err.contains("attempt 1 of 1"), "{code} {err}");
}

#[tokio::test]
async fn query_outlives_its_reader_only_if_told_to() {
    let server = server();
    let endless = r#"{"steps":[{"messages":{"count":1000000,"delay_ms":5}}]}"#;
    for (policy, id, state) in [("keep", "kept", "streaming"), ("cancel", "stopped", "cancelled")] {
        let mut command = remuda();
        command.args(["--endpoint", &server.grpc, "run", "--on-disconnect", policy, "--id", id, endless]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        // The command cancels nothing by itself here, so that what it leaves behind is the policy's doing.
        assert_eq!(child.wait().unwrap().code(), Some(0));
        eventually("the policy to be followed", || run(&server, &["queries", id]).1.contains(state).then_some(()));
        assert_eq!(run(&server, &["cancel", id]).0, 0);
    }
}
