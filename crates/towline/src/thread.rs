//! Sessions on their own threads. The application puts messages into bounded queues, or takes them
//! out, and the protocol's timers never wait for the application.
//!
//! ```text
//!   application --message--> Outgoing --> thread: Publisher  --> network
//!   application <--Batch----- queue <-- thread: Subscriber <-- network
//!                --emptied batches return by a second queue-->
//! ```
//!
//! When a publisher's queue is full, `send` waits. When a subscriber's queue is full, its thread
//! leaves packets in the socket. Its reports then show the sender that the receiver's position does
//! not move.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use driver::Turn;

use crate::Error;

mod publisher;
pub use publisher::PublisherThread;

mod subscriber;
pub use subscriber::SubscriberThread;

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<JoinHandle<Result<T, Error>>, Error> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| {
        let fault = net::SystemError::system("start", format!("the thread `{name}`"), &error);
        let fault = match error.kind() {
            std::io::ErrorKind::WouldBlock => fault.advise(net::THREAD_REMEDY),
            _ => fault,
        };
        fault.into()
    })
}

/// Waits until a thread that was told to end has ended.
fn finish<T>(thread: &mut Option<JoinHandle<Result<T, Error>>>) -> Result<T, Error> {
    let thread = thread.take().ok_or(Error::Closed)?;
    thread.join().unwrap_or(Err(Error::Panicked))
}

/// Returns the error with which a thread ended; [`Error::Closed`] if it ended without one.
fn reason<T>(thread: &mut Option<JoinHandle<Result<T, Error>>>) -> Error {
    finish(thread).err().unwrap_or(Error::Closed)
}

/// The times at which a thread shows the application the state of its session: soon after something
/// has happened, and at most 20 times a second.
#[derive(Debug, Default)]
struct Posted {
    at: Option<Instant>,
    has_news: bool,
}

impl Posted {
    /// Notes whether anything happened in a turn of the thread; returns true when the thread must
    /// show the state now.
    fn is_due(&mut self, turn: &Turn) -> bool {
        self.has_news |= !turn.is_idle() || self.at.is_none();
        let is_due = self.due_after().is_some_and(|after| after.is_zero());
        if is_due {
            *self = Self {
                at: Some(Instant::now()),
                has_news: false,
            };
        }
        is_due
    }

    /// Returns the time left until the state must be shown; `None` when nothing has happened since
    /// it was last shown.
    fn due_after(&self) -> Option<Duration> {
        let elapsed = self.at.map_or(POSTED_AGE_MAX, |at| at.elapsed());
        self.has_news
            .then(|| POSTED_AGE_MAX.saturating_sub(elapsed))
    }
}

/// The greatest age of the state that the application sees, while something happens.
const POSTED_AGE_MAX: Duration = Duration::from_millis(50);
