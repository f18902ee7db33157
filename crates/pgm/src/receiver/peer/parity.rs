//! Parity of one session: whether the source offers it, what is kept for it, what it recovers, and
//! when a request names a group instead of packets.
//!
//! The module does not know the erasure code or the memory (those are in `groups.rs`), nor when to
//! ask (`timer.rs`).
//!
//! ```text
//!   two SPMs in a row, same offer --> packets are kept, from the next whole group on
//!   data, parity --> enough packets of a group --> lost members, delivered in order
//!   gap due --> whole group sent, parity can help --> parity NAK: number of missing packets
//!          \-> newest group, not all sent yet: wait for its end, at most PARTIAL_WAIT
//!          \-> otherwise: selective NAK
//! ```
//!
//! Selective NAKs always work, so every problem with parity leads back to them: an offer that
//! changes, a group that began before this receiver joined, a group that found no memory, packets
//! that contradict each other, requests that nobody answers.
//!
//! Deviations: where parity is on demand, section 11.5 forbids selective NAKs for complete groups;
//! this module still falls back to them. A receiver that lacks many packets of a group does not
//! send its NAK earlier than a receiver that lacks few: each waits for the group's end.
//!
//! **Spec**: RFC 3208 sections 11.2, 11.3, 11.5.

use std::time::Duration;

use base::{DropReason, Instant, Verdict};
use wire::{
    Sqn,
    pgm::{Mark, Nak, NakList, ParityPrm},
};

use super::{Incoming, Peer, Shared, SpmNotes, data::content_of};
use crate::{
    fec::{Numbering, Parity},
    receiver::{
        Mode,
        groups::{Groups, Standing},
        held::{Content, HeldStore},
        window::Place,
    },
};

/// The state of a session's parity.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// The offer of parity in the last SPM; `None` when that SPM made none.
    last: Option<ParityPrm>,
    /// The groups whose packets are kept for recovery; `None` while no offer is in force.
    pub(super) groups: Option<Box<Groups>>,
    is_on_demand: bool,
    /// True when the source may send a group's parity unasked, before the next group's packets.
    is_proactive: bool,
    /// The position after the lead in the last SPM, and the number of data packets that had come
    /// before that SPM.
    told: (u64, u64),
    /// The first position of the newest group, if an SPM said that this group has ended with fewer
    /// packets than a full group.
    short: Option<u64>,
}

impl Offer {
    /// Stops keeping groups, and gives their memory back.
    pub(super) fn clear(&mut self, store: &mut HeldStore) {
        if let Some(mut groups) = self.groups.take() {
            groups.clear(store);
        }
        self.short = None;
    }
}

/// One parity packet.
#[derive(Clone, Debug)]
pub(in crate::receiver) struct IncomingParity<'a> {
    pub(in crate::receiver) sqn: Sqn,
    pub(in crate::receiver) trail: Sqn,
    pub(in crate::receiver) is_repair: bool,
    pub(in crate::receiver) group: Option<wire::pgm::ParityGrp>,
    /// The packet as the erasure code takes it, except that `parity.index` is not set yet.
    pub(in crate::receiver) parity: Parity<'a>,
}

impl Peer {
    /// Takes what an SPM says about parity. The caller must have handled the SPM's window already.
    ///
    /// One SPM may be forged, so an offer counts only when two SPMs in a row make it. The offer
    /// ends when an SPM makes another offer or none.
    pub(super) fn see_offer(&mut self, end: Option<u64>, notes: &SpmNotes, shared: &mut Shared) {
        let is_agreed = self.offer.last == notes.parity;
        self.offer.last = notes.parity;
        if let Some(end) = end {
            self.offer.told = (end, self.arrived.packets);
        }
        let Some(offer) = notes.parity.filter(|_| is_agreed) else {
            self.offer.clear(&mut shared.store);
            return;
        };
        let reading = Mark::parity_reading(notes.mark.as_ref());
        self.offer.is_on_demand = offer.is_on_demand(reading);
        self.offer.is_proactive = offer.is_proactive(reading);
        if self.offer.groups.is_none() && self.is_proven() {
            self.offer.groups = Groups::new(
                &mut shared.store,
                shared.combine,
                offer.group_size,
                shared.limits.payload_bytes_max,
                shared.limits.fec_bytes,
            );
        }
        if let (Some(groups), Some(end), Some(size)) = (&self.offer.groups, end, notes.tgsize) {
            let first = groups.first_of(end.saturating_sub(1));
            self.offer.short = (end - first == u64::from(size)).then_some(first);
        }
    }

    /// Takes one parity packet.
    pub(in crate::receiver) fn parity(
        &mut self,
        now: Instant,
        incoming: &IncomingParity<'_>,
        shared: &mut Shared,
    ) -> Result<Verdict, DropReason> {
        if self.is_over() {
            self.heard = now;
            return Err(DropReason::Ended);
        }
        let numbering = self.numbering().ok_or(DropReason::Unexpected)?;
        let index = numbering.parity_index(incoming.sqn, incoming.group);
        let parity = Parity {
            index: index.ok_or(DropReason::Malformed)?,
            ..incoming.parity
        };
        let first = numbering.first_of(incoming.sqn).extend(self.window.next);
        let size = parity
            .packet_count
            .map_or(u64::from(numbering.group_size()), |size| size as u64);
        let end = first + size.min(u64::from(numbering.group_size()));
        if end > self.window.contiguous() + self.window.span_max() {
            return Err(DropReason::BeyondWindow);
        }
        self.heard = now;
        let certain = self.window.confirmed();
        if end > self.window.next && !self.is_past_end(end - 1) {
            // A group's parity follows all members of the group, so the members were sent.
            let before = self.window.next;
            let due = self
                .window
                .gaps
                .draw(now, &self.asking.timing, &mut shared.rng);
            if self.window.announce(end, false, now, due) {
                self.count_missed(self.window.next - before, shared);
            }
        }
        if incoming.is_repair {
            self.time_group_repair(now, first, end);
        }
        let verdict = self.keep_parity(now, first, end, &parity, shared);
        self.see_trail(incoming.trail.extend(first), certain);
        self.look_again(&shared.store);
        verdict.map(|()| Verdict::Control)
    }

    /// Keeps a parity packet if a packet of its group is missing.
    fn keep_parity(
        &mut self,
        now: Instant,
        first: u64,
        end: u64,
        parity: &Parity<'_>,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        let missing = self.window.missing_of(first, end);
        let Some(groups) = &mut self.offer.groups else {
            return Err(DropReason::Unexpected);
        };
        if missing == 0 {
            return Ok(());
        }
        if !groups.has(first) {
            if missing < end - first {
                return Err(DropReason::Unexpected);
            }
            if !groups.open(&mut shared.store, first) {
                return Err(DropReason::NoRoom);
            }
        }
        let is_full = groups.add_parity(&mut shared.store, first, parity)?;
        shared.counters.parity_kept += 1;
        if is_full {
            self.recover_group(now, first, shared);
        }
        Ok(())
    }

    /// Keeps the member at `position`, which was just received, to recover other members of its
    /// group.
    pub(super) fn keep_member(
        &mut self,
        now: Instant,
        position: u64,
        data: &Incoming<'_>,
        shared: &mut Shared,
    ) {
        let contiguous = self.window.contiguous();
        let Some(groups) = &mut self.offer.groups else {
            return;
        };
        let store = &mut shared.store;
        let first = groups.first_of(position);
        if !groups.has(first) {
            let end = first + groups.group_size();
            let is_first = self.window.missing_of(first, end) + 1 == end - first;
            if !is_first || !groups.open(store, first) {
                return;
            }
        }
        let fragment = data.fragment.as_ref();
        if groups.add_member(store, position, data.payload, fragment) {
            self.recover_group(now, first, shared);
        } else {
            groups.prune(store, contiguous);
        }
    }

    /// Recovers the lost members of a group of which enough packets are kept, and handles these
    /// members as if they had arrived.
    fn recover_group(&mut self, now: Instant, first: u64, shared: &mut Shared) {
        let Some(mut groups) = self.offer.groups.take() else {
            return;
        };
        let mut recovered = 0;
        let is_sound = groups.recover(&mut shared.store, first, |store, at, payload, fragment| {
            let data = Incoming {
                sqn: Sqn::of(at),
                trail: Sqn::of(at),
                is_repair: true,
                fragment,
                is_last: false,
                join_min: None,
                payload_at: 0,
                payload,
            };
            let content = match content_of(&data, &shared.limits) {
                Content::Part(_) if self.mode == Mode::Arrival => Content::Broken,
                // Probably another packet has a bit error that no checksum detected, and recovery
                // has spread it to this member. The source can still send the member itself.
                Content::Broken => return,
                content => content,
            };
            let place = self.window.place(at);
            let is_missing = matches!(place, Place::Next | Place::Gap(_));
            if !is_missing || self.is_past_end(at) {
                return;
            }
            if !self.held.push(store, at, content, payload) {
                self.asking.is_starved = true;
                return;
            }
            self.window.take(at, place, now, Instant::NEVER);
            self.arrived.packets += 1;
            self.arrived.bytes += payload.len() as u64;
            recovered += 1;
        });
        shared.counters.recovered_sqns += recovered;
        shared.counters.barred_groups += u64::from(!is_sound);
        self.offer.groups = Some(groups);
    }

    /// Takes a parity NCF: the source confirmed the requests for parity in `nak` and `list`.
    pub(in crate::receiver) fn parity_ncf(
        &mut self,
        now: Instant,
        nak: &Nak,
        list: Option<NakList<'_>>,
    ) -> Result<(), DropReason> {
        self.numbering().ok_or(DropReason::Unexpected)?;
        self.heard = now;
        self.asking.credit.confirmed();
        let due = now + self.asking.timing.wait_data;
        self.for_each_request(nak, list, |peer, first, end| {
            peer.time_confirmation(now, first, end);
            peer.window.gaps.confirm(first, end, due);
        });
        Ok(())
    }

    /// Takes another receiver's NAK for parity of the groups in `nak` and `list`.
    pub(in crate::receiver) fn heard_parity_nak(
        &mut self,
        now: Instant,
        nak: &Nak,
        list: Option<NakList<'_>>,
    ) {
        let due = now + self.asking.timing.wait_silenced();
        self.for_each_request(nak, list, |peer, first, end| {
            peer.take_no_time_of(first, end);
            peer.window.gaps.silence(first, end, due);
        });
    }

    /// Calls `visit` with the known positions (first, end) of each group for which a NAK or NCF
    /// names at least as many parity packets as this receiver needs: they repair its losses, too.
    fn for_each_request(
        &mut self,
        nak: &Nak,
        list: Option<NakList<'_>>,
        mut visit: impl FnMut(&mut Self, u64, u64),
    ) {
        let more = list.into_iter().flat_map(|list| list.iter());
        for sqn in std::iter::once(nak.sqn).chain(more) {
            let (Some(numbering), Some(groups)) = (self.numbering(), &self.offer.groups) else {
                return;
            };
            let first = numbering.first_of(sqn).extend(self.window.next);
            let count = numbering.requested(sqn, numbering.group_size());
            let end = (first + groups.group_size()).min(self.window.next);
            let is_answer = |lacking| lacking <= count;
            if first < end && groups.standing(first).lacking().is_some_and(is_answer) {
                visit(self, first, end);
            }
        }
    }

    /// Returns the first position that the receiver must not ask for yet; `u64::MAX` when it may
    /// ask for all. While the newest group is incomplete, the receiver waits, because parity can
    /// repair only a complete group. It waits for at most [`PARTIAL_WAIT`], because a sender that
    /// pauses or is slow may leave the group incomplete.
    pub(super) fn parity_limit(&self, now: Instant) -> u64 {
        let Some(groups) = self
            .offer
            .groups
            .as_ref()
            .filter(|_| self.offer.is_on_demand)
        else {
            return u64::MAX;
        };
        let next = self.window.next;
        // Unasked parity may directly follow its group, so a group that has just ended still counts
        // as the newest.
        let newest = next.saturating_sub(u64::from(self.offer.is_proactive));
        let first = groups.first_of(newest);
        let waits = first < next
            && self.offer.short != Some(first)
            && self.offer.told != (next, self.arrived.packets)
            && groups.standing(first) != Standing::Closed
            && self
                .window
                .gaps
                .found_from(first)
                .is_some_and(|found| now.since(found) < PARTIAL_WAIT);
        if waits { first } else { u64::MAX }
    }

    /// Takes out of `shared.ranges` the parts that parity should repair. For these parts, puts
    /// requests for parity into `shared.requests`.
    pub(super) fn split_requests(&mut self, now: Instant, shared: &mut Shared) {
        shared.requests.clear();
        let is_wanted = self.offer.is_on_demand && !self.asking.is_starved && !self.due.is_short;
        let Some(numbering) = self.numbering().filter(|_| is_wanted) else {
            return;
        };
        let ranges = std::mem::take(&mut shared.ranges);
        let group_size = u64::from(numbering.group_size());
        let due = now + self.asking.timing.wait_confirmed(true);
        let mut asked = None;
        for &(start, end) in &ranges {
            let mut first = start;
            while first < end {
                let group = first & !(group_size - 1);
                let part_end = end.min(group + group_size);
                match self.parity_count(group, first) {
                    _ if asked == Some(group) => {}
                    Some(count) => {
                        shared
                            .requests
                            .extend(numbering.request(Sqn::of(first), count));
                        shared.counters.parity_asked += u64::from(count);
                        self.window.gaps.join(group, group + group_size, due);
                        asked = Some(group);
                    }
                    None => add_range(&mut shared.selective, first, part_end),
                }
                first = part_end;
            }
        }
        shared.ranges = std::mem::replace(&mut shared.selective, ranges);
        shared.selective.clear();
    }

    /// Returns how many parity packets the receiver must ask for to repair the group that begins at
    /// `group`. `None` when it must ask for `position`, a member of the group, by a selective NAK.
    fn parity_count(&self, group: u64, position: u64) -> Option<u32> {
        let groups = self.offer.groups.as_ref()?;
        let is_short = self.offer.short == Some(group);
        let end = if is_short {
            self.window.next
        } else {
            group + groups.group_size()
        };
        let is_there = group >= self.window.trail && end <= self.window.confirmed();
        let is_answered = self.window.gaps.is_answered(position);
        let lacking = groups.standing(group).lacking();
        lacking.filter(|_| is_there && is_answered)
    }

    fn numbering(&self) -> Option<Numbering> {
        let groups = self.offer.groups.as_ref()?;
        Numbering::new(groups.group_size() as u32)
    }
}

/// Adds a range that follows all other ranges.
fn add_range(ranges: &mut Vec<(u64, u64)>, first: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == first => last.1 = end,
        _ => ranges.push((first, end)),
    }
}

/// The longest time that a receiver waits for the end of a group before it asks for the packets
/// that it lacks of the group. A judgement.
const PARTIAL_WAIT: Duration = Duration::from_millis(10);
