//! A worker that does what it is told: the one the tests run, which can misbehave in every way a worker can.
//!
//! ```text
//! fake-worker [--stdio] [--start STEPS] [--idle STEPS] [--after-complete STEPS] [--on-cancel STEPS]
//!             [--on-shutdown STEPS] [--stranger]
//!
//! --start           runs first                        ["connect", "ready"]
//! --idle            runs next, on no query            []
//! --after-complete  runs each time a query has ended  []
//! --on-cancel       runs in place of what is left     [{"error": {"error": "cancelled", "code": "cancelled"}}]
//! --on-shutdown     runs when told to go              ["shutdown_ack", {"exit": 0}]
//! --stdio           connects to stdin and stdout instead of the socket in REMUDA_SOCKET
//! --stranger        short for --start '["connect_from_outside"]'
//! ```
//!
//! A query whose payload is an object with `"steps"` runs those; its `"on_cancel"` counts more than the option. Any
//! other query is echoed: a message with the payload, then a complete with `{"echo": payload}`, both to the letter. A
//! query whose steps run out without an end completes with `null`; steps that cannot be read are an error with the
//! code `bad_steps`. STEPS is a JSON array, and each step a string or an object with one key:
//!
//! ```text
//! frames    "connect"   "ready"   {"ready": {more fields}}   {"session": "id"}   {"message": JSON}
//!           {"messages": {"count": n, "size": bytes, "delay_ms": d}}    content {"n": i, "pad": "xx.."}, i from 1
//!           {"complete": JSON}   {"error": {"error": "text", "code": .., "retryable": .., "details": ..}}
//!           "heartbeat"   {"beat_ms": n} (one every n ms from now on)   "shutdown_ack"
//! tells     "env"    completes with env, cwd, args, pid, ppid, pgid, sid, uid, gid and fds {"0": "/dev/null", ..}
//!           "pid"    message {"pid", "worker", "grandchildren": [pid, ..]}; worker is a number
//!           "nonce"  completes with {"nonce": that of the payload, "pid", "worker", "concurrent"}
//!           "frame"  completes with the query frame as it came
//! tries     {"try": {"read": "/path"}}   and list, write, execute, connect, connect_abstract, signal, join_group, open_files:
//!           message "ok" or the kind of error, like "PermissionDenied"
//! branches  {"until_attempt": [n, STEPS]}   {"if_worker": [id, STEPS]}    if so, these in place of the rest
//!           {"armed": ["/path", STEPS]}     if the file is there: removes it, then these, then the rest
//! waits     {"await_file": "/path"}         until it is there; like the next two in what it heeds
//!           {"sleep_ms": n}    "hang"       still heed a cancel, and a shutdown as soon as its `graceful` allows
//!           "hang_hard"                     reads nothing any more and lets only signals through
//!           "ignore_cancel"  "ignore_term"  from now on
//! ends      {"exit": code}   "abort"   {"signal": "SEGV"}   "close_socket" (and lives on)   "close_stdout"
//!           "done"           takes the query for ended without a word
//! nonsense  {"raw": "text"} (newline added, $ID becomes the request id)   {"raw_hex": "ff0a"} (no newline added)
//!           {"long_line": bytes} (a message of that length without its newline)   "half_line" (no newline)
//!           "unknown_type"   "second_ready"   "stale" (a message for "stale-0")   "message_after_complete"
//!           "two_completes"
//! burdens   "grandchild" (this group)   "grandchild_setsid"     both hold the connection as stdin, for 1000 s at most
//!           {"stderr": "text"}   {"stdout": "text"}   {"flood_stderr": lines}   {"allocate_mb": n}
//! stranger  "connect_from_outside"    a child in a session of its own connects and says ready; this process does not
//! ```
//!
//! Frames that name a query name the last one, or "none-0" before the first. Exit codes of its own: 0 when the pool has
//! closed the connection, 2 for a wrong command line or script, 98 when the pool sends nonsense, and 99 when a query
//! comes while another runs: then it shouts `TWO QUERIES AT ONCE` as the error of both.

mod attempt;
mod children;
mod link;
mod report;
mod script;
mod signals;
mod wire;
mod worker;

use std::{
    env,
    io::{self, Write},
    process::exit,
};

use script::{Scripts, Steps};
use worker::Worker;

fn main() {
    let mut arguments = env::args().skip(1);
    let mut scripts = Scripts::default();
    let mut transport = wire::Transport::Socket;
    while let Some(argument) = arguments.next() {
        let script = match argument.as_str() {
            children::SLEEP_FOREVER => children::sleep_forever(),
            children::SLEEP_FOREVER_SETSID => children::sleep_forever_in_own_session(),
            children::OUTSIDER => children::be_outsider(),
            "--stdio" => {
                transport = wire::Transport::Stdio;
                continue;
            }
            "--stranger" => {
                scripts.start = script::parse(r#"["connect_from_outside"]"#).expect("the steps are well-formed");
                continue;
            }
            "--start" => &mut scripts.start,
            "--idle" => &mut scripts.idle,
            "--after-complete" => &mut scripts.after_complete,
            "--on-cancel" => &mut scripts.on_cancel,
            "--on-shutdown" => &mut scripts.on_shutdown,
            other => die(2, &format!("unknown option {other:?}")),
        };
        *script = steps(&argument, arguments.next());
    }
    Worker::new(scripts, transport).live();
}

fn steps(option: &str, value: Option<String>) -> Steps {
    let value = value.unwrap_or_else(|| die(2, &format!("{option} needs a value")));
    script::parse(&value).unwrap_or_else(|error| die(2, &format!("{option}: {error}")))
}

fn die(code: i32, why: &str) -> ! {
    say(why);
    exit(code)
}

/// Tells whoever reads our stderr, if anyone does.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "fake-worker: {what}");
}
