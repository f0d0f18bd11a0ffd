//! What the server itself uses of the machine, under the names that every Prometheus client gives it.

use std::fs;

use prometheus::{Counter, Gauge};

use super::{family::Families, float, table::Id};

#[derive(Debug)]
pub(super) struct ProcessMetrics {
    cpu: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    threads: Gauge,
    start_time: Gauge,
}

/// What `/proc/self/stat` says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    /// Since the machine started.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessMetrics {
    pub(super) fn new(families: &Families) -> Self {
        let gauge = |id| families.gauge(id, &[]);
        Self {
            cpu: families.fine_counter(Id::ProcessCpu),
            resident: gauge(Id::ProcessResident),
            virtual_memory: gauge(Id::ProcessVirtual),
            open_fds: gauge(Id::ProcessOpenFds),
            max_fds: gauge(Id::ProcessMaxFds),
            threads: gauge(Id::ProcessThreads),
            start_time: gauge(Id::ProcessStartTime),
        }
    }

    /// Looks at the process now. What `/proc` does not tell stays as it was.
    pub(super) fn look(&self) {
        let ticks_per_second = float(rustix::param::clock_ticks_per_second());
        if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text)) {
            let cpu = float(stat.cpu_ticks) / ticks_per_second;
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.resident.set(float(stat.resident_pages) * float(rustix::param::page_size() as u64));
            self.virtual_memory.set(float(stat.virtual_bytes));
            self.threads.set(float(stat.threads));
            if let Some(booted) = booted() {
                self.start_time.set(float(booted) + float(stat.started_ticks) / ticks_per_second);
            }
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The directory itself is open while it is read.
            self.open_fds.set(float(open.count().saturating_sub(1) as u64));
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.max_fds.set(most.map_or(f64::INFINITY, float));
    }
}

impl Stat {
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

/// When the machine started, in seconds since 1970.
fn booted() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_process_with_an_odd_name() {
        let text = "7 (a) b) S 4 5 6 7 8 9 10 11 12 13 150 50 16 17 18 19 9 21 2200 4096 3 25";
        let stat = Stat { cpu_ticks: 200, threads: 9, started_ticks: 2_200, virtual_bytes: 4_096, resident_pages: 3 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (short) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }
}
