//! The target of a measurement, resolved: its address, and the interface of a group.

use std::net::SocketAddr;

use towline::{Group, Selector, resolve};

use crate::{args::Place, failure::Failure};

/// Returns the interface that the text of the group or the flag names. An error when they name
/// different interfaces.
pub(super) fn interface(
    group: &Group,
    named: Option<&Selector>,
) -> Result<Option<Selector>, Failure> {
    let Some(written) = group.interface() else {
        return Ok(named.cloned());
    };
    match named {
        Some(named) if named.to_string() != written => Err(Failure::usage(format!(
            "the group names interface {written} and --iface names {named}; give only one of them"
        ))),
        _ => {
            let selector = written.parse::<Selector>();
            let selector = selector.map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Some(selector))
        }
    }
}

/// Returns the interface of a group, as [`interface`] does; `None` for a host. An error when
/// the place is a host and the flag names an interface.
pub(super) fn interface_of(
    place: &Place,
    named: Option<&Selector>,
) -> Result<Option<Selector>, Failure> {
    if !place.is_group() {
        return match named {
            None => Ok(None),
            Some(_) => Err(Failure::usage(format!(
                "--iface is for groups, and {place} is a host, which the kernel's route reaches: \
                 leave --iface out"
            ))),
        };
    }
    interface(&place.at_port(Group::PORT), named)
}

/// Looks up the address of a place, with `port` when the place's text names no port.
pub(super) fn address(place: &Place, port: u16) -> Result<SocketAddr, Failure> {
    if place.is_group() {
        return Ok(place.at_port(port).resolve()?);
    }
    // A link-local address needs its interface, and only the place's text contains that.
    Ok(resolve(&place.to_string(), port)?)
}
