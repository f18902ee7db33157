//! How a publisher's session ended, and which receivers lack something.

use std::cmp::Reverse;

use delivery::Audience;

/// How a publisher's session ended.
///
/// ```
/// # fn report(closed: towline::Closed) {
/// if !closed.is_complete() {
///     println!("{} never came, without all of it: {:?}", closed.missing, closed.unconfirmed);
/// }
/// # }
/// ```
#[must_use = "receivers may lack something"]
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Receivers that have been given everything.
    pub confirmed: u32,
    /// Receivers that were expected and never joined.
    pub missing: u32,
    /// Names of the receivers that joined and are not confirmed. Some had not been given everything
    /// when they left or when the session ended. Others lost packets, or reported packets that were
    /// never sent.
    pub unconfirmed: Vec<String>,
    /// Packets that receivers lost for good, all receivers together.
    pub lost: u64,
    /// The session was not broken off, no expected receiver was missing, and no receiver lost
    /// packets or reported packets that were never sent.
    is_complete: bool,
}

impl Closed {
    pub(crate) fn new(is_complete: bool, audience: &Audience, end: u64) -> Self {
        let mut closed = Self {
            confirmed: 0,
            missing: audience.missing(),
            unconfirmed: Vec::new(),
            lost: 0,
            is_complete,
        };
        for receiver in audience.confirmations(end) {
            closed.lost += receiver.lost;
            closed.is_complete &= receiver.lost == 0 && !receiver.is_astray;
            if receiver.is_confirmed {
                closed.confirmed += 1;
            } else {
                closed.unconfirmed.push(receiver.name.to_owned());
            }
        }
        closed
    }

    /// Returns the better result, `self` or `other`, of two feeds of the same data: a receiver that
    /// has everything by one feed lacks nothing. A feed that no receiver joined proves nothing, so
    /// its result counts as the worse one.
    pub(crate) fn or(self, other: Self) -> Self {
        let worth = |it: &Self| {
            let lost = Reverse(it.lost);
            (it.had_receivers(), it.is_complete, it.confirmed, lost)
        };
        if worth(&self) >= worth(&other) {
            self
        } else {
            other
        }
    }

    const fn had_receivers(&self) -> bool {
        self.confirmed > 0 || !self.unconfirmed.is_empty()
    }

    /// Returns true when the session ended in good order: everything was sent, every expected
    /// receiver came, no receiver lost anything, and all receivers present at the end have been
    /// given everything. A receiver that left earlier does not count, even if it had not been given
    /// everything; [`Closed::unconfirmed`] names it.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_worse_of_two_feeds_lacks_does_not_count() {
        let better = Closed {
            confirmed: 2,
            missing: 0,
            unconfirmed: Vec::new(),
            lost: 0,
            is_complete: true,
        };
        let worse = Closed {
            confirmed: 0,
            missing: 1,
            unconfirmed: vec!["display".to_owned()],
            lost: 70,
            is_complete: false,
        };
        assert_eq!(worse.clone().or(better.clone()), better);
        assert_eq!(better.clone().or(worse), better);
    }

    #[test]
    fn a_feed_that_nobody_joined_hides_no_loss_of_the_other() {
        let joined = Closed {
            confirmed: 0,
            missing: 0,
            unconfirmed: vec!["display".to_owned()],
            lost: 5,
            is_complete: false,
        };
        // Where a receiver is expected, the feed that nobody joined does not end well either.
        for missing in [0, 1] {
            let empty = Closed {
                confirmed: 0,
                missing,
                unconfirmed: Vec::new(),
                lost: 0,
                is_complete: missing == 0,
            };
            assert_eq!(empty.clone().or(joined.clone()), joined, "{missing}");
            assert_eq!(joined.clone().or(empty), joined, "{missing}");
        }
    }
}
