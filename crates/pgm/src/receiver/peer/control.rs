//! Control packets of one session: SPMs, NAK confirmations, and requests of other receivers.
//!
//! **Spec**: RFC 3208 sections 6.2, 6.3 (NCFs and multicast NAKs), 9.7, 9.8, 13.5.

use std::net::SocketAddr;

use base::{Arrival, DropReason, Instant};
use wire::{
    Sqn,
    pgm::{Loads, Mark, Nak, NakList, Options, ParityPrm, PgmOption, Spm},
};

use super::{BackOffNotes, FIRST_LAP, Farewell, Peer, Phase, Shared};
use crate::{
    LateJoin,
    receiver::{
        outbox::{Upstream, is_fit_for_naks},
        spmr::SpmRequest,
    },
    spm_sequence::SpmSequence,
};

/// The contents of an SPM's options.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::receiver) struct SpmNotes {
    pub(in crate::receiver) is_fin: bool,
    is_reset: bool,
    /// True when the sender of this SPM cannot reach its children (OPT_NBR_UNREACH): the SPM's
    /// window is not valid.
    is_unreachable: bool,
    join_min: Option<Sqn>,
    pub(super) mark: Option<Mark>,
    loads: Loads,
    back_off: BackOffNotes,
    pub(super) parity: Option<ParityPrm>,
    /// Number of packets in the last parity group, when that group is short (OPT_CURR_TGSIZE).
    pub(super) tgsize: Option<u32>,
}

impl SpmNotes {
    pub(in crate::receiver) fn of(options: Options<'_>) -> Self {
        let mut notes = Self::default();
        for option in options {
            match option {
                PgmOption::Fin => notes.is_fin = true,
                PgmOption::Rst(_) => notes.is_reset = true,
                PgmOption::NbrUnreach => notes.is_unreachable = true,
                PgmOption::Crqst(request) => notes.loads = request.loads,
                PgmOption::NakBackOffInterval(told) => notes.back_off.interval = Some(told),
                PgmOption::NakBackOffRange(told) => notes.back_off.range = Some(told),
                PgmOption::Join(join) => notes.join_min = Some(join.min),
                PgmOption::Mark(mark) => notes.mark = Some(mark),
                PgmOption::ParityPrm(offer) => notes.parity = Some(offer),
                PgmOption::CurrTgsize(last) => notes.tgsize = Some(last.packet_count),
                _ => {}
            }
        }
        notes
    }
}

impl Peer {
    /// Takes an SPM of the session.
    pub(in crate::receiver) fn spm(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        spm: &Spm,
        notes: &SpmNotes,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        if self.is_over() {
            self.heard = now;
            return Err(DropReason::Ended);
        }
        if notes.is_unreachable {
            return self.cut_off(now, Some(spm.path_nla), shared);
        }
        let span = u32::try_from(spm.lead.next().distance_from(spm.trail));
        let has_window = !spm.is_without_window();
        let group = shared.setup.group.ip();
        if (has_window && span.is_err()) || !is_fit_for_naks(spm.path_nla, group, self.source) {
            return Err(DropReason::Malformed);
        }
        let is_first = self.spms.sequence.is_none();
        let sequence = &mut self.spms.sequence;
        if let Some(known) = sequence {
            known.take(spm.sqn)?;
        } else {
            *sequence = Some(SpmSequence::new(spm.sqn));
        }
        self.heard = now;
        self.asking.credit.heard();
        self.spms.path = arrival.path;
        self.spms.scope_id = scope_of(arrival.source);
        self.spms.path_nla = Some(spm.path_nla);
        self.spms.spmr = SpmRequest::QUIET;
        self.follow_parent(notes.loads, &notes.back_off);
        if is_first {
            let due = self
                .window
                .gaps
                .draw(now, &self.asking.timing, &mut shared.rng);
            self.window.gaps.restart_back_off(due);
        }
        if let Some(mark) = &notes.mark {
            self.asking.timing.count_group(mark.receiver_count);
        }
        if notes.mark.is_some() && notes.mark != self.spms.mark {
            self.spms.mark = notes.mark;
            self.due.notices.mark = true;
        }
        let mut end = None;
        if has_window {
            self.see_window(now, spm, u64::from(span.unwrap_or(0)), notes, shared);
            end = Some(spm.lead.next().extend(self.window.next));
        }
        self.see_offer(end, notes, shared);
        if notes.is_reset && self.is_trusted() {
            self.claim_reset();
        }
        self.look_again(&shared.store);
        Ok(())
    }

    /// Takes an NCF: it confirms NAKs for the packets in `nak` and `list`.
    pub(in crate::receiver) fn ncf(
        &mut self,
        now: Instant,
        nak: &Nak,
        list: Option<NakList<'_>>,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        if !self.is_established {
            return Err(DropReason::Unexpected);
        }
        self.heard = now;
        self.asking.credit.confirmed();
        let due = now + self.asking.timing.wait_data;
        let mut verdict = Ok(());
        self.for_each_range(nak, list, |peer, first, end| {
            peer.time_confirmation(now, first, end);
            if end <= peer.window.next {
                peer.window.gaps.confirm(first, end, due);
                return;
            }
            let back_off = peer
                .window
                .gaps
                .draw(now, &peer.asking.timing, &mut shared.rng);
            if peer.window.hint(end, now, back_off) {
                peer.window.gaps.confirm(first, end, due);
            } else {
                verdict = Err(DropReason::BeyondWindow);
            }
        });
        self.look_again(&shared.store);
        verdict
    }

    /// Learns the round trip, if the receiver is timing a packet of `first..end`.
    pub(super) fn time_confirmation(&mut self, now: Instant, first: u64, end: u64) {
        if let Some(timed) = &mut self.asking.timed
            && !timed.is_confirmed
            && (first..end).contains(&timed.position)
        {
            self.asking.timing.confirmed_after(now.since(timed.since));
            (timed.since, timed.is_confirmed) = (now, true);
        }
    }

    /// Learns how long the repair took, if the receiver is timing the packet at `position`.
    pub(super) fn time_repair(&mut self, now: Instant, position: u64) {
        if let Some(timed) = self
            .asking
            .timed
            .take_if(|timed| timed.position == position)
            && timed.is_confirmed
        {
            self.asking.timing.repaired_after(now.since(timed.since));
        }
    }

    /// Learns how long the repair took, if the receiver is timing a packet of `first..end`.
    pub(super) fn time_group_repair(&mut self, now: Instant, first: u64, end: u64) {
        let timed = self.asking.timed.map(|timed| timed.position);
        if let Some(position) = timed.filter(|position| (first..end).contains(position)) {
            self.time_repair(now, position);
        }
    }

    /// Stops timing a packet of `first..end`, because another receiver's NAK for it was heard. The
    /// next confirmation may answer that other NAK, whose path may be shorter.
    pub(super) fn take_no_time_of(&mut self, first: u64, end: u64) {
        self.asking
            .timed
            .take_if(|timed| !timed.is_confirmed && (first..end).contains(&timed.position));
    }

    /// Takes another receiver's NAK for the packets in `nak` and `list`. It counts only for packets
    /// that are known to be missing: any host can send a NAK, so a NAK does not prove that a packet
    /// exists.
    pub(in crate::receiver) fn heard_nak(
        &mut self,
        now: Instant,
        nak: &Nak,
        list: Option<NakList<'_>>,
    ) {
        let due = now + self.asking.timing.wait_silenced();
        self.for_each_range(nak, list, |peer, first, end| {
            peer.take_no_time_of(first, end);
            peer.window.gaps.silence(first, end, due);
        });
    }

    /// Takes another receiver's request for an SPM.
    pub(in crate::receiver) fn heard_spmr(&mut self, now: Instant, shared: &Shared) {
        self.spms.spmr.heard(now, &shared.limits);
    }

    /// Returns the address for NAKs: the source, or the path NLA of the last SPM when the
    /// configuration says that there are network elements. The port is the group's, or the port
    /// that the mark names.
    ///
    /// A mark may be forged. So the receiver uses the mark's port only for NAKs to the session's
    /// own source, not for NAKs to a network element on the way, and only if the port needs no
    /// privilege.
    pub(in crate::receiver) fn upstream(&self, shared: &Shared) -> Upstream {
        let group = shared.setup.group;
        // Any sender of an SPM could name another host as the path NLA. All receivers would then
        // send their NAKs to that host: in one case, 1.3 kB of SPMs caused 244 MB of NAKs.
        let path = self.spms.path_nla.filter(|_| shared.limits.asks_path);
        let nla = path.unwrap_or(self.source);
        let told = self.spms.mark.filter(Mark::is_known);
        let own = told.map(|mark| mark.upstream_port);
        let own = own.filter(|&port| port >= UPSTREAM_PORT_MIN && nla == self.source);
        let mut to = SocketAddr::new(nla, own.unwrap_or(group.port()));
        if let SocketAddr::V6(v6) = &mut to {
            // A link-local path NLA carries no zone: its zone is the interface that the SPM came
            // through.
            if v6.ip().is_unicast_link_local() {
                v6.set_scope_id(self.spms.scope_id);
            }
        }
        Upstream {
            tsi: self.tsi,
            destination_port: shared.setup.destination_port,
            path: self.spms.path,
            to,
            group,
        }
    }

    /// Notes the interface that the session's first packet came through.
    pub(in crate::receiver) fn note_way(&mut self, arrival: &Arrival) {
        self.spms.path = arrival.path;
        self.spms.scope_id = scope_of(arrival.source);
    }

    /// Breaks the session off, because this end's owner wants no more of it.
    pub(in crate::receiver) fn abort(&mut self) {
        self.leave(Farewell::Reset);
    }

    /// Ends the session at the last known packet, unless a packet is missing.
    pub(in crate::receiver) fn conclude(&mut self) {
        if self.is_established && self.window.gaps.missing() == 0 {
            self.finish(self.window.next);
        }
    }

    /// Gives up everything that is missing; what was received is still handed out.
    pub(super) fn leave(&mut self, farewell: Farewell) {
        self.window.lose_all();
        self.phase = Phase::Leaving(farewell);
        self.spms.spmr = SpmRequest::QUIET;
    }

    /// Learns the sender's window: `span` packets up to the sender's lead.
    fn see_window(
        &mut self,
        now: Instant,
        spm: &Spm,
        span: u64,
        notes: &SpmNotes,
        shared: &mut Shared,
    ) {
        if !self.is_established {
            let end = FIRST_LAP + u64::from(spm.lead.next().0);
            let trail = end - span;
            let start = match (shared.limits.late_join, notes.join_min) {
                (LateJoin::Now, _) | (LateJoin::Offered, None) => end,
                (LateJoin::Offered, Some(min)) => min.extend(end).clamp(trail, end),
                (LateJoin::Window, _) => trail,
            };
            let oldest = end.saturating_sub(shared.limits.span_max);
            self.begin(start.max(oldest), shared);
            self.window.trail = trail;
        }
        let end = spm.lead.next().extend(self.window.next);
        let before = self.window.next;
        let due = self
            .window
            .gaps
            .draw(now, &self.asking.timing, &mut shared.rng);
        let is_certain = (notes.is_fin || notes.is_reset) && !self.is_checked();
        if self.window.announce(end, is_certain, now, due) {
            self.count_missed(self.window.next - before, shared);
        }
        let certain = self.window.confirmed();
        self.see_trail(end.saturating_sub(span), certain);
        if notes.is_fin {
            self.claim_end(end);
        }
    }

    /// Calls `visit` with each run of consecutive positions in a NAK or NCF.
    fn for_each_range(
        &mut self,
        nak: &Nak,
        list: Option<NakList<'_>>,
        mut visit: impl FnMut(&mut Self, u64, u64),
    ) {
        let mut range: Option<(u64, u64)> = None;
        let more = list.into_iter().flat_map(|list| list.iter());
        for sqn in std::iter::once(nak.sqn).chain(more) {
            let position = sqn.extend(self.window.next);
            match &mut range {
                Some((_, end)) if *end == position => *end += 1,
                other => {
                    if let Some((first, end)) = other.replace((position, position + 1)) {
                        visit(self, first, end);
                    }
                }
            }
        }
        if let Some((first, end)) = range {
            visit(self, first, end);
        }
    }
}

const fn scope_of(source: SocketAddr) -> u32 {
    match source {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// The lowest port that an unprivileged sender can have.
const UPSTREAM_PORT_MIN: u16 = 1024;
