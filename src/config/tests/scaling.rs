//! Tests of the limits of the pool and its workers, and of the choice among workers.

use std::time::Duration;

use super::super::{Affinity, Balance, Eviction};
use super::{MINIMAL, expect_in, expect_in_kind, expect_mistakes, load, loaded, refused};

fn in_kind(lines: &str) -> super::super::KindConfig {
    loaded(&format!("{MINIMAL}{lines}\n")).kinds.remove(0)
}

#[test]
fn limits_of_the_pool_can_be_written() {
    let config = loaded(&format!(
        "[pool]\nmemory_budget = \"8GiB\"\neviction = \"largest\"\nmax_starting = 2\n\
         [queue]\naging = \"30s\"\nmax_queries_per_owner = 500\nmax_running_per_owner = 2\n\
         {MINIMAL}memory = \"8GiB\"\n"
    ));
    assert_eq!(config.pool.memory_budget, Some(8 << 30));
    assert_eq!(config.pool.eviction, Eviction::Largest);
    assert_eq!(config.pool.max_starting.get(), 2);
    assert_eq!(config.queue.aging, Some(Duration::from_secs(30)));
    assert_eq!(config.queue.max_queries_per_owner.map(Into::into), Some(500_usize));
    assert_eq!(config.queue.max_running_per_owner.map(Into::into), Some(2_usize));
}

#[test]
fn limits_of_a_kind_can_be_written() {
    let kind = in_kind(
        "capabilities = [\"gpu\", \"large\"]\naffinity = \"strict\"\nbalance = \"least_loaded\"\n\
         memory = \"1GiB\"\nmemory_soft = \"1.5GiB\"\nmemory_limit = \"2GiB\"\nidle_ttl = \"none\"\n\
         max_queries = 1\nmax_age = \"1day\"\nscale_up_after = \"0s\"\nscale_up_depth = 1",
    );
    assert_eq!(kind.capabilities, ["gpu", "large"]);
    assert_eq!((kind.affinity, kind.balance), (Affinity::Strict, Balance::LeastLoaded));
    assert_eq!((kind.memory, kind.memory_soft, kind.memory_limit), (Some(1 << 30), Some(3 << 29), Some(2 << 30)));
    assert_eq!(kind.idle_ttl, None);
    assert_eq!(kind.max_queries.map(Into::into), Some(1_u64));
    assert_eq!(kind.max_age, Some(Duration::from_hours(24)));
    assert_eq!((kind.scale_up_after, kind.scale_up_depth), (Duration::ZERO, 1));
}

#[test]
fn keyed_kind_is_strict() {
    for lines in ["keyed = true", "keyed = true\naffinity = \"strict\""] {
        let kind = in_kind(lines);
        assert!(kind.keyed);
        assert_eq!(kind.affinity, Affinity::Strict, "{lines}");
    }
    for word in ["prefer", "off"] {
        expect_in_kind(
            &format!("keyed = true\naffinity = \"{word}\""),
            &[&format!(
                "remuda.toml:4:12: kinds.k.affinity: is \"{word}\", but a keyed kind is always \"strict\": \
                 remove `affinity`, or `keyed`"
            )],
        );
    }
}

#[test]
fn words_are_one_of_a_few() {
    let (evictions, affinities) =
        ("\"lru\", \"oldest\", \"least_used\", \"largest\"", "\"off\", \"prefer\", \"strict\"");
    expect_in(
        "pool",
        "eviction = \"random\"",
        &[&format!("remuda.toml:2:12: pool.eviction: \"random\" is not one of {evictions}")],
    );
    expect_in_kind(
        "affinity = \"sticky\"\nbalance = \"random\"\nkeyed = \"true\"",
        &[
            &format!("remuda.toml:3:12: kinds.k.affinity: \"sticky\" is not one of {affinities}"),
            "remuda.toml:4:11: kinds.k.balance: \"random\" is not one of \"round_robin\", \"least_loaded\", \
             \"most_recent\"",
            "remuda.toml:5:9: kinds.k.keyed: must be true or false, without quotes, not a string",
        ],
    );
}

#[test]
fn no_limit_is_none_and_no_aging_is_off() {
    expect_in(
        "queue",
        "aging = \"none\"\nmax_queries_per_owner = \"off\"\nmax_running_per_owner = \"2\"",
        &[
            "remuda.toml:2:9: queue.aging: \"none\" means nothing here: write \"off\"",
            "remuda.toml:3:25: queue.max_queries_per_owner: \"off\" means nothing here: write \"none\"",
            "remuda.toml:4:25: queue.max_running_per_owner: must be a whole number, without quotes, not a string",
        ],
    );
    expect_in_kind(
        "idle_ttl = \"off\"\nmax_queries = \"off\"\nmemory_limit = \"off\"",
        &[
            "remuda.toml:3:12: kinds.k.idle_ttl: \"off\" means nothing here: write \"none\"",
            "remuda.toml:4:15: kinds.k.max_queries: \"off\" means nothing here: write \"none\"",
            "remuda.toml:5:16: kinds.k.memory_limit: \"off\" means nothing here: write \"none\"",
        ],
    );
}

#[test]
fn limits_that_would_stop_everything_are_refused() {
    for (section, key, range) in [
        ("pool", "max_starting", "1 to 1000000"),
        ("queue", "max_queries_per_owner", "1 to 1000000000"),
        ("queue", "max_running_per_owner", "1 to 1000000"),
        ("kinds.x", "max_queries", "1 to 1000000000"),
        ("kinds.x", "scale_up_depth", "1 to 1000000000"),
        ("kinds.x", "scale_up_step", "1 to 1000000"),
        ("kinds.x", "scale_down_step", "1 to 1000000"),
    ] {
        let first = if section == "kinds.x" { "command = [\"w\"]" } else { "" };
        let column = key.len() + 4;
        let mistake = format!("remuda.toml:3:{column}: {section}.{key}: must be from {range}, but is 0");
        expect_in(section, &format!("{first}\n{key} = 0"), &[&mistake]);
    }
    let range = "must be from 1ms to 1year, but is 0s";
    expect_in("queue", "aging = \"0s\"", &[&format!("remuda.toml:2:9: queue.aging: {range}")]);
    for key in ["idle_ttl", "max_age", "scale_down_after"] {
        let column = key.len() + 4;
        expect_in_kind(&format!("{key} = \"0s\""), &[&format!("remuda.toml:3:{column}: kinds.k.{key}: {range}")]);
    }
}

#[test]
fn capabilities_are_few_short_and_distinct() {
    let long = "a".repeat(64);
    assert!(load(&format!("{MINIMAL}capabilities = [\"{long}\"]\n")).is_ok());
    let shown = format!("\"{}\"...", "a".repeat(60));
    expect_in_kind(
        &format!("capabilities = [\"gpu\", \"\", 1, \"gpu\", \"{long}a\"]"),
        &[
            "remuda.toml:3:24: kinds.k.capabilities[1]: must not be empty",
            "remuda.toml:3:28: kinds.k.capabilities[2]: must be a string, not a number",
            "remuda.toml:3:31: kinds.k.capabilities[3]: \"gpu\" is listed twice",
            &format!("remuda.toml:3:38: kinds.k.capabilities[4]: {shown} is 65 bytes long; at most 64 are allowed"),
        ],
    );
    let many = |count: usize| (0..count).map(|n| format!("\"c{n}\"")).collect::<Vec<_>>().join(", ");
    assert_eq!(in_kind(&format!("capabilities = [{}]", many(64))).capabilities.len(), 64);
    expect_in_kind(
        &format!("capabilities = [{}]", many(65)),
        &["remuda.toml:3:16: kinds.k.capabilities: lists 65; at most 64 are allowed"],
    );
}

#[test]
fn memory_soft_is_less_than_memory_limit() {
    for limit in ["1GiB", "512MiB"] {
        expect_in_kind(
            &format!("memory_soft = \"1GiB\"\nmemory_limit = \"{limit}\""),
            &[&format!(
                "remuda.toml:3:15: kinds.k.memory_soft: 1GiB is not less than `memory_limit`, which is {limit}"
            )],
        );
    }
    assert!(load(&format!("{MINIMAL}memory_soft = \"1GiB\"\n")).is_ok());
    expect_in_kind(
        "memory_soft = \"1GiB\"\nmemory_limit = 5",
        &["remuda.toml:4:16: kinds.k.memory_limit: a bare number has no unit: write \"5B\""],
    );
}

#[test]
fn memory_is_at_least_a_mebibyte() {
    for key in ["memory", "memory_soft", "memory_limit"] {
        let column = key.len() + 4;
        expect_in_kind(
            &format!("{key} = \"1023KiB\""),
            &[&format!("remuda.toml:3:{column}: kinds.k.{key}: must be from 1MiB to 64TiB, but is 1023KiB")],
        );
    }
}

#[test]
fn memory_budget_needs_the_memory_of_every_kind() {
    let text = "[pool]\nmemory_budget = \"1GiB\"\n[kinds.a]\ncommand = [\"w\"]\nmemory = \"1GiB\"\n\
                [kinds.b]\ncommand = [\"w\"]\n";
    expect_mistakes(
        &refused(text),
        &["remuda.toml:6:8: kinds.b.memory: is required, because pool.memory_budget is 1GiB: write what one worker \
           needs, like memory = \"512MiB\", or remove the budget"],
    );
}

#[test]
fn memory_budget_fits_one_worker_of_each_kind() {
    let text = format!("[pool]\nmemory_budget = \"1GiB\"\n{MINIMAL}memory = \"2GiB\"\nmin = 3\n");
    let mistake = "remuda.toml:5:10: kinds.k.memory: one worker needs 2GiB, more than pool.memory_budget, which is \
                   1GiB, so none could ever start: lower `memory`, or raise the budget";
    expect_mistakes(&refused(&text), &[mistake]);
}

#[test]
fn memory_budget_fits_the_workers_kept_warm() {
    let kinds = |budget: &str| {
        format!(
            "[pool]\nmemory_budget = \"{budget}\"\n[kinds.embed]\ncommand = [\"w\"]\nmemory = \"512MiB\"\nmin = 2\n\
             [kinds.agent]\ncommand = [\"w\"]\nmemory = \"1GiB\"\n[kinds.rare]\ncommand = [\"w\"]\n\
             memory = \"1GiB\"\nmin = 0\n"
        )
    };
    assert!(load(&kinds("2GiB")).is_ok());
    expect_mistakes(
        &refused(&kinds("1536MiB")),
        &["remuda.toml:7:8: kinds.agent.min: the kinds' `min` workers need 2GiB together (embed 2 x 512MiB, \
           agent 1 x 1GiB, rare 0 x 1GiB), more than pool.memory_budget, which is 1536MiB: lower `min` or \
           `memory`, or raise the budget"],
    );
}

#[test]
fn mistaken_budget_is_the_only_mistake() {
    expect_in(
        "pool",
        "memory_budget = 8",
        &["remuda.toml:2:17: pool.memory_budget: a bare number has no unit: write \"8B\""],
    );
}
