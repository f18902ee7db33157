//! The missing positions of one receive window, as ranges, each with the state of its repair.
//!
//! The module does not know what was received: the window opens gaps and fills them. In: positions
//! that turn out missing, that arrive, that the source confirms, or that the window gives up. Out:
//! the positions to ask for now, and the time of the next scan.
//!
//! ```text
//!            open                         .---- heard NAK ----.
//!             |                           v                   |
//!             v      due: ask      +-------------+            |
//!        +---------+ ------------> |  WaitNcf    | -----------'
//!        | BackOff |               +-------------+
//!        +---------+ <-- no NCF       |     | tries used up
//!          |  ^  \                    |NCF  '-------------.
//!      NCF |  |   '-- heard NAK: WaitNcf  |                |
//!          v  | no data               v                    v
//!        +----------+  <--------------'               +--------+
//!        | WaitData |  --- tries used up -----------> |  Lost  |  (also: trail passes range)
//!        +----------+                                 +--------+
//!              fill(): a position that arrives leaves from any state, even Lost
//! ```
//!
//! Invariants: the ranges are sorted, disjoint and not empty; there are at most `count_max` of
//! them, apart from the few that splits add. A scan comes at the earliest deadline, or soon after.
//! The cost of one range does not depend on its length.
//!
//! **Spec**: RFC 3208 section 6.3 and its state diagram. Deviation: after another receiver's NAK,
//! the RFC's text waits for NAK_RDATA_IVL and its diagram for NAK_RPT_IVL. This module waits for
//! the longer of the two.

use std::{collections::VecDeque, time::Duration};

use base::{Instant, Rng};

use super::timing::Timing;

/// The missing ranges of one window in order of their positions.
#[derive(Debug)]
pub(super) struct Gaps {
    list: VecDeque<Gap>,
    count_max: usize,
    /// Time of the next scan: the earliest deadline of a range, but not before `rested`.
    wake: Instant,
    /// The earliest time of the next scan: [`Timing::scan_interval`] after the last scan.
    rested: Instant,
    /// The random back-off that all gaps found at the same time share: that time, and the deadline
    /// drawn for them.
    draw: (Instant, Instant),
    /// True when a range may be `Lost`.
    has_lost: bool,
}

/// One missing range, `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) due: Instant,
    pub(super) state: NakState,
    /// When the newest part of the range was found missing, or when a packet of the range last
    /// arrived and could not be kept.
    pub(super) found: Instant,
    /// How many times a wait for an NCF ended without one.
    pub(super) ncf_tries: u16,
    /// How many times a wait for confirmed data ended without that data.
    pub(super) data_tries: u16,
    /// How many times in a row another receiver's NAK has put off this receiver's NAK.
    pub(super) silenced: u8,
    /// True when another receiver's NAK or a confirmation was heard: a repair may be on its way
    /// already.
    pub(super) is_heard: bool,
}

/// The state of a range's repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NakState {
    /// The receiver waits a random time, in case the packets were only reordered or another
    /// receiver asks.
    BackOff,
    /// This or another receiver asked; the receiver waits for the source to confirm.
    WaitNcf,
    /// The source confirmed; the receiver waits for the data.
    WaitData,
    /// The receiver gave the range up, but has not reported the loss yet.
    Lost,
}

/// The limits on the requests of one scan, and the ranges that the scan asked for.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The ranges of positions that the scan asks for, in order: first position, end.
    pub(super) ranges: &'a mut Vec<(u64, u64)>,
    /// Number of sequence numbers that the scan may still ask for.
    pub(super) budget_sqns: u64,
    /// End of what the scan may ask for: it asks only for positions before this one.
    pub(super) end: u64,
    /// The first position after all known positions: a gap that ends here is the last gap.
    pub(super) next: u64,
    /// The first position that this scan asks for and that no receiver is known to have asked for
    /// before. The answer for this position can be timed, because no earlier NAK caused it.
    pub(super) fresh: Option<u64>,
    /// True when the session has no credit for requests: too little has come from the sender.
    pub(super) is_starved: bool,
    /// A range that is due, but cannot be asked for now, is put off by at least this time.
    pub(super) rest: Duration,
}

impl Gaps {
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            list: VecDeque::new(),
            count_max,
            wake: Instant::NEVER,
            rested: Instant::ZERO,
            draw: (Instant::NEVER, Instant::NEVER),
            has_lost: false,
        }
    }

    /// Returns true when there is room for a gap that begins at `first`, after all other gaps.
    pub(super) fn can_open(&self, first: u64) -> bool {
        self.list.len() < self.count_max || self.list.back().is_some_and(|gap| gap.end == first)
    }

    /// Notes that the positions `first..end`, which follow all known positions, are missing.
    /// Returns false when there is no room. An empty range changes nothing.
    pub(super) fn open(&mut self, first: u64, end: u64, now: Instant, due: Instant) -> bool {
        if first >= end {
            return true;
        }
        if let Some(last) = self.list.back_mut().filter(|last| last.end == first) {
            // The last gap grows if the receiver has not asked for it yet. If there is no room for
            // another gap, it also grows later, until it is given up. The new part shares the timer
            // of the old part.
            let waiting = last.state == NakState::BackOff && last.is_untried();
            let full = self.list.len() >= self.count_max;
            let last = self.list.back_mut().expect("the list has a last range");
            if waiting || (full && last.state != NakState::Lost) {
                last.end = end;
                last.found = now;
                return true;
            }
        }
        if self.list.len() > self.count_max {
            return false;
        }
        self.list.push_back(Gap::new(first, end, now, due));
        self.wake_at(due);
        true
    }

    /// Notes that the positions `first..end`, which follow all known positions, are lost. Returns
    /// false when there is no room.
    pub(super) fn open_lost(&mut self, first: u64, end: u64) -> bool {
        let is_full = self.list.len() > self.count_max;
        match self.list.back_mut() {
            Some(last) if last.end == first && last.state == NakState::Lost => last.end = end,
            _ if is_full => return false,
            _ => {
                let mut gap = Gap::new(first, end, Instant::NEVER, Instant::NEVER);
                gap.lose();
                self.list.push_back(gap);
            }
        }
        self.has_lost = true;
        true
    }

    /// Returns the index of the range that `position` lies in.
    #[inline]
    pub(super) fn locate(&self, position: u64) -> Option<usize> {
        let index = match self.list.front() {
            // Repairs come oldest first, so the search begins at the front.
            Some(front) if position < front.end => 0,
            Some(_) => self.list.partition_point(|gap| gap.end <= position),
            None => return None,
        };
        let gap = self.list.get(index)?;
        (gap.first <= position).then_some(index)
    }

    /// Returns true when at most `count_max` ranges are left after `position` is taken out of the
    /// range at `index`.
    pub(super) fn can_fill(&self, index: usize, position: u64) -> bool {
        let gap = &self.list[index];
        self.list.len() < self.count_max || position == gap.first || position + 1 == gap.end
    }

    /// Takes `position` out of the range at `index`; the position must lie in this range.
    pub(super) fn fill(&mut self, index: usize, position: u64) {
        let gap = &mut self.list[index];
        if gap.first + 1 == gap.end {
            self.list.remove(index);
        } else if position == gap.first {
            gap.first += 1;
        } else if position + 1 == gap.end {
            gap.end -= 1;
        } else {
            self.split(index, position);
            self.list[index + 1].first += 1;
        }
    }

    /// Notes that the packet at `position` arrived and could not be kept. The source does answer,
    /// so the tries are counted from 0 again.
    pub(super) fn answered(&mut self, position: u64, now: Instant) {
        if let Some(index) = self.locate(position) {
            let gap = &mut self.list[index];
            (gap.ncf_tries, gap.data_tries, gap.found) = (0, 0, now);
        }
    }

    /// Returns the lowest missing position.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        self.list.front().map(|gap| gap.first)
    }

    /// Returns true when a position at or after `position` is lost.
    pub(super) fn is_any_lost_after(&self, position: u64) -> bool {
        let after = self.list.partition_point(|gap| gap.end <= position);
        let mut rest = self.list.range(after..);
        self.has_lost && rest.any(|gap| gap.state == NakState::Lost)
    }

    /// Looks below `next` for the last position that is not missing, and returns the position after
    /// it.
    pub(super) fn arrived_end(&self, next: u64) -> u64 {
        let mut end = next;
        for gap in self.list.iter().rev() {
            if gap.end != end {
                break;
            }
            end = gap.first;
        }
        end
    }

    /// Shortens the list so that nothing from `end` on is missing.
    pub(super) fn truncate(&mut self, end: u64) {
        while let Some(last) = self.list.back_mut().filter(|last| last.end > end) {
            if last.first < end {
                last.end = end;
            } else {
                self.list.pop_back();
            }
        }
    }

    /// Returns the number of missing positions. **Cost**: one step for each range.
    pub(super) fn missing(&self) -> u64 {
        self.list.iter().map(Gap::len).sum()
    }

    /// Counts the missing positions in `first..end`.
    pub(super) fn missing_in(&self, first: u64, end: u64) -> u64 {
        let index = self.list.partition_point(|gap| gap.end <= first);
        let within = self.list.range(index..).take_while(|gap| gap.first < end);
        within
            .map(|gap| gap.end.min(end) - gap.first.max(first))
            .sum()
    }

    /// Returns the time [`Gap::found`] of the first gap that ends after `position`.
    pub(super) fn found_from(&self, position: u64) -> Option<Instant> {
        let index = self.list.partition_point(|gap| gap.end <= position);
        self.list.get(index).map(|gap| gap.found)
    }

    /// Returns false for a position for which several NAKs brought no confirmation, or several
    /// confirmations brought no data.
    pub(super) fn is_answered(&self, position: u64) -> bool {
        self.locate(position).is_none_or(|index| {
            let gap = &self.list[index];
            gap.ncf_tries < VAIN_NCF_TRIES && gap.data_tries < VAIN_DATA_TRIES
        })
    }

    /// Moves the gaps of the parity group `first..end` from `BackOff` to `WaitNcf`, with the
    /// deadline `due`: the parity that the receiver asked for because of one gap repairs them, too.
    pub(super) fn join(&mut self, first: u64, end: u64, due: Instant) {
        self.restate(first, end, |gap| {
            if gap.state == NakState::BackOff {
                gap.state = NakState::WaitNcf;
                gap.due = due;
                gap.is_heard = true;
            }
        });
    }

    /// Gives up everything before `trail`. Returns the number of positions given up.
    pub(super) fn lose_before(&mut self, trail: u64) -> u64 {
        let mut lost = 0;
        let mut index = 0;
        while index < self.list.len() && self.list[index].first < trail {
            let straddles = self.list[index].end > trail;
            if self.list[index].state != NakState::Lost {
                if straddles {
                    self.split(index, trail);
                }
                lost += self.list[index].lose();
                self.has_lost = true;
                if self.merge_back(index) {
                    continue;
                }
            }
            index += 1;
        }
        lost
    }

    /// Takes out and returns the first range if it is `Lost` and begins at `position`.
    pub(super) fn take_lost_at(&mut self, position: u64) -> Option<Gap> {
        self.list
            .pop_front_if(|gap| gap.first == position && gap.state == NakState::Lost)
    }

    /// Takes out and returns the first `Lost` range, wherever it begins.
    pub(super) fn take_lost(&mut self) -> Option<Gap> {
        if !self.has_lost {
            return None;
        }
        let index = self.list.iter().position(|gap| gap.state == NakState::Lost);
        self.has_lost = index.is_some();
        index.and_then(|index| self.list.remove(index))
    }

    /// Returns true when [`Gaps::take_lost`] may return a range.
    #[inline]
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Returns true when [`Gaps::take_lost_at`] would return a range.
    pub(super) fn is_lost_at(&self, position: u64) -> bool {
        self.list
            .front()
            .is_some_and(|gap| gap.first == position && gap.state == NakState::Lost)
    }

    /// Returns the deadline for gaps found at `now`. All gaps found at the same time share one
    /// random draw.
    pub(super) fn draw(&mut self, now: Instant, timing: &Timing, rng: &mut Rng) -> Instant {
        if self.draw.0 != now {
            self.draw = (now, now + timing.draw_back_off(rng));
        }
        self.draw.1
    }

    /// Notes that the source confirmed a NAK for `first..end`: the receiver asks for this range
    /// again at `due` at the earliest.
    pub(super) fn confirm(&mut self, first: u64, end: u64, due: Instant) {
        self.restate(first, end, |gap| {
            gap.state = NakState::WaitData;
            gap.due = due;
            gap.silenced = 0;
            gap.is_heard = true;
        });
    }

    /// Notes that another receiver asked for `first..end`: until `due`, a NAK of this receiver
    /// would be a duplicate.
    ///
    /// This puts a range off at most [`SILENCED_MAX`] times in a row: a receiver that asks without
    /// end must not keep this receiver from asking.
    pub(super) fn silence(&mut self, first: u64, end: u64, due: Instant) {
        self.restate(first, end, |gap| {
            gap.is_heard = true;
            if gap.silenced < SILENCED_MAX {
                gap.silenced += 1;
                gap.due = due;
                if gap.state == NakState::BackOff {
                    gap.state = NakState::WaitNcf;
                }
            }
        });
    }

    /// Sets the deadline of every range in back-off to `due`, because asking has become possible.
    pub(super) fn restart_back_off(&mut self, due: Instant) {
        let back_off = |gap: &&mut Gap| gap.state == NakState::BackOff;
        self.list
            .iter_mut()
            .filter(back_off)
            .for_each(|gap| gap.due = due);
        self.wake = due;
    }

    /// Returns the time from which [`Gaps::expire`] has something to do.
    #[inline]
    pub(super) fn wake(&self) -> Instant {
        self.wake
    }

    /// Takes one step with every range whose deadline has come. Returns the number of positions
    /// given up.
    ///
    /// **Cost**: a visit to each range, at most once in every [`Timing::scan_interval`].
    pub(super) fn expire(
        &mut self,
        now: Instant,
        timing: &Timing,
        rng: &mut Rng,
        request: &mut Request<'_>,
    ) -> u64 {
        if now < self.wake {
            return 0;
        }
        let again = now + timing.draw_back_off(rng).max(request.rest);
        let (mut lost, mut kept, mut index) = (0, 0, 0);
        self.wake = Instant::NEVER;
        while index < self.list.len() {
            if self.list[index].wants_request(now) {
                self.cut_to_budget(index, request);
            }
            let mut gap = self.list[index];
            if gap.due <= now {
                lost += gap.step(now, again, timing, request);
            }
            self.has_lost |= gap.state == NakState::Lost;
            self.wake = self.wake.min(gap.due);
            if kept > 0 && self.list[kept - 1].merges_with(&gap) {
                self.list[kept - 1].grow(&gap);
            } else {
                self.list[kept] = gap;
                kept += 1;
            }
            index += 1;
        }
        self.list.truncate(kept);
        self.rested = now + timing.scan_interval;
        self.wake = self.wake.max(self.rested);
        lost
    }

    /// If the scan may ask only for the first part of the range at `index`, makes the rest of the
    /// range a range of its own.
    fn cut_to_budget(&mut self, index: usize, request: &Request<'_>) {
        let gap = &self.list[index];
        let end = request
            .end
            .min(gap.first.saturating_add(request.budget_sqns));
        if end > gap.first && end < gap.end {
            self.split(index, end);
        }
    }

    /// Applies `change` to the missing parts of `first..end`, except to lost parts. A range that
    /// must be split for this, but for which there is no room, stays unchanged: this costs at most
    /// a needless NAK.
    fn restate(&mut self, first: u64, end: u64, mut change: impl FnMut(&mut Gap)) {
        let mut index = self.list.partition_point(|gap| gap.end <= first);
        while index < self.list.len() && self.list[index].first < end {
            let gap = self.list[index];
            let cuts = usize::from(gap.first < first) + usize::from(gap.end > end);
            if gap.state == NakState::Lost || self.list.len() + cuts > self.count_max.max(1) {
                index += 1;
                continue;
            }
            if gap.first < first {
                self.split(index, first);
                index += 1;
            }
            if gap.end > end {
                self.split(index, end);
            }
            change(&mut self.list[index]);
            self.wake_at(self.list[index].due);
            if !self.merge_back(index) {
                index += 1;
            }
        }
    }

    /// Splits the range at `index` before `position`, which lies inside it.
    fn split(&mut self, index: usize, position: u64) {
        let mut rest = self.list[index];
        rest.first = position;
        self.list[index].end = position;
        self.list.insert(index + 1, rest);
    }

    /// Merges the range at `index` into the range before it, if [`Gap::merges_with`] allows it.
    /// Returns true when it merged them.
    fn merge_back(&mut self, index: usize) -> bool {
        let merges = index > 0 && self.list[index - 1].merges_with(&self.list[index]);
        if merges {
            let gap = self.list[index];
            self.list[index - 1].grow(&gap);
            self.list.remove(index);
        }
        merges
    }

    fn wake_at(&mut self, due: Instant) {
        self.wake = self.wake.min(due.max(self.rested));
    }
}

impl Gap {
    const fn new(first: u64, end: u64, found: Instant, due: Instant) -> Self {
        Self {
            first,
            end,
            due,
            state: NakState::BackOff,
            found,
            ncf_tries: 0,
            data_tries: 0,
            silenced: 0,
            is_heard: false,
        }
    }

    /// Returns true while both counts of tries are 0.
    const fn is_untried(&self) -> bool {
        self.ncf_tries == 0 && self.data_tries == 0
    }

    /// Returns true when the range has at most [`TAIL_LEN_MAX`] packets and ends at the last known
    /// position: the sender has probably paused.
    const fn is_short_tail(&self, next: u64) -> bool {
        self.end == next && self.len() <= TAIL_LEN_MAX
    }

    pub(super) const fn len(&self) -> u64 {
        self.end - self.first
    }

    fn lose(&mut self) -> u64 {
        self.state = NakState::Lost;
        self.due = Instant::NEVER;
        self.silenced = 0;
        self.len()
    }

    fn wants_request(&self, now: Instant) -> bool {
        self.state == NakState::BackOff && self.due <= now
    }

    /// Moves this range, whose deadline has come, to its next state. Returns the number of
    /// positions given up.
    fn step(
        &mut self,
        now: Instant,
        again: Instant,
        timing: &Timing,
        request: &mut Request<'_>,
    ) -> u64 {
        #[cfg(feature = "planted-bugs")]
        if self.state == NakState::WaitNcf
            && base::planted::is_planted(base::planted::Bug::NakNotRepeated)
        {
            self.due = Instant::NEVER;
            return 0;
        }
        let (tries, tries_max) = match self.state {
            NakState::BackOff => {
                if self.end <= request.end && self.len() <= request.budget_sqns {
                    request.ask(self.first, self.end);
                    if self.is_untried() && !self.is_heard {
                        request.fresh = request.fresh.or(Some(self.first));
                    }
                    self.state = NakState::WaitNcf;
                    let is_patient = self.is_untried() && !self.is_short_tail(request.next);
                    self.due = now + timing.wait_confirmed(is_patient);
                } else if request.budget_sqns == 0
                    && request.is_starved
                    && now.since(self.found) >= timing.repair_time_max
                {
                    // Too little came from the sender, so the receiver has no credit to ask, and
                    // `repair_time_max` has passed since it found the range missing.
                    return self.lose();
                } else {
                    self.due = again;
                }
                return 0;
            }
            NakState::WaitNcf => (&mut self.ncf_tries, timing.ncf_tries_max),
            NakState::WaitData => (&mut self.data_tries, timing.data_tries_max),
            NakState::Lost => return 0,
        };
        if self.first >= request.end {
            // The receiver must not ask for this range now, so the end of this wait does not count
            // as a failed try.
            self.state = NakState::BackOff;
            self.due = again;
            return 0;
        }
        *tries = tries.saturating_add(1);
        if *tries >= tries_max && now.since(self.found) >= timing.repair_time_max {
            return self.lose();
        }
        self.due = again + timing.patience(*tries);
        self.state = NakState::BackOff;
        0
    }

    /// Appends `next`, which begins where this range ends.
    fn grow(&mut self, next: &Self) {
        self.end = next.end;
        self.found = self.found.max(next.found);
        self.is_heard |= next.is_heard;
    }

    /// Returns true when `next` begins where this range ends, and has the same timer state.
    fn merges_with(&self, next: &Self) -> bool {
        let lost = self.state == NakState::Lost && next.state == NakState::Lost;
        let same = self.state == next.state
            && self.due == next.due
            && self.ncf_tries == next.ncf_tries
            && self.data_tries == next.data_tries
            && self.silenced == next.silenced;
        self.end == next.first && (lost || same)
    }
}

impl Request<'_> {
    fn ask(&mut self, first: u64, end: u64) {
        self.budget_sqns -= end - first;
        match self.ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.ranges.push((first, end)),
        }
    }
}

/// How many times in a row other receivers' NAKs may put off this receiver's NAK while the source
/// confirms none.
const SILENCED_MAX: u8 = 4;
/// After this many requests without an NCF, a position counts as unanswered
/// ([`Gaps::is_answered`]).
const VAIN_NCF_TRIES: u16 = 2;
/// After this many NCFs without data, a position counts as unanswered ([`Gaps::is_answered`]).
const VAIN_DATA_TRIES: u16 = 4;
/// The most packets of a short tail ([`Gap::is_short_tail`]), for which a receiver soon asks again.
/// Judgement: 8 packets sent twice cost a sender that has paused little.
const TAIL_LEN_MAX: u64 = 8;

#[cfg(test)]
mod tests;
