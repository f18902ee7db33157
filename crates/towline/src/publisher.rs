//! The type by which an application sends messages to all receivers of a group.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::{AudienceEvent, Policy, RateCause};
use driver::{Ended, Turn};
use pgm::{Census, Full};

use crate::{
    Error, Snapshot,
    session::{CLOSE_POLL, Count, End, FAREWELL_MAX, SessionBuilder, face},
    trace,
};

mod closed;
pub use closed::Closed;

mod receivers;
pub use receivers::ReceiverStatus;

/// The settings of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    session: SessionBuilder,
    policy: Policy,
    expected: u32,
    stall_timeout: Option<Duration>,
}

impl PublisherBuilder {
    /// Makes a publisher on `session` with the defaults: a slow receiver holds the others back, and
    /// no receiver is waited for.
    #[must_use]
    pub const fn new(session: SessionBuilder) -> Self {
        Self {
            session,
            policy: Policy::Wait,
            expected: 0,
            stall_timeout: None,
        }
    }

    /// Sets what happens when a receiver is too slow.
    #[must_use]
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sends no message before this many receivers have joined and reported. Default 0: a receiver
    /// that joins later misses what was sent before.
    #[must_use]
    pub const fn expect_receivers(mut self, count: u32) -> Self {
        self.expected = count;
        self
    }

    /// Gives up a receiver that has been behind for this long without progress. Under
    /// [`Policy::Drop`], also gives up a receiver that makes progress but has been behind, or has
    /// held the others back, for this long. Default: 300 s under [`Policy::Wait`], 2 s under
    /// [`Policy::Drop`], never under [`Policy::Lose`].
    #[must_use]
    pub fn stall_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = timeout.into();
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// When parameters contradict each other, when the interface cannot be used, or when the system
    /// refuses.
    pub fn open(self) -> Result<Publisher, Error> {
        let (mut opened, sending) = self.session.open_sending()?;
        let mut config = self.session.audience(&sending);
        config.policy = self.policy;
        config.expected = self.expected;
        config.stall_timeout = self.stall_timeout;
        let now = opened.io.now();
        let mut endpoint = driver::Publisher::open(&sending, config, now);
        endpoint.keep_for_expected();
        Ok(Publisher {
            end: opened.end(endpoint, sending.protection(self.session.key)),
            looks: LookTimes {
                waiting: 0,
                turned_at: now,
                left_at: now,
                row: 0,
            },
            closing: None,
        })
    }
}

/// A sender of messages.
///
/// When little is sent, a message leaves in the call that takes it. In a long stream of messages
/// without pauses, several share a system call. Then the last messages wait for a later call;
/// [`Publisher::flush`] sends them in any case.
///
/// Receivers that ask for repairs, or join, also wait for the next call. So a program that has
/// nothing to send must call [`Publisher::turn`] when the publisher's descriptor is readable. A
/// program that makes no call for long should move the publisher to its own thread,
/// [`crate::PublisherThread`].
///
/// A publisher that is dropped without [`Publisher::close`] breaks the session off: it never sends
/// the messages that have not left, and tells receivers at once.
pub struct Publisher {
    end: End<driver::Publisher>,
    looks: LookTimes,
    /// The position after the session's last packet, and the deadline for its end; `None` before
    /// the session begins to end.
    closing: Option<(u64, Instant)>,
}

/// The state that decides when a publisher looks at the network while it takes messages.
#[derive(Clone, Copy, Debug)]
struct LookTimes {
    /// How many messages were taken and not yet given to the network.
    waiting: u32,
    /// When the publisher last looked at NAKs and reports.
    turned_at: Instant,
    /// When [`Publisher::send`] last looked at the clock.
    left_at: Instant,
    /// How many looks in a row came less than `ROW_GAP` after the look before; at most `ROW_MAX`.
    row: u32,
}

/// The receiver that sets a session's rate, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSetter<'a> {
    /// The receiver's name.
    pub receiver: &'a str,
    /// What limits the rate at that receiver.
    pub cause: RateCause,
}

/// Whether a message was taken. A message that was not taken is still the caller's: offer it again
/// later.
#[must_use = "a message that was not taken is to be offered again"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendStatus {
    /// The message was taken and will be sent.
    Taken,
    /// The rate limit allows no message before this time.
    RateLimited {
        /// When to try again.
        until: Instant,
    },
    /// There is no room. For example, receivers that are behind keep the window full, or the socket
    /// is full.
    WouldBlock,
}

impl Publisher {
    /// Starts to describe a publisher.
    #[must_use]
    pub const fn builder(session: SessionBuilder) -> PublisherBuilder {
        PublisherBuilder::new(session)
    }

    /// Takes a message if there is room, without waiting. The message leaves at once when no other
    /// has left within the time of the parameter `cork`. Otherwise it waits for that time or for a
    /// full run, and a later turn may have to send it.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Closed`], or when the sockets cannot be used any more.
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        let parameter = self.message_limit().1;
        self.take(message.len(), parameter, |endpoint| {
            endpoint.offer(message).map(drop)
        })
    }

    /// Returns the length of the longest message that can be sent, in bytes, and the protocol
    /// parameter to raise for longer ones.
    #[must_use]
    pub const fn message_limit(&self) -> (usize, &'static str) {
        let source = self.end.driver.endpoint.source();
        (source.max_apdu(), source.apdu_limit())
    }

    /// Takes a message of `len` bytes, which must fit one packet. `fill` writes the message into
    /// the buffer from which it is sent. This saves one copy compared with [`Publisher::try_send`].
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

    /// Takes a message by `offer`. When there is no room, makes a turn and offers the message once
    /// more. `parameter` is the name of the setting that limits the length.
    fn take(
        &mut self,
        len: usize,
        parameter: &'static str,
        mut offer: impl FnMut(&mut driver::Publisher) -> Result<(), Full>,
    ) -> Result<SendStatus, Error> {
        for is_retry in [false, true] {
            match offer(&mut self.end.driver.endpoint) {
                Ok(()) => {
                    self.looks.waiting += 1;
                    if self.end.driver.endpoint.has_full_run(len) {
                        self.turn()?;
                    } else if self.looks.is_first_look_due() {
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

    /// Sends messages that need not wait for further ones. Also looks at NAKs and reports, if the
    /// last turn was at least `TURN_AFTER` ago.
    fn send_due(&mut self) -> Result<(), Error> {
        let now = self.end.now();
        if !self.end.driver.endpoint.has_due(now) {
            return Ok(());
        }
        // Sending comes first, so that packets that arrived meanwhile do not delay it.
        self.looks.waiting = 0;
        self.end.driver.send_ready();
        if now.since(self.looks.turned_at) >= TURN_AFTER {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes a message, and waits for room as long as necessary. The message leaves as soon as the
    /// rate and the receivers allow. After 32 messages in a row that came less than 10 us apart,
    /// each message waits for further ones instead.
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.try_send(message)? != SendStatus::Taken {
            self.wait(None);
        }
        self.see_off_due();
        Ok(())
    }

    /// Takes a message as [`Publisher::send`] does, but waits for room at most `timeout`, and says
    /// whether the message was taken. With a `timeout` of zero it does not wait.
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<SendStatus, Error> {
        let until = self.now() + timeout;
        loop {
            let status = self.try_send(message)?;
            if status == SendStatus::Taken {
                self.see_off_due();
            }
            if status == SendStatus::Taken || self.end.driver.now() >= until {
                return Ok(status);
            }
            self.wait(Some(until));
        }
    }

    /// Sends waiting messages, if it is time to look at the clock.
    fn see_off_due(&mut self) {
        if self.looks.waiting > 0 && (self.looks.row < ROW_MAX || self.looks.is_look_due()) {
            self.see_off();
        }
    }

    /// Sends waiting messages, because the owner's next call may be far off. In a stream without
    /// pauses, lets the messages wait for further ones.
    fn see_off(&mut self) {
        let now = self.end.now();
        let is_in_row = now.since(self.looks.left_at) < ROW_GAP;
        self.looks.left_at = now;
        self.looks.row = if is_in_row {
            (self.looks.row + 1).min(ROW_MAX)
        } else {
            0
        };
        if self.looks.row < ROW_MAX {
            self.send_ready();
            self.looks.left_at = self.end.now();
        }
    }

    /// Sends all messages, and waits until the last packet has left. This may take for ever while
    /// expected receivers do not come.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
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
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        let turn = self.end.turn(&mut ())?;
        self.looks.waiting = 0;
        self.looks.turned_at = self.end.driver.now();
        Ok(turn)
    }

    /// Sends messages without looking at NAKs and reports; these wait for the next turn, which is
    /// due soon. This is the fastest way out for a single message. It costs almost nothing when
    /// [`Publisher::try_send`] has already sent all messages.
    pub fn send_ready(&mut self) {
        self.looks.waiting = 0;
        if self.end.driver.endpoint.source().is_drained() {
            return;
        }
        self.end.driver.endpoint.uncork();
        self.end.driver.send_ready();
    }

    /// Returns the time of the last turn. [`Publisher::try_send`] makes turns, too.
    #[must_use]
    pub const fn turned_at(&self) -> Instant {
        self.looks.turned_at
    }

    /// Waits until something is due, at most until `until`. Returns at once when there is work.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Waits until the expected number of receivers has joined.
    ///
    /// # Errors
    /// [`Error::Missing`], which says how many came, or when the sockets cannot be used any more.
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

    /// Ends the session in good order: sends everything, waits for the receivers, and announces the
    /// end. The wait is over when every expected receiver has joined, and every reporting receiver
    /// has been given everything or is gone. If the wait takes longer than `timeout`, breaks the
    /// session off and tells receivers. But if only expected receivers that are not connected lack
    /// something, the session ends without being broken off.
    ///
    /// **Blocks** at most for `timeout`. At a low rate, breaking off may take 1 s more. The
    /// announcement takes 30 ms when a receiver reports, and 0.5 s when receivers can report and
    /// none does. It takes the time of the parameter `linger` when receivers cannot report, or when
    /// a receiver that does not report has sent a NAK.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close(&mut self, timeout: Duration) -> Result<Closed, Error> {
        self.close_while(timeout, || true)
    }

    /// Ends the session as [`Publisher::close`] does, but waits only while `may_wait` returns true.
    /// `may_wait` is called at least ten times a second. When it returns false, breaks the session
    /// off: messages that have not left are never sent, and receivers are told.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close_while(
        &mut self,
        timeout: Duration,
        may_wait: impl FnMut() -> bool,
    ) -> Result<Closed, Error> {
        self.begin_close(timeout);
        self.end_while(may_wait)
    }

    /// Ends the session early, although the application should have sent more. Delivers the
    /// messages taken so far as [`Publisher::close_while`] does, then tells receivers that the
    /// session is broken off. No receiver takes this for a good end, and the result is never
    /// complete.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
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

    /// Ends the session as [`Publisher::break_off_while`] does, within `timeout`.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn break_off(&mut self, timeout: Duration) -> Result<Closed, Error> {
        self.break_off_while(timeout, || true)
    }

    /// Breaks the session off at once, even if messages have not left. No receiver counts as having
    /// everything.
    pub(crate) fn cut_short(&mut self) -> Result<Closed, Error> {
        self.closing = Some((u64::MAX, self.now()));
        self.break_off(Duration::ZERO)
    }

    /// Waits for the end of a session that is already ending.
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

    /// Begins what [`Publisher::close`] does, without waiting. Further turns carry it out, and
    /// [`Publisher::closed`] says when it is done. A second call can bring the deadline nearer;
    /// with a `timeout` of zero it breaks the session off.
    pub fn begin_close(&mut self, timeout: Duration) {
        let now = self.now();
        let lead = self.lead();
        let (end, deadline) = self.closing.unwrap_or((lead, now + timeout));
        self.closing = Some((end, deadline.min(now + timeout)));
        self.end.driver.endpoint.close(now, now + timeout);
    }

    /// Says how the session ended; `None` before its end.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let ended = self.end.driver.endpoint.ended()?;
        let (end, _) = self.closing?;
        // `Hurried` means that the deadline cut the announcement of the end short. The session is
        // complete all the same: every known receiver has everything.
        let is_complete = matches!(ended, Ended::Confirmed | Ended::Hurried);
        let audience = self.end.driver.endpoint.audience();
        Some(Closed::new(is_complete, audience, end))
    }

    /// Returns true when the session has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.end.driver.endpoint.ended().is_some()
    }

    /// Returns the next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        let event = self.end.driver.endpoint.pop_event()?;
        trace::receiver(&event);
        Some(event)
    }

    /// Returns true when all messages have left, and no repair waits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.end.driver.endpoint.source().is_drained()
    }

    /// Returns the length in bytes of the longest message that fits one packet.
    /// [`Publisher::try_send_with`] refuses longer ones.
    #[must_use]
    pub const fn packet_limit(&self) -> usize {
        self.end.driver.endpoint.source().max_tsdu()
    }

    /// Returns one past the position of the newest packet that the source has taken, sent or not.
    #[must_use]
    pub const fn lead(&self) -> u64 {
        self.end.driver.endpoint.source().lead()
    }

    /// Returns how many bytes are in packets that were taken and not yet sent.
    #[must_use]
    pub const fn backlog_bytes(&self) -> usize {
        self.end.driver.endpoint.source().backlog_bytes()
    }

    /// Returns the rate limit in bytes a second, headers included; `None` without a limit.
    #[must_use]
    pub const fn bytes_per_s_max(&self) -> Option<u64> {
        self.end.driver.endpoint.source().pace().bytes_per_s()
    }

    /// Returns the receiver that sets the rate; `None` while no receiver does.
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

    /// Returns the parameter `linger`: the longest time for which the publisher announces the
    /// session's end to receivers that do not report.
    #[must_use]
    pub const fn linger(&self) -> Duration {
        self.end.driver.endpoint.source().config().linger()
    }

    /// Returns the receivers that report, and how far they are.
    pub fn receivers(&self) -> impl Iterator<Item = ReceiverStatus> {
        let audience = self.end.driver.endpoint.audience();
        audience.receivers().map(ReceiverStatus::of)
    }

    /// Returns how many receivers report.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        self.end.driver.endpoint.audience().receiver_count()
    }

    /// Begins to count, by polls, all receivers that can read polls, whether or not they report.
    /// Keep making turns: within ten seconds, [`Publisher::census`] has the result. With the
    /// parameter `poll_interval`, the count is repeated.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn count_receivers(&mut self) -> Result<(), Error> {
        let now = self.end.now();
        self.end.driver.endpoint.count_receivers(now);
        self.turn().map(drop)
    }

    /// Returns what the last count of receivers found; `None` before a count has ended. Any host
    /// can answer a poll: the number is for people, and proves nothing.
    #[must_use]
    pub const fn census(&self) -> Option<Census> {
        self.end.driver.endpoint.source().census()
    }

    /// Prepares the descriptor for polling: it then also becomes readable when a timer is due.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

face!(Publisher);

impl Count for driver::Publisher {
    fn drops(&self) -> Option<&base::DropCounters> {
        Some(self.drops())
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.source().counters());
        snapshot.add(self.audience().counters());
        snapshot.set_receivers(self.audience().receiver_count());
        let behind = self.audience().receivers().map(|receiver| receiver.behind);
        if let Some(behind) = behind.max() {
            snapshot.set_behind(behind);
        }
    }
}

impl LookTimes {
    /// Returns true when [`Publisher::try_send`] should look at the clock: while 1, 2, 4 or 8
    /// messages wait. A look costs a quarter of what a message of 64 bytes costs. In a stream,
    /// further looks would find nothing due before a run is full, and a full run needs no look.
    #[inline]
    const fn is_first_look_due(self) -> bool {
        self.waiting <= LOOKS_AT_ONCE && self.waiting.is_power_of_two()
    }

    /// Returns true when [`Publisher::send`] should look at the clock: for each message while at
    /// most 8 wait, and otherwise when the number of waiting messages is a multiple of 8.
    #[inline]
    const fn is_look_due(self) -> bool {
        self.waiting <= LOOKS_AT_ONCE || self.waiting.is_multiple_of(LOOKS_APART)
    }
}

impl Drop for Publisher {
    /// Tells receivers that the session is broken off, unless it was closed. If the session has
    /// begun to end, cuts the end short.
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
        // A short wait is enough: a receiver that misses the announcement forgets the session
        // when nothing more comes.
        while let Ok(_) = self.turn()
            && !self.is_closed()
            && self.end.driver.now() < until
        {
            self.end.wait(Some(until));
        }
    }
}

/// While at most `LOOKS_AT_ONCE` messages wait, [`Publisher::send`] looks at the clock for each
/// message; beyond that, for one message in `LOOKS_APART`.
const LOOKS_AT_ONCE: u32 = 8;
const LOOKS_APART: u32 = 8;
/// After `ROW_MAX` messages in a row with gaps shorter than `ROW_GAP`, messages count as a stream:
/// each waits for further ones.
const ROW_MAX: u32 = 32;
const ROW_GAP: Duration = Duration::from_micros(10);
/// How long NAKs and reports may wait while messages leave.
const TURN_AFTER: Duration = Duration::from_micros(200);
