//! Environment errors: what was attempted, on what, why it failed, and what to do about it.

use std::{fmt::Display, io};

use sys::usual_remedy;

use crate::Remedy;

/// An operation that failed, or that makes no sense on its target.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {target}: {cause}{}", hint(.remedy.as_ref()))]
pub struct SystemError {
    operation: &'static str,
    target: String,
    cause: String,
    remedy: Option<Remedy>,
    errno: Option<i32>,
}

impl SystemError {
    /// Makes the error of `operation` (a verb) on `target`, which failed with a system error. If
    /// there is one usual remedy for `error`, the result has it; [`SystemError::advise`] replaces
    /// it.
    pub fn system(operation: &'static str, target: impl Display, error: &io::Error) -> Self {
        Self {
            operation,
            target: target.to_string(),
            cause: error.to_string(),
            remedy: usual_remedy(error).map(Remedy::from),
            errno: error.raw_os_error(),
        }
    }

    /// Makes the error of an `operation` (a verb) that makes no sense on `target`; `cause` is the
    /// reason.
    pub fn refused(operation: &'static str, target: impl Display, cause: impl Display) -> Self {
        Self {
            operation,
            target: target.to_string(),
            cause: cause.to_string(),
            remedy: None,
            errno: None,
        }
    }

    /// Sets the remedy, which says what the reader can do about the error. It replaces an earlier
    /// remedy, and is a sentence without its full stop.
    #[must_use]
    pub fn advise(mut self, remedy: impl Into<Remedy>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Says what failed and why, without the remedy.
    #[must_use]
    pub fn problem(&self) -> String {
        let Self {
            operation,
            target,
            cause,
            ..
        } = self;
        format!("cannot {operation} {target}: {cause}")
    }

    /// Says what to do about the error, when something can be done.
    #[must_use]
    pub const fn remedy(&self) -> Option<&Remedy> {
        self.remedy.as_ref()
    }

    /// Returns the errno, when the system gave one.
    #[must_use]
    pub const fn errno(&self) -> Option<i32> {
        self.errno
    }
}

pub(crate) fn hint(remedy: Option<&Remedy>) -> String {
    remedy.map_or_else(String::new, |remedy| format!("; {remedy}"))
}

#[cfg(test)]
mod tests {
    use sys::errno;

    use super::*;

    #[test]
    fn an_error_names_operation_target_cause_and_remedy() {
        let error = SystemError::refused("join", "239.1.1.1", "no interface").advise("name one");
        assert_eq!(
            error.to_string(),
            "cannot join 239.1.1.1: no interface; name one"
        );
    }

    #[test]
    fn an_error_of_the_system_has_its_usual_remedy_unless_there_is_a_better_one() {
        let full = io::Error::from_raw_os_error(errno::ENOSPC);
        let error = SystemError::system("write", "a.bin", &full);
        assert!(
            error
                .to_string()
                .ends_with("free space on that disk, or name a directory on another")
        );
        let error = error.advise("send less");
        assert!(error.to_string().ends_with("; send less"));
        let other = io::Error::from_raw_os_error(errno::EACCES);
        assert_eq!(SystemError::system("open", "a.bin", &other).remedy(), None);
    }
}
