//! A host, or a group with its interface, written as `--group` takes it: the target of a
//! measurement, or a network of a relay.

use std::{borrow::Cow, fmt, str::FromStr as _};

use clap::Args;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use towline::{Group, Selector};

/// `HOST`, `GROUP`, `GROUP@IFACE` or `[V6GROUP%IFACE]`, each with a port or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was written.
    text: String,
    is_group: bool,
}

/// The interface of a group, where it is not written behind the group.
#[derive(Clone, Debug, Args)]
pub(crate) struct IfaceArgs {
    /// Interface of a group, by name, address or prefix; the same as GROUP@IFACE [default: by the
    /// kernel's route]
    #[arg(long, short, value_name = "IFACE")]
    pub(crate) iface: Option<Selector>,
}

impl Place {
    /// Returns the group or host, with `port` where none was written.
    pub(crate) fn at_port(&self, port: u16) -> Group {
        Group::parse(&self.text, port).expect("it was read when it was given")
    }

    /// Returns true for a multicast group.
    pub(crate) const fn is_group(&self) -> bool {
        self.is_group
    }
}

/// Reads a place, for clap.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let group = Group::from_str(text).map_err(|error| error.to_string())?;
    if group.source().is_some() {
        return Err(
            "only recv, sub, load recv and frames recv take a SOURCE@: write the group alone"
                .to_owned(),
        );
    }
    Ok(Place {
        text: text.to_owned(),
        is_group: group.is_multicast(),
    })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl JsonSchema for Place {
    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_the_one_written_or_the_measurements_own() {
        let at = |text: &str| place(text).map(|it| it.at_port(7700).to_string());
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:7700"),
            ("10.0.0.1:7500", "10.0.0.1:7500"),
            ("host.example:9", "host.example:9"),
            ("239.192.0.1@eth0", "239.192.0.1@eth0:7700"),
            ("239.192.0.1@eth0:7500", "239.192.0.1@eth0:7500"),
            ("ff15::7500", "[ff15::7500]:7700"),
            ("[ff15::1%eth0]:7500", "[ff15::1%eth0]:7500"),
            ("::1", "[::1]:7700"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused_as_a_group_is() {
        for (text, cause) in [
            ("10.0.0.1:abc", "the port is not a number"),
            (
                "10.0.0.1@eth0",
                "neither side of the @ is a multicast group",
            ),
            ("239.192.0.1@", "the interface is empty"),
            (
                "10.0.0.9@239.192.0.1",
                "take a SOURCE@: write the group alone",
            ),
        ] {
            let error = place(text).unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }
}
