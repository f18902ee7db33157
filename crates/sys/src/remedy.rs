//! Remedies for the system's errors: advice that helps whatever the program was doing.

use std::io;

use crate::errno;

/// Returns the usual remedy for an error of the system: advice that helps whatever the program was
/// doing. `None` when there is no such remedy, or when the error is not the system's.
#[must_use]
pub fn usual_remedy(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        errno::EMFILE => "raise the limit of open files (`ulimit -n`)",
        errno::ENFILE => "raise the whole system's limit of open files (`sysctl fs.file-max`)",
        errno::ENOSPC => "free space on that disk, or name a directory on another",
        errno::EDQUOT => "free space, or have this user's quota raised",
        errno::EROFS => "name a directory that is not mounted read-only",
        errno::EIO => "look into the kernel's log (`dmesg`): the device reports a fault",
        errno::ENETDOWN => "set the interface up (`ip link set dev NAME up`)",
        errno::ENETUNREACH => "add a route there (`ip route`), or choose the interface",
        errno::EADDRNOTAVAIL => "choose an address of this host (`ip address`)",
        errno::EADDRINUSE => "stop the program that uses it (`ss -lntup`), or choose another port",
        _ => return None,
    })
}

/// Returns the text of an error, and after it the usual remedy, if there is one.
#[must_use]
pub fn with_usual_remedy(error: &io::Error) -> String {
    usual_remedy(error).map_or_else(|| error.to_string(), |remedy| format!("{error}; {remedy}"))
}

/// The remedy when the system does not start a thread.
pub const THREAD_REMEDY: &str =
    "end some processes, or raise the limit on their number (`ulimit -u`)";

/// Makes the error of a thread that has panicked; `work` says what the thread does, as in "that
/// writes".
#[must_use]
pub fn panicked(work: &str) -> io::Error {
    io::Error::other(format!(
        "the thread {work} has panicked, which is a fault of Towline; start again, and report the \
         text that it left on standard error"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_behind_the_error_that_has_one() {
        let full = io::Error::from_raw_os_error(errno::ENOSPC);
        assert!(
            with_usual_remedy(&full)
                .ends_with("; free space on that disk, or name a directory on another")
        );
        let other = io::Error::other("the end");
        assert_eq!(with_usual_remedy(&other), "the end");
    }
}
