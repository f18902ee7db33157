//! The settings that both ends of a session need.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use towline::{
    Allowed, Config, Encapsulation, Faults, Group, Key, PARAMETERS, Place, Profile, Selector,
    SessionBuilder, SocketOptions, WaitStrategy,
    options::{check_name, dscp, hosts},
};

use super::{Settings, place::interface, transfer::texts};
use crate::{
    args::{Given, metrics_address, session_options},
    failure::Failure,
};

/// One end of a session, ready to be opened.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SessionPlan {
    /// The group that the session uses; over TCP, the hosts to send to, or the address to listen
    /// at.
    #[serde(rename = "group", serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) place: Place,
    /// The interface that `--iface` names; `None` takes the interface in the group's text, or else
    /// the one that the kernel's route uses.
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) interface: Option<Selector>,
    /// The protocol below PGM that carries the packets.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) encapsulation: Encapsulation,
    /// PGM's data-destination port when it differs from the UDP port.
    pub(crate) pgm_port: Option<u16>,
    /// Time to live of the packets that this end sends.
    pub(crate) hops: u8,
    /// Differentiated services code point.
    pub(crate) dscp: u8,
    /// Receivers on this machine hear what this end sends.
    pub(crate) is_looped: bool,
    /// How this end waits for packets.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) wait: WaitStrategy,
    /// TCP port for reports; 0 lets the system choose.
    pub(crate) control_port: u16,
    /// The hosts whose receivers a sender admits; all when it is empty.
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) receivers_from: Vec<Allowed>,
    /// The name of this end in reports; `None` leaves it to the library.
    pub(crate) name: Option<String>,
    /// The file with the key that both ends have.
    pub(crate) key_file: Option<PathBuf>,
    #[serde(skip)]
    pub(crate) key: Option<Key>,
    /// The address at which this end serves metrics to Prometheus; null for none.
    pub(crate) metrics: Option<SocketAddr>,
    /// Faults to inject.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) faults: Faults,
    /// The protocol's parameters.
    #[serde(serialize_with = "parameters")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) config: Config,
    /// The profile whose settings the other fields already have, unless flags override them.
    #[serde(skip)]
    profile: Option<&'static Profile>,
}

impl SessionPlan {
    /// Combines flags and defaults.
    pub(crate) fn new(given: &Given) -> Result<Self, Failure> {
        let port = profile(given).map_or(Group::PORT, |profile| profile.port);
        let group: Group = Settings::new(given)
            .parse("group", |text| Group::parse(text, port))?
            .ok_or_else(|| Failure::usage("name the group, as in --group 239.192.0.1:7500"))?;
        let plan = Self::at(group.clone().into(), given)?;
        // The group and `--iface` may both name an interface, but it must be the same one.
        interface(&group, plan.interface.as_ref())?;
        Ok(plan)
    }

    /// Combines flags and defaults for a session over TCP. Flags about packets are refused.
    pub(crate) fn over_tcp(place: Place, flag: &str, given: &Given) -> Result<Self, Failure> {
        let is_for_packets =
            |name: &&str| !OVER_TCP.contains(name) && given.values.contains_key(*name);
        let options = session_options().map(|option| option.name);
        let mut names = options.chain(PARAMETERS.iter().map(|parameter| parameter.name));
        if let Some(name) = names.find(is_for_packets) {
            let name = crate::args::flag(name);
            return Err(Failure::usage(format!(
                "--{name} is for sessions of a group, and {flag} uses TCP connections instead: \
                 leave --{name} or {flag} out"
            )));
        }
        Self::at(place, given)
    }

    fn at(place: Place, given: &Given) -> Result<Self, Failure> {
        let settings = Settings::new(given);
        let defaults = SocketOptions::default();
        let key_file: Option<PathBuf> = settings.parse("key_file", str::parse)?;
        Ok(Self {
            interface: settings.parse("iface", str::parse)?,
            encapsulation: settings
                .parse("encapsulation", str::parse)?
                .unwrap_or_default(),
            pgm_port: settings.parse("pgm_port", str::parse)?,
            hops: settings.parse("hops", str::parse)?.unwrap_or(defaults.hops),
            dscp: settings.parse("dscp", dscp)?.unwrap_or(defaults.dscp),
            is_looped: settings
                .parse("loop", str::parse)?
                .unwrap_or(defaults.multicast_loop),
            wait: settings.parse("wait", str::parse)?.unwrap_or(defaults.wait),
            control_port: settings.parse("control_port", str::parse)?.unwrap_or(0),
            receivers_from: settings.parse("receivers_from", hosts)?.unwrap_or_default(),
            name: settings.parse("name", |text| check_name(text).map(|()| text.to_owned()))?,
            key: key_file.as_deref().map(towline::read_key).transpose()?,
            key_file,
            metrics: settings.parse("metrics", metrics_address)?,
            faults: settings.parse("faults", str::parse)?.unwrap_or_default(),
            config: settings.config()?,
            profile: profile(given),
            place,
        })
    }

    /// Makes the options of the session's sockets.
    pub(crate) fn sockets(&self) -> SocketOptions {
        SocketOptions::default()
            .hops(self.hops)
            .dscp(self.dscp)
            .multicast_loop(self.is_looped)
            .wait(self.wait)
            .encapsulation(self.encapsulation)
    }

    /// Makes the session's settings for the library.
    pub(crate) fn session(&self) -> SessionBuilder {
        let session = self.session_at(self.place.clone());
        session.interface(self.interface.clone())
    }

    /// Makes the settings of a session at `place` (on the interface that it names) from this plan.
    pub(crate) fn session_at(&self, place: Place) -> SessionBuilder {
        let mut session = SessionBuilder::at(place);
        if let Some(profile) = self.profile {
            // Only for the library's warnings: this plan's own values replace all that it sets.
            session = session
                .set("profile", profile.name)
                .expect("every profile is valid");
        }
        let session = session
            .sockets(self.sockets())
            .config(self.config.to_builder())
            .faults(self.faults)
            .pgm_port(self.pgm_port)
            .control_port(self.control_port)
            .receivers_from(self.receivers_from.iter().copied())
            .key(self.key.clone());
        match &self.name {
            Some(name) => session.name(name),
            None => session,
        }
    }
}

fn profile(given: &Given) -> Option<&'static Profile> {
    let name = given.values.get("profile");
    name.and_then(|name| Profile::named(name))
}

/// The options that still have a meaning in a session over TCP.
const OVER_TCP: [&str; 4] = ["wait", "name", "key_file", "metrics"];

pub(super) fn text<T: fmt::Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn optional_text<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Writes a time as a number of seconds.
pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Writes a time as a number of seconds; `None` as null.
pub(super) fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Writes every parameter by name, with the text that would set it.
fn parameters<S: Serializer>(config: &Config, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(PARAMETERS.len()))?;
    for parameter in PARAMETERS {
        map.serialize_entry(parameter.name, &config.value(parameter.name))?;
    }
    map.end()
}
