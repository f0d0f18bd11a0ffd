//! Resource limits (`setrlimit`) of a worker.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Confinement;

use super::plan::LaunchFailure;

/// Seconds between SIGXCPU and SIGKILL for a worker that has used up `max_cpu_time`.
const CPU_GRACE_SECS: u64 = 5;

/// Sets the limits of the launcher, which the worker inherits.
pub(super) fn set(confinement: &Confinement) -> Result<(), LaunchFailure> {
    let cpu = confinement.max_cpu_time.map(|time| time.as_secs());
    let limits = [
        ("max_open_files", Resource::Nofile, confinement.max_open_files, 0),
        ("max_processes", Resource::Nproc, confinement.max_processes, 0),
        ("max_core_size", Resource::Core, confinement.max_core_size, 0),
        ("max_file_size", Resource::Fsize, confinement.max_file_size, 0),
        ("max_address_space", Resource::As, confinement.max_address_space, 0),
        ("max_cpu_time", Resource::Cpu, cpu, CPU_GRACE_SECS),
    ];
    for (key, resource, value, grace) in limits {
        let Some(value) = value else { continue };
        let wanted = Rlimit { current: Some(value), maximum: Some(value + grace) };
        setrlimit(resource, wanted).map_err(|errno| {
            let own = getrlimit(resource).maximum.map_or_else(|| "none".to_owned(), |most| most.to_string());
            LaunchFailure::new(format!(
                "cannot limit it: {key} = {value}: {errno}; the server's own limit is {own}; check the kind's limits"
            ))
        })?;
    }
    Ok(())
}
