//! A program that runs until it is stopped, and its output.

use std::{os::unix::process::CommandExt as _, process::Command, time::Duration};

use crate::program::Running;

/// A started program.
#[derive(Debug)]
pub(super) struct Listener(Running);

impl Listener {
    /// Starts it; its output is small enough for a pipe.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        // A process group of its own, so that a stop reaches all of it, as from a terminal.
        Running::start(command.process_group(0)).map(Self)
    }

    /// Stops it, as Ctrl-C does, and returns all its output.
    pub(super) fn interrupt(self) -> Result<String, String> {
        let told = self.signal("-INT").status();
        told.map_err(|error| format!("kill: {error}"))?;
        self.finish(END_LIMIT)
    }

    /// Waits for its own end; its output counts, however it ended.
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
            // It fails only when all its processes have ended already.
            drop(self.signal("-KILL").status());
        }
    }
}

const END_LIMIT: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
