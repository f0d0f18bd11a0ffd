//! Keys of `[kinds.NAME]` that confine its workers: privileges, files, and resource limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::format::{Checked, List, Optional};
use super::super::numbers::{Boolean, Integer, MAX_COUNTED, MEMORY_BYTES, Or, Size, Time};
use super::super::reader::SectionReader;
use super::super::schema::keys;
use super::super::strings::PathText;

/// Larger than any real file, and so little that no kernel takes it for "no limit".
const LARGEST_FILE_BYTES: u64 = 1 << 60;

keys! {
    /// Restrictions of a kind's workers beyond those of their user. A limit that is `None` is the server's own.
    #[derive(Eq, Serialize, Deserialize)]
    pub struct Confinement, ConfinementSettings {
        /// Keeps the worker, and its children, from gaining rights that its user does not have: setuid programs like
        /// sudo then do not work for it. True by default, because few workers need them, and a program that handles
        /// a stranger's input should not have them.
        no_new_privs: bool = Boolean, Default(true), Rolls;
        /// Paths that the worker may read and execute from. If this or landlock_write is set, even to [], Landlock
        /// keeps the worker from all other files, whatever its user may read, except the program of its command, its
        /// dir, and the files that almost every program needs: /usr, /lib, /proc, some of /etc and /dev. From Linux
        /// 6.12 on it can then neither signal processes outside nor reach their abstract sockets. A relative path is
        /// taken from this file's directory. If the kernel has no Landlock, or a path does not exist, the worker does
        /// not start.
        landlock_read: Option<Vec<String>> = Optional(List(PathText)), Unset(["/srv/models"]), Rolls;
        /// Paths that the worker may read and write, but not execute from. A private dir is always among them.
        landlock_write: Option<Vec<String>> = Optional(List(PathText)), Unset(["/var/cache/models"]), Rolls;
        /// Descriptors that the worker may have open at once; "none" for as many as the server may. None by default,
        /// like the limits below except the core dump: the need differs from kind to kind.
        max_open_files: Option<u64> = Or("none", Integer(8..=MAX_COUNTED)), Default("none"), Rolls;
        /// Processes and threads that the worker's user may have at once; "none" for the server's limit. The kernel
        /// counts all that the user runs on this machine, so give the kind a user of its own; it does not bind root.
        max_processes: Option<u64> = Or("none", Integer(1..=MAX_COUNTED)), Default("none"), Rolls;
        /// The largest core dump that the worker leaves when it crashes; "none" for the server's limit. No dump by
        /// default: it would hold the worker's data, and fill the disk.
        max_core_size: Option<u64> = Or("none", Size(0..=LARGEST_FILE_BYTES)), Default("0B"), Rolls;
        /// The largest file that the worker can write; "none" for the server's limit.
        max_file_size: Option<u64> = Or("none", Size(0..=LARGEST_FILE_BYTES)), Default("none"), Rolls;
        /// The address space of each of the worker's processes, at least 1MiB; "none" for the server's limit. Runtimes
        /// like Node's reserve far more than they use: for those take memory_limit.
        max_address_space: Option<u64> = Or("none", Size(MEMORY_BYTES)), Default("none"), Rolls;
        /// The processor time of each of the worker's processes over its whole life, in whole seconds; then it gets
        /// SIGXCPU, and SIGKILL five seconds later. "none" for the server's limit.
        max_cpu_time: Option<Duration> = Or("none", Checked(Time(CPU_TIME), whole_seconds)), Default("none"), Rolls;
    }
}

impl Confinement {
    #[must_use]
    pub fn wants_landlock(&self) -> bool {
        self.landlock_read.is_some() || self.landlock_write.is_some()
    }
}

const CPU_TIME: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(365 * 24);

fn whole_seconds(duration: &Duration) -> Result<(), String> {
    if duration.subsec_nanos() == 0 { Ok(()) } else { Err("must be whole seconds".to_owned()) }
}

pub(in crate::config) fn read(section: &SectionReader<'_>) -> Confinement {
    let settings = ConfinementSettings::read(section);
    let has_landlock = settings.landlock_read.node.is_some() || settings.landlock_write.node.is_some();
    if has_landlock && settings.no_new_privs.written() == Some(&false) {
        let problem = "must be true with Landlock: remove it, or `landlock_read` and `landlock_write`";
        section.report(&settings.no_new_privs, problem);
    }
    settings.into_config()
}
