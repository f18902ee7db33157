//! The flags of commands with a session: the options of a table here, and one flag for each
//! parameter of the protocol. A configuration file (`--config`) takes the same names as keys.

use std::{
    collections::BTreeMap, fmt, marker::PhantomData, net::SocketAddr, path::PathBuf, str::FromStr,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, FromArgMatches, builder::ValueParser, error::Error,
    parser::ValueSource, value_parser,
};
use towline::{
    Config, Faults, Group, PARAMETERS, Parameter, Role, Selector, WaitStrategy, text::is_plain,
};

/// An option of a session that is not a parameter of the protocol.
pub(crate) struct SessionOption {
    /// Name in `snake_case`. The flag has `-` for `_`; a configuration file may have either.
    pub(crate) name: &'static str,
    short: Option<char>,
    /// Name of the value in the help; `None` for a switch.
    value: Option<&'static str>,
    /// The text that counts when the option is not given.
    pub(crate) default: Option<&'static str>,
    /// The end that has the option.
    pub(crate) role: Role,
    help: &'static str,
    check: fn(&str) -> Result<(), String>,
}

/// The flags that were given, unparsed, for the end `E`.
#[derive(Clone, Debug)]
pub(crate) struct SessionArgs<E> {
    given: Given,
    end: PhantomData<E>,
}

/// Given flags by name, also those that a configuration file gave.
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

/// The end of a session that a command is.
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
                "Read settings from a TOML file; its keys are names of long flags, and a flag \
                 overrides it",
            )
            .help_heading(NETWORK);
        let options = SESSION_OPTIONS
            .iter()
            .filter(|option| is_for(option.role, E::ROLE));
        command
            .args(options.map(SessionOption::arg))
            .arg(config)
            .args(PARAMETERS.iter().map(|parameter| {
                // Both ends take every parameter, and show only their own.
                parameter_arg(parameter).hide(!is_for(parameter.role, E::ROLE))
            }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<E: End> FromArgMatches for SessionArgs<E> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // Parameters of the other end are taken, too, because rules may join parameters of both
        // ends.
        let options = SESSION_OPTIONS
            .iter()
            .filter(|option| is_for(option.role, E::ROLE));
        let names = options.map(|option| option.name);
        let names = names.chain(PARAMETERS.iter().map(|parameter| parameter.name));
        let mut values = BTreeMap::new();
        for name in names {
            let is_given = matches.value_source(name) == Some(ValueSource::CommandLine);
            if let (true, Some(text)) = (is_given, matches.get_one::<String>(name)) {
                values.insert(name, text.clone());
            }
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

impl SessionOption {
    fn arg(&self) -> Arg {
        let check = self.check;
        let parser = move |text: &str| check(text).map(|()| text.to_owned());
        let default = self.default.filter(|_| self.value.is_some());
        let default = default
            .map(|text| format!(" [default: {text}]"))
            .unwrap_or_default();
        let arg = Arg::new(self.name)
            .long(flag(self.name))
            .value_parser(ValueParser::from(parser))
            .help(format!("{}{default}", self.help))
            .hide_short_help(!SHORT_HELP.contains(&self.name))
            .help_heading(NETWORK);
        let arg = match self.name {
            "faults" => arg.long_help(format!("{}\n\n{}", self.help, every_fault())),
            _ => arg,
        };
        let arg = match self.short {
            Some(short) => arg.short(short),
            None => arg,
        };
        match self.value {
            Some(value) => arg.value_name(value),
            None => switch(arg),
        }
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

const fn is_for(role: Role, end: Role) -> bool {
    matches!(
        (role, end),
        (Role::Both, _) | (Role::Source, Role::Source) | (Role::Receiver, Role::Receiver)
    )
}

/// Reads a code point from 0 to 63, or its name: `ef`, `cs0` to `cs7`, `af11` to `af43`.
pub(crate) fn dscp(text: &str) -> Result<u8, String> {
    let digits = |text: &str| text.parse::<u8>().ok();
    let found = match text.to_ascii_lowercase().as_str() {
        "ef" => Some(46),
        name => match (name.strip_prefix("cs"), name.strip_prefix("af")) {
            (Some(class), _) => digits(class)
                .filter(|class| *class < 8)
                .map(|class| class << 3),
            (_, Some(rank)) => digits(rank)
                .filter(|rank| (1..=4).contains(&(rank / 10)) && (1..=3).contains(&(rank % 10)))
                .map(|rank| (rank / 10) << 3 | (rank % 10) << 1),
            _ => digits(name).filter(|code| *code < 64),
        },
    };
    found.ok_or_else(|| format!("{text:?} is not a DSCP (0 to 63, ef, cs0 to cs7, af11 to af43)"))
}

/// Checks that the library can read a text.
fn check_form<T>(text: &str) -> Result<(), String>
where
    T: FromStr<Err: fmt::Display>,
{
    text.parse::<T>()
        .map(drop)
        .map_err(|error| error.to_string())
}

fn check_number(text: &str, low: u32, high: u32) -> Result<(), String> {
    match text.parse::<u32>() {
        Ok(number) if (low..=high).contains(&number) => Ok(()),
        _ => Err(format!("{text:?} is not a number from {low} to {high}")),
    }
}

fn check_switch(text: &str) -> Result<(), String> {
    match text {
        "true" | "false" => Ok(()),
        _ => Err(format!("{text:?} is not true or false")),
    }
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

/// Checks that a receiver can have this name, and a sender can expect it.
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > 255 || !text.chars().all(is_plain) {
        return Err("a name has 1 to 255 bytes, and no control or format characters".into());
    }
    // A sender could not expect such a name: the list of --expect is split at commas, and blanks
    // are cut.
    if text.contains(',') || text.trim() != text {
        let text = "a name must not contain a comma, or begin or end with a blank: send --expect \
                    takes a list of names";
        return Err(text.into());
    }
    Ok(())
}

/// Every option, in the order of the help.
pub(crate) const SESSION_OPTIONS: &[SessionOption] = &[
    SessionOption {
        name: "group",
        short: Some('g'),
        value: Some("GROUP"),
        default: None,
        role: Role::Both,
        help: "Multicast group, or the address of the one receiver: ADDRESS[@IFACE][:PORT], \
               [ADDRESS%IFACE]:PORT, SOURCE@GROUP; port 7500 unless given",
        check: check_form::<Group>,
    },
    SessionOption {
        name: "iface",
        short: Some('i'),
        value: Some("NAME|ADDRESS|PREFIX"),
        default: None,
        role: Role::Both,
        help: "Interface by name (eth0), address (10.0.0.7) or prefix (10.0.0.0/8) [default: by \
               the kernel's route]",
        check: check_form::<Selector>,
    },
    SessionOption {
        name: "pgm_port",
        short: None,
        value: Some("PORT"),
        default: None,
        role: Role::Both,
        help: "PGM data-destination port [default: the UDP port]",
        check: |text| check_number(text, 1, 65_535),
    },
    SessionOption {
        name: "hops",
        short: None,
        value: Some("N"),
        default: Some("16"),
        role: Role::Both,
        help: "Time to live (TTL): packets pass at most N - 1 routers",
        check: |text| check_number(text, 1, 255),
    },
    SessionOption {
        name: "dscp",
        short: None,
        value: Some("CODE"),
        default: Some("0"),
        role: Role::Both,
        help: "Differentiated services code point: a number, ef, cs1, af41 ...",
        check: |text| dscp(text).map(drop),
    },
    SessionOption {
        name: "loop",
        short: None,
        value: None,
        default: Some("true"),
        role: Role::Both,
        help: "Let receivers on this machine get what this machine sends to the group [default: \
               true]",
        check: check_switch,
    },
    SessionOption {
        name: "wait",
        short: None,
        value: Some("block|busy[:N]|spin"),
        default: Some("block"),
        role: Role::Both,
        help: "How to wait for packets: sleep; poll N times, then sleep; or never sleep",
        check: check_form::<WaitStrategy>,
    },
    SessionOption {
        name: "control_port",
        short: None,
        value: Some("PORT"),
        default: Some("0"),
        role: Role::Source,
        help: "TCP port for the receivers' reports; 0 lets the system choose",
        check: |text| check_number(text, 0, 65_535),
    },
    SessionOption {
        name: "name",
        short: None,
        value: Some("NAME"),
        default: None,
        role: Role::Both,
        help: "Name of this end in reports, without a comma [default: host name and process ID; \
               for recv DIR: host name, last component of DIR and four digits of a hash of its \
               path]",
        check: check_name,
    },
    SessionOption {
        name: "key_file",
        short: None,
        value: Some("FILE"),
        default: None,
        role: Role::Both,
        help: "Encrypt everything with the key in this file (32 bytes or more, mode 0600), and \
               take nothing but what holders of the key send; all ends need the same file",
        check: |_| Ok(()),
    },
    SessionOption {
        name: "metrics",
        short: None,
        value: Some("[ADDRESS:]PORT"),
        default: None,
        role: Role::Both,
        help: "Serve the counters to Prometheus at http://ADDRESS:PORT/metrics; with a port alone, \
               only on this machine (127.0.0.1)",
        check: |text| metrics_address(text).map(drop),
    },
    SessionOption {
        name: "faults",
        short: None,
        value: Some("FAULTS"),
        default: None,
        role: Role::Both,
        help: "Simulate a bad network: lose, duplicate or damage arriving packets, and make system \
               calls fail, for example loss=5%,seed=7",
        check: check_form::<Faults>,
    },
];

/// The options that the short help shows; `--help` shows all.
const SHORT_HELP: [&str; 4] = ["group", "iface", "name", "key_file"];
const CONFIG: &str = "config";
const NETWORK: &str = "Network";

#[cfg(test)]
mod tests {
    use towline::SocketOptions;

    use super::*;

    #[test]
    fn code_points_have_names_and_bounds() {
        assert_eq!(dscp("ef"), Ok(46));
        assert_eq!(dscp("CS7"), Ok(56));
        assert_eq!(dscp("af41"), Ok(34));
        assert_eq!(dscp("63"), Ok(63));
        for wrong in ["64", "cs8", "af14", "af51", "", "x", "af", "-1"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
    }

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
    fn the_defaults_that_help_shows_are_those_of_the_library() {
        let library = SocketOptions::default();
        let shown = |name: &str| {
            let option = SESSION_OPTIONS.iter().find(|option| option.name == name);
            option
                .and_then(|option| option.default)
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(shown("hops"), library.hops.to_string());
        assert_eq!(shown("dscp"), library.dscp.to_string());
        assert_eq!(shown("loop"), library.multicast_loop.to_string());
        assert_eq!(shown("wait"), library.wait.to_string());
        let group = SESSION_OPTIONS.iter().find(|option| option.name == "group");
        let port = format!("port {} unless given", Group::PORT);
        assert!(group.is_some_and(|group| group.help.ends_with(&port)));
    }
}
