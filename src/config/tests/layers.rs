//! Tests of the layers: the environment overrides the file, and flags override both.

use std::time::Duration;

use super::super::{Config, Listen, Overrides, Recovery};
use super::{MINIMAL, expect_mistakes, load_with};

fn with_env(text: &str, env: &[(&str, &str)]) -> Result<Config, super::ConfigErrors> {
    load_with(text, env, &Overrides::default())
}

#[track_caller]
fn expect_refused(text: &str, env: &[(&str, &str)], mistakes: &[&str]) {
    let errors = with_env(text, env).expect_err("this must not load");
    expect_mistakes(&errors.to_string(), mistakes);
}

fn flags(listen: &str, http: &str) -> Overrides {
    Overrides { listen: Some(listen.to_owned()), http: Some(http.to_owned()) }
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let text = format!("[server]\nlisten = \"127.0.0.1:1\"\n{MINIMAL}");
    let env = [("REMUDA__SERVER__LISTEN", "127.0.0.1:2")];
    let tcp = |text: &str| Listen::Tcp(text.parse().unwrap());
    assert_eq!(with_env(&text, &[]).unwrap().server.listen, tcp("127.0.0.1:1"));
    assert_eq!(with_env(&text, &env).unwrap().server.listen, tcp("127.0.0.1:2"));
    let config = load_with(&text, &env, &flags("127.0.0.1:3", "off")).unwrap();
    assert_eq!(config.server.listen, tcp("127.0.0.1:3"));
    assert_eq!(config.server.http, None);
}

#[test]
fn mistake_that_is_overridden_is_not_reported() {
    let text = format!("[server]\nlisten = \"nonsense\"\n{MINIMAL}");
    assert!(load_with(&text, &[], &flags("127.0.0.1:3", "off")).is_ok());
}

#[test]
fn variables_reach_every_section_and_kind() {
    let text = "[kinds.my-model]\n[kinds.a__b]\ncommand = [\"w\"]\n[recovery.types.\"v1/embedText\"]\n";
    let env = [
        ("REMUDA__POOL__MAX_WORKERS", "1_000"),
        ("REMUDA__POOL__DRAIN_TIMEOUT", "1m 30s"),
        ("REMUDA__RESULTS__MAX_BYTES", "\"1MiB\""),
        ("REMUDA__DEAD_LETTERS__MAX_AGE", "30d"),
        ("REMUDA__RECOVERY__STRATEGY", "retry"),
        ("REMUDA__RECOVERY__TYPES__V1_EMBEDTEXT__STRATEGY", "retry"),
        ("REMUDA__RECOVERY__TYPES__V1_EMBEDTEXT__ATTEMPTS", "7"),
        ("REMUDA__KINDS__MY_MODEL__COMMAND", "['a', 'b c']"),
        ("REMUDA__KINDS__MY_MODEL__ENV", "{ A = \"b\" }"),
        ("REMUDA__KINDS__A__B__MIN", "3"),
        ("REMUDA__KINDS__A__B__TIMEOUT", "none"),
        ("REMUDA_SOCKET", "not ours"),
        ("PATH", "/bin"),
    ];
    let config = with_env(text, &env).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.pool.max_workers.get(), 1000);
    assert_eq!(config.pool.drain_timeout, Duration::from_secs(90));
    assert_eq!(config.results.max_bytes, 1 << 20);
    assert_eq!(config.dead_letters.max_age, Duration::from_hours(30 * 24));
    assert_eq!(config.recovery.for_type(None), Recovery::Retry { attempts: 1 });
    assert_eq!(config.recovery.for_type(Some("v1/embedText")), Recovery::Retry { attempts: 7 });
    assert_eq!(config.kinds[0].command, ["a", "b c"]);
    assert_eq!(config.kinds[0].env["A"], "b");
    assert_eq!(config.kinds[1].min, 3);
    assert_eq!(config.kinds[1].timeout, None);
}

#[test]
fn mistakes_in_variables_and_flags_are_named_after_them() {
    let env = [
        ("REMUDA__SERVER__HTTP", "localhost"),
        ("REMUDA__KINDS__K__MIN", "many"),
        ("REMUDA__KINDS__K__ENV", "{ A = 1 }"),
        ("REMUDA__POOL__DRAIN_TIMEOUT", "30"),
    ];
    let text = format!("{MINIMAL}max = 0\n");
    let overrides = Overrides { listen: Some("here".to_owned()), http: None };
    let errors = load_with(&text, &env, &overrides).unwrap_err().to_string();
    expect_mistakes(
        &errors,
        &[
            "remuda.toml:3:7: kinds.k.max: must be from 1 to 1000000, but is 0",
            "REMUDA__KINDS__K__ENV: kinds.k.env.A: must be a string, not a number",
            "REMUDA__KINDS__K__MIN: kinds.k.min: must be a whole number, without quotes, not a \
             string",
            "REMUDA__POOL__DRAIN_TIMEOUT: pool.drain_timeout: a bare number has no unit: write \
             \"30s\"",
            "REMUDA__SERVER__HTTP: server.http: \"localhost\" is not an address: write an IP \
             address and port, \
             like \"127.0.0.1:9090\", or \"off\"",
            "--listen: server.listen: \"here\" is not an address: write an IP address and port, \
             like \"127.0.0.1:50051\" or \"[::]:50051\", or the path of a Unix socket, like \
             \"/run/remuda.sock\"",
        ],
    );
}

#[test]
fn unknown_variables_are_mistakes() {
    let form = "unknown variable; write REMUDA__SECTION__KEY, or REMUDA__KINDS__NAME__KEY for a \
         kind that the file defines, or REMUDA__RECOVERY__TYPES__NAME__KEY for a type that has a \
         section there";
    expect_refused(
        MINIMAL,
        &[
            ("REMUDA__SERVER__LISEN", "x"),
            ("REMUDA__COLOUR", "x"),
            ("REMUDA__KINDS__OTHER__MIN", "1"),
            ("REMUDA__", "1"),
            ("REMUDA__KINDS__K__RETRY", "3"),
            ("REMUDA__RECOVERY__STRATEGIE", "retry"),
            ("REMUDA__RECOVERY__TYPES__EMBED__STRATEGY", "retry"),
        ],
        &[
            &format!("REMUDA__: {form}"),
            &format!("REMUDA__COLOUR: {form}"),
            "REMUDA__KINDS__K__RETRY: kinds.k.retry: `retry` is not supported by this version of remuda; remove it",
            &format!("REMUDA__KINDS__OTHER__MIN: {form}"),
            "REMUDA__RECOVERY__STRATEGIE: unknown variable; did you mean `REMUDA__RECOVERY__STRATEGY`?",
            &format!("REMUDA__RECOVERY__TYPES__EMBED__STRATEGY: {form}"),
            "REMUDA__SERVER__LISEN: unknown variable; did you mean `REMUDA__SERVER__LISTEN`?",
        ],
    );
}

#[test]
fn variable_that_could_mean_two_kinds_is_a_mistake() {
    expect_refused(
        "[kinds.a-b]\ncommand = [\"w\"]\n[kinds.a_b]\ncommand = [\"w\"]\n",
        &[("REMUDA__KINDS__A_B__MIN", "2")],
        &["REMUDA__KINDS__A_B__MIN: could mean kind `a-b` or kind `a_b`; set the key in the \
             file instead"],
    );
}

#[test]
fn variable_that_could_mean_two_types_is_a_mistake() {
    let types = "[recovery.types.\"a b\"]\nstrategy = \"retry\"\n[recovery.types.A-b]\nstrategy = \"retry\"\n";
    expect_refused(
        &format!("{MINIMAL}{types}"),
        &[("REMUDA__RECOVERY__TYPES__A_B__ATTEMPTS", "2")],
        &["REMUDA__RECOVERY__TYPES__A_B__ATTEMPTS: could mean type `\"a b\"` or type `A-b`; set the \
           key in the file instead"],
    );
}

#[test]
fn variable_does_not_hide_a_broken_section() {
    expect_refused(
        &format!("server = 3\n{MINIMAL}"),
        &[("REMUDA__SERVER__LISTEN", "127.0.0.1:2")],
        &["remuda.toml:1:10: server: must be a section, written [server], not a number"],
    );
}

#[test]
fn conflicts_name_the_variable_on_either_side() {
    let text = "[kinds.a]\ncommand = [\"w\"]\n[kinds.b]\ncommand = [\"w\"]\ntypes = [\"chat\"]\n";
    expect_refused(
        text,
        &[("REMUDA__KINDS__A__TYPES", "[\"chat\"]")],
        &["remuda.toml:5:10: kinds.b.types[0]: \"chat\" is already served by kind `a` \
           (REMUDA__KINDS__A__TYPES); a type belongs to one kind"],
    );
}

#[test]
fn long_temporary_directory_is_refused_at_load() {
    let long = format!("/{}", "t".repeat(69));
    let shown = format!("\"/{}\"...", "t".repeat(59));
    expect_refused(
        MINIMAL,
        &[("TMPDIR", &long)],
        &[&format!(
            "TMPDIR: pool.socket_dir: {shown} is 70 bytes long; at most 60 leave room for a \
             socket's name"
        )],
    );
    let text = format!("[pool]\nsocket_dir = \"/run/r\"\n{MINIMAL}");
    assert!(with_env(&text, &[("TMPDIR", &long)]).is_ok());
}
