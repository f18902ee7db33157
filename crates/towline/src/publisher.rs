//! The sending face of the library: messages to everyone in a group.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::{AudienceConfig, AudienceEvent, Policy, RateCause};
use driver::{Ended, Turn};
use pgm::Full;

use crate::{
    Error, Snapshot,
    session::{Count, End, SessionBuilder, face},
    trace,
};

mod closed;
pub use closed::Closed;

mod receivers;
pub use receivers::ReceiverStatus;

/// How a [`Publisher`] is to be.
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    session: SessionBuilder,
    policy: Policy,
    expected: u32,
    stall_timeout: Option<Duration>,
}

impl PublisherBuilder {
    /// A publisher on `session` with every default: a slow receiver holds the others back, and no
    /// receiver is waited for.
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

    /// Keeps every message until this many receivers have joined: none leaves before. Default 0:
    /// whoever joins later misses what was sent before.
    #[must_use]
    pub const fn expect_receivers(mut self, count: u32) -> Self {
        self.expected = count;
        self
    }

    /// Gives a receiver up that has been behind for this long without progress; under
    /// [`Policy::Drop`] one that has been behind, or has held the others back, for this long
    /// though it makes progress. Default: never, under [`Policy::Drop`] 2 s.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = timeout.into();
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(self) -> Result<Publisher, Error> {
        let (mut opened, sending) = self.session.open_sending()?;
        let mut config = AudienceConfig::new(sending.identity.session_id);
        config.key.clone_from(&self.session.key);
        config.policy = self.policy;
        config.expected = self.expected;
        config.stall_timeout = self.stall_timeout;
        let now = opened.io.now();
        let mut endpoint = driver::Publisher::open(&sending, config, now);
        endpoint.keep_for_expected();
        Ok(Publisher {
            end: opened.end(endpoint),
            pace: Pace {
                waiting: 0,
                turned_at: now,
                left_at: now,
                row: 0,
            },
            closing: None,
        })
    }
}

/// Sends messages.
///
/// A message leaves in the call that takes it when the line is quiet. In a long row of messages
/// without pauses, several share a system call: the last ones leave with the next call, at the
/// latest with [`Publisher::flush`].
///
/// Whoever asks for a repair, or joins, is served by the next call too. So a program that has
/// nothing to send calls [`Publisher::turn`] when its descriptor is readable; one that does not
/// come back for long hands the publisher to a thread of its own, [`crate::PublisherThread`].
///
/// Dropped without [`Publisher::close`], it breaks the session off: what was not sent never will
/// be, and receivers are told at once.
pub struct Publisher {
    end: End<driver::Publisher>,
    pace: Pace,
    /// The position after the last packet, and the deadline, once the end has begun.
    closing: Option<(u64, Instant)>,
}

/// When a publisher looks up from the messages that it takes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Messages taken since the network was given the last ones.
    waiting: u32,
    /// When NAKs and reports were looked at last.
    turned_at: Instant,
    /// When a message was last seen off, or left waiting.
    left_at: Instant,
    /// Messages that came one upon the other.
    row: u32,
}

/// The receiver that sets a session's rate, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSetter<'a> {
    /// The receiver's name.
    pub receiver: &'a str,
    /// What is in short supply there.
    pub cause: RateCause,
}

/// Whether a message was taken. Nothing is lost when it was not: offer it again later.
#[must_use = "a message that was not taken is to be offered again"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Takes a message if there is room, without waiting. It leaves at once when none has left
    /// within the parameter `cork`; otherwise a turn sends it when that has passed.
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
                    self.pace.waiting += 1;
                    if self.end.driver.endpoint.has_full_run(len) {
                        self.turn()?;
                    } else if self.pace.waiting <= LOOKS_AT_ONCE {
                        // A stream fills its runs by itself, sooner than a clock would tell.
                        self.send_due()?;
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

    /// Sends what waits no longer for company; now and then looks at NAKs and reports too.
    fn send_due(&mut self) -> Result<(), Error> {
        let now = self.end.now();
        if !self.end.driver.endpoint.has_due(now) {
            return Ok(());
        }
        // First, so that what arrived meanwhile does not hold it up.
        self.pace.waiting = 0;
        self.end.driver.send_ready();
        if now.since(self.pace.turned_at) >= TURN_AFTER {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes a message, waiting for room as long as it takes. It leaves at once, except in a row of
    /// more than 32 messages less than 10 us apart.
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.try_send(message)? != SendStatus::Taken {
            self.wait(None);
        }
        if self.pace.waiting > 0 && (self.pace.row < ROW_MAX || self.pace.is_look_due()) {
            self.see_off();
        }
        Ok(())
    }

    /// Sends what waits for company, unless messages come one upon the other: its owner may not
    /// come back for long.
    fn see_off(&mut self) {
        let now = self.end.now();
        let is_in_row = now.since(self.pace.left_at) < ROW_GAP;
        self.pace.left_at = now;
        self.pace.row = if is_in_row { self.pace.row + 1 } else { 0 };
        if self.pace.row < ROW_MAX {
            self.send_ready();
            self.pace.left_at = self.end.now();
        }
    }

    /// Sends what was taken, waiting until the last packet has left: as long as it takes, which may
    /// be for ever while receivers that are expected do not come.
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
        let turn = self.end.turn(&mut ())?;
        self.pace.waiting = 0;
        self.pace.turned_at = self.end.driver.now();
        Ok(turn)
    }

    /// Sends what was taken, without looking at NAKs and reports: these wait for the next turn,
    /// which is due soon. The shortest way out for a message on its own.
    pub fn send_ready(&mut self) {
        self.pace.waiting = 0;
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
    /// [`Error::Missing`] with how many came, or sockets beyond use.
    pub fn wait_for_receivers(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let until = timeout.map(|timeout| self.now() + timeout);
        while !self.end.driver.endpoint.audience().has_expected() {
            self.turn()?;
            if until.is_some_and(|until| self.end.driver.now() >= until) {
                let audience = self.end.driver.endpoint.audience();
                return Err(Error::Missing {
                    joined: audience.joined(),
                    missing: audience.missing(),
                    refused: audience.counters().refused,
                });
            }
            self.end.wait(until);
        }
        Ok(())
    }

    /// Ends the session in good order: everything is sent, the receivers that are expected and all
    /// who report have been given it or are gone, and the end is announced. What is not confirmed
    /// within `timeout` is broken off, and receivers are told.
    ///
    /// **Blocks** at most for `timeout`, and for a second more to break off at a low rate. Where
    /// receivers can report and none does, the end is announced for the parameter `linger` if one
    /// ever sent a NAK, else for half a second. A session that takes no reports announces it for
    /// `linger`.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close(&mut self, timeout: Duration) -> Result<Closed, Error> {
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
        may_wait: impl FnMut() -> bool,
    ) -> Result<Closed, Error> {
        self.begin_close(timeout);
        self.end_while(may_wait)
    }

    /// Ends a session that had more to say: what was taken is delivered as by
    /// [`Publisher::close_while`], and then receivers are told that the session is broken off. None
    /// of them takes that for a good end, and it is never complete.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn break_off_while(
        &mut self,
        timeout: Duration,
        may_wait: impl FnMut() -> bool,
    ) -> Result<Closed, Error> {
        let now = self.now();
        let deadline = now + timeout;
        self.closing.get_or_insert((self.lead(), deadline));
        self.end.driver.endpoint.break_off(now, deadline);
        self.end_while(may_wait)
    }

    /// As [`Publisher::break_off_while`], as long as `timeout` allows.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn break_off(&mut self, timeout: Duration) -> Result<Closed, Error> {
        self.break_off_while(timeout, || true)
    }

    /// Breaks the session off at once, for an owner who has messages left: nobody has everything.
    pub(crate) fn cut_short(&mut self) -> Result<Closed, Error> {
        self.closing = Some((u64::MAX, self.now()));
        self.break_off(Duration::ZERO)
    }

    /// Waits for the end that has begun.
    fn end_while(&mut self, mut may_wait: impl FnMut() -> bool) -> Result<Closed, Error> {
        loop {
            self.turn()?;
            if let Some(closed) = self.closed() {
                return Ok(closed);
            }
            if may_wait() {
                let now = self.end.driver.now();
                self.end.wait(Some(now + CLOSE_POLL));
            } else {
                self.begin_close(Duration::ZERO);
            }
        }
    }

    /// Begins what [`Publisher::close`] does, without waiting: further turns do it, and
    /// [`Publisher::closed`] says when it is done. Called again it brings the deadline nearer, with
    /// zero to break the session off.
    pub fn begin_close(&mut self, timeout: Duration) {
        let now = self.now();
        let lead = self.lead();
        let (end, deadline) = self.closing.unwrap_or((lead, now + timeout));
        self.closing = Some((end, deadline.min(now + timeout)));
        self.end.driver.endpoint.close(now, now + timeout);
    }

    /// How the session has ended; `None` while it goes on or is being closed.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let ended = self.end.driver.endpoint.ended()?;
        let (end, _) = self.closing?;
        // A deadline that cuts the announcement short takes nothing from anybody who is known.
        let is_complete = matches!(ended, Ended::Confirmed | Ended::Hurried);
        let audience = self.end.driver.endpoint.audience();
        Some(Closed::new(is_complete, audience, end))
    }

    /// True when the session has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.end.driver.endpoint.ended().is_some()
    }

    /// The next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
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

    /// One past the position of the newest packet that the source has taken, sent or not.
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
        let audience = self.end.driver.endpoint.audience();
        let limit = audience.rate_limit()?;
        let mut all = audience.receivers();
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

    /// The receivers that report, and how far they are.
    pub fn receivers(&self) -> impl Iterator<Item = ReceiverStatus> {
        let audience = self.end.driver.endpoint.audience();
        audience.receivers().map(ReceiverStatus::of)
    }

    /// How many receivers report.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        self.end.driver.endpoint.audience().receiver_count()
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
        snapshot.add(self.audience().counters());
        snapshot.set_receivers(self.audience().receiver_count());
        let behind = self.audience().receivers().map(|receiver| receiver.behind);
        if let Some(behind) = behind.max() {
            snapshot.set_behind(behind);
        }
    }
}

impl Pace {
    /// Whether it is time to look at the clock: at once while little waits, for every few messages
    /// in a stream, whose runs fill up by themselves.
    #[inline]
    const fn is_look_due(self) -> bool {
        self.waiting <= LOOKS_AT_ONCE || self.waiting.is_multiple_of(LOOKS_APART)
    }
}

impl Drop for Publisher {
    /// Tells receivers that the session is broken off, unless it was closed. An end that has begun
    /// is cut short.
    fn drop(&mut self) {
        if self.is_closed() {
            return;
        }
        let now = self.now();
        let until = now + FAREWELL_MAX;
        match self.closing {
            Some(_) => self.begin_close(Duration::ZERO),
            None => {
                self.closing = Some((self.lead(), now));
                self.end.driver.endpoint.break_off(now, now);
            }
        }
        // Receivers that miss the announcement forget the session when nothing more comes.
        while let Ok(_) = self.turn()
            && !self.is_closed()
            && self.end.driver.now() < until
        {
            self.end.wait(Some(until));
        }
    }
}

/// Messages that wait before the clock is read for some of the following only.
const LOOKS_AT_ONCE: u32 = 8;
const LOOKS_APART: u32 = 8;
/// So many messages in a row, less than so long apart, are a stream: they wait for company.
const ROW_MAX: u32 = 32;
const ROW_GAP: Duration = Duration::from_micros(10);
/// How long NAKs and reports may wait while messages leave.
const TURN_AFTER: Duration = Duration::from_micros(200);
/// How long a publisher that is dropped tells so.
const FAREWELL_MAX: Duration = Duration::from_millis(100);
/// Interval of checks whether to keep waiting for the end.
const CLOSE_POLL: Duration = Duration::from_millis(100);
