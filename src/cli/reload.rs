//! `remuda reload`: what has changed in the configuration, and what comes of it.

use super::{
    args::ReloadArgs,
    exit::{Exit, Failure},
    json,
    output::{self, BAD, BUSY, GOOD},
    table::{Align, Cell, Table},
    words,
};
use crate::{
    api::proto::{ConfigChange, ConfigEffect, ReloadRequest, ReloadResponse},
    client::{Client, Endpoint},
};

pub(super) async fn reload(server: &Endpoint, args: ReloadArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let found = client.reload(ReloadRequest { dry_run: args.dry_run }).await?;
    if args.json {
        output::line(&json::line(&json::Reload::from(&found)))?;
        return Ok(Exit::Done);
    }
    if !found.changes.is_empty() {
        output::text(&render(&found.changes))?;
    }
    for note in notes(&found, args.dry_run) {
        output::note(&note);
    }
    Ok(Exit::Done)
}

pub(super) fn render(changes: &[ConfigChange]) -> String {
    let mut table = Table::new(&[("KEY", Align::Left), ("CHANGE", Align::Left), ("EFFECT", Align::Left)]);
    for change in changes {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
        table.row([
            Cell::from(&change.path),
            Cell::from(format!("{} -> {}", value(&change.old), value(&change.new))),
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

/// What came of it, in words.
pub(super) fn notes(found: &ReloadResponse, dry_run: bool) -> Vec<String> {
    let changes = |count: usize| words::count(count as u64, "change", "changes");
    let all = found.changes.len();
    let waiting = found.changes.iter().filter(|change| change.effect() == ConfigEffect::NeedsRestart).count();
    match (all, dry_run) {
        (0, _) => return vec!["the configuration has not changed".to_owned()],
        (_, true) => return vec![format!("{} found; this was a dry run, and nothing was done", changes(all))],
        (_, false) => {}
    }
    let mut notes = Vec::new();
    if found.applied {
        notes.push(format!("{} put in force", changes(all - waiting)));
    }
    if waiting > 0 {
        notes.push(format!("{} in force only when the server is started again", changes(waiting)));
    }
    notes
}
