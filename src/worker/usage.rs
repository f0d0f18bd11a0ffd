//! What a worker uses of the machine, as `/proc` tells it, and a bounded memory of it.

use std::{
    collections::VecDeque,
    fs,
    time::{Instant, SystemTime},
};

/// How many samples are kept: five minutes at one every five seconds.
const KEPT: usize = 60;

/// One look at a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub at: SystemTime,
    pub rss: u64,
    /// Of one processor, since the sample before.
    pub cpu_percent: f64,
}

/// Everything known of a worker's use of resources.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub peak_rss: Option<u64>,
    samples: VecDeque<Sample>,
    last: Option<(Instant, f64)>,
}

/// What `/proc` says at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub rss: u64,
    pub peak_rss: u64,
    /// Processor time used so far.
    pub cpu_seconds: f64,
}

impl Reading {
    /// `None` if the process has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&status, &stat, rustix::param::clock_ticks_per_second())
    }

    fn parse(status: &str, stat: &str, ticks_per_second: u64) -> Option<Self> {
        let size = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        // The name stands in parentheses and may hold anything; the two times are the 12th and 13th field after it.
        let times: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11).take(2).collect();
        let ticks: u32 = times.iter().map(|time| time.parse::<u32>().unwrap_or(0)).sum();
        let per_second = u32::try_from(ticks_per_second).ok()?;
        Some(Self {
            rss: size("VmRSS:")?,
            peak_rss: size("VmHWM:")?,
            cpu_seconds: f64::from(ticks) / f64::from(per_second),
        })
    }
}

impl Usage {
    pub(super) fn add(&mut self, reading: Reading, now: Instant) {
        self.peak_rss = self.peak_rss.max(Some(reading.peak_rss));
        let cpu_percent = match self.last {
            Some((at, seconds)) if now > at => {
                (reading.cpu_seconds - seconds).max(0.0) * 100.0 / now.duration_since(at).as_secs_f64()
            }
            _ => 0.0,
        };
        self.last = Some((now, reading.cpu_seconds));
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at: SystemTime::now(), rss: reading.rss, cpu_percent });
    }

    pub(super) fn latest(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().copied().collect()
    }
}

/// How many processes the kernel has killed for lack of memory since it started; `None` where it does not say.
pub(super) fn oom_kills() -> Option<u64> {
    let vmstat = fs::read_to_string("/proc/vmstat").ok()?;
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_memory_and_time_of_a_process_with_an_odd_name() {
        let status = "Name:\ta) b\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14";
        let reading = Reading::parse(status, stat, 100).unwrap();
        assert_eq!((reading.rss, reading.peak_rss), (1024 * 1024, 2048 * 1024));
        assert!((reading.cpu_seconds - 2.0).abs() < f64::EPSILON);
        assert!(Reading::of(std::process::id()).unwrap().rss > 0);
    }

    #[test]
    fn tells_the_share_of_a_processor_and_keeps_a_bounded_number_of_samples() {
        let start = Instant::now();
        let mut usage = Usage::default();
        for n in 0..100u32 {
            let reading = Reading { rss: 1, peak_rss: u64::from(n), cpu_seconds: f64::from(n) * 2.5 };
            usage.add(reading, start + Duration::from_secs(5) * n);
        }
        assert_eq!(usage.samples().len(), KEPT);
        assert!((usage.latest().unwrap().cpu_percent - 50.0).abs() < 0.001);
        assert_eq!(usage.peak_rss, Some(99));
    }
}
