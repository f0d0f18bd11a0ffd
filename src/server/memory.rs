//! Returns freed memory to the system after a flood: glibc keeps it if small allocations lie in between.

use std::{fs, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::system;

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Memory in use cannot be returned, so each trim in vain doubles the interval, up to this.
const CHECK_INTERVAL_MAX: Duration = Duration::from_mins(1);
/// Growth that is worth a trim, which takes milliseconds.
const TRIM_THRESHOLD_BYTES: u64 = 24 << 20;

/// Trims the heap when the process has grown, until `stop` is cancelled.
///
/// Settings of the allocator do not replace this: 30 s after unread streams were dropped, the process was still more than
/// 24 MiB larger than before them, also with a single arena, and with mapped blocks from 64 KiB on.
pub(super) async fn trim_until(stop: CancellationToken) {
    let Some(mut baseline) = resident_bytes() else { return };
    let mut interval = CHECK_INTERVAL;
    while stop.run_until_cancelled(sleep(interval)).await.is_some() {
        let Some(before) = resident_bytes() else { return };
        baseline = baseline.min(before);
        if before - baseline < TRIM_THRESHOLD_BYTES {
            interval = CHECK_INTERVAL;
            continue;
        }
        let _ = spawn_blocking(system::trim_heap).await;
        let after = resident_bytes().unwrap_or(before);
        debug!(before, after, "heap trimmed");
        let was_useful = after + TRIM_THRESHOLD_BYTES < before;
        interval = if was_useful { CHECK_INTERVAL } else { (interval * 2).min(CHECK_INTERVAL_MAX) };
    }
}

/// Anonymous resident memory of the process.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read() {
        let bytes = resident_bytes().unwrap();
        assert!((100 << 10..100 << 30).contains(&bytes), "{bytes}");
    }
}
