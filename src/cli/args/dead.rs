//! The arguments of `remuda dead`.

use clap::{Args, Subcommand};

use super::{help, query_id};
use crate::model::QueryId;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum DeadCommand {
    /// List the dead letters: queries that failed for good
    List(DeadListArgs),
    /// Tell all about one: its payload, and how each attempt failed
    Show(DeadShowArgs),
    /// Run the queries of dead letters again, each under a new id
    Requeue(DeadRequeueArgs),
    /// Forget dead letters
    Purge(DeadPurgeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = help::DEAD_LIST)]
pub(in crate::cli) struct DeadListArgs {
    /// Only those of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// No more than this many, the oldest first [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one dead letter a line, with all that show tells
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::DEAD_SHOW)]
pub(in crate::cli) struct DeadShowArgs {
    /// The query's id
    #[arg(value_parser = query_id)]
    pub id: QueryId,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::DEAD_REQUEUE)]
pub(in crate::cli) struct DeadRequeueArgs {
    #[command(flatten)]
    pub letters: Letters,
    /// Print JSON, one query a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::DEAD_PURGE)]
pub(in crate::cli) struct DeadPurgeArgs {
    #[command(flatten)]
    pub letters: Letters,
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
pub(in crate::cli) struct Letters {
    /// The queries' ids
    #[arg(value_name = "ID", value_parser = query_id, required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<QueryId>,
    /// All of them
    #[arg(long)]
    pub all: bool,
    /// With --all: only those of this kind
    #[arg(long, requires = "all", conflicts_with = "ids")]
    pub kind: Option<String>,
}
