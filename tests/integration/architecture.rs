//! The rules of ARCHITECTURE.md that a program can check.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The code of a file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// Fails if any of `words` stands in a source file that `allowed` does not let through.
#[track_caller]
fn only_in(words: &[&str], allowed: impl Fn(&str) -> bool) {
    for file in rust_files("src") {
        let name = relative(&file);
        let code = code(&file);
        for word in words {
            assert!(allowed(&name) || !code.contains(word), "{name} has {word:?}, which belongs elsewhere");
        }
    }
}

#[test]
fn tonic_is_named_by_the_api_and_clients_only() {
    // The exporter names the TLS settings of its client, and the baseline is the bare server that others are measured against.
    let others = ["src/trace/export.rs", "src/bench/baseline.rs"];
    only_in(&["tonic::", "tonic_"], |name| {
        name.starts_with("src/api/") || name.starts_with("src/client/") || others.contains(&name)
    });
}

#[test]
fn h2_is_a_dependency_of_tests_only() {
    only_in(&["h2::"], |_| false);
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap();
    assert!(!dependencies.contains("\nh2 "), "h2 is for tests");
}

#[test]
fn processes_are_started_and_signalled_by_their_module_only() {
    // The launcher and the guardian are programs of their own, in the same binary.
    only_in(&["Command::new", "kill_process", "pidfd", "Signal::"], |name| {
        // The load generator is a program of its own too: a client.
        name == "src/bench/process.rs" || name == "src/worker/process.rs" || name.starts_with("src/worker/sandbox/")
    });
}

#[test]
fn metrics_are_named_by_their_module_only() {
    only_in(&["prometheus::", "\"remuda_"], |name| name.starts_with("src/metrics/"));
}

#[test]
fn environment_is_read_by_config_and_cli_only() {
    let allowed = |name: &str| {
        // `main` looks at its arguments only.
        name.starts_with("src/config/") || name.starts_with("src/cli/") || name == "src/main.rs"
    };
    only_in(&["env::var", "env::temp_dir", "env::home_dir"], allowed);
}

#[test]
fn state_machines_do_no_io_and_read_no_clock() {
    for file in rust_files("src/state") {
        let text = code(&file);
        let production = text.split("#[cfg(test)]").next().unwrap();
        for word in ["Instant::now", "SystemTime::now", "tracing", "std::fs", "std::io", "tokio"] {
            assert!(!production.contains(word), "{} has {word:?}", relative(&file));
        }
    }
}

#[test]
fn channels_are_bounded() {
    only_in(&["unbounded_channel", "mpsc::channel()"], |_| false);
}

#[test]
fn files_are_short_and_begin_with_their_job() {
    for file in ["src", "tests", "benches"].into_iter().flat_map(rust_files) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.lines().count() <= 400, "{} has {} lines", relative(&file), text.lines().count());
        assert!(text.starts_with("//!"), "{} does not begin with its job", relative(&file));
    }
}

/// The functions of a file and their lengths in lines, as rustfmt lays them out: the end is a brace as far in as the beginning.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let begin = line.trim_start();
        let Some((before, name)) = begin.split_once("fn ") else { continue };
        let is_modifier = |word: &str| word.starts_with("pub") || ["const", "async", "unsafe"].contains(&word);
        // Most signatures end on their first line; a declaration or a function of one line has no end to look for.
        let head = lines[at..].iter().find(|line| line.ends_with(['{', ';', '}'])).expect("a signature ends");
        if !before.replace("in ", "").split_whitespace().all(is_modifier) || !head.ends_with('{') {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - begin.len()]);
        let length = lines[at..].iter().position(|line| *line == end).expect("a function ends") + 1;
        found.push((name, length));
    }
    found
}

#[test]
fn functions_are_short() {
    let mut count = 0;
    for file in ["src", "tests", "benches"].into_iter().flat_map(rust_files) {
        let text = fs::read_to_string(&file).unwrap();
        for (name, lines) in functions(&text) {
            assert!(lines <= 70, "{} has {lines} lines: {name}", relative(&file));
            count += 1;
        }
    }
    assert!(count > 1_000, "it sees {count} functions only");
}

#[test]
fn names_of_tests_begin_with_their_subject() {
    let mut count = 0;
    for file in rust_files("tests") {
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines().map(str::trim_start);
        while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
            let name = lines.find_map(|line| line.split_once("fn ")).expect("a test is a function").1;
            let is_article = |word: &&str| ["a", "an", "the", "what", "who", "test"].contains(word);
            assert_eq!(name.split('_').next().filter(is_article), None, "{} has {name}", relative(&file));
            count += 1;
        }
    }
    assert!(count > 300, "it sees {count} tests only");
}

#[test]
fn unsafe_stands_in_one_module_only() {
    only_in(&["unsafe "], |name| name == "src/system.rs");
}

#[test]
fn tests_that_promises_name_exist() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    assert!(check_named_tests("SECURITY.md", &page) > 10);
}

#[test]
fn limits_name_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/limits.md")).unwrap();
    // The first table; its first two lines are the head.
    let table = page.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = table.skip(2).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        assert!(check_named_tests("docs/limits.md", tests) > 0, "no test shows this limit: {row}");
    }
}

/// Number of tests that this part of a page names, all of which must exist.
fn check_named_tests(page: &str, text: &str) -> usize {
    let named: Vec<_> = text.split('`').filter_map(|code| code.rsplit_once("::")).collect();
    for (module, test) in &named {
        let path = module.replace("::", "/");
        let places = match path.strip_suffix("/tests") {
            Some(unit) => vec![format!("src/{unit}.rs"), format!("src/{path}.rs")],
            None => ["tests/integration/", "tests/", "src/"]
                .iter()
                .flat_map(|dir| [format!("{dir}{path}.rs"), format!("{dir}{path}/mod.rs")])
                .collect(),
        };
        let there = places.iter().filter_map(|place| fs::read_to_string(root().join(place)).ok());
        let needle = format!("fn {test}()");
        assert!(there.into_iter().any(|tests| tests.contains(&needle)), "{page} names {module}::{test}");
    }
    named.len()
}

#[test]
fn code_map_is_short_and_names_paths_that_exist() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 200, "ARCHITECTURE.md has {} lines", page.lines().count());
    let tops = ["src/", "tests/", "benches/", "proto/", "deploy/", "docs/"];
    let paths: Vec<_> = page.split('`').filter(|word| tops.iter().any(|top| word.starts_with(top))).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}");
    }
}

/// The top-level modules from the bottom up: each imports only modules that stand before it. So nothing of the server knows the
/// command line, the client or the load generator.
const LAYERS: [&str; 20] = [
    "sync",
    "system",
    "state",
    "protocol",
    "config",
    "model",
    "trace",
    "metrics",
    "broker",
    "worker",
    "security",
    "transport",
    "pool",
    "http",
    "api",
    "server",
    "workers",
    "client",
    "bench",
    "cli",
];

/// Source files that belong to the program, with their code: no tests.
fn program_files() -> impl Iterator<Item = (String, String)> {
    let is_test = |name: &str| {
        name.contains("/tests/")
            || ["/tests.rs", "model_check.rs", "/for_test.rs"].iter().any(|end| name.ends_with(end))
    };
    let files = rust_files("src").into_iter().map(|file| (relative(&file), code(&file)));
    files.filter(move |(name, _)| !is_test(name)).map(|(name, code)| {
        let program = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (name, program)
    })
}

/// The modules that come first in the `crate::` paths of a file, those in braces included.
fn imports(code: &str) -> Vec<&str> {
    let word = |text: &str| text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let mut found = Vec::new();
    for path in code.split("crate::").skip(1) {
        let Some(group) = path.strip_prefix('{') else {
            found.push(&path[..word(path)]);
            continue;
        };
        let (mut depth, mut item) = (0, 0);
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    found.push(group[item..at].trim());
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.push(group[item..at].trim());
                    item = at + 1;
                }
                _ => {}
            }
        }
    }
    found.iter().map(|item| &item[..word(item)]).filter(|item| !item.is_empty()).collect()
}

#[test]
fn modules_depend_only_on_those_below_them() {
    let layer = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    let mut count = 0;
    for (name, code) in program_files() {
        let top = name.trim_start_matches("src/").split(['/', '.']).next().unwrap();
        if ["lib", "main"].contains(&top) {
            continue;
        }
        let own = layer(top).unwrap_or_else(|| panic!("{name} is in no layer"));
        for module in imports(&code) {
            let imported = layer(module).unwrap_or_else(|| panic!("{name} imports {module:?}, which is in no layer"));
            assert!(imported <= own, "{name} imports {module}, which is above {top}");
            count += 1;
        }
    }
    assert!(count > 200, "it sees {count} imports only");
}

#[test]
fn top_level_has_few_files() {
    let files = rust_files("src").into_iter().filter(|file| file.parent().is_some_and(|dir| dir.ends_with("src")));
    let files: Vec<_> = files.map(|file| relative(&file)).collect();
    assert!(files.len() <= 8, "{files:?}");
}

#[test]
fn type_names_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, code) in program_files() {
        for line in code.lines() {
            // Types that a macro declares are indented; so are the associated types of a trait, which are no types of their own.
            let is_top_level = !line.starts_with(' ');
            let item = line.trim_start();
            let public = item.strip_prefix("pub").and_then(|rest| rest.split_once(' '));
            let item = public.map_or(item, |(_, item)| item);
            let words = ["struct ", "enum ", "trait "].into_iter().chain(is_top_level.then_some("type "));
            let declared = words.into_iter().find_map(|word| item.strip_prefix(word));
            let Some(declared) = declared else { continue };
            let end = declared.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(declared.len());
            // A macro's own text names its type by a variable.
            if end > 0 {
                places.entry(declared[..end].to_owned()).or_default().push(name.clone());
            }
        }
    }
    assert!(places.len() > 300, "it sees {} types only", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "type names that are used twice: {places:#?}");
}
