//! The numbering of groups, parity packets and requests for parity, which follows from the sequence
//! numbers of data packets.
//!
//! The module does not know which groups are complete, sent or asked for. In: sequence numbers.
//! Out: what they mean with the parity flag set, and the other way round.
//!
//! ```text
//!   sqn of a data packet      | group .............. | member      |
//!   sqn of parity packet j    | group .............. | j modulo k  |  OPT_PARITY_GRP: j / k
//!   sqn of a parity NAK, NCF  | group .............. | count - 1   |  log2(k) low bits
//! ```
//!
//! **Spec**: RFC 3208 sections 11.2 ("Data and parity packet numbering"), 11.3 and 11.4.

use wire::{Sqn, pgm::ParityGrp};

use super::ROWS_MAX;

/// The numbering in a session whose full groups have `group_size` members (k in RFC 3208).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbering {
    group_size: u32,
}

impl Numbering {
    /// Makes the numbering for full groups of `group_size` members; `None` unless `group_size` is a
    /// power of two from 2 to 128.
    #[must_use]
    pub const fn new(group_size: u32) -> Option<Self> {
        if group_size.is_power_of_two() && 2 <= group_size && group_size <= 128 {
            Some(Self { group_size })
        } else {
            None
        }
    }

    /// Returns the number of members of a full group.
    #[must_use]
    pub const fn group_size(&self) -> u32 {
        self.group_size
    }

    /// Returns the first number of the group that `sqn` lies in, whatever kind of packet bears it.
    #[must_use]
    pub const fn first_of(&self, sqn: Sqn) -> Sqn {
        Sqn(sqn.0 & !(self.group_size - 1))
    }

    /// Returns the sequence number of parity packet `index` in the group that `sqn` lies in, and
    /// the option that the packet needs, if any. `None` when the erasure code has no such packet.
    #[must_use]
    pub fn parity(&self, sqn: Sqn, index: usize) -> Option<(Sqn, Option<ParityGrp>)> {
        let index = u32::try_from(index).ok()?;
        if index >= self.parities_max() {
            return None;
        }
        let (group, low) = (index / self.group_size, index % self.group_size);
        let sqn = Sqn(self.first_of(sqn).0 | low);
        Some((sqn, (group > 0).then_some(ParityGrp { group })))
    }

    /// Returns the index, in its group, of the parity packet with this `sqn` and this option.
    /// `None` when the erasure code has no such packet, or when the option holds 0: a sender must
    /// leave out an option that would hold 0.
    #[must_use]
    pub fn parity_index(&self, sqn: Sqn, option: Option<ParityGrp>) -> Option<usize> {
        if option.is_some_and(|option| option.group == 0) {
            return None;
        }
        let group = option.map_or(0, |option| option.group);
        let index = group
            .checked_mul(self.group_size)?
            .checked_add(self.low(sqn))?;
        (index < self.parities_max()).then_some(index as usize)
    }

    /// Returns the sequence number of a parity NAK for the group that `sqn` lies in. `missing` is
    /// the size of a full group minus the members that the receiver has, even when the group is
    /// known to be short. `None` when `missing` is 0 or more than a full group.
    #[must_use]
    pub fn request(&self, sqn: Sqn, missing: u32) -> Option<Sqn> {
        let is_sound = (1..=self.group_size).contains(&missing);
        is_sound.then(|| Sqn(self.first_of(sqn).0 | (missing - 1)))
    }

    /// Returns how many parity packets the parity NAK `sqn` asks for in a group of `size` members.
    /// The NAK counts as if the group were full, so the members that a short group lacks are
    /// subtracted.
    #[must_use]
    pub const fn requested(&self, sqn: Sqn, size: u32) -> u32 {
        let short_by = self.group_size.saturating_sub(size);
        (self.low(sqn) + 1).saturating_sub(short_by)
    }

    const fn low(&self, sqn: Sqn) -> u32 {
        sqn.0 & (self.group_size - 1)
    }

    const fn parities_max(&self) -> u32 {
        ROWS_MAX as u32 - self.group_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(group_size: u32) -> Numbering {
        Numbering::new(group_size).unwrap()
    }

    #[test]
    fn only_powers_of_two_that_leave_room_for_parity_are_group_sizes() {
        let sizes: Vec<u32> = (0..300).filter(|&k| Numbering::new(k).is_some()).collect();
        assert_eq!(sizes, [2, 4, 8, 16, 32, 64, 128]);
        assert!(Numbering::new(1 << 31).is_none());
    }

    #[test]
    fn every_parity_packet_of_a_code_has_its_own_number_and_reads_back() {
        for group_size in [2, 8, 64, 128] {
            let (numbering, sqn) = (of(group_size), Sqn(u32::MAX - 1));
            let count = ROWS_MAX - group_size as usize;
            let mut seen = std::collections::BTreeSet::new();
            for index in 0..count {
                let (number, option) = numbering.parity(sqn, index).unwrap();
                assert_eq!(numbering.first_of(number), numbering.first_of(sqn));
                assert_eq!(numbering.parity_index(number, option), Some(index));
                assert!(seen.insert((number.0, option.map(|option| option.group))));
            }
            assert_eq!(numbering.parity(sqn, count), None);
        }
    }

    #[test]
    fn the_second_k_parity_packets_need_the_option() {
        let numbering = of(8);
        assert_eq!(numbering.parity(Sqn(21), 7), Some((Sqn(23), None)));
        let option = Some(ParityGrp { group: 1 });
        assert_eq!(numbering.parity(Sqn(21), 8), Some((Sqn(16), option)));
    }

    #[test]
    fn forged_numbers_name_no_packet_and_do_not_overflow() {
        let numbering = of(64);
        for group in [0, 3, 1 << 26, u32::MAX] {
            let option = Some(ParityGrp { group });
            assert_eq!(numbering.parity_index(Sqn(63), option), None, "{group}");
        }
    }

    #[test]
    fn requests_count_from_one_and_short_groups_need_less() {
        let numbering = of(8);
        assert_eq!(numbering.request(Sqn(19), 0), None);
        assert_eq!(numbering.request(Sqn(19), 9), None);
        let three = numbering.request(Sqn(19), 3).unwrap();
        assert_eq!((three, numbering.first_of(three)), (Sqn(18), Sqn(16)));
        assert_eq!(numbering.requested(three, 8), 3);
        // One of six members is missing. The receiver had five packets and counted from a full
        // group of eight, so its NAK asks for three.
        assert_eq!(numbering.requested(three, 6), 1);
        assert_eq!(numbering.requested(three, 2), 0);
    }
}
