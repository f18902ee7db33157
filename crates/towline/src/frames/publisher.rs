//! The type by which an application sends frames.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::{
    AudienceEvent,
    frames::{Feed, FrameSenderConfig},
};
use driver::{Ended, FramePacing, FrameStream, Offered, Sending, Turn};
use pgm::Full;

use super::ends::Ends;
use crate::{
    Closed, Error, Snapshot,
    session::{CLOSE_POLL, Count, End, FAREWELL_MAX, Opened, SessionBuilder, face},
    trace,
};

/// The settings of a [`FramePublisher`].
#[derive(Clone, Debug)]
pub struct FramePublisherBuilder {
    session: SessionBuilder,
    also: Option<SessionBuilder>,
    stream: FrameStream,
    deadline: Option<Duration>,
    expected: u32,
}

impl FramePublisherBuilder {
    /// Makes a publisher that sends frames of at most `frame_bytes_max` bytes on `session`, one
    /// each `interval`. With an interval of zero, frames leave as fast as the session's rate
    /// allows.
    #[must_use]
    pub const fn new(session: SessionBuilder, frame_bytes_max: usize, interval: Duration) -> Self {
        Self {
            session,
            also: None,
            stream: FrameStream {
                frames: FrameSenderConfig {
                    interval,
                    deadline: Duration::ZERO,
                    format: Vec::new(),
                },
                frame_bytes_max,
                pacing: FramePacing::Even,
                is_always_sent: false,
            },
            deadline: None,
            expected: 0,
        }
    }

    /// Sends every frame by `session`, too: a second feed, best over another network. Receivers
    /// that take both feeds lose a frame only when neither feed brings it in time. Each feed has
    /// its own sockets, repairs, pace and receivers, and neither waits for the other. Frames leave
    /// by both feeds while either of them has a receiver. A transport session identifier that was
    /// set for `session` is overwritten. Default: one feed.
    ///
    /// **Cost**: [`FramePublisher::offer`] calls `fill` for each feed, so each frame is written
    /// twice.
    #[must_use]
    pub fn also(mut self, session: impl Into<Option<SessionBuilder>>) -> Self {
        self.also = session.into();
        self
    }

    /// Sets how long after its timestamp a frame is of use, at most 10 s. A receiver that does not
    /// have the whole frame by then drops it. Default: two intervals, but at least 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// Sets the description of how to read a frame's bytes, for the receivers' applications: at
    /// most 255 bytes. Default: empty.
    #[must_use]
    pub fn format(mut self, format: impl Into<Vec<u8>>) -> Self {
        self.stream.frames.format = format.into();
        self
    }

    /// Sets how the packets of a frame are spread over time. Default: [`FramePacing::Even`].
    #[must_use]
    pub const fn pacing(mut self, pacing: FramePacing) -> Self {
        self.stream.pacing = pacing;
        self
    }

    /// Sets whether frames leave even while no receiver reports, so that receivers that cannot
    /// report get them, too. Default false.
    #[must_use]
    pub const fn always(mut self, is_always_sent: bool) -> Self {
        self.stream.is_always_sent = is_always_sent;
        self
    }

    /// Sets how many receivers are expected. [`FramePublisher::has_expected`] and
    /// [`Closed::missing`] use this number; frames do not wait for these receivers. Default 0.
    #[must_use]
    pub const fn expect_receivers(mut self, count: u32) -> Self {
        self.expected = count;
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// When parameters contradict each other, when the interface cannot be used, or when the system
    /// refuses.
    pub fn open(mut self) -> Result<FramePublisher, Error> {
        let frames = &mut self.stream.frames;
        let usual = || FramePublisher::usual_deadline(frames.interval);
        let deadline = self.deadline.unwrap_or_else(usual);
        frames.deadline = deadline.min(FrameSenderConfig::DEADLINE_MAX);
        let (opened, mut sending) = self.session.open_sending()?;
        let Some(also) = &self.also else {
            let end = self.end(&self.session, opened, sending)?;
            return FramePublisher::new(end, None);
        };
        let (also_opened, mut also_sending) = also.open_sending()?;
        sending.pair(&mut also_sending);
        let first = self.end(&self.session, opened, sending)?;
        let second = self.end(also, also_opened, also_sending)?;
        FramePublisher::new(first, Some(second))
    }

    /// Makes one feed: a sender of frames on the sockets that were `opened` for it.
    fn end(
        &self,
        session: &SessionBuilder,
        mut opened: Opened,
        mut sending: Sending,
    ) -> Result<End<driver::FramePublisher>, Error> {
        sending.config = self.stream.settle(sending.config, sending.own)?;
        let mut audience = session.audience(&sending);
        audience.expected = self.expected;
        let now = opened.io.now();
        let endpoint = driver::FramePublisher::open(&sending, &self.stream, audience, now);
        Ok(opened.end(endpoint, sending.protection(session.key.clone())))
    }
}

/// A sender of frames.
///
/// [`FramePublisher::offer`] takes a frame. [`FramePublisher::turn`] sends the packets of the frame
/// that are due. So the owner must call it all the time, with [`FramePublisher::wait`] in between.
///
/// ```no_run
/// # fn main() -> Result<(), towline::Error> {
/// use std::time::Duration;
/// use towline::{FramePublisher, SessionBuilder};
/// let session = SessionBuilder::new("239.192.0.1:7500".parse()?);
/// let interval = Duration::from_millis(50);
/// let mut publisher = FramePublisher::builder(session, 2_785_280, interval).open()?;
/// let mut due = publisher.now();
/// for number in 0..100_u8 {
///     publisher.offer(FramePublisher::wall_ns(), 2_785_280, |_, room| room.fill(number))?;
///     due += interval;
///     while publisher.now() < due {
///         publisher.turn()?;
///         publisher.wait(Some(due));
///     }
/// }
/// publisher.close(Duration::from_secs(5))?;
/// # Ok(())
/// # }
/// ```
pub struct FramePublisher {
    end: Ends<driver::FramePublisher>,
    /// For each feed, the position after its last packet; `None` before the publisher began to
    /// close.
    closing: Option<[u64; 2]>,
}

impl FramePublisher {
    fn new(
        first: End<driver::FramePublisher>,
        second: Option<End<driver::FramePublisher>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            end: Ends::new(first, second)?,
            closing: None,
        })
    }

    /// Starts to describe a publisher; see [`FramePublisherBuilder::new`].
    #[must_use]
    pub const fn builder(
        session: SessionBuilder,
        frame_bytes_max: usize,
        interval: Duration,
    ) -> FramePublisherBuilder {
        FramePublisherBuilder::new(session, frame_bytes_max, interval)
    }

    /// Returns the default deadline: two intervals, but at least 100 ms and at most 10 s.
    #[must_use]
    pub fn usual_deadline(interval: Duration) -> Duration {
        let deadline = interval.saturating_mul(2).max(DEADLINE_MIN);
        deadline.min(FrameSenderConfig::DEADLINE_MAX)
    }

    /// Reads the wall clock, in nanoseconds since 1970: the timestamp for a frame that is made now.
    /// Receivers on hosts whose clocks agree can tell by the timestamp how old a frame is.
    #[must_use]
    pub fn wall_ns() -> u64 {
        sys::clock::wall_nanos()
    }

    /// Takes one frame of `len` bytes, whole or not at all. `fill` gets an offset and a buffer, and
    /// writes the frame's bytes from that offset on into the buffer. One packet is sent from each
    /// buffer, so the bytes are not copied again. `timestamp_ns` is the time of the frame, by a
    /// clock that does not go back.
    ///
    /// With two feeds, `fill` is called for every packet of the first feed, and then, from offset 0
    /// on, for every packet of the second feed. It must give the same bytes both times. It is not
    /// called for a feed that has no room for the frame.
    ///
    /// **Cost**: `fill`, and one pass over the bytes for the packets' checksums; with two feeds,
    /// each of these twice.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Closed`].
    pub fn offer(
        &mut self,
        timestamp_ns: u64,
        len: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Offered, Error> {
        let is_heard = |end: &End<driver::FramePublisher>| end.driver.endpoint.is_heard();
        let is_heard = self.end.usable().any(|(_, end)| is_heard(end));
        if !is_heard {
            for (_, end) in self.end.usable_mut() {
                end.driver.endpoint.unheard();
            }
            return Ok(Offered::Unheard);
        }
        let mut sum = None;
        let mut failed = None;
        for (_, end) in self.end.usable_mut() {
            let endpoint = &mut end.driver.endpoint;
            match (endpoint.offer_heard(timestamp_ns, len, &mut fill), sum) {
                (Ok(Offered::Taken(id)), _) => sum = Some(Offered::Taken(id)),
                (Ok(offered), None) => sum = Some(offered),
                (Ok(_), Some(_)) => {}
                (Err(full), _) => failed = Some(full),
            }
        }
        match (sum, failed) {
            (Some(offered), None) => Ok(offered),
            // Both feeds must give the next frame the same number.
            (Some(offered), Some(_)) => {
                self.level_up();
                Ok(offered)
            }
            (None, Some(full)) => Err(refused(full)),
            (None, None) => Err(Error::Closed),
        }
    }

    /// Skips the number of a frame that only one feed could take, on the feed that could not.
    fn level_up(&mut self) {
        let ends = self.end.usable();
        let numbers = ends.map(|(_, end)| end.driver.endpoint.frames().next_id());
        let most = numbers.max().unwrap_or(0);
        for (_, end) in self.end.usable_mut() {
            let endpoint = &mut end.driver.endpoint;
            if endpoint.frames().next_id() < most {
                endpoint.pass_over();
            }
        }
    }

    /// Does what is due, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        self.end.turn(|_, end| end.turn(&mut ()))
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
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

    /// Returns true when the expected number of receivers has joined; with two feeds, when that
    /// number has joined at least one of the feeds.
    #[must_use]
    pub fn has_expected(&self) -> bool {
        let mut ends = self.end.usable();
        ends.any(|(_, end)| end.driver.endpoint.audience().has_expected())
    }

    /// Returns how many receivers report; with two feeds, the greater of the two numbers.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        let ends = self.end.usable();
        let counts = ends.map(|(_, end)| end.driver.endpoint.audience().receiver_count());
        counts.max().unwrap_or(0)
    }

    /// Returns true when all frames have left, and no repair waits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let mut ends = self.end.usable();
        ends.all(|(_, end)| end.driver.endpoint.source().is_drained())
    }

    /// Returns the settings that all frames have in common.
    #[must_use]
    pub const fn frames(&self) -> &FrameSenderConfig {
        self.end.first.driver.endpoint.frames().config()
    }

    /// Returns the next event about a receiver, of either feed.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.pop_feed_event().map(|(_, event)| event)
    }

    /// Returns the next event about a receiver, and the feed that it came by. A receiver that takes
    /// both feeds counts as one receiver of each feed.
    pub fn pop_feed_event(&mut self) -> Option<(Feed, AudienceEvent)> {
        let mut feeds = Feed::ALL.into_iter();
        let (feed, event) = feeds.find_map(|feed| {
            let end = self.end.get_mut(feed)?;
            Some((feed, end.driver.endpoint.pop_event()?))
        })?;
        trace::receiver(&event);
        Some((feed, event))
    }

    /// Says how a feed is doing; `None` where there is no such feed.
    #[must_use]
    pub fn feed(&self, feed: Feed) -> Option<FeedSent> {
        let end = self.end.get(feed)?;
        let endpoint = &end.driver.endpoint;
        let (frames, packets) = (endpoint.frames().counters(), endpoint.source().counters());
        let (interface, address) = end.interface();
        let fault = self.end.fault(feed).map(str::to_owned);
        Some(FeedSent {
            interface: interface.to_owned(),
            address,
            frames: frames.frames_sent,
            overrun: frames.frames_overrun,
            packets: packets.odata_packets,
            repairs: packets.rdata_packets + packets.parity_packets,
            receivers: endpoint.audience().receiver_count(),
            error: fault.or_else(|| end.send_error().map(|error| error.to_string())),
        })
    }

    /// Ends the session in good order: sends everything, tells receivers how many frames there
    /// were, and waits until reporting receivers have all frames that they can still get. When this
    /// takes longer than `timeout`, breaks the session off or ends it, as
    /// [`crate::Publisher::close`] does.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close(&mut self, timeout: Duration) -> Result<Closed, Error> {
        self.close_while(timeout, || true)
    }

    /// Ends the session as [`FramePublisher::close`] does, but waits only while `may_wait` returns
    /// true; it is asked at least ten times a second.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn close_while(
        &mut self,
        timeout: Duration,
        mut may_wait: impl FnMut() -> bool,
    ) -> Result<Closed, Error> {
        let now = self.now();
        let mut leads = [0; 2];
        for (feed, end) in self.end.usable_mut() {
            let endpoint = &mut end.driver.endpoint;
            endpoint.close(now, now + timeout);
            leads[feed.index()] = endpoint.source().lead();
        }
        self.closing.get_or_insert(leads);
        loop {
            self.turn()?;
            if let Some(closed) = self.closed() {
                return Ok(closed);
            }
            let now = self.now();
            self.follow_the_end(now);
            if may_wait() {
                self.end.wait(Some(now + CLOSE_POLL));
            } else {
                for (_, end) in self.end.usable_mut() {
                    end.driver.endpoint.close(now, now);
                }
            }
        }
    }

    /// Ends one feed soon after the other has ended well, so that a network that is cut does not
    /// delay the end of the session. Frames that are late by then are of no use to anybody. A feed
    /// that no receiver joined ends well at once; this does not count when a receiver has joined
    /// the other feed.
    fn follow_the_end(&mut self, now: Instant) {
        let had_receivers =
            |end: &End<driver::FramePublisher>| end.driver.endpoint.audience().joined() > 0;
        let has_joined = self.end.usable().any(|(_, end)| had_receivers(end));
        let is_well = |end: &End<driver::FramePublisher>| {
            let ended = end.driver.endpoint.ended();
            let is_well = matches!(ended, Some(Ended::Confirmed | Ended::Hurried));
            is_well && (had_receivers(end) || !has_joined)
        };
        if self.end.is_pair() && self.end.usable().any(|(_, end)| is_well(end)) {
            let by = now + self.frames().deadline + CLOSE_POLL;
            for (_, end) in self.end.usable_mut() {
                // If an earlier call set a nearer deadline, the nearer deadline holds.
                end.driver.endpoint.close(now, by);
            }
        }
    }

    /// Says how the session ended; `None` before its end. With two feeds, the result is the better
    /// of their two ends: a receiver that has everything by one feed lacks nothing. The end of a
    /// feed that no receiver joined is taken into account only when no receiver joined the other
    /// feed, either.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let leads = self.closing?;
        let mut all = None::<Closed>;
        for (feed, end) in self.end.usable() {
            let endpoint = &end.driver.endpoint;
            let is_complete = matches!(endpoint.ended()?, Ended::Confirmed | Ended::Hurried);
            let closed = Closed::new(is_complete, endpoint.audience(), leads[feed.index()]);
            all = Some(match all {
                Some(other) => other.or(closed),
                None => closed,
            });
        }
        all
    }
}

fn refused(full: Full) -> Error {
    match full {
        Full::Closed => Error::Closed,
        Full::TooLong { max } => Error::TooLong {
            max,
            parameter: "frame_bytes_max",
        },
        Full::Window => unreachable!("a full window is an overrun"),
    }
}

/// What has left by one feed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedSent {
    /// The interface that the feed uses.
    pub interface: String,
    /// This end's address on that interface.
    pub address: std::net::IpAddr,
    /// Frames sent.
    pub frames: u64,
    /// Frames that this feed skipped because earlier frames had not left.
    pub overrun: u64,
    /// Data packets sent.
    pub packets: u64,
    /// Repairs sent: packets sent again, and packets of parity.
    pub repairs: u64,
    /// Receivers that report now.
    pub receivers: u32,
    /// Why the feed cannot be used any more, or why nothing has left by it; otherwise `None`.
    pub error: Option<String>,
}

face!(FramePublisher);

impl Count for driver::FramePublisher {
    fn drops(&self) -> Option<&base::DropCounters> {
        Some(self.drops())
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.frames().counters());
        snapshot.add(self.source().counters());
        snapshot.add(self.audience().counters());
        snapshot.set_receivers(self.audience().receiver_count());
    }
}

impl Drop for FramePublisher {
    /// Tells receivers that the session is broken off, unless it was closed.
    fn drop(&mut self) {
        let is_ended = |ends: &Ends<driver::FramePublisher>| {
            let mut ends = ends.usable();
            ends.all(|(_, end)| end.driver.endpoint.ended().is_some())
        };
        if is_ended(&self.end) {
            return;
        }
        let now = self.now();
        let until = now + FAREWELL_MAX;
        for (_, end) in self.end.usable_mut() {
            end.driver.endpoint.break_off(now, now);
        }
        while let Ok(_) = self.turn()
            && !is_ended(&self.end)
            && self.now() < until
        {
            self.end.wait(Some(until));
        }
    }
}

/// The shortest default deadline. Judgement: long enough that a host's pause of about 10 ms costs
/// no frame, and a display that is 100 ms late is still of use.
const DEADLINE_MIN: Duration = Duration::from_millis(100);
