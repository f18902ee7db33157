//! Ctrl-C and SIGTERM. The first asks a command to end its session properly and to report what was
//! done so far. A second one, at least [`REPEAT`] later, ends the process at once.
//!
//! Signals within [`REPEAT`] after the first count as the same request. The command `timeout`
//! signals its child and then the child's group, and the second signal must not prevent the report.
//!
//! A signal sets a flag, and the kernel then ends a wait for packets that is under way. Every
//! command's loop looks at the flag at least once in [`TICK`](crate::cmd::TICK).

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sys::watch_end_requests;

use crate::failure::{EXIT_INTERRUPTED, Failure};

/// Whether the user wants the command to end.
#[derive(Debug)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    /// When the command first saw the request.
    seen: Cell<Option<Instant>>,
}

impl Interrupt {
    /// Takes over Ctrl-C and SIGTERM. Call this once, before the command waits for anything:
    /// without the call, a signal ends the process at once, without a report. The call starts no
    /// thread.
    pub(crate) fn install() -> Result<Self, Failure> {
        let is_requested = watch_end_requests(REPEAT, EXIT_INTERRUPTED)
            .map_err(|error| Failure::system("watching for signals", &error))?;
        Ok(Self {
            is_requested,
            seen: Cell::new(None),
        })
    }

    /// Returns true from the first signal on.
    pub(crate) fn is_requested(&self) -> bool {
        let is_requested = self.is_requested.load(Ordering::Relaxed);
        if is_requested && self.seen.get().is_none() {
            self.seen.set(Some(Instant::now()));
        }
        is_requested
    }

    /// Returns the flag that a signal sets, for code that waits where [`Interrupt::is_requested`]
    /// cannot be asked.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    /// Returns true when a signal came and [`FAREWELL`] has passed since the command saw it. Then
    /// the command no longer waits for receivers that have not answered the farewell.
    pub(crate) fn is_farewell_over(&self) -> bool {
        self.is_requested()
            && self
                .seen
                .get()
                .is_some_and(|seen| seen.elapsed() >= FAREWELL)
    }

    /// Sleeps until `time` has passed or a signal comes; returns true when the time has passed.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.is_requested() {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(crate::cmd::TICK));
        }
    }
}

/// How long the other ends may take to hear that this end leaves.
const FAREWELL: Duration = Duration::from_secs(2);

/// For this time after the first signal, a further signal does not count as a second request:
/// nobody presses Ctrl-C again that fast.
const REPEAT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(is_requested: bool, seen: Option<Instant>) -> Interrupt {
        Interrupt {
            is_requested: Arc::new(AtomicBool::new(is_requested)),
            seen: Cell::new(seen),
        }
    }

    #[test]
    fn the_farewell_begins_when_the_command_sees_the_signal() {
        let quiet = interrupt(false, None);
        assert!(!quiet.is_requested() && !quiet.is_farewell_over());
        assert!(quiet.sleep(Duration::ZERO));

        let fresh = interrupt(true, None);
        assert!(fresh.is_requested() && !fresh.is_farewell_over());
        assert!(!fresh.sleep(Duration::from_secs(3_600)));

        let old = interrupt(true, Instant::now().checked_sub(FAREWELL));
        assert!(old.is_farewell_over());
    }
}
