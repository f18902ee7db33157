//! The number of parity packets that follow each group unasked: enough that most groups need no
//! NAK.
//!
//! The module does not know losses or receivers. It only counts the groups for which a receiver
//! sent a NAK although their parity had been sent. In: one note for each group sent, one for each
//! group asked for. Out: the number of parity packets.
//!
//! ```text
//!   of 64 groups, asked for     > 8        0 to 8       0, eight times in a row
//!   parity of a group           one more   as it is     one fewer
//! ```
//!
//! The number rises at once and falls only after a long quiet time. A NAK costs a round trip and as
//! many packets as the worst receiver lacks; a needless parity packet costs only itself.
//!
//! Invariant: the number lies between the configured minimum and maximum.

/// The adaptive number of pro-active parity packets for each group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    count: u32,
    min: u32,
    max: u32,
    /// Since `count` was last reviewed: the number of groups sent, and the number of groups for
    /// which a receiver asked for more parity.
    sent: u32,
    asked: u32,
    /// How many reviews in a row found that receivers asked for no group; a review follows every
    /// [`GROUPS`] groups.
    quiet: u32,
}

impl Share {
    /// Makes the number of parity packets for a group. It begins at `min`, never falls below `min`,
    /// and rises to at most `max`.
    pub(super) const fn new(min: u32, max: u32) -> Self {
        Self {
            count: min,
            min,
            max: if max < min { min } else { max },
            sent: 0,
            asked: 0,
            quiet: 0,
        }
    }

    /// Returns the number of parity packets that the present group gets.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns true when no group ever gets pro-active parity.
    pub(super) const fn is_none(&self) -> bool {
        self.max == 0
    }

    /// Notes that a receiver asked for more parity of a group whose pro-active parity had been
    /// sent. Called at most once for each group.
    pub(super) const fn group_asked(&mut self) {
        self.asked += 1;
    }

    /// Notes that a group and its parity were sent.
    pub(super) fn group_sent(&mut self) {
        self.sent += 1;
        if self.sent < GROUPS {
            return;
        }
        self.quiet = if self.asked == 0 { self.quiet + 1 } else { 0 };
        if self.asked > ASKED_MAX {
            self.count = (self.count + 1).min(self.max);
        } else if self.quiet == QUIET_MAX {
            self.count = self.count.saturating_sub(1).max(self.min);
            self.quiet = 0;
        }
        (self.sent, self.asked) = (0, 0);
    }
}

/// After this many groups, the number of parity packets for a group is reviewed.
const GROUPS: u32 = 64;
const ASKED_MAX: u32 = GROUPS / 8;
const QUIET_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The number after `groups` groups, of which every `asked`-th is asked for (0 for none).
    fn after(share: &mut Share, groups: u32, asked: u32) -> u32 {
        for group in 1..=groups {
            if asked > 0 && group % asked == 0 {
                share.group_asked();
            }
            share.group_sent();
        }
        share.count()
    }

    #[test]
    fn it_grows_while_many_groups_are_asked_for_and_stays_within_its_bounds() {
        let mut share = Share::new(1, 4);
        assert_eq!(after(&mut share, 64, 2), 2);
        assert_eq!(after(&mut share, 64, 9), 2, "few were asked for");
        assert_eq!(after(&mut share, 64 * 10, 1), 4);
        assert_eq!(after(&mut share, 64 * 7, 0), 4);
        assert_eq!(after(&mut share, 64, 60), 4, "one was: quiet starts over");
        assert_eq!(after(&mut share, 64 * 8, 0), 3);
        assert_eq!(after(&mut share, 64 * 100, 0), 1);
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut share = Share::new(2, 0);
        assert_eq!(after(&mut share, 640, 1), 2);
        assert_eq!(after(&mut share, 6400, 0), 2);
        assert!(!share.is_none() && Share::new(0, 0).is_none());
    }
}
