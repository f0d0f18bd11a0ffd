//! The arguments of the operators' commands.

use clap::Args;

use crate::api::proto::scale_kind_request::Target;

#[derive(Debug, Args)]
pub(in crate::cli) struct ScaleArgs {
    /// The kind to scale
    pub kind: String,
    /// Number of workers, as 6; or how many more or fewer than now, as +2 or -2
    #[arg(value_name = "N | +N | -N", allow_negative_numbers = true, value_parser = scale_target)]
    pub target: Target,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `restart` and `evict`.
#[derive(Debug, Args)]
pub(in crate::cli) struct WorkerActionArgs {
    /// Id of the worker
    pub worker: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DrainArgs {
    /// Only this worker [default: the whole pool]
    pub worker: Option<u64>,
    /// Reason, for the clients whose queries are refused
    #[arg(long, conflicts_with = "worker")]
    pub reason: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ResumeArgs {
    /// Only this worker [default: the whole pool]
    pub worker: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ReloadArgs {
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct EventsArgs {
    /// Only events about this kind; may be repeated
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// Only events of this name, as worker:crashed, or with this prefix, as worker: ; may be repeated
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Print JSON, one event a line
    #[arg(long)]
    pub json: bool,
}

fn scale_target(text: &str) -> Result<Target, String> {
    let wrong = |_| "write how many, as 6, or how many more or fewer than now, as +2 or -2".to_owned();
    if !text.starts_with(['+', '-']) {
        return text.parse().map(Target::Workers).map_err(wrong);
    }
    match text.parse().map_err(wrong)? {
        0 => Err("that changes nothing".to_owned()),
        by => Ok(Target::By(by)),
    }
}
