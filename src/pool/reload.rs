//! Puts a changed configuration in force while queries run.

use std::{fmt, sync::Arc};

use tracing::{info, warn};

use crate::{
    config::{self, Change, Config, Effect, KindConfig, PoolConfig},
    model::DeathCause,
    worker::StopMode,
};

use super::{
    AdminError, Inner, Pool,
    events::PoolEventBody,
    kinds::{Kind, is_strict, key_lane},
};

/// Reads the configuration again from where it was read at the start. The error is for a person.
pub struct Reloader(Box<dyn Fn() -> Result<Config, String> + Send + Sync>);

/// What a reload found, and whether it is in force now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    pub changes: Vec<Change>,
    pub applied: bool,
}

impl Reloader {
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reloader")
    }
}

impl Pool {
    /// Reads the config file again and puts what has changed in force, or just says what that would be. A file with a
    /// mistake in it changes nothing.
    pub async fn reload(&self, dry_run: bool) -> Result<Reload, AdminError> {
        self.inner.is_up()?;
        let _one_at_a_time = self.inner.reloading.lock().await;
        let inner = self.inner.clone();
        let read = tokio::task::spawn_blocking(move || inner.reloader.as_ref().map(|reloader| (reloader.0)()));
        let new = read.await.map_err(|error| AdminError::BadConfig(error.to_string()))?;
        let new = new.ok_or(AdminError::NoConfigFile)?.map_err(AdminError::BadConfig)?;
        let changes = config::changes(&self.inner.config(), &new);
        let applied = !dry_run && changes.iter().any(holds);
        if !dry_run && !changes.is_empty() {
            self.inner.put_in_force(new, &changes);
        }
        Ok(Reload { changes, applied })
    }
}

impl Inner {
    fn reconfigure(&self, kind: &Kind, config: &KindConfig) {
        let old = kind.config();
        kind.reconfigure(self.settings(config.clone()));
        if (old.keyed, is_strict(&old)) == (config.keyed, is_strict(config)) {
            return;
        }
        // Whoever holds a lane holds it by a rule that is no more.
        for worker in self.data.all_of_kind(kind.slot) {
            if !config.keyed || !worker.kind.keyed {
                self.broker.release_lanes(&kind.name, worker.id, None);
            } else if let Some(key) = worker.key()
                && !self.broker.hold_lane(&kind.name, &key_lane(key), worker.id)
            {
                worker.request_stop(DeathCause::Reloaded, StopMode::WhenDone);
            }
        }
    }

    fn put_in_force(&self, new: Config, changes: &[Change]) {
        for change in changes {
            match change.effect {
                Effect::NeedsRestart => warn!(key = change.path, "a changed key holds only after a restart"),
                effect => {
                    info!(key = change.path, old = change.old, new = change.new, ?effect, "configuration changed");
                }
            }
        }
        for kind in self.kinds.configured() {
            if !new.kinds.iter().any(|configured| configured.name == kind.name) {
                kind.remove();
            }
        }
        for config in &new.kinds {
            match self.kinds.named(&config.name) {
                Some(kind) if kind.is_removed() || *kind.config() != *config => {
                    self.reconfigure(&kind, config);
                }
                Some(_) => {}
                None => self.add_kind(config.clone()),
            }
        }
        self.know_types(&new);
        let old = self.config();
        *self.config.write() = Arc::new(in_force(&old, new));
        if changes.iter().any(holds) {
            self.events.emit(None, || PoolEventBody::Reloaded { summary: changes.iter().map(tell).collect() });
        }
        self.nudge.notify_one();
    }
}

/// Whether a reload can put the change in force.
fn holds(change: &Change) -> bool {
    change.effect != Effect::NeedsRestart
}

fn tell(change: &Change) -> String {
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

/// What really holds after a reload: what needs a restart is as it was, so that the next reload tells of it again.
fn in_force(old: &Config, new: Config) -> Config {
    Config {
        server: old.server.clone(),
        queue: old.queue.clone(),
        results: old.results.clone(),
        dead_letters: old.dead_letters.clone(),
        pool: PoolConfig { socket_dir: old.pool.socket_dir.clone(), ..new.pool },
        ..new
    }
}
