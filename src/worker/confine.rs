//! What the launcher takes from itself, and so from the worker: privileges, resources, and the files of others.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Confinement;

use super::launch::{LaunchFailure, Stage};

/// What we know how to ask for. An older kernel gives what it has, but at least the first version.
const NEWEST: ABI = ABI::V6;

/// What almost every program needs to run at all: itself, its libraries, and harmless facts about the machine.
const ALWAYS_READABLE: [&str; 22] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/sys/devices/system/cpu",
    "/dev/random",
    "/dev/urandom",
    "/etc/alternatives",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

const ALWAYS_WRITABLE: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// How much longer than SIGXCPU lets it live, in seconds, a worker has until SIGKILL.
const CPU_GRACE: u64 = 5;

/// Where a worker runs, as far as Landlock is concerned.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// Its program, if that is a path.
    pub program: Option<&'a str>,
    pub directory: Option<&'a str>,
    /// Whether that is the worker's alone.
    pub private: bool,
}

/// Sets the limits; the launcher itself needs little.
pub(super) fn limit(confinement: &Confinement) -> Result<(), LaunchFailure> {
    let cpu = confinement.max_cpu_time.map(|time| time.as_secs());
    let limits = [
        ("max_open_files", Resource::Nofile, confinement.max_open_files, 0),
        ("max_processes", Resource::Nproc, confinement.max_processes, 0),
        ("max_core_size", Resource::Core, confinement.max_core_size, 0),
        ("max_file_size", Resource::Fsize, confinement.max_file_size, 0),
        ("max_address_space", Resource::As, confinement.max_address_space, 0),
        ("max_cpu_time", Resource::Cpu, cpu, CPU_GRACE),
    ];
    for (key, resource, value, grace) in limits {
        let Some(value) = value else { continue };
        let wanted = Rlimit { current: Some(value), maximum: Some(value + grace) };
        setrlimit(resource, wanted).map_err(|errno| {
            let own = getrlimit(resource).maximum.map_or_else(|| "none".to_owned(), |most| most.to_string());
            LaunchFailure::said(Stage::Limits, &format!("{key} = {value}: {errno}; the server's own limit is {own}"))
        })?;
    }
    Ok(())
}

/// Gives up the right to gain rights.
pub(super) fn renounce(confinement: &Confinement) -> Result<(), LaunchFailure> {
    if confinement.no_new_privs {
        nix::sys::prctl::set_no_new_privs()
            .map_err(|errno| LaunchFailure::io(Stage::Privileges, &std::io::Error::from(errno)))?;
    }
    Ok(())
}

/// Shuts the worker in, if its kind asks for it.
pub(super) fn shut_in(confinement: &Confinement, around: &Surroundings<'_>) -> Result<(), LaunchFailure> {
    if !confinement.wants_landlock() {
        return Ok(());
    }
    let mut rules = new_ruleset()?;
    for path in ALWAYS_READABLE {
        rules = allow(rules, path, readable())?.0;
    }
    for path in ALWAYS_WRITABLE {
        rules = allow(rules, path, writable())?.0;
    }
    let read = confinement.landlock_read.iter().flatten().map(String::as_str);
    let write = confinement.landlock_write.iter().flatten().map(String::as_str);
    let (own, dir) = if around.private { (around.directory, None) } else { (None, around.directory) };
    let asked = read.chain(dir).map(|path| (path, readable())).chain(write.chain(own).map(|path| (path, writable())));
    for (path, access) in asked {
        let (more, missing) = allow(rules, path, access)?;
        if let Some(why) = missing {
            return Err(refused(&format!("{path}: {why}; check landlock_read and landlock_write")));
        }
        rules = more;
    }
    if let Some(program) = around.program {
        // If it is not there, to execute it tells more.
        rules = allow(rules, program, readable())?.0;
    }
    let status = rules.restrict_self().map_err(|error| refused(&error.to_string()))?;
    if status.ruleset == RulesetStatus::NotEnforced { Err(no_landlock()) } else { Ok(()) }
}

fn new_ruleset() -> Result<RulesetCreated, LaunchFailure> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|_| no_landlock())?;
    ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| refused(&error.to_string()))
}

fn readable() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

fn writable() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !BitFlags::from(AccessFs::Execute)
}

/// Opens a path up, and says why if it cannot be reached.
fn allow(
    rules: RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<(RulesetCreated, Option<std::io::Error>), LaunchFailure> {
    let path = Path::new(path);
    let is_dir = match path.metadata() {
        Ok(metadata) => metadata.is_dir(),
        Err(error) => return Ok((rules, Some(error))),
    };
    let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
    let opened = PathFd::new(path).map_err(|error| refused(&error.to_string()))?;
    let rules = rules.add_rule(PathBeneath::new(opened, access)).map_err(|error| refused(&error.to_string()))?;
    Ok((rules, None))
}

fn refused(why: &str) -> LaunchFailure {
    LaunchFailure::said(Stage::Landlock, why)
}

fn no_landlock() -> LaunchFailure {
    refused("this kernel has no Landlock (Linux 5.13 or newer, with landlock among its security modules)")
}
