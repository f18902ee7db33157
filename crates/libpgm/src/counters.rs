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
    Snapshot,
    counters::{CounterServer, CounterSlot},
};

use crate::socket::without_signals;

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

    pub(crate) const fn is_open(&self) -> bool {
        self.place.is_some()
    }

    /// Shows the counters that `fill` adds, unless others were shown just before. Returns how long
    /// it is then until the next call is due; `None` when these are shown.
    pub(crate) fn show(&mut self, fill: impl FnOnce(&mut Snapshot)) -> Option<Duration> {
        let (slot, _) = self.place.as_ref()?;
        let now = Instant::now();
        let early = self.due.saturating_duration_since(now);
        if !early.is_zero() {
            return Some(early);
        }
        if !slot.publish(fill) {
            // A reader copies the last values at this moment.
            return Some(TICK);
        }
        self.due = now + TICK;
        None
    }
}

/// The server, and how many sessions use it.
#[derive(Debug)]
struct Served {
    users: usize,
    server: Option<CounterServer>,
}

static SERVED: Mutex<Served> = Mutex::new(Served {
    users: 0,
    server: None,
});

fn served() -> MutexGuard<'static, Served> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that uses the server, which ends with its last user.
#[derive(Debug)]
struct User;

impl User {
    fn new(role: &str, name: &str) -> io::Result<(CounterSlot, Self)> {
        let mut served = served();
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
        Ok((slot, Self))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut served = served();
        served.users -= 1;
        if served.users == 0 {
            // Another session must find no server, or a whole one, so the lock is held meanwhile.
            served.server = None;
        }
    }
}

/// The least time between two sets of values of a session.
const TICK: Duration = Duration::from_millis(100);
