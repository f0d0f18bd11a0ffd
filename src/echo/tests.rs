//! What the echo worker says to each payload and each order.

use super::*;

fn payload(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn query(id: &str, text: &str) -> Order {
    Order::Query { request_id: id.to_owned(), payload: payload(text) }
}

fn echo(inbox: Receiver<Order>, written: &mut Vec<u8>) -> Echo<&mut Vec<u8>> {
    Echo { out: BufWriter::new(written), inbox, started: Instant::now(), processed: 0, leaving: false }
}

/// Hands over the orders, and a graceful shutdown last; gives the lines after `ready`.
fn conversation(orders: Vec<Order>) -> (Vec<String>, Stop) {
    let (sender, inbox) = sync_channel(INBOX);
    for order in orders.into_iter().chain([Order::Shutdown { graceful: true }]) {
        sender.send(order).unwrap();
    }
    let mut written = Vec::new();
    let stop = echo(inbox, &mut written).serve();
    let text = String::from_utf8(written).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines[0], format!(r#"{{"type":"ready","protocol":1,"name":"echo","version":"{version}"}}"#));
    (lines[1..].to_vec(), stop)
}

/// What the worker said to one query.
fn said(text: &str) -> Vec<String> {
    let (mut lines, stop) = conversation(vec![query("r", text)]);
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
        let (lines, stop) = conversation(vec![query("r", text)]);
        assert!(lines.is_empty(), "{lines:?}");
        assert!(matches!(stop, Stop::Crash(code) if code == wanted));
    }
}

#[test]
fn cancel_ends_a_wait_at_once() {
    let cancel = |id: &str| Order::Cancel { request_id: id.to_owned() };
    let sleep = query("r", r#"{"sleep_ms":18446744073709551615}"#);
    let (lines, _) = conversation(vec![sleep, cancel("another"), cancel("r"), cancel("r")]);
    assert_eq!(lines, [r#"{"type":"error","requestId":"r","error":"cancelled","code":"cancelled"}"#, ACK,]);
}

#[test]
fn health_is_reported_even_during_a_query() {
    let cancel = Order::Cancel { request_id: "r".to_owned() };
    let sleep = query("r", r#"{"sleep_ms":60000}"#);
    let (lines, _) = conversation(vec![Order::HealthCheck, sleep, Order::HealthCheck, cancel, Order::HealthCheck]);
    let reports: Vec<_> = lines.iter().filter(|line| line.contains("health_ok")).collect();
    assert_eq!(reports.len(), 3);
    assert!(reports[1].ends_with(r#""queriesProcessed":0}"#) && reports[2].ends_with(r#""queriesProcessed":1}"#));
}

#[test]
fn shutdown_that_is_not_graceful_drops_the_query() {
    let sleep = query("r", r#"{"sleep_ms":60000}"#);
    let (lines, stop) = conversation(vec![sleep, Order::Shutdown { graceful: false }]);
    assert_eq!(lines, [ACK]);
    assert!(matches!(stop, Stop::Told));
}

#[test]
fn pool_that_goes_away_ends_the_worker() {
    let (sender, inbox) = sync_channel(INBOX);
    sender.send(query("r", r#"{"sleep_ms":60000}"#)).unwrap();
    drop(sender);
    assert!(matches!(echo(inbox, &mut Vec::new()).serve(), Stop::PoolGone));
}

#[test]
fn orders_are_read_and_unknown_ones_passed_over() {
    let lines = concat!(
        r#"{"type":"query","requestId":"r","payload":{"a": 1},"attempt":1}"#,
        "\n{\"type\":\"dance\"}\nnot json\n",
        r#"{"type":"cancel","requestId":"r","reason":"x"}"#,
        "\n",
        r#"{"type":"shutdown","graceful":false,"graceMs":5}"#,
        "\n{\"type\":\"health_check\"}\n",
    );
    let (sender, inbox) = sync_channel(INBOX);
    read_orders(lines.as_bytes(), &sender);
    drop(sender);
    let orders: Vec<_> = inbox.iter().collect();
    assert!(
        matches!(&orders[0], Order::Query { request_id, payload } if request_id == "r" && payload.get() == r#"{"a": 1}"#)
    );
    assert!(matches!(&orders[1], Order::Cancel { request_id } if request_id == "r"));
    assert!(matches!(orders[2], Order::Shutdown { graceful: false }));
    assert!(matches!(orders[3], Order::HealthCheck));
    assert_eq!(orders.len(), 4);
}
