//! The receiving face of the library: messages of everyone who sends to a group.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use base::{Instant, Io as _};
use delivery::ReporterConfig;
use driver::{Left, MessageSink, SessionEvent, Turn};
use pgm::{Mode, Status};
use wire::pgm::Tsi;

use crate::{
    Batch, Error, Received, Snapshot,
    session::{Count, End, OwnName, SessionBuilder, face, random_u64},
    trace::Traced,
};

/// Receives messages, in order from each sender.
///
/// **Cost**: [`Subscriber::recv`] copies a message once; [`Subscriber::turn`] with a sink of the
/// caller's own copies none that arrive in order.
pub struct Subscriber {
    end: End<driver::Subscriber>,
    batch: Batch,
    /// When leaving is over at the latest, once it has begun.
    leave_by: Option<Instant>,
    /// The name it took for itself, where it was given none.
    #[expect(dead_code, reason = "it is there to be dropped")]
    own_name: Option<OwnName>,
}

impl Subscriber {
    /// Opens a receiving session.
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(session: &SessionBuilder) -> Result<Self, Error> {
        let (mut opened, receiving) = session.open_receiving()?;
        let own_name = match session.name {
            None if session.reports => Some(OwnName::take()),
            _ => None,
        };
        let reporter = if session.reports {
            let own = || own_name.as_ref().map(ToString::to_string);
            let name = session.name.clone().or_else(own).unwrap_or_default();
            let mut config = ReporterConfig::new(name, random_u64()?);
            config.key.clone_from(&session.key);
            Some(config)
        } else {
            None
        };
        let now = opened.io.now();
        let endpoint = driver::Subscriber::open(&receiving, Mode::Sequence, reporter, now);
        Ok(Self {
            end: opened.end(endpoint),
            batch: Batch::default(),
            leave_by: None,
            own_name,
        })
    }

    /// The next message or event if there is one, without waiting; else why there is none.
    ///
    /// # Errors
    /// Sockets beyond use.
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

    /// The next message or event, waiting at most `timeout`; `None` when that passed.
    ///
    /// # Errors
    /// Sockets beyond use.
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

    /// Does what is due and hands everything to `sink`, without waiting.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn<S: MessageSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        turn(&mut self.end, sink)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Why nothing can be received just now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.end.driver.endpoint.receiver().status()
    }

    /// Whose session a message or event belongs to, while the sender is there.
    #[must_use]
    pub fn session(&self, session: u32) -> Option<SessionInfo> {
        let at = self.end.driver.endpoint.receiver().position(session)?;
        Some(SessionInfo {
            tsi: at.tsi,
            source: at.source,
        })
    }

    /// Leaves every sender in good order: they are told, and no longer wait for this receiver.
    ///
    /// **Blocks** for a second at most, while a sender does not take the last words.
    ///
    /// # Errors
    /// Sockets beyond use.
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

    /// Begins what [`Subscriber::close`] does, without waiting: further turns do it, and
    /// [`Subscriber::is_closed`] says when it is done.
    pub fn begin_close(&mut self) {
        let now = self.now();
        let until = now + driver::Subscriber::LEAVE_TIME_MAX;
        self.leave_by.get_or_insert(until);
        self.end.driver.endpoint.close(now, until);
    }

    /// True when this end has left, and every sender was told or did not listen in time.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self.end.driver.endpoint.left() {
            Some(Left::Told) => self.end.is_told(),
            Some(Left::TimedOut) => true,
            None => false,
        }
    }

    /// When the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.end.next_timeout()
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

/// Whose session it is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its transport session identifier.
    pub tsi: Tsi,
    /// The address that its packets come from.
    pub source: IpAddr,
}

/// The sessions that the application knows.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: BTreeMap<u32, SessionInfo>,
    /// Whose end was the last event: known until the next.
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

/// One turn; what the kernel drops is reported, as the sender is to follow it.
fn turn<S: MessageSink + ?Sized>(
    end: &mut End<driver::Subscriber>,
    sink: &mut S,
) -> Result<Turn, Error> {
    let drops = end.driver.io.inner().counters().kernel_drops;
    end.driver.endpoint.set_host_drops(drops);
    end.turn(&mut Traced(sink))
}

face!(Subscriber);

impl Count for driver::Subscriber {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.receiver().counters());
        snapshot.add(self.drops());
        if let Some(reporter) = self.reporter() {
            snapshot.add(reporter.counters());
        }
    }
}

/// Interval of checks whether the sockets have taken the last messages.
const LEAVE_POLL: Duration = Duration::from_millis(5);
