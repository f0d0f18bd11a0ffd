//! A server process of its own for each test.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{Client, DEADLINE, alive, descendants, eventually, eventually_within, send_signal};

pub(crate) struct Server {
    child: Child,
    /// The config file lies here, and so do the sockets.
    pub dir: TempDir,
    pub grpc: String,
    pub http: String,
    log: Arc<Mutex<Vec<String>>>,
}

/// The command under test. Its workers may read its secrets, since they run as the same user in most tests; those that are
/// about just that take the variable back.
pub(crate) fn remuda() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remuda"));
    command.env_remove("REMUDA_ENDPOINT").env_remove("REMUDA_CONFIG").env(SHARED_SECRETS, "true");
    command
}

pub(crate) const SHARED_SECRETS: &str = "REMUDA__SERVER__WORKERS_MAY_READ_SECRETS";

/// A kind that runs the fake worker with these arguments and settings.
pub(crate) fn fake_kind(name: &str, arguments: &[&str], settings: &str) -> String {
    let mut command = vec![env!("CARGO_BIN_EXE_fake-worker")];
    command.extend(arguments);
    let command = serde_json::to_string(&command).expect("strings are JSON");
    format!("[kinds.{name}]\ncommand = {command}\n{settings}\n")
}

/// Says loudly that a test was skipped because something is missing. Where that must not happen, it is a failure.
pub(crate) fn skip(missing: &str) {
    assert!(
        std::env::var_os("REMUDA_TEST_NO_SKIP").is_none(),
        "{missing} is missing, and skipping is not allowed here"
    );
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "SKIPPED: {missing} is missing here");
}

impl Server {
    /// Starts a server and waits until it has bound its ports.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    pub(crate) fn start_with(config: &str, adjust: impl FnOnce(&mut Command)) -> Self {
        Self::start_by(config, |_, file| {
            let mut command = remuda();
            command.arg("serve").arg("--config").arg(file);
            adjust(&mut command);
            command
        })
    }

    /// Starts a server with a command that `make` makes of its directory and the config file in it.
    pub(crate) fn start_by(config: &str, make: impl FnOnce(&Path, &Path) -> Command) -> Self {
        let dir = tempfile::Builder::new().prefix("rt").tempdir().expect("a temporary directory");
        let file = dir.path().join("remuda.toml");
        std::fs::write(&file, with_own_ports(config, dir.path())).expect("the config can be written");
        let command = make(dir.path(), &file);
        Self::launch(command, dir, |_| {})
    }

    /// Starts a server that finds no config file.
    pub(crate) fn start_without_file() -> Self {
        let dir = tempfile::Builder::new().prefix("rt").tempdir().expect("a temporary directory");
        let mut command = remuda();
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]).current_dir(dir.path());
        command.env("REMUDA__POOL__SOCKET_DIR", dir.path());
        Self::launch(command, dir, |_| {})
    }

    /// Starts a server with an existing config file.
    pub(crate) fn start_file(config: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("rt").tempdir().expect("a temporary directory");
        let mut command = remuda();
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config"]).arg(config);
        command.env("REMUDA__POOL__SOCKET_DIR", dir.path());
        Self::launch(command, dir, |_| {})
    }

    /// Puts another configuration into the file that the server was started with.
    pub(crate) fn rewrite(&self, config: &str) {
        let file = self.dir.path().join("remuda.toml");
        std::fs::write(&file, with_own_ports(config, self.dir.path())).expect("the config can be written");
    }

    fn launch(mut command: Command, dir: TempDir, adjust: impl FnOnce(&mut Command)) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        adjust(&mut command);
        let mut child = command.spawn().expect("the server can be started");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().expect("stderr is piped");
        thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    log.lock().unwrap().push(line);
                }
            }
        });
        let mut server = Self { child, dir, grpc: String::new(), http: String::new(), log };
        let serving = eventually("the server to bind its ports", || {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended: {:#?}", server.log());
            server.log_lines().into_iter().find(|line| line["fields"]["message"] == "serving")
        });
        let address = |name: &str| serving["fields"][name].as_str().expect("an address").to_owned();
        (server.grpc, server.http) = (address("grpc"), address("http"));
        server
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.grpc).await
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The path of a file that is not there yet, in the server's directory.
    pub(crate) fn gate(&self, name: &str) -> String {
        let gates = self.dir.path().join("gates");
        std::fs::create_dir_all(&gates).expect("a directory can be made");
        gates.join(name).display().to_string()
    }

    /// Waits for a line of the log that holds this text.
    #[track_caller]
    pub(crate) fn logs(&self, text: &str) -> String {
        eventually(&format!("{text:?} in the log"), || self.log().into_iter().find(|line| line.contains(text)))
    }

    /// The log as JSON; lines that are not are left out.
    pub(crate) fn log_lines(&self) -> Vec<Value> {
        self.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The processes that the server has started and that still live.
    pub(crate) fn worker_pids(&self) -> Vec<u32> {
        descendants(self.pid())
    }

    /// One HTTP request; gives the status code and the body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[&str]) -> (u16, String) {
        let text = self.try_get(path, headers);
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole answer");
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The raw answer as text; empty if there is none.
    pub(crate) fn try_get(&self, path: &str, headers: &[&str]) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("the HTTP side accepts");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let headers: String = headers.iter().flat_map(|header| [header, "\r\n"]).collect();
        let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
        let mut bytes = Vec::new();
        let _ = asked.and_then(|()| stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The value of one series of `/metrics`, such as `remuda_workers{kind="k",state="ready"}`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no series {series} in:\n{text}")).parse().unwrap()
    }

    /// The values of all series of a metric together.
    pub(crate) fn metric_sum(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let values: Vec<f64> = series.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!values.is_empty(), "no series of {name} in:\n{text}");
        values.iter().sum()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits for the server to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.wait_within(DEADLINE)
    }

    /// The same where the time of a stop is promised.
    pub(crate) fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        let child = &mut self.child;
        eventually_within(limit, "the server to end", || child.try_wait().unwrap())
    }

    /// Exit status of the server, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks the server to stop and checks that it leaves nothing behind: processes, sockets, files.
    pub(crate) fn stop_cleanly(mut self) -> ExitStatus {
        let workers = self.worker_pids();
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        for pid in workers {
            assert!(!alive(pid), "worker process {pid} outlived the server");
        }
        assert_eq!(self.leftovers(), Vec::<PathBuf>::new());
        status
    }

    /// Files that the server has put into its directory.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| !path.ends_with("remuda.toml") && !path.ends_with("gates")).collect()
    }

    /// Entries of the server's own directory for its workers, other than its lock.
    pub(crate) fn belongings(&self) -> BTreeSet<String> {
        let [own] = self.leftovers().try_into().expect("the server has one directory");
        let names = std::fs::read_dir(own).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let deadline = Instant::now() + Duration::from_millis(50);
        while Instant::now() < deadline && Arc::strong_count(&self.log) > 1 {
            thread::yield_now();
        }
        if thread::panicking() {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "--- the server's log:\n{}", self.log().join("\n"));
        } else {
            let panics: Vec<_> = self.log().into_iter().filter(|line| line.contains("panicked at")).collect();
            assert!(panics.is_empty(), "the server panicked: {panics:#?}");
        }
    }
}

/// Puts ports chosen by the system and a private socket directory under what the test asks for.
fn with_own_ports(config: &str, dir: &Path) -> String {
    let server =
        if config.contains("[server]") { "" } else { "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n" };
    let socket_dir = format!("socket_dir = {:?}\n", dir.display().to_string());
    if config.contains("[pool]") {
        format!("{server}{}", config.replace("[pool]\n", &format!("[pool]\n{socket_dir}")))
    } else {
        format!("{server}[pool]\n{socket_dir}{config}")
    }
}
