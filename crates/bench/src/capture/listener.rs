//! A program that runs until it is told to stop, and what it said.

use std::{
    io::Read,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A started program.
#[derive(Debug)]
pub(super) struct Listener {
    child: Child,
    what: String,
}

impl Listener {
    /// Starts it; its output is small enough for a pipe.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let what = command.get_program().to_string_lossy().into_owned();
        // A group of its own, to be told to stop as a terminal does: all of it.
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{what}: {error}"))?;
        Ok(Self { child, what })
    }

    /// Tells it to stop, as Ctrl-C does, and gives all that it said.
    pub(super) fn interrupt(mut self) -> Result<String, String> {
        let group = format!("-{}", self.child.id());
        let told = Command::new("kill").args(["-INT", "--", &group]).status();
        told.map_err(|error| format!("kill: {error}"))?;
        self.collect(END_LIMIT)
    }

    /// Waits for its own end.
    pub(super) fn finish(mut self, limit: Duration) -> Result<String, String> {
        self.collect(limit)
    }

    fn collect(&mut self, limit: Duration) -> Result<String, String> {
        let end = Instant::now() + limit;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                return Err(format!("{}: not done in {limit:?}", self.what));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        // Something other than text is caught by its missing figures.
        if let Some(stream) = self.child.stdout.as_mut() {
            drop(stream.read_to_string(&mut text));
        }
        if let Some(stream) = self.child.stderr.as_mut() {
            drop(stream.read_to_string(&mut text));
        }
        Ok(text)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = format!("-{}", self.child.id());
            let mut kill = Command::new("kill");
            // It fails only when all of it has gone by itself meanwhile.
            drop(kill.args(["-KILL", "--", &group]).status());
        }
        drop(self.child.wait());
    }
}

const END_LIMIT: Duration = Duration::from_secs(20);
