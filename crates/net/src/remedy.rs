//! What can be done about an error, as a value: whoever shows it words it.

use std::fmt;

/// What the reader of an error can do about it.
///
/// As text it names no flag of any command: a command knows its own, and words those variants that
/// mean one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// What these words say, which are the same for everybody.
    Advice(String),
    /// Choose one of these interfaces.
    ChooseInterface {
        /// Their names.
        candidates: Vec<String>,
    },
    /// Look at which interfaces there are, and at their addresses.
    ListInterfaces {
        /// What was asked for and is not among them.
        missing: Missing,
    },
    /// Set an interface up, or stay on this machine.
    SetUpInterface,
    /// End the other sender that has the address and port, or use others.
    StopOtherSender,
    /// Name the senders to take files from.
    NameSenders,
}

/// What this machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// An interface of that name or number.
    Interface,
    /// An interface that can be sent by.
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
                "several interfaces could do it, choose one: {}",
                candidates.join(", ")
            ),
            Self::ListInterfaces { missing } => f.write_str(match missing {
                Missing::Interface => "there is no such interface",
                Missing::UsableInterface => "choose another interface",
                Missing::Address => "this host has no such address",
            }),
            Self::SetUpInterface => {
                f.write_str("set one up, or stay on this machine by its loopback interface")
            }
            Self::StopOtherSender => f.write_str(
                "another sender on this host uses this address and port: stop it, or give this \
                 one another port, as its receivers, or address",
            ),
            Self::NameSenders => {
                f.write_str("name the senders, allow everybody, or give both ends a key")
            }
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
