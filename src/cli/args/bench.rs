//! The arguments of the load generator.

use std::{net::SocketAddr, time::Duration};

use clap::{Args, Subcommand};

use super::duration;
use crate::bench::MESSAGE_SIZES;

/// More than servers take by default.
const PAYLOAD_MAX_BYTES: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(in crate::cli) struct BenchArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BenchCommand {
    /// Run the bare gRPC server, without pool or workers, that a pool is compared with
    #[command(after_help = include_str!("../help/baseline.txt"))]
    Baseline(BaselineArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BaselineArgs {
    /// Address of the server; with port 0 the system chooses one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct LoadArgs {
    /// Concurrent queries
    #[arg(long, short, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Connections that the queries share; never more than concurrent queries
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Threads that make the queries; more than one is for machines with many processors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub threads: u32,
    /// Messages that a worker sends for each query
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub messages: u64,
    /// Size of each message in bytes of JSON, as 200 or 64KiB
    #[arg(long, value_name = "SIZE", default_value = "200", value_parser = message_size)]
    pub size: u64,
    /// Size of the payload of each query
    #[arg(long, value_name = "SIZE", default_value = "200", value_parser = payload_size)]
    pub payload_size: u64,
    /// Your own payload instead, for workers other than echo: JSON, @FILE or -
    #[arg(long, value_name = "JSON", conflicts_with_all = ["messages", "size", "payload_size"])]
    pub payload: Option<String>,
    /// Kind of worker; not needed if there is only one
    #[arg(long)]
    pub kind: Option<String>,
    /// Length of a round [default: 10s]
    #[arg(long, short, value_name = "DURATION", value_parser = nonzero_duration)]
    pub duration: Option<Duration>,
    /// Length of a round in queries, instead of a duration
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Start a server with this many echo workers for this run, instead of using the one at --endpoint
    #[arg(long, value_name = "WORKERS", conflicts_with = "kind", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub spawn: Option<u32>,
    /// Also measure a bare gRPC server that gives the same answers, in turns, and print the ratio
    #[arg(long, conflicts_with = "payload")]
    pub compare: bool,
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = nonzero_duration,
        help = "In every other round, kill a worker with SIGKILL each INTERVAL [without =INTERVAL: 1s]; only on the \
                machine of the workers"
    )]
    pub chaos: Option<Duration>,
    /// Number of rounds [default: 1; with --compare or --chaos 3 of each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// Time to run queries before anything is measured [default: 1s, with --count 0s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Time limit of a query; after that it counts as hung
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = nonzero_duration)]
    pub timeout: Duration,
    /// Print all figures as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn nonzero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("give a time above zero".to_owned()),
        duration => Ok(duration),
    }
}

fn message_size(text: &str) -> Result<u64, String> {
    size(text, *MESSAGE_SIZES.start(), *MESSAGE_SIZES.end())
}

fn payload_size(text: &str) -> Result<u64, String> {
    size(text, 1, PAYLOAD_MAX_BYTES)
}

fn size(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|_| "write a number of bytes, or a size like 64KiB or 1MB".to_owned())?;
    match size.as_u64() {
        bytes if (least..=most).contains(&bytes) => Ok(bytes),
        _ => Err(format!("give {least} bytes to {}", bytesize::ByteSize::b(most).display().iec())),
    }
}
