//! The type by which an application receives messages from all senders to a group.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use base::{Instant, Io as _};
use driver::{Left, MessageSink, SessionEvent, Turn};
use pgm::{Mode, Status};
use wire::pgm::Tsi;

use crate::{
    Allowed, Batch, Error, Received, Snapshot,
    session::{Count, End, LEAVE_POLL, OwnName, SessionBuilder, face},
    trace::Traced,
};

/// A receiver of messages, which come in order from each sender.
///
/// ```no_run
/// # fn main() -> Result<(), towline::Error> {
/// use towline::{Received, SessionBuilder, SessionEvent, Subscriber};
/// let session = SessionBuilder::new("239.192.0.1@lo:7500".parse()?);
/// let mut subscriber = Subscriber::open(&session)?;
/// while let Some(received) = subscriber.recv(None)? {
///     match received {
///         Received::Message { data, .. } => println!("{}", String::from_utf8_lossy(data)),
///         Received::Event(SessionEvent::Ended { .. }) => break,
///         Received::Event(event) => eprintln!("{event:?}"),
///     }
/// }
/// subscriber.close()?;
/// # Ok(())
/// # }
/// ```
///
/// **Cost**: [`Subscriber::recv`] copies each message once. [`Subscriber::turn`], with the caller's
/// own sink, does not copy messages that arrive in order.
pub struct Subscriber {
    end: End<driver::Subscriber>,
    batch: Batch,
    /// The time by which this end stops trying to tell senders that it leaves; `None` before it
    /// begins to leave.
    leave_by: Option<Instant>,
    /// The name that this subscriber made for itself, if the caller gave none. While this is kept,
    /// no other end of the process takes the name.
    #[expect(dead_code, reason = "it is there to be dropped")]
    own_name: Option<OwnName>,
}

impl Subscriber {
    /// Opens a receiving session.
    ///
    /// # Errors
    /// When parameters contradict each other, when the interface cannot be used, or when the system
    /// refuses.
    pub fn open(session: &SessionBuilder) -> Result<Self, Error> {
        let (mut opened, receiving) = session.open_receiving()?;
        let (reporter, own_name) = session.reporter()?;
        let now = opened.io.now();
        let endpoint = driver::Subscriber::open(&receiving, Mode::Sequence, reporter, now);
        Ok(Self {
            end: opened.end(endpoint, receiving.protection(session.key.clone())),
            batch: Batch::default(),
            leave_by: None,
            own_name,
        })
    }

    /// Takes messages only from senders whose addresses are in `allowed`, and ignores the packets
    /// of all others. Call this before the first turn: senders that were heard before the call are
    /// still taken. An address can be forged on a local network; only a key keeps forgers out. An
    /// empty list changes nothing.
    pub fn take_only(&mut self, allowed: impl IntoIterator<Item = Allowed>) {
        if let Some(admission) = Allowed::admission(allowed) {
            self.end.driver.endpoint.admit_only(admission);
        }
    }

    /// Lets each wait under load sleep for up to `at_most`, so that one turn takes many packets. A
    /// wait sleeps less when the kernel's buffer would fill too far meanwhile. The price is delay:
    /// messages and timers wait for the end of the sleep. Zero, the default, switches this off.
    pub fn coalesce(&mut self, at_most: Duration) {
        self.end.driver.io.coalesce(at_most);
    }

    /// Returns the next message or event, without waiting; if there is none, the reason.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn try_recv(&mut self) -> Result<Result<Received<'_>, Status>, Error> {
        if self.batch.is_empty() {
            self.batch.clear();
            turn(&mut self.end, &mut self.batch)?;
        }
        if self.batch.is_empty() {
            return Ok(Err(self.status()));
        }
        Ok(self.batch.pop().ok_or(Status::NoSender))
    }

    /// Waits for the next message or event; returns `None` if `timeout` passes first.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn recv(&mut self, timeout: Option<Duration>) -> Result<Option<Received<'_>>, Error> {
        let mut until = None;
        while self.batch.is_empty() {
            self.batch.clear();
            let turn = turn(&mut self.end, &mut self.batch)?;
            if !self.batch.is_empty() {
                break;
            }
            let now = self.end.driver.now();
            let end = *until.get_or_insert(timeout.map(|timeout| now + timeout));
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            if turn.is_idle() {
                self.end.wait(end);
            }
        }
        Ok(self.batch.pop())
    }

    /// Does what is due, and passes messages and events to `sink`, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn<S: MessageSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        turn(&mut self.end, sink)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Returns the reason why nothing can be received at the moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.end.driver.endpoint.receiver().status()
    }

    /// Returns the name of a session's sender ([`SessionBuilder::name`]); `None` before the sender
    /// has told it, after the sender has gone, and always for a sender that does not take reports.
    /// Another host chooses the name; in a session without a key, any host can do so. Pass the name
    /// through [`text::printable`] before a terminal sees it.
    ///
    /// [`text::printable`]: crate::text::printable
    #[must_use]
    pub fn sender_name(&self, session: u32) -> Option<&str> {
        self.end.driver.endpoint.sender_name(session)
    }

    /// Returns the sender of the session that a message or event names; `None` when that sender is
    /// gone.
    #[must_use]
    pub fn session(&self, session: u32) -> Option<SessionInfo> {
        let at = self.end.driver.endpoint.receiver().position(session)?;
        Some(SessionInfo {
            tsi: at.tsi,
            source: at.source,
        })
    }

    /// Leaves all sessions and tells their senders, so that these no longer wait for this receiver.
    ///
    /// **Blocks** until the senders have taken the last reports, for at most 1 s.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close(&mut self) -> Result<(), Error> {
        self.begin_close();
        let mut ignored = Batch::default();
        loop {
            ignored.clear();
            turn(&mut self.end, &mut ignored)?;
            let now = self.end.driver.now();
            let until = self.leave_by.unwrap_or(now);
            if self.is_closed() || now >= until {
                return Ok(());
            }
            self.end.wait(Some((now + LEAVE_POLL).min(until)));
        }
    }

    /// Begins what [`Subscriber::close`] does, without waiting. Further turns carry it out, and
    /// [`Subscriber::is_closed`] says when it is done.
    pub fn begin_close(&mut self) {
        let now = self.now();
        let until = now + driver::Subscriber::LEAVE_TIME_MAX;
        self.leave_by.get_or_insert(until);
        self.end.driver.endpoint.close(now, until);
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

    /// Says when the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.end.next_timeout()
    }

    /// Prepares the descriptor for polling: it then also becomes readable when a timer is due.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

/// The sender of a session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The transport session identifier.
    pub tsi: Tsi,
    /// The address from which the session's packets come.
    pub source: IpAddr,
}

/// The senders of the sessions that events have named to the application.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: BTreeMap<u32, SessionInfo>,
    /// The session that the last event ended, if it ended one. It stays in `known` until the next
    /// event.
    gone: Option<u32>,
}

impl Sessions {
    pub(crate) fn note(&mut self, event: &SessionEvent) {
        if let Some(gone) = self.gone.take() {
            self.known.remove(&gone);
        }
        match *event {
            SessionEvent::Found {
                session,
                tsi,
                source,
            } => {
                self.known.insert(session, SessionInfo { tsi, source });
            }
            SessionEvent::Ended { session }
            | SessionEvent::Expired { session }
            | SessionEvent::Reset { session }
            | SessionEvent::Dropped { session, .. } => self.gone = Some(session),
            _ => {}
        }
    }

    pub(crate) fn of(&self, session: u32) -> Option<SessionInfo> {
        self.known.get(&session).copied()
    }
}

/// Makes one turn. First passes on how many packets the kernel has dropped: this end reports that
/// number to senders, so that they can adapt.
fn turn<S: MessageSink + ?Sized>(
    end: &mut End<driver::Subscriber>,
    sink: &mut S,
) -> Result<Turn, Error> {
    let drops = end.driver.io.counters().kernel_drops;
    end.driver.endpoint.set_host_drops(drops);
    end.turn(&mut Traced(sink))
}

face!(Subscriber);

impl Count for driver::Subscriber {
    fn drops(&self) -> Option<&base::DropCounters> {
        Some(self.drops())
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.receiver().counters());
        if let Some(reporter) = self.reporter() {
            snapshot.add(reporter.counters());
        }
    }
}
