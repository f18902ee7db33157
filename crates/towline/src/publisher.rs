//! The sending face of the library: messages to everyone in a group.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::{Policy, RateCause, RegistryConfig, RegistryEvent};
use driver::{Ended, Turn};
use pgm::Full;

use crate::{
    Error, Snapshot,
    session::{Count, End, SessionBuilder, face},
    trace,
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

    /// Keeps every message until this many receivers have joined. Default 0: whoever joins later
    /// misses what was sent before.
    #[must_use]
    pub const fn receivers(mut self, count: u32) -> Self {
        self.expected = count;
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
        let (mut opened, sending) = self.session.open_sending()?;
        let mut config = RegistryConfig::new(sending.identity.session);
        config.key.clone_from(&self.session.key);
        config.policy = self.policy;
        config.expected = self.expected;
        config.stall_timeout = self.stall_timeout;
        let endpoint = driver::Publisher::open(&sending, config, opened.io.now());
        let end = opened.end(endpoint);
        Ok(Publisher { end })
    }
}

/// Sends messages. Every call does the session's work that is due, so a program that has nothing to
/// send calls [`Publisher::turn`] when its descriptor is readable, or hands the publisher
/// to a thread of its own with [`crate::PublisherThread`].
#[derive(Debug)]
pub struct Publisher {
    end: End<driver::Publisher>,
}

/// Who sets a session's rate, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSetter<'a> {
    /// The receiver's name.
    pub receiver: &'a str,
    /// What is in short supply there.
    pub cause: RateCause,
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
        self.take(len, "mtu", |endpoint| endpoint.offer_with(len, &mut fill))
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
                    if self.end.driver.endpoint.has_full_run(len) {
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
            self.end.driver.endpoint.uncork();
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
        self.end.turn(&mut ())
    }

    /// Sends what was taken, without looking at NAKs and reports: these wait for the next turn,
    /// which is due soon. The shortest way out for a message on its own.
    pub fn send_ready(&mut self) {
        self.end.driver.endpoint.uncork();
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
                let count = self.receiver_count();
                let plural = if count == 1 { "" } else { "s" };
                return Err(Error::TimedOut(format!(
                    "only {count} receiver{plural} joined"
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
        let now = self.now();
        let until = now + timeout;
        self.end.driver.endpoint.close(now, until);
        loop {
            self.turn()?;
            let now = self.end.driver.now();
            match self.end.driver.endpoint.ended() {
                Some(Ended::Confirmed) => return Ok(true),
                // Cut short by the owner it is confirmed all the same, by the deadline it is late.
                Some(Ended::Hurried) => return Ok(now < until),
                Some(Ended::Unconfirmed | Ended::BrokenOff) => return Ok(false),
                None if !may_wait() => self.end.driver.endpoint.close(now, now),
                None => self.end.wait(Some(now + CLOSE_POLL)),
            }
        }
    }

    /// The next event about a receiver.
    pub fn pop_event(&mut self) -> Option<RegistryEvent> {
        let event = self.end.driver.endpoint.pop_event()?;
        trace::receiver(&event);
        Some(event)
    }

    /// True when everything that was taken has left, and no repair waits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.end.driver.endpoint.source().is_drained()
    }

    /// The longest message that one packet holds, and [`Publisher::try_send_with`] takes, in bytes.
    #[must_use]
    pub const fn packet_limit(&self) -> usize {
        self.end.driver.endpoint.source().max_tsdu()
    }

    /// The position after the last packet that was taken.
    #[must_use]
    pub const fn lead(&self) -> u64 {
        self.end.driver.endpoint.source().lead()
    }

    /// The rate limit in bytes a second; 0 for none.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.end.driver.endpoint.source().rate()
    }

    /// Which receiver sets the rate; `None` while none does.
    #[must_use]
    pub fn rate_setter(&self) -> Option<RateSetter<'_>> {
        let registry = self.end.driver.endpoint.registry();
        let limit = registry.rate_limit()?;
        let mut all = registry.receivers();
        let receiver = all.find(|receiver| receiver.slot == limit.slot)?;
        Some(RateSetter {
            receiver: receiver.name,
            cause: limit.cause,
        })
    }

    /// How long the end of the session is announced where nobody reports.
    #[must_use]
    pub const fn linger(&self) -> Duration {
        self.end.driver.endpoint.source().config().linger()
    }

    /// How many receivers report.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        self.end.driver.endpoint.registry().receiver_count()
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

face!(Publisher);

impl Count for driver::Publisher {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.source().counters());
        snapshot.add(self.drops());
        snapshot.add(self.registry().counters());
        snapshot.set_receivers(self.registry().receiver_count());
    }
}

/// Between two looks at whether an end is still to be waited for.
const CLOSE_POLL: Duration = Duration::from_millis(100);
