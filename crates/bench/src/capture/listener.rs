//! A program that runs until it is stopped, such as a capture, and its output.

use std::{os::unix::process::CommandExt as _, process::Command, time::Duration};

use crate::program::Running;

/// A started program.
#[derive(Debug)]
pub(super) struct Listener(Running);

impl Listener {
    /// Starts the program. Its whole output must fit a pipe.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        // The program gets its own process group, so that a signal reaches all of its processes, as
        // from a terminal.
        Running::start(command.process_group(0)).map(Self)
    }

    /// Stops the program, as Ctrl-C does, and returns all its output.
    pub(super) fn interrupt(self) -> Result<String, String> {
        let told = self.signal("-INT").status();
        told.map_err(|error| format!("kill: {error}"))?;
        self.finish(END_LIMIT)
    }

    /// Waits until the program ends, and returns its output whatever its exit status.
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
            // The signal fails only when all processes have ended already.
            drop(self.signal("-KILL").status());
        }
    }
}

const END_LIMIT: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
