//! Where the ends of a demo run: hosts of their own, or loopback addresses of their own.

use std::{ffi::OsStr, process::Command};

use lab::{Lab, LabError, LabSpec};

/// Hosts for a sender (number 0) and its receivers (from number 1).
#[derive(Debug)]
pub enum Place {
    /// A network namespace for each, on a virtual switch.
    Hosts(Lab),
    /// This host; each end has an address of 127.0.0.0/8.
    Loopback {
        /// Why there are no hosts.
        reason: String,
    },
}

/// Prepares the process for making hosts without being root: to be called before anything else, and
/// while the process has one thread, because it may start the program anew inside a user namespace.
///
/// # Errors
/// Why namespaces cannot be made; the demo then runs on loopback.
pub fn isolate() -> Result<(), String> {
    lab::enter_user_namespace_or_explain().map_err(|refusal| refusal.to_string())
}

impl Place {
    /// Hosts for `count` ends, or loopback when `refusal` or the kernel says no.
    #[must_use]
    pub fn new(count: u32, refusal: Option<String>) -> Self {
        if let Some(reason) = refusal {
            return Self::Loopback { reason };
        }
        let spec = LabSpec::new(u8::try_from(count).unwrap_or(u8::MAX));
        match Lab::new(&spec) {
            Ok(lab) => Self::Hosts(lab),
            Err(error) => Self::Loopback {
                reason: reason(&error),
            },
        }
    }

    /// In words, for the report.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Hosts(lab) => format!(
                "{} hosts (network namespaces) on a virtual switch",
                lab.hosts().len()
            ),
            Self::Loopback { reason } => {
                format!("loopback, one address for each end ({reason})")
            }
        }
    }

    /// A command that runs on host `number`.
    pub(super) fn command(&self, number: usize, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Hosts(lab) => lab.host(number).command(program),
            Self::Loopback { .. } => Command::new(program),
        }
    }

    /// What `--iface` is to say on host `number`.
    pub(super) fn interface(&self, number: usize) -> String {
        match self {
            Self::Hosts(lab) => lab.host(number).interface().to_owned(),
            Self::Loopback { .. } => format!("127.0.0.{}", number + 1),
        }
    }
}

fn reason(error: &LabError) -> String {
    error.to_string()
}
