//! Tests of the differences that a reload finds, and of their effects.

use super::super::schema::Fallback;
use super::super::{Config, Effect, ValueChange, changes};
use super::{KeyIn, MINIMAL, all_keys, loaded, with_key};

/// A value other than the default, for each key that is not in `MINIMAL` or has no example.
const OTHERS: &[(&str, &str)] = &[
    ("server.listen", r#""127.0.0.1:1""#),
    ("server.http", r#""off""#),
    ("pool.eviction", r#""oldest""#),
    ("queue.aging", r#""1s""#),
    ("recovery.strategy", r#""retry""#),
    ("recovery.types.k.strategy", r#""reject""#),
    ("results.overflow", r#""fail""#),
    ("kinds.k.command", r#"["other"]"#),
    ("kinds.k.types", r#"["t"]"#),
    ("kinds.k.capabilities", r#"["c"]"#),
    ("server.workers_may_read_secrets", "true"),
    ("server.allow_insecure", "true"),
    ("server.http_tls", "false"),
    ("server.otlp_sample", "0.5"),
    ("server.http_open_paths", r#"["/livez"]"#),
    ("server.max_connection_age", r#""7s""#),
    ("server.max_connection_age_grace", r#""7s""#),
    ("server.compression", r#"["zstd"]"#),
    ("kinds.k.env", r#"{ A = "b" }"#),
    ("kinds.k.pass_env", r#"["A"]"#),
    ("kinds.k.transport", r#""stdio""#),
    ("kinds.k.keyed", "true"),
    ("kinds.k.affinity", r#""off""#),
    ("kinds.k.balance", r#""most_recent""#),
    ("kinds.k.connect_timeout", r#""20s""#),
    ("kinds.k.heartbeat_warning", r#""3s""#),
    ("kinds.k.no_new_privs", "false"),
    ("kinds.k.max_open_files", "64"),
    ("kinds.k.max_core_size", r#""1GiB""#),
    ("kinds.k.max_file_size", r#""1GiB""#),
    ("kinds.k.max_address_space", r#""4GiB""#),
    ("kinds.k.max_cpu_time", r#""1h""#),
];

/// A value of `key` that is not its default.
fn other_value(key: KeyIn) -> String {
    if let Some((_, value)) = OTHERS.iter().find(|(path, _)| *path == key.path()) {
        return (*value).to_owned();
    }
    match key.key.fallback {
        Fallback::Unset(example) => example.to_owned(),
        // A limit of "none", whose other values are sizes, numbers or durations.
        Fallback::Default(r#""none""#) if key.key.name.starts_with("memory") => r#""2GiB""#.to_owned(),
        Fallback::Default(r#""none""#) if key.key.name.starts_with("max_") && key.key.name != "max_age" => {
            "7".to_owned()
        }
        Fallback::Default(r#""none""#) => r#""7s""#.to_owned(),
        Fallback::Default(number) | Fallback::Dependent(number) if !number.starts_with('"') => "7".to_owned(),
        Fallback::Default(size) if size.contains("iB") => r#""5MiB""#.to_owned(),
        Fallback::Default(_) => r#""7s""#.to_owned(),
        other => panic!("name another value of {}: {other:?}", key.path()),
    }
}

/// Two configs between which `key` differs, and as little else as can be.
fn pair(key: KeyIn) -> (Config, Config) {
    // With a budget, the kind must set its memory.
    let rest = if key.key.name == "memory_budget" { "memory = \"1GiB\"\n" } else { "" };
    let old = match (key.section.header, key.key.fallback) {
        (_, Fallback::Dependent(_)) => with_key(key, "8"),
        ("recovery.types.NAME", _) => with_key(key, "\"retry\""),
        _ => MINIMAL.to_owned(),
    };
    let new = with_key(key, &other_value(key));
    (loaded(&format!("{old}{rest}")), loaded(&format!("{new}{rest}")))
}

#[test]
fn every_key_that_differs_is_found_with_its_effect() {
    for key in all_keys() {
        let (old, new) = pair(key);
        let found = changes(&old, &new);
        let change = found.iter().find(|change| change.path.starts_with(&key.path()));
        let change = change.unwrap_or_else(|| panic!("{} is not found: {found:?}", key.path()));
        assert_eq!(change.effect, key.key.effect, "{}", key.path());
        assert_ne!(change.old, change.new, "{}", key.path());
        assert_eq!(changes(&new, &new), [], "{}", key.path());
    }
}

#[test]
fn workers_roll_for_the_keys_that_say_so_and_no_others() {
    for key in all_keys().filter(|key| key.section.header == "kinds.NAME") {
        let (old, new) = pair(key);
        let [old, new] = [&old.kinds[0], &new.kinds[0]];
        assert_ne!(old, new, "{}", key.path());
        assert_eq!(old.must_roll(new), key.key.effect == Effect::Rolls, "{}", key.path());
        assert_eq!(new.must_roll(old), key.key.effect == Effect::Rolls, "{}", key.path());
        assert!(!new.must_roll(new), "{}", key.path());
    }
}

#[test]
fn only_keys_of_kinds_roll_and_none_of_them_needs_a_restart() {
    for key in all_keys() {
        let forbidden = if key.section.header == "kinds.NAME" { Effect::NeedsRestart } else { Effect::Rolls };
        assert_ne!(key.key.effect, forbidden, "{}", key.path());
    }
}

fn change(path: &str, old: Option<&str>, new: Option<&str>, effect: Effect) -> ValueChange {
    ValueChange { path: path.to_owned(), old: old.map(str::to_owned), new: new.map(str::to_owned), effect }
}

#[track_caller]
fn expect_changes(old: &str, new: &str, expected: &[ValueChange]) {
    assert_eq!(changes(&loaded(old), &loaded(new)), expected);
}

#[test]
fn changed_values_are_as_show_writes_them() {
    let old =
        "[pool]\nmax_workers = 20\nsocket_dir = \"/run/a\"\n[kinds.embed]\ncommand = [\"w\"]\ntimeout = \"60s\"\n";
    let new =
        "[pool]\nmax_workers = 20_000\n[kinds.embed]\ncommand = [\"w\"]\nmax = 8\ntimeout = \"none\"\nuser = \"me\"\n";
    expect_changes(
        old,
        new,
        &[
            change("pool.max_workers", Some("20"), Some("20_000"), Effect::Applied),
            change("pool.socket_dir", Some("\"/run/a\""), None, Effect::NeedsRestart),
            change("kinds.embed.max", Some("4"), Some("8"), Effect::Applied),
            change("kinds.embed.user", None, Some("\"me\""), Effect::Rolls),
            change("kinds.embed.timeout", Some("\"1m\""), Some("\"none\""), Effect::Rolls),
        ],
    );
}

#[test]
fn kinds_are_added_and_removed_as_a_whole_in_any_order() {
    let kind = |name: &str| format!("[kinds.{name}]\ncommand = [\"{name}\", \"-x\"]\n");
    expect_changes(
        &[kind("a"), kind("b"), kind("c")].concat(),
        &[kind("d"), kind("c"), kind("a")].concat(),
        &[
            change("kinds.d", None, Some("[\"d\", \"-x\"]"), Effect::KindAdded),
            change("kinds.b", Some("[\"b\", \"-x\"]"), None, Effect::KindRemoved),
        ],
    );
}

#[test]
fn types_with_their_own_recovery_are_added_and_removed() {
    let new = format!("{MINIMAL}[recovery.types.\"a b\"]\nstrategy = \"retry\"\nattempts = 2\n");
    let path = |key: &str| format!("recovery.types.\"a b\".{key}");
    expect_changes(
        MINIMAL,
        &new,
        &[
            change(&path("strategy"), None, Some("\"retry\""), Effect::Applied),
            change(&path("attempts"), None, Some("2"), Effect::Applied),
        ],
    );
}

#[test]
fn variables_are_reported_by_name_only() {
    let old = format!("{MINIMAL}env = {{ GONE = \"secret1\", KEPT = \"secret2\", TOKEN = \"secret3\" }}\n");
    let new = format!("{MINIMAL}env = {{ KEPT = \"secret2\", NEW = \"secret4\", TOKEN = \"secret5\" }}\n");
    let hidden = Some("(hidden)");
    expect_changes(
        &old,
        &new,
        &[
            change("kinds.k.env.NEW", None, hidden, Effect::Rolls),
            change("kinds.k.env.TOKEN", hidden, hidden, Effect::Rolls),
            change("kinds.k.env.GONE", hidden, None, Effect::Rolls),
        ],
    );
}

#[test]
fn kind_that_becomes_keyed_becomes_strict_too() {
    expect_changes(
        MINIMAL,
        &format!("{MINIMAL}keyed = true\n"),
        &[
            change("kinds.k.keyed", Some("false"), Some("true"), Effect::Rolls),
            change("kinds.k.affinity", Some("\"prefer\""), Some("\"strict\""), Effect::Applied),
        ],
    );
}
