//! The counters of the program's sessions, which `towline top` and `towline stat PID` read.
//!
//! ```text
//!   thread of a session --Board::show--> CounterServer - DIR/PID.sock -- towline stat PID
//! ```
//!
//! The server runs while a socket is connected. A session shows new values at most every 100 ms,
//! and nothing while nothing happens.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use towline::{
    CounterInfo, CounterSet, Snapshot, Unit,
    counters::{CounterServer, CounterSlot},
};

use crate::socket::without_signals;

/// What this library counts itself. The engine counts everything else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageCounters {
    pub(crate) unfit_messages: u64,
}

impl CounterSet for MessageCounters {
    const NAME: &'static str = "libpgm";
    const DECLARED: &'static [CounterInfo] = &[CounterInfo {
        name: "unfit_messages",
        unit: Unit::Messages,
        help: "messages that no program is given: of no byte, or of too many",
    }];

    fn value(&self, index: usize) -> Option<u64> {
        (index == 0).then_some(self.unfit_messages)
    }
}

/// What became of a session's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Showing {
    Shown,
    /// Others were shown just before: the next call is due in this time.
    Early(Duration),
    /// They are shown nowhere.
    Nowhere,
}

impl Showing {
    /// Returns how long it is until the next call is due; `None` when none is.
    pub(crate) const fn early(self) -> Option<Duration> {
        match self {
            Self::Early(time) => Some(time),
            Self::Shown | Self::Nowhere => None,
        }
    }
}

/// The place where one session shows its counters.
#[derive(Debug)]
pub(crate) struct Board {
    place: Option<(CounterSlot, User)>,
    due: Instant,
}

impl Board {
    /// Opens the place of a session, and the server if it is the first one. Where the server cannot
    /// be opened, adds a warning, and the session shows its counters nowhere.
    pub(crate) fn open(role: &str, name: &str, warnings: &mut Vec<String>) -> Self {
        let place = User::new(role, name)
            .map_err(|error| {
                let cause = net::with_usual_remedy(&error);
                let text = format!("`towline top` cannot see this program: {cause}");
                if !warnings.contains(&text) {
                    warnings.push(text);
                }
            })
            .ok();
        Self {
            place,
            due: Instant::now(),
        }
    }

    /// Shows the counters that `fill` adds, unless others were shown just before.
    pub(crate) fn show(&mut self, fill: impl FnOnce(&mut Snapshot)) -> Showing {
        let Some((slot, _)) = &self.place else {
            return Showing::Nowhere;
        };
        let now = Instant::now();
        let early = self.due.saturating_duration_since(now);
        if !early.is_zero() {
            return Showing::Early(early);
        }
        if !slot.publish(fill) {
            // A reader copies the last values at this moment.
            return Showing::Early(TICK);
        }
        self.due = now + TICK;
        Showing::Shown
    }
}

/// The server, and how many sessions use it.
#[derive(Debug)]
struct Served {
    /// The process that the server is of.
    pid: u32,
    users: usize,
    server: Option<CounterServer>,
}

impl Served {
    /// Begins anew in a child of the process whose server this is: the child has no thread of it.
    fn begin(&mut self, pid: u32) {
        if self.pid != pid {
            // Dropping it would wait for that thread, and remove the parent's socket.
            std::mem::forget(self.server.take());
            self.users = 0;
            self.pid = pid;
        }
    }

    /// Counts a user of process `pid` out. The server ends with its last user.
    fn leave(&mut self, pid: u32) {
        if self.pid == pid {
            self.users -= 1;
            if self.users == 0 {
                self.server = None;
            }
        }
    }
}

static SERVED: Mutex<Served> = Mutex::new(Served {
    pid: 0,
    users: 0,
    server: None,
});

fn served() -> MutexGuard<'static, Served> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that uses the server.
#[derive(Debug)]
struct User {
    /// The process that the session is of.
    pid: u32,
}

impl User {
    fn new(role: &str, name: &str) -> io::Result<(CounterSlot, Self)> {
        let pid = std::process::id();
        let mut served = served();
        served.begin(pid);
        let server = match served.server.take() {
            Some(server) => server,
            None => {
                let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
                let command = words.collect::<Vec<_>>().join(" ");
                without_signals(|| CounterServer::start(&command))?
            }
        };
        let slot = server.slot(role, name);
        served.server = Some(server);
        served.users += 1;
        Ok((slot, Self { pid }))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // Another session must find no server, or a whole one, so the lock is held meanwhile.
        served().leave(self.pid);
    }
}

/// The least time between two sets of values of a session.
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_begins_without_its_parents_sessions() {
        let mut served = Served {
            pid: 1,
            users: 2,
            server: None,
        };
        served.begin(1);
        assert_eq!(served.users, 2);
        served.begin(7);
        assert_eq!((served.pid, served.users), (7, 0));
        served.users = 1;
        // A socket that the parent opened, and the child closes.
        served.leave(1);
        assert_eq!(served.users, 1);
        served.leave(7);
        assert_eq!(served.users, 0);
    }
}
