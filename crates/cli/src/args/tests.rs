use std::collections::BTreeSet;

use clap::{Args as _, CommandFactory as _, Parser as _};
use towline::{LIMITS, PARAMETERS, Role, Setting};

use super::{Args, Command, LoadCommand, Receiving, Sending, SessionArgs, flag, session_options};

/// Returns the long flags of a command, or only those under one heading of its help.
fn flags_of(path: &[&str], heading: Option<&str>) -> BTreeSet<String> {
    let root = Args::command();
    let mut command = &root;
    for name in path {
        command = command.find_subcommand(name).unwrap();
    }
    command
        .get_arguments()
        .filter(|arg| heading.is_none() || arg.get_help_heading() == heading)
        .filter_map(|arg| arg.get_long())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn the_flags_of_a_session_are_the_options_and_parameters_of_its_end_and_no_other() {
    let ends: [(&[&str], Role); 6] = [
        (&["pub"], Role::Source),
        (&["load", "send"], Role::Source),
        (&["send"], Role::Source),
        (&["sub"], Role::Receiver),
        (&["load", "recv"], Role::Receiver),
        (&["recv"], Role::Receiver),
    ];
    for (path, end) in ends {
        let session = match end {
            Role::Source => SessionArgs::<Sending>::augment_args(clap::Command::new("session")),
            _ => SessionArgs::<Receiving>::augment_args(clap::Command::new("session")),
        };
        let declared: BTreeSet<String> = session
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .map(str::to_owned)
            .collect();
        let options =
            session_options().filter(|option| option.role == Role::Both || option.role == end);
        let parameters: BTreeSet<String> = PARAMETERS.iter().map(|it| flag(it.name)).collect();
        let mut wanted: BTreeSet<String> = options.map(|option| flag(option.name)).collect();
        wanted.extend(parameters.iter().cloned());
        wanted.insert("config".to_owned());
        assert_eq!(declared, wanted, "{path:?}");
        let missing: Vec<_> = wanted.difference(&flags_of(path, None)).cloned().collect();
        assert!(missing.is_empty(), "{path:?} lacks {missing:?}");
        assert_eq!(
            flags_of(path, Some("Protocol parameters")),
            parameters,
            "{path:?}"
        );
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
fn one_name_says_how_long_and_the_other_is_its_alias() {
    let second = Some(std::time::Duration::from_secs(1));
    for flag in [["--for", "1s"], ["--for", "1"], ["--seconds", "1"]] {
        let parse = |words: &[&str]| {
            let words = ["towline"].iter().chain(words).chain(&flag);
            Args::try_parse_from(words).unwrap().command
        };
        let Command::Capture(capture) = parse(&["capture", "ring:lo"]) else {
            panic!("another command")
        };
        assert_eq!(capture.time, second, "{flag:?}");
        let Command::Load(LoadCommand::Send(send)) = parse(&["load", "send"]) else {
            panic!("another command")
        };
        assert_eq!(send.seconds, second, "{flag:?}");
        let Command::Load(LoadCommand::Recv(recv)) = parse(&["load", "recv"]) else {
            panic!("another command")
        };
        assert_eq!(recv.seconds, second, "{flag:?}");
    }
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

#[test]
fn limits_that_a_flag_sets_name_one_that_exists_with_their_default() {
    let root = Args::command();
    let mut count = 0;
    for limit in LIMITS.into_iter().flatten() {
        let Setting::ByFlag(words) = limit.setting else {
            continue;
        };
        let (command, long) = words.split_once(" --").unwrap();
        let command = root.find_subcommand(command).unwrap();
        let mut all = command.get_arguments();
        let arg = all.find(|arg| arg.get_long() == Some(long)).unwrap();
        for default in arg.get_default_values() {
            assert_eq!(default.to_str(), Some(&*(limit.default)()), "{words}");
        }
        count += 1;
    }
    assert_eq!(count, 7);
}
