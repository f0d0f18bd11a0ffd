//! Tests of the output of dead letters.

use prost_types::Timestamp;

use super::plain;
use crate::{
    api::proto::{DeadLetter, DeathCertificate, ErrorEvent, ErrorReason, FailedAttempt, QueryInfo, QueryState},
    cli::{
        dead::{render_details, row, table},
        format, json,
    },
};

#[expect(clippy::unnecessary_wraps, reason = "fields of messages are options")]
fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn died(attempt: u32) -> FailedAttempt {
    let certificate = DeathCertificate {
        worker_id: 6 + u64::from(attempt),
        summary: "worker exited with code 3".to_owned(),
        stderr_tail: "loading\n\u{1b}[31mboom\n".to_owned(),
        ..Default::default()
    };
    let error = ErrorEvent {
        reason: ErrorReason::WorkerDied.into(),
        message: format!("worker exited with code 3; attempt {attempt} of 2"),
        certificate: Some(certificate),
        ..Default::default()
    };
    FailedAttempt { attempt, at: at(10 * i64::from(attempt)), error: Some(error) }
}

fn letter() -> DeadLetter {
    let query = QueryInfo {
        query_id: "job-7".to_owned(),
        kind: "embed".to_owned(),
        state: QueryState::Error.into(),
        attempts: 2,
        ended_at: at(20),
        dead_letter: true,
        ..Default::default()
    };
    DeadLetter { query: Some(query), payload: "{\"a\":\n1}".to_owned(), failures: vec![died(1), died(2)] }
}

#[test]
fn list_gives_the_last_reason_in_a_line() {
    let mut long = letter();
    long.failures[1].error.as_mut().unwrap().message = format!("{}\nand more", "no luck ".repeat(20));
    let mut table = table();
    for letter in [letter(), long, DeadLetter::default()] {
        table.row(row(&letter));
    }
    assert_eq!(
        plain(&table.render()),
        "\
ID     KIND   TYPE  ATTEMPTS  FAILED AT                 REASON
job-7  embed  -            2  1970-01-01T00:00:20.000Z  worker exited with code 3; attempt 2 of 2
job-7  embed  -            2  1970-01-01T00:00:20.000Z  no luck no luck no luck no luck no luck no luck no luck no …
-      -      -            0  -                         -
"
    );
}

#[test]
fn details_show_the_payload_and_every_attempt() {
    let text = plain(&render_details(&letter()));
    assert!(text.starts_with("query     job-7\nstate     error\nkind      embed\n"), "{text}");
    assert!(text.contains("\npayload   {\"a\": 1}\n"), "{text}");
    for (attempt, worker) in [(1, 7), (2, 8)] {
        let told = format!(
            "\nattempt {attempt} failed at 1970-01-01T00:00:{attempt}0.000Z: worker_died\n  \
             worker exited with code 3; attempt {attempt} of 2\n  \
             all about the worker: remuda workers {worker}\n  \
             the end of its standard error:\n    loading\n    \\u{{1b}}[31mboom\n"
        );
        assert!(text.contains(&told), "{text}");
    }
    assert!(!text.contains("requeued"), "{text}");
}

#[test]
fn requeued_letter_names_its_first_life() {
    let mut letter = letter();
    letter.query.as_mut().unwrap().requeued_from = "job-6".to_owned();
    let text = plain(&render_details(&letter));
    assert!(text.contains("\nrequeued from  job-6 (its first life: remuda queries job-6)\n"), "{text}");
}

#[test]
fn json_of_a_letter_is_whole() {
    let value: serde_json::Value = serde_json::from_str(json::dead_letter(&letter()).get()).unwrap();
    assert_eq!(value["query"]["query_id"], "job-7");
    assert_eq!(value["payload"]["a"], 1);
    assert_eq!(value["failures"][1]["at"], "1970-01-01T00:00:20.000Z");
    assert_eq!(value["failures"][1]["error"]["reason"], "worker_died");
    assert_eq!(value["failures"][1]["error"]["certificate"]["worker_id"], 8);
}

#[test]
fn first_line_is_cut_to_the_given_width() {
    let pairs = [("", ""), ("äöü", "äöü"), ("äöüß", "äö…"), ("a\nb", "a"), ("\nb", "")];
    for (text, expected) in pairs {
        assert_eq!(format::first_line(text, 3), expected);
    }
}
