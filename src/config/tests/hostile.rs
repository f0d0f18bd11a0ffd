//! Tests that wrong files of any kind lead to a list of mistakes and nothing worse.

use super::super::schema::Fallback;
use super::{KeyIn, MINIMAL, all_keys, load, load_with, refused, with_key};

/// Values that no key takes, except that a few take a boolean.
const WRONG: [&str; 9] = [
    "true",
    "1.5",
    "nan",
    "1979-05-27",
    "07:32:00",
    "[[1]]",
    "{ x = 1 }",
    "-9_223_372_036_854_775_808",
    "99999999999999999999999999999999",
];

fn takes(key: KeyIn, value: &str) -> bool {
    value == "true" && matches!(key.key.fallback, Fallback::Default("true" | "false"))
}

#[test]
fn wrong_type_is_a_mistake_that_names_the_key() {
    for key in all_keys() {
        for wrong in WRONG {
            if takes(key, wrong) {
                continue;
            }
            let text = with_key(key, wrong);
            let errors = load(&text).expect_err(&text);
            let [mistake] = &errors.mistakes[..] else {
                panic!("{text}: {errors}");
            };
            assert!(mistake.path.starts_with(&key.path()), "{text}: {errors}");
        }
    }
}

#[test]
fn wrong_variable_is_a_mistake_that_names_it() {
    for key in all_keys() {
        let variable = format!("REMUDA__{}", key.path().replace('.', "__")).to_uppercase();
        let wrong = if takes(key, "true") { "yes" } else { "true" };
        let env = [(variable.as_str(), wrong)];
        let text = format!("{MINIMAL}[recovery.types.k]\nstrategy = \"retry\"\n");
        let errors = load_with(&text, &env, &super::Overrides::default()).unwrap_err();
        let errors = errors.to_string();
        assert!(errors.starts_with(&format!("{variable}: ")), "{errors}");
        assert!(errors.ends_with("\n1 mistake in remuda.toml"), "{errors}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let arrays = refused(&format!("x = {}", "[".repeat(100_000)));
    assert!(arrays.contains("cannot recurse further"), "{arrays}");
    assert!(arrays.lines().count() < 10, "{arrays}");
    let tables = refused(&format!("x = {}", "{a=".repeat(100_000)));
    assert!(tables.contains("not valid TOML"), "{tables}");
    let dotted = refused(&format!("{}=1", vec!["a"; 10_000].join(".")));
    assert!(dotted.contains("recursion limit"), "{dotted}");
    let header = refused(&format!("[{}]", vec!["a"; 10_000].join(".")));
    assert!(header.contains("recursion limit"), "{header}");
}

#[test]
fn many_mistakes_are_all_reported_quickly() {
    let keys: Vec<_> = (0..10_000).map(|n| format!("k{n} = 1\n")).collect();
    let errors = load(&format!("[server]\n{}{MINIMAL}", keys.concat())).unwrap_err();
    assert_eq!(errors.mistakes.len(), 10_000);
}

#[test]
fn every_mistake_is_one_line_of_plain_text() {
    let wild = "\\u001b[2J\\n\\r\\u0007";
    let errors = refused(&format!(
        "\"{wild}\" = 1\n[server]\n\"{wild}\" = 1\nlisten = \"{wild}\"\nhttp = \"{}\"\n\
         [kinds.\"{wild}\"]\ncommand = [\"w\"]\nuser = \"{wild}\"\nenv = {{ \"{wild}\" = 1 }}\n\
         timeout = \"{wild}\"\nmax_line_bytes = \"{wild}\"\ntransport = \"{wild}\"\n\
         types = [\"{wild}\"]\n[recovery.types.\"{wild}!\"]\nstrategy = \"{wild}\"\n",
        "long ".repeat(10_000),
    ));
    assert_eq!(errors.lines().count(), 13, "{errors}");
    for line in errors.lines() {
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
        assert!(line.len() < 500, "{line}");
    }
}

#[test]
fn garbage_is_refused() {
    for text in ["\0", "=", "[", "]]", "\"", "a", "a=", "\u{202e}", "[a]\n[a]", "kinds.k.command = [\"w\"]\n[kinds.k]"]
    {
        let errors = refused(text);
        assert!(errors.contains("not valid TOML"), "{text:?}: {errors}");
    }
}
