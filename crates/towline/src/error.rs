//! Why the library could not do what it was asked.

use base::IoFault;
use net::{InterfaceError, Remedy, SystemError};
use pgm::ConfigError;

/// Everything that opening or using a session can fail with. The text names the operation, the
/// target, the cause and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The protocol parameters contradict each other or their ranges.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// No usable interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// The system refused something.
    #[error("{0}")]
    System(#[from] SystemError),
    /// The sockets are beyond use.
    #[error("{0}")]
    Io(#[from] IoFault),
    /// The message is longer than the protocol parameters allow. It was not taken; the session goes
    /// on.
    #[error("the message is longer than the {max} bytes that can be sent; raise {parameter}")]
    TooLong {
        /// The longest that can.
        max: usize,
        /// The protocol parameter that says so.
        parameter: &'static str,
    },
    /// The session was closed.
    #[error("the session was closed")]
    Closed,
    /// The caller did not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
    /// What was waited for did not happen in time.
    #[error("{0}")]
    TimedOut(String),
}

impl Error {
    /// What failed and why, without the remedy that its text has besides.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Interface(error) => error.problem(),
            Self::System(error) => error.problem(),
            other => other.to_string(),
        }
    }

    /// What can be done about it, where that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Interface(error) => error.remedy(),
            Self::System(error) => error.remedy().cloned(),
            _ => None,
        }
    }
}
