//! What the echo worker says to each payload and each order.

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

/// Hands over the orders, and a graceful shutdown last; gives the lines after `ready`.
fn conversation(orders: &[String]) -> (Vec<String>, Stop) {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    pool.write_all(format!("{}\n{SHUTDOWN}\n", orders.join("\n")).as_bytes()).unwrap();
    let listening = thread::spawn(move || {
        let mut text = String::new();
        pool.read_to_string(&mut text).unwrap();
        text
    });
    let stop = Echo::new(worker).unwrap().serve();
    let text = listening.join().unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines[0], format!(r#"{{"type":"ready","protocol":1,"name":"echo","version":"{version}"}}"#));
    (lines[1..].to_vec(), stop)
}

/// What the worker said to one query.
fn said(text: &str) -> Vec<String> {
    let (mut lines, stop) = conversation(&[query("r", text)]);
    assert!(matches!(stop, Stop::Told));
    assert_eq!(lines.pop().unwrap(), ACK);
    lines
}

const ACK: &str = r#"{"type":"shutdown_ack"}"#;

#[test]
fn anything_is_echoed_to_the_letter() {
    for text in ["null", "[1.0,  2e3]", r#"{"hello":"world"}"#, r#"{"stream":"three"}"#, r#"{"crash":false}"#] {
        assert_eq!(
            said(text),
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
        said(r#"{"session":"s","stream":2,"delay_ms":1}"#),
        [
            r#"{"type":"session","requestId":"r","sessionId":"s"}"#,
            r#"{"type":"message","requestId":"r","content":{"n":1}}"#,
            r#"{"type":"message","requestId":"r","content":{"n":2}}"#,
            r#"{"type":"complete","requestId":"r","result":{"streamed":2}}"#,
        ]
    );
}

#[test]
fn sleep_tells_how_long_it_was() {
    assert_eq!(
        said(r#"{"stream":1,"sleep_ms":1}"#)[1],
        r#"{"type":"complete","requestId":"r","result":{"slept_ms":1,"streamed":1}}"#
    );
}

#[test]
fn failure_is_reported_with_what_was_asked_for() {
    assert_eq!(
        said(r#"{"fail":"no luck","code":"E7","retryable":true}"#),
        [r#"{"type":"error","requestId":"r","error":"no luck","code":"E7","retryable":true}"#]
    );
    assert_eq!(said(r#"{"fail":"no luck"}"#), [r#"{"type":"error","requestId":"r","error":"no luck"}"#]);
}

#[test]
fn crash_has_the_exit_code_that_was_asked_for() {
    for (text, wanted) in [(r#"{"crash":true}"#, 1), (r#"{"crash":7,"fail":"never said"}"#, 7), (r#"{"crash":0}"#, 0)] {
        let (lines, stop) = conversation(&[query("r", text)]);
        assert!(lines.is_empty(), "{lines:?}");
        assert!(matches!(stop, Stop::Crash(code) if code == wanted));
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
    assert!(matches!(stop, Stop::Told));
}

#[test]
fn pool_that_goes_away_ends_the_worker() {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    pool.write_all(format!("{}\n", query("r", r#"{"sleep_ms":60000}"#)).as_bytes()).unwrap();
    pool.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(Echo::new(worker).unwrap().serve(), Stop::PoolGone));
}

#[test]
fn messages_have_the_size_that_was_asked_for() {
    for (text, count, size) in
        [(r#"{"stream":3,"size":200}"#, 3, 200), (r#"{"size":11}"#, 1, 11), (r#"{"stream":9,"size":65536}"#, 9, 65_536)]
    {
        let lines = said(text);
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
fn size_that_cannot_be_is_refused() {
    for size in ["10", "67108865"] {
        let error = format!("size is {size}; give 11 to 67108864 bytes");
        let told = format!(r#"{{"type":"error","requestId":"r","error":"{error}","code":"bad_size"}}"#);
        assert_eq!(said(&format!(r#"{{"stream":2,"size":{size}}}"#)), [told]);
    }
}

#[test]
fn stream_without_a_delay_can_be_cancelled() {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    let lines = [query("r", r#"{"stream":18446744073709551615,"size":1000}"#), cancel("r"), SHUTDOWN.to_owned()];
    pool.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let listening = thread::spawn(move || io::copy(&mut pool, &mut io::sink()));
    assert!(matches!(Echo::new(worker).unwrap().serve(), Stop::Told));
    listening.join().unwrap().unwrap();
}

/// What a pool that writes `bytes` and goes away is understood to have said.
fn understood(bytes: &[u8]) -> Vec<Order> {
    let (mut pool, worker) = UnixStream::pair().unwrap();
    let mut inbox = Inbox::new(worker);
    let bytes = bytes.to_vec();
    let writing = thread::spawn(move || pool.write_all(&bytes));
    let orders = std::iter::from_fn(|| inbox.next()).collect();
    writing.join().unwrap().unwrap();
    orders
}

#[test]
fn orders_are_read_and_unknown_ones_passed_over() {
    let orders = understood(
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
        matches!(&orders[0], Order::Query { request_id, payload } if request_id == "r" && payload.get() == r#"{"a": 1}"#)
    );
    assert!(matches!(&orders[1], Order::Cancel { request_id } if request_id == "r"));
    assert!(matches!(orders[2], Order::Shutdown { graceful: false }));
    assert!(matches!(orders[3], Order::HealthCheck));
    assert_eq!(orders.len(), 4);
}

#[test]
fn order_may_be_longer_than_what_is_read_at_once() {
    let long = format!("[{}0]", "1,".repeat(200_000));
    let orders = understood(format!("{}\n{HEALTH_CHECK}\n", query("r", &long)).as_bytes());
    assert!(matches!(&orders[0], Order::Query { payload, .. } if payload.get() == long));
    assert!(matches!(orders[1], Order::HealthCheck));
}
