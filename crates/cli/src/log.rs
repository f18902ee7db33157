//! With `--verbose`, what the library tells of its sessions: a line an event on standard error,
//! with the time where that is no terminal, as a journal or a file is read later.

use std::io::{self, IsTerminal as _, Write};

use tracing::Level;

use crate::report::Progress;

/// Takes the library's events from here on: those of sessions for a verbosity of 1, those of their
/// connections too above. Without it nobody does, and they cost nothing.
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
