//! The answers of the echo worker to each payload and each command.

use std::{io::Read, thread};

use super::*;

fn query(id: &str, text: &str) -> String {
    format!(r#"{{"type":"query","requestId":"{id}","payload":{text}}}"#)
}

fn cancel(id: &str) -> String {
    format!(r#"{{"type":"cancel","requestId":"{id}"}}"#)
}

const HEALTH_CHECK: &str = r#"{"type":"health_check"}"#;
const SHUTDOWN: &str = r#"{"type":"shutdown","graceful":true}"#;

/// Sends the commands and a graceful shutdown; returns the lines after `ready`.
fn conversation(commands: &[String]) -> (Vec<String>, EchoExit) {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    pool.write_all(format!("{}\n{SHUTDOWN}\n", commands.join("\n")).as_bytes()).unwrap();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        pool.read_to_string(&mut text).unwrap();
        text
    });
    let stop = Echo::new(worker).unwrap().serve();
    let text = reading.join().unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines[0], format!(r#"{{"type":"ready","protocol":1,"name":"echo","version":"{version}"}}"#));
    (lines[1..].to_vec(), stop)
}

/// The lines in answer to one query.
fn answers(text: &str) -> Vec<String> {
    let (mut lines, stop) = conversation(&[query("r", text)]);
    assert!(matches!(stop, EchoExit::Shutdown));
    assert_eq!(lines.pop().unwrap(), ACK);
    lines
}

const ACK: &str = r#"{"type":"shutdown_ack"}"#;

#[test]
fn other_payloads_are_echoed_byte_for_byte() {
    for text in ["null", "[1.0,  2e3]", r#"{"hello":"world"}"#, r#"{"stream":"three"}"#, r#"{"crash":false}"#] {
        assert_eq!(
            answers(text),
            [
                format!(r#"{{"type":"message","requestId":"r","content":{text}}}"#),
                format!(r#"{{"type":"complete","requestId":"r","result":{{"echo":{text}}}}}"#),
            ]
        );
    }
}

#[test]
fn messages_are_streamed_from_one_on_after_the_session() {
    assert_eq!(
        answers(r#"{"session":"s","stream":2,"delay_ms":1}"#),
        [
            r#"{"type":"session","requestId":"r","sessionId":"s"}"#,
            r#"{"type":"message","requestId":"r","content":{"n":1}}"#,
            r#"{"type":"message","requestId":"r","content":{"n":2}}"#,
            r#"{"type":"complete","requestId":"r","result":{"streamed":2}}"#,
        ]
    );
}

#[test]
fn sleep_is_reported_in_the_result() {
    assert_eq!(
        answers(r#"{"stream":1,"sleep_ms":1}"#)[1],
        r#"{"type":"complete","requestId":"r","result":{"slept_ms":1,"streamed":1}}"#
    );
}

#[test]
fn failure_is_reported_with_the_requested_fields() {
    assert_eq!(
        answers(r#"{"fail":"no luck","code":"E7","retryable":true}"#),
        [r#"{"type":"error","requestId":"r","error":"no luck","code":"E7","retryable":true}"#]
    );
    assert_eq!(answers(r#"{"fail":"no luck"}"#), [r#"{"type":"error","requestId":"r","error":"no luck"}"#]);
}

#[test]
fn crash_has_the_requested_exit_code() {
    for (text, wanted) in
        [(r#"{"crash":true}"#, 1), (r#"{"crash":7,"fail":"never answers"}"#, 7), (r#"{"crash":0}"#, 0)]
    {
        let (lines, stop) = conversation(&[query("r", text)]);
        assert!(lines.is_empty(), "{lines:?}");
        assert!(matches!(stop, EchoExit::Crash(code) if code == wanted));
    }
}

#[test]
fn cancel_ends_a_wait_at_once() {
    let sleep = query("r", r#"{"sleep_ms":18446744073709551615}"#);
    let (lines, _) = conversation(&[sleep, cancel("another"), cancel("r"), cancel("r")]);
    assert_eq!(lines, [r#"{"type":"error","requestId":"r","error":"cancelled","code":"cancelled"}"#, ACK,]);
}

#[test]
fn health_is_reported_even_during_a_query() {
    let sleep = query("r", r#"{"sleep_ms":60000}"#);
    let check = HEALTH_CHECK.to_owned();
    let (lines, _) = conversation(&[check.clone(), sleep, check.clone(), cancel("r"), check]);
    let reports: Vec<_> = lines.iter().filter(|line| line.contains("health_ok")).collect();
    assert_eq!(reports.len(), 3);
    assert!(reports[1].ends_with(r#""queriesProcessed":0}"#) && reports[2].ends_with(r#""queriesProcessed":1}"#));
}

#[test]
fn shutdown_that_is_not_graceful_drops_the_query() {
    let sleep = query("r", r#"{"sleep_ms":60000}"#);
    let (lines, stop) = conversation(&[sleep, r#"{"type":"shutdown","graceful":false}"#.to_owned()]);
    assert_eq!(lines, [ACK]);
    assert!(matches!(stop, EchoExit::Shutdown));
}

#[test]
fn closed_connection_ends_the_worker() {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    pool.write_all(format!("{}\n", query("r", r#"{"sleep_ms":60000}"#)).as_bytes()).unwrap();
    pool.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(Echo::new(worker).unwrap().serve(), EchoExit::PoolGone));
}

#[test]
fn messages_have_the_requested_size() {
    for (text, count, size) in
        [(r#"{"stream":3,"size":200}"#, 3, 200), (r#"{"size":11}"#, 1, 11), (r#"{"stream":9,"size":65536}"#, 9, 65_536)]
    {
        let lines = answers(text);
        assert_eq!(lines.len(), count + 1);
        for line in &lines[..count] {
            let content = line.strip_prefix(r#"{"type":"message","requestId":"r","content":"#).unwrap();
            let content = content.strip_suffix('}').unwrap();
            assert_eq!(content.len(), size);
            assert!(serde_json::from_str::<serde_json::Value>(content).unwrap().is_object());
        }
        assert_eq!(lines[count], format!(r#"{{"type":"complete","requestId":"r","result":{{"streamed":{count}}}}}"#));
    }
}

#[test]
fn size_out_of_range_is_refused() {
    for size in ["10", "67108865"] {
        let error = format!("size is {size}; give 11 to 67108864 bytes");
        let refusal = format!(r#"{{"type":"error","requestId":"r","error":"{error}","code":"bad_size"}}"#);
        assert_eq!(answers(&format!(r#"{{"stream":2,"size":{size}}}"#)), [refusal]);
    }
}

#[test]
fn stream_without_a_delay_can_be_cancelled() {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    let lines = [query("r", r#"{"stream":18446744073709551615,"size":1000}"#), cancel("r"), SHUTDOWN.to_owned()];
    pool.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let reading = thread::spawn(move || io::copy(&mut pool, &mut io::sink()));
    assert!(matches!(Echo::new(worker).unwrap().serve(), EchoExit::Shutdown));
    reading.join().unwrap().unwrap();
}

/// The commands that the worker reads from these bytes.
fn parsed(bytes: &[u8]) -> Vec<PoolCommand> {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    let mut inbox = Inbox::new(worker);
    let bytes = bytes.to_vec();
    let writing = thread::spawn(move || pool.write_all(&bytes));
    let commands = std::iter::from_fn(|| inbox.next()).collect();
    writing.join().unwrap().unwrap();
    commands
}

#[test]
fn commands_are_read_and_unknown_ones_skipped() {
    let commands = parsed(
        concat!(
            r#"{"type":"query","requestId":"r","payload":{"a": 1},"attempt":1}"#,
            "\n{\"type\":\"dance\"}\nnot json\n",
            r#"{"type":"cancel","requestId":"r","reason":"x"}"#,
            "\n",
            r#"{"type":"shutdown","graceful":false,"graceMs":5}"#,
            "\n{\"type\":\"health_check\"}\n",
        )
        .as_bytes(),
    );
    assert!(
        matches!(&commands[0], PoolCommand::Query { request_id, payload } if request_id == "r" && payload.get() == r#"{"a": 1}"#)
    );
    assert!(matches!(&commands[1], PoolCommand::Cancel { request_id } if request_id == "r"));
    assert!(matches!(commands[2], PoolCommand::Shutdown { graceful: false }));
    assert!(matches!(commands[3], PoolCommand::HealthCheck));
    assert_eq!(commands.len(), 4);
}

#[test]
fn command_may_be_longer_than_one_read() {
    let long = format!("[{}0]", "1,".repeat(200_000));
    let commands = parsed(format!("{}\n{HEALTH_CHECK}\n", query("r", &long)).as_bytes());
    assert!(matches!(&commands[0], PoolCommand::Query { payload, .. } if payload.get() == long));
    assert!(matches!(commands[1], PoolCommand::HealthCheck));
}
