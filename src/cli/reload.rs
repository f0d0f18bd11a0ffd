//! `remuda reload`: the changes of the configuration and their effects.

use super::{
    args::ReloadArgs,
    exit::{CliError, CliExit},
    format, json,
    output::{self, BAD, BUSY, GOOD},
    table::{Cell, Table},
};
use crate::{
    api::proto::{ConfigChange, ConfigEffect, ReloadRequest, ReloadResponse},
    client::{Client, Endpoint},
};

pub(super) async fn reload(server: &Endpoint, args: ReloadArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let response = client.call(client.admin().reload(ReloadRequest { dry_run: args.dry_run })).await?;
    if args.json {
        output::line(json::reload(&response).get())?;
        return Ok(CliExit::Done);
    }
    if !response.changes.is_empty() {
        output::text(&render(&response.changes))?;
    }
    for note in notes(&response, args.dry_run) {
        output::note(&note);
    }
    Ok(CliExit::Done)
}

pub(super) fn render(changes: &[ConfigChange]) -> String {
    let mut table = Table::new(&["KEY", "CHANGE", "EFFECT"], "<<<");
    for change in changes {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
        table.row([
            Cell::from(&change.path),
            format!("{} -> {}", value(&change.old), value(&change.new)).into(),
            effect(change.effect()),
        ]);
    }
    table.render()
}

fn effect(effect: ConfigEffect) -> Cell {
    match effect {
        ConfigEffect::Applied => Cell::styled("at once", GOOD),
        ConfigEffect::Rolls => Cell::styled("as workers are replaced", GOOD),
        ConfigEffect::KindAdded => Cell::styled("new kind", GOOD),
        ConfigEffect::KindRemoved => Cell::styled("kind removed", BUSY),
        ConfigEffect::NeedsRestart => Cell::styled("needs a restart of the server", BAD),
        ConfigEffect::Unspecified => Cell::from("unknown"),
    }
}

/// The result in words.
pub(super) fn notes(response: &ReloadResponse, dry_run: bool) -> Vec<String> {
    let changes = |count: usize| format::plural(count as u64, "change", "changes");
    let all = response.changes.len();
    let waiting = response.changes.iter().filter(|change| change.effect() == ConfigEffect::NeedsRestart).count();
    match (all, dry_run) {
        (0, _) => return vec!["the configuration has not changed".to_owned()],
        (_, true) => return vec![format!("{} found; this was a dry run, and nothing was done", changes(all))],
        (_, false) => {}
    }
    let mut notes = Vec::new();
    if response.applied {
        notes.push(format!("{} put in force", changes(all - waiting)));
    }
    if waiting > 0 {
        notes.push(format!("{} in force only when the server is started again", changes(waiting)));
    }
    notes
}
