//! What a worker uses of the machine, as `/proc` tells it, and a bounded memory of it.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Read,
    path::Path,
    time::{Instant, SystemTime},
};

/// How many samples are kept: five minutes at one every five seconds.
const KEPT: usize = 60;

/// How many processes of one worker are measured, and of how many threads of each the children are looked for: what a
/// worker starts is its own affair, and must not make looking at it expensive.
const MOST_PROCESSES: usize = 64;
const MOST_THREADS: usize = 256;

/// The room for a file of `/proc` from the start, and what is read of it at most.
const USUAL_BYTES: usize = 8 * 1024;
const MOST_BYTES: u64 = 256 * 1024;

/// One look at a worker's processes.
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
    /// Of a process and all that descend from it, so that a wrapped worker counts in full. Pages that they share count for
    /// each. `None` if the process has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::of_family(Path::new("/proc"), pid)
    }

    fn of_family(proc: &Path, leader: u32) -> Option<Self> {
        let (mut sum, threads) = Self::of_one(proc, leader)?;
        let mut others = children(proc, leader, threads);
        others.truncate(MOST_PROCESSES - 1);
        let mut at = 0;
        while let Some(&pid) = others.get(at) {
            at += 1;
            // One that has ended meanwhile has left its children to others.
            let Some((reading, threads)) = Self::of_one(proc, pid) else { continue };
            sum.rss += reading.rss;
            sum.cpu_seconds += reading.cpu_seconds;
            let room = MOST_PROCESSES - 1 - others.len();
            others.extend(children(proc, pid, threads).into_iter().take(room));
        }
        // When the others were largest is not known; together they were at least as large as now.
        sum.peak_rss = sum.peak_rss.max(sum.rss);
        Some(sum)
    }

    /// And how many threads it has.
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

/// None where the kernel does not tell.
fn children(proc: &Path, pid: u32, threads: Option<usize>) -> Vec<u32> {
    let directory = proc.join(pid.to_string()).join("task");
    let parse = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>();
    if threads == Some(1) {
        // Most workers: to look for others would cost more than all the rest.
        return read(&directory.join(pid.to_string()).join("children")).map(parse).unwrap_or_default();
    }
    let threads = fs::read_dir(directory).into_iter().flatten().flatten();
    let lists = threads.take(MOST_THREADS).filter_map(|thread| read(&thread.path().join("children")));
    lists.flat_map(parse).collect()
}

/// The fields of a `stat` after the name, which stands in parentheses and may hold anything.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.get(stat.rfind(')')? + 2..)?.split(' '))
}

/// A file of `/proc`, in two system calls beside opening and closing it: these files do not know how long they are, and the
/// standard library begins with a few bytes.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// How many processes the kernel has killed for lack of memory since it started; `None` where it does not say.
pub(super) fn oom_kills() -> Option<u64> {
    let vmstat = read(Path::new("/proc/vmstat"))?;
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
    fn adds_up_a_process_and_all_that_descend_from_it() {
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
        let reading = Reading::of_family(proc, 1).unwrap();
        assert_eq!(reading.rss, 1_111_100 * 1024, "also those of other threads, and none that is gone");
        assert_eq!(reading.peak_rss, reading.rss);
        let seconds = 1_500.0 / f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap());
        assert!((reading.cpu_seconds - seconds).abs() < 0.001);
        assert_eq!(Reading::of_family(proc, 3).unwrap().peak_rss, 20_000 * 1024, "its own peak, if that is more");
        assert_eq!(Reading::of_family(proc, 99), None);
    }

    #[test]
    fn measures_a_process_alone_where_its_children_are_not_told_and_only_so_many_of_a_crowd() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        let crowd: Vec<String> = (2..200).map(|pid: u32| pid.to_string()).collect();
        process(proc, 1, 1, 0, &crowd.join(" "));
        (2..200).for_each(|pid| process(proc, pid, 1, 0, ""));
        assert_eq!(Reading::of_family(proc, 1).unwrap().rss, 64 * 1024);
        fs::remove_dir_all(proc.join("1/task")).unwrap();
        assert_eq!(Reading::of_family(proc, 1).unwrap().rss, 1024);
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
