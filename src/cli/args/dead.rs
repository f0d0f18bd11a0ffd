//! The arguments of `remuda dead`.

use clap::{Args, Subcommand};

use super::query_id;
use crate::model::QueryId;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum DeadCommand {
    /// List the dead letters: queries that failed for good
    #[command(after_help = include_str!("../help/dead_list.txt"))]
    List(DeadListArgs),
    /// Show the details of one: its payload, and how each attempt failed
    #[command(after_help = include_str!("../help/dead_show.txt"))]
    Show(DeadShowArgs),
    /// Run the queries of dead letters again, each under a new id
    #[command(after_help = include_str!("../help/dead_requeue.txt"))]
    Requeue(DeadRequeueArgs),
    /// Delete dead letters
    #[command(after_help = include_str!("../help/dead_purge.txt"))]
    Purge(DeadPurgeArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeadListArgs {
    /// Only those of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// At most this many, the oldest first [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one dead letter a line, with all the details of show
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeadShowArgs {
    /// Id of the query
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeadRequeueArgs {
    #[command(flatten)]
    pub letters: DeadLetterArgs,
    /// Print JSON, one query a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeadPurgeArgs {
    #[command(flatten)]
    pub letters: DeadLetterArgs,
}

/// A choice of dead letters.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeadLetterArgs {
    /// Ids of the queries
    #[arg(value_name = "ID", value_parser = query_id, required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<QueryId>,
    /// All dead letters
    #[arg(long)]
    pub all: bool,
    /// With --all: only those of this kind
    #[arg(long, requires = "all", conflicts_with = "ids")]
    pub kind: Option<String>,
}
