//! Puts a changed configuration in force while queries run.

use std::{fmt, sync::Arc};

use tracing::{info, warn};

use crate::{
    config::{self, Config, Effect, KindConfig, PoolConfig, ValueChange},
    model::DeathCause,
    worker::StopMode,
};

use super::{
    AdminError, Operations,
    affinity::{is_strict, key_lane},
    context::PoolContext,
    events::PoolEventBody,
    gauges::register_query_types,
    kinds::PoolKind,
};

/// Reads the configuration again from where it was read at the start. The error is for a person.
#[derive(Clone)]
pub struct Reloader(Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

/// The changes that a reload found, and whether they are in force now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadOutcome {
    pub changes: Vec<ValueChange>,
    pub applied: bool,
}

impl Reloader {
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reloader")
    }
}

impl Operations {
    /// Reads the config file again and, unless this is a dry run, puts its changes in force. A file with a mistake
    /// changes nothing.
    pub async fn reload(&self, dry_run: bool) -> Result<ReloadOutcome, AdminError> {
        self.admission.ensure_running()?;
        let _one_at_a_time = self.reloading.lock().await;
        let Reloader(read) = self.reloader.clone().ok_or(AdminError::NoConfigFile)?;
        let new = tokio::task::spawn_blocking(move || read()).await;
        let new = new.unwrap_or_else(|panic| Err(panic.to_string())).map_err(AdminError::BadConfig)?;
        let changes = config::changes(&self.context.config(), &new);
        let applied = !dry_run && changes.iter().any(is_reloadable);
        if !dry_run && !changes.is_empty() {
            self.apply(new, &changes);
        }
        Ok(ReloadOutcome { changes, applied })
    }

    fn apply(&self, new: Config, changes: &[ValueChange]) {
        let PoolContext { kinds, metrics, events, .. } = &*self.context;
        log_changes(changes);
        for kind in kinds.configured() {
            if !new.kinds.iter().any(|configured| configured.name == kind.name) {
                kind.remove();
            }
        }
        for config in &new.kinds {
            match kinds.find(&config.name) {
                Some(kind) if kind.is_removed() || *kind.config() != *config => self.reconfigure(&kind, config),
                Some(_) => {}
                None => self.add_kind(config),
            }
        }
        register_query_types(metrics, &new);
        self.context.set_config(effective(&self.context.config(), new));
        if changes.iter().any(is_reloadable) {
            events.emit(None, || PoolEventBody::Reloaded { summary: changes.iter().map(describe).collect() });
        }
        self.context.wake_supervisor();
    }

    fn reconfigure(&self, kind: &PoolKind, config: &KindConfig) {
        let PoolContext { broker, registry, .. } = &*self.context;
        let old = kind.config();
        kind.reconfigure(self.kind_settings(config));
        if (old.keyed, is_strict(&old)) == (config.keyed, is_strict(config)) {
            return;
        }
        // Lanes were held by the old rule. Workers that stay bound to a key take its lane again.
        for worker in registry.all_of_kind(kind.slot) {
            if !config.keyed || !worker.kind.keyed {
                broker.release_lanes(&kind.name, worker.id, None);
            } else if let Some(key) = worker.key()
                && !broker.hold_lane(&kind.name, &key_lane(key), worker.id)
            {
                worker.request_stop(DeathCause::Reloaded, StopMode::WhenDone);
            }
        }
    }
}

/// True if a reload can put the change in force.
fn is_reloadable(change: &ValueChange) -> bool {
    change.effect != Effect::NeedsRestart
}

fn log_changes(changes: &[ValueChange]) {
    for change in changes {
        match change.effect {
            Effect::NeedsRestart => warn!(key = change.path, "a changed key holds only after a restart"),
            effect => info!(key = change.path, old = change.old, new = change.new, ?effect, "configuration changed"),
        }
    }
}

fn describe(change: &ValueChange) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let effect = match change.effect {
        Effect::KindAdded => return format!("{} added", change.path),
        Effect::KindRemoved => return format!("{} removed", change.path),
        Effect::Applied => "",
        Effect::Rolls => " (its workers are replaced)",
        Effect::NeedsRestart => " (holds only after a restart)",
    };
    format!("{}: {} instead of {}{effect}", change.path, value(&change.new), value(&change.old))
}

/// The configuration in force after a reload. Keys that need a restart keep their old values, so that the next reload
/// reports them again.
fn effective(old: &Config, new: Config) -> Config {
    Config {
        server: old.server.clone(),
        queue: old.queue.clone(),
        results: old.results.clone(),
        dead_letters: old.dead_letters.clone(),
        pool: PoolConfig { socket_dir: old.pool.socket_dir.clone(), ..new.pool },
        ..new
    }
}
