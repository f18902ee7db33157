//! The sending face of the library: messages to everyone in a group.

use std::{
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use base::{Instant, Io as _};
use delivery::{Policy, Registry, RegistryConfig, RegistryEvent};
use driver::{Driver, PublisherSetup, Turn};
use pgm::{Full, Source};
use wire::pgm::Profile;

use crate::{
    Error, Snapshot,
    session::{Port, Session, report_sqns},
};

/// How a [`Publisher`] is to be.
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    session: Session,
    policy: Policy,
    expected: u32,
    stall_timeout: Option<Duration>,
}

impl PublisherBuilder {
    /// A publisher on `session` with every default: slow receivers hold it back, none is expected.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self {
            session,
            policy: Policy::Wait,
            expected: 0,
            stall_timeout: None,
        }
    }

    /// What a receiver that is too slow may do.
    #[must_use]
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Keeps every message until this many receivers have joined.
    #[must_use]
    pub const fn expect(mut self, receivers: u32) -> Self {
        self.expected = receivers;
        self
    }

    /// Gives a receiver up that has been behind for this long without progress.
    #[must_use]
    pub const fn stall_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(self) -> Result<Publisher, Error> {
        let (opened, source, session_id) = self.session.open_source(Profile::Messages)?;
        let mut config = RegistryConfig::new(session_id);
        config.policy = self.policy;
        config.expected = self.expected;
        config.stall_timeout = self.stall_timeout;
        config.report_sqns = report_sqns(&opened.config, self.expected);
        let registry = Registry::new(config);
        let endpoint = driver::Publisher::new(PublisherSetup { source, registry });
        Ok(Publisher {
            driver: Driver::new(opened.io, endpoint, opened.batch),
            bytes_since_turn: 0,
            warnings: opened.warnings,
            interface: opened.interface,
            local: opened.local,
        })
    }
}

/// Sends messages. Every call does the session's work that is due, so a program that has nothing to
/// send calls [`Publisher::turn`] when [`Publisher::as_raw_fd`] is readable, or hands the publisher
/// to a thread of its own with [`crate::PublisherThread`].
#[derive(Debug)]
pub struct Publisher {
    driver: Driver<Port, driver::Publisher>,
    /// Taken since the loop last ran.
    bytes_since_turn: usize,
    warnings: Vec<String>,
    interface: String,
    local: std::net::IpAddr,
}

/// Why a message was not taken. Nothing is lost: offer it again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// It was taken and will be sent.
    Taken,
    /// The rate limit holds everything back until then.
    RateLimited {
        /// When to try again.
        until: Instant,
    },
    /// The window is held by receivers that are behind, or the socket is full.
    WouldBlock,
}

impl Publisher {
    /// Starts to describe a publisher.
    #[must_use]
    pub const fn builder(session: Session) -> PublisherBuilder {
        PublisherBuilder::new(session)
    }

    /// Takes a message if there is room, without waiting.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Closed`], or sockets beyond use.
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        self.take(message.len(), |endpoint| endpoint.offer(message).map(drop))
    }

    /// Takes a message of `len` bytes, at most one packet's worth, which `fill` writes where it
    /// will be sent from: one copy less than [`Publisher::try_send`].
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn try_send_with(
        &mut self,
        len: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<SendStatus, Error> {
        self.take(len, |endpoint| {
            let mut slot = endpoint.source_mut().reserve(len)?;
            fill(slot.payload_mut());
            slot.commit();
            Ok(())
        })
    }

    /// Takes a message by `offer`, after a turn if there is no room before.
    fn take(
        &mut self,
        len: usize,
        mut offer: impl FnMut(&mut driver::Publisher) -> Result<(), Full>,
    ) -> Result<SendStatus, Error> {
        for is_retry in [false, true] {
            match offer(&mut self.driver.endpoint) {
                Ok(()) => {
                    self.bytes_since_turn += len + MESSAGE_COST_BYTES;
                    if self.bytes_since_turn >= FLUSH_BYTES {
                        self.turn()?;
                    }
                    return Ok(SendStatus::Taken);
                }
                Err(Full::TooLong { max }) => return Err(Error::TooLong { max }),
                Err(Full::Closed) => return Err(Error::Closed),
                Err(Full::Window) if is_retry => break,
                Err(Full::Window) => {
                    self.turn()?;
                }
            }
        }
        let now = self.driver.now();
        let source = self.driver.endpoint.source();
        match source.next_timeout() {
            Some(until) if source.is_rate_limited(now) => Ok(SendStatus::RateLimited { until }),
            _ => Ok(SendStatus::WouldBlock),
        }
    }

    /// Takes a message, waiting for room as long as it takes.
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.try_send(message)? != SendStatus::Taken {
            self.wait(None);
        }
        Ok(())
    }

    /// Sends what was taken, waiting until the last packet has left.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn flush(&mut self) -> Result<(), Error> {
        loop {
            self.turn()?;
            if self.driver.endpoint.source().is_drained() {
                return Ok(());
            }
            self.wait(None);
        }
    }

    /// Does what is due, without waiting.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        self.bytes_since_turn = 0;
        Ok(self.driver.turn(&mut ())?)
    }

    /// Waits until something is due, at most until `until`. Returns at once when there is work.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.driver.wait(until);
    }

    /// Waits until as many receivers have joined as are expected.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with how many came, or sockets beyond use.
    pub fn wait_for_receivers(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let until = timeout.map(|timeout| self.now() + timeout);
        while !self.driver.endpoint.registry().has_expected() {
            self.turn()?;
            if until.is_some_and(|until| self.driver.now() >= until) {
                let count = self.driver.endpoint.registry().receiver_count();
                return Err(Error::TimedOut(format!(
                    "only {count} receivers have joined"
                )));
            }
            self.driver.wait(until);
        }
        Ok(())
    }

    /// Ends the session in good order: everything is sent, reporting receivers have been given all
    /// of it or are gone, and the end is announced. Gives false when `timeout` came first.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close(&mut self, timeout: Duration) -> Result<bool, Error> {
        let until = self.now() + timeout;
        let now = self.now();
        let end = self.driver.endpoint.source().lead();
        self.driver.endpoint.source_mut().close(now);
        let mut is_confirmed = false;
        // Receivers say good-bye when they have seen the end: they count as those who confirm.
        let has_reporters = self.driver.endpoint.registry().receiver_count() > 0;
        loop {
            self.turn()?;
            let source = self.driver.endpoint.source();
            let registry = self.driver.endpoint.registry();
            if !is_confirmed && source.is_drained() && registry.has_confirmed(end) {
                is_confirmed = true;
                let now = self.driver.now();
                self.driver.endpoint.end_reports(now);
                if has_reporters {
                    // Everyone who reports has everything: nobody is left to ask for repairs.
                    self.driver
                        .endpoint
                        .source_mut()
                        .shorten_linger(now, CONFIRMED_LINGER);
                }
            }
            if self.driver.endpoint.source().is_over() {
                return Ok(is_confirmed);
            }
            if self.driver.now() >= until {
                return Ok(false);
            }
            self.driver.wait(Some(until));
        }
    }

    /// The next event about a receiver.
    pub fn pop_event(&mut self) -> Option<RegistryEvent> {
        self.driver.endpoint.pop_event()
    }

    /// Things that work, but not as asked: one sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let late = std::iter::from_fn(|| self.driver.io.inner_mut().take_warning());
        self.warnings.extend(late);
        std::mem::take(&mut self.warnings)
    }

    /// The state machines, to look at.
    #[must_use]
    pub const fn endpoint(&self) -> &driver::Publisher {
        &self.driver.endpoint
    }

    /// The PGM source, to write messages in place.
    pub const fn source_mut(&mut self) -> &mut Source {
        self.driver.endpoint.source_mut()
    }

    /// The session's clock.
    pub fn now(&mut self) -> Instant {
        self.driver.io.now()
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
        snapshot.add(self.driver.endpoint.source().counters());
        snapshot.add(self.driver.endpoint.drops());
        snapshot.add(self.driver.endpoint.registry().counters());
        snapshot.add(self.driver.io.inner().counters());
        snapshot.add(self.driver.io.counters());
    }
}

impl AsRawFd for Publisher {
    /// One descriptor for everything: readable means "call [`Publisher::turn`]", once
    /// [`Publisher::arm`] was called.
    fn as_raw_fd(&self) -> RawFd {
        self.driver.io.inner().as_raw_fd()
    }
}

/// A turn is worth its system calls when a full run waits.
const FLUSH_BYTES: usize = 64_000;
/// What a message takes besides its own bytes: its PGM header.
const MESSAGE_COST_BYTES: usize = 24;
/// How long the end is still announced when every reporting receiver has confirmed everything.
const CONFIRMED_LINGER: Duration = Duration::from_millis(30);
