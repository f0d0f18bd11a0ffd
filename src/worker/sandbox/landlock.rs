//! Landlock: the files that a worker may read and write, if its kind lists them.

use std::{fmt, io, path::Path};

use ::landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::plan::{LaunchFailure, LaunchPlan};

/// Newest version whose rights we request. An older kernel applies those it knows, but at least the first version's.
const NEWEST_ABI: ABI = ABI::V6;

/// Paths that almost every program needs: itself, its libraries, and harmless facts about the machine.
#[rustfmt::skip]
const ALWAYS_READABLE: [&str; 22] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys/devices/system/cpu", "/dev/random", "/dev/urandom",
    "/etc/alternatives", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime",
    "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki/tls/certs", "/etc/resolv.conf", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
];

const ALWAYS_WRITABLE: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Restricts the launcher, and so the worker, if the kind asks for it.
pub(super) fn restrict(plan: &LaunchPlan, program: &str) -> Result<(), LaunchFailure> {
    if !plan.confinement.wants_landlock() {
        return Ok(());
    }
    let mut rules = new_ruleset()?;
    // If the program is missing, its execution gives the better error.
    let program = program.contains('/').then_some(program);
    let readable = ALWAYS_READABLE.into_iter().chain(program).map(|path| (path, read_access()));
    for (path, access) in readable.chain(ALWAYS_WRITABLE.map(|path| (path, write_access()))) {
        rules = allow(rules, path, access)?.0;
    }
    let read = plan.confinement.landlock_read.iter().flatten().map(String::as_str);
    let write = plan.confinement.landlock_write.iter().flatten().map(String::as_str);
    let directory = plan.directory.as_deref();
    let (own, shared) = if plan.private { (directory, None) } else { (None, directory) };
    let listed = read.chain(shared).map(|path| (path, read_access()));
    for (path, access) in listed.chain(write.chain(own).map(|path| (path, write_access()))) {
        let (more, missing) = allow(rules, path, access)?;
        if let Some(error) = missing {
            return Err(failure(format!("{path}: {error}; check landlock_read and landlock_write")));
        }
        rules = more;
    }
    let status = rules.restrict_self().map_err(failure)?;
    if status.ruleset == RulesetStatus::NotEnforced { Err(unsupported()) } else { Ok(()) }
}

fn new_ruleset() -> Result<RulesetCreated, LaunchFailure> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|_| unsupported())?;
    ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST_ABI)))
        .and_then(Ruleset::create)
        .map_err(failure)
}

fn read_access() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST_ABI)
}

fn write_access() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST_ABI) & !BitFlags::from(AccessFs::Execute)
}

/// Adds a rule for a path; the error, if any, tells why the path cannot be reached.
fn allow(
    rules: RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<(RulesetCreated, Option<io::Error>), LaunchFailure> {
    let path = Path::new(path);
    let is_dir = match path.metadata() {
        Ok(metadata) => metadata.is_dir(),
        Err(error) => return Ok((rules, Some(error))),
    };
    let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST_ABI) };
    let opened = PathFd::new(path).map_err(failure)?;
    Ok((rules.add_rule(PathBeneath::new(opened, access)).map_err(failure)?, None))
}

fn failure(reason: impl fmt::Display) -> LaunchFailure {
    LaunchFailure::new(format!("cannot confine it with Landlock: {reason}"))
}

fn unsupported() -> LaunchFailure {
    failure("this kernel has no Landlock (Linux 5.13 or newer, with landlock among its security modules)")
}
