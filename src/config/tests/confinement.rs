//! Tests of the keys that confine workers.

use std::time::Duration;

use super::super::WorkDir;
use super::{MINIMAL, expect_in_kind, loaded};

#[test]
fn every_limit_can_be_written() {
    let text = "dir = \"private\"\nuser = \"nobody\"\ngroup = \"nogroup\"\nlandlock_read = [\"models\", \"/opt\"]\n\
                landlock_write = [\"/var/tmp\"]\nmax_open_files = 1024\nmax_processes = 64\nmax_file_size = \"1GiB\"\n\
                max_core_size = \"none\"\nmax_address_space = \"4GiB\"\nmax_cpu_time = \"1h\"\n";
    let kind = &loaded(&format!("{MINIMAL}{text}")).kinds[0];
    assert_eq!(kind.dir, WorkDir::Private);
    assert_eq!(kind.group.as_deref(), Some("nogroup"));
    let confinement = &kind.confinement;
    assert!(confinement.no_new_privs && confinement.wants_landlock());
    assert_eq!(confinement.landlock_read.as_deref().unwrap(), ["/etc/remuda/models", "/opt"]);
    assert_eq!(confinement.landlock_write.as_deref().unwrap(), ["/var/tmp"]);
    assert_eq!((confinement.max_open_files, confinement.max_processes), (Some(1024), Some(64)));
    assert_eq!((confinement.max_core_size, confinement.max_file_size), (None, Some(1 << 30)));
    assert_eq!(confinement.max_address_space, Some(4 << 30));
    assert_eq!(confinement.max_cpu_time, Some(Duration::from_hours(1)));
}

#[test]
fn directory_that_is_called_private_can_be_named() {
    let kind = &loaded(&format!("{MINIMAL}dir = \"./private\"\n")).kinds[0];
    assert_eq!(kind.dir, WorkDir::At("/etc/remuda/private".into()));
}

#[test]
fn empty_list_asks_for_landlock_too() {
    for key in ["landlock_read", "landlock_write"] {
        assert!(loaded(&format!("{MINIMAL}{key} = []\n")).kinds[0].confinement.wants_landlock(), "{key}");
    }
    assert!(!loaded(MINIMAL).kinds[0].confinement.wants_landlock());
}

#[test]
fn landlock_needs_no_new_privs() {
    expect_in_kind(
        "no_new_privs = false\nlandlock_read = []",
        &["remuda.toml:3:16: kinds.k.no_new_privs: must be true with Landlock: remove it, or `landlock_read` and \
           `landlock_write`"],
    );
    assert!(!loaded(&format!("{MINIMAL}no_new_privs = false\n")).kinds[0].confinement.no_new_privs);
}

#[test]
fn each_limit_has_its_form() {
    for (line, mistake) in [
        ("max_open_files = 7", "3:18: kinds.k.max_open_files: must be from 8 to 1000000000, but is 7"),
        ("max_processes = 0", "3:17: kinds.k.max_processes: must be from 1 to 1000000000, but is 0"),
        ("max_core_size = 0", "3:17: kinds.k.max_core_size: a bare number has no unit: write \"0B\""),
        ("max_file_size = \"2EiB\"", "3:17: kinds.k.max_file_size: must be from 0B to 1048576TiB, but is 2097152TiB"),
        ("max_address_space = \"1KiB\"", "3:21: kinds.k.max_address_space: must be from 1MiB to 64TiB, but is 1KiB"),
        ("max_cpu_time = \"1500ms\"", "3:16: kinds.k.max_cpu_time: must be whole seconds"),
        ("max_cpu_time = \"off\"", "3:16: kinds.k.max_cpu_time: \"off\" means nothing here: write \"none\""),
        ("group = \"a b\"", "3:9: kinds.k.group: \"a b\" is not a Unix group name"),
        ("group = 7", "3:9: kinds.k.group: must be a string, not a number"),
        ("dir = 7", "3:7: kinds.k.dir: must be a string, not a number"),
        ("no_new_privs = \"yes\"", "3:16: kinds.k.no_new_privs: must be true or false, without quotes, not a string"),
        ("landlock_read = [\"\"]", "3:18: kinds.k.landlock_read[0]: must not be empty"),
        (
            "landlock_write = \"/tmp\"",
            "3:18: kinds.k.landlock_write: must be an array of strings, like [\"a\", \"b\"], not a string",
        ),
    ] {
        expect_in_kind(line, &[&format!("remuda.toml:{mistake}")]);
    }
}
