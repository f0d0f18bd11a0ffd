//! Resources that the server itself uses, under the names that every Prometheus client gives them.

use std::fs;

use super::{family::MetricFamilies, table::MetricId, to_f64};

/// The fields of `/proc/self/stat` that are used.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcStat {
    cpu_ticks: u64,
    threads: u64,
    /// Since the machine started.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Sets the metrics to the present values. Those that `/proc` does not give stay as they were.
pub(super) fn update(families: &MetricFamilies) {
    let set = |id, value| families.gauge(id, &[]).set(value);
    let ticks_per_second = to_f64(rustix::param::clock_ticks_per_second());
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| ProcStat::parse(&text)) {
        let cpu = families.float_counter(MetricId::ProcessCpu);
        cpu.inc_by((to_f64(stat.cpu_ticks) / ticks_per_second - cpu.get()).max(0.0));
        set(MetricId::ProcessResident, to_f64(stat.resident_pages) * to_f64(rustix::param::page_size() as u64));
        set(MetricId::ProcessVirtual, to_f64(stat.virtual_bytes));
        set(MetricId::ProcessThreads, to_f64(stat.threads));
        if let Some(boot_time) = boot_time() {
            let started = to_f64(boot_time) + to_f64(stat.started_ticks) / ticks_per_second;
            set(MetricId::ProcessStartTime, started);
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The directory itself is open while it is read.
        set(MetricId::ProcessOpenFds, to_f64(open.count().saturating_sub(1) as u64));
    }
    let max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    set(MetricId::ProcessMaxFds, max.map_or(f64::INFINITY, to_f64));
}

impl ProcStat {
    fn parse(text: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything; the state, which follows it, is the third field.
        let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Start time of the machine, in seconds since 1970.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_an_odd_name_is_read() {
        let text = "7 (a) b) S 4 5 6 7 8 9 10 11 12 13 150 50 16 17 18 19 9 21 2200 4096 3 25";
        let stat =
            ProcStat { cpu_ticks: 200, threads: 9, started_ticks: 2_200, virtual_bytes: 4_096, resident_pages: 3 };
        assert_eq!(ProcStat::parse(text), Some(stat));
        assert_eq!(ProcStat::parse("7 (short) S 1"), None);
        assert_eq!(ProcStat::parse(""), None);
    }
}
