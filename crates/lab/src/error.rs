//! Why a lab could not be built or changed.

use std::{fs, io};

use sys::{
    errno::ENOSPC,
    namespace::{Refusal, Step},
    netlink::NetlinkError,
};

/// Why a lab could not be built or changed. The text names the operation and, where one is known,
/// the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine does not let this user make namespaces. A test then prints this and is skipped.
    #[error("network namespaces are not permitted here: {missing}; {remedy}")]
    NotPermitted {
        /// The step that the system refused.
        missing: String,
        /// What to change so that it works.
        remedy: String,
    },
    /// No lab can be built by this specification.
    #[error("not possible in a lab: {0}")]
    Spec(&'static str),
    /// A network object could not be made, changed or read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A system call failed.
    #[error("cannot {operation}: {cause}")]
    Os {
        /// What the lab tried to do.
        operation: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The kernel cannot drop packets at random here. Drop them in the process instead.
    #[error("the kernel cannot lose packets at random here: {reason}")]
    NoLoss {
        /// The kernel's reason.
        reason: String,
    },
    /// The network did not reach the awaited state in time.
    #[error("{what} was not ready after {waited_ms} ms")]
    NotReady {
        /// What the lab waited for.
        what: String,
        /// How long it waited, in milliseconds.
        waited_ms: u128,
    },
}

impl LabError {
    /// Returns true when the machine does not let this user make namespaces.
    #[must_use]
    pub const fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted { .. })
    }

    pub(crate) fn os(operation: impl Into<String>, cause: io::Error) -> Self {
        Self::Os {
            operation: operation.into(),
            cause,
        }
    }

    /// Makes the error of a network namespace that cannot be made.
    pub(crate) fn no_network(operation: &str, cause: io::Error) -> Self {
        let cause = match cause.raw_os_error() {
            // No disk is full: this is how the kernel says that a limit is reached.
            Some(ENOSPC) => io::Error::other(format!(
                "{cause}: the limit of network namespaces is reached; as root raise it with \
                 `sysctl -w user.max_net_namespaces=N`"
            )),
            _ => cause,
        };
        Self::os(operation, cause)
    }

    /// Makes the error of a refused step. It names the kernel setting (sysctl) that forbids the
    /// step, if that can be read.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::NotPermitted {
            missing: refusal.to_string(),
            remedy: remedy(refusal.step, &|name| {
                let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")));
                text.ok()?.trim().parse().ok()
            }),
        }
    }
}

/// Says how to permit the step, by the first setting that forbids it. `sysctl` reads a setting, and
/// gives `None` for one that does not exist.
fn remedy(step: Step, sysctl: &dyn Fn(&str) -> Option<i64>) -> String {
    if step == Step::Start {
        return "free processes or memory, then try again".to_owned();
    }
    let forbids =
        |switch: &&Switch| sysctl(switch.name).is_some_and(|value| value == switch.forbids);
    match SWITCHES.iter().find(forbids) {
        Some(Switch { name, permits, .. }) => {
            format!("as root run `sysctl -w {name}={permits}`, or run this as root")
        }
        None => "run this as root; inside a container, start it with --privileged \
                 (its security profile forbids namespaces)"
            .to_owned(),
    }
}

/// A kernel setting, the value that forbids user namespaces, and the one that permits them.
struct Switch {
    name: &'static str,
    forbids: i64,
    permits: i64,
}

const SWITCHES: [Switch; 4] = [
    Switch {
        name: "kernel.unprivileged_userns_clone",
        forbids: 0,
        permits: 1,
    },
    Switch {
        name: "user.max_user_namespaces",
        forbids: 0,
        permits: 10_000,
    },
    Switch {
        name: "user.max_net_namespaces",
        forbids: 0,
        permits: 10_000,
    },
    Switch {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        forbids: 1,
        permits: 0,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_switch_that_forbids() {
        let text = remedy(Step::IdMap, &|name| {
            Some(i64::from(
                name == "kernel.apparmor_restrict_unprivileged_userns" || name.starts_with("user."),
            ))
        });
        // kernel.unprivileged_userns_clone is read first, and is 0 here.
        assert!(
            text.contains("kernel.unprivileged_userns_clone=1"),
            "{text}"
        );
        let text = remedy(Step::UserNamespace, &|name| {
            (name == "user.max_user_namespaces").then_some(0)
        });
        assert!(text.contains("user.max_user_namespaces=10000"), "{text}");
        assert!(remedy(Step::UserNamespace, &|_| None).contains("container"));
    }
}
