//! Tells receivers on their connections how far the packet stream is, so that they need not believe
//! packets, which anybody can forge.
//!
//! **Spec**: `docs/src/protocol.md` section 9 (ASK, WINDOW).

use base::LinkId;
use wire::{
    Sqn,
    object::{Message, Pos, StreamPhase, Window},
};

use super::Audience;
use crate::SourceState;

impl Audience {
    /// Notes how far the source's packet stream is: receivers may ask for that. Like
    /// [`Audience::set_lead`], call it before handling reports.
    pub const fn set_stream(&mut self, source: &SourceState) {
        self.set_lead(source.lead);
        (self.trail, self.phase) = (source.trail, source.phase);
    }

    /// Tells a receiver how far the packet stream is. When the receiver's queue is full, nothing is
    /// sent.
    pub(super) fn tell_window(&mut self, link: LinkId) {
        let Some(lead) = self.lead else {
            return;
        };
        let window = Message::Window(Window {
            trail: self.trail,
            end: lead + 1,
            phase: self.phase,
        });
        self.counters.windows_told += u64::from(self.listener.links.queue(link, &window));
    }

    /// If a receiver has heard of packets that were never sent, tells it how far the stream is.
    pub(super) fn correct(&mut self, link: LinkId, pos: &Pos) {
        let is_ahead = |lead| Sqn::of(pos.lead).extend(lead) > lead;
        // A receiver that has not begun yet reports 0.
        if pos.lead != 0 && self.lead.is_some_and(is_ahead) {
            self.tell_window(link);
        }
    }

    /// Tells every receiver where the stream ends, then says good-bye.
    pub(super) fn tell_end(&mut self) {
        if self.phase == StreamPhase::Open {
            self.phase = StreamPhase::Ended;
        }
        let links: Vec<LinkId> = self.tracked.keys().copied().collect();
        for link in links {
            self.tell_window(link);
            self.listener.links.close_with(link, &Message::Bye);
        }
    }
}
