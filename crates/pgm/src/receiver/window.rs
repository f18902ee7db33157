//! One sender's receive window: what is known to exist, what is missing, what was handed out.
//!
//! The window does not touch payloads. In: positions of data, edges that the sender announces,
//! repairs that are given up. Out: where a packet belongs, and what may be handed out next.
//!
//! ```text
//!        trail            base            confirmed     next                        base + span
//!  ........|................|..#####..####...#####|........|............................|........
//!   gone     handed out       gaps (.) and received (#)       first not heard of          beyond
//!                                                  \______/
//!                                     announced once by SPM or NCF alone: may be a mistake
//! ```
//!
//! - `base`: the next position to hand out (`Mode::Sequence`); meaningless in `Mode::Arrival`,
//!   where the first gap takes its place.
//! - `next`: one past the last position known to exist. All of `base..next` was received, except
//!   for what [`Gaps`] lists.
//! - `confirmed <= next`: the positions from `confirmed` on were announced only once. A single
//!   forged or corrupt SPM must not make a receiver report the loss of what was never sent. So the
//!   receiver withdraws an announcement when nobody repeats it, no data follows it, and NAKs for it
//!   remain unanswered.
//! - A single packet's trail may be forged or corrupt, too. So a trail beyond `confirmed` is
//!   believed only when a second packet announces it.
//! - Nothing at or beyond `base + span` is tracked. What an SPM announces there is noted, and comes
//!   into the window as `base` moves.
//!
//! **Spec**: RFC 3208 sections 3.4, 6.1 to 6.3.

use base::{DropReason, Instant};

use super::gaps::Gaps;

/// The window's edges and gaps, in 64-bit positions.
#[derive(Debug)]
pub(super) struct Window {
    is_sequence: bool,
    pub(super) base: u64,
    pub(super) next: u64,
    pub(super) trail: u64,
    confirmed: u64,
    /// One past the highest lead that is certain, as a rule because it was announced twice.
    noted: u64,
    /// One past the lead of the latest announcement.
    announced: u64,
    /// The trail that the last packet announced, if it lay beyond the positions that certainly
    /// exist; 0 otherwise.
    claimed_trail: u64,
    span_max: u64,
    pub(super) gaps: Gaps,
}

/// The place of a data packet in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The first unknown position.
    Next,
    /// A position beyond the first unknown position: a gap opens.
    Ahead,
    /// A position in the gap with this index.
    Gap(usize),
    /// The packet has no place in the window, for this reason.
    Nowhere(DropReason),
}

impl Window {
    /// Makes an empty window that waits for `base`.
    pub(super) fn new(is_sequence: bool, base: u64, span_max: u64, gaps_max: usize) -> Self {
        Self {
            is_sequence,
            base,
            next: base,
            trail: 0,
            confirmed: base,
            noted: base,
            announced: base,
            claimed_trail: 0,
            span_max,
            gaps: Gaps::new(gaps_max),
        }
    }

    /// Returns the next position to hand out; in `Mode::Arrival`, the first that is missing.
    #[inline]
    pub(super) fn contiguous(&self) -> u64 {
        if self.is_sequence {
            self.base
        } else {
            self.gaps.first().unwrap_or(self.next)
        }
    }

    /// Returns the number of positions that the window can track.
    #[inline]
    pub(super) const fn span_max(&self) -> u64 {
        self.span_max
    }

    /// Returns one past the last position that the window can track.
    fn limit(&self) -> u64 {
        self.contiguous() + self.span_max
    }

    /// Returns the place of the data packet at `position`.
    pub(super) fn place(&self, position: u64) -> Place {
        if position >= self.next {
            return if position >= self.limit() {
                Place::Nowhere(DropReason::BeyondWindow)
            } else if position == self.next {
                Place::Next
            } else if self.gaps.can_open(self.next) {
                Place::Ahead
            } else {
                Place::Nowhere(DropReason::NoRoom)
            };
        }
        match self.gaps.locate(position) {
            Some(index) if self.gaps.can_fill(index, position) => Place::Gap(index),
            Some(_) => Place::Nowhere(DropReason::NoRoom),
            None if position < self.trail => Place::Nowhere(DropReason::BehindWindow),
            None => Place::Nowhere(DropReason::Duplicate),
        }
    }

    /// Notes that the data at `position` was received; `place` says where this position lies. If
    /// this opens a gap, the gap's deadline is `due`.
    pub(super) fn take(&mut self, position: u64, place: Place, now: Instant, due: Instant) {
        match place {
            Place::Next => self.next = position + 1,
            Place::Ahead => {
                self.gaps.open(self.next, position, now, due);
                self.next = position + 1;
            }
            Place::Gap(index) => self.gaps.fill(index, position),
            Place::Nowhere(_) => return,
        }
        self.confirmed = self.confirmed.max(position + 1);
    }

    /// Does what [`Window::take`] does for the first unknown position. With `is_handed_out`, that
    /// position is handed out at once.
    #[inline]
    pub(super) fn take_next(&mut self, is_handed_out: bool) {
        self.next += 1;
        self.confirmed = self.next;
        if is_handed_out {
            self.base = self.next;
        }
    }

    /// Notes that `position` exists although its data could not be kept.
    pub(super) fn miss(&mut self, position: u64, now: Instant, due: Instant) {
        if position >= self.next && self.gaps.open(self.next, position + 1, now, due) {
            self.next = position + 1;
        } else {
            self.gaps.answered(position, now);
        }
        self.confirmed = self.confirmed.max(self.next.min(position + 1));
    }

    /// Takes the sender's announcement that everything before `end` was sent. Returns true when a
    /// gap opened.
    ///
    /// Positions that two announcements in a row cover are certain. The receiver asks for positions
    /// that only one announcement covers, but does not report them as lost. With `is_certain`, one
    /// announcement is enough.
    pub(super) fn announce(
        &mut self,
        end: u64,
        is_certain: bool,
        now: Instant,
        due: Instant,
    ) -> bool {
        let agreed = if is_certain {
            end
        } else {
            end.min(self.announced)
        };
        self.announced = end;
        self.noted = self.noted.max(agreed);
        self.confirmed = self.confirmed.max(self.noted.min(self.next));
        self.extend(end, now, due)
    }

    /// Extends the window to positions that certainly exist but lay beyond its limit, as far as the
    /// limit now allows.
    pub(super) fn extend_to_noted(&mut self, now: Instant, due: Instant) -> bool {
        self.noted > self.next && self.extend(self.noted, now, due)
    }

    fn extend(&mut self, end: u64, now: Instant, due: Instant) -> bool {
        let end = end.min(self.limit());
        let opens = end > self.next && self.gaps.open(self.next, end, now, due);
        if opens {
            self.next = end;
            self.confirmed = self.confirmed.max(self.noted.min(end));
        }
        opens
    }

    /// Extends the window to `end`, because an NCF names positions up to there. Returns false when
    /// `end` lies beyond what the window can track, or when there is no room for a gap.
    pub(super) fn hint(&mut self, end: u64, now: Instant, due: Instant) -> bool {
        end <= self.limit() && (end <= self.next || self.extend(end, now, due))
    }

    /// Takes a packet's announcement that nothing before `trail` can be repaired any more. Returns
    /// the number of positions given up.
    ///
    /// `certain` is one past what was known to exist before this packet ([`Window::confirmed`]). A
    /// trail beyond it counts only when the next packet announces such a trail, too; the lower of
    /// the two then counts.
    pub(super) fn see_trail(&mut self, trail: u64, certain: u64) -> u64 {
        let told = if trail > certain {
            std::mem::replace(&mut self.claimed_trail, trail).min(trail)
        } else {
            self.claimed_trail = 0;
            trail
        };
        if told <= self.trail {
            return 0;
        }
        self.advance_trail(told)
    }

    fn advance_trail(&mut self, trail: u64) -> u64 {
        let mut lost = self.lose_before(trail.min(self.next));
        if trail > self.next {
            if !self.gaps.open_lost(self.next, trail) {
                return lost;
            }
            lost += trail - self.next;
            self.next = trail;
        }
        self.trail = trail;
        self.confirmed = self.confirmed.max(trail);
        lost
    }

    /// Returns one past the last position that certainly exists.
    pub(super) const fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Gives up all missing positions before `trail`. Returns their number.
    pub(super) fn lose_before(&mut self, trail: u64) -> u64 {
        match self.gaps.first() {
            Some(first) if first < trail => self.gaps.lose_before(trail),
            _ => 0,
        }
    }

    /// Gives up every missing position up to the end that was announced. The session is over, so an
    /// announcement counts even if nobody repeated it.
    pub(super) fn lose_all(&mut self) -> u64 {
        let lost = self.gaps.lose_before(self.next);
        let end = self.noted.max(self.announced.min(self.limit()));
        if end <= self.next || !self.gaps.open_lost(self.next, end) {
            return lost;
        }
        let lost = lost + end - self.next;
        self.next = end;
        lost
    }

    /// Ends the window at `end`, where the sender says that its data ends. Positions from `end` on
    /// that were announced only once do not exist. Returns false, and changes nothing, when a
    /// position at or beyond `end` certainly exists.
    pub(super) fn cut(&mut self, end: u64) -> bool {
        let holds = end >= self.confirmed;
        if holds && end < self.next {
            self.gaps.truncate(end);
            self.next = end;
        }
        holds
    }

    /// Believes the sender that it has sent nothing at or beyond `end`. Positions there that were
    /// announced but have not arrived then do not exist. Returns the number of positions withdrawn.
    pub(super) fn retract(&mut self, end: u64) -> u64 {
        let end = end.max(self.gaps.arrived_end(self.next));
        self.noted = self.noted.min(end);
        self.announced = self.announced.min(end);
        self.claimed_trail = 0;
        if end >= self.next {
            return 0;
        }
        let withdrawn = self.next - end;
        self.gaps.truncate(end);
        self.next = end;
        self.confirmed = self.confirmed.min(end);
        withdrawn
    }

    /// Withdraws all positions that were announced only once, when one of them was given up: they
    /// may never have been sent. Returns the number of positions withdrawn.
    pub(super) fn withdraw(&mut self) -> u64 {
        if self.next == self.confirmed || !self.gaps.is_any_lost_after(self.confirmed) {
            return 0;
        }
        let withdrawn = self.next - self.confirmed;
        self.gaps.truncate(self.confirmed);
        self.next = self.confirmed;
        withdrawn
    }

    /// Counts the positions in `first..end` that were not received. Positions that are not known to
    /// exist count, too.
    pub(super) fn missing_of(&self, first: u64, end: u64) -> u64 {
        let known_end = end.min(self.next).max(first);
        (end - known_end) + self.gaps.missing_in(first, known_end)
    }

    /// Returns true when the last packet announced a trail that is ahead of every position known to
    /// exist.
    pub(super) const fn has_claim(&self) -> bool {
        self.claimed_trail != 0
    }
}

#[cfg(test)]
mod tests;
