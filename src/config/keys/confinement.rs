//! The keys of a kind of worker that keep its workers in their place.

use super::Fallback::{Unset, Value};
use super::Reload::Rolls;

keys! { TABLE:
    NO_NEW_PRIVS: Kind.no_new_privs = Value("true"), Rolls,
        "Whether the worker, and all that it starts, can gain no rights that its user does not have: \
         setuid programs like sudo then do not work for it. On by default, because few workers need \
         them, and what runs a stranger's input should not have them.";
    LANDLOCK_READ: Kind.landlock_read = Unset(r#"["/srv/models"]"#), Rolls,
        "Paths that the worker may read and execute from. If this or landlock_write is set, even to \
         [], Landlock keeps the worker, whatever its user may do, from all other files, but for the \
         program of its command, its dir, and what almost every program needs: /usr, /lib, /proc, \
         some of /etc and /dev. It can then neither signal processes outside nor reach their abstract \
         sockets, from Linux 6.12 on. A relative path is taken from this file's directory. Where the \
         kernel has no Landlock, or a path does not exist, the worker does not start.";
    LANDLOCK_WRITE: Kind.landlock_write = Unset(r#"["/var/cache/models"]"#), Rolls,
        "Likewise paths that the worker may read and write, but not execute from. A private dir is \
         among them always.";
    MAX_OPEN_FILES: Kind.max_open_files = Value(r#""none""#), Rolls,
        "Descriptors that the worker may have open at once; \"none\" for as many as the server may. \
         None by default, like the limits below but the core dump: what a worker needs differs from kind to kind.";
    MAX_PROCESSES: Kind.max_processes = Value(r#""none""#), Rolls,
        "Processes and threads that the worker's user may have at once; \"none\" for no other bound \
         than the server's. The kernel counts all that the user runs on this machine, so give the kind \
         a user of its own; it does not bind root.";
    MAX_CORE_SIZE: Kind.max_core_size = Value(r#""0B""#), Rolls,
        "The largest core dump that the worker leaves when it crashes; \"none\" for the server's \
         bound. None is left by default: it would hold what the worker knew, and fill the disk.";
    MAX_FILE_SIZE: Kind.max_file_size = Value(r#""none""#), Rolls,
        "The largest file that the worker can write; \"none\" for the server's bound.";
    MAX_ADDRESS_SPACE: Kind.max_address_space = Value(r#""none""#), Rolls,
        "The address space of each of the worker's processes, at least 1MiB; \"none\" for the server's \
         bound. Runtimes like Node's set far more aside than they use: for those take memory_limit.";
    MAX_CPU_TIME: Kind.max_cpu_time = Value(r#""none""#), Rolls,
        "The processor time of each of the worker's processes over its whole life, in whole seconds; \
         then it gets SIGXCPU, and SIGKILL five seconds later. \"none\" for the server's bound.";
}
