//! The arguments of what operators do to the pool.

use clap::Args;

use super::help;

#[derive(Debug, Args)]
#[command(after_help = help::SCALE)]
pub(in crate::cli) struct ScaleArgs {
    /// The kind to scale
    pub kind: String,
    /// How many workers it shall have, as 6; or how many more or fewer than now, as +2 or -2
    #[arg(value_name = "N | +N | -N", allow_negative_numbers = true, value_parser = scale_to)]
    pub to: ScaleTo,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// How many workers a kind shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum ScaleTo {
    Workers(u32),
    By(i32),
}

#[derive(Debug, Args)]
#[command(after_help = help::RESTART)]
pub(in crate::cli) struct RestartArgs {
    /// The worker's id
    pub worker: u64,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::EVICT)]
pub(in crate::cli) struct EvictArgs {
    /// The worker's id
    pub worker: u64,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::DRAIN)]
pub(in crate::cli) struct DrainArgs {
    /// Only this worker [default: the whole pool]
    pub worker: Option<u64>,
    /// Why, for those whose queries are refused
    #[arg(long, conflicts_with = "worker")]
    pub reason: Option<String>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::RESUME)]
pub(in crate::cli) struct ResumeArgs {
    /// Only this worker [default: the whole pool]
    pub worker: Option<u64>,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::RELOAD)]
pub(in crate::cli) struct ReloadArgs {
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::EVENTS)]
pub(in crate::cli) struct EventsArgs {
    /// Only events about this kind; may be repeated
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// Only events of this name, as worker:crashed, or worker: for all that begin so; may be repeated
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Print JSON, one event a line
    #[arg(long)]
    pub json: bool,
}

fn scale_to(text: &str) -> Result<ScaleTo, String> {
    let wrong = |_| "write how many, as 6, or how many more or fewer than now, as +2 or -2".to_owned();
    if !text.starts_with(['+', '-']) {
        return text.parse().map(ScaleTo::Workers).map_err(wrong);
    }
    match text.parse().map_err(wrong)? {
        0 => Err("that changes nothing".to_owned()),
        by => Ok(ScaleTo::By(by)),
    }
}
