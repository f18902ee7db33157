//! The causes that held back the sending side of a TCP connection, each with its share of the time.
//! The shares add up to the whole time.
//!
//! The kernel counts the time during which a connection was busy, that is, had data queued or under
//! way. It also counts two parts of this time: the part during which the peer's window kept the
//! connection from sending, and the part during which its send buffer did. The rest of the busy
//! time is the network's. The time that was not busy is the application's.
//!
//! ```text
//!   |<------------------------- elapsed -------------------------->|
//!   | application |  receiver  | send buffer |       network       |
//!                 |<------------------- busy --------------------->|
//! ```
//!
//! The kernel counts in its ticks (4 ms at 250 a second), so shares of less than a few ticks mean
//! little.
//!
//! The kernel checks for a full send buffer only when it sends, and counts the time only if the
//! writer already waits for room. A writer of long pieces begins to wait after that check, and
//! waits until an acknowledgement comes. The kernel does not count this wait as time of the send
//! buffer, so [`TcpShares::with_buffers`] corrects the shares.

use std::{ops::AddAssign, time::Duration};

use sys::{SocketBuffers, TcpInfo};

/// How long each cause held a connection back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpShares {
    /// Time during which nothing was queued or under way: the application gave nothing to send.
    pub application: Duration,
    /// Time during which the peer's receive window was full.
    pub receiver: Duration,
    /// Time during which this end's send buffer was too small for the data under way.
    pub send_buffer: Duration,
    /// The rest of the time: loss, queues, pacing or the congestion window held the data back.
    pub network: Duration,
}

/// What holds a connection back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TcpLimit {
    /// The application that sends.
    Application,
    /// The application that receives, or the buffer of its socket.
    Receiver,
    /// The send buffer.
    SendBuffer,
    /// The network, for this reason.
    Network(NetworkLimit),
}

/// Why the network holds a connection back, by the signs that the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkLimit {
    /// Segments were lost and sent again, or the sender waited for a retransmission timeout.
    Loss,
    /// Packets wait in a queue on the way: the round trip is far longer than the shortest.
    Queue,
    /// Neither loss nor a queue: the rate of the path or of the congestion control is the limit.
    Path,
}

impl TcpShares {
    /// Returns the shares between two looks at a connection, `elapsed` apart; `None` when the
    /// kernel does not count them (before Linux 4.10). The shares add up to `elapsed`.
    #[must_use]
    pub fn between(before: &TcpInfo, after: &TcpInfo, elapsed: Duration) -> Option<Self> {
        let span = |of: fn(&TcpInfo) -> Option<u64>| {
            let us = of(after)?.saturating_sub(of(before)?);
            Some(Duration::from_micros(us))
        };
        let busy = span(TcpInfo::busy_us)?.min(elapsed);
        let receiver = span(TcpInfo::rwnd_limited_us)?.min(busy);
        let send_buffer = span(TcpInfo::sndbuf_limited_us)?.min(busy - receiver);
        Some(Self {
            application: elapsed - busy,
            receiver,
            send_buffer,
            network: busy - receiver - send_buffer,
        })
    }

    /// Moves the network's time to the send buffer, when `info` and `buffers` show that only the
    /// full buffer keeps the application from sending more.
    #[must_use]
    pub fn with_buffers(mut self, info: &TcpInfo, buffers: &SocketBuffers) -> Self {
        if is_buffer_full(info, buffers) {
            self.send_buffer += std::mem::take(&mut self.network);
        }
        self
    }

    /// Returns the time that was added since `earlier`, an earlier state of these shares.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            application: self.application.saturating_sub(earlier.application),
            receiver: self.receiver.saturating_sub(earlier.receiver),
            send_buffer: self.send_buffer.saturating_sub(earlier.send_buffer),
            network: self.network.saturating_sub(earlier.network),
        }
    }

    /// Returns the sum of the four shares.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.application + self.receiver + self.send_buffer + self.network
    }

    /// Returns the cause with the largest share; `None` while no time has passed. For the network,
    /// `signs` says which of its limits counts.
    #[must_use]
    pub fn limit(&self, signs: &NetworkSigns) -> Option<TcpLimit> {
        let shares = [
            (self.network, TcpLimit::Network(signs.limit())),
            (self.receiver, TcpLimit::Receiver),
            (self.send_buffer, TcpLimit::SendBuffer),
            (self.application, TcpLimit::Application),
        ];
        let most = shares.into_iter().max_by_key(|(time, _)| *time)?;
        (!most.0.is_zero()).then_some(most.1)
    }

    /// Returns the four shares in per cent, in the order of the fields. They sum to 100, or are all
    /// 0 when no time has passed.
    #[must_use]
    pub fn percents(&self) -> [f64; 4] {
        let total = self.total().as_secs_f64();
        let times = [
            self.application,
            self.receiver,
            self.send_buffer,
            self.network,
        ];
        times.map(|time| match total > 0.0 {
            true => time.as_secs_f64() * 100.0 / total,
            false => 0.0,
        })
    }
}

impl AddAssign for TcpShares {
    fn add_assign(&mut self, more: Self) {
        self.application += more.application;
        self.receiver += more.receiver;
        self.send_buffer += more.send_buffer;
        self.network += more.network;
    }
}

/// Returns true when only the send buffer keeps more data from leaving: the buffer has too little
/// room to wake a waiting writer, all data in the buffer was sent, none of that data was lost, and
/// neither the congestion window nor the receive window is full.
fn is_buffer_full(info: &TcpInfo, buffers: &SocketBuffers) -> bool {
    let has_window = info.unacked_segments().is_some_and(|under_way| {
        let congestion = info.snd_cwnd_segments();
        let one_more_bytes = info.snd_mss_bytes().map(|mss| (under_way + 1) * mss);
        let receiver = one_more_bytes.zip(info.snd_wnd_bytes());
        congestion.is_some_and(|window| under_way < window)
            && receiver.is_some_and(|(one_more, window)| one_more <= window)
    });
    // After a loss, the buffer may be full of data that has arrived behind the gap.
    let has_gap = info.sacked_segments().unwrap_or(0) + info.lost_segments().unwrap_or(0) > 0;
    // The kernel wakes a waiting writer once the room is at least half of the bytes in use.
    let room = buffers.send_bytes.saturating_sub(buffers.send_used_bytes);
    let makes_wait = buffers.send_bytes > 0 && room < buffers.send_used_bytes / 2;
    makes_wait && info.notsent_bytes() == Some(0) && has_window && !has_gap
}

/// What the kernel says of a connection's network, for the time between two looks at the
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkSigns {
    /// Bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// The smoothed round-trip time at the later look, in microseconds.
    pub rtt_us: u64,
    /// The shortest recent round-trip time at the later look, in microseconds.
    pub rtt_us_min: u64,
}

impl AddAssign for NetworkSigns {
    /// Adds the counts of a later span, and takes over the round-trip times of that span.
    fn add_assign(&mut self, later: Self) {
        self.sent_bytes += later.sent_bytes;
        self.resent_bytes += later.resent_bytes;
        self.timeouts += later.timeouts;
        (self.rtt_us, self.rtt_us_min) = (later.rtt_us, later.rtt_us_min);
    }
}

impl NetworkSigns {
    /// Returns what the kernel counted from `before` to `after`; a count that it does not keep is
    /// 0.
    #[must_use]
    pub fn between(before: &TcpInfo, after: &TcpInfo) -> Self {
        let count = |of: fn(&TcpInfo) -> Option<u64>| {
            of(after)
                .unwrap_or(0)
                .saturating_sub(of(before).unwrap_or(0))
        };
        Self {
            sent_bytes: count(TcpInfo::bytes_sent),
            resent_bytes: count(TcpInfo::bytes_retrans),
            timeouts: count(TcpInfo::total_rto),
            rtt_us: after.rtt_us().unwrap_or(0),
            rtt_us_min: after.min_rtt_us().unwrap_or(0),
        }
    }

    /// Returns the counts that were added since `earlier`, an earlier state of these signs.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            resent_bytes: self.resent_bytes.saturating_sub(earlier.resent_bytes),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
            ..*self
        }
    }

    /// Returns the limit of the network that the signs point to.
    #[must_use]
    pub const fn limit(&self) -> NetworkLimit {
        // Signs of loss come first: a queue that overflows loses packets, too, and the loss costs
        // more.
        if self.timeouts > 0 || self.resent_bytes * LOSS_ONE_IN > self.sent_bytes {
            NetworkLimit::Loss
        } else if self.rtt_us > self.rtt_us_min * QUEUE_TIMES + QUEUE_US_MIN {
            NetworkLimit::Queue
        } else {
            NetworkLimit::Path
        }
    }
}

/// When more than one byte in this many was sent again, loss is the limit.
const LOSS_ONE_IN: u64 = 500;
/// When the round trip is longer than this many times the shortest plus [`QUEUE_US_MIN`]
/// microseconds (the time that scheduling may cost), a queue is the limit.
const QUEUE_TIMES: u64 = 2;
const QUEUE_US_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(busy_us: u64, rwnd_us: u64, sndbuf_us: u64) -> TcpInfo {
        let mut bytes = [0; 232];
        for (at, value) in [(168, busy_us), (176, rwnd_us), (184, sndbuf_us)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        TcpInfo::from_bytes(&bytes)
    }

    /// A segment of 1,000 bytes; ten under way, of a hundred; a window of 100,000 bytes.
    fn windows(fields: &[(usize, u32)]) -> TcpInfo {
        let mut bytes = [0; 280];
        let usual = [(16, 1_000), (24, 10), (80, 100), (228, 100_000)];
        for (at, value) in usual.iter().chain(fields) {
            bytes[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        TcpInfo::from_bytes(&bytes)
    }

    /// Of 30,000 bytes of send buffer, `used` are in use.
    fn buffers(used: u32) -> SocketBuffers {
        SocketBuffers {
            send_bytes: 30_000,
            send_used_bytes: used,
            ..SocketBuffers::default()
        }
    }

    #[test]
    fn a_send_buffer_is_to_blame_when_a_writer_waits_for_it_and_nothing_else() {
        let is_full = |used, fields: &[_]| is_buffer_full(&windows(fields), &buffers(used));
        assert!(is_full(31_000, &[]));
        // The writer is not woken before a third of it is free.
        assert!(is_full(20_500, &[]));
        assert!(!is_full(19_500, &[]));
        assert!(!is_full(0, &[]));
        let others = [
            ("not all was sent", (144, 1)),
            ("the congestion window is full", (80, 10)),
            ("the peer's window is full", (228, 10_900)),
            ("a gap: beyond it all has arrived", (28, 5)),
            ("a loss", (32, 1)),
        ];
        for (what, field) in others {
            assert!(!is_full(31_000, &[field]), "{what}");
        }
    }

    #[test]
    fn shares_sum_to_the_time_whatever_the_kernel_counts() {
        let second = Duration::from_secs(1);
        let (before, us) = (info(10, 5, 1), Duration::from_micros);
        let after = info(600_010, 200_005, 100_001);
        let shares = TcpShares::between(&before, &after, second).unwrap();
        assert_eq!(
            [
                shares.application,
                shares.receiver,
                shares.send_buffer,
                shares.network
            ],
            [us(400_000), us(200_000), us(100_000), us(300_000)]
        );
        assert_eq!(shares.percents(), [40.0, 20.0, 10.0, 30.0]);
        // Ticks make it count more than there was; and a counter that went back counts nothing.
        for (busy, rwnd, sndbuf) in [(9_000_000, 0, 0), (3, 9_000_000, 9_000_000), (0, 0, 0)] {
            let after = info(busy, rwnd, sndbuf);
            let shares = TcpShares::between(&before, &after, second).unwrap();
            assert_eq!(shares.total(), second, "{busy} {rwnd} {sndbuf}");
        }
        let full = shares.with_buffers(&windows(&[]), &buffers(31_000));
        assert_eq!((full.send_buffer, full.network), (us(400_000), us(0)));
        assert_eq!(full.total(), second);
        let mut sum = shares;
        sum += full;
        assert_eq!(sum.since(&shares), full);
        assert_eq!(shares.since(&sum), TcpShares::default());
        let old = TcpInfo::from_bytes(&[0; 160]);
        assert_eq!(TcpShares::between(&old, &old, second), None);
    }

    #[test]
    fn the_largest_share_is_the_limit_and_the_network_has_a_reason() {
        let quiet = NetworkSigns {
            sent_bytes: 1_000_000,
            rtt_us: 300,
            rtt_us_min: 100,
            ..NetworkSigns::default()
        };
        let of = |application, receiver, send_buffer, network| TcpShares {
            application: Duration::from_millis(application),
            receiver: Duration::from_millis(receiver),
            send_buffer: Duration::from_millis(send_buffer),
            network: Duration::from_millis(network),
        };
        assert_eq!(of(0, 0, 0, 0).limit(&quiet), None);
        assert_eq!(of(5, 4, 3, 2).limit(&quiet), Some(TcpLimit::Application));
        assert_eq!(of(4, 5, 3, 2).limit(&quiet), Some(TcpLimit::Receiver));
        assert_eq!(of(1, 2, 5, 4).limit(&quiet), Some(TcpLimit::SendBuffer));
        let lossy = NetworkSigns {
            resent_bytes: 10_000,
            ..quiet
        };
        let queued = NetworkSigns {
            rtt_us: 50_000,
            ..quiet
        };
        for (signs, limit) in [
            (quiet, NetworkLimit::Path),
            (lossy, NetworkLimit::Loss),
            (queued, NetworkLimit::Queue),
        ] {
            assert_eq!(of(1, 2, 3, 4).limit(&signs), Some(TcpLimit::Network(limit)));
        }
    }
}
