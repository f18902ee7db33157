//! A program that runs until it is told to stop, and what it said.

use std::{os::unix::process::CommandExt as _, process::Command, time::Duration};

use crate::program::Running;

/// A started program.
#[derive(Debug)]
pub(super) struct Listener(Running);

impl Listener {
    /// Starts it; its output is small enough for a pipe.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        // A group of its own, to be told to stop as a terminal does: all of it.
        Running::start(command.process_group(0)).map(Self)
    }

    /// Tells it to stop, as Ctrl-C does, and gives all that it said.
    pub(super) fn interrupt(self) -> Result<String, String> {
        let told = self.signal("-INT").status();
        told.map_err(|error| format!("kill: {error}"))?;
        self.finish(END_LIMIT)
    }

    /// Waits for its own end; what it said counts, however it ended.
    pub(super) fn finish(mut self, limit: Duration) -> Result<String, String> {
        let (_, stdout, stderr) = self.0.collect(limit, LOOK_PAUSE)?;
        Ok(stdout + &stderr)
    }

    fn signal(&self, signal: &str) -> Command {
        let mut kill = Command::new("kill");
        kill.args([signal, "--", &format!("-{}", self.0.process())]);
        kill
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.0.is_running() {
            // It fails only when all of it has gone by itself meanwhile.
            drop(self.signal("-KILL").status());
        }
    }
}

const END_LIMIT: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
