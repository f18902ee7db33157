//! Environment errors: what was attempted, on what, why it failed, and what to do about it.

use std::{fmt::Display, io};

use crate::Remedy;

/// An operation that the system refused.
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
    /// Makes the error of `operation` (a verb) on `target`, which failed with a system error.
    pub fn system(operation: &'static str, target: impl Display, error: &io::Error) -> Self {
        Self {
            operation,
            target: target.to_string(),
            cause: error.to_string(),
            remedy: None,
            errno: error.raw_os_error(),
        }
    }

    /// Makes the error of `operation` (a verb) on `target`, which makes no sense for the reason
    /// `cause`.
    pub fn refused(operation: &'static str, target: impl Display, cause: impl Display) -> Self {
        Self {
            operation,
            target: target.to_string(),
            cause: cause.to_string(),
            remedy: None,
            errno: None,
        }
    }

    /// Adds what the reader can do about the error: a sentence without its full stop.
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
    use super::*;

    #[test]
    fn an_error_names_operation_target_cause_and_remedy() {
        let error = SystemError::refused("join", "239.1.1.1", "no interface").advise("name one");
        assert_eq!(
            error.to_string(),
            "cannot join 239.1.1.1: no interface; name one"
        );
    }
}
