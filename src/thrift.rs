//! Gives memory back to the system once it is not needed any more: the allocator keeps what many small things took.

use std::{fs, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::system;

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Memory that is in use cannot be given back, so each try in vain doubles the time to the next one, up to this; so it may
/// also take this long after a flood that has lasted.
const LONGEST: Duration = Duration::from_mins(1);
/// Less is not worth the trouble.
const WORTH_IT: u64 = 24 << 20;

/// Looks after the server's memory until it closes.
pub(crate) async fn watch(close: CancellationToken) {
    let Some(mut least) = resident() else { return };
    let mut pause = LOOK_EVERY;
    loop {
        tokio::select! {
            () = close.cancelled() => return,
            () = sleep(pause) => {}
        }
        let Some(before) = resident() else { return };
        least = least.min(before);
        if before - least < WORTH_IT {
            pause = LOOK_EVERY;
            continue;
        }
        if spawn_blocking(system::give_back_memory).await.is_err() {
            return;
        }
        let after = resident().unwrap_or(before);
        debug!(before, after, "memory given back");
        pause = if after + WORTH_IT < before { LOOK_EVERY } else { (pause * 2).min(LONGEST) };
    }
}

/// What the process has of memory that is not a file's.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_known() {
        let bytes = resident().unwrap();
        assert!((100 << 10..100 << 30).contains(&bytes), "{bytes}");
    }
}
