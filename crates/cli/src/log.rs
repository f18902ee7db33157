//! With `--verbose`, what the library tells of its sessions: a line an event on standard error,
//! with the time where that is no terminal, as a journal or a file is read later.

use std::io::{self, IsTerminal as _, Write};

use tracing::Level;
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use crate::report::Progress;

/// Prints the library's events from here on: those of sessions at verbosity 1, also those of their
/// connections above that. Without this call the events go nowhere and cost nothing.
pub(crate) fn start(verbosity: u8, progress: &Progress) {
    let level = match verbosity {
        0 => return,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let progress = progress.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(move || Line(progress.clone()));
    if io::stderr().is_terminal() {
        lines.without_time().init();
    } else {
        lines.init();
    }
}

/// The time, in the form that events have.
pub(crate) fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    // A clock before 1970 has no form.
    written.map_or_else(|_| String::new(), |()| text)
}

/// Writes a line on standard error, around the bars that may be there.
struct Line(Progress);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
