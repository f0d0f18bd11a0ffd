//! Tests of `[recovery]`: the default, the types, and their conflicts.

use super::super::Recovery;
use super::{MINIMAL, expect_in, expect_mistakes, load, loaded, refused};

/// Two kinds that list their types.
const LISTED: &str = "[kinds.a]\ncommand = [\"w\"]\ntypes = [\"chat\", \"embed\"]\n\
                      [kinds.b]\ncommand = [\"w\"]\ntypes = [\"render\"]\n";

#[test]
fn type_overrides_the_default_recovery() {
    let config = loaded(&format!(
        "{MINIMAL}[recovery]\nstrategy = \"retry\"\nattempts = 5\n\
         [recovery.types.embed]\nstrategy = \"retry\"\nattempts = 3\n\
         [recovery.types.pay]\nstrategy = \"reject\"\n"
    ));
    let recovery = config.recovery;
    assert_eq!(recovery.for_type(Some("embed")), Recovery::Retry { attempts: 3 });
    assert_eq!(recovery.for_type(Some("pay")), Recovery::Reject);
    assert_eq!(recovery.for_type(Some("other")), Recovery::Retry { attempts: 5 });
    assert_eq!(recovery.for_type(None), Recovery::Retry { attempts: 5 });
}

#[test]
fn retry_is_one_more_run_by_default() {
    let config = loaded(&format!("{MINIMAL}[recovery]\nstrategy = \"retry\"\n"));
    assert_eq!(config.recovery.default, Recovery::Retry { attempts: 1 });
    let text = "[recovery]\nstrategy = \"retry\"\nattempts = 9\n[recovery.types.x]\nstrategy = \"retry\"\n";
    let config = loaded(&format!("{MINIMAL}{text}"));
    assert_eq!(config.recovery.for_type(Some("x")), Recovery::Retry { attempts: 1 });
}

#[test]
fn strategies_are_one_of_two_words() {
    let words = "one of \"reject\", \"retry\"";
    for section in ["recovery", "recovery.types.x"] {
        for (written, problem) in [
            ("\"ignore\"", format!("\"ignore\" is not {words}")),
            ("\"Retry\"", format!("\"Retry\" is not {words}")),
            ("3", format!("must be {words}, not a number")),
        ] {
            // Attempts are not held against a strategy that is mistaken.
            expect_in(
                section,
                &format!("strategy = {written}\nattempts = 3"),
                &[&format!("remuda.toml:2:12: {section}.strategy: {problem}")],
            );
        }
    }
}

#[test]
fn attempts_and_reject_are_a_conflict() {
    let conflict = "has no effect while `strategy` is \"reject\": write strategy = \"retry\", or remove `attempts`";
    for section in ["recovery", "recovery.types.x"] {
        expect_in(
            section,
            "attempts = 1\nstrategy = \"reject\"",
            &[&format!("remuda.toml:2:12: {section}.attempts: {conflict}")],
        );
    }
    expect_in("recovery", "attempts = 3", &[&format!("remuda.toml:2:12: recovery.attempts: {conflict}")]);
}

#[test]
fn type_must_set_its_strategy() {
    let missing = "is required: write strategy = \"retry\" or strategy = \"reject\"";
    for lines in ["", "attempts = 3"] {
        expect_in("recovery.types.x", lines, &[&format!("remuda.toml:1:17: recovery.types.x.strategy: {missing}")]);
    }
}

#[test]
fn type_that_no_kind_serves_is_a_mistake() {
    let types = "[recovery.types.embed]\nstrategy = \"retry\"\n[recovery.types.embedd]\nstrategy = \"retry\"\n";
    expect_mistakes(
        &refused(&format!("{types}{LISTED}")),
        &["remuda.toml:3:17: recovery.types.embedd: no kind serves this type; served are \"chat\", \
           \"embed\", \"render\""],
    );
}

#[test]
fn served_types_beyond_a_few_are_only_counted() {
    let types: Vec<_> = (0..10).map(|n| format!("\"t{n}\"")).collect();
    let text = format!("[recovery.types.x]\nstrategy = \"reject\"\n{MINIMAL}types = [{}]\n", types.join(", "));
    expect_mistakes(
        &refused(&text),
        &["remuda.toml:1:17: recovery.types.x: no kind serves this type; served are \"t0\", \"t1\", \
           \"t2\", \"t3\", \"t4\", \"t5\", \"t6\", \"t7\", 2 more"],
    );
}

#[test]
fn kind_that_lists_no_types_may_serve_any() {
    assert!(load(&format!("[recovery.types.x]\nstrategy = \"retry\"\n{LISTED}{MINIMAL}")).is_ok());
}

#[test]
fn mistaken_list_of_types_may_serve_any() {
    let recovery = "[recovery.types.x]\nstrategy = \"retry\"\n";
    for (types, mistake) in [
        ("[\"chat\", 3]", "remuda.toml:5:18: kinds.k.types[1]: must be a string, not a number"),
        ("\"chat\"", "remuda.toml:5:9: kinds.k.types: must be an array of strings, like [\"a\", \"b\"], not a string"),
    ] {
        expect_mistakes(&refused(&format!("{recovery}{MINIMAL}types = {types}\n")), &[mistake]);
    }
    expect_mistakes(
        &refused(&format!("{recovery}{LISTED}[kinds]\nc = 3\n")),
        &["remuda.toml:10:5: kinds.c: must be a section, written [kinds.c], not a number"],
    );
    expect_mistakes(
        &refused(recovery),
        &["remuda.toml: kinds: no kind of worker is defined: add a [kinds.NAME] section with a `command`"],
    );
}

#[test]
fn type_names_are_those_that_a_query_can_have() {
    for (written, mistake) in [
        ("\"\"", "recovery.types.\"\": must not be empty"),
        ("\"a\\u0000\"", "recovery.types.\"a\\0\": must not hold a NUL character"),
    ] {
        let text = format!("[recovery.types.{written}]\nstrategy = \"retry\"\n");
        for kinds in [MINIMAL, LISTED] {
            expect_mistakes(&refused(&format!("{text}{kinds}")), &[&format!("remuda.toml:1:17: {mistake}")]);
        }
    }
}

#[test]
fn recovery_and_its_types_must_be_sections() {
    for (written, mistake) in [
        ("recovery = \"retry\"", "1:12: recovery: must be a section, written [recovery], not a string"),
        (
            "recovery.types = [\"embed\"]",
            "1:18: recovery.types: must be a section, written [recovery.types.NAME], not an array",
        ),
        (
            "recovery.types.embed = \"retry\"",
            "1:24: recovery.types.embed: must be a section, written [recovery.types.embed], not a string",
        ),
    ] {
        expect_mistakes(&refused(&format!("{written}\n{MINIMAL}")), &[&format!("remuda.toml:{mistake}")]);
    }
}

#[test]
fn type_outside_of_types_is_an_unknown_key() {
    expect_in(
        "recovery",
        "embed = { strategy = \"retry\" }\ntype = {}",
        &[
            "remuda.toml:2:1: recovery.embed: unknown key; known are strategy, attempts, types",
            "remuda.toml:3:1: recovery.type: unknown key; did you mean `types`?",
        ],
    );
    expect_in(
        "recovery.types.x",
        "strategy = \"retry\"\nattempt = 3\nbackoff = \"1s\"",
        &[
            "remuda.toml:3:1: recovery.types.x.attempt: unknown key; did you mean `attempts`?",
            "remuda.toml:4:1: recovery.types.x.backoff: unknown key; it belongs in [retry]",
        ],
    );
}
