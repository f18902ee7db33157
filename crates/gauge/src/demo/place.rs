//! Where the processes of a demo run: each on its own host, or each on its own loopback address.

use std::{ffi::OsStr, process::Command};

use lab::{Lab, LabError, LabSpec};

/// Where the sender (number 0) and the receivers (from number 1) run.
#[derive(Debug)]
pub enum Place {
    /// A network namespace for each, on a virtual switch.
    Hosts(Lab),
    /// This host; each end has an address of 127.0.0.0/8.
    Loopback {
        /// Why the machine permits no hosts.
        reason: String,
    },
}

/// Prepares the process for making hosts without being root. Call this first, while the process has
/// one thread: it may start the program again inside a user namespace.
///
/// # Errors
/// Why namespaces cannot be made; the demo then runs on loopback.
pub fn isolate() -> Result<(), String> {
    lab::enter_user_namespace_or_explain().map_err(|refusal| refusal.to_string())
}

impl Place {
    /// Makes a host for each of `count` processes. Takes loopback addresses when there is a
    /// `refusal`, or when the kernel refuses.
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

    /// Says in words where the processes run, for the report.
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

    /// Makes a command that runs on host `number`.
    pub(super) fn command(&self, number: usize, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Hosts(lab) => lab.host(number).command(program),
            Self::Loopback { .. } => Command::new(program),
        }
    }

    /// Returns the value of `--iface` on host `number`.
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
