//! Where every packet went: 64-bit counters by cause, in total and for each second.

use crate::Packet;

/// What one number of the account counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Frames as the kernel hands them over: several packets of the wire may be one.
    #[default]
    FrameAsCaptured,
    /// Packets as they are on the wire: super-packets were cut up.
    PacketOnTheWire,
}

impl Unit {
    /// Returns the unit in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FrameAsCaptured => "frame as captured",
            Self::PacketOnTheWire => "packet on the wire",
        }
    }
}

/// What a source lost, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that reached the source, including those that it dropped; `None` when it cannot
    /// know.
    pub seen: Option<u64>,
    /// Packets for which the ring (or the socket's buffer) had no room.
    pub ring: u64,
    /// How often a ring was full.
    pub freezes: u64,
    /// Packets that the interface or its driver dropped before any socket saw them.
    pub interface: u64,
    /// Records of a file that were damaged.
    pub damaged: u64,
    /// Bytes at the end of a file that could not be divided into records, or that belong to a
    /// record cut short.
    pub lost_bytes: u64,
}

impl Losses {
    /// Returns the sum of two sources' losses.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            seen: self.seen.zip(other.seen).map(|(a, b)| a + b),
            ring: self.ring + other.ring,
            freezes: self.freezes + other.freezes,
            interface: self.interface + other.interface,
            damaged: self.damaged + other.damaged,
            lost_bytes: self.lost_bytes + other.lost_bytes,
        }
    }
}

/// The account of one capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames that the source gave, before filter and segmentation.
    pub received: u64,
    /// Frames that the filter rejected.
    pub filtered: u64,
    /// Frames that were still in the ring when a limit was reached.
    pub unread: u64,
    /// Frames that passed the filter.
    pub passed: u64,
    /// Passed frames that are several packets of the wire in one piece.
    pub super_frames: u64,
    /// Super-packets that could not be cut up and were delivered whole.
    pub uncut_super_frames: u64,
    /// Packets that the sink took and kept, in [`Account::unit`].
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Delivered packets that are not whole.
    pub cut: u64,
    /// Packets that the sink took and could not keep: the disk was full, or the device down.
    pub unwritten: u64,
    /// Bytes of the unwritten packets.
    pub unwritten_bytes: u64,
    /// Packets made by cutting up super-packets, not counting the first of each.
    pub pieces: u64,
    /// What the source lost.
    pub losses: Losses,
    /// What `delivered`, `cut` and `unwritten` count. All other counts of packets, except `pieces`,
    /// are in frames as captured.
    pub unit: Unit,
    /// Some of these counts for each interface, in the order of the interfaces' numbers in the
    /// sink.
    pub interfaces: Vec<InterfaceAccount>,
    /// What interfaces and their drivers lost, by their own names for it.
    pub named_losses: Vec<(String, u64)>,
    /// Some of these counts for each second of the last day.
    pub seconds: Vec<Second>,
    /// Number of earlier seconds, which are only in the sums.
    pub seconds_unlisted: u64,
}

/// The account of one interface of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceAccount {
    /// Frames that passed the filter.
    pub passed: u64,
    /// Packets that the sink took and kept, in [`Account::unit`].
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets that the sink took and could not keep.
    pub unwritten: u64,
    /// What the interface's source lost. A file's losses are counted at the file's first interface.
    pub losses: Losses,
}

/// Packets of one interface that a sink took and could not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets, as many as the sink was given.
    pub bytes: u64,
    /// How many of these packets were not whole.
    pub cut: u64,
}

impl Unwritten {
    /// Makes the counts for one packet.
    #[must_use]
    pub const fn of(packet: &Packet<'_>) -> Self {
        Self {
            packets: 1,
            bytes: packet.data.len() as u64,
            cut: packet.is_cut() as u64,
        }
    }
}

/// Packets that a sink could not keep and has not reported yet, by the interfaces' numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnwrittenList(Vec<Unwritten>);

impl UnwrittenList {
    pub(crate) fn add(&mut self, interface: u32, more: Unwritten) {
        let at = interface as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Unwritten::default());
        }
        let sum = &mut self.0[at];
        sum.packets += more.packets;
        sum.bytes += more.bytes;
        sum.cut += more.cut;
    }

    /// Takes everything that was added since the last call.
    pub(crate) fn take(&mut self) -> Vec<Unwritten> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn append(&mut self, others: Vec<Unwritten>) {
        for (interface, more) in (0..).zip(others) {
            self.add(interface, more);
        }
    }
}

/// One second of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// The end of the second, counted in seconds since the capture began.
    pub at: u64,
    /// Packets that the sink took and kept.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Delivered packets that are not whole.
    pub cut: u64,
    /// Packets that the sink took and could not keep.
    pub unwritten: u64,
    /// Frames that the filter rejected.
    pub filtered: u64,
    /// Frames that were still in the ring when a limit was reached.
    pub unread: u64,
    /// Packets for which the ring had no room.
    pub ring: u64,
    /// Packets that the interface dropped.
    pub interface: u64,
    /// Records of a file that were damaged.
    pub damaged: u64,
}

impl Account {
    /// Returns how many packets the kernel gave us or dropped, by its own count, minus those in the
    /// account. The result is 0 when the account adds up, and `None` for a source that does not
    /// count.
    #[must_use]
    pub fn residual(&self) -> Option<i128> {
        let seen = i128::from(self.losses.seen?);
        let known = [self.passed, self.filtered, self.unread, self.losses.ring];
        Some(seen - known.iter().map(|count| i128::from(*count)).sum::<i128>())
    }

    /// Returns how many packets passed the filter, minus those that the sink kept or could not
    /// keep. A super-packet counts as its pieces. The result is 0 when nothing was lost on the way
    /// to the sink.
    #[must_use]
    pub fn sink_residual(&self) -> i128 {
        let given = i128::from(self.passed) + i128::from(self.pieces);
        given - i128::from(self.delivered) - i128::from(self.unwritten)
    }

    /// Returns true when both residuals are 0: the account has every packet. A residual that is
    /// `None` counts as 0.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.residual().is_none_or(|left| left == 0) && self.sink_residual() == 0
    }

    /// Returns how many packets were lost: the ring was full, the interface or the sink dropped
    /// them, or their record was damaged. A file that is damaged at its end may have lost more
    /// packets; only their bytes are known ([`Losses::lost_bytes`]).
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.losses.ring + self.losses.interface + self.losses.damaged + self.unwritten
    }

    /// Returns true when something may have been lost: packets count as lost, a file lost bytes at
    /// its end (perhaps of many packets), or the account does not add up.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lost() + self.losses.lost_bytes > 0 || !self.closes()
    }

    /// Adds the account of another worker that shares the interface's packets.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.received += other.received;
        sum.filtered += other.filtered;
        sum.unread += other.unread;
        sum.passed += other.passed;
        sum.super_frames += other.super_frames;
        sum.uncut_super_frames += other.uncut_super_frames;
        sum.pieces += other.pieces;
        sum.delivered += other.delivered;
        sum.delivered_bytes += other.delivered_bytes;
        sum.cut += other.cut;
        sum.unwritten += other.unwritten;
        sum.unwritten_bytes += other.unwritten_bytes;
        sum.losses = self.losses.plus(&other.losses);
        for (ours, theirs) in sum.interfaces.iter_mut().zip(&other.interfaces) {
            ours.passed += theirs.passed;
            ours.delivered += theirs.delivered;
            ours.delivered_bytes += theirs.delivered_bytes;
            ours.unwritten += theirs.unwritten;
            ours.losses = ours.losses.plus(&theirs.losses);
        }
        sum.named_losses.extend_from_slice(&other.named_losses);
        sum.seconds_unlisted = self.seconds_unlisted.max(other.seconds_unlisted);
        for second in &other.seconds {
            match sum.seconds.binary_search_by_key(&second.at, |one| one.at) {
                Ok(place) => sum.seconds[place] = sum.seconds[place].plus(second),
                Err(place) => sum.seconds.insert(place, *second),
            }
        }
        sum
    }

    /// Notes a packet that was read and passed the filter; `interface` is its interface's number in
    /// the sink.
    #[inline]
    pub(crate) fn pass(&mut self, packet: &Packet<'_>, interface: u32) {
        self.received += 1;
        self.passed += 1;
        self.super_frames += u64::from(packet.is_super_packet());
        if let Some(account) = self.interfaces.get_mut(interface as usize) {
            account.passed += 1;
        }
    }

    /// Notes packets that the sink took and could not keep: they no longer count as delivered.
    pub(crate) fn take_out(&mut self, interface: usize, unwritten: &Unwritten) {
        self.delivered -= unwritten.packets;
        self.delivered_bytes -= unwritten.bytes;
        self.cut -= unwritten.cut;
        self.unwritten += unwritten.packets;
        self.unwritten_bytes += unwritten.bytes;
        if let Some(account) = self.interfaces.get_mut(interface) {
            account.delivered -= unwritten.packets;
            account.delivered_bytes -= unwritten.bytes;
            account.unwritten += unwritten.packets;
        }
    }

    /// Notes a second that ends; `before` is the account at its beginning. Returns the account now.
    pub(crate) fn end_second(&mut self, at: u64, before: &Totals) -> Totals {
        if self.seconds.len() >= SECONDS_MAX {
            self.seconds.remove(0);
            self.seconds_unlisted += 1;
        }
        self.seconds.push(Second {
            at,
            ..Second::default()
        });
        self.amend_second(before)
    }

    /// Adds the changes since `before` to the second that was noted last. Returns the account now.
    pub(crate) fn amend_second(&mut self, before: &Totals) -> Totals {
        let now = Totals::of(self);
        for ((now, before), field) in now.0.iter().zip(before.0).zip(FIELDS) {
            let mut less = before.saturating_sub(*now);
            if let Some(last) = self.seconds.last_mut() {
                *field(last) += now.saturating_sub(before);
            }
            // The sink took these packets in this second or earlier, and could not keep them.
            for second in self.seconds.iter_mut().rev() {
                let part = less.min(*field(second));
                *field(second) -= part;
                less -= part;
                if less == 0 {
                    break;
                }
            }
        }
        now
    }
}

impl Second {
    fn plus(&self, other: &Self) -> Self {
        let (mut sum, mut other) = (*self, *other);
        for field in FIELDS {
            *field(&mut sum) += *field(&mut other);
        }
        sum
    }

    /// Returns how many packets were lost in this second.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.ring + self.interface + self.damaged + self.unwritten
    }
}

/// The counters that are kept for each second, in the order of [`FIELDS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals([u64; FIELDS.len()]);

impl Totals {
    const fn of(account: &Account) -> Self {
        Self([
            account.delivered,
            account.delivered_bytes,
            account.cut,
            account.unwritten,
            account.filtered,
            account.unread,
            account.losses.ring,
            account.losses.interface,
            account.losses.damaged,
        ])
    }
}

/// One counter of a second.
type Field = fn(&mut Second) -> &mut u64;

const FIELDS: [Field; 9] = [
    |second| &mut second.delivered,
    |second| &mut second.delivered_bytes,
    |second| &mut second.cut,
    |second| &mut second.unwritten,
    |second| &mut second.filtered,
    |second| &mut second.unread,
    |second| &mut second.ring,
    |second| &mut second.interface,
    |second| &mut second.damaged,
];

/// The most seconds that an account lists: one day. They take 7 MB, 80 bytes each.
const SECONDS_MAX: usize = 86_400;

/// Adds up 32-bit counters, which the kernel resets when they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketTotals {
    pub(crate) seen: u64,
    pub(crate) dropped: u64,
    pub(crate) freezes: u64,
}

impl SocketTotals {
    pub(crate) fn add(&mut self, drops: sys::packet::SocketDrops) {
        self.seen += u64::from(drops.seen);
        self.dropped += u64::from(drops.dropped);
        self.freezes += u64::from(drops.freezes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_on_beyond_32_bits() {
        let mut totals = SocketTotals::default();
        for _ in 0..3 {
            totals.add(sys::packet::SocketDrops {
                seen: u32::MAX,
                dropped: 2_000_000_000,
                freezes: 1,
            });
        }
        assert_eq!(totals.seen, 3 * u64::from(u32::MAX));
        assert_eq!((totals.dropped, totals.freezes), (6_000_000_000, 3));
        let account = Account {
            passed: totals.seen - totals.dropped - 5,
            filtered: 4,
            unread: 1,
            losses: Losses {
                seen: Some(totals.seen),
                ring: totals.dropped,
                ..Losses::default()
            },
            ..Account::default()
        };
        assert_eq!(account.residual(), Some(0));
    }

    #[test]
    fn who_shares_packets_has_one_account() {
        let part = |delivered, at: &[u64]| Account {
            received: delivered + 1,
            filtered: 1,
            passed: delivered,
            delivered,
            losses: Losses {
                seen: Some(delivered + 3),
                ring: 2,
                ..Losses::default()
            },
            interfaces: vec![InterfaceAccount {
                delivered,
                ..InterfaceAccount::default()
            }],
            seconds: at
                .iter()
                .map(|at| Second {
                    at: *at,
                    delivered: 5,
                    ..Second::default()
                })
                .collect(),
            ..Account::default()
        };
        let sum = part(10, &[1, 2]).plus(&part(20, &[2, 3]));
        assert_eq!((sum.delivered, sum.residual()), (30, Some(0)));
        assert_eq!((sum.interfaces[0].delivered, sum.losses.ring), (30, 4));
        let seconds: Vec<_> = sum.seconds.iter().map(|s| (s.at, s.delivered)).collect();
        assert_eq!(seconds, [(1, 5), (2, 10), (3, 5)]);
    }

    #[test]
    fn seconds_are_differences() {
        let mut account = Account {
            delivered: 10,
            ..Account::default()
        };
        let before = account.end_second(1, &Totals::default());
        account.delivered = 25;
        account.losses.ring = 3;
        account.end_second(2, &before);
        let counts: Vec<_> = account
            .seconds
            .iter()
            .map(|s| (s.at, s.delivered, s.ring))
            .collect();
        assert_eq!(counts, [(1, 10, 0), (2, 15, 3)]);
    }

    #[test]
    fn seconds_before_the_last_day_are_counted() {
        let mut account = Account::default();
        let mut before = Totals::default();
        let day = SECONDS_MAX as u64;
        for at in 1..=day + 3 {
            account.delivered = 2 * at;
            before = account.end_second(at, &before);
        }
        assert_eq!(account.seconds.len(), SECONDS_MAX);
        assert_eq!((account.seconds[0].at, account.seconds_unlisted), (4, 3));
        let kept: u64 = account.seconds.iter().map(|second| second.delivered).sum();
        assert_eq!(kept, account.delivered - 2 * account.seconds_unlisted);
    }

    #[test]
    fn what_was_not_kept_is_taken_out_of_where_it_stands() {
        let mut account = Account {
            passed: 30,
            delivered: 30,
            delivered_bytes: 3000,
            cut: 5,
            interfaces: vec![InterfaceAccount::default(); 2],
            ..Account::default()
        };
        account.interfaces[1] = InterfaceAccount {
            passed: 30,
            delivered: 30,
            delivered_bytes: 3000,
            ..InterfaceAccount::default()
        };
        let totals = account.end_second(1, &Totals::default());
        account.passed += 2;
        account.delivered += 2;
        account.delivered_bytes += 200;
        account.interfaces[1].delivered += 2;
        account.interfaces[1].delivered_bytes += 200;
        let totals = account.end_second(2, &totals);
        let mut list = UnwrittenList::default();
        list.append(vec![Unwritten::default(); 2]);
        let (packets, bytes, cut) = (4, 400, 1);
        list.add(
            1,
            Unwritten {
                packets,
                bytes,
                cut,
            },
        );
        for (interface, unwritten) in list.take().iter().enumerate() {
            account.take_out(interface, unwritten);
        }
        assert!(list.take().is_empty());
        account.amend_second(&totals);
        assert_eq!((account.delivered, account.delivered_bytes), (28, 2800));
        assert_eq!((account.unwritten, account.unwritten_bytes), (4, 400));
        assert_eq!((account.cut, account.sink_residual()), (4, 0));
        let one = account.interfaces[1];
        assert_eq!((one.delivered, one.delivered_bytes), (28, 2800));
        assert_eq!(one.unwritten, 4);
        let of = |second: &Second| (second.delivered, second.delivered_bytes, second.unwritten);
        let seconds: Vec<_> = account.seconds.iter().map(of).collect();
        assert_eq!(seconds, [(28, 2800, 0), (0, 0, 4)]);
        account.delivered += 1;
        assert!(!account.closes());
    }
}
