//! Receivers that report packets as lost for good, or report packets that were never sent.
//!
//! Such a receiver counts as having confirmed nothing, however far its position is. The audience
//! does not wait until such a receiver confirms, because lost packets never come.

use std::collections::BTreeMap;

use base::LinkId;

use super::{Audience, AudienceEvent};

/// What one receiver has confirmed and lost. The receiver has joined, and may have left since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation<'a> {
    /// The receiver's name.
    pub name: &'a str,
    /// The receiver has been given everything below the `position` of [`Audience::confirmations`],
    /// has lost nothing, and has reported nothing that was never sent.
    pub is_confirmed: bool,
    /// How many packets the receiver lost for good.
    pub lost: u64,
    /// The receiver reported packets that were never sent.
    pub is_astray: bool,
}

impl Audience {
    /// Returns every receiver that has joined and whose name is still remembered. For each, says
    /// whether it has been given everything below `position`, by now or before it left.
    pub fn confirmations(&self, position: u64) -> impl Iterator<Item = Confirmation<'_>> {
        let here = self.tracked.values();
        let here: BTreeMap<u32, u64> = here.map(|it| (it.slot, it.contiguous)).collect();
        self.seats.iter().map(move |(name, seat)| {
            let contiguous = here.get(&seat.slot).copied().unwrap_or(seat.contiguous);
            let is_whole = seat.lost == 0 && !seat.is_astray;
            Confirmation {
                name,
                is_confirmed: contiguous >= position && is_whole,
                lost: seat.lost,
                is_astray: seat.is_astray,
            }
        })
    }

    /// Takes from a report how many packets the receiver has lost in all, and whether the report
    /// names packets that were never sent. Tells the owner only of the first loss, and of the first
    /// packet that was never sent.
    pub(super) fn note_losses(&mut self, link: LinkId, lost: u64, is_astray: bool) {
        // Reports come hundreds of times a second, and nearly none tells of a loss.
        if lost == 0 && !is_astray {
            return;
        }
        let Some(tracked) = self.tracked.get(&link) else {
            return;
        };
        let Some(seat) = self.seats.get_mut(&tracked.name) else {
            return;
        };
        let is_first = seat.lost == 0 && lost > 0;
        seat.lost = seat.lost.max(lost);
        let is_news = is_astray && !seat.is_astray;
        seat.is_astray |= is_astray;
        if !is_first && !is_news {
            return;
        }
        let (slot, name) = (tracked.slot, tracked.name.clone());
        if is_first {
            let name = name.clone();
            self.event(AudienceEvent::Lost { slot, name, lost });
        }
        if is_news {
            self.event(AudienceEvent::Astray { slot, name });
        }
    }
}
