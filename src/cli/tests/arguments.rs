//! How the arguments are read.

use std::time::Duration;

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::cli::args::{Cli, Command, ConfigCommand, StateFilter};

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
fn run_takes_all_that_a_query_has() {
    let line =
        "remuda run --kind k --type t --priority 7 --key y --owner o --timeout 1m30s --queue-timeout 5s --id i @f";
    let Command::Run(args) = parse(line) else { panic!("not run") };
    assert_eq!(args.query.payload, "@f");
    assert_eq!(args.query.timeout, Some(Duration::from_secs(90)));
    assert_eq!(args.query.queue_timeout, Some(Duration::from_secs(5)));
    assert_eq!((args.query.priority, args.query.query_type.as_deref()), (7, Some("t")));
    assert_eq!(args.query.id.unwrap().as_str(), "i");
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
fn wrong_arguments_are_told_what_is_right() {
    assert!(refused("remuda run --timeout 5 {}").contains("write one like 5s, 200ms"));
    assert!(refused("remuda run --priority 1001 {}").contains("0..=1000"));
    assert!(refused("remuda stream ü").contains("only visible ASCII characters are allowed"));
    assert!(refused("remuda queries --state done").contains("retry_pending"));
    assert!(refused("remuda workers x").contains("invalid digit"));
    assert!(refused("remuda config check").contains("<FILE>"));
}

#[test]
fn nothing_at_all_shows_the_help() {
    let error = Cli::try_parse_from(["remuda"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    assert!(error.to_string().contains("Quick start:"));
}

#[test]
fn states_may_be_repeated_or_listed() {
    for line in ["remuda queries --state pending --state error", "remuda queries --state pending,error"] {
        let Command::Queries(args) = parse(line) else { panic!("not queries") };
        assert_eq!(args.state, [StateFilter::Pending, StateFilter::Error]);
    }
}

#[test]
fn config_show_needs_no_file() {
    assert!(
        matches!(parse("remuda config show"), Command::Config(ConfigCommand::Show(place)) if place.config.is_none())
    );
}
