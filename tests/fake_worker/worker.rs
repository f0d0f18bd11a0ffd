//! Runs the steps.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::fd::IntoRawFd,
    path::Path,
    process::{self, Child, exit},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue, value::to_raw_value};

use crate::{
    children, die,
    link::{Interrupt, Link, Query, Task, sleep_for_good},
    report,
    script::{self, Flow, QueryScript, Scripts, Step, Steps},
    signals,
    wire::{Frame, Transport, Wire},
};

/// Messages without a pause between them go out in writes of about this size.
const BATCH_BYTES: usize = 32 * 1024;

pub(crate) struct Worker {
    scripts: Scripts,
    transport: Transport,
    link: Arc<Link>,
    wire: Option<Arc<Wire>>,
    /// The query that runs, or else the last one.
    query: Option<Query>,
    children: Vec<Child>,
    hoard: Vec<Vec<u8>>,
}

impl Worker {
    pub(crate) fn new(scripts: Scripts, transport: Transport) -> Self {
        let link = Arc::new(Link::new());
        Self { scripts, transport, link, wire: None, query: None, children: Vec::new(), hoard: Vec::new() }
    }

    pub(crate) fn live(mut self) -> ! {
        self.run_aside(&self.scripts.start.clone());
        self.run_aside(&self.scripts.idle.clone());
        loop {
            match self.link.next() {
                Task::Query(query) => self.answer(query),
                Task::ShutDown => self.shut_down(),
            }
        }
    }

    /// Runs steps that belong to no query.
    fn run_aside(&mut self, steps: &Steps) {
        if self.run(steps).is_err() {
            self.shut_down();
        }
    }

    fn shut_down(&mut self) {
        // It has been told to go: being told again changes nothing.
        let _ = self.run(&self.scripts.on_shutdown.clone());
    }

    fn answer(&mut self, query: Query) {
        let script = QueryScript::read(&query.payload);
        self.query = Some(query);
        match script {
            Ok(script) => self.follow(&script),
            Err(error) => self.error(&object(json!({"error": error.to_string(), "code": "bad_steps"}))),
        }
        if self.link.is_running() {
            self.complete(RawValue::NULL);
        }
        self.run_aside(&self.scripts.after_complete.clone());
    }

    fn follow(&mut self, script: &QueryScript) {
        match self.run(&script.steps) {
            Ok(()) => {}
            Err(Interrupt::Cancel) => {
                let on_cancel = script.on_cancel.as_ref().unwrap_or(&self.scripts.on_cancel).clone();
                if let Err(Interrupt::ShutDown) = self.run(&on_cancel) {
                    self.shut_down();
                }
            }
            Err(Interrupt::ShutDown) => self.shut_down(),
        }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), Interrupt> {
        for step in steps {
            self.link.pause(Some(Instant::now()))?;
            match step {
                Step::UntilAttempt(last, instead) if self.attempt() <= *last => return self.run(instead),
                Step::IfWorker(id, instead) if report::worker_id() == *id => return self.run(instead),
                Step::UntilAttempt(..) | Step::IfWorker(..) => {}
                Step::Try(attempt) => self.message(&raw(&attempt.outcome())),
                step => self.take(step)?,
            }
        }
        Ok(())
    }

    /// Number of this attempt at the query.
    fn attempt(&self) -> u64 {
        let fields = self.query.as_ref().map(|query| script::fields(&query.frame));
        fields
            .and_then(|mut fields| fields.remove("attempt"))
            .and_then(|attempt| attempt.get().parse().ok())
            .unwrap_or(1)
    }

    fn take(&mut self, step: &Step) -> Result<(), Interrupt> {
        match step {
            Step::Connect => self.connect(),
            Step::ConnectFromOutside => self.adopt(children::connect_from_outside()),
            Step::Ready(more) => self.send(&Frame::Ready { more }),
            Step::Session(session_id) => self.send(&Frame::Session { request_id: self.id(), session_id }),
            Step::Message(content) => self.message(content),
            Step::Messages(flow) => self.messages(*flow)?,
            Step::Complete(result) => self.complete(result),
            Step::Error(body) => self.error(body),
            Step::Heartbeat => self.heartbeat(),
            Step::ShutdownAck => self.send(&Frame::ShutdownAck),
            Step::Env => self.complete(&raw(&report::surroundings())),
            Step::Pid => self.message(&raw(&self.identity())),
            Step::Nonce => self.complete(&raw(&self.nonce())),
            Step::UntilAttempt(..) | Step::IfWorker(..) | Step::Try(_) => {}
            Step::Frame => {
                let frame = self.query.as_ref().map_or_else(|| raw(&()), |query| query.frame.clone());
                self.complete(&frame);
            }
            Step::SleepMs(millis) => self.link.pause(Some(Instant::now() + Duration::from_millis(*millis)))?,
            Step::Hang => self.link.pause(None)?,
            Step::HangHard => {
                self.link.stop_reading();
                sleep_for_good()
            }
            Step::IgnoreCancel => self.link.ignore_cancel(),
            Step::IgnoreTerm => signals::ignore_term(),
            Step::Exit(code) => exit(*code),
            Step::Abort => signals::abort(),
            Step::Signal(name) => signals::signal_self(*name),
            Step::CloseSocket => {
                self.link.close_input();
                self.wire().close();
            }
            Step::CloseStdout => close_stdout(),
            Step::Done => self.link.finish(),
            Step::HalfLine => self.half_line(),
            Step::Raw(text) => self.wire().write(format!("{}\n", text.replace("$ID", self.id())).as_bytes()),
            Step::RawHex(hex) => self.wire().write(&bytes_of(hex)),
            Step::LongLine(bytes) => self.long_line(*bytes),
            Step::UnknownType => self.send(&Frame::NoSuchType),
            Step::SecondReady => self.send(&Frame::Ready { more: &Map::new() }),
            Step::Stale => self.send(&Frame::Message { request_id: "stale-0", content: &raw("stale") }),
            Step::MessageAfterComplete => {
                let late = Frame::Message { request_id: self.id(), content: &raw("late") }.line();
                self.complete_and("done", &late);
            }
            Step::TwoCompletes => {
                let second = Frame::Complete { request_id: self.id(), result: &raw("second") }.line();
                self.complete_and("first", &second);
            }
            Step::Grandchild => self.adopt(children::grandchild(self.wire())),
            Step::GrandchildSetsid => self.adopt(children::grandchild_in_own_session(self.wire())),
            Step::Stderr(text) => drop(writeln!(io::stderr(), "{text}")),
            Step::Stdout(text) => drop(writeln!(io::stdout(), "{text}")),
            Step::FloodStderr(lines) => flood_stderr(*lines),
            // Written to, so that it is resident.
            Step::AllocateMb(mib) => self.hoard.push(vec![1; mib << 20]),
            // Whoever removes the file is the one that it was meant for.
            Step::Armed(path, steps) => {
                if fs::remove_file(path).is_ok() {
                    self.run(steps)?;
                }
            }
            Step::AwaitFile(path) => self.await_file(path)?,
            Step::BeatMs(millis) => self.beat(Duration::from_millis(*millis)),
        }
        Ok(())
    }

    fn connect(&mut self) {
        let wire = Wire::open(self.transport).unwrap_or_else(|error| die(1, &format!("cannot connect: {error}")));
        let wire = Arc::new(wire);
        self.wire = Some(wire.clone());
        let link = self.link.clone();
        thread::spawn(move || link.listen(&wire));
    }

    fn adopt(&mut self, child: io::Result<Child>) {
        self.children.push(child.unwrap_or_else(|error| die(1, &format!("cannot start a child: {error}"))));
    }

    fn messages(&self, flow: Flow) -> Result<(), Interrupt> {
        let pad = "x".repeat(flow.size);
        let mut batch = String::new();
        for n in 1..=flow.count {
            let content = raw(&json!({"n": n, "pad": pad}));
            batch.push_str(&Frame::Message { request_id: self.id(), content: &content }.line());
            if n == flow.count || batch.len() >= BATCH_BYTES || !flow.delay().is_zero() {
                self.wire().write(batch.as_bytes());
                batch.clear();
                self.link.pause(Some(Instant::now() + flow.delay()))?;
            }
        }
        Ok(())
    }

    fn message(&self, content: &RawValue) {
        self.send(&Frame::Message { request_id: self.id(), content });
    }

    fn complete(&self, result: &RawValue) {
        self.link.finish();
        self.send(&Frame::Complete { request_id: self.id(), result });
    }

    /// In one write, so that the pool is likely to find both at once.
    fn complete_and(&self, result: &str, next: &str) {
        self.link.finish();
        let complete = Frame::Complete { request_id: self.id(), result: &raw(result) }.line();
        self.wire().write((complete + next).as_bytes());
    }

    fn error(&self, body: &Map<String, Value>) {
        self.link.finish();
        self.send(&Frame::Error { request_id: self.id(), body });
    }

    fn heartbeat(&self) {
        beat_once(&self.link, self.wire());
    }

    /// Sends heartbeats from now on, whatever else happens.
    fn beat(&self, every: Duration) {
        let link = self.link.clone();
        let wire = self.wire.clone().unwrap_or_else(|| no_connection());
        thread::spawn(move || {
            loop {
                beat_once(&link, &wire);
                thread::sleep(every);
            }
        });
    }

    fn await_file(&self, path: &str) -> Result<(), Interrupt> {
        while !Path::new(path).exists() {
            self.link.pause(Some(Instant::now() + Duration::from_millis(5)))?;
        }
        Ok(())
    }

    fn half_line(&self) {
        let line = Frame::Message { request_id: self.id(), content: &raw("half") }.line();
        self.wire().write(&line.as_bytes()[..line.len() / 2]);
    }

    fn long_line(&self, bytes: usize) {
        let line_of = |pad: usize| Frame::Message { request_id: self.id(), content: &raw(&"x".repeat(pad)) }.line();
        let around = line_of(0).len() - 1;
        self.wire().write(line_of(bytes.saturating_sub(around)).as_bytes());
    }

    fn identity(&self) -> Value {
        let grandchildren: Vec<u32> = self.children.iter().map(Child::id).collect();
        json!({"pid": process::id(), "worker": report::worker_id(), "grandchildren": grandchildren})
    }

    fn nonce(&self) -> Value {
        let nonce = self.query.as_ref().and_then(|query| script::fields(&query.payload).remove("nonce"));
        json!({
            "nonce": nonce,
            "pid": process::id(),
            "worker": report::worker_id(),
            "concurrent": self.link.load(),
        })
    }

    fn id(&self) -> &str {
        self.query.as_ref().map_or("none-0", |query| &query.id)
    }

    fn send(&self, frame: &Frame<'_>) {
        self.wire().send(frame);
    }

    fn wire(&self) -> &Wire {
        self.wire.as_ref().unwrap_or_else(|| no_connection())
    }
}

fn no_connection() -> ! {
    die(2, "a step needs a connection that was not made")
}

fn beat_once(link: &Link, wire: &Wire) {
    let tasks = link.load();
    let state = if tasks == 0 { "ready" } else { "processing" };
    wire.send(&Frame::Heartbeat { state, memory: report::memory(), tasks });
}

fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("plain data can always be written to memory")
}

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).expect("it is an object")
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2).unwrap_or_default());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_else(|_| die(2, &format!("{hex:?} is not hex")))).collect()
}

/// The lowest free number goes to the next descriptor that is opened: let that be one to nothing.
fn close_stdout() {
    let _ = nix::unistd::close(libc::STDOUT_FILENO);
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _stays_open = nothing.into_raw_fd();
    }
}

fn flood_stderr(lines: u64) {
    let mut stderr = BufWriter::new(io::stderr().lock());
    for n in 1..=lines {
        let _ = writeln!(stderr, "flood {n}");
    }
}
