//! Why no interface can be used, each reason with its remedy.

use std::net::IpAddr;

/// Why an interface cannot be used, or none could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    /// The kernel did not answer.
    #[error("cannot read the network interfaces: {reason}")]
    System {
        /// The operation and its error.
        reason: String,
    },
    /// What was asked for is not a name, an address or a prefix.
    #[error("`{text}` is no interface: write a name, an address, or a prefix such as 10.77.0.0/24")]
    Syntax {
        /// What was asked for.
        text: String,
    },
    /// Nothing matches what was asked for.
    #[error("no interface matches {wanted}; there are {}", list(known))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The names of all interfaces.
        known: Vec<String>,
    },
    /// Several interfaces match what was asked for.
    #[error("{wanted} is ambiguous: it matches {}; use a name", list(matches))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The names of those that match.
        matches: Vec<String>,
    },
    /// The interface does not carry multicast.
    #[error("{name} cannot carry multicast; choose another, or `ip link set {name} multicast on`")]
    NoMulticast {
        /// The interface.
        name: String,
    },
    /// The interface is switched off.
    #[error("{name} is down; `ip link set {name} up` switches it on")]
    Down {
        /// The interface.
        name: String,
    },
    /// The interface has no usable address of the family.
    #[error(
        "{name} has no usable {family} address, which {destination} needs{}",
        because(detail)
    )]
    NoAddress {
        /// The interface.
        name: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// The group or host to reach.
        destination: IpAddr,
        /// What is there instead, when anything is.
        detail: Option<String>,
    },
    /// The kernel knows no way to the destination, and no single interface suggests itself.
    #[error(
        "no route to {destination}{}",
        way_out(*destination, candidates)
    )]
    NoRoute {
        /// The group or host to reach.
        destination: IpAddr,
        /// The interfaces that could do it.
        candidates: Vec<String>,
    },
    /// Packets from the interface's network would be dropped, because the way back is another.
    #[error(
        "{name} has no return path: packets to {peer} {} and strict reverse-path filtering drops \
         what arrives from there; correct the route, or run \
         `sysctl -w net.ipv4.conf.{name}.rp_filter=2`",
        leave_by(via.as_ref())
    )]
    NoReturnPath {
        /// The interface.
        name: String,
        /// An address on its network, or the source that was asked about.
        peer: IpAddr,
        /// The interface that packets to it leave by; none when there is no route at all.
        via: Option<String>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// What to do where the kernel has no route.
fn way_out(destination: IpAddr, candidates: &[String]) -> String {
    if !candidates.is_empty() {
        let names = candidates.join(", ");
        return format!("; several interfaces could do it, choose one with --iface: {names}");
    }
    if !destination.is_multicast() {
        return ": check the address, or add a route with `ip route add`".to_owned();
    }
    let family = if destination.is_ipv4() {
        "IPv4"
    } else {
        "IPv6"
    };
    format!(
        ", and no interface that is up carries multicast and has an {family} address: set one up \
         (`towline ifaces` shows what there is), or stay on this machine with --iface lo"
    )
}

fn because(detail: &Option<String>) -> String {
    detail
        .as_ref()
        .map_or_else(String::new, |detail| format!(": {detail}"))
}

fn leave_by(via: Option<&String>) -> String {
    via.map_or_else(
        || "have no route".to_owned(),
        |via| format!("leave by {via}"),
    )
}
