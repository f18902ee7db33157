//! What can be done about an error, as a value: the program that shows the error chooses the words.

use std::fmt;

/// What the reader of an error can do about it.
///
/// The text that [`fmt::Display`] writes names no command-line flag. A command that has a flag for
/// the remedy writes its own text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// A text that is the same in every program.
    Advice(String),
    /// Choose one of these interfaces.
    ChooseInterface {
        /// The interfaces' names.
        candidates: Vec<String>,
    },
    /// Look at which interfaces there are, and at their addresses.
    ListInterfaces {
        /// The thing that the user named and this machine lacks.
        missing: Missing,
    },
    /// Set an interface up, or stay on this machine.
    SetUpInterface,
    /// End the other sender or receiver that has the address and port, or use another address or
    /// port.
    StopOtherSender,
    /// Give the program the right to raw IP, or use UDP.
    AllowRawIp,
    /// Name the senders to take files from.
    NameSenders,
    /// On the other host, start a reflector: the program that answers round-trip probes over TCP.
    StartReflector,
    /// On the other host, start a sweep server, which receives and sends sweeps. Let its port
    /// through firewalls.
    StartSweepServer,
    /// On the other host, start a responder: the program that answers calls over TCP.
    StartResponder,
    /// End the other group search that runs on this host, or give both ends of this search another
    /// port.
    StopOtherSearch,
}

/// What this machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// An interface of that name or number.
    Interface,
    /// An interface that packets can leave by.
    UsableInterface,
    /// An interface with that address.
    Address,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advice(words) => f.write_str(words),
            Self::ChooseInterface { candidates } => write!(
                f,
                "several interfaces are possible; choose one: {}",
                candidates.join(", ")
            ),
            Self::ListInterfaces { missing } => f.write_str(match missing {
                Missing::Interface => "choose an interface that this host has (`ip link`)",
                Missing::UsableInterface => "choose another interface (`ip link`)",
                Missing::Address => "choose an address that this host has (`ip address`)",
            }),
            Self::SetUpInterface => f.write_str(
                "set an interface up, or stay on this machine by its loopback interface",
            ),
            Self::StopOtherSender => f.write_str(
                "another sender, or a receiver of a unicast session, has this address and port on \
                 this host, perhaps in this program: stop it, give this sender and its receivers \
                 another port, or give this sender another address",
            ),
            Self::AllowRawIp => f.write_str(
                "raw IP needs CAP_NET_RAW: run as root, run `setcap cap_net_raw+ep PROGRAM` once \
                 as root, or use UDP at both ends",
            ),
            Self::NameSenders => {
                f.write_str("name the senders, allow all senders, or give both ends a key")
            }
            Self::StartReflector => f.write_str(
                "start a reflector there that answers over TCP, or check the address and the way \
                 to it",
            ),
            Self::StartSweepServer => f.write_str(
                "start a server of sweeps there, and let its port through firewalls, TCP and UDP; \
                 or check the address and the way to it",
            ),
            Self::StartResponder => f.write_str(
                "start a responder to calls over TCP there, or check the address and the way to it",
            ),
            Self::StopOtherSearch => f.write_str(
                "if another search for a group runs on this host, end it, or give both ends \
                 another port",
            ),
        }
    }
}

impl From<String> for Remedy {
    fn from(words: String) -> Self {
        Self::Advice(words)
    }
}

impl From<&str> for Remedy {
    fn from(words: &str) -> Self {
        Self::Advice(words.to_owned())
    }
}
