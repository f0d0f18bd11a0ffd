//! Tests of the mistakes, in the words that a user reads.

use super::{MINIMAL, expect_in, expect_in_kind, expect_mistakes, load, refused};

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let errors = refused(
        "[kinds.embed]\n\
         command = [\"w\"]\n\
         min = 5\n\
         max = 2\n\
         keyed = \"yes\"\n\
         [server]\n\
         lisen = \"x\"\n\
         http = 9090\n\
         [pool]\n\
         drain_timeout = 30\n\
         [kinds.agent]\n\
         types = [\"chat\", \"\"]\n",
    );
    expect_mistakes(
        &errors,
        &[
            "remuda.toml:3:7: kinds.embed.min: 5 is more than `max`, which is 2",
            "remuda.toml:5:9: kinds.embed.keyed: must be true or false, without quotes, not a string",
            "remuda.toml:7:1: server.lisen: unknown key; did you mean `listen`?",
            "remuda.toml:8:8: server.http: must be an address, like \"127.0.0.1:9090\", or \
             \"off\", not a number",
            "remuda.toml:10:17: pool.drain_timeout: a bare number has no unit: write \"30s\"",
            "remuda.toml:11:8: kinds.agent.command: is required: write the program and its \
             arguments, \
             like command = [\"python3\", \"worker.py\"]",
            "remuda.toml:12:18: kinds.agent.types[1]: must not be empty",
        ],
    );
}

#[test]
fn syntax_errors_have_locations() {
    let errors = refused("[server]\nlisten = here\n[pool\nmax_workers = 3\n");
    expect_mistakes(
        &errors,
        &[
            "remuda.toml:2:10: not valid TOML: string values must be quoted, expected literal \
             string",
            "remuda.toml:3:6: not valid TOML: unclosed table, expected `]`",
        ],
    );
}

#[test]
fn key_written_twice_is_a_syntax_error() {
    expect_in_kind("min = 1\nmin = 2", &["remuda.toml:4:1: not valid TOML: duplicate key"]);
}

#[test]
fn columns_count_characters() {
    expect_in_kind(
        "env = { A = \"äöü\", B = 1 }",
        &["remuda.toml:3:24: kinds.k.env.B: must be a string, not a number"],
    );
}

#[test]
fn unknown_keys_get_a_suggestion_or_the_list() {
    expect_in(
        "pool",
        "max_worker = 3\ncolour = 1\nlisten = \"x\"\ntimeout = \"5s\"\nqueue_timeout = \"5s\"\nattempts = 2\nmax = 3\nscale_up_after = \"1s\"",
        &[
            "remuda.toml:2:1: pool.max_worker: unknown key; did you mean `max_workers`?",
            "remuda.toml:3:1: pool.colour: unknown key; known are max_workers, memory_budget, eviction, \
             max_starting, drain_pause, drain_timeout, socket_dir",
            "remuda.toml:4:1: pool.listen: unknown key; it belongs in [server]",
            "remuda.toml:5:1: pool.timeout: unknown key; it belongs in [kinds.NAME]",
            "remuda.toml:6:1: pool.queue_timeout: unknown key; it belongs in [kinds.NAME]",
            "remuda.toml:7:1: pool.attempts: unknown key; it belongs in [recovery] or \
             [recovery.types.NAME] or [retry]",
            "remuda.toml:8:1: pool.max: unknown key; it belongs in [dead_letters] or [kinds.NAME]",
            "remuda.toml:9:1: pool.scale_up_after: unknown key; it belongs in [kinds.NAME]",
        ],
    );
}

#[test]
fn unknown_sections_get_a_suggestion_or_the_list() {
    let text = format!("listen = \"x\"\n[srever]\n[colours]\n[kind.k]\n{MINIMAL}");
    expect_mistakes(
        &refused(&text),
        &[
            "remuda.toml:1:1: listen: unknown key; it belongs in [server]",
            "remuda.toml:2:2: srever: unknown section; did you mean `server`?",
            "remuda.toml:3:2: colours: unknown section; known are server, pool, queue, recovery, \
             recovery.types.NAME, retry, dead_letters, results, kinds.NAME",
            "remuda.toml:4:2: kind: unknown section; did you mean `kinds`?",
        ],
    );
}

#[test]
fn unsupported_keys_are_named_as_such() {
    let rest = "is not supported by this version of remuda; remove it";
    expect_in_kind("retry = 3", &[&format!("remuda.toml:3:1: kinds.k.retry: `retry` {rest}")]);
}

#[test]
fn sections_must_be_sections() {
    expect_mistakes(
        &refused("server = 3\nkinds = \"k\"\n[[pool]]\n"),
        &[
            "remuda.toml:1:10: server: must be a section, written [server], not a number",
            "remuda.toml:2:9: kinds: must be a section, written [kinds.NAME], not a string",
            "remuda.toml:3:1: pool: must be a section, written [pool], not an array",
        ],
    );
    expect_mistakes(
        &refused("[kinds]\nembed = [\"w\"]\n"),
        &["remuda.toml:2:9: kinds.embed: must be a section, written [kinds.embed], not an array"],
    );
}

#[test]
fn at_least_one_kind_is_needed() {
    let none = "no kind of worker is defined: add a [kinds.NAME] section with a `command`";
    expect_mistakes(&refused(""), &[&format!("remuda.toml: kinds: {none}")]);
    expect_mistakes(&refused("\n[kinds]"), &[&format!("remuda.toml:2:2: kinds: {none}")]);
}

#[test]
fn kind_names_are_short_and_plain() {
    let rule = "is not a kind's name: use 1 to 63 of a-z, 0-9, _ and -, starting with a letter";
    for (written, shown) in [
        ("Embed", "Embed"),
        ("1st", "1st"),
        ("_x", "_x"),
        ("\"\"", "\"\""),
        ("\"a b\"", "\"a b\""),
        ("\"a\\nb\"", "\"a\\nb\""),
    ] {
        let errors = refused(&format!("[kinds.{written}]\ncommand = [\"w\"]\n"));
        expect_mistakes(&errors, &[&format!("remuda.toml:1:8: kinds.{shown}: {rule}")]);
    }
    let long = "a".repeat(63);
    assert!(load(&MINIMAL.replace(".k]", &format!(".{long}]"))).is_ok());
    let errors = refused(&MINIMAL.replace(".k]", &format!(".{long}a]")));
    assert!(errors.contains(rule), "{errors}");
}

#[test]
fn commands_are_arrays_of_words() {
    for (written, mistakes) in [
        (
            "\"python3 w.py\"",
            "remuda.toml:2:11: kinds.k.command: must be an array of strings, like [\"a\", \
             \"b\"], not a string",
        ),
        ("[]", "remuda.toml:2:11: kinds.k.command: must not be empty"),
        ("[\"\"]", "remuda.toml:2:12: kinds.k.command[0]: must not be empty"),
        ("[\"w\", 1]", "remuda.toml:2:17: kinds.k.command[1]: must be a string, not a number"),
        ("[\"w\\u0000\"]", "remuda.toml:2:12: kinds.k.command[0]: must not hold a NUL character"),
    ] {
        let errors = refused(&format!("[kinds.k]\ncommand = {written}\n"));
        expect_mistakes(&errors, &[mistakes]);
    }
}

#[test]
fn types_belong_to_one_kind() {
    let text = "[kinds.a]\ncommand = [\"w\"]\ntypes = [\"chat\", \"chat\"]\n\
                [kinds.b]\ncommand = [\"w\"]\ntypes = [\"embed\", \"chat\"]\n";
    expect_mistakes(
        &refused(text),
        &[
            "remuda.toml:3:18: kinds.a.types[1]: \"chat\" is listed twice",
            "remuda.toml:6:19: kinds.b.types[1]: \"chat\" is already served by kind `a` \
             (remuda.toml:3:10); a type belongs to one kind",
        ],
    );
}

#[test]
fn addresses_are_ip_and_port_or_a_path() {
    let rule = "is not an address: write an IP address and port, like \"127.0.0.1:50051\" or \
         \"[::]:50051\", \
                or the path of a Unix socket, like \"/run/remuda.sock\"";
    for text in ["localhost:50051", "127.0.0.1", "50051", "", "unix:"] {
        expect_in(
            "server",
            &format!("listen = \"{text}\""),
            &[&format!("remuda.toml:2:10: server.listen: \"{text}\" {rule}")],
        );
    }
    expect_in(
        "server",
        "http = \"localhost\"",
        &["remuda.toml:2:8: server.http: \"localhost\" is not an address: write an IP address and port, \
           like \"127.0.0.1:9090\", or \"off\""],
    );
    expect_in(
        "server",
        "http = \"none\"",
        &["remuda.toml:2:8: server.http: \"none\" means nothing here: write \"off\""],
    );
}

#[test]
fn one_address_cannot_serve_both() {
    expect_in(
        "server",
        "listen = \"127.0.0.1:9090\"",
        &["remuda.toml:2:10: server.listen: is the address of server.http too; each needs its own"],
    );
    expect_in(
        "server",
        "listen = \"[::1]:1\"\nhttp = \"[::1]:1\"",
        &["remuda.toml:3:8: server.http: is the address of server.listen too; each needs its own"],
    );
}

#[test]
fn variables_for_workers_have_proper_names() {
    let unnamed = "is not a variable's name: it must not be empty or hold `=` or a NUL character";
    let reserved = "names that start with REMUDA_ are set by remuda itself";
    expect_in_kind(
        "env = { \"\" = \"a\", \"A=B\" = \"c\", REMUDA_SOCKET = \"x\", C = \"\\u0000\" }\n\
         pass_env = [\"\", \"REMUDA_KEY\", 3]",
        &[
            &format!("remuda.toml:3:9: kinds.k.env.\"\": \"\" {unnamed}"),
            &format!("remuda.toml:3:19: kinds.k.env.\"A=B\": \"A=B\" {unnamed}"),
            &format!("remuda.toml:3:32: kinds.k.env.REMUDA_SOCKET: {reserved}"),
            "remuda.toml:3:57: kinds.k.env.C: must not hold a NUL character",
            &format!("remuda.toml:4:13: kinds.k.pass_env[0]: \"\" {unnamed}"),
            &format!("remuda.toml:4:17: kinds.k.pass_env[1]: {reserved}"),
            "remuda.toml:4:31: kinds.k.pass_env[2]: must be a string, not a number",
        ],
    );
}

#[test]
fn users_and_transports_are_checked() {
    expect_in_kind(
        "user = \"1000\"\ntransport = \"tcp\"\ndir = \"\"",
        &[
            "remuda.toml:3:8: kinds.k.user: \"1000\" is not a Unix user name",
            "remuda.toml:4:13: kinds.k.transport: \"tcp\" is not one of \"socket\", \"stdio\"",
            "remuda.toml:5:7: kinds.k.dir: must not be empty",
        ],
    );
}

#[test]
fn overflow_is_one_of_three_words() {
    let words = "one of \"gap\", \"stall\", \"fail\"";
    for (written, problem) in [
        ("\"drop\"", format!("\"drop\" is not {words}")),
        ("\"Gap\"", format!("\"Gap\" is not {words}")),
        ("\"\"", format!("\"\" is not {words}")),
        ("true", format!("must be {words}, not a boolean")),
        ("[\"gap\"]", format!("must be {words}, not an array")),
    ] {
        expect_in(
            "results",
            &format!("overflow = {written}"),
            &[&format!("remuda.toml:2:12: results.overflow: {problem}")],
        );
    }
}
