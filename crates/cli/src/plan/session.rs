//! What every end of a session needs to know.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use towline::{
    Config, Faults, Group, Key, PARAMETERS, Selector, SessionBuilder, SocketOptions, WaitStrategy,
};

use super::{Settings, place::interface};
use crate::{
    args::{Given, check_name, dscp, metrics_address},
    failure::Failure,
};

/// One end of a session, ready to be opened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionPlan {
    /// Where it takes place.
    #[serde(serialize_with = "text")]
    pub(crate) group: Group,
    /// The interface that was asked for; `None` leaves it to the group's text and the routes.
    #[serde(serialize_with = "optional_text")]
    pub(crate) interface: Option<Selector>,
    /// PGM's data-destination port when it is not the UDP port.
    pub(crate) pgm_port: Option<u16>,
    /// Time to live of what it sends.
    pub(crate) hops: u8,
    /// Differentiated services code point.
    pub(crate) dscp: u8,
    /// Receivers on this machine hear what it sends.
    pub(crate) is_looped: bool,
    /// How it waits.
    #[serde(serialize_with = "text")]
    pub(crate) wait: WaitStrategy,
    /// TCP port for reports; 0 lets the system choose.
    pub(crate) control_port: u16,
    /// What this end is called in reports; `None` leaves it to the library.
    pub(crate) name: Option<String>,
    /// Where the key is that both ends have.
    pub(crate) key_file: Option<PathBuf>,
    #[serde(skip)]
    pub(crate) key: Option<Key>,
    /// Where Prometheus is answered.
    pub(crate) metrics: Option<SocketAddr>,
    /// Faults to inject.
    #[serde(serialize_with = "text")]
    pub(crate) faults: Faults,
    /// The protocol's parameters.
    #[serde(serialize_with = "parameters")]
    pub(crate) config: Config,
}

impl SessionPlan {
    /// Brings flags and defaults together.
    pub(crate) fn new(given: &Given) -> Result<Self, Failure> {
        let settings = Settings::new(given);
        let group: Group = settings
            .parse("group", str::parse)?
            .ok_or_else(|| Failure::usage("name the group, as in --group 239.192.0.1:7500"))?;
        let defaults = SocketOptions::default();
        let key_file: Option<PathBuf> = settings.parse("key_file", str::parse)?;
        let plan = Self {
            interface: settings.parse("iface", str::parse)?,
            pgm_port: settings.parse("pgm_port", str::parse)?,
            hops: settings.parse("hops", str::parse)?.unwrap_or(defaults.hops),
            dscp: settings.parse("dscp", dscp)?.unwrap_or(defaults.dscp),
            is_looped: settings
                .parse("loop", str::parse)?
                .unwrap_or(defaults.multicast_loop),
            wait: settings.parse("wait", str::parse)?.unwrap_or(defaults.wait),
            control_port: settings.parse("control_port", str::parse)?.unwrap_or(0),
            name: settings.parse("name", |text| check_name(text).map(|()| text.to_owned()))?,
            key: key_file.as_deref().map(towline::read_key).transpose()?,
            key_file,
            metrics: settings.parse("metrics", metrics_address)?,
            faults: settings.parse("faults", str::parse)?.unwrap_or_default(),
            config: settings.config()?,
            group,
        };
        // Each may name it, but they must not differ.
        interface(&plan.group, plan.interface.as_ref())?;
        Ok(plan)
    }

    /// The session as the library takes it.
    pub(crate) fn session(&self) -> SessionBuilder {
        let sockets = SocketOptions::default()
            .hops(self.hops)
            .dscp(self.dscp)
            .multicast_loop(self.is_looped)
            .wait(self.wait);
        let session = SessionBuilder::new(self.group.clone())
            .interface(self.interface.clone())
            .sockets(sockets)
            .config(self.config.to_builder())
            .faults(self.faults)
            .pgm_port(self.pgm_port)
            .control_port(self.control_port)
            .key(self.key.clone());
        match &self.name {
            Some(name) => session.name(name),
            None => session,
        }
    }
}

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

/// Every parameter by name, as the text that would set it.
fn parameters<S: Serializer>(config: &Config, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(PARAMETERS.len()))?;
    for parameter in PARAMETERS {
        map.serialize_entry(parameter.name, &config.value(parameter.name))?;
    }
    map.end()
}
