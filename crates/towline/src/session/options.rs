//! The settings of a session that are no parameters of the protocol, by name and as text.
//!
//! They are in one table, [`SESSION_OPTIONS`]. Each row of it, and of [`crate::PARAMETERS`], names
//! a flag of `towline` and a key of its configuration files. [`SessionBuilder::set`] takes the same
//! names, and so does `towline_session_set` of the library for C.

use std::{fmt, str::FromStr};

use base::parameter::Role;
use net::{Encapsulation, Faults, WaitStrategy, interface::Selector};

use super::{SessionBuilder, profile::Profile};
use crate::{Allowed, Error, PARAMETERS, text::is_plain};

/// A setting of a session that is not a parameter of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct SessionOption {
    /// Name in `snake_case`. A flag has `-` for `_`; everywhere else both are accepted.
    pub name: &'static str,
    /// Name of the value in the help; `None` for a switch, which is `true` or `false`.
    pub value: Option<&'static str>,
    /// The value, as text, when the option is not given; `None` for an option without a default.
    pub default: Option<&'static str>,
    /// The end of a session that has the option: sender, receiver, or both.
    pub role: Role,
    /// What the option does, for the help.
    pub help: &'static str,
    /// Checks a text; the error says why the text does not fit. Does not open any file named in the
    /// text.
    pub check: fn(&str) -> Result<(), String>,
}

/// Every option, in the order of the help.
pub const SESSION_OPTIONS: &[SessionOption] = &[
    SessionOption {
        name: "iface",
        value: Some("NAME|ADDRESS|PREFIX"),
        default: None,
        role: Role::Both,
        help: "Interface by name (eth0), address (10.0.0.7) or prefix (10.0.0.0/8) [default: by \
               the kernel's route]",
        check: |text| form::<Selector>(text).map(drop),
    },
    SessionOption {
        name: "profile",
        value: Some("openpgm|zmq|ms-pgm|ibm|tibco"),
        default: None,
        role: Role::Both,
        help: "Defaults that suit another implementation of PGM: port, timers, form of parity; an \
               option that is given beside it overrides its default",
        check: Profile::check,
    },
    SessionOption {
        name: "encapsulation",
        value: Some("udp|raw"),
        default: Some("udp"),
        role: Role::Both,
        help: "What carries the packets: UDP, or raw IP (protocol 113), which needs CAP_NET_RAW; \
               both ends need the same",
        check: |text| form::<Encapsulation>(text).map(drop),
    },
    SessionOption {
        name: "pgm_port",
        value: Some("PORT"),
        default: None,
        role: Role::Both,
        help: "PGM data-destination port [default: the UDP port]",
        check: |text| number(text, 1, 65_535).map(drop),
    },
    SessionOption {
        name: "hops",
        value: Some("N"),
        default: Some("16"),
        role: Role::Both,
        help: "Time to live (TTL): packets pass at most N - 1 routers",
        check: |text| number(text, 1, 255).map(drop),
    },
    SessionOption {
        name: "dscp",
        value: Some("CODE"),
        default: Some("0"),
        role: Role::Both,
        help: "Differentiated services code point (DSCP): a number from 0 to 63, or a name such as \
               ef, cs1 or af41",
        check: |text| dscp(text).map(drop),
    },
    SessionOption {
        name: "loop",
        value: None,
        default: Some("true"),
        role: Role::Both,
        help: "Let receivers on this machine get what this machine sends to the group [default: \
               true]",
        check: |text| switch(text).map(drop),
    },
    SessionOption {
        name: "wait",
        value: Some("block|busy[:N]|spin"),
        default: Some("block"),
        role: Role::Both,
        help: "How to wait for packets: block sleeps, busy polls N times (200 unless given) before \
               it sleeps, and spin never sleeps, which uses a whole processor",
        check: |text| form::<WaitStrategy>(text).map(drop),
    },
    SessionOption {
        name: "control_port",
        value: Some("PORT"),
        default: Some("0"),
        role: Role::Source,
        help: "TCP port for the receivers' reports; 0 lets the system choose",
        check: |text| number(text, 0, 65_535).map(drop),
    },
    SessionOption {
        name: "receivers_from",
        value: Some("ADDRESS[/BITS],...|any"),
        default: Some("any"),
        role: Role::Source,
        help: "Take reports only from receivers at these addresses or prefixes; 'any' takes all. \
               Packets still reach every member of the group",
        check: |text| hosts(text).map(drop),
    },
    SessionOption {
        name: "name",
        value: Some("NAME"),
        default: None,
        role: Role::Both,
        help: "Name of this end in reports, without a comma [default: host name and process ID; \
               for recv DIR: host name, last component of DIR and four digits of a hash of its \
               path]",
        check: check_name,
    },
    #[cfg(feature = "keys")]
    SessionOption {
        name: "key_file",
        value: Some("FILE"),
        default: None,
        role: Role::Both,
        help: "Encrypt everything with the key in this file (32 bytes or more, mode 0600), and \
               take nothing but what holders of the key send; all ends need the same file",
        check: |_| Ok(()),
    },
    SessionOption {
        name: "faults",
        value: Some("FAULTS"),
        default: None,
        role: Role::Both,
        help: "Simulate a bad network: lose, duplicate or damage arriving packets, and make system \
               calls fail, for example loss=5%,seed=7",
        check: |text| form::<Faults>(text).map(drop),
    },
];

impl SessionBuilder {
    /// Sets an option ([`SESSION_OPTIONS`]) or a parameter of the protocol ([`crate::PARAMETERS`])
    /// from its text form; `_` and `-` are the same in its name. A setting by name overrides a
    /// profile, whichever of the two is set first ([`Profile::beside`]).
    ///
    /// # Errors
    /// When the name is unknown, or the text does not fit; when a key cannot be read.
    pub fn set(self, name: &str, text: &str) -> Result<Self, Error> {
        let mut session = self.set_one(name, text)?;
        session.given.insert(name.replace('-', "_"));
        session.take_back()?;
        Ok(session)
    }

    fn set_one(mut self, name: &str, text: &str) -> Result<Self, Error> {
        let own = name.replace('-', "_");
        match SESSION_OPTIONS.iter().find(|option| option.name == own) {
            Some(option) => self.set_option(option.name, text),
            None => {
                self.config.set(name, text)?;
                Ok(self)
            }
        }
    }

    /// Takes back the profile's settings that a given setting now overrides: resets their
    /// parameters to the defaults, except parameters that were given themselves.
    fn take_back(&mut self) -> Result<(), Error> {
        let Some(profile) = self.profile else {
            return Ok(());
        };
        let counting: Vec<_> = profile.beside(|name| self.given.contains(name)).collect();
        for setting in profile.settings {
            let parameter = PARAMETERS.iter().find(|one| one.name == setting.0);
            let is_settled = counting.contains(setting) || self.given.contains(setting.0);
            if let (false, Some(parameter)) = (is_settled, parameter) {
                self.config.set(parameter.name, &(parameter.default)())?;
            }
        }
        Ok(())
    }

    fn set_option(mut self, name: &'static str, text: &str) -> Result<Self, Error> {
        let wrong = move |problem: String| Error::Option { name, problem };
        let port = |low| number(text, low, 65_535).map(|port| port as u16);
        match name {
            "iface" => self.interface = Some(form(text).map_err(wrong)?),
            "profile" => {
                Profile::check(text).map_err(wrong)?;
                let profile = Profile::named(text);
                self.profile = profile;
                let settings = profile.map(|it| it.beside(|name| self.given.contains(name)));
                let settings: Vec<_> = settings.into_iter().flatten().collect();
                for (name, text) in settings {
                    self = self.set_one(name, text)?;
                }
            }
            "encapsulation" => self.sockets.encapsulation = form(text).map_err(wrong)?,
            "pgm_port" => self.pgm_port = Some(port(1).map_err(wrong)?),
            "hops" => self.sockets.hops = number(text, 1, 255).map_err(wrong)? as u8,
            "dscp" => self.sockets.dscp = dscp(text).map_err(wrong)?,
            "loop" => self.sockets.multicast_loop = switch(text).map_err(wrong)?,
            "wait" => self.sockets.wait = form(text).map_err(wrong)?,
            "control_port" => self.control_port = port(0).map_err(wrong)?,
            "receivers_from" => self.receivers_from = hosts(text).map_err(wrong)?,
            "name" => {
                check_name(text).map_err(wrong)?;
                self.name = Some(text.to_owned());
            }
            #[cfg(feature = "keys")]
            "key_file" => self.key = Some(crate::read_key(text.as_ref())?.into_inner()),
            "faults" => self.faults = form(text).map_err(wrong)?,
            _ => unreachable!("each row of the table is set here, which a test shows"),
        }
        Ok(self)
    }
}

/// Reads a differentiated services code point from 0 to 63, or its name: `ef`, `cs0` to `cs7`,
/// `af11` to `af43`.
///
/// # Errors
/// When the text is neither.
pub fn dscp(text: &str) -> Result<u8, String> {
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

/// Checks that a receiver can have this name, and a sender can expect it.
///
/// # Errors
/// Says which rule for names this name breaks.
pub fn check_name(text: &str) -> Result<(), String> {
    // A sender could not expect a name with a comma in it, or with a blank at its beginning or end:
    // the list of --expect is split at commas, and blanks around each name are cut.
    let problem = match text.len() {
        0 => "a name must not be empty".to_owned(),
        256.. => format!("a name has at most 255 bytes, and this one {}", text.len()),
        _ if !text.chars().all(is_plain) => {
            "a name must not contain control or format characters".to_owned()
        }
        _ if text.contains(',') => {
            "a name must not contain a comma: send --expect takes a list of names".to_owned()
        }
        _ if text.trim() != text => "a name must not begin or end with a blank".to_owned(),
        _ => return Ok(()),
    };
    Err(problem)
}

/// Reads a list of hosts, separated by commas: addresses, prefixes, or `any`.
///
/// # Errors
/// Says which part of the list is none of these.
pub fn hosts(text: &str) -> Result<Vec<Allowed>, String> {
    text.split(',').map(|one| one.trim().parse()).collect()
}

fn form<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn number(text: &str, low: u32, high: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is not a number from {low} to {high}")),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    let wrong = |_| format!("{text:?} is not true or false");
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use net::SocketOptions;

    use super::*;

    fn session() -> SessionBuilder {
        SessionBuilder::new("239.192.0.1".parse().unwrap())
    }

    /// A text that the option takes, and one that it refuses.
    fn texts(option: &SessionOption) -> (&'static str, &'static str) {
        match option.name {
            "iface" => ("10.0.0.0/8", ""),
            "name" => ("camera", "a,b"),
            "profile" => ("openpgm", "norm"),
            "pgm_port" => ("7501", "0"),
            "key_file" => ("", "no/such/file"),
            "faults" => ("loss=5%,seed=7", "luck"),
            _ => (option.default.unwrap(), "perhaps"),
        }
    }

    #[test]
    fn every_option_of_the_table_is_set_from_its_text() {
        for option in SESSION_OPTIONS {
            let (right, wrong) = texts(option);
            let flag = option.name.replace('_', "-");
            assert!(session().set(option.name, wrong).is_err(), "{flag}");
            if option.name != "key_file" {
                assert_eq!((option.check)(right), Ok(()), "{flag}");
                assert!((option.check)(wrong).is_err(), "{flag}");
                assert!(session().set(option.name, right).is_ok(), "{flag}");
                assert!(session().set(&flag, right).is_ok(), "{flag}");
            }
        }
        let set = [
            ("hops", "3"),
            ("dscp", "ef"),
            ("loop", "false"),
            ("wait", "spin"),
            ("encapsulation", "raw"),
            ("pgm-port", "7501"),
            ("control-port", "7502"),
            ("receivers_from", "10.0.0.7, fd00::/8"),
            ("name", "camera"),
            ("rate", "1MB/s"),
        ];
        let set = set
            .into_iter()
            .try_fold(session(), |session, (name, text)| session.set(name, text));
        let set = set.unwrap();
        let sockets = &set.sockets;
        assert_eq!((sockets.hops, sockets.dscp), (3, 46));
        assert!(!sockets.multicast_loop);
        assert_eq!(sockets.wait, WaitStrategy::Spin);
        assert_eq!(sockets.encapsulation, Encapsulation::Raw);
        assert_eq!((set.pgm_port, set.control_port), (Some(7501), 7502));
        assert_eq!(set.name.as_deref(), Some("camera"));
        let from = set.receivers_from.iter().map(ToString::to_string);
        assert_eq!(from.collect::<Vec<_>>(), ["10.0.0.7", "fd00::/8"]);
        let rate = set.config.build().unwrap().rate().pace();
        assert_eq!(rate.bytes_per_s(), Some(1_000_000));
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_sockets() {
        let sockets = SocketOptions::default();
        let told = |name: &str| {
            let option = SESSION_OPTIONS.iter().find(|option| option.name == name);
            option.unwrap().default.unwrap().to_owned()
        };
        assert_eq!(told("hops"), sockets.hops.to_string());
        assert_eq!(told("dscp"), sockets.dscp.to_string());
        assert_eq!(told("loop"), sockets.multicast_loop.to_string());
        assert_eq!(told("wait"), sockets.wait.to_string());
        assert_eq!(told("encapsulation"), sockets.encapsulation.to_string());
        assert_eq!(told("control_port"), session().control_port.to_string());
    }

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
}
