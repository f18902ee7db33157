//! The library's events about its sessions, with `--verbose`: one line for each on standard error.
//! When standard error is not a terminal, each line begins with the time, because a file or a
//! journal is read later.

use std::io::{self, IsTerminal as _, Write};

use towline::text::printable_lines;
use tracing::Level;
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use crate::report::Progress;

/// Prints the library's events from here on: at verbosity 1 the events of sessions, and at a higher
/// verbosity also the events of their connections. Without this call the events go nowhere and cost
/// nothing.
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

/// Returns the present time as text, in the form in which event lines begin.
pub(crate) fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    // Writing into a `String` does not fail.
    written.map_or_else(|_| String::new(), |()| text)
}

/// A line on standard error. While it is printed, the bars, if there are any, are hidden.
struct Line(Progress);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let shown = printable_lines(&text);
        self.0
            .suspend(|| io::stderr().write_all(shown.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
