//! `--config FILE`: the settings of a command may be in a file, under the names of its long flags.
//!
//! ```text
//!   words --parse--> which command, which file --read--> words that the file adds --parse--> Args
//! ```
//!
//! The command line overrides the file: a setting of the file does not count if the command
//! line gives it or excludes it. The file is read once, because it may be a pipe.

use std::{
    ffi::OsString,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, Error, Parser as _, error::ErrorKind,
    parser::ValueSource,
};
use toml::{Table, Value};

use super::{Args, session_options};
use crate::failure::unreadable;

/// Reads the command line, and the settings of the configuration file that `--config` names.
pub(crate) fn parse_from(mut words: Vec<OsString>) -> Result<Args, Error> {
    let mut root = Args::command();
    root.build();
    let matches = root.clone().try_get_matches_from(&words)?;
    let (command, given) = innermost(&root, &matches);
    let named = given.try_get_one::<PathBuf>("config");
    let Ok(Some(path)) = named else {
        return Args::try_parse_from(words);
    };
    let refuse = |text: String| Error::raw(ErrorKind::ValueValidation, text + "\n");
    let added = table(path)
        .and_then(|table| added(command, given, &table, path))
        .map_err(refuse)?;
    // Words after `--` are no flags, so the file's words go before it.
    let at = words.iter().position(|word| word == "--");
    let at = at.unwrap_or(words.len());
    words.splice(at..at, added.into_iter().map(OsString::from));
    Args::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        Error::raw(error.kind(), format!("{}: {text}", path.display()))
    })
}

/// Reads a configuration file as a table.
fn table(path: &Path) -> Result<Table, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        let limit = CONFIG_BYTES_MAX as u64 + 1;
        file.take(limit).read_to_end(&mut bytes)
    });
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(format!(
            "{}: it is longer than {} KiB, too long for a configuration; name the right file",
            path.display(),
            CONFIG_BYTES_MAX >> 10
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        let path = path.display();
        format!("{path}: it is not text in UTF-8; name the right file")
    })?;
    let table = text.parse();
    table.map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a value as it would be on the command line; `None` for a date, a table, or a list that
/// holds one of them.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is_set) => Some(is_set.to_string()),
        Value::Array(list) => {
            let texts: Option<Vec<String>> = list.iter().map(text_of).collect();
            texts.map(|texts| texts.join(","))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// Finds the command that the words name, and what was given to it.
fn innermost<'a>(
    mut command: &'a Command,
    mut matches: &'a ArgMatches,
) -> (&'a Command, &'a ArgMatches) {
    while let Some((name, below)) = matches.subcommand()
        && let Some(next) = command.find_subcommand(name)
    {
        (command, matches) = (next, below);
    }
    (command, matches)
}

/// Makes the words that a file adds to a command.
fn added(
    command: &Command,
    given: &ArgMatches,
    table: &Table,
    path: &Path,
) -> Result<Vec<String>, String> {
    let is_given =
        |arg: &&Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let on_line: Vec<&Arg> = command.get_arguments().filter(is_given).collect();
    // Of two flags that exclude each other, either may be the one that declares the conflict.
    let excludes = |one: &Arg, other: &Arg| {
        let named = command.get_arg_conflicts_with(one);
        named.iter().any(|arg| arg.get_id() == other.get_id())
    };
    let mut words = Vec::new();
    for (key, value) in table {
        let name = key.replace('-', "_");
        let is_key = |arg: &&Arg| {
            let long = arg.get_long().unwrap_or(arg.get_id().as_str());
            long.replace('-', "_") == name && !OWN.contains(&long)
        };
        let Some(arg) = command.get_arguments().find(is_key) else {
            // One file may serve both ends, so this end skips settings that only the other end has.
            let is_other = session_options().any(|option| option.name == name);
            if is_other && command.get_arguments().any(|arg| arg.get_id() == "group") {
                continue;
            }
            return Err(format!(
                "{}: unknown setting {key:?}; keys are the long flags that --help lists",
                path.display()
            ));
        };
        let is_opposed = on_line
            .iter()
            .any(|other| excludes(arg, other) || excludes(other, arg));
        if is_given(&arg) || is_opposed {
            continue;
        }
        let texts = words_of(arg, value).ok_or_else(|| {
            let path = path.display();
            format!("{path}: {key} must be {}", kind_of(arg))
        })?;
        words.extend(texts);
    }
    Ok(words)
}

/// Says what kind of value a flag takes in the file.
fn kind_of(arg: &Arg) -> &'static str {
    match arg.get_action() {
        ArgAction::SetTrue => "true or false",
        ArgAction::Count => "a number, such as 1",
        _ => "a string, a number, true or false, or a list of these",
    }
}

/// Makes the words of the command line for one key of the file; `None` for a value of the wrong
/// kind.
fn words_of(arg: &Arg, value: &Value) -> Option<Vec<String>> {
    let Some(long) = arg.get_long() else {
        return Some(vec![text_of(value)?]);
    };
    match arg.get_action() {
        ArgAction::SetTrue => Some(match value.as_bool()? {
            true => vec![format!("--{long}")],
            false => Vec::new(),
        }),
        ArgAction::Count => {
            let times = usize::try_from(value.as_integer()?).ok()?;
            Some(vec![format!("--{long}"); times])
        }
        ArgAction::Append => {
            let all = match value {
                Value::Array(all) => all.iter().map(text_of).collect::<Option<Vec<_>>>()?,
                one => vec![text_of(one)?],
            };
            let parts = all.iter().flat_map(|text| match arg.get_value_delimiter() {
                Some(delimiter) => text.split(delimiter).map(str::trim).collect(),
                None => vec![text.as_str()],
            });
            Some(parts.map(|text| format!("--{long}={text}")).collect())
        }
        _ => Some(vec![format!("--{long}={}", text_of(value)?)]),
    }
}

/// The most bytes of a configuration file, far more than a real one has. Without a limit, a device
/// that never ends would fill the memory.
const CONFIG_BYTES_MAX: usize = 1 << 20;
/// Flags that no file can set: the one that names the file, and those that only print.
const OWN: [&str; 3] = ["config", "help", "version"];

#[cfg(test)]
mod tests {
    use std::fs;

    use towline::PARAMETERS;

    use super::*;
    use crate::{
        args::{Command as Job, ExistingArg, PolicyArg, SlowArg},
        plan::SessionPlan,
    };

    fn parsed(line: &str, file: &str) -> Result<Job, String> {
        let number = std::thread::current().id();
        let name = format!("towline-args-{}-{number:?}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, file).unwrap();
        let words = line.split(' ').map(OsString::from);
        let words = words.chain(["--config".into(), path.clone().into()]);
        let args = parse_from(words.collect());
        fs::remove_file(path).unwrap();
        args.map(|args| args.command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_has_an_end() {
        let words = ["towline", "pub", "--config", "/dev/zero"].map(OsString::from);
        let Err(error) = parse_from(words.into()) else {
            panic!("it has been read");
        };
        let text = error.to_string();
        assert!(
            text.contains("/dev/zero: it is longer than 1024 KiB"),
            "{text}"
        );
    }

    #[test]
    fn every_long_flag_of_its_command_is_a_key() {
        let file = "receivers = 3\npolicy = 'lose'\nframing = 'nul'\nblock = false\nhops = 4";
        let Ok(Job::Pub(args)) = parsed("towline pub", file) else {
            panic!("not pub");
        };
        assert_eq!(
            (args.receivers, args.policy, args.block),
            (3, PolicyArg::Lose, false)
        );
        let file = "expect = ['a', 'b']\nexclude = ['*.o', 'tmp']\nslow = 'demote'\nhash = true";
        let Ok(Job::Send(args)) = parsed("towline send x", file) else {
            panic!("not send");
        };
        assert_eq!(
            (args.expect.len(), args.slow, args.hash),
            (2, SlowArg::Demote, true)
        );
        assert_eq!(
            args.rules.rules,
            [(false, "*.o".into()), (false, "tmp".into())]
        );
        let file =
            "directory = 'in'\nserve = true\nfrom = '10.0.0.0/8, 10.1.1.1'\nexisting = 'replace'";
        let Ok(Job::Recv(args)) = parsed("towline recv", file) else {
            panic!("not recv");
        };
        assert_eq!((args.directory, args.serve), (Some("in".into()), true));
        assert_eq!(
            (args.from.len(), args.existing),
            (2, Some(ExistingArg::Replace))
        );
    }

    #[test]
    fn every_setting_of_a_session_is_a_key_at_both_ends() {
        let mut lines = Vec::new();
        for option in session_options() {
            let text = match option.name {
                "group" => "239.1.1.1",
                "pgm_port" | "control_port" | "metrics" => "9464",
                "profile" => "openpgm",
                _ => option.default.unwrap_or("lo"),
            };
            if option.name != "faults" {
                lines.push(format!("{} = {text:?}", option.name));
            }
        }
        let defaults = PARAMETERS.iter().map(|it| (it.name, (it.default)()));
        let set = defaults.filter(|(_, text)| !text.is_empty());
        lines.extend(set.map(|(name, text)| format!("{name} = {text:?}")));
        for line in ["pub", "sub", "load send", "load recv", "send x", "recv x"] {
            let parsed = parsed(&format!("towline {line}"), &lines.join("\n"));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
        let text = parsed("towline rtt reflect", "hops = 1").unwrap_err();
        assert!(text.contains("--config"), "{text}");
    }

    #[test]
    fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
        let file = "group = '239.1.1.1:80'\nhops = 7\nmtu = 9000\nrate = '1MB/s'";
        let Ok(Job::Sub(args)) = parsed("towline sub --mtu 1400", file) else {
            panic!("not sub");
        };
        let plan = SessionPlan::new(args.session.given()).unwrap();
        assert_eq!(
            (plan.hops, plan.place.group().unwrap().port(), plan.dscp),
            (7, 80, 0)
        );
        let (mtu, rate) = (plan.config.mtu(), plan.config.rate().pace());
        assert_eq!((mtu, rate.bytes_per_s()), (1400, Some(1_000_000)));
        let text = parsed("towline sub", "group = '239.1.1.1'\nhops = 'many'").unwrap_err();
        assert!(
            text.contains(".toml: invalid value 'many' for '--hops"),
            "{text}"
        );
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_so_does_what_it_excludes() {
        let Ok(Job::Pub(args)) = parsed("towline pub --receivers 1", "receivers = 3") else {
            panic!("not pub");
        };
        assert_eq!(args.receivers, 1);
        let Ok(Job::Recv(args)) = parsed(
            "towline recv in --overwrite",
            "existing = 'refuse'\ndirectory = 'other'",
        ) else {
            panic!("not recv");
        };
        assert_eq!((args.existing, args.directory), (None, Some("in".into())));
    }

    #[test]
    fn a_key_that_is_no_flag_or_has_a_wrong_value_is_named_with_its_file() {
        for (file, wanted) in [
            ("speed = 1", ".toml: unknown setting \"speed\""),
            ("config = 'x'", ".toml: unknown setting \"config\""),
            (
                "receivers = 'many'",
                ".toml: invalid value 'many' for '--receivers",
            ),
            ("hash = 1", ".toml: unknown setting \"hash\""),
            ("json = 3", ".toml: json must be true or false"),
            ("receivers = ", ".toml: TOML parse error"),
        ] {
            let text = parsed("towline pub", file).unwrap_err();
            assert!(text.contains(wanted), "{file}: {text}");
        }
    }
}
