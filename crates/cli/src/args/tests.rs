use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser as _};
use towline::{PARAMETERS, Role};

use super::{Args, Command, SESSION_OPTIONS, flag};

fn flags_of(path: &[&str]) -> BTreeSet<String> {
    let root = Args::command();
    let mut command = &root;
    for name in path {
        command = command.find_subcommand(name).unwrap();
    }
    command
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn every_option_and_parameter_is_a_flag_of_the_end_that_has_it() {
    let ends: [(&[&str], Role); 6] = [
        (&["pub"], Role::Source),
        (&["load", "send"], Role::Source),
        (&["send"], Role::Source),
        (&["sub"], Role::Receiver),
        (&["load", "recv"], Role::Receiver),
        (&["recv"], Role::Receiver),
    ];
    for (path, end) in ends {
        let flags = flags_of(path);
        for option in SESSION_OPTIONS {
            let is_wanted = option.role == Role::Both || option.role == end;
            assert_eq!(
                flags.contains(&flag(option.name)),
                is_wanted,
                "{path:?} {}",
                option.name
            );
        }
        for parameter in PARAMETERS {
            assert!(
                flags.contains(&flag(parameter.name)),
                "{path:?} {}",
                parameter.name
            );
        }
    }
}

#[test]
fn switches_take_a_value_only_after_an_equals_sign() {
    let parse = |args: &[&str]| {
        let args = ["towline", "pub", "-g", "239.1.1.1"].iter().chain(args);
        let parsed = Args::try_parse_from(args).unwrap();
        let Command::Pub(args) = parsed.command else {
            panic!("another command")
        };
        (args.session.given().values.get("loop").cloned(), args.block)
    };
    assert_eq!(parse(&[]), (None, true));
    assert_eq!(parse(&["--loop", "--block"]), (Some("true".into()), true));
    assert_eq!(
        parse(&["--loop=false", "--block=no"]),
        (Some("false".into()), false)
    );
}

#[test]
fn a_wrong_value_is_refused_where_it_stands() {
    let wrong = [
        ["--hops", "0"],
        ["--mtu", "12"],
        ["--rate", "fast"],
        ["--dscp", "64"],
        ["--group", "239.1.1.1:x"],
        ["--wait", "forever"],
    ];
    for pair in wrong {
        let error = Args::try_parse_from(["towline", "pub"].iter().chain(&pair)).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(pair[0]), "{error}");
    }
}
