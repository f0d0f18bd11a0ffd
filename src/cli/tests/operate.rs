//! Tests of the output of scaling, reloads and pool events.

use prost_types::Timestamp;
use serde_json::{Value, json};

use super::plain;
use crate::{
    api::proto::{
        CircuitChanged, CircuitState, ConfigChange, ConfigEffect, ConfigReloaded, DeathCertificate, EventsMissed,
        KindScaled, PoolChanged, PoolEvent, ReloadResponse, ScaleKindResponse, WorkerEnded, WorkerEvicted, WorkerMoved,
        WorkerState, pool_event::Body,
    },
    cli::{json as as_json, operate, pool_events, reload},
};

fn event(name: &str, kind: &str, body: Body) -> PoolEvent {
    PoolEvent {
        sequence: 3,
        at: Some(Timestamp { seconds: 60, nanos: 0 }),
        name: name.to_owned(),
        kind: kind.to_owned(),
        body: Some(body),
    }
}

fn crash() -> PoolEvent {
    let moved = WorkerMoved {
        worker_id: 7,
        from: WorkerState::Processing.into(),
        to: WorkerState::Failed.into(),
        reason: "it\n\u{1b}[31mcrashed".to_owned(),
        query_id: "q-1".to_owned(),
        key: "repo".to_owned(),
    };
    event("worker:crashed", "embed", Body::WorkerMoved(moved))
}

fn ended() -> PoolEvent {
    let certificate =
        DeathCertificate { worker_id: 7, summary: "worker 7 (embed) exited".to_owned(), ..Default::default() };
    event("worker:ended", "embed", Body::WorkerEnded(WorkerEnded { certificate: Some(certificate) }))
}

fn others() -> [PoolEvent; 6] {
    let reason = || "so".to_owned();
    let evicted = WorkerEvicted { worker_id: 8, strategy: "lru".to_owned(), reason: reason() };
    let circuit = CircuitChanged { state: CircuitState::HalfOpen.into(), reason: reason() };
    [
        event("pool:scaled", "embed", Body::Scaled(KindScaled { from: 1, to: 3, reason: reason() })),
        event("worker:evicted", "embed", Body::Evicted(evicted)),
        event("kind:circuit", "embed", Body::Circuit(circuit)),
        event("pool:draining", "", Body::Pool(PoolChanged { state: "draining".to_owned(), reason: reason() })),
        event("pool:reloaded", "", Body::Reloaded(ConfigReloaded { changes: vec!["a".to_owned(), "b".to_owned()] })),
        event("watch:missed", "", Body::Missed(EventsMissed { count: 2 })),
    ]
}

#[test]
fn every_event_is_one_line_with_time_name_kind_worker_and_reason() {
    let mut columns = pool_events::EventColumns::default();
    let lines: String = [crash(), ended()].iter().chain(&others()).map(|event| columns.render(event)).collect();
    assert_eq!(
        plain(&lines),
        "\
1970-01-01T00:01:00.000Z  worker:crashed   embed       worker 7   it \\u{1b}[31mcrashed (query q-1, key repo)
1970-01-01T00:01:00.000Z  worker:ended     embed       worker 7   worker 7 (embed) exited
1970-01-01T00:01:00.000Z  pool:scaled      embed       -          1 -> 3: so
1970-01-01T00:01:00.000Z  worker:evicted   embed       worker 8   lru: so
1970-01-01T00:01:00.000Z  kind:circuit     embed       -          half_open: so
1970-01-01T00:01:00.000Z  pool:draining    -           -          so
1970-01-01T00:01:00.000Z  pool:reloaded    -           -          a; b
1970-01-01T00:01:00.000Z  watch:missed     -           -          2 events missed: they came faster than they were read
"
    );
}

#[test]
fn long_name_moves_the_columns_for_what_follows() {
    let mut columns = pool_events::EventColumns::default();
    let mut long = ended();
    long.kind = "a-very-long-name".to_owned();
    let lines: String = [long, ended()].iter().map(|event| columns.render(event)).collect();
    assert_eq!(
        plain(&lines),
        "\
1970-01-01T00:01:00.000Z  worker:ended     a-very-long-name  worker 7   worker 7 (embed) exited
1970-01-01T00:01:00.000Z  worker:ended     embed             worker 7   worker 7 (embed) exited
"
    );
}

#[test]
fn json_of_an_event_is_flat_and_whole() {
    let value = |event: &PoolEvent| -> Value { serde_json::from_str(as_json::pool_event(event).get()).unwrap() };
    assert_eq!(
        value(&crash()),
        json!({
            "sequence": 3, "at": "1970-01-01T00:01:00.000Z", "name": "worker:crashed", "kind": "embed", "worker_id": 7,
            "from": "processing", "to": "failed", "reason": "it\n\u{1b}[31mcrashed", "query_id": "q-1", "key": "repo",
        })
    );
    assert_eq!(value(&ended())["certificate"]["summary"], "worker 7 (embed) exited");
    let others = others().each_ref().map(value);
    assert_eq!((&others[0]["from"], &others[0]["to"]), (&json!(1), &json!(3)));
    assert_eq!((&others[1]["worker_id"], &others[1]["strategy"]), (&json!(8), &json!("lru")));
    assert_eq!((&others[2]["state"], &others[3]["state"]), (&json!("half_open"), &json!("draining")));
    assert_eq!((&others[3]["kind"], &others[4]["changes"]), (&Value::Null, &json!(["a", "b"])));
    assert_eq!(others[5]["missed"], 2);
    let begins = WorkerMoved { worker_id: 7, to: WorkerState::Spawning.into(), ..Default::default() };
    assert_eq!(value(&event("worker:starting", "k", Body::WorkerMoved(begins)))["from"], Value::Null);
    assert_eq!(value(&PoolEvent { name: "new".to_owned(), ..Default::default() })["name"], "new");
}

fn change(path: &str, old: Option<&str>, new: Option<&str>, effect: ConfigEffect) -> ConfigChange {
    let owned = |value: Option<&str>| value.map(ToOwned::to_owned);
    ConfigChange { path: path.to_owned(), old: owned(old), new: owned(new), effect: effect.into() }
}

fn changes() -> Vec<ConfigChange> {
    vec![
        change("kinds.chat", None, Some("(kind)"), ConfigEffect::KindAdded),
        change("kinds.embed.command", Some("[\"a\"]"), Some("[\"b\"]"), ConfigEffect::Rolls),
        change("kinds.embed.max", Some("4"), Some("6"), ConfigEffect::Applied),
        change("kinds.old", Some("(kind)"), None, ConfigEffect::KindRemoved),
        change("server.listen", Some("a"), Some("b"), ConfigEffect::NeedsRestart),
    ]
}

#[test]
fn reload_tells_each_key_from_what_to_what_and_what_comes_of_it() {
    assert_eq!(
        plain(&reload::render(&changes())),
        "\
KEY                  CHANGE            EFFECT
kinds.chat           (none) -> (kind)  new kind
kinds.embed.command  [\"a\"] -> [\"b\"]    as workers are replaced
kinds.embed.max      4 -> 6            at once
kinds.old            (kind) -> (none)  kind removed
server.listen        a -> b            needs a restart of the server
"
    );
    let found = ReloadResponse { changes: changes(), applied: true };
    let value: Value = serde_json::from_str(as_json::reload(&found).get()).unwrap();
    assert_eq!(value["applied"], true);
    assert_eq!(
        value["changes"][0],
        json!({"path": "kinds.chat", "old": null, "new": "(kind)", "effect": "kind_added"})
    );
    assert_eq!(value["changes"][4]["effect"], "needs_restart");
}

#[test]
fn reload_says_what_was_done() {
    let notes = |changes, dry_run: bool| {
        let applied = !dry_run;
        reload::notes(&ReloadResponse { changes, applied }, dry_run).join("\n")
    };
    assert_eq!(notes(Vec::new(), false), "the configuration has not changed");
    assert_eq!(notes(changes(), true), "5 changes found; this was a dry run, and nothing was done");
    assert_eq!(
        notes(changes(), false),
        "4 changes put in force\n1 change in force only when the server is started again"
    );
    assert_eq!(notes(changes()[..1].to_vec(), false), "1 change put in force");
    let later = ReloadResponse { changes: changes()[4..].to_vec(), applied: false };
    assert_eq!(reload::notes(&later, false), ["1 change in force only when the server is started again"]);
}

#[test]
fn scaling_says_from_what_to_what() {
    let scaled = |from, to| operate::describe_scaled(&ScaleKindResponse { kind: "embed".to_owned(), from, to });
    assert_eq!(scaled(2, 6), "kind embed is to have 6 workers now; it was 2");
    assert_eq!(scaled(1, 1), "kind embed is to have 1 worker, as before");
}
