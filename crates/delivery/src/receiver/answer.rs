//! Answers to the end of a pass: what is missing, or that nothing is.
//!
//! **Spec**: `docs/src/protocol.md` sections 5 (COMPLETE, HAVE, NEED) and 7.

use base::Instant;
use wire::object::{Message, ObjectId, PassEnd, RangeList, Ranges};

use super::{Step, TransferReceiver};
use crate::parameters::{ANSWER_JITTER_MAX, MANIFEST_SETTLE};
use crate::{RangeSet, Store, feedback::share};

/// What the sender knows about this end's data, and which answer the sender awaits.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pass: Option<PendingPass>,
    /// The number of the pass that was answered last.
    last_pass: u32,
    /// True once HAVE was sent on this connection. The proof must follow HAVE: until HAVE comes,
    /// the sender believes that this receiver holds nothing.
    pub(super) is_have_told: bool,
    /// True when the last answer was COMPLETE. A slab that turns out wrong after that is requested
    /// at once.
    pub(super) is_complete_told: bool,
}

impl Answers {
    /// Clears the unanswered pass and `is_complete_told`, which hold for one connection only. Call
    /// it when that connection has ended.
    pub(super) const fn forget(&mut self) {
        self.pass = None;
        self.is_complete_told = false;
    }
}

/// A pass that has ended and is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingPass {
    number: u32,
    /// The low 32 bits of the pass's last packet position; `None` when no packet carried any of the
    /// pass. Until `settle_at`, the answer waits for the packet stream to get past this position.
    position: Option<u32>,
    /// From this time on, the answer does not wait for packets of the pass any more.
    settle_at: Instant,
    /// The earliest time for the answer: random, so that many receivers do not answer at once.
    answer_at: Instant,
}

impl<S: Store> TransferReceiver<S> {
    pub(super) fn pass_ended(&mut self, now: Instant, end: &PassEnd) {
        let count = self
            .welcome
            .as_ref()
            .map_or(1, |welcome| welcome.receiver_count);
        let jitter = ANSWER_JITTER_MAX.min(share(count));
        let settle = match end.pass {
            0 => self.config.settle_timeout.min(MANIFEST_SETTLE),
            _ => self.config.settle_timeout,
        };
        self.answers.pass = Some(PendingPass {
            number: end.pass,
            position: end.position.map(|position| position as u32),
            settle_at: now + settle,
            answer_at: now + self.caller.rng.duration_up_to(jitter),
        });
        self.try_answer(now);
    }

    /// Returns true when the answer need not wait for more blocks: none of the pass can arrive any
    /// more, or this receiver lacks nothing.
    fn is_settled(&self, pass: &PendingPass) -> bool {
        let Some(last) = pass.position else {
            return true;
        };
        self.stream.is_past(last) || !self.lacks_anything()
    }

    fn lacks_anything(&self) -> bool {
        match (self.step, &self.contents) {
            (Step::Joining | Step::Offered | Step::Manifest, _) | (_, None) => true,
            (_, Some(contents)) => !contents.is_whole(),
        }
    }

    /// Says when to look again at the pass that waits for its answer. `None` when no pass waits, or
    /// while there is no connection, no accepted offer or no prepared store.
    pub(super) fn answer_due(&self) -> Option<Instant> {
        let pass = self.answers.pass?;
        if matches!(self.step, Step::Offered | Step::Preparing) || self.link().is_none() {
            return None;
        }
        let settle = if self.is_settled(&pass) {
            pass.answer_at
        } else {
            pass.settle_at
        };
        Some(settle.max(pass.answer_at))
    }

    /// Answers the pass, if it is time.
    pub(super) fn try_answer(&mut self, now: Instant) {
        let Some(pass) = self.answers.pass else {
            return;
        };
        if self.answer_due().is_none_or(|due| due > now) {
            return;
        }
        if !self.is_settled(&pass) {
            self.counters.settled_late += 1;
        }
        self.answers.pass = None;
        self.answer(now, pass.number);
    }

    fn answer(&mut self, now: Instant, pass: u32) {
        self.counters.answers += 1;
        self.answers.last_pass = pass;
        self.answers.is_complete_told = false;
        match self.step {
            Step::Joining | Step::Offered | Step::Preparing | Step::Over { .. } => {}
            Step::Manifest => self.send_lacking(now, pass),
            Step::Receiving | Step::Committing | Step::Delivered if pass == 0 => {
                self.send_standing(now);
            }
            Step::Receiving if self.lacks_anything() => self.send_lacking(now, pass),
            Step::Receiving | Step::Committing | Step::Delivered => {
                self.answers.is_complete_told = true;
                self.tell(now, &Message::Complete { pass });
            }
        }
    }

    /// Requests slabs that turned out wrong after everything seemed complete.
    pub(super) fn answer_again(&mut self, now: Instant) {
        if self.answers.pass.is_none() && self.link().is_some() {
            self.answer(now, self.answers.last_pass);
        }
    }

    /// Reports which content is held and, if everything is in place, gives the proof. Together they
    /// tell a sender that has just admitted this receiver everything it needs.
    pub(super) fn send_standing(&mut self, now: Instant) {
        self.send_have(now);
        self.tell_done(now);
    }

    /// Reports which content is held; this also tells the sender that the manifest is held.
    fn send_have(&mut self, now: Instant) {
        let Some(contents) = &self.contents else {
            return;
        };
        let max = self.config.need_ranges_max;
        let held: Vec<_> = contents.held.iter().take(max).collect();
        self.counters.lists_cut += u64::from(contents.held.range_count() > max);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut ranges = held.into_iter().peekable();
        loop {
            let encoded = Ranges::encode(&mut scratch, &mut ranges);
            let is_last = ranges.peek().is_none();
            let list = RangeList {
                pass: 0,
                object: ObjectId::CONTENT,
                is_last,
                ranges: encoded,
            };
            self.tell(now, &Message::Have(list));
            if is_last {
                break;
            }
        }
        self.answers.is_have_told = true;
        self.scratch = scratch;
    }

    /// Requests the missing parts of the manifest, or of content and seals.
    pub(super) fn send_lacking(&mut self, now: Instant, pass: u32) {
        let lacking = self.lacking();
        let merged = lacking.iter().filter(|list| list.is_merged).count();
        self.counters.lists_cut += merged as u64;
        let mut scratch = std::mem::take(&mut self.scratch);
        for (index, Lacking { object, set, .. }) in lacking.iter().enumerate() {
            let mut ranges = set.iter().peekable();
            while ranges.peek().is_some() {
                let encoded = Ranges::encode(&mut scratch, &mut ranges);
                let is_last = index + 1 == lacking.len() && ranges.peek().is_none();
                let list = RangeList {
                    pass,
                    object: *object,
                    is_last,
                    ranges: encoded,
                };
                self.tell(now, &Message::Need(list));
            }
        }
        self.scratch = scratch;
    }

    /// Returns the missing ranges of each incomplete object: at most `need_ranges_max` for each
    /// object. If there are more, ranges are merged.
    fn lacking(&self) -> Vec<Lacking> {
        let max = self.config.need_ranges_max;
        let of = |object, held: &RangeSet, len| Lacking::of(object, held, len, max);
        let manifest = self.manifest.as_ref();
        let manifest = manifest.and_then(|m| of(ObjectId::MANIFEST, m.held(), m.len()));
        let contents = self.contents.as_ref();
        let content =
            contents.and_then(|c| of(ObjectId::CONTENT, &c.held, c.manifest.content_bytes()));
        let seals = contents.filter(|contents| !contents.are_seals_good());
        let seals = seals.and_then(|c| of(ObjectId::SEALS, c.seals.held(), c.seals.len()));
        [manifest, content, seals].into_iter().flatten().collect()
    }
}

/// The missing parts of one object.
struct Lacking {
    object: ObjectId,
    set: RangeSet,
    /// True when there were too many missing ranges, so that `set` also covers held bytes between
    /// some of them.
    is_merged: bool,
}

impl Lacking {
    /// Finds the parts of an object that are not in `held`, as at most `max` ranges; `None` when
    /// `held` has all `len` bytes.
    fn of(object: ObjectId, held: &RangeSet, len: u64, max: usize) -> Option<Self> {
        let set = RangeSet::covering(held.missing(len), len, max);
        let is_merged = set.bytes() > len - held.bytes();
        (!set.is_empty()).then_some(Self {
            object,
            set,
            is_merged,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_as_merged_only_when_it_names_more_than_is_missing() {
        let mut held = RangeSet::new(10);
        for start in [10, 30, 50] {
            held.insert(start..start + 10, |_| {}).unwrap();
        }
        let of = |max| Lacking::of(ObjectId::CONTENT, &held, 70, max).unwrap();
        // Missing are 0..10, 20..30, 40..50, 60..70.
        assert!(!of(5).is_merged && !of(4).is_merged);
        assert!(of(3).is_merged && of(3).set.range_count() <= 3);
        held.insert(0..70, |_| {}).unwrap();
        assert!(Lacking::of(ObjectId::CONTENT, &held, 70, 1).is_none());
    }
}
