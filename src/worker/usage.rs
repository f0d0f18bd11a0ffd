//! Memory and processor time of a worker by `/proc`, with a bounded history.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Read,
    path::Path,
    time::{Instant, SystemTime},
};

/// Samples kept: five minutes at one every five seconds.
const HISTORY_MAX_SAMPLES: usize = 60;

/// Processes of one worker that are measured, and threads of each whose children are looked for: a worker that starts
/// many must not make measuring expensive.
const MEASURED_PROCESSES_MAX: usize = 64;
const MEASURED_THREADS_MAX: usize = 256;

/// Initial buffer for a file of `/proc`, and the part of it that is read at most.
const PROC_FILE_BUFFER_BYTES: usize = 8 * 1024;
const PROC_FILE_MAX_BYTES: u64 = 256 * 1024;

/// One measurement of a worker, as it is kept and shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageSample {
    pub at: SystemTime,
    pub rss: u64,
    /// Percentage of one processor since the previous sample.
    pub cpu_percent: f64,
}

/// The last samples of a worker.
#[derive(Debug, Default)]
pub(super) struct UsageHistory {
    pub peak_rss: Option<u64>,
    samples: VecDeque<UsageSample>,
    last: Option<(Instant, f64)>,
}

/// One reading of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UsageReading {
    pub rss: u64,
    pub peak_rss: u64,
    /// Processor time used so far.
    pub cpu_seconds: f64,
}

impl UsageReading {
    /// Reads a process and its descendants, so that a wrapped worker counts in full. Shared pages count for each. `None` if
    /// the process has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::of_family(Path::new("/proc"), pid)
    }

    fn of_family(proc: &Path, leader: u32) -> Option<Self> {
        let (mut sum, threads) = Self::of_one(proc, leader)?;
        let mut others = children(proc, leader, threads);
        others.truncate(MEASURED_PROCESSES_MAX - 1);
        let mut at = 0;
        while let Some(&pid) = others.get(at) {
            at += 1;
            // If it has ended meanwhile, its children have another parent.
            let Some((reading, threads)) = Self::of_one(proc, pid) else { continue };
            sum.rss += reading.rss;
            sum.cpu_seconds += reading.cpu_seconds;
            let room = MEASURED_PROCESSES_MAX - 1 - others.len();
            others.extend(children(proc, pid, threads).into_iter().take(room));
        }
        // The peaks of the others may not have coincided, so only their present sum is known to have been reached.
        sum.peak_rss = sum.peak_rss.max(sum.rss);
        Some(sum)
    }

    /// Reads one process, and its number of threads.
    fn of_one(proc: &Path, pid: u32) -> Option<(Self, Option<usize>)> {
        let directory = proc.join(pid.to_string());
        let (status, stat) = (read(&directory.join("status"))?, read(&directory.join("stat"))?);
        let reading = Self::parse(&status, &stat, rustix::param::clock_ticks_per_second())?;
        Some((reading, after_name(&stat).and_then(|mut fields| fields.nth(17)?.parse().ok())))
    }

    fn parse(status: &str, stat: &str, ticks_per_second: u64) -> Option<Self> {
        let size = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        let times = after_name(stat)?.skip(11).take(2);
        let ticks: u32 = times.map(|time| time.parse::<u32>().unwrap_or(0)).sum();
        let per_second = u32::try_from(ticks_per_second).ok()?;
        Some(Self {
            rss: size("VmRSS:")?,
            peak_rss: size("VmHWM:")?,
            cpu_seconds: f64::from(ticks) / f64::from(per_second),
        })
    }
}

impl UsageHistory {
    pub(super) fn add(&mut self, reading: UsageReading, now: Instant) {
        self.peak_rss = self.peak_rss.max(Some(reading.peak_rss));
        let cpu_percent = match self.last {
            Some((at, seconds)) if now > at => {
                (reading.cpu_seconds - seconds).max(0.0) * 100.0 / now.duration_since(at).as_secs_f64()
            }
            _ => 0.0,
        };
        self.last = Some((now, reading.cpu_seconds));
        if self.samples.len() == HISTORY_MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(UsageSample { at: SystemTime::now(), rss: reading.rss, cpu_percent });
    }

    pub(super) fn latest(&self) -> Option<UsageSample> {
        self.samples.back().copied()
    }

    pub(super) fn samples(&self) -> Vec<UsageSample> {
        self.samples.iter().copied().collect()
    }
}

/// The children of a process; none where the kernel does not list them.
fn children(proc: &Path, pid: u32, threads: Option<usize>) -> Vec<u32> {
    let directory = proc.join(pid.to_string()).join("task");
    let parse = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>();
    if threads == Some(1) {
        // Most workers: to list the threads would cost more than all the rest.
        return read(&directory.join(pid.to_string()).join("children")).map(parse).unwrap_or_default();
    }
    let threads = fs::read_dir(directory).into_iter().flatten().flatten();
    let lists = threads.take(MEASURED_THREADS_MAX).filter_map(|thread| read(&thread.path().join("children")));
    lists.flat_map(parse).collect()
}

/// The fields of a `stat` after the name, which stands in parentheses and may contain anything.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.get(stat.rfind(')')? + 2..)?.split(' '))
}

/// Reads a file of `/proc` in two reads: such files report no length, so the standard library would begin with a small
/// buffer and read more often.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::with_capacity(PROC_FILE_BUFFER_BYTES);
    File::open(path).ok()?.take(PROC_FILE_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Number of processes that the kernel has killed for lack of memory; `None` where it does not say.
pub(super) fn oom_kills() -> Option<u64> {
    let vmstat = read(Path::new("/proc/vmstat"))?;
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reading_parses_a_process_with_an_odd_name() {
        let status = "Name:\ta) b\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14";
        let reading = UsageReading::parse(status, stat, 100).unwrap();
        assert_eq!((reading.rss, reading.peak_rss), (1024 * 1024, 2048 * 1024));
        assert!((reading.cpu_seconds - 2.0).abs() < f64::EPSILON);
        assert!(UsageReading::of(std::process::id()).unwrap().rss > 0);
    }

    /// A process in a directory that stands in for `/proc`, with the children of its first thread.
    fn process(proc: &Path, pid: u32, kib: u32, ticks: u32, children: &str) {
        let thread = proc.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&thread).unwrap();
        fs::write(thread.join("children"), children).unwrap();
        let status = format!("VmHWM:\t {} kB\nVmRSS:\t {kib} kB\n", kib * 2);
        fs::write(proc.join(format!("{pid}/status")), status).unwrap();
        let stat = format!("{pid} (w) S 1 2 3 4 5 6 7 8 9 10 {ticks} 0 13 14");
        fs::write(proc.join(format!("{pid}/stat")), stat).unwrap();
    }

    #[test]
    fn reading_adds_up_a_process_and_its_descendants() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 1, 100, 100, "2 3 ");
        process(proc, 2, 1_000, 200, "4");
        process(proc, 3, 10_000, 300, "99");
        process(proc, 4, 100_000, 400, "");
        process(proc, 5, 1_000_000, 500, "");
        let second_thread = proc.join("2/task/22");
        fs::create_dir_all(&second_thread).unwrap();
        fs::write(second_thread.join("children"), "5").unwrap();
        let reading = UsageReading::of_family(proc, 1).unwrap();
        assert_eq!(reading.rss, 1_111_100 * 1024, "also those of other threads, and none that is gone");
        assert_eq!(reading.peak_rss, reading.rss);
        let seconds = 1_500.0 / f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap());
        assert!((reading.cpu_seconds - seconds).abs() < 0.001);
        assert_eq!(UsageReading::of_family(proc, 3).unwrap().peak_rss, 20_000 * 1024, "its own peak, if that is more");
        assert_eq!(UsageReading::of_family(proc, 99), None);
    }

    #[test]
    fn reading_is_bounded_and_works_without_a_list_of_children() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        let crowd: Vec<String> = (2..200).map(|pid: u32| pid.to_string()).collect();
        process(proc, 1, 1, 0, &crowd.join(" "));
        (2..200).for_each(|pid| process(proc, pid, 1, 0, ""));
        assert_eq!(UsageReading::of_family(proc, 1).unwrap().rss, 64 * 1024);
        fs::remove_dir_all(proc.join("1/task")).unwrap();
        assert_eq!(UsageReading::of_family(proc, 1).unwrap().rss, 1024);
    }

    #[test]
    fn history_computes_cpu_percent_and_is_bounded() {
        let start = Instant::now();
        let mut usage = UsageHistory::default();
        for n in 0..100u32 {
            let reading = UsageReading { rss: 1, peak_rss: u64::from(n), cpu_seconds: f64::from(n) * 2.5 };
            usage.add(reading, start + Duration::from_secs(5) * n);
        }
        assert_eq!(usage.samples().len(), HISTORY_MAX_SAMPLES);
        assert!((usage.latest().unwrap().cpu_percent - 50.0).abs() < 0.001);
        assert_eq!(usage.peak_rss, Some(99));
    }
}
