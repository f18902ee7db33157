//! Why a capture could not be made.

use std::{io, path::PathBuf};

/// Everything that opening or running a capture can fail with. The text names the operation, the
/// target, the cause and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The address of a source or sink makes no sense.
    #[error("{address:?} is not a {what}: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// What it was to be.
        what: &'static str,
        /// What it must be.
        reason: String,
    },
    /// There is no such interface.
    #[error("there is no interface {name}; this host has {known}")]
    NoInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The process may not capture.
    #[error(
        "not permitted to {operation}: CAP_NET_RAW is missing; run as root, or run `setcap \
         cap_net_raw+ep PROGRAM` once as root"
    )]
    NotPermitted {
        /// What was attempted.
        operation: String,
    },
    /// The process may not take frames off an interface.
    #[error(
        "not permitted to {operation}: CAP_NET_ADMIN, CAP_BPF or CAP_NET_RAW is missing (root in \
         a user namespace does not have them); run as the machine's root, or run `setcap \
         cap_net_admin,cap_bpf,cap_net_raw+ep PROGRAM` once as root, or use ring:, which needs \
         CAP_NET_RAW only"
    )]
    NotPermittedXdp {
        /// What was attempted.
        operation: String,
    },
    /// The interface carries something else than Ethernet frames.
    #[error("{name} does not carry Ethernet frames (hardware type {hardware})")]
    LinkType {
        /// The interface.
        name: String,
        /// `ARPHRD_*`.
        hardware: u16,
    },
    /// An interface takes no packet.
    #[error("cannot send on {name}: it has accepted no packet for {waited_s} s: {reason}")]
    Stalled {
        /// The interface.
        name: String,
        /// Seconds that were waited.
        waited_s: f64,
        /// The cause as far as it is known, and what to do.
        reason: &'static str,
    },
    /// The system refused something.
    #[error("cannot {operation}: {cause}")]
    Os {
        /// What was attempted, and on what.
        operation: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system refused something for a reason that is known.
    #[error("cannot {operation}: {cause}; {remedy}")]
    Refused {
        /// What was attempted, and on what.
        operation: String,
        /// The system's reason.
        cause: io::Error,
        /// What that means, and what can be done.
        remedy: &'static str,
    },
    /// A file could not be opened, read or written.
    #[error("cannot {operation} {}: {cause}", path.display())]
    File {
        /// What was attempted.
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

    /// What a netlink request was refused with.
    pub(crate) fn netlink(error: &sys::netlink::NetlinkError) -> Self {
        Self::Os {
            operation: "ask the kernel about its interfaces".to_owned(),
            cause: io::Error::other(error.to_string()),
        }
    }
}
