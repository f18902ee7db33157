//! The hand-out of what is ready in one session: one thing at a time, in the order that the
//! application sees.
//!
//! ```text
//! replaced, found, mark -> messages and losses by position -> ended / reset / expired
//! ```
//!
//! A loss covers the whole message: when one piece is missing, the other pieces are skipped with
//! it, so that each position is in one message or in one loss.

use wire::pgm::Mark;

use super::{Farewell, Notices, Peer, Phase};
use crate::receiver::{
    Mode,
    apdu::Fit,
    counters::ReceiverCounters,
    held::{Content, Entry, HeldStore},
};

/// A message, loss or event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::receiver) enum Step {
    /// The session number belonged to another sender until now; that sender is forgotten.
    Replaced,
    Found,
    Mark(Mark),
    /// A held message; the store has its bytes.
    Message(Entry),
    /// A message assembled from several packets, the first at this position. The assembly has the
    /// message's bytes.
    Apdu(u64),
    /// Positions that the receiver gave up.
    Lost {
        first: u64,
        count: u64,
    },
    Ended,
    Reset,
    Expired,
}

impl Peer {
    /// Returns the next step that is ready.
    pub(in crate::receiver) fn step(
        &mut self,
        store: &mut HeldStore,
        counters: &mut ReceiverCounters,
    ) -> Option<Step> {
        if let Some(entry) = self.next_plain(store) {
            return Some(Step::Message(entry));
        }
        let step = self.next_step(store, counters);
        match step {
            Some(Step::Lost { count, .. }) => {
                counters.lost_events += 1;
                counters.lost_sqns += count;
                self.arrived.lost += count;
                self.due.is_joining = false;
            }
            Some(Step::Message(_) | Step::Apdu(_)) => self.due.is_joining = false,
            _ => {}
        }
        self.look_again(store);
        step
    }

    /// Returns the bytes of the message that was assembled last.
    pub(in crate::receiver) fn apdu(&self) -> &[u8] {
        self.due.assembly.bytes()
    }

    /// Returns the next held message, if nothing else can come before it. The rest of the session's
    /// state is examined only after the last such message.
    #[inline]
    fn next_plain(&mut self, store: &mut HeldStore) -> Option<Entry> {
        let Notices {
            replaced,
            found,
            mark,
        } = self.due.notices;
        let entry = *self.held.front()?;
        let is_next = entry.position == self.window.base
            && entry.is_whole()
            && self.mode == Mode::Sequence
            && self.due.assembly.is_idle()
            && !self.due.skip.is_some()
            && !(replaced || found || mark || self.due.is_joining);
        if !is_next {
            return None;
        }
        self.advance(store);
        Some(entry)
    }

    fn next_step(
        &mut self,
        store: &mut HeldStore,
        counters: &mut ReceiverCounters,
    ) -> Option<Step> {
        if self.is_over() {
            return None;
        }
        // An untrusted session may be an old one that an attacker replays. So the application does
        // not see it yet: only its mark goes to the owner, who asks the sender about the session.
        if !self.is_trusted() && !self.due.notices.replaced {
            let is_marked = std::mem::take(&mut self.due.notices.mark);
            return self.spms.mark.filter(|_| is_marked).map(Step::Mark);
        }
        self.due.assembly.return_reserve(store);
        if std::mem::take(&mut self.due.notices.replaced) {
            return Some(Step::Replaced);
        }
        if std::mem::take(&mut self.due.notices.found) {
            return Some(Step::Found);
        }
        if std::mem::take(&mut self.due.notices.mark) {
            return self.spms.mark.map(Step::Mark);
        }
        let data = match self.mode {
            Mode::Sequence => self.step_in_sequence(store, counters),
            Mode::Arrival => self.step_on_arrival(store),
        };
        data.or_else(|| self.farewell(store, counters))
    }

    /// Returns the next step by position: the lowest held data, or the loss before it.
    fn step_in_sequence(
        &mut self,
        store: &mut HeldStore,
        counters: &mut ReceiverCounters,
    ) -> Option<Step> {
        self.due.is_short = false;
        if !self.due.assembly.is_idle()
            && let Some(lost) = self.due.skip.take()
        {
            return Some(lost);
        }
        if let Some(first) = self.due.assembly.hand_out() {
            return Some(Step::Apdu(first));
        }
        loop {
            let base = self.window.base;
            if let Some(gap) = self.window.gaps.take_lost_at(base) {
                self.abandon(counters);
                self.due.skip.cover(base, gap.end);
                self.window.base = gap.end;
                continue;
            }
            let Some(entry) = self
                .held
                .front()
                .copied()
                .filter(|held| held.position == base)
            else {
                return self.due.skip.take();
            };
            match entry.content(store) {
                Content::Whole => {
                    self.abandon(counters);
                    return self.due.skip.take().or_else(|| {
                        self.advance(store);
                        Some(Step::Message(entry))
                    });
                }
                Content::Broken => {
                    self.abandon(counters);
                    self.due.skip.cover(base, base + 1);
                    self.advance(store);
                }
                Content::Part(part) if part.index == 0 && self.due.skip.is_some() => {
                    return self.due.skip.take();
                }
                Content::Part(part) => match self.due.assembly.add_held(store, &entry, &part) {
                    Fit::Taken => self.advance(store),
                    Fit::Completed => {
                        self.advance(store);
                        return self.due.assembly.hand_out().map(Step::Apdu);
                    }
                    // The piece is not lost: it waits until another session gives back memory. Only
                    // a session that is leaving cannot wait.
                    Fit::NoRoom if !matches!(self.phase, Phase::Leaving(_)) => {
                        self.due.is_short = true;
                        return self.due.skip.take();
                    }
                    Fit::Stray | Fit::NoRoom => {
                        let abandoned = self.abandon(counters);
                        if !(abandoned && part.index == 0) {
                            self.skip_piece(base, counters);
                            self.advance(store);
                        }
                    }
                },
            }
        }
    }

    /// Skips the piece at `position`, which is due but does not belong to the current message.
    pub(super) fn skip_piece(&mut self, position: u64, counters: &mut ReceiverCounters) {
        if self.due.is_joining && !self.due.skip.is_some() {
            counters.skipped_fragments += 1;
        } else {
            self.due.skip.cover(position, position + 1);
        }
    }

    /// Abandons the current message and skips its pieces that arrived. Returns false when there is
    /// no current message.
    pub(super) fn abandon(&mut self, counters: &mut ReceiverCounters) -> bool {
        let Some(first) = self.due.assembly.abandon() else {
            return false;
        };
        counters.broken_messages += 1;
        #[cfg(feature = "planted-bugs")]
        if base::planted::is_planted(base::planted::Bug::LossMiscounted) {
            return true;
        }
        self.due.skip.cover(first, self.window.base);
        true
    }

    fn step_on_arrival(&mut self, store: &mut HeldStore) -> Option<Step> {
        if let Some(entry) = self.held.pop(store) {
            return Some(match entry.content(store) {
                Content::Whole => Step::Message(entry),
                Content::Part(_) | Content::Broken => Step::Lost {
                    first: entry.position,
                    count: 1,
                },
            });
        }
        let gap = self.window.gaps.take_lost()?;
        Some(Step::Lost {
            first: gap.first,
            count: gap.len(),
        })
    }

    /// Returns the session's last event, once everything before it was given out. The loss of a
    /// message that is still unfinished comes before that event.
    fn farewell(&mut self, store: &mut HeldStore, counters: &mut ReceiverCounters) -> Option<Step> {
        if !self.is_leaving() {
            return None;
        }
        if self.abandon(counters) {
            return self.due.skip.take();
        }
        let step = match self.phase {
            Phase::Leaving(Farewell::Reset) => Step::Reset,
            Phase::Leaving(Farewell::Expired) => Step::Expired,
            _ => Step::Ended,
        };
        self.retire(store);
        self.due.notices = Notices::default();
        Some(step)
    }

    /// Takes out the lowest held entry, which is at the window's base, and moves the base on.
    fn advance(&mut self, store: &mut HeldStore) {
        self.held.pop(store);
        self.window.base += 1;
    }
}

/// Consecutive positions that the receiver gave up and has not reported yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skip(Option<(u64, u64)>);

impl Skip {
    /// Adds `first..end`, which follows the positions skipped so far.
    pub(super) fn cover(&mut self, first: u64, end: u64) {
        let (start, _) = self.0.unwrap_or((first, end));
        self.0 = Some((start, end));
    }

    pub(super) const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    fn take(&mut self) -> Option<Step> {
        self.0.take().map(|(first, end)| Step::Lost {
            first,
            count: end - first,
        })
    }
}
