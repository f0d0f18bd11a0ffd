//! The arguments, as clap reads them. Each doc comment is a line of the help; longer texts are in `help/`.

mod bench;
mod dead;
mod operate;

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::access::AccessArgs;
use crate::{
    api::proto::{QueryState, disconnect_policy::Policy},
    client::DEFAULT_ENDPOINT,
    model::QueryId,
};

pub(super) use bench::{BaselineArgs, BenchArgs, BenchCommand, LoadArgs};
pub(super) use dead::{DeadCommand, DeadLetterArgs, DeadListArgs, DeadPurgeArgs, DeadRequeueArgs, DeadShowArgs};
pub(super) use operate::{DrainArgs, EventsArgs, ReloadArgs, ResumeArgs, ScaleArgs, WorkerActionArgs};

/// Warm worker processes behind one gRPC endpoint.
#[derive(Debug, Parser)]
#[command(
    name = "remuda",
    version,
    arg_required_else_help = true,
    after_help = concat!(include_str!("help/quick_start.txt"), include_str!("help/short.txt")),
    after_long_help = concat!(include_str!("help/quick_start.txt"), include_str!("help/long.txt"))
)]
pub(super) struct Cli {
    #[arg(
        long,
        global = true,
        env = "REMUDA_ENDPOINT",
        hide_env_values = true,
        value_name = "ADDR",
        default_value = DEFAULT_ENDPOINT,
        help = "Address of the server: host:port, http://host:port, https://host:port or unix:/path/to.sock"
    )]
    pub endpoint: String,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the server
    #[command(after_help = include_str!("help/serve.txt"))]
    Serve(ServeArgs),
    /// Run a query and print the worker's messages and result as they come
    #[command(after_help = include_str!("help/run.txt"))]
    Run(RunArgs),
    /// Submit a query and print its id, without waiting for the result
    #[command(after_help = include_str!("help/submit.txt"))]
    Submit(SubmitArgs),
    /// Print the messages and the result of a query, from any point on
    #[command(after_help = include_str!("help/stream.txt"))]
    Stream(StreamArgs),
    /// Cancel a query
    #[command(after_help = include_str!("help/cancel.txt"))]
    Cancel(CancelArgs),
    /// Show if queries can start, and if not, why
    #[command(after_help = include_str!("help/health.txt"))]
    Health(HealthArgs),
    /// List the workers, or show the details of one
    #[command(after_help = include_str!("help/workers.txt"))]
    Workers(WorkersArgs),
    /// List the queries, or show the details of one
    #[command(after_help = include_str!("help/queries.txt"))]
    Queries(QueriesArgs),
    /// List, show, requeue or purge dead letters: queries that failed for good
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Set the number of workers of a kind
    #[command(after_help = include_str!("help/scale.txt"))]
    Scale(ScaleArgs),
    /// Replace a worker by a new one, which is ready first unless the worker is bound to a key
    #[command(after_help = include_str!("help/restart.txt"))]
    Restart(WorkerActionArgs),
    /// Stop a worker that runs no query
    #[command(after_help = include_str!("help/evict.txt"))]
    Evict(WorkerActionArgs),
    /// Stop accepting queries, or stop giving queries to one worker
    #[command(after_help = include_str!("help/drain.txt"))]
    Drain(DrainArgs),
    /// Accept queries again after a drain
    #[command(after_help = include_str!("help/resume.txt"))]
    Resume(ResumeArgs),
    /// Read the configuration again and apply its changes
    #[command(after_help = include_str!("help/reload.txt"))]
    Reload(ReloadArgs),
    /// Print the events of the pool as they happen
    #[command(after_help = include_str!("help/events.txt"))]
    Events(EventsArgs),
    /// Measure the throughput and latency of a server
    #[command(args_conflicts_with_subcommands = true, after_help = include_str!("help/bench.txt"))]
    Bench(Box<BenchArgs>),
    /// Check or show a configuration, or print an example
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Run a built-in worker (started by the server)
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Print a completion script for a shell
    #[command(after_help = include_str!("help/completions.txt"))]
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub config_file: ConfigFileArgs,
    /// Address of the gRPC server: an address like 127.0.0.1:50051, or the path of a Unix socket
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Address of /metrics, /livez and /readyz: an address like 127.0.0.1:9090, or "off"
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    #[arg(
        long,
        env = "REMUDA_LOG",
        hide_env_values = true,
        value_name = "FILTER",
        default_value = "info",
        help = "Level of the log: error, warn, info, debug or trace, also by module: info,remuda::pool=debug"
    )]
    pub log: String,
    /// Format of the log [default: human on a terminal, json elsewhere]
    #[arg(long, env = "REMUDA_LOG_FORMAT", hide_env_values = true, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ConfigFileArgs {
    /// The configuration file [default: ./remuda.toml if it exists, else a built-in echo worker]
    #[arg(long, env = "REMUDA_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The fields of a query.
#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    /// JSON text: on the command line, from a file with @FILE, or from standard input with -
    #[arg(allow_negative_numbers = true)]
    pub payload: String,
    /// Kind of worker; not needed if there is only one, or if the type or the capabilities choose it
    #[arg(long)]
    pub kind: Option<String>,
    /// Type of the query, which can choose the kind and is passed to the worker
    #[arg(long = "type", value_name = "TYPE")]
    pub query_type: Option<String>,
    /// Priority: 0 is served first, 1000 last
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub priority: u32,
    /// Key that the query belongs to, such as a workspace; it can choose the worker, and is passed to it
    #[arg(long)]
    pub key: Option<String>,
    /// Owner of the query; owners take turns, and the server may limit the waiting and running queries of each
    #[arg(long)]
    pub owner: Option<String>,
    /// Time limit for the worker, as 30s or "1m 30s" [default: that of the kind]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Time limit for waiting for a worker [default: none]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub queue_timeout: Option<Duration>,
    /// Capability that the kind must have; may be repeated
    #[arg(long, value_name = "NAME")]
    pub capability: Vec<String>,
    /// Reject the query at once if no worker is ready
    #[arg(long)]
    pub reject_if_busy: bool,
    /// Session to continue, as named by the session event of an earlier query
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        conflicts_with = "no_retry",
        value_parser = clap::value_parser!(u32).range(1..=100),
        help = "If the worker dies, run the query again, at most N more times [default: that of the configuration; \
                without =N: once]"
    )]
    pub retry: Option<u32>,
    /// If the worker dies, let the query fail, even if the configuration has retries
    #[arg(long)]
    pub no_retry: bool,
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = disconnect_policy,
        help = "Action when the last reader of the events disconnects: keep (let it run), cancel (at once), or a time to \
                wait for a reader before cancelling, as 30s [default: 5s with run, keep with submit]"
    )]
    pub on_disconnect: Option<Policy>,
    /// Id of the query; the same id and query again is not run a second time [default: a new one]
    #[arg(long, value_parser = query_id)]
    pub id: Option<QueryId>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub query: QueryArgs,
    /// Print whole events, with sequence number, attempt and type, instead of just the content
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Args)]
pub(super) struct SubmitArgs {
    #[command(flatten)]
    pub query: QueryArgs,
    /// Print the server's whole answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct StreamArgs {
    /// Id of the query
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// Sequence number of the first event
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// Print whole events, with sequence number, attempt and type, instead of just the content
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// Id of the query
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// Reason, for the readers of the query's final event
    #[arg(long)]
    pub reason: Option<String>,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing; use the exit code
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Time limit for the answer; after that the server counts as unreachable
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub(super) struct WorkersArgs {
    /// Show the details of this worker: its history, and how it ended
    pub id: Option<u64>,
    /// Only workers of this kind
    #[arg(long, conflicts_with = "id")]
    pub kind: Option<String>,
    /// Print JSON, one worker a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(super) struct QueriesArgs {
    /// Show the details of this query
    #[arg(value_parser = query_id)]
    pub id: Option<QueryId>,
    /// Only queries in this state; may be repeated
    #[arg(long, value_delimiter = ',', conflicts_with = "id", value_parser = query_state())]
    pub state: Vec<QueryState>,
    /// Only queries of this kind
    #[arg(long, conflicts_with = "id")]
    pub kind: Option<String>,
    /// At most this many, the oldest first [default: all]
    #[arg(long, value_name = "N", conflicts_with = "id")]
    pub limit: Option<usize>,
    /// Print JSON, one query a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check a configuration file and report every mistake in it
    #[command(after_help = include_str!("help/config_check.txt"))]
    Check {
        /// The file to check
        file: PathBuf,
    },
    /// Print the configuration that serve would use, each key explained
    #[command(after_help = include_str!("help/config_show.txt"))]
    Show(ConfigFileArgs),
    /// Print an example with every key, its default and the reason for it
    #[command(after_help = include_str!("help/config_example.txt"))]
    Example,
}

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// The demonstration worker: echoes, streams, sleeps, fails and crashes as its payload says
    #[command(after_help = include_str!("help/echo.txt"))]
    Echo,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|_| "write one like 5s, 200ms or \"1m 30s\"".to_owned())?;
    prost_types::Duration::try_from(parsed).map(|_| parsed).map_err(|_| "that is too long".to_owned())
}

fn disconnect_policy(text: &str) -> Result<Policy, String> {
    match text {
        "keep" => Ok(Policy::Keep(true)),
        "cancel" => Ok(Policy::Cancel(true)),
        _ => match duration(text).map(prost_types::Duration::try_from) {
            Ok(Ok(prost_types::Duration { seconds: 0, nanos: 0 })) => Err("write cancel for at once".to_owned()),
            Ok(Ok(delay)) => Ok(Policy::Detach(delay)),
            Ok(Err(_)) | Err(_) => Err("write keep, cancel, or a duration like 30s".to_owned()),
        },
    }
}

fn query_id(text: &str) -> Result<QueryId, String> {
    QueryId::parse(text).map_err(|error| format!("it {error}"))
}

fn query_state() -> impl TypedValueParser<Value = QueryState> {
    let names = ["pending", "processing", "streaming", "retry_pending", "complete", "error", "cancelled", "rejected"];
    PossibleValuesParser::new(names).map(|name| {
        let name = format!("QUERY_STATE_{}", name.to_ascii_uppercase());
        QueryState::from_str_name(&name).expect("the names are those of the proto")
    })
}
