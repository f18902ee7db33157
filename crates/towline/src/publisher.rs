//! The sending face of the library: messages to everyone in a group.

use std::time::Duration;

use base::{Instant, RunLimit};
use delivery::{Policy, RateConfig, Registry, RegistryConfig, RegistryEvent};
use driver::{PublisherSetup, Turn};
use pgm::{Full, Rate, Source};
use wire::pgm::Profile;

use crate::{
    Error, Snapshot,
    session::{Count, End, SessionBuilder, face, report_sqns},
};

/// How a [`Publisher`] is to be.
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    session: SessionBuilder,
    policy: Policy,
    expected: u32,
    stall_timeout: Option<Duration>,
}

impl PublisherBuilder {
    /// A publisher on `session` with every default: slow receivers hold it back, none is expected.
    #[must_use]
    pub const fn new(session: SessionBuilder) -> Self {
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
        // Who is slow slows nobody by the other policies, whatever it is slow for.
        let follows = opened.config.rate() == Rate::Auto && self.policy == Policy::Wait;
        config.rate = follows.then(RateConfig::default);
        let registry = Registry::new(config);
        let endpoint = driver::Publisher::new(PublisherSetup { source, registry });
        Ok(Publisher {
            end: opened.end(endpoint),
            bytes_since_turn: 0,
        })
    }
}

/// Sends messages. Every call does the session's work that is due, so a program that has nothing to
/// send calls [`Publisher::turn`] when its descriptor is readable, or hands the publisher
/// to a thread of its own with [`crate::PublisherThread`].
#[derive(Debug)]
pub struct Publisher {
    end: End<driver::Publisher>,
    /// Taken since the loop last ran.
    bytes_since_turn: usize,
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
    pub const fn builder(session: SessionBuilder) -> PublisherBuilder {
        PublisherBuilder::new(session)
    }

    /// Takes a message if there is room, without waiting.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Closed`], or sockets beyond use.
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        let parameter = self.message_limit().1;
        self.take(message.len(), parameter, |endpoint| {
            endpoint.offer(message).map(drop)
        })
    }

    /// The longest message that can be sent, in bytes, and the protocol parameter to raise for
    /// longer ones.
    #[must_use]
    pub const fn message_limit(&self) -> (usize, &'static str) {
        let source = self.end.driver.endpoint.source();
        (source.max_apdu(), source.apdu_limit())
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
        self.take(len, "mtu", |endpoint| {
            let mut slot = endpoint.source_mut().reserve(len)?;
            fill(slot.payload_mut());
            slot.commit();
            Ok(())
        })
    }

    /// Takes a message by `offer`, after a turn if there is no room before. `parameter` bounds its
    /// length.
    fn take(
        &mut self,
        len: usize,
        parameter: &'static str,
        mut offer: impl FnMut(&mut driver::Publisher) -> Result<(), Full>,
    ) -> Result<SendStatus, Error> {
        for is_retry in [false, true] {
            match offer(&mut self.end.driver.endpoint) {
                Ok(()) => {
                    let cost = len + MESSAGE_COST_BYTES;
                    self.bytes_since_turn += cost;
                    // A turn is worth its system calls when a full run waits: one more of the kind
                    // would have to leave in a run of its own.
                    if self.bytes_since_turn + cost > RunLimit::BYTES_MAX {
                        self.turn()?;
                    }
                    return Ok(SendStatus::Taken);
                }
                Err(Full::TooLong { max }) => return Err(Error::TooLong { max, parameter }),
                Err(Full::Closed) => return Err(Error::Closed),
                Err(Full::Window) if is_retry => break,
                Err(Full::Window) => {
                    self.turn()?;
                }
            }
        }
        let now = self.end.driver.now();
        let source = self.end.driver.endpoint.source();
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
            self.end.driver.endpoint.source_mut().uncork();
            self.turn()?;
            if self.end.driver.endpoint.source().is_drained() {
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
        self.end.turn(&mut ())
    }

    /// Sends what was taken, without looking at NAKs and reports: these wait for the next turn,
    /// which is due soon. The shortest way out for a message on its own.
    pub fn send_ready(&mut self) {
        self.bytes_since_turn = 0;
        self.end.driver.endpoint.source_mut().uncork();
        self.end.driver.send_ready();
    }

    /// Waits until something is due, at most until `until`. Returns at once when there is work.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Waits until as many receivers have joined as are expected.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with how many came, or sockets beyond use.
    pub fn wait_for_receivers(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let until = timeout.map(|timeout| self.now() + timeout);
        while !self.end.driver.endpoint.registry().has_expected() {
            self.turn()?;
            if until.is_some_and(|until| self.end.driver.now() >= until) {
                let count = self.end.driver.endpoint.registry().receiver_count();
                return Err(Error::TimedOut(format!(
                    "only {count} receivers have joined"
                )));
            }
            self.end.wait(until);
        }
        Ok(())
    }

    /// Ends the session in good order: everything is sent, reporting receivers have been given all
    /// of it or are gone, and the end is announced. Gives false when `timeout` came first: what was
    /// not confirmed by then is broken off, and receivers are told.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.close_while(timeout, || true)
    }

    /// As [`Publisher::close`], but only while `may_wait`, which is asked ten times a second and
    /// more. When it says no the session is broken off: what was not sent never will be, and
    /// receivers are told.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close_while(
        &mut self,
        timeout: Duration,
        mut may_wait: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let until = self.now() + timeout;
        let now = self.now();
        let end = self.end.driver.endpoint.source().lead();
        self.end.driver.endpoint.source_mut().close(now);
        let mut is_confirmed = false;
        // Receivers say good-bye when they have seen the end: they count as those who confirm.
        let has_reporters = self.end.driver.endpoint.registry().receiver_count() > 0;
        loop {
            self.turn()?;
            let source = self.end.driver.endpoint.source();
            let registry = self.end.driver.endpoint.registry();
            if !is_confirmed && source.is_drained() && registry.has_confirmed(end) {
                is_confirmed = true;
                let now = self.end.driver.now();
                self.end.driver.endpoint.end_reports(now);
                if has_reporters {
                    // Everyone who reports has everything: nobody is left to ask for repairs.
                    self.end
                        .driver
                        .endpoint
                        .source_mut()
                        .shorten_linger(now, CONFIRMED_LINGER);
                }
            }
            if self.end.driver.endpoint.source().is_over() {
                return Ok(is_confirmed);
            }
            let now = self.end.driver.now();
            let is_late = now >= until;
            if is_late || !may_wait() {
                if !is_confirmed {
                    self.break_off(now)?;
                }
                return Ok(is_confirmed && !is_late);
            }
            self.end.wait(Some(until.min(now + CLOSE_POLL)));
        }
    }

    /// Ends the session where it is, and tells receivers: they would wait for the rest until the
    /// session expires.
    fn break_off(&mut self, now: Instant) -> Result<(), Error> {
        self.end.driver.endpoint.source_mut().abort(now, 0, false);
        let spms = |publisher: &Self| publisher.end.driver.endpoint.source().counters().spms;
        let enough = spms(self) + BREAK_OFF_SPMS;
        let until = now + BREAK_OFF_TIME_MAX;
        // The rate limit holds these packets too.
        loop {
            self.turn()?;
            if spms(self) >= enough || self.now() >= until {
                return Ok(());
            }
            self.end.wait(Some(until));
        }
    }

    /// The next event about a receiver.
    pub fn pop_event(&mut self) -> Option<RegistryEvent> {
        self.end.driver.endpoint.pop_event()
    }

    /// The PGM source, to write messages in place.
    pub const fn source_mut(&mut self) -> &mut Source {
        self.end.driver.endpoint.source_mut()
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

face!(Publisher, driver::Publisher);

impl Count for driver::Publisher {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.source().counters());
        snapshot.add(self.drops());
        snapshot.add(self.registry().counters());
    }
}

/// What a message takes besides its own bytes: its PGM header.
const MESSAGE_COST_BYTES: usize = 24;
/// Between two looks at whether an end is still to be waited for.
const CLOSE_POLL: Duration = Duration::from_millis(100);
/// How long the end is still announced when every reporting receiver has confirmed everything.
const CONFIRMED_LINGER: Duration = Duration::from_millis(30);
/// How often receivers are told that a session was broken off: as often as at a good end.
const BREAK_OFF_SPMS: u64 = 3;
/// How long that may take under a rate limit.
const BREAK_OFF_TIME_MAX: Duration = Duration::from_secs(1);
