//! The errors of the library.

use std::{fmt, io};

use base::IoFault;
use net::{InterfaceError, Remedy, SystemError};
use pgm::ConfigError;

/// An error of opening or using a session. The text names the operation, the target, the cause and,
/// where one is known, the remedy. Programs decide by [`Error::kind`].
///
/// `{:?}` writes the same text, so that a `main` that returns the error prints it for people;
/// `{:#?}` writes its kind and its text.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// The protocol parameters contradict each other, or are out of range.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// An option of a session cannot have this value.
    #[error("{name}: {problem}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// What is wrong with the value.
        problem: String,
    },
    /// There is no usable interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// The system refused an operation.
    #[error("{0}")]
    System(#[from] SystemError),
    /// The sockets cannot be used any more.
    #[error("{0}")]
    Io(#[from] IoFault),
    /// The message or frame is too long, or the frame has no bytes. It was not taken, and the
    /// session goes on.
    #[error("{}", too_long_text(*max, parameter))]
    TooLong {
        /// The most bytes that the message or frame may have; 0 when the frame has no bytes.
        max: usize,
        /// The protocol parameter, or the setting of the publisher, that sets the limit `max`.
        parameter: &'static str,
    },
    /// The session was closed.
    #[error("the session was closed; open a new one")]
    Closed,
    /// The caller stopped the wait.
    #[error("the wait was interrupted")]
    Interrupted,
    /// Expected receivers did not join in time.
    #[error("{}", missing_text(*joined, *missing, *refused))]
    Missing {
        /// How many expected receivers have joined.
        joined: u32,
        /// How many expected receivers have not joined.
        missing: u32,
        /// How often receivers were refused for their name or their key. The events name these
        /// receivers and the reasons.
        refused: u64,
    },
    /// The session's thread panicked: a fault of this library.
    #[error(
        "the session's thread panicked, which is a fault of this library; open a new session, and \
         report the text that the thread left on standard error"
    )]
    Panicked,
}

/// The kinds of [`Error`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request makes no sense, contradicts itself, or breaks a rule of this library.
    InvalidInput,
    /// No interface can be used.
    NoInterface,
    /// Another socket has the address and port.
    AddressInUse,
    /// The process has no permission for the operation.
    PermissionDenied,
    /// There is no such file or directory.
    NotFound,
    /// Anything else that the system refused.
    System,
    /// A message or frame is too long, or a frame has no bytes.
    TooLong,
    /// The session is over.
    Closed,
    /// The caller stopped the wait.
    Interrupted,
    /// The awaited event did not happen in time.
    TimedOut,
    /// A thread panicked.
    Panicked,
}

impl Error {
    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) | Self::Option { .. } => ErrorKind::InvalidInput,
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

    /// Says what failed and why: the text without its remedy.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Interface(error) => error.problem(),
            Self::System(error) => error.problem(),
            other => other.to_string(),
        }
    }

    /// Says what the user can do about the error, where that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Interface(error) => error.remedy(),
            Self::System(error) => error.remedy().cloned(),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("text", &self.to_string())
            .finish()
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

/// Makes the text of the error for a message or frame that cannot be sent. `max` is 0 only when a
/// frame has no bytes.
fn too_long_text(max: usize, parameter: &str) -> String {
    match max {
        0 => "a frame must have at least one byte".to_owned(),
        _ => {
            let what = match parameter {
                "frame_bytes_max" => "frame",
                _ => "message",
            };
            format!(
                "the {what} is longer than the {max} bytes that can be sent; send shorter ones, or \
                 raise `{parameter}`"
            )
        }
    }
}

fn missing_text(joined: u32, missing: u32, refused: u64) -> String {
    let expected = joined + missing;
    let plural = if expected == 1 { "" } else { "s" };
    let mut text = format!("{joined} of {expected} receiver{plural} joined in time");
    text += &match refused {
        0 => "; start the missing ones, or allow more time".to_owned(),
        _ => format!(
            "; receivers were refused for their name or their key: correct it there (refusals: \
             {refused})"
        ),
    };
    text
}
