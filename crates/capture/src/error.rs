//! Why a capture could not be made.

use std::{io, path::PathBuf};

use crate::Interface;

/// Every way in which opening or running a capture can fail. The text names the operation, the
/// target, the cause and, where one is known, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A text that the user gave, such as an address or a filter, cannot be used.
    #[error("{address:?} is not a {what}: {reason}")]
    Address {
        /// The text as given.
        address: String,
        /// What the text should be, such as a source of packets or a filter.
        what: &'static str,
        /// What is wrong with the text.
        reason: String,
    },
    /// There is no such interface.
    #[error("there is no interface {name}; this host has {known}{hint}")]
    NoInterface {
        /// The name that was given.
        name: String,
        /// The interfaces that exist.
        known: String,
        /// How to name a file, where one can be named in the interface's place; or nothing.
        hint: String,
    },
    /// The process may not capture.
    #[error(
        "not permitted to {operation}: CAP_NET_RAW is missing; run as root, or run `setcap \
         cap_net_raw+ep PROGRAM` once as root"
    )]
    NotPermitted {
        /// What the process tried to do.
        operation: String,
    },
    /// The process may not take frames off an interface.
    #[error(
        "not permitted to {operation}: CAP_NET_ADMIN, CAP_BPF or CAP_NET_RAW is missing (root in \
         a user namespace does not have them); run as the machine's root, or run `setcap \
         cap_net_admin,cap_bpf,cap_net_raw+ep PROGRAM` once as root, or use ring:IFACE, which \
         needs CAP_NET_RAW only"
    )]
    NotPermittedXdp {
        /// What the process tried to do.
        operation: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "{name} does not carry Ethernet frames (hardware type {hardware}); name an interface that \
         does (`ip link` shows link/ether)"
    )]
    LinkType {
        /// The interface.
        name: String,
        /// The kernel's number of the interface's hardware type (`ARPHRD_*`).
        hardware: u16,
    },
    /// An interface takes no packets.
    #[error("cannot send on {name}: it has accepted no packet for {waited_s} s: {reason}")]
    Stalled {
        /// The interface.
        name: String,
        /// For how many seconds the sender waited.
        waited_s: f64,
        /// The cause, as far as it is known, and what to do.
        reason: String,
    },
    /// The system refused an operation.
    #[error("cannot {operation}: {}", sys::with_usual_remedy(.cause))]
    Os {
        /// The operation and its target.
        operation: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system refused an operation for a known reason.
    #[error("cannot {operation}: {cause}; {remedy}")]
    Refused {
        /// The operation and its target.
        operation: String,
        /// The system's reason.
        cause: io::Error,
        /// What the reason means, and what to do.
        remedy: &'static str,
    },
    /// A file could not be opened, read or written.
    #[error("cannot {operation} {}: {}", path.display(), explained(.cause))]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file is no capture file.
    #[error("{} is not a capture file: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl CaptureError {
    pub(crate) fn os(operation: impl Into<String>, cause: io::Error) -> Self {
        let operation = operation.into();
        match cause.raw_os_error() {
            Some(sys::errno::EPERM | sys::errno::EACCES) => Self::NotPermitted { operation },
            _ => Self::Os { operation, cause },
        }
    }

    /// Makes the error of a failed wait for packets of these interfaces.
    pub(crate) fn wait<'a>(
        interfaces: impl IntoIterator<Item = &'a Interface>,
        cause: io::Error,
    ) -> Self {
        let names = interfaces.into_iter().map(|it| it.name.as_str());
        let names: Vec<&str> = names.collect();
        Self::os(format!("wait for packets from {}", names.join(", ")), cause)
    }

    /// Makes the error of a netlink request that the kernel refused.
    pub(crate) fn netlink(error: &sys::netlink::NetlinkError) -> Self {
        Self::Os {
            operation: "ask the kernel about its interfaces".to_owned(),
            cause: io::Error::other(error.to_string()),
        }
    }
}

/// Returns the system's reason in words, and what helps against it.
fn explained(cause: &io::Error) -> String {
    let remedy = match cause.kind() {
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => "; name a file that this user may use",
        io::ErrorKind::IsADirectory => "; name a file in it",
        _ => "",
    };
    format!("{}{remedy}", sys::with_usual_remedy(cause))
}
