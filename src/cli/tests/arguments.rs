//! Tests of the arguments.

use std::time::Duration;

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::{
    api::proto::{Query, QueryState, RecoveryStrategy, disconnect_policy::Policy, scale_kind_request::Target},
    cli::{
        args::{Cli, Command, ConfigCommand, DeadCommand},
        dead, submit,
    },
};

fn parse(line: &str) -> Command {
    Cli::try_parse_from(line.split(' ')).unwrap().command
}

fn refused(line: &str) -> String {
    let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_an_about_and_examples() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        if command.has_subcommands() {
            command.get_subcommands().for_each(check);
        } else {
            let help = command.get_after_help().unwrap_or_else(|| panic!("{}: no examples", command.get_name()));
            assert!(help.to_string().contains("Examples:\n"), "{}", command.get_name());
        }
    }
    check(&Cli::command());
}

#[test]
fn help_documents_every_exit_code() {
    let help = Cli::command().render_long_help().to_string();
    for code in 0..=5 {
        assert!(help.contains(&format!("\n  {code}  ")), "{code}");
    }
}

#[test]
fn run_takes_all_fields_of_a_query() {
    let line =
        "remuda run --kind k --type t --priority 7 --key y --owner o --timeout 1m30s --queue-timeout 5s --id i @f";
    let Command::Run(args) = parse(line) else { panic!("not run") };
    assert_eq!(args.query.payload, "@f");
    assert_eq!(args.query.timeout, Some(Duration::from_secs(90)));
    assert_eq!(args.query.queue_timeout, Some(Duration::from_secs(5)));
    assert_eq!((args.query.priority, args.query.query_type.as_deref()), (7, Some("t")));
    assert_eq!(args.query.id.unwrap().as_str(), "i");
}

fn query(line: &str) -> Query {
    match parse(line) {
        Command::Run(args) => submit::query(args.query).unwrap(),
        Command::Submit(args) => submit::query(args.query).unwrap(),
        other => panic!("no query: {other:?}"),
    }
}

#[test]
fn query_can_ask_for_capabilities_and_for_no_wait() {
    let plain = query("remuda run {}");
    assert!(plain.capabilities.is_empty() && !plain.reject_if_busy);
    let choosy = query("remuda submit --capability gpu --capability vision --reject-if-busy {}");
    assert_eq!(choosy.capabilities, ["gpu", "vision"]);
    assert!(choosy.reject_if_busy);
}

#[test]
fn recovery_is_the_configurations_unless_asked_for() {
    let recovery = |line| query(line).recovery.map(|policy| (policy.strategy(), policy.attempts));
    assert_eq!(recovery("remuda run {}"), None);
    // The number needs its equals sign, so that what follows stays the payload.
    assert_eq!(recovery("remuda run --retry 7"), Some((RecoveryStrategy::Retry, 1)));
    assert_eq!(query("remuda run --retry 7").payload, "7");
    assert_eq!(recovery("remuda submit --retry=3 {}"), Some((RecoveryStrategy::Retry, 3)));
    assert_eq!(recovery("remuda submit --no-retry {}"), Some((RecoveryStrategy::Reject, 0)));
    assert!(refused("remuda run --retry --no-retry {}").contains("cannot be used with '--no-retry'"));
    assert!(refused("remuda run --retry=0 {}").contains("1..=100"));
}

#[test]
fn disconnect_policy_is_a_word_or_a_duration() {
    let policy = |line| query(line).on_disconnect.map(|policy| policy.policy.unwrap());
    assert_eq!(policy("remuda run {}"), None);
    assert_eq!(policy("remuda run --on-disconnect keep {}"), Some(Policy::Keep(true)));
    assert_eq!(policy("remuda submit --on-disconnect cancel {}"), Some(Policy::Cancel(true)));
    let minute = prost_types::Duration { seconds: 60, nanos: 0 };
    assert_eq!(policy("remuda submit --on-disconnect 1m {}"), Some(Policy::Detach(minute)));
    assert!(refused("remuda run --on-disconnect later {}").contains("write keep, cancel, or a duration like 30s"));
    assert!(refused("remuda run --on-disconnect 0s {}").contains("write cancel for at once"));
}

#[test]
fn dead_letters_are_named_or_all_are_meant() {
    let selected = |line| match parse(line) {
        Command::Dead(DeadCommand::Requeue(args)) => dead::calls(args.letters),
        Command::Dead(DeadCommand::Purge(args)) => dead::calls(args.letters),
        other => panic!("selects nothing: {other:?}"),
    };
    let all = selected("remuda dead purge --all --kind k");
    assert_eq!(all, [dead::DeadLetterCall { ids: Vec::new(), all: true, kind: "k".to_owned() }]);
    let ids: Vec<_> = selected("remuda dead requeue a b").into_iter().map(|one| (one.ids, one.all)).collect();
    assert_eq!(ids, [(vec!["a".to_owned()], false), (vec!["b".to_owned()], false)]);
    for verb in ["requeue", "purge"] {
        assert!(refused(&format!("remuda dead {verb}")).contains("<ID>..."));
        assert!(refused(&format!("remuda dead {verb} a --all")).contains("cannot be used with"));
        assert!(refused(&format!("remuda dead {verb} a --kind k")).contains("cannot be used with"));
        assert!(refused(&format!("remuda dead {verb} --kind k")).contains("--all"));
    }
}

#[test]
fn scaling_takes_a_number_or_a_step_up_or_down() {
    let scale = |line| match parse(line) {
        Command::Scale(args) => (args.kind, args.target, args.json),
        other => panic!("not scale: {other:?}"),
    };
    assert_eq!(scale("remuda scale embed 6"), ("embed".to_owned(), Target::Workers(6), false));
    assert_eq!(scale("remuda scale embed 0").1, Target::Workers(0));
    assert_eq!(scale("remuda scale embed +2").1, Target::By(2));
    assert_eq!(scale("remuda scale embed -2 --json"), ("embed".to_owned(), Target::By(-2), true));
    assert!(refused("remuda scale embed +0").contains("that changes nothing"));
    for wrong in ["remuda scale embed two", "remuda scale embed 1.5", "remuda scale embed +99999999999"] {
        assert!(refused(wrong).contains("write how many, as 6, or how many more or fewer than now, as +2 or -2"));
    }
    assert!(refused("remuda scale embed").contains("<N | +N | -N>"));
}

#[test]
fn drain_and_resume_mean_the_pool_or_one_worker() {
    let worker = |line: String| match parse(&line) {
        Command::Drain(args) => args.worker,
        Command::Resume(args) => args.worker,
        Command::Restart(args) | Command::Evict(args) => Some(args.worker),
        other => panic!("{other:?}"),
    };
    for verb in ["drain", "resume"] {
        assert_eq!(worker(format!("remuda {verb}")), None);
        assert_eq!(worker(format!("remuda {verb} 7")), Some(7));
    }
    for verb in ["restart", "evict"] {
        assert_eq!(worker(format!("remuda {verb} 7")), Some(7));
        assert!(refused(&format!("remuda {verb}")).contains("<WORKER>"));
        assert!(refused(&format!("remuda {verb} x")).contains("invalid digit"));
    }
    assert!(refused("remuda drain 7 --reason why").contains("cannot be used with"));
}

#[test]
fn events_are_chosen_by_kinds_and_names() {
    let Command::Events(args) = parse("remuda events --kind a --kind b --name worker: --json") else { panic!() };
    assert_eq!((args.kind, args.name, args.json), (vec!["a".into(), "b".into()], vec!["worker:".into()], true));
}

#[test]
fn payload_may_be_a_negative_number_or_a_dash() {
    for payload in ["-5", "-"] {
        let Command::Run(args) = parse(&format!("remuda run {payload}")) else { panic!("not run") };
        assert_eq!(args.query.payload, payload);
    }
}

#[test]
fn endpoint_may_stand_before_or_after_the_command() {
    for line in ["remuda --endpoint h:1 health", "remuda health --endpoint h:1"] {
        assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap().endpoint, "h:1");
    }
}

#[test]
fn wrong_arguments_are_refused_with_advice() {
    assert!(refused("remuda run --timeout 5 {}").contains("write one like 5s, 200ms"));
    assert!(refused("remuda run --priority 1001 {}").contains("0..=1000"));
    assert!(refused("remuda stream ü").contains("only visible ASCII characters are allowed"));
    assert!(refused("remuda queries --state done").contains("retry_pending"));
    assert!(refused("remuda workers x").contains("invalid digit"));
    assert!(refused("remuda config check").contains("<FILE>"));
}

#[test]
fn empty_command_line_shows_the_help() {
    let error = Cli::try_parse_from(["remuda"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    assert!(error.to_string().contains("Quick start:"));
}

#[test]
fn states_may_be_repeated_or_listed() {
    for line in ["remuda queries --state pending --state error", "remuda queries --state pending,error"] {
        let Command::Queries(args) = parse(line) else { panic!("not queries") };
        assert_eq!(args.state, [QueryState::Pending, QueryState::Error]);
    }
}

#[test]
fn config_show_needs_no_file() {
    assert!(matches!(parse("remuda config show"), Command::Config(ConfigCommand::Show(args)) if args.config.is_none()));
}

#[test]
fn bench_has_defaults_and_reads_human_units() {
    let load = |line| match parse(line) {
        Command::Bench(args) => args.load,
        other => panic!("not bench: {other:?}"),
    };
    let usual = load("remuda bench");
    assert_eq!((usual.concurrency, usual.connections, usual.messages), (64, 4, 1));
    assert_eq!((usual.size, usual.payload_size, usual.timeout), (200, 200, Duration::from_secs(30)));
    assert_eq!((usual.duration, usual.count, usual.rounds, usual.chaos), (None, None, None, None));
    let own = load("remuda bench -c 1 -m 1000 --size 64KiB --payload-size 1MB -d 1m30s --spawn 8 --compare --chaos");
    assert_eq!((own.concurrency, own.messages, own.size, own.payload_size), (1, 1_000, 65_536, 1_000_000));
    assert_eq!((own.duration, own.spawn, own.compare), (Some(Duration::from_secs(90)), Some(8), true));
    assert_eq!(own.chaos, Some(Duration::from_secs(1)));
    assert_eq!(load("remuda bench --chaos=250ms").chaos, Some(Duration::from_millis(250)));
    assert!(refused("remuda bench --concurrency 0").contains("1..=100000"));
    assert!(refused("remuda bench --size 65MiB").contains("give 11 bytes to 64.0 MiB"));
    assert!(refused("remuda bench --count 5 baseline").contains("cannot be used with"));
}
