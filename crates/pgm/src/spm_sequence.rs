//! The sequence of a source's SPMs: which of them count, and which show that the source began anew.
//!
//! ```text
//!   last 900    901 or later comes: it counts
//!               3, 4, 5, ... 9: dropped; 10, the eighth in sequence: it counts, anew
//! ```
//!
//! **Spec**: RFC 3208 sections 6.2, 7.1.

use base::DropReason;
use wire::Sqn;

/// The sequence numbers of one source's SPMs, as a receiver or a network element hears them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpmSequence {
    last: Sqn,
    /// SPMs may be out of sequence with `last` but in sequence among themselves. This is the
    /// sequence number of the last such SPM, and how many of them came in a row.
    stale: (Sqn, u8),
}

/// How an SPM that counts follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpmOrder {
    /// It is newer.
    Newer,
    /// It is older, and [`STALE_MAX`] SPMs show that the numbers began anew.
    Anew,
}

impl SpmSequence {
    /// Begins with the first SPM heard.
    pub(crate) const fn new(first: Sqn) -> Self {
        Self {
            last: first,
            stale: (first, 0),
        }
    }

    /// Returns the number of the last SPM that counted.
    pub(crate) const fn last(&self) -> Sqn {
        self.last
    }

    /// Takes an SPM. Fails when it is out of sequence and does not count.
    ///
    /// Deviation: if only newer SPMs counted, one forged SPM with a far higher number would end the
    /// sender's SPMs, and so would a restart of the sender. So when [`STALE_MAX`] older SPMs in a
    /// row are in sequence with each other, the last of these counts, too.
    pub(crate) fn take(&mut self, sqn: Sqn) -> Result<SpmOrder, DropReason> {
        let mut order = SpmOrder::Newer;
        if !sqn.is_after(self.last) {
            let (last, count) = self.stale;
            let count = if sqn.is_after(last) { count + 1 } else { 1 };
            self.stale = (sqn, count);
            if count < STALE_MAX {
                return Err(DropReason::Stale);
            }
            order = SpmOrder::Anew;
        }
        *self = Self::new(sqn);
        Ok(order)
    }
}

/// How many SPMs in a row it takes to show that an earlier SPM was wrong. They must be in sequence
/// with each other, but not with the earlier SPM.
const STALE_MAX: u8 = 8;
