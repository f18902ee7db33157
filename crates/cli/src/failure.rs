//! How a command ends, with its exit code.

use std::{fmt, io, path::Path, process::ExitCode};

use towline::text::printable_lines;

/// The outcome of a command that was able to do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// The work is done, and proven where the command promises proof.
    Done,
    /// Something was not delivered or not proven, or a check found something. The report says what.
    Finding,
    /// A signal ended the command before it was done. The report says how far it came.
    Interrupted,
}

impl Verdict {
    /// Makes [`Verdict::Done`] when `is_fine`, else [`Verdict::Finding`].
    pub(crate) const fn of(is_fine: bool) -> Self {
        if is_fine { Self::Done } else { Self::Finding }
    }

    /// Makes [`Verdict::Interrupted`] when a signal has cut the session short, else the verdict of
    /// [`Verdict::of`].
    pub(crate) const fn of_session(is_interrupted: bool, is_fine: bool) -> Self {
        if is_interrupted {
            Self::Interrupted
        } else {
            Self::of(is_fine)
        }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::SUCCESS,
            Verdict::Finding => Self::FAILURE,
            Verdict::Interrupted => Self::from(EXIT_INTERRUPTED),
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The flags do not fit together or have no meaning; the text says how to correct them.
    Usage(String),
    /// The machine refused an operation; the text names the operation, its target, the cause and a
    /// remedy.
    Environment(String),
    /// The reader of the output closed it early; this counts as success.
    PipeClosed,
}

impl Failure {
    /// Makes the failure of a command that was given wrong flags or arguments.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Makes the failure of an `operation` that the machine refused.
    pub(crate) fn environment(operation: &str, cause: &impl fmt::Display) -> Self {
        Self::Environment(format!("{operation}: {cause}"))
    }

    /// Makes the failure of an `operation` that the system refused, with the usual remedy.
    pub(crate) fn system(operation: &str, error: &io::Error) -> Self {
        Self::environment(operation, &sys::with_usual_remedy(error))
    }

    /// Makes the failure of starting a thread; `for_what` says what the thread would do, as in
    /// "that reads standard input".
    pub(crate) fn thread(for_what: &str, error: &io::Error) -> Self {
        Self::Environment(format!(
            "starting a thread {for_what}: {error}; {}",
            sys::THREAD_REMEDY
        ))
    }

    /// Prints the text and returns the exit code.
    #[expect(clippy::print_stderr, reason = "the log goes to standard error")]
    pub(crate) fn tell(&self) -> ExitCode {
        match self {
            Self::PipeClosed => ExitCode::SUCCESS,
            Self::Usage(_) | Self::Environment(_) => {
                eprintln!("error: {}", printable_lines(&self.to_string()));
                ExitCode::from(2)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PipeClosed => f.write_str("the reader of the output has closed it"),
            Self::Usage(text) | Self::Environment(text) => f.write_str(text),
        }
    }
}

/// Makes the error text for a named file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound if path.is_absolute() => "; check the path",
        io::ErrorKind::NotFound => {
            "; check the path: relative paths start at the current \
                                    directory"
        }
        io::ErrorKind::PermissionDenied => "; let this user read it",
        io::ErrorKind::IsADirectory => "; name a file in it",
        _ => "",
    };
    let cause = sys::with_usual_remedy(error);
    format!("reading {}: {cause}{remedy}", path.display())
}

/// Makes the [`Failure`] of a command that could not write its output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::system("writing the output", &error)
        }
    }
}

/// The exit code that shells give for a program that Ctrl-C has ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
