//! Tests of the order of the files: dependencies go in one direction.

use std::path::Path;

/// The siblings that `code` imports by paths that start with `prefix`.
fn imports<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let paths = code.lines().filter_map(|line| line.strip_prefix("use ")?.strip_prefix(prefix));
    paths.filter_map(|path| path.split([':', ';']).next()).filter(|name| !name.starts_with("super")).collect()
}

#[test]
fn files_use_only_those_listed_before_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let listed = read("mod.rs");
    let listed: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    let mut count = 0;
    let mut check = |module: usize, file: &str, prefix: &str| {
        for used in imports(&read(file), prefix) {
            count += 1;
            assert!(listed[..module].contains(&used), "{file} uses {used}, which is not listed before it");
        }
    };
    for (index, module) in listed.iter().enumerate().filter(|(_, module)| **module != "tests") {
        if *module == "keys" {
            for entry in std::fs::read_dir(dir.join(module)).unwrap() {
                let file = format!("keys/{}", entry.unwrap().file_name().to_string_lossy());
                check(index, &file, if file == "keys/mod.rs" { "super::" } else { "super::super::" });
            }
        } else {
            check(index, &format!("{module}.rs"), "super::");
        }
    }
    assert!(count > 50, "it sees {count} imports only");
}
