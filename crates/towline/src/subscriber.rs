//! The receiving face of the library: messages of everyone who sends to a group.

use std::{
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use base::{Instant, Io as _};
use delivery::{Reporter, ReporterConfig};
use driver::{Driver, MessageSink, SubscriberSetup, Turn};
use pgm::{Mode, Status};

use crate::{
    Batch, Error, Received, Snapshot,
    session::{Port, Session, random_u64},
};

/// Receives messages, in order from each sender.
///
/// **Cost**: [`Subscriber::recv`] copies a message once; [`Subscriber::turn`] with a sink of the
/// caller's own copies none that arrive in order.
#[derive(Debug)]
pub struct Subscriber {
    driver: Driver<Port, driver::Subscriber>,
    batch: Batch,
    warnings: Vec<String>,
    interface: String,
    local: std::net::IpAddr,
}

impl Subscriber {
    /// Opens a receiving session.
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(session: &Session) -> Result<Self, Error> {
        let (opened, receiver) = session.open_receiver(Mode::Sequence)?;
        let reporter = if session.reports && !opened.config.strict_pgm() {
            let config = ReporterConfig::new(session.name.clone(), random_u64()?);
            Some(Reporter::new(config))
        } else {
            None
        };
        let endpoint = driver::Subscriber::new(SubscriberSetup { receiver, reporter });
        Ok(Self {
            driver: Driver::new(opened.io, endpoint, opened.batch),
            batch: Batch::default(),
            warnings: opened.warnings,
            interface: opened.interface,
            local: opened.local,
        })
    }

    /// The next message or event if there is one, without waiting; else why there is none.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn try_recv(&mut self) -> Result<Result<Received<'_>, Status>, Error> {
        if self.batch.is_empty() {
            self.batch.clear();
            self.driver.turn(&mut self.batch)?;
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
            let turn = self.driver.turn(&mut self.batch)?;
            if !self.batch.is_empty() {
                break;
            }
            let now = self.driver.now();
            let end = *until.get_or_insert(timeout.map(|timeout| now + timeout));
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            if turn.is_idle() {
                self.driver.wait(end);
            }
        }
        Ok(self.batch.pop())
    }

    /// Does what is due and hands everything to `sink`, without waiting.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn<S: MessageSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        Ok(self.driver.turn(sink)?)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.driver.wait(until);
    }

    /// Why nothing can be received just now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.driver.endpoint.receiver().status()
    }

    /// Leaves every sender in good order: they are told, and no longer wait for this receiver.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.driver.endpoint.leave(now);
        let until = now + LEAVE_TIME_MAX;
        let mut ignored = Batch::default();
        loop {
            ignored.clear();
            self.driver.turn(&mut ignored)?;
            let is_told = self
                .driver
                .endpoint
                .reporter()
                .is_none_or(Reporter::is_idle);
            if is_told && self.driver.io.inner().links_unfinished() == 0
                || self.driver.now() >= until
            {
                return Ok(());
            }
            self.driver
                .wait(Some((self.driver.now() + LEAVE_POLL).min(until)));
        }
    }

    /// Things that work, but not as asked: one sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let late = std::iter::from_fn(|| self.driver.io.inner_mut().take_warning());
        self.warnings.extend(late);
        std::mem::take(&mut self.warnings)
    }

    /// The state machines, to look at.
    #[must_use]
    pub const fn endpoint(&self) -> &driver::Subscriber {
        &self.driver.endpoint
    }

    /// The session's clock.
    pub fn now(&mut self) -> Instant {
        self.driver.io.now()
    }

    /// When the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.driver.next_timeout()
    }

    /// The interface in use and our address on it.
    #[must_use]
    pub fn interface(&self) -> (&str, std::net::IpAddr) {
        (&self.interface, self.local)
    }

    /// A handle by which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<net::Waker, Error> {
        Ok(self.driver.io.inner().waker()?)
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        let due = self.driver.next_timeout();
        self.driver.io.inner_mut().arm(due);
    }

    /// Adds every counter of the session to a snapshot.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.driver.counters());
        snapshot.add(self.driver.endpoint.receiver().counters());
        snapshot.add(self.driver.endpoint.drops());
        if let Some(reporter) = self.driver.endpoint.reporter() {
            snapshot.add(reporter.counters());
        }
        snapshot.add(self.driver.io.inner().counters());
        snapshot.add(self.driver.io.counters());
    }
}

impl AsRawFd for Subscriber {
    /// One descriptor for everything: readable means "call [`Subscriber::turn`]", once
    /// [`Subscriber::arm`] was called.
    fn as_raw_fd(&self) -> RawFd {
        self.driver.io.inner().as_raw_fd()
    }
}

const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
const LEAVE_POLL: Duration = Duration::from_millis(5);
