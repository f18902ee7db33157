//! The flags of commands with a session: one for each option of the library's table, one for each
//! parameter of the protocol, and `--group`, `--metrics` and `--config`. A configuration file
//! (`--config`) takes the same names as keys.

use std::{collections::BTreeMap, marker::PhantomData, net::SocketAddr, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Command, FromArgMatches, builder::ValueParser, error::Error,
    parser::ValueSource, value_parser,
};
use towline::{
    Config, Faults, Group, PARAMETERS, Parameter, Profile, Role, SESSION_OPTIONS, SessionOption,
};

/// The flags that were given, as text, for the end `E` of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionArgs<E> {
    given: Given,
    end: PhantomData<E>,
}

/// Given flags by name, with those from a configuration file and the settings that `--profile`
/// brings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Texts by the name of their option or parameter.
    pub(crate) values: BTreeMap<&'static str, String>,
}

impl<E> SessionArgs<E> {
    pub(crate) const fn given(&self) -> &Given {
        &self.given
    }
}

/// The end of a session that a command acts as: the source or a receiver.
pub(crate) trait End {
    /// The role whose flags the end has.
    const ROLE: Role;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending;

impl End for Sending {
    const ROLE: Role = Role::Source;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving;

impl End for Receiving {
    const ROLE: Role = Role::Receiver;
}

impl<E: End> clap::Args for SessionArgs<E> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Read settings from a TOML file; its keys are the names of long flags, and a flag \
                 on the command line overrides the file",
            )
            .help_heading(NETWORK);
        let options = session_options().filter(|option| is_for(option.role, E::ROLE));
        command
            .args(options.map(option_arg))
            .arg(config)
            .args(PARAMETERS.iter().map(|parameter| {
                // A command takes the parameters of both ends, but its help shows only those of its
                // own end.
                parameter_arg(parameter).hide(!is_for(parameter.role, E::ROLE))
            }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<E: End> FromArgMatches for SessionArgs<E> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // This end takes the parameters of the other end, too, because some rules concern
        // parameters of both ends.
        let options = session_options().filter(|option| is_for(option.role, E::ROLE));
        let names = options.map(|option| option.name);
        let names = names.chain(PARAMETERS.iter().map(|parameter| parameter.name));
        let mut values = BTreeMap::new();
        for name in names {
            let is_given = matches.value_source(name) == Some(ValueSource::CommandLine);
            if let (true, Some(text)) = (is_given, matches.get_one::<String>(name)) {
                values.insert(name, text.clone());
            }
        }
        let profile = values.get("profile").and_then(|name| Profile::named(name));
        if let Some(profile) = profile {
            let counting = profile.beside(|name| values.contains_key(name));
            let counting: Vec<_> = counting
                .map(|(name, text)| (name, text.to_owned()))
                .collect();
            values.extend(counting);
        }
        Ok(Self {
            given: Given { values },
            end: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Makes the flag of one option.
fn option_arg(option: &'static SessionOption) -> Arg {
    let name = option.name;
    let parser = move |text: &str| (option.check)(text).map(|()| text.to_owned());
    let default = option.default.filter(|_| option.value.is_some());
    let default = default
        .map(|text| format!(" [default: {text}]"))
        .unwrap_or_default();
    let arg = Arg::new(name)
        .long(flag(name))
        .value_parser(ValueParser::from(parser))
        .help(format!("{}{default}", option.help))
        .hide_short_help(!SHORT_HELP.contains(&name))
        .help_heading(NETWORK);
    let arg = match name {
        "faults" => arg.long_help(format!("{}\n\n{}", option.help, every_fault())),
        _ => arg,
    };
    let arg = match SHORT.iter().find(|(long, _)| *long == name) {
        Some(&(_, letter)) => arg.short(letter),
        None => arg,
    };
    match option.value {
        Some(value) => arg.value_name(value),
        None => switch(arg),
    }
}

/// Writes every fault that the user can ask for, a line each.
fn every_fault() -> String {
    let lines = Faults::ALL
        .iter()
        .map(|(name, help)| format!("- {name}: {help}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes the flag of one parameter. The table that declares the parameter checks its text.
fn parameter_arg(parameter: &'static Parameter) -> Arg {
    let name = parameter.name;
    let parser = move |text: &str| {
        Config::builder()
            .set(name, text)
            .map(|()| text.to_owned())
            .map_err(|error| error.to_string())
    };
    let default = (parameter.default)();
    let default = if default.is_empty() { "none" } else { &default };
    let help = format!(
        "{} [default: {default}; {}]",
        parameter.help,
        (parameter.range)()
    );
    let arg = Arg::new(name)
        .long(flag(name))
        .value_parser(ValueParser::from(parser))
        .hide_short_help(name != "rate")
        .help(help)
        .help_heading("Protocol parameters");
    if parameter.unit == "switch" {
        switch(arg)
    } else {
        arg.value_name("VALUE")
    }
}

/// Makes `--name` mean `--name=true`.
fn switch(arg: Arg) -> Arg {
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_name("true|false")
}

/// Returns the long flag of an option or parameter.
pub(crate) fn flag(name: &str) -> String {
    name.replace('_', "-")
}

/// Spells the settings in a text of the library as flags. The library writes their names between
/// backticks.
pub(crate) fn with_flags(text: &str) -> String {
    let options = SESSION_OPTIONS.iter().map(|option| option.name);
    let names = options.chain(PARAMETERS.iter().map(|parameter| parameter.name));
    names.fold(text.to_owned(), |text, name| {
        text.replace(&format!("`{name}`"), &format!("--{}", flag(name)))
    })
}

const fn is_for(role: Role, end: Role) -> bool {
    matches!(
        (role, end),
        (Role::Both, _) | (Role::Source, Role::Source) | (Role::Receiver, Role::Receiver)
    )
}

/// Reads a port such as `9464`, which listens for this machine only, or an address of this machine
/// and a port.
pub(crate) fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let port = text.parse().map(local);
    port.or_else(|_| text.parse()).map_err(|_| {
        format!("{text:?} is not a port such as 9464, or an address and port such as [::1]:9464")
    })
}

/// Returns every option, in the order of the help: `group`, those of the library, and `metrics`,
/// which only commands have.
pub(crate) fn session_options() -> impl Iterator<Item = &'static SessionOption> + Clone {
    const GROUP: &SessionOption = &SessionOption {
        name: "group",
        value: Some("GROUP"),
        default: None,
        role: Role::Both,
        help: "Multicast group, or the address of the one receiver: ADDRESS[@IFACE][:PORT], \
               [ADDRESS%IFACE]:PORT, SOURCE@GROUP; port 7500 unless given",
        check: |text| match text.parse::<Group>() {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
    };
    const METRICS: &SessionOption = &SessionOption {
        name: "metrics",
        value: Some("[ADDRESS:]PORT"),
        default: None,
        role: Role::Both,
        help: "Serve the counters to Prometheus at http://ADDRESS:PORT/metrics; with a port alone, \
               only on this machine (127.0.0.1)",
        check: |text| metrics_address(text).map(drop),
    };
    [GROUP].into_iter().chain(SESSION_OPTIONS).chain([METRICS])
}

/// Options that also have a flag of one letter.
const SHORT: [(&str, char); 2] = [("group", 'g'), ("iface", 'i')];
/// The options that the short help shows; `--help` shows all.
const SHORT_HELP: [&str; 4] = ["group", "iface", "name", "key_file"];
const CONFIG: &str = "config";
const NETWORK: &str = "Network";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_for_this_machine_unless_an_address_is_named() {
        let shown = |text| metrics_address(text).map(|address| address.to_string());
        assert_eq!(shown("9464").as_deref(), Ok("127.0.0.1:9464"));
        assert_eq!(shown("0.0.0.0:9464").as_deref(), Ok("0.0.0.0:9464"));
        assert_eq!(shown("[::1]:0").as_deref(), Ok("[::1]:0"));
        for wrong in [":9464", "*:9464", "localhost:9464", "10.0.0.1", "65536", ""] {
            assert!(metrics_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_port_that_help_shows_is_that_of_the_library() {
        let group = session_options().find(|option| option.name == "group");
        let port = format!("port {} unless given", Group::PORT);
        assert!(group.is_some_and(|group| group.help.ends_with(&port)));
    }
}
