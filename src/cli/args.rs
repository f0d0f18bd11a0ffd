//! The arguments, as clap reads them. Each comment here is a line of somebody's help.

mod bench;
mod dead;
mod operate;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{access::AccessArgs, help};
use crate::{api::proto::QueryState, client::DEFAULT_ENDPOINT, model::QueryId};

pub(super) use bench::{BaselineArgs, BenchArgs, BenchCommand, LoadArgs};
pub(super) use dead::{DeadCommand, DeadListArgs, DeadPurgeArgs, DeadRequeueArgs, DeadShowArgs, Letters};
pub(super) use operate::{DrainArgs, EventsArgs, EvictArgs, ReloadArgs, RestartArgs, ResumeArgs, ScaleArgs, ScaleTo};

/// Warm worker processes behind one gRPC endpoint.
#[derive(Debug, Parser)]
#[command(
    name = "remuda",
    version,
    arg_required_else_help = true,
    after_help = help::QUICK_START,
    after_long_help = help::WHOLE
)]
pub(super) struct Cli {
    #[arg(
        long,
        global = true,
        env = "REMUDA_ENDPOINT",
        hide_env_values = true,
        value_name = "ADDR",
        default_value = DEFAULT_ENDPOINT,
        help = "The server to talk to: host:port, http://host:port, https://host:port or unix:/path/to.sock"
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
    Serve(ServeArgs),
    /// Run a query and print what the worker answers, as it comes
    Run(RunArgs),
    /// Hand over a query and print its id, without waiting for it
    Submit(SubmitArgs),
    /// Print what a query's worker answered or answers, from any point on
    Stream(StreamArgs),
    /// Ask for a query to be stopped
    Cancel(CancelArgs),
    /// Ask whether queries can start, and why not
    Health(HealthArgs),
    /// List the workers, or tell all about one
    Workers(WorkersArgs),
    /// List the queries, or tell all about one
    Queries(QueriesArgs),
    /// Look at the queries that failed for good; run them again or forget them
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Set how many workers a kind shall have
    Scale(ScaleArgs),
    /// Replace a worker by a new one, which is ready first unless the worker is bound to a key
    Restart(RestartArgs),
    /// Stop a worker that runs no query
    Evict(EvictArgs),
    /// Take no new queries, or give one worker no more of them
    Drain(DrainArgs),
    /// Take queries again after a drain
    Resume(ResumeArgs),
    /// Read the configuration again and put its changes in force
    Reload(ReloadArgs),
    /// Print what happens in the pool, as it happens
    Events(EventsArgs),
    /// Measure how many queries a server takes, and how fast
    Bench(Box<BenchArgs>),
    /// Check, show or begin a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Be a worker; the server starts these
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(after_help = help::SERVE)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub place: ConfigPlace,
    /// Where to serve gRPC: an address like 127.0.0.1:50051, or the path of a Unix socket
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where to serve /metrics, /livez and /readyz: an address like 127.0.0.1:9090, or "off"
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    #[arg(
        long,
        env = "REMUDA_LOG",
        hide_env_values = true,
        value_name = "FILTER",
        default_value = "info",
        help = "What to log: error, warn, info, debug or trace, also by module: info,remuda::pool=debug"
    )]
    pub log: String,
    /// How to write the log [default: human on a terminal, json elsewhere]
    #[arg(long, env = "REMUDA_LOG_FORMAT", hide_env_values = true, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ConfigPlace {
    /// The configuration file [default: ./remuda.toml if there is one, else a built-in echo worker]
    #[arg(long, env = "REMUDA_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What a query is made of.
#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    /// JSON text: as it is, from a file with @FILE, or from standard input with -
    #[arg(allow_negative_numbers = true)]
    pub payload: String,
    /// The kind of worker to run on; may be left out if there is just one, or if the type or the capabilities pick it
    #[arg(long)]
    pub kind: Option<String>,
    /// The type of the query, which can pick the kind and is told to the worker
    #[arg(long = "type", value_name = "TYPE")]
    pub query_type: Option<String>,
    /// 0 is served first, 1000 last
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub priority: u32,
    /// What the query belongs to, such as a workspace; picks the worker, as far as the kind says, and is told to it
    #[arg(long)]
    pub key: Option<String>,
    /// Who asks; owners take turns, and the server may limit what each has waiting and running
    #[arg(long)]
    pub owner: Option<String>,
    /// How long a worker may take, as 30s or "1m 30s" [default: what the kind says]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// How long the query may wait for a worker [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub queue_timeout: Option<Duration>,
    /// What the kind must be able to do; may be repeated
    #[arg(long, value_name = "NAME")]
    pub capability: Vec<String>,
    /// Do not wait: if no worker is ready, reject the query at once
    #[arg(long)]
    pub reject_if_busy: bool,
    /// The session to go on with, as an earlier query's session event named it
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
        help = "If the worker dies, run the query again, N more times at most [default: what the configuration says; \
                without =N: once]"
    )]
    pub retry: Option<u32>,
    /// If the worker dies, let the query fail, whatever the configuration says
    #[arg(long)]
    pub no_retry: bool,
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = on_disconnect,
        help = "What happens once nobody reads the events any more: keep (let it run), cancel (at once), or how long to \
                wait for a reader before cancelling, as 30s [default: 5s with run, keep with submit]"
    )]
    pub on_disconnect: Option<OnDisconnect>,
    /// The id the query shall have; the same id and query again is not run a second time [default: a new one]
    #[arg(long, value_parser = query_id)]
    pub id: Option<QueryId>,
}

/// What happens to a query whose last reader has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisconnect {
    Keep,
    Cancel,
    Detach(Duration),
}

#[derive(Debug, Args)]
#[command(after_help = help::RUN)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub query: QueryArgs,
    /// Print whole events, with sequence number, attempt and type, instead of just the content
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::SUBMIT)]
pub(super) struct SubmitArgs {
    #[command(flatten)]
    pub query: QueryArgs,
    /// Print the server's whole answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::STREAM)]
pub(super) struct StreamArgs {
    /// The query's id
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// The sequence number of the first event wanted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// Print whole events, with sequence number, attempt and type, instead of just the content
    #[arg(long)]
    pub events: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::CANCEL)]
pub(super) struct CancelArgs {
    /// The query's id
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// Why, for whoever reads the query's end
    #[arg(long)]
    pub reason: Option<String>,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::HEALTH)]
pub(super) struct HealthArgs {
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing; the exit code tells
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// How long the server may take to answer; after that it counts as unreachable
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = help::WORKERS)]
pub(super) struct WorkersArgs {
    /// Tell all about this worker: its history, and how it ended
    pub id: Option<u64>,
    /// Only workers of this kind
    #[arg(long, conflicts_with = "id")]
    pub kind: Option<String>,
    /// Print JSON, one worker a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::QUERIES)]
pub(super) struct QueriesArgs {
    /// Tell all about this query
    #[arg(value_parser = query_id)]
    pub id: Option<QueryId>,
    /// Only queries in this state; may be repeated
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "id")]
    pub state: Vec<StateFilter>,
    /// Only queries of this kind
    #[arg(long, conflicts_with = "id")]
    pub kind: Option<String>,
    /// No more than this many, the oldest first [default: all]
    #[arg(long, value_name = "N", conflicts_with = "id")]
    pub limit: Option<usize>,
    /// Print JSON, one query a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum StateFilter {
    Pending,
    Processing,
    Streaming,
    RetryPending,
    Complete,
    Error,
    Cancelled,
    Rejected,
}

impl From<StateFilter> for QueryState {
    fn from(state: StateFilter) -> Self {
        match state {
            StateFilter::Pending => Self::Pending,
            StateFilter::Processing => Self::Processing,
            StateFilter::Streaming => Self::Streaming,
            StateFilter::RetryPending => Self::RetryPending,
            StateFilter::Complete => Self::Complete,
            StateFilter::Error => Self::Error,
            StateFilter::Cancelled => Self::Cancelled,
            StateFilter::Rejected => Self::Rejected,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check a configuration file and report every mistake in it
    #[command(after_help = help::CONFIG_CHECK)]
    Check {
        /// The file to check
        file: PathBuf,
    },
    /// Print the configuration that serve would use, each key explained
    #[command(after_help = help::CONFIG_SHOW)]
    Show(ConfigPlace),
    /// Print an example with every key, its default and the reason for it
    #[command(after_help = help::CONFIG_EXAMPLE)]
    Example,
}

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// The built-in demonstration worker: echoes, streams, sleeps, fails and crashes as its payload says
    #[command(after_help = help::ECHO)]
    Echo,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|_| "write one like 5s, 200ms or \"1m 30s\"".to_owned())?;
    prost_types::Duration::try_from(parsed).map(|_| parsed).map_err(|_| "that is too long".to_owned())
}

fn on_disconnect(text: &str) -> Result<OnDisconnect, String> {
    match text {
        "keep" => Ok(OnDisconnect::Keep),
        "cancel" => Ok(OnDisconnect::Cancel),
        _ => match duration(text) {
            Ok(Duration::ZERO) => Err("write cancel for at once".to_owned()),
            Ok(patience) => Ok(OnDisconnect::Detach(patience)),
            Err(_) => Err("write keep, cancel, or a duration like 30s".to_owned()),
        },
    }
}

fn query_id(text: &str) -> Result<QueryId, String> {
    QueryId::parse(text).map_err(|error| format!("it {error}"))
}
