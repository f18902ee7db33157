//! Profiles for other implementations of PGM. Each profile is for one of them: with the profile's
//! settings, a session works with that implementation, which needs no changes.
//!
//! All profiles are in one table, [`PROFILES`]. A profile is a set of settings by name. Settings
//! that the user gives override those of the profile, by the rule of [`Profile::beside`]. The table
//! has only what is published about the other implementations.

use pgm::{Config, FecForm};

#[cfg(test)]
mod golden;

/// The settings that suit another implementation.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The profile's name: the value of the option `profile`.
    pub name: &'static str,
    /// The implementation that the profile suits, for the help.
    pub peer: &'static str,
    /// The port for a group whose text names no port.
    pub port: u16,
    /// The options ([`super::options::SESSION_OPTIONS`]) and parameters ([`crate::PARAMETERS`])
    /// that the profile sets, each with its value as text.
    pub settings: &'static [(&'static str, &'static str)],
    /// Where the settings come from, in words.
    pub source: &'static str,
}

impl Profile {
    /// Returns the profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Returns the settings of this profile that no given setting overrides. `is_given` says for a
    /// name whether the user gave that setting.
    ///
    /// A given setting counts more than the profile's. A heartbeat has two forms: bounds, and a
    /// list of intervals that overrides bounds. So given bounds also take away the profile's list.
    pub fn beside(
        &'static self,
        is_given: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let gives_bounds = HEARTBEAT_BOUNDS.into_iter().any(&is_given);
        let settings = self.settings.iter().copied();
        settings.filter(move |(name, _)| {
            let is_outranked = is_given(name) || (gives_bounds && *name == HEARTBEAT_LIST);
            !is_outranked
        })
    }

    /// Says what is known to fail at the other implementation when an end in `role` has these
    /// parameters and, with `has_key`, a key. One sentence each, with what to leave out.
    pub(super) fn cautions(
        &self,
        role: net::Role,
        config: &Config,
        has_key: bool,
    ) -> impl Iterator<Item = String> {
        let is_sender = role == net::Role::Source;
        CAUTIONS
            .iter()
            .filter(move |caution| {
                let is_met = match caution.cause {
                    Cause::Sent(is_met) => is_sender && is_met(config),
                    Cause::Key => has_key,
                };
                is_met && caution.profiles.contains(&self.name)
            })
            .map(|caution| caution.text.to_owned())
    }

    /// Checks that a value of the option `profile` names a profile.
    pub(super) fn check(name: &str) -> Result<(), String> {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        match Self::named(name) {
            Some(_) => Ok(()),
            None => Err(format!("{name:?} is not a profile ({})", names.join(", "))),
        }
    }
}

/// Every profile.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "openpgm",
        peer: "OpenPGM 5.3, with its default port and, but for repeated NAKs, its examples' timers",
        port: 3056,
        settings: &[
            ("pgm_port", "7500"),
            // OpenPGM's receivers take messages of at most 16 fragments and 65,535 bytes.
            ("apdu_bytes_max", "22848"),
            ("fragments_max", "16"),
            ("fec_form", "openpgm"),
            (
                "spm_heartbeat",
                "100ms,100ms,100ms,100ms,1300ms,7s,16s,25s,30s",
            ),
            ("spm_ambient", "30s"),
            ("peer_expiry", "300s"),
            ("nak_backoff_max", "50ms"),
            ASKS_AGAIN[0],
            ASKS_AGAIN[1],
            ("spmr_delay", "250ms"),
            // An OpenPGM receiver repeats a request only after 2 s, so the source must linger for
            // longer.
            ("linger", "10s"),
        ],
        source: "OpenPGM's headers and examples",
    },
    Profile {
        name: "zmq",
        peer: "ZeroMQ 4 with epgm, whose timers are fixed; write its port with the group",
        port: 5555,
        settings: &[
            // ZeroMQ never fragments, and stops when a message comes in fragments.
            ("fragments_max", "1"),
            (
                "spm_heartbeat",
                "100ms,100ms,100ms,100ms,1300ms,7s,16s,25s,30s",
            ),
            ("spm_ambient", "30s"),
            ("peer_expiry", "300s"),
            ("nak_backoff_max", "50ms"),
            ASKS_AGAIN[0],
            ASKS_AGAIN[1],
            ("spmr_delay", "25ms"),
            ("hops", "1"),
        ],
        source: "libzmq's options and manual",
    },
    Profile {
        name: "ms-pgm",
        peer: "Windows' Reliable Multicast (IPPROTO_RM): raw IP, the RFC's parity",
        port: 7500,
        settings: &[
            ("encapsulation", "raw"),
            ("strict_pgm", "true"),
            ("fec_form", "rfc"),
            ("hops", "255"),
            ("send_syn", "true"),
            ("peer_expiry", "300s"),
        ],
        source: "Microsoft's documentation of wsrm.h: IP protocol 113, TTL 255",
    },
    Profile {
        name: "ibm",
        peer: "IBM MQ Multicast with Protocol = UDP",
        port: 3056,
        settings: &[
            ("strict_pgm", "true"),
            ("fec_form", "rfc"),
            ("hops", "1"),
            ("spm_ambient", "2s"),
            ("spm_heartbeat_max", "2s"),
            ("peer_expiry", "20s"),
        ],
        source: "IBM's mqclient.ini: SocketTTL 1, HeartbeatInterval 2 s, HeartbeatTimeout 20 s; \
                 OpenPGM's default ports are said to be IBM's",
    },
    Profile {
        name: "tibco",
        peer: "TIBCO's PGM: the timers that OpenPGM's examples have from it, but for repeated NAKs",
        port: 7500,
        settings: &[
            ("strict_pgm", "true"),
            ("fec_form", "rfc"),
            (
                "spm_heartbeat",
                "100ms,100ms,100ms,100ms,1300ms,7s,16s,25s,30s",
            ),
            ("spm_ambient", "30s"),
            ("peer_expiry", "300s"),
            ("nak_backoff_max", "50ms"),
            ASKS_AGAIN[0],
            ASKS_AGAIN[1],
            ("linger", "10s"),
        ],
        source: "OpenPGM's examples, of which it was the model; nothing says what carries it",
    },
];

/// How long a receiver waits before it repeats a NAK: as long as ZeroMQ makes OpenPGM's library
/// wait. OpenPGM's examples wait for 2 s, which is too long when a NAK is lost and then its repair:
/// a sender at 5 MB/s with a window of 20,000 packets forgets a packet after 3 s.
const ASKS_AGAIN: [(&str, &str); 2] = [
    ("nak_repeat_interval", "200ms"),
    ("nak_rdata_interval", "200ms"),
];

/// Something that the implementation of a profile cannot take.
struct Caution {
    /// The names of the profiles.
    profiles: &'static [&'static str],
    cause: Cause,
    /// What happens at the other end, and which settings (between backticks) cause it.
    text: &'static str,
}

enum Cause {
    /// A sender has parameters for which this is true.
    Sent(fn(&Config) -> bool),
    /// This end has a key.
    Key,
}

/// The profiles of programs whose receivers run on libpgm.
const ON_LIBPGM: &[&str] = &["openpgm", "zmq"];

/// Seen with libpgm 5.3.128 and ZeroMQ 4.3.4.
const CAUTIONS: &[Caution] = &[
    Caution {
        profiles: ON_LIBPGM,
        cause: Cause::Sent(|it| it.fec_proactive() > 0 || it.fec_proactive_max() > 0),
        text: "receivers on libpgm abort at parity that they did not ask for: leave out \
               `fec_proactive` and `fec_proactive_max`",
    },
    Caution {
        profiles: ON_LIBPGM,
        cause: Cause::Sent(|it| it.fec_group() > 0 && it.fec_form() == FecForm::Rfc),
        text: "receivers on libpgm give out nothing when parity is offered in the RFC's form: give \
               `fec_form` openpgm, or leave out `fec_group`",
    },
    Caution {
        profiles: &["openpgm"],
        cause: Cause::Sent(Config::pack),
        text: "OpenPGM's receivers take all messages in a packet for one message: leave out `pack`",
    },
    Caution {
        profiles: &["zmq"],
        cause: Cause::Sent(Config::pack),
        text: "ZeroMQ aborts when several messages are in a packet: leave out `pack`",
    },
    Caution {
        profiles: &["zmq"],
        cause: Cause::Sent(|it| it.fragments_max() > 1),
        text: "ZeroMQ stops at a message of several packets: leave out `fragments_max`",
    },
    Caution {
        profiles: ON_LIBPGM,
        cause: Cause::Key,
        text: "programs on libpgm have no keys: neither end can read the other's packets; leave \
               out `key_file`",
    },
];

const HEARTBEAT_LIST: &str = "spm_heartbeat";
/// The bounds that the parameter `spm_heartbeat`, a list of intervals, overrides.
const HEARTBEAT_BOUNDS: [&str; 2] = ["spm_heartbeat_min", "spm_heartbeat_max"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionBuilder, session::options::SESSION_OPTIONS};

    #[test]
    fn every_profile_is_a_valid_session() {
        for profile in PROFILES {
            assert_eq!(Profile::check(profile.name), Ok(()));
            let session = SessionBuilder::new("239.192.0.1".parse().unwrap());
            let session = session.set("profile", profile.name).unwrap();
            let config = session.config.build().unwrap();
            for (name, text) in profile.settings {
                let is_option = SESSION_OPTIONS.iter().any(|option| option.name == *name);
                let set = config.value(name);
                assert!(is_option || set.as_deref() == Some(text), "{name}: {set:?}");
            }
            assert!(!profile.source.is_empty());
        }
        assert!(Profile::check("norm").is_err());
    }

    /// Makes `settings` in this order; returns the session and the texts of the named parameters.
    fn made<const N: usize>(
        settings: &[(&str, &str)],
        names: [&str; N],
    ) -> (SessionBuilder, [String; N]) {
        let session = SessionBuilder::new("239.192.0.1".parse().unwrap());
        let session = settings
            .iter()
            .try_fold(session, |session, (name, text)| session.set(name, text))
            .unwrap();
        let config = session.config.build().unwrap();
        (session, names.map(|name| config.value(name).unwrap()))
    }

    #[test]
    fn settings_that_the_other_end_cannot_take_are_warned_of() {
        use net::Role::{Receiver, Source};
        let told = |profile: &str, role, settings: &[(&str, &str)], has_key| {
            let settings = [&[("profile", profile)][..], settings].concat();
            let (session, []) = made(&settings, []);
            let config = session.config.build().unwrap();
            let cautions = session.profile.unwrap().cautions(role, &config, has_key);
            cautions.collect::<Vec<_>>().join("\n")
        };
        let parity = ("fec-group", "8");
        let proactive = [parity, ("fec-proactive", "2")];
        let pack = [("pack", "true")];
        for (profile, settings, part) in [
            ("openpgm", &proactive[..], "abort at parity"),
            (
                "openpgm",
                &[parity, ("fec-form", "rfc")][..],
                "the RFC's form",
            ),
            ("openpgm", &pack[..], "for one message: leave out `pack`"),
            ("zmq", &proactive[..], "abort at parity"),
            ("zmq", &[parity][..], "give `fec_form` openpgm"),
            ("zmq", &pack[..], "ZeroMQ aborts"),
            (
                "zmq",
                &[("fragments-max", "2")][..],
                "leave out `fragments_max`",
            ),
        ] {
            let text = told(profile, Source, settings, false);
            assert!(text.contains(part), "{profile} {settings:?}: {text}");
            assert_eq!(told(profile, Receiver, settings, false), "");
        }
        for profile in ["openpgm", "zmq"] {
            for role in [Source, Receiver] {
                assert!(told(profile, role, &[], true).contains("no keys"));
                assert_eq!(told(profile, role, &[], false), "");
            }
        }
        assert_eq!(told("openpgm", Source, &[parity], false), "");
        // Nobody has seen what the others do.
        assert_eq!(told("tibco", Source, &proactive, false), "");
    }

    #[test]
    fn what_is_set_before_or_after_a_profile_counts_more() {
        let profile = ("profile", "zmq");
        for (name, text) in [("spm-ambient", "9s"), ("spm_ambient", "9s")] {
            for order in [[profile, (name, text)], [(name, text), profile]] {
                let (session, ambient) = made(&order, ["spm_ambient"]);
                assert_eq!(session.sockets.hops, 1, "{order:?}");
                assert_eq!(ambient, [text], "{order:?}");
            }
        }
        for order in [[profile, ("hops", "7")], [("hops", "7"), profile]] {
            assert_eq!(made(&order, []).0.sockets.hops, 7, "{order:?}");
        }
    }

    #[test]
    fn bounds_of_the_heartbeat_count_more_than_a_profiles_list_of_it() {
        let (list, longest) = (HEARTBEAT_LIST, ("spm-heartbeat-max", "2s"));
        let profile = ("profile", "openpgm");
        let names = [list, "spm_heartbeat_max"];
        let (_, heartbeat) = made(&[profile], names);
        assert!(heartbeat[0].starts_with("100ms,100ms"), "{heartbeat:?}");
        for order in [[profile, longest], [longest, profile]] {
            assert_eq!(made(&order, names).1, ["", "2s"], "{order:?}");
        }
        // A list that the user gives stays, even when it equals the profile's list.
        for own in ["1s,3s", &heartbeat[0]] {
            let own = (list, own);
            for order in [
                [profile, own, longest],
                [own, profile, longest],
                [longest, own, profile],
            ] {
                assert_eq!(made(&order, names).1, [own.1, "2s"], "{order:?}");
            }
        }
    }
}
