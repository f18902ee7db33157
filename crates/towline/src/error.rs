//! Why the library could not do what it was asked.

use std::io;

use base::IoFault;
use net::{InterfaceError, Remedy, SystemError};
use pgm::ConfigError;

/// Everything that opening or using a session can fail with. The text names the operation, the
/// target, the cause and, where there is one, the remedy; [`Error::kind`] is for programs.
#[non_exhaustive]
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
    /// Receivers that are expected did not join in time.
    #[error("{}", missing_text(*joined, *missing, *refused))]
    Missing {
        /// How many have joined.
        joined: u32,
        /// How many have not.
        missing: u32,
        /// How often one was refused, for its name or its key; the events say who and why.
        refused: u64,
    },
    /// The session's thread panicked.
    #[error("the session's thread panicked")]
    Panicked,
}

/// What kind of thing an [`Error`] is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// What was asked for makes no sense, or contradicts itself.
    InvalidInput,
    /// No interface can be used.
    NoInterface,
    /// Another socket has the address and port.
    AddressInUse,
    /// The process may not do that.
    PermissionDenied,
    /// There is no such file or directory.
    NotFound,
    /// Anything else that the system refused.
    System,
    /// A message is too long.
    TooLong,
    /// The session is over.
    Closed,
    /// The caller did not want to wait any longer.
    Interrupted,
    /// What was waited for did not happen in time.
    TimedOut,
    /// A thread panicked.
    Panicked,
}

impl Error {
    /// What kind of thing it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) => ErrorKind::InvalidInput,
            Self::Interface(_) => ErrorKind::NoInterface,
            Self::System(error) => {
                let errno = error.errno().map(io::Error::from_raw_os_error);
                match errno.as_ref().map(io::Error::kind) {
                    None => ErrorKind::InvalidInput,
                    Some(io::ErrorKind::AddrInUse) => ErrorKind::AddressInUse,
                    Some(io::ErrorKind::PermissionDenied) => ErrorKind::PermissionDenied,
                    Some(io::ErrorKind::NotFound) => ErrorKind::NotFound,
                    Some(_) => ErrorKind::System,
                }
            }
            Self::Io(_) => ErrorKind::System,
            Self::TooLong { .. } => ErrorKind::TooLong,
            Self::Closed => ErrorKind::Closed,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Missing { .. } => ErrorKind::TimedOut,
            Self::Panicked => ErrorKind::Panicked,
        }
    }

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

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::TooLong => io::ErrorKind::InvalidInput,
            ErrorKind::NoInterface => io::ErrorKind::AddrNotAvailable,
            ErrorKind::AddressInUse => io::ErrorKind::AddrInUse,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Closed => io::ErrorKind::BrokenPipe,
            ErrorKind::Interrupted => io::ErrorKind::Interrupted,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::System | ErrorKind::Panicked => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn missing_text(joined: u32, missing: u32, refused: u64) -> String {
    let expected = joined + missing;
    let plural = if expected == 1 { "" } else { "s" };
    let mut text = format!("{joined} of {expected} receiver{plural} joined");
    if refused > 0 {
        text += &format!("; refusals of receivers: {refused}");
    }
    text
}
