//! `remuda serve`: loads the configuration, starts the log and the server, and prints how to reach it.

use std::{
    env,
    fmt::Write,
    fs::File,
    io::{self, IsTerminal},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    process::ExitCode,
    time::Duration,
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::{
    runtime::{self, Runtime},
    time::Instant,
};
use tracing::info;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::{
    args::{LogFormat, ServeArgs},
    config,
    exit::{CliError, CliExit},
    format, output,
};
use crate::{
    client::DEFAULT_ENDPOINT,
    config::{Config, Overrides, ServerConfig},
    pool::{DrainReport, Reloader},
    server::{Addresses, Server},
    trace::SpanExport,
};

/// Time for sending the last spans, and then for threads that still block, unless the deadline of the stop is earlier.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_millis(500);

pub(super) fn serve(args: ServeArgs) -> Result<ExitCode, CliError> {
    // A worker of the same user must not read the server's memory or environment.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(CliError::system)?;
    let overrides = Overrides { listen: args.listen, http: args.http };
    let (config, origin) = config::load(args.config_file.clone(), &overrides)?;
    let reloader = config::reloader(args.config_file, overrides, config.server.clone());
    let default = if io::stderr().is_terminal() { LogFormat::Human } else { LogFormat::Json };
    let format = args.log_format.unwrap_or(default);
    let _log = start_log(&args.log, format)?;
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::system)?;
    let export = start_export(&config.server, &runtime)?;
    let ended = runtime.block_on(run(config, reloader, &origin, format));
    let left = || match &ended {
        Ok(drained) => drained.end.saturating_duration_since(Instant::now()).min(SHUTDOWN_WAIT_MAX),
        Err(_) => SHUTDOWN_WAIT_MAX,
    };
    if let Some(export) = export {
        export.stop(left());
    }
    runtime.shutdown_timeout(left());
    let exit = if ended?.is_lossless() { CliExit::Done } else { CliExit::Failed };
    Ok(exit.into())
}

async fn run(
    config: Config,
    reloader: Option<Reloader>,
    origin: &str,
    format: LogFormat,
) -> Result<DrainReport, CliError> {
    let kinds: Vec<_> = config.kinds.iter().map(|kind| kind.name.to_string()).collect();
    let access = ServerAccess::of(&config.server);
    let own = own_binary().map_err(CliError::system)?;
    let launcher = format!("/proc/self/fd/{}", own.as_raw_fd()).into();
    let server = Server::bind(config, launcher, reloader).await.map_err(CliError::system)?;
    let message = StartupMessage { program: &program(), origin, kinds: &kinds, addresses: server.addresses(), access };
    match format {
        LogFormat::Human => output::stderr_text(&message.text()),
        LogFormat::Json => {
            info!(config = origin, kinds = kinds.join(", "), next = message.next_command(), "configuration loaded");
        }
    }
    server.run().await.map_err(CliError::system)
}

/// This binary, which can be started again even after its file was replaced or removed. It is opened and not only named: under an
/// instrumenting tool `/proc/self/exe` would otherwise start that tool.
fn own_binary() -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open("/proc/self/exe")
}

fn start_export(config: &ServerConfig, runtime: &Runtime) -> Result<Option<SpanExport>, CliError> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(None) };
    let _runtime = runtime.enter();
    let export = SpanExport::start(endpoint, config.otlp_sample).map_err(|error| {
        CliError::Usage(format!("cannot export spans to {endpoint} (server.otlp_endpoint): {error}"))
    })?;
    info!(endpoint, sample = config.otlp_sample, "exporting spans");
    Ok(Some(export))
}

/// `remuda` if the PATH leads to this program, or else its path, relative if possible.
fn program() -> String {
    let Ok(own) = env::current_exe() else { return "remuda".to_owned() };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("remuda")).find(|candidate| candidate.is_file());
    if found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| Some(found) == own.canonicalize().ok()) {
        return "remuda".to_owned();
    }
    let here = env::current_dir().unwrap_or_default();
    own.strip_prefix(here).unwrap_or(&own).display().to_string()
}

/// Buffered log lines. If the reader of the log is slow or stuck, further lines are dropped and the server goes on.
const LOG_BUFFER_LINES: usize = 16 * 1024;

/// Starts the log. Dropping the guard writes the buffered lines.
fn start_log(filter: &str, format: LogFormat) -> Result<WorkerGuard, CliError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        CliError::Usage(format!("--log {filter}: {error}; write one like info or info,remuda=debug"))
    })?;
    let colour = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LOG_BUFFER_LINES).finish(io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    match format {
        LogFormat::Human => log.with_target(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    }
    .map_err(CliError::System)?;
    Ok(guard)
}

/// The text that a server prints at its start.
struct StartupMessage<'a> {
    /// The command that starts this program from the current directory.
    program: &'a str,
    origin: &'a str,
    kinds: &'a [String],
    addresses: &'a Addresses,
    access: ServerAccess,
}

/// Security settings that clients must match.
#[derive(Debug, Clone)]
struct ServerAccess {
    tls: bool,
    http_tls: bool,
    /// Options of client commands beside the endpoint; only the user knows the values in capitals.
    options: Vec<&'static str>,
}

impl ServerAccess {
    fn of(config: &ServerConfig) -> Self {
        let mut options = Vec::new();
        let tls = config.tls();
        if let Some(tls) = &tls {
            options.extend(["--tls-ca FILE", "--tls-name NAME"]);
            options.extend(tls.client_ca.iter().map(|_| "--tls-cert FILE --tls-key FILE"));
        }
        options.extend(config.tokens.iter().map(|_| "--token-file FILE"));
        Self { tls: tls.is_some(), http_tls: tls.is_some() && config.http_tls, options }
    }
}

impl StartupMessage<'_> {
    fn text(&self) -> String {
        let kinds = format::plural(self.kinds.len() as u64, "kind", "kinds");
        let mut text = format!(
            "remuda {} serves {kinds} of worker ({}) from {}\n  gRPC  {}\n",
            env!("CARGO_PKG_VERSION"),
            self.kinds.join(", "),
            self.origin,
            self.addresses.grpc
        );
        if let Some(http) = self.addresses.http {
            let scheme = if self.access.http_tls { "https" } else { "http" };
            let _ = writeln!(text, "  HTTP  {scheme}://{http}/metrics, /livez, /readyz");
        }
        let _ = write!(text, "Next, in another terminal:\n  {}\n", self.next_command());
        text
    }

    /// A command to try: `run` for the echo worker, `health` for workers whose payloads only the user knows.
    fn next_command(&self) -> String {
        let remuda = self.program;
        let grpc = &self.addresses.grpc;
        let is_default = DEFAULT_ENDPOINT.strip_prefix("http://") == Some(grpc);
        let endpoint = match self.access.tls && !grpc.starts_with("unix:") {
            true => format!("--endpoint https://{grpc} "),
            false if is_default => String::new(),
            false => format!("--endpoint {grpc} "),
        };
        let options: String = self.access.options.iter().flat_map(|option| [option, " "]).collect();
        if self.kinds == ["echo"] {
            format!("{remuda} {endpoint}{options}run '{{\"hello\":\"world\"}}'")
        } else {
            format!("{remuda} {endpoint}{options}health")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSource;

    /// With these lines in `[server]`.
    fn message<'a>(origin: &'a str, kinds: &'a [String], addresses: &'a Addresses, server: &str) -> StartupMessage<'a> {
        let text = format!("[server]\n{server}\n[kinds.k]\ncommand = [\"x\"]\n");
        let source = ConfigSource::Text { name: "t.toml".to_owned(), text, base_dir: "/".into() };
        let config = Config::load(source, [], &Overrides::default()).unwrap();
        StartupMessage { program: "remuda", origin, kinds, addresses, access: ServerAccess::of(&config.server) }
    }

    #[test]
    fn startup_message_names_the_options_for_a_protected_server() {
        let addresses = Addresses { grpc: "127.0.0.1:50051".to_owned(), http: Some("127.0.0.1:9090".parse().unwrap()) };
        let kinds = ["embed".to_owned()];
        let with = |server| message("remuda.toml", &kinds, &addresses, server);
        assert_eq!(with("tokens = \"t\"").next_command(), "remuda --token-file FILE health");
        let all = with("tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_ca = \"a\"\ntokens = \"t\"");
        let options = "--endpoint https://127.0.0.1:50051 --tls-ca FILE --tls-name NAME --tls-cert FILE --tls-key FILE \
                       --token-file FILE";
        assert_eq!(all.next_command(), format!("remuda {options} health"));
        assert!(all.text().contains("  HTTP  https://127.0.0.1:9090/metrics"), "{}", all.text());
    }

    #[test]
    fn startup_message_names_a_command_to_try() {
        let addresses = Addresses { grpc: "127.0.0.1:50051".to_owned(), http: Some("127.0.0.1:9090".parse().unwrap()) };
        let kinds = ["echo".to_owned()];
        let text = message("built-in defaults", &kinds, &addresses, "").text();
        assert!(
            text.contains("serves 1 kind of worker (echo) from built-in defaults\n  gRPC  127.0.0.1:50051\n"),
            "{text}"
        );
        assert!(text.ends_with("Next, in another terminal:\n  remuda run '{\"hello\":\"world\"}'\n"), "{text}");
    }

    #[test]
    fn startup_message_names_an_endpoint_that_is_not_the_default() {
        let addresses = Addresses { grpc: "unix:/run/remuda.sock".to_owned(), http: None };
        let kinds = ["embed".to_owned(), "chat".to_owned()];
        let message = message("remuda.toml", &kinds, &addresses, "");
        assert_eq!(message.next_command(), "remuda --endpoint unix:/run/remuda.sock health");
        assert!(message.text().contains("serves 2 kinds of worker (embed, chat) from remuda.toml"));
    }
}
