//! The receiving face for frames.

use base::{Instant, Io as _};
use delivery::frames::{FrameCounts, FrameReceiverConfig};
use driver::{FrameSink, Left, Turn};

use crate::{
    Allowed, Error, Snapshot,
    session::{Count, End, LEAVE_POLL, OwnName, SessionBuilder, face},
};

/// A receiver of frames. Each frame comes whole and before its deadline, in order, or is reported
/// as lost, with the cause.
///
/// **Cost**: one copy of each packet, into the memory of its frame.
pub struct FrameSubscriber {
    end: End<driver::FrameSubscriber>,
    /// The latest time at which leaving ends, once it has begun.
    leave_by: Option<Instant>,
    /// The name that the subscriber made, because it was given none.
    #[expect(dead_code, reason = "it is there to be dropped")]
    own_name: Option<OwnName>,
}

impl FrameSubscriber {
    /// Opens a receiving session; `config` bounds what the receiver keeps.
    ///
    /// # Errors
    /// When parameters contradict each other, when the interface cannot be used, or when the system
    /// refuses.
    pub fn open(session: &SessionBuilder, config: FrameReceiverConfig) -> Result<Self, Error> {
        let (mut opened, receiving) = session.open_receiving()?;
        let (reporter, own_name) = session.reporter()?;
        let now = opened.io.now();
        let endpoint = driver::FrameSubscriber::open(&receiving, config, reporter, now);
        Ok(Self {
            end: opened.end(endpoint, receiving.protection(session.key.clone())),
            leave_by: None,
            own_name,
        })
    }

    /// Takes frames only from these senders, as [`crate::Subscriber::take_only`] does.
    pub fn take_only(&mut self, allowed: impl IntoIterator<Item = Allowed>) {
        if let Some(admission) = Allowed::admission(allowed) {
            self.end.driver.endpoint.admit_only(admission);
        }
    }

    /// Does what is due, and passes frames and events to `sink`, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn<S: FrameSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        let drops = self.end.driver.io.counters().kernel_drops;
        self.end.driver.endpoint.set_host_drops(drops);
        self.end.turn(sink)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Returns what became of the frames of a session that is not over.
    #[must_use]
    pub fn counts(&self, session: u32) -> Option<&FrameCounts> {
        self.end.driver.endpoint.frames().counts(session)
    }

    /// Gives `sink` all whole frames, leaves all sessions and tells their senders. A frame that
    /// could still come in time counts neither as whole nor as lost.
    ///
    /// **Blocks** for at most 1 s, when a sender does not take the last messages.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close<S: FrameSink + ?Sized>(&mut self, sink: &mut S) -> Result<(), Error> {
        let now = self.now();
        let until = now + driver::Subscriber::LEAVE_TIME_MAX;
        let until = *self.leave_by.get_or_insert(until);
        self.end.driver.endpoint.close(now, until, sink);
        loop {
            self.turn(&mut Deaf)?;
            let now = self.end.driver.now();
            if self.is_closed() || now >= until {
                return Ok(());
            }
            self.end.wait(Some((now + LEAVE_POLL).min(until)));
        }
    }

    /// Returns true when this end has left, and every sender was told or did not listen in time.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self.end.driver.endpoint.left() {
            Some(Left::Told) => self.end.is_told(),
            Some(Left::TimedOut) => true,
            None => false,
        }
    }
}

face!(FrameSubscriber);

impl Count for driver::FrameSubscriber {
    fn drops(&self) -> Option<&base::DropCounters> {
        Some(self.drops())
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.frames().counters());
        snapshot.add(self.receiver().counters());
        if let Some(reporter) = self.reporter() {
            snapshot.add(reporter.counters());
        }
    }
}

/// A sink that ignores what comes after this end has left.
struct Deaf;

impl FrameSink for Deaf {
    fn frame(&mut self, _event: &delivery::frames::FrameEvent<'_>) {}

    fn event(&mut self, _event: driver::SessionEvent) {}
}
