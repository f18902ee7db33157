//! The sending face for frames.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::{AudienceEvent, frames::FrameSenderConfig};
use driver::{Ended, FramePacing, FrameStream, Offered, Turn};
use pgm::Full;

use crate::{
    Closed, Error, Snapshot,
    session::{CLOSE_POLL, Count, End, FAREWELL_MAX, SessionBuilder, face},
    trace,
};

/// The settings of a [`FramePublisher`].
#[derive(Clone, Debug)]
pub struct FramePublisherBuilder {
    session: SessionBuilder,
    stream: FrameStream,
    deadline: Option<Duration>,
    expected: u32,
}

impl FramePublisherBuilder {
    /// Makes a publisher on `session` of frames of at most `frame_bytes_max` bytes, one each
    /// `interval`. With an interval of zero, frames leave as fast as the session's rate allows.
    #[must_use]
    pub const fn new(session: SessionBuilder, frame_bytes_max: usize, interval: Duration) -> Self {
        Self {
            session,
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

    /// Sets how long a frame is of use, at most 10 s; a receiver that does not have all of it by
    /// then drops it. Default: two intervals, but at least 100 ms.
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

    /// Sets how the packets of a frame leave. Default: evenly over the interval.
    #[must_use]
    pub const fn pacing(mut self, pacing: FramePacing) -> Self {
        self.stream.pacing = pacing;
        self
    }

    /// Sets whether frames leave even while no receiver has joined, so that receivers which cannot
    /// report get them, too. Default false.
    #[must_use]
    pub const fn always(mut self, is_always_sent: bool) -> Self {
        self.stream.is_always_sent = is_always_sent;
        self
    }

    /// Sends no frame before this many receivers have joined. Default 0.
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
        let (mut opened, mut sending) = self.session.open_sending()?;
        sending.config = self.stream.settle(sending.config, sending.own)?;
        let mut config = self.session.audience(&sending);
        config.expected = self.expected;
        let now = opened.io.now();
        let endpoint = driver::FramePublisher::open(&sending, &self.stream, config, now);
        Ok(FramePublisher {
            end: opened.end(endpoint, sending.protection(self.session.key)),
            closing: None,
        })
    }
}

/// A sender of frames.
///
/// [`FramePublisher::offer`] takes a frame. Turns send it, packet by packet, over the interval
/// between two frames. So the owner must call [`FramePublisher::turn`] all the time, with
/// [`FramePublisher::wait`] in between.
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
    end: End<driver::FramePublisher>,
    /// The position after the last packet, once the end has begun.
    closing: Option<u64>,
}

impl FramePublisher {
    /// Starts to describe a publisher; see [`FramePublisherBuilder::new`].
    #[must_use]
    pub const fn builder(
        session: SessionBuilder,
        frame_bytes_max: usize,
        interval: Duration,
    ) -> FramePublisherBuilder {
        FramePublisherBuilder::new(session, frame_bytes_max, interval)
    }

    /// Returns the deadline that holds when none is set: two intervals, but at least 100 ms and at
    /// most 10 s.
    #[must_use]
    pub fn usual_deadline(interval: Duration) -> Duration {
        let deadline = interval.saturating_mul(2).max(DEADLINE_MIN);
        deadline.min(FrameSenderConfig::DEADLINE_MAX)
    }

    /// Reads the wall clock, in nanoseconds since 1970: the timestamp for a frame that is made now.
    /// Receivers on hosts whose clocks agree can tell by it how old a frame is.
    #[must_use]
    pub fn wall_ns() -> u64 {
        sys::clock::wall_nanos()
    }

    /// Takes one frame of `len` bytes, whole or not at all. `fill` gets an offset and writes the
    /// frame's bytes from there on into the memory that they are sent from, one packet at a time,
    /// so that they are not copied again. `timestamp_ns` is the time of a clock of the caller that
    /// does not go back.
    ///
    /// **Cost**: one pass over the bytes besides `fill`, for the packets' checksums.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Closed`].
    pub fn offer(
        &mut self,
        timestamp_ns: u64,
        len: usize,
        fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Offered, Error> {
        let endpoint = &mut self.end.driver.endpoint;
        endpoint
            .offer(timestamp_ns, len, fill)
            .map_err(|full| match full {
                Full::Closed => Error::Closed,
                Full::TooLong { max } => Error::TooLong {
                    max,
                    parameter: "frame_bytes_max",
                },
                Full::Window => unreachable!("a full window is an overrun"),
            })
    }

    /// Does what is due, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        self.end.turn(&mut ())
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Returns true when as many receivers have joined as are expected.
    #[must_use]
    pub fn has_expected(&self) -> bool {
        self.end.driver.endpoint.audience().has_expected()
    }

    /// Returns how many receivers report.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        self.end.driver.endpoint.audience().receiver_count()
    }

    /// Returns true when all frames have left, and no repair waits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.end.driver.endpoint.source().is_drained()
    }

    /// Returns the settings that all frames have in common.
    #[must_use]
    pub const fn frames(&self) -> &FrameSenderConfig {
        self.end.driver.endpoint.frames().config()
    }

    /// Returns the next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        let event = self.end.driver.endpoint.pop_event()?;
        trace::receiver(&event);
        Some(event)
    }

    /// Ends the session in good order: sends everything, tells receivers how many frames there
    /// were, and waits until reporting receivers have all frames that they can still get. When this
    /// takes longer than `timeout`, breaks the session off.
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
        self.end.driver.endpoint.close(now, now + timeout);
        let lead = self.end.driver.endpoint.source().lead();
        self.closing.get_or_insert(lead);
        loop {
            self.turn()?;
            if let Some(closed) = self.closed() {
                return Ok(closed);
            }
            let now = self.end.driver.now();
            if may_wait() {
                self.end.wait(Some(now + CLOSE_POLL));
            } else {
                self.end.driver.endpoint.close(now, now);
            }
        }
    }

    /// Says how the session ended; `None` before its end.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let ended = self.end.driver.endpoint.ended()?;
        let is_complete = matches!(ended, Ended::Confirmed | Ended::Hurried);
        let audience = self.end.driver.endpoint.audience();
        Some(Closed::new(is_complete, audience, self.closing?))
    }
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
        if self.end.driver.endpoint.ended().is_some() {
            return;
        }
        let now = self.now();
        let until = now + FAREWELL_MAX;
        self.end.driver.endpoint.break_off(now, now);
        while let Ok(_) = self.turn()
            && self.end.driver.endpoint.ended().is_none()
            && self.end.driver.now() < until
        {
            self.end.wait(Some(until));
        }
    }
}

/// Judgement: a host may stand still for some 10 ms, and a display that is 100 ms late is still of
/// use.
const DEADLINE_MIN: Duration = Duration::from_millis(100);
