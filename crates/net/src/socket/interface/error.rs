//! Why no interface can be used, each reason with its remedy.

use std::{fmt, net::IpAddr};

use crate::{Remedy, error::hint};

/// Why an interface cannot be used, or why none could be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// The kernel did not answer.
    System {
        /// The operation and its error.
        reason: String,
    },
    /// The user's text is not a name, an address or a prefix.
    Syntax {
        /// The user's text.
        text: String,
    },
    /// No interface matches what the user asked for.
    Unknown {
        /// What the user asked for.
        wanted: String,
        /// The names of all interfaces.
        known: Vec<String>,
    },
    /// Several interfaces match what the user asked for.
    Ambiguous {
        /// What the user asked for.
        wanted: String,
        /// The names of the interfaces that match.
        matches: Vec<String>,
    },
    /// The interface does not carry multicast.
    NoMulticast {
        /// The interface's name.
        name: String,
    },
    /// The interface is switched off.
    Down {
        /// The interface's name.
        name: String,
    },
    /// The interface has no usable address of the family.
    NoAddress {
        /// The interface's name.
        name: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// The group or host to reach.
        destination: IpAddr,
        /// An address of this family that the interface has but cannot use, with the address's
        /// state; `None` if it has no such address.
        detail: Option<String>,
    },
    /// The kernel has no route to the destination, and no single interface is obvious.
    NoRoute {
        /// The group or host to reach.
        destination: IpAddr,
        /// The interfaces that could reach it.
        candidates: Vec<String>,
    },
    /// The kernel would drop packets from the interface's network, because the route back to that
    /// network is not by this interface.
    NoReturnPath {
        /// The interface's name.
        name: String,
        /// An address on the interface's network, or the source that was asked about.
        peer: IpAddr,
        /// The interface by which packets to `peer` leave; `None` when there is no route at all.
        via: Option<String>,
    },
}

impl InterfaceError {
    /// Says what is wrong, without the remedy.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::System { reason } => format!("cannot read the network interfaces: {reason}"),
            Self::Syntax { text } => format!(
                "`{text}` is not an interface; write a name, an address, or a prefix such as \
                 10.77.0.0/24"
            ),
            Self::Unknown { wanted, known } => {
                format!(
                    "no interface matches {wanted}; this host has {}",
                    list(known)
                )
            }
            Self::Ambiguous { wanted, matches } => {
                format!("{wanted} is ambiguous: it matches {}", list(matches))
            }
            Self::NoMulticast { name } => format!("{name} cannot carry multicast"),
            Self::Down { name } => format!("{name} is down"),
            Self::NoAddress {
                name,
                family,
                destination,
                detail,
            } => format!(
                "{name} has no usable {family} address, which {destination} needs{}",
                because(detail)
            ),
            Self::NoRoute {
                destination,
                candidates,
            } if candidates.is_empty() && destination.is_multicast() => {
                let family = if destination.is_ipv4() {
                    "IPv4"
                } else {
                    "IPv6"
                };
                format!(
                    "no route to {destination}, and no interface that is up carries multicast and \
                     has an {family} address"
                )
            }
            Self::NoRoute { destination, .. } => format!("no route to {destination}"),
            Self::NoReturnPath { name, peer, via } => format!(
                "{name} has no return path: packets to {peer} {}, so strict reverse-path filtering \
                 drops those that come from {peer} by {name}",
                leave_by(via.as_ref())
            ),
        }
    }

    /// Says what to do about the problem, when something can be done.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Self::System { .. } | Self::Syntax { .. } | Self::Unknown { .. } => return None,
            Self::NoAddress { name, detail, .. } => {
                let mend = match detail {
                    None => "add one (`ip address add ADDRESS/BITS dev",
                    Some(_) => "see what keeps it from use (`ip address show dev",
                };
                format!("{mend} {name}`), or choose another interface").into()
            }
            Self::Ambiguous { .. } => "name one of them".into(),
            Self::NoMulticast { name } => {
                format!("choose another interface, or run `ip link set {name} multicast on`").into()
            }
            Self::Down { name } => {
                format!("run `ip link set {name} up`, or choose another interface").into()
            }
            Self::NoRoute {
                destination,
                candidates,
            } => match (candidates.is_empty(), destination.is_multicast()) {
                (false, _) => Remedy::ChooseInterface {
                    candidates: candidates.clone(),
                },
                (true, true) => Remedy::SetUpInterface,
                (true, false) => "check the address, or add a route with `ip route add`".into(),
            },
            Self::NoReturnPath { name, .. } => {
                // In the names of `sysctl`, a slash stands for a dot in an interface's name.
                let name = name.replace('.', "/");
                format!("correct the route, or run `sysctl -w net.ipv4.conf.{name}.rp_filter=2`")
                    .into()
            }
        })
    }
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())?;
        f.write_str(&hint(self.remedy().as_ref()))
    }
}

impl std::error::Error for InterfaceError {}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
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
