//! The sending end of frames: a publisher that sends whole frames, each with a deadline, at a pace
//! that follows from their size and interval.
//!
//! A frame goes into the transmit log whole, or not at all. From there it leaves evenly over the
//! interval between two frames, or in bursts with pauses. No receiver holds it back: the window
//! moves freely, and is long enough for all frames whose deadline has not passed.
//!
//! **Spec**: `docs/src/protocol.md`, the section on frames.

use std::{collections::VecDeque, time::Duration};

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Pace, Run};
use delivery::{
    Audience, AudienceConfig, AudienceEvent, LinkCommand, Policy,
    frames::{FrameSender, FrameSenderConfig, NoFrame},
};
use pgm::{Config, ConfigError, Full, Rate, Source, Timer, ip_udp_header_bytes};
use wire::{
    object::FrameHeader,
    pgm::{Data, Profile},
};

use crate::parameters::{
    FRAME_CATCH_UP_MAX, FRAME_CATCH_UP_PART, FRAME_HEADROOM_PERCENT, FRAME_QUANTUM_MAX,
    FRAME_QUANTUM_PART, FRAME_SPM_HEARTBEAT_MAX, FRAMES_BACKLOG,
};
use crate::{Ended, Endpoint, Handle, Publisher, Sending};

/// The choices that the owner of a frame sender makes.
#[derive(Clone, Debug)]
pub struct FrameStream {
    /// The settings that all frames have in common.
    pub frames: FrameSenderConfig,
    /// Bytes of the longest frame.
    pub frame_bytes_max: usize,
    /// How frames leave.
    pub pacing: FramePacing,
    /// True to send frames even while no receiver reports.
    pub is_always_sent: bool,
}

/// How the packets of a frame leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FramePacing {
    /// Evenly, over 80 % of the interval between two frames; the rest of the interval is for
    /// repairs. A configured rate replaces this pace. Without a rate and an interval, packets leave
    /// as fast as the host sends.
    #[default]
    Even,
    /// As fast as the host sends, with pauses.
    Bursts {
        /// The most packets that leave at once.
        limit: u32,
        /// The pause after each `limit` packets.
        micro_delay: Duration,
        /// The pause after the last packet of a frame. A value below `micro_delay` counts as
        /// `micro_delay`.
        cycle_delay: Duration,
    },
}

impl FrameStream {
    /// Returns the protocol parameters for a sender at the address `own`: the rate, and windows
    /// long enough for all frames whose deadline has not passed.
    ///
    /// # Errors
    /// When the parameters contradict each other with these values.
    pub fn settle(&self, config: Config, own: std::net::IpAddr) -> Result<Config, ConfigError> {
        let overhead = ip_udp_header_bytes(own) + Data::HEAD_LEN + FrameHeader::LEN;
        let packet_bytes = config.mtu().saturating_sub(overhead).max(1);
        let whole = self
            .frame_bytes_max
            .saturating_add(self.frames.format.len());
        let packets = whole.div_ceil(packet_bytes);
        let wire_bytes = whole.saturating_add(packets.saturating_mul(overhead));
        // Packets also hold options. So pieces may be a little shorter than `packet_bytes`, and
        // more in number.
        let room_bytes = wire_bytes.saturating_add(wire_bytes / 16 + config.mtu());
        let room_packets = packets.saturating_add(packets / 16 + 1);
        let mut builder = config
            .to_builder()
            .pack(false)
            .cork(Timer::Fixed(Duration::ZERO))
            .spm_heartbeat_max(config.spm_heartbeat_max().min(FRAME_SPM_HEARTBEAT_MAX));
        let interval = self.frames.interval;
        let is_even = self.pacing == FramePacing::Even && !interval.is_zero();
        if config.rate() == Rate::Auto {
            let pace = if is_even {
                Pace::at_most(even_rate(with_parity(wire_bytes, &config), interval))
            } else {
                Pace::Unlimited
            };
            // When this host is late, a frame may catch up within its own interval.
            let catch_up = config.pacing_catch_up().max(interval / FRAME_CATCH_UP_PART);
            let quantum = (interval / FRAME_QUANTUM_PART).min(FRAME_QUANTUM_MAX);
            builder = builder
                .rate(Rate::Fixed(pace))
                .pacing_catch_up(catch_up.min(FRAME_CATCH_UP_MAX))
                .pacing_quantum(config.pacing_quantum().max(quantum));
        }
        // With a longer backlog, frames would be late instead of dropped at once.
        let backlog_bytes = room_bytes.saturating_mul(FRAMES_BACKLOG);
        let kept = match self
            .frames
            .deadline
            .as_nanos()
            .checked_div(interval.as_nanos())
        {
            Some(frames) => usize::try_from(frames).unwrap_or(usize::MAX),
            None => 0,
        };
        // The window has room for the backlog, for `kept` frames that can still be repaired, and
        // for one more. It is at least four times the backlog.
        let frames = kept
            .saturating_add(FRAMES_BACKLOG + 1)
            .max(4 * FRAMES_BACKLOG);
        let window = room_bytes.saturating_mul(frames);
        let window = window.max(config.tx_window_bytes()).min(WINDOW_BYTES_MAX);
        let sqns = room_packets
            .saturating_mul(frames)
            .min(WINDOW_SQNS_MAX as usize) as u32;
        builder
            .tx_backlog_bytes(backlog_bytes.min(window / 4))
            .tx_window_bytes(window)
            .tx_window_sqns(sqns.max(config.tx_window_sqns()))
            .build()
    }
}

/// Returns `bytes` plus the bytes of the parity packets that are sent before any receiver asks for
/// parity.
fn with_parity(bytes: usize, config: &Config) -> usize {
    let parity = config.fec_proactive().max(config.fec_proactive_max()) as usize;
    match config.fec_group() as usize {
        0 => bytes,
        group => bytes.saturating_add((bytes / group + 1).saturating_mul(parity)),
    }
}

/// The highest value of the parameter `rate`, in bytes a second.
const RATE_MAX: u64 = 125_000_000_000;
/// The highest values of the parameters `tx_window_bytes` and `tx_window_sqns`. A frame can take at
/// most a quarter of each. That is enough for 400 MiB, the longest frame of the command line.
const WINDOW_BYTES_MAX: usize = 1 << 31;
const WINDOW_SQNS_MAX: u32 = 1 << 24;

/// Returns the rate at which `bytes` leave within `interval`, with headroom for repairs.
fn even_rate(bytes: usize, interval: Duration) -> u64 {
    let bytes = bytes as u128 * u128::from(100 + FRAME_HEADROOM_PERCENT) / 100;
    let rate = bytes * 1_000_000_000 / interval.as_nanos();
    u64::try_from(rate).unwrap_or(u64::MAX).clamp(1, RATE_MAX)
}

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a frame that was not taken is lost"]
pub enum Offered {
    /// The frame will be sent, with this number.
    Taken(u64),
    /// The frame is not sent, but has this number: frames before it have not left yet.
    Overrun(u64),
    /// The frame is not sent, and has no number: no receiver reports.
    Unheard,
}

/// A source of frames.
#[derive(Debug)]
pub struct FramePublisher {
    publisher: Publisher,
    frames: FrameSender,
    bursts: Option<Bursts>,
    is_always_sent: bool,
    is_closing: bool,
}

impl FramePublisher {
    /// Opens a session. `sending` has the parameters of [`FrameStream::settle`]. `audience` holds
    /// the owner's choices; its policy is overwritten, because no receiver holds frames back.
    #[must_use]
    pub fn open(
        sending: &Sending,
        stream: &FrameStream,
        mut audience: AudienceConfig,
        now: Instant,
    ) -> Self {
        audience.policy = Policy::Lose;
        Self {
            publisher: Publisher::of(Profile::Frames, sending, audience, now),
            frames: FrameSender::new(stream.frames.clone()),
            bursts: Bursts::new(stream.pacing),
            is_always_sent: stream.is_always_sent,
            is_closing: false,
        }
    }

    /// Takes one frame of `len` bytes, whole or not at all. `fill` gets an offset and the buffer of
    /// one packet. It fills the buffer with the frame's bytes that begin at the offset.
    ///
    /// # Errors
    /// [`Full::TooLong`] for a frame that is empty or can never be sent; [`Full::Closed`] after the
    /// session was closed.
    pub fn offer(
        &mut self,
        timestamp_ns: u64,
        len: usize,
        fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Offered, Full> {
        if !self.is_heard() {
            self.unheard();
            return Ok(Offered::Unheard);
        }
        self.offer_heard(timestamp_ns, len, fill)
    }

    /// Returns true when a receiver reports, or when frames are sent even to nobody.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.is_always_sent || self.publisher.audience().receiver_count() > 0
    }

    /// Notes that a frame is not sent because nobody listens. It gets no number.
    pub const fn unheard(&mut self) {
        self.frames.unheard();
    }

    /// Gives a number to a frame that is not sent, and counts an overrun. This is for one of two
    /// feeds of the same frames: the other feed has numbered the frame, and both must number alike.
    pub const fn pass_over(&mut self) {
        self.frames.overrun();
    }

    /// Takes a frame as [`FramePublisher::offer`] does, even if nobody listens. This is for one of
    /// two feeds of the same frames: receivers may listen only to the other feed.
    ///
    /// # Errors
    /// Those of [`FramePublisher::offer`]; the frame has no number then.
    pub fn offer_heard(
        &mut self,
        timestamp_ns: u64,
        len: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Offered, Full> {
        let max = self.publisher.source().max_tsdu();
        let pieces = match self.frames.next(timestamp_ns, len, max) {
            Ok(pieces) => pieces,
            Err(NoFrame::Empty) => return Err(Full::TooLong { max: 0 }),
            Err(NoFrame::SmallPackets) => return Err(Full::TooLong { max }),
            Err(NoFrame::TooLong) => {
                let max = u32::MAX as usize;
                return Err(Full::TooLong { max });
            }
        };
        let count = (pieces.count(), pieces.last_len());
        let taken = self
            .publisher
            .offer_pieces(pieces.piece_len(), count, |index, room| {
                pieces.fill(index, room, &mut fill);
            });
        match taken {
            Ok(_) => {
                let end = self.publisher.source().lead();
                if let Some(bursts) = &mut self.bursts {
                    bursts.taken(end);
                }
                Ok(Offered::Taken(self.frames.taken(len)))
            }
            Err(Full::Window) => Ok(Offered::Overrun(self.frames.overrun())),
            Err(full) => Err(full),
        }
    }

    /// Begins the end of the session: tells receivers how many frames there were, then ends as
    /// [`Publisher::close`] does.
    pub fn close(&mut self, now: Instant, deadline: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            // Without room for this packet, receivers do not learn of frames lost at the end.
            let _told = self.publisher.offer(&self.frames.end());
        }
        self.publisher.close(now, deadline);
    }

    /// Breaks the session off, as [`Publisher::break_off`] does.
    pub fn break_off(&mut self, now: Instant, deadline: Instant) {
        self.publisher.break_off(now, deadline);
    }

    /// Says how the session ended; `None` until it has ended.
    #[must_use]
    pub const fn ended(&self) -> Option<Ended> {
        self.publisher.ended()
    }

    /// Returns the PGM source.
    pub const fn source(&self) -> &Source {
        self.publisher.source()
    }

    /// Returns the reporting receivers.
    pub const fn audience(&self) -> &Audience {
        self.publisher.audience()
    }

    /// Returns the numbers and counters of the frames.
    pub const fn frames(&self) -> &FrameSender {
        &self.frames
    }

    /// Returns the next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.publisher.pop_event()
    }

    /// Returns the counts of packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.publisher.drops()
    }
}

impl Handle<()> for FramePublisher {
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], sink: &mut ()) {
        self.publisher.handle(now, arrival, tpdu, sink);
    }

    fn drain(&mut self, now: Instant, sink: &mut ()) {
        self.publisher.drain(now, sink);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut ()) {
        self.publisher.handle_timeout(now, sink);
    }
}

impl Endpoint for FramePublisher {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.publisher.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.publisher.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.publisher.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.publisher.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, mut budget: Budget) -> Option<Run<'_>> {
        if let Some(bursts) = &self.bursts {
            if now < bursts.due {
                return None;
            }
            let room = bursts.room(self.publisher.source().unsent());
            budget.datagrams = budget.datagrams.min(room);
        }
        self.publisher.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        let before = self.publisher.source().unsent();
        self.publisher.run_done(now, outcome);
        let unsent = self.publisher.source().unsent();
        if let Some(bursts) = &mut self.bursts {
            bursts.left(now, unsent - before, unsent);
        }
    }

    fn run_took(&mut self, end: Instant, took: Duration) {
        self.publisher.run_took(end, took);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let due = self.publisher.next_timeout()?;
        let pause = self.bursts.as_ref().map_or(Instant::ZERO, |it| it.due);
        Some(due.max(pause))
    }
}

/// The pauses between bursts and between frames.
///
/// ```text
///   |limit|- micro delay -|limit|- micro delay -|rest|---- cycle delay ----|limit| ...
/// ```
#[derive(Debug)]
struct Bursts {
    limit: usize,
    micro_delay: Duration,
    cycle_delay: Duration,
    /// How many packets of the current burst were sent.
    left: usize,
    /// Nothing leaves before this time.
    due: Instant,
    /// For each frame that was not sent whole, the position after its last packet.
    ends: VecDeque<u64>,
}

impl Bursts {
    fn new(pacing: FramePacing) -> Option<Self> {
        match pacing {
            FramePacing::Even => None,
            FramePacing::Bursts {
                limit,
                micro_delay,
                cycle_delay,
            } => Some(Self {
                limit: limit.max(1) as usize,
                micro_delay,
                cycle_delay,
                left: 0,
                due: Instant::ZERO,
                ends: VecDeque::new(),
            }),
        }
    }

    fn taken(&mut self, end: u64) {
        self.ends.push_back(end);
    }

    /// Returns how many packets may leave at once.
    fn room(&self, unsent: u64) -> usize {
        let in_burst = self.limit - self.left;
        let in_frame = self.ends.front().map_or(u64::MAX, |end| end - unsent);
        in_burst.min(usize::try_from(in_frame).unwrap_or(usize::MAX))
    }

    /// Notes that `count` packets were sent; `unsent` is the position of the first unsent packet.
    fn left(&mut self, now: Instant, count: u64, unsent: u64) {
        self.left += usize::try_from(count).unwrap_or(self.limit);
        if self.ends.pop_front_if(|end| *end <= unsent).is_some() {
            self.left = 0;
            self.due = now + self.cycle_delay.max(self.micro_delay);
        } else if self.left >= self.limit {
            self.left = 0;
            self.due = now + self.micro_delay;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Instant {
        Instant::from_nanos(n * 1000)
    }

    #[test]
    fn bursts_pause_after_their_limit_and_after_a_frame() {
        let mut bursts = Bursts::new(FramePacing::Bursts {
            limit: 10,
            micro_delay: Duration::from_micros(100),
            cycle_delay: Duration::from_micros(700),
        })
        .unwrap();
        bursts.taken(25);
        bursts.taken(50);
        assert_eq!(bursts.room(0), 10);
        bursts.left(us(1000), 4, 4);
        assert_eq!((bursts.room(4), bursts.due), (6, Instant::ZERO));
        bursts.left(us(1000), 6, 10);
        assert_eq!((bursts.room(10), bursts.due), (10, us(1100)));
        bursts.left(us(1100), 10, 20);
        assert_eq!(bursts.room(20), 5);
        bursts.left(us(1200), 5, 25);
        assert_eq!((bursts.room(25), bursts.due), (10, us(1900)));
    }

    #[test]
    fn parameters_follow_from_the_frames() {
        let stream = FrameStream {
            frames: FrameSenderConfig {
                interval: Duration::from_millis(50),
                deadline: Duration::from_millis(100),
                format: Vec::new(),
            },
            frame_bytes_max: 2_785_280,
            pacing: FramePacing::Even,
            is_always_sent: false,
        };
        let own = [10, 0, 0, 1].into();
        let config = stream.settle(Config::default(), own).unwrap();
        let rate = config.rate().pace().bytes_per_s().unwrap();
        assert!((70_000_000..75_000_000).contains(&rate), "{rate}");
        assert!(config.tx_window_bytes() >= 4 * config.tx_backlog_bytes());
        assert!((6_000_000..6_400_000).contains(&config.tx_backlog_bytes()));
        assert_eq!(config.pacing_catch_up(), Duration::from_micros(12_500));
        // With one parity packet for every four packets, five packets leave in the time of four.
        let fec = Config::builder().fec_group(16).fec_proactive(4);
        let config = stream.settle(fec.build().unwrap(), own).unwrap();
        let with_parity = config.rate().pace().bytes_per_s().unwrap();
        assert!((rate * 124 / 100..rate * 126 / 100).contains(&with_parity));
        let bursts = FrameStream {
            pacing: FramePacing::Bursts {
                limit: 32,
                micro_delay: Duration::ZERO,
                cycle_delay: Duration::ZERO,
            },
            ..stream
        };
        let config = bursts.settle(Config::default(), own).unwrap();
        assert_eq!(config.rate(), Rate::Fixed(Pace::Unlimited));
    }

    #[test]
    fn no_length_interval_or_deadline_makes_parameters_impossible() {
        let stream = |frame_bytes_max, interval, deadline| FrameStream {
            frames: FrameSenderConfig {
                interval,
                deadline,
                format: vec![0; 255],
            },
            frame_bytes_max,
            pacing: FramePacing::Even,
            is_always_sent: false,
        };
        let own = [10, 0, 0, 1].into();
        let (short, long) = (Duration::from_nanos(1), Duration::from_secs(10));
        for frame_bytes in [1, 400 << 20, usize::MAX] {
            for interval in [Duration::ZERO, short, long, Duration::MAX] {
                for deadline in [Duration::ZERO, long] {
                    let stream = stream(frame_bytes, interval, deadline);
                    let config = stream.settle(Config::default(), own);
                    assert!(config.is_ok(), "{stream:?}: {config:?}");
                }
            }
        }
        // The longest frame that the command line takes, in the shortest packets.
        let small = Config::builder().mtu(576).build().unwrap();
        let stream = stream(400 << 20, Duration::from_secs(1), long);
        let config = stream.settle(small, own).unwrap();
        let (pieces, piece) = ((400 << 20) / 480 + 1, 576 - 28);
        assert!(config.tx_backlog_bytes() >= pieces * piece);
        assert!(config.tx_window_sqns() as usize >= 4 * pieces);
    }
}
