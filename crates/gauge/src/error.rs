//! The errors of the instruments.

use std::{io, net::SocketAddr};

use net::{InterfaceError, Remedy, SystemError};
use sys::errno;

/// An error of a measurement. The text names the operation, the target, the cause and, where one is
/// known, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session that carries the measurement could not be opened or used.
    #[error("{0}")]
    Session(#[from] towline::Error),
    /// There is no usable interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// The system refused an operation.
    #[error("{0}")]
    System(#[from] SystemError),
    /// The caller stopped the measurement.
    #[error("interrupted")]
    Interrupted,
    /// A measurement could not be made or recorded.
    #[error("{0}")]
    Measurement(String),
}

impl Error {
    /// Says what failed and why: the text without its remedy.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Session(error) => error.problem(),
            Self::Interface(error) => error.problem(),
            Self::System(error) => error.problem(),
            other => other.to_string(),
        }
    }

    /// Says what the user can do about it, where that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Session(error) => error.remedy(),
            Self::Interface(error) => error.remedy(),
            Self::System(error) => error.remedy().cloned(),
            _ => None,
        }
    }
}

/// Makes the error for a thread that the system did not start. `work` says what the thread would
/// do, as in "that writes".
pub(crate) fn no_thread(work: &str, error: &io::Error) -> SystemError {
    SystemError::system("start", format!("the thread {work}"), error).advise(net::THREAD_REMEDY)
}

/// Makes the error of a server that cannot listen at `address`. When the port is in use, it also
/// says how to find the program that has it.
pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error) -> SystemError {
    let refused = SystemError::system("listen at", address, error);
    if error.raw_os_error() != Some(errno::EADDRINUSE) {
        return refused;
    }
    refused.advise(format!(
        "another program has the port, maybe the same command started before: `ss -tulpn \
         'sport = :{}'` shows which; end it or listen at another port",
        address.port()
    ))
}
