//! Tests of numbers, durations and sizes: their units, their limits, and the rules between them.

use super::{MINIMAL, expect_in, expect_in_kind, expect_mistakes, load, refused};

#[test]
fn durations_need_a_unit() {
    let like = "is not a duration: write one like \"5s\", \"1m 30s\" or \"200ms\"";
    for (written, problem) in [
        ("30", "a bare number has no unit: write \"30s\"".to_owned()),
        ("\"30\"", "a bare number has no unit: write \"30s\"".to_owned()),
        ("1_000", "a bare number has no unit: write \"1000s\"".to_owned()),
        ("-5", "must be a duration, like \"30s\", not a number".to_owned()),
        ("1.5", "must be a duration, like \"30s\", not a fraction".to_owned()),
        ("true", "must be a duration, like \"30s\", not a boolean".to_owned()),
        ("\"soon\"", format!("\"soon\" {like}")),
        ("\"5 parsecs\"", format!("\"5 parsecs\" {like}")),
        ("\"-5s\"", format!("\"-5s\" {like}")),
        ("\"\"", format!("\"\" {like}")),
        ("\"2years\"", "must be from 0s to 1year, but is 2years".to_owned()),
    ] {
        expect_in_kind(
            &format!("cancel_grace = {written}"),
            &[&format!("remuda.toml:3:16: kinds.k.cancel_grace: {problem}")],
        );
    }
}

#[test]
fn only_graces_and_pauses_may_be_zero() {
    let text = "[pool]\ndrain_timeout = \"0s\"\n[results]\nretention = \"0s\"\nmax_stall = \"0s\"\n\
                [kinds.k]\ncommand = [\"w\"]\ncancel_grace = \"0s\"\nterm_grace = \"0s\"\n";
    assert!(load(text).is_ok());
    let range = "must be from 1ms to 1year, but is 0s";
    for key in [
        "timeout",
        "queue_timeout",
        "start_timeout",
        "connect_timeout",
        "idle_after",
        "restart_backoff",
        "heartbeat_warning",
        "ping_interval",
    ] {
        let column = key.len() + 4;
        expect_in_kind(&format!("{key} = \"0s\""), &[&format!("remuda.toml:3:{column}: kinds.k.{key}: {range}")]);
    }
    for (section, key) in [("retry", "backoff"), ("retry", "backoff_max"), ("dead_letters", "max_age")] {
        let column = key.len() + 4;
        let mistake = format!("remuda.toml:2:{column}: {section}.{key}: {range}");
        expect_in(section, &format!("{key} = \"0s\""), &[&mistake]);
    }
}

#[test]
fn collector_has_a_url_and_a_share() {
    for fine in ["otlp_sample = 1", "otlp_sample = 0.25", "otlp_endpoint = \"https://c.example:4317\""] {
        assert!(load(&format!("[server]\n{fine}\n{MINIMAL}")).is_ok(), "{fine}");
    }
    let wanted = "must be a number, like 0.1, without quotes, not";
    for (written, problem) in [
        ("1.5", "must be from 0.0 to 1.0, but is 1.5".to_owned()),
        ("-1", "must be from 0.0 to 1.0, but is -1.0".to_owned()),
        ("nan", "must be from 0.0 to 1.0, but is NaN".to_owned()),
        ("true", format!("{wanted} a boolean")),
        ("\"0.1\"", format!("{wanted} a string")),
    ] {
        let mistake = format!("remuda.toml:2:15: server.otlp_sample: {problem}");
        expect_in("server", &format!("otlp_sample = {written}"), &[&mistake]);
    }
    for written in ["127.0.0.1:4317", "ftp://c.example", "http://", "a b"] {
        let problem = format!("\"{written}\" is not a URL: write one like \"http://127.0.0.1:4317\"");
        let mistake = format!("remuda.toml:2:17: server.otlp_endpoint: {problem}");
        expect_in("server", &format!("otlp_endpoint = \"{written}\""), &[&mistake]);
    }
}

#[test]
fn sizes_need_a_unit() {
    let like = "is not a size: write one like \"512MiB\" or \"64KB\"";
    let range = "must be from 1KiB to 1GiB, but is";
    for (written, problem) in [
        ("4194304", "a bare number has no unit: write \"4MiB\"".to_owned()),
        ("\"5000\"", "a bare number has no unit: write \"5000B\"".to_owned()),
        ("\"big\"", format!("\"big\" {like}")),
        ("\"4 florins\"", format!("\"4 florins\" {like}")),
        ("\"-4MiB\"", format!("\"-4MiB\" {like}")),
        ("\"1023B\"", format!("{range} 1023B")),
        ("\"2GiB\"", format!("{range} 2GiB")),
        ("\"99999999999EiB\"", format!("{range} 18446744073709551615B")),
        ("[\"4MiB\"]", "must be a size, like \"4MiB\", not an array".to_owned()),
    ] {
        expect_in_kind(
            &format!("max_line_bytes = {written}"),
            &[&format!("remuda.toml:3:18: kinds.k.max_line_bytes: {problem}")],
        );
    }
}

#[test]
fn counts_are_whole_numbers_in_range() {
    let range = "must be from 1 to 1000000, but is";
    for (written, problem) in [
        ("0", format!("{range} 0")),
        ("-1", format!("{range} -1")),
        ("1_000_001", format!("{range} 1000001")),
        ("99999999999999999999999999", format!("{range} beyond 64 bits")),
        ("16.0", "must be a whole number, without quotes, not a fraction".to_owned()),
        ("\"16\"", "must be a whole number, without quotes, not a string".to_owned()),
    ] {
        expect_in(
            "pool",
            &format!("max_workers = {written}"),
            &[&format!("remuda.toml:2:15: pool.max_workers: {problem}")],
        );
    }
}

#[test]
fn each_count_has_its_own_range() {
    for (section, key, range, wrong) in [
        ("recovery.types.k", "attempts", "1 to 100", "0"),
        ("recovery.types.k", "attempts", "1 to 100", "101"),
        ("retry", "attempts", "0 to 100", "-1"),
        ("retry", "attempts", "0 to 100", "101"),
        ("dead_letters", "max", "0 to 1000000000", "-1"),
        ("dead_letters", "max", "0 to 1000000000", "1000000001"),
        ("kinds.x", "circuit_failures", "1 to 1000000", "0"),
        ("kinds.x", "circuit_failures", "1 to 1000000", "1000001"),
        ("kinds.x", "max_failures", "0 to 1000000", "-1"),
        ("kinds.x", "max_failures", "0 to 1000000", "4294967296"),
    ] {
        let first = match section {
            "recovery.types.k" => "strategy = \"retry\"",
            "kinds.x" => "command = [\"w\"]",
            _ => "",
        };
        let column = key.len() + 4;
        let mistake = format!("remuda.toml:3:{column}: {section}.{key}: must be from {range}, but is {wrong}");
        expect_in(section, &format!("{first}\n{key} = {wrong}"), &[&mistake]);
    }
}

#[test]
fn retry_backoff_is_at_most_its_maximum() {
    expect_in(
        "retry",
        "backoff = \"2m\"",
        &["remuda.toml:2:11: retry.backoff: 2m is more than `backoff_max`, which is 1m"],
    );
    expect_in(
        "retry",
        "backoff = \"2s\"\nbackoff_max = \"1s\"",
        &["remuda.toml:2:11: retry.backoff: 2s is more than `backoff_max`, which is 1s"],
    );
    assert!(load(&format!("[retry]\nbackoff = \"1m\"\n{MINIMAL}")).is_ok());
}

#[test]
fn heartbeat_warning_is_less_than_the_timeout() {
    for (warning, timeout, shown) in
        [("30s", "", "30s"), ("5s", "heartbeat_timeout = \"5s\"", "5s"), ("6s", "heartbeat_timeout = \"5s\"", "5s")]
    {
        expect_in_kind(
            &format!("heartbeat_warning = \"{warning}\"\n{timeout}"),
            &[&format!(
                "remuda.toml:3:21: kinds.k.heartbeat_warning: {warning} is not less than \
                 `heartbeat_timeout`, which is {shown}"
            )],
        );
    }
    expect_in_kind(
        "heartbeat_timeout = \"1ms\"",
        &["remuda.toml:3:21: kinds.k.heartbeat_timeout: must be from 2ms to 1year, but is 1ms"],
    );
    expect_in_kind(
        "heartbeat_warning = \"1h\"\nheartbeat_timeout = 5",
        &["remuda.toml:4:21: kinds.k.heartbeat_timeout: a bare number has no unit: write \"5s\""],
    );
}

#[test]
fn pairs_keep_their_order() {
    expect_in_kind(
        "min = 3\nmax = 2\nconnect_timeout = \"90s\"\nrestart_backoff = \
         \"2s\"\nrestart_backoff_max = \"1s\"",
        &[
            "remuda.toml:3:7: kinds.k.min: 3 is more than `max`, which is 2",
            "remuda.toml:5:19: kinds.k.connect_timeout: 1m 30s is more than `start_timeout`, \
             which is 1m",
            "remuda.toml:6:19: kinds.k.restart_backoff: 2s is more than `restart_backoff_max`, \
             which is 1s",
        ],
    );
}

#[test]
fn mistaken_value_causes_no_second_mistake() {
    expect_in_kind(
        "min = 9\nmax = \"many\"\nstart_timeout = 5\nconnect_timeout = \"5m\"",
        &[
            "remuda.toml:4:7: kinds.k.max: must be a whole number, without quotes, not a string",
            "remuda.toml:5:17: kinds.k.start_timeout: a bare number has no unit: write \"5s\"",
        ],
    );
    let text = "[pool]\nmax_workers = 2\n[kinds.a]\ncommand = [\"w\"]\nmin = -1\n\
                [kinds.b]\ncommand = [\"w\"]\nmin = 2\n";
    expect_mistakes(&refused(text), &["remuda.toml:5:7: kinds.a.min: must be from 0 to 1000000, but is -1"]);
    expect_mistakes(
        &refused(&format!("[pool]\nmax_workers = 0\n{MINIMAL}min = 50\n")),
        &["remuda.toml:2:15: pool.max_workers: must be from 1 to 1000000, but is 0"],
    );
}

#[test]
fn pool_has_room_for_each_kind() {
    expect_in_kind("min = 17", &["remuda.toml:3:7: kinds.k.min: 17 is more than `pool.max_workers`, which is 16"]);
}

#[test]
fn pool_has_room_for_all_kinds_together() {
    let text = "[kinds.embed]\ncommand = [\"w\"]\nmin = 12\n[kinds.agent]\ncommand = [\"w\"]\nmin = 5\n";
    expect_mistakes(
        &refused(text),
        &["remuda.toml:6:7: kinds.agent.min: the kinds' `min` add up to 17 (embed 12, agent 5), \
           more than pool.max_workers, which is 16"],
    );
}

#[test]
fn sum_of_defaults_is_reported_at_the_kind() {
    let kinds: Vec<_> = (1..=10).map(|n| format!("[kinds.k{n}]\ncommand = [\"w\"]\n")).collect();
    let text = format!("[pool]\nmax_workers = 9\n{}", kinds.concat());
    expect_mistakes(
        &refused(&text),
        &["remuda.toml:21:8: kinds.k10.min: the kinds' `min` add up to 10 (k1 1, k2 1, k3 1, \
             k4 1, \
           k5 1, k6 1, k7 1, k8 1, 2 more), more than pool.max_workers, which is 9"],
    );
}

#[test]
fn socket_paths_are_short() {
    let dir = format!("/{}", "d".repeat(60));
    let shown = format!("\"/{}\"...", "d".repeat(59));
    expect_in(
        "pool",
        &format!("socket_dir = \"{dir}\""),
        &[&format!(
            "remuda.toml:2:14: pool.socket_dir: {shown} is 61 bytes long; at most 60 leave room \
             for a socket's name"
        )],
    );
    let path = format!("/{}", "d".repeat(107));
    expect_in(
        "server",
        &format!("listen = \"{path}\""),
        &[&format!(
            "remuda.toml:2:10: server.listen: {shown} is 108 bytes long; at most 107 fit in a \
             socket's path"
        )],
    );
    assert!(load(&format!("[pool]\nsocket_dir = \"{}\"\n{MINIMAL}", &dir[..60])).is_ok());
    assert!(load(&format!("[server]\nlisten = \"{}\"\n{MINIMAL}", &path[..107])).is_ok());
}

#[test]
fn certificate_needs_its_key_and_authorities_need_both() {
    let problem = |key: &str, other: &str| {
        format!("remuda.toml:2:{}: server.{key}: is of no use without `{other}`: set both or none", key.len() + 4)
    };
    for (key, other) in [("tls_cert", "tls_key"), ("tls_key", "tls_cert"), ("tls_client_ca", "tls_cert")] {
        expect_in("server", &format!("{key} = \"file\""), &[&problem(key, other)]);
    }
    let choices = r#""/", "/metrics", "/livez", "/readyz""#;
    let problem = format!("remuda.toml:2:30: server.http_open_paths[1]: \"/other\" is not one of {choices}");
    expect_in("server", "http_open_paths = [\"/livez\", \"/other\"]", &[&problem]);
}
