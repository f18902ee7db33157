//! The next run to leave, and what becomes of it.
//!
//! A run that is given out counts as sent only when [`Source::run_done`] says how much of it left.
//! One change comes earlier: the packets of a repair run become RDATA in the log before the run is
//! given out. They stay RDATA even if the run does not leave.
//!
//! ```text
//!   poll_run:  rate limit reached? -> None
//!              NCFs within their limit -> SPM due -> POLL due -> parity of a complete group
//!              -> repairs within their share -> ODATA -> None
//! ```
//!
//! **Spec**: RFC 3208 sections 5.1.1 to 5.1.6, 5.3, 8.1.

use base::{Budget, Contract, Instant, Outcome, Pace, Run, RunLimit};
use wire::pgm::{Body, Join, Spm, emit};

use super::{
    Closing, Duration, IOVECS_MAX, Parity, PgmOption, Source, Sqn, log::LogRun, parity::Batch,
};

impl Source {
    /// Returns the next run. Nothing of it counts as sent yet: [`Source::run_done`] must follow
    /// before anything else is sent. Returns `None` when nothing is due; [`Source::next_timeout`]
    /// says when to ask again.
    ///
    /// **Panics**: in debug builds, when [`Source::run_done`] was not called for the last run, or
    /// when time goes back.
    pub fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        Contract::poll_run(matches!(self.out.pending, Pending::None));
        self.tell_time(now);
        self.polling.advance(now);
        self.advance_closing(now);
        self.out.pending = Pending::None;
        if matches!(self.ending.closing, Closing::Over) || !self.pacers.all.is_ready(now) {
            return None;
        }
        let limit = Budget {
            bytes: budget.bytes.min(RunLimit::BYTES_MAX),
            datagrams: budget.datagrams.max(1),
        };
        if !self.ncfs.is_empty() && self.pacers.ncfs.is_ready(now) {
            return Some(self.ncf_run(limit));
        }
        if self.spm.due() <= now {
            return Some(self.spm_run(now));
        }
        if self.polling.is_due() {
            return self.poll_packet_run();
        }
        if self.parity.is_some() {
            return self.repair_parity_or_odata_run(now, limit);
        }
        if !self.repairs.is_empty() && self.pacers.repairs.is_ready(now) {
            return Some(self.repair_run(limit));
        }
        self.odata_run(limit)
    }

    /// Returns the next run of a source with parity: the parity of a complete group, then selective
    /// repairs and parity repairs in turns, then new data.
    fn repair_parity_or_odata_run(&mut self, now: Instant, limit: Budget) -> Option<Run<'_>> {
        while self.is_proactive_due() {
            if self.stage_parity(limit, true) {
                return self.staged_run();
            }
        }
        while self.has_repairs() && self.pacers.repairs.is_ready(now) {
            let others_wait = !self.repairs.is_empty();
            let is_next = |parity: &Parity| parity.is_next(others_wait);
            if !self.parity.as_deref().is_some_and(is_next) {
                return Some(self.repair_run(limit));
            }
            if self.stage_parity(limit, false) {
                return self.staged_run();
            }
        }
        self.odata_run(limit)
    }

    /// Notes what became of the run that `poll_run` gave.
    ///
    /// **Panics**: in debug builds, when `poll_run` gave no run; in other builds the call then does
    /// nothing.
    pub fn run_done(&mut self, now: Instant, outcome: Outcome) {
        Contract::run_done(!matches!(self.out.pending, Pending::None));
        self.tell_time(now);
        let pending = std::mem::replace(&mut self.out.pending, Pending::None);
        let count = pending.count(self.out.ranges.len(), self.out.repaired.len());
        if count == 0 {
            return;
        }
        let sent = match outcome {
            Outcome::Sent { datagrams } => datagrams.min(count),
            Outcome::Blocked => 0,
            Outcome::TooBig => {
                self.counters.too_big += count as u64;
                count
            }
            Outcome::Failed => {
                self.counters.failed += count as u64;
                count
            }
        };
        self.out.is_blocked = sent == 0;
        self.counters.blocked += u64::from(sent < count);
        if sent == 0 {
            return;
        }
        match pending {
            Pending::None => {}
            Pending::Ncf => self.ncfs_left(now, sent),
            Pending::Spm => self.spm_left(now),
            Pending::Poll => self.poll_left(now),
            Pending::Rdata => self.repairs_left(now, sent),
            Pending::Parity(batch, _) => self.parity_left(now, batch, sent),
            Pending::Odata(_) => self.odata_left(now, sent),
        }
        self.advance_closing(now);
    }

    fn ncf_run(&mut self, limit: Budget) -> Run<'_> {
        let datagrams = limit
            .datagrams
            .min(NCF_RUN_MAX)
            .min(match self.pacers.ncfs.pace() {
                Pace::Unlimited => NCF_RUN_MAX,
                Pace::BytesPerS(_) => 1,
            });
        self.ncfs
            .collect(limit.bytes, datagrams, &mut self.out.ranges);
        self.out.pending = Pending::Ncf;
        Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment: self.out.ranges[0].len(),
            memory: self.ncfs.memory(),
            ranges: &self.out.ranges,
        }
    }

    fn ncfs_left(&mut self, now: Instant, sent: usize) {
        let interval = Duration::from_nanos(NS_PER_S / u64::from(self.config.ncfs_per_s_max()));
        for _ in 0..sent {
            let len = self
                .ncfs
                .pop()
                .expect("a confirmation left that was queued");
            let on_wire = len + self.limits.datagram_overhead;
            let time = match self.pacers.ncfs.pace().bytes_per_s() {
                None => interval,
                Some(bytes_per_s) => interval.max(super::time_of(on_wire, bytes_per_s)),
            };
            self.pacers.ncfs.spend_time(now, time);
            self.count_on_wire(now, 1, len);
        }
        self.counters.ncfs += sent as u64;
    }

    /// Builds the SPM that is due. **Spec**: RFC 3208 section 8.1; an empty window has its trail
    /// one above its lead.
    fn spm_run(&mut self, now: Instant) -> Run<'_> {
        let trail = Sqn::of(self.log.trail());
        let spm = Body::Spm(Spm {
            sqn: self.spm.sqn,
            trail,
            lead: Sqn::of(self.log.unsent()).previous(),
            path_nla: self.setup.nla,
        });
        let mut options = [PgmOption::Fin; 5];
        let mut count = 0;
        let mut add = |option| {
            options[count] = option;
            count += 1;
        };
        // Options for network elements come first (RFC 3208 section 9.1).
        if let Some(parity) = &self.parity {
            parity
                .spm_options()
                .into_iter()
                .flatten()
                .for_each(&mut add);
        }
        if self.config.send_join() {
            add(PgmOption::Join(Join { min: trail }));
        }
        match (self.ending.reset, self.ending.closing) {
            (Some(reset), _) => add(PgmOption::Rst(reset)),
            (None, Closing::Finished { .. }) => add(PgmOption::Fin),
            (None, _) => {}
        }
        if let Some(mut mark) = self.setup.mark {
            mark.tx_time_us = now.as_nanos() / 1000;
            add(PgmOption::Mark(mark));
        }
        self.out.control.clear();
        emit(
            &mut self.out.control,
            &self.addressing,
            &spm,
            &options[..count],
            &[],
        );
        debug_assert!(
            self.out.control.len() <= self.spm_bytes_max(),
            "an SPM outgrew its bound"
        );
        self.out.ranges.clear();
        self.out.ranges.push(0..self.out.control.len());
        self.out.pending = Pending::Spm;
        Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment: self.out.control.len(),
            memory: &self.out.control,
            ranges: &self.out.ranges,
        }
    }

    fn spm_left(&mut self, now: Instant) {
        self.spm.spm_sent(now);
        self.counters.spms += 1;
        self.count_on_wire(now, 1, self.out.ranges[0].len());
    }

    fn poll_left(&mut self, now: Instant) {
        self.polling.sent(now);
        self.counters.polls += 1;
        self.count_on_wire(now, 1, self.out.ranges[0].len());
    }

    /// Gathers repairs for the receiver whose turn it is. All are of equal length, except that the
    /// last may be shorter.
    fn repair_run(&mut self, limit: Budget) -> Run<'_> {
        self.out.ranges.clear();
        self.out.repaired.clear();
        let first = self.repairs.next(self.log.unsent());
        let segment = self.log.range(first).len();
        let datagrams = self.datagrams_max(limit, segment).min(IOVECS_MAX);
        let datagrams = datagrams.min(
            self.pacers
                .repairs
                .burst_packets(self.config.pacing_quantum(), self.on_wire(segment)),
        );
        let (mut position, mut bytes) = (first, 0);
        loop {
            let range = self.log.range(position);
            if !self.out.repaired.is_empty()
                && (range.len() > segment || bytes + range.len() > limit.bytes)
            {
                break;
            }
            self.log.turn_into_rdata(position);
            bytes += range.len();
            self.out.repaired.push(position);
            let is_last = range.len() < segment || self.out.repaired.len() >= datagrams;
            match self.out.ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.out.ranges.push(range),
            }
            match self.repairs.after(position) {
                Some(next) if !is_last => position = next,
                _ => break,
            }
        }
        self.out.pending = Pending::Rdata;
        Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment,
            memory: self.log.memory(),
            ranges: &self.out.ranges,
        }
    }

    fn repairs_left(&mut self, now: Instant, sent: usize) {
        let mut bytes = 0;
        for &position in &self.out.repaired[..sent] {
            self.repairs.remove(position);
            self.log.set_repaired(position, now);
            bytes += self.log.range(position).len();
        }
        self.parity
            .iter_mut()
            .for_each(|parity| parity.set_turn(true));
        self.counters.rdata_packets += sent as u64;
        self.counters.rdata_bytes += bytes as u64;
        let on_wire = bytes + sent * self.limits.datagram_overhead;
        self.pacers.repairs.spend(now, on_wire);
        self.repairs.spend(on_wire, self.repair_turn_bytes());
        self.count_on_wire(now, sent, bytes);
        self.spm.data_sent(now);
    }

    /// Returns the number of bytes after which it is the turn of the next receiver's repairs: the
    /// bytes of one burst of repairs, but at most half of the longest run.
    pub(super) fn repair_turn_bytes(&self) -> usize {
        let mtu = self.config.mtu();
        let quantum = self.config.pacing_quantum();
        let packets = self.pacers.repairs.burst_packets(quantum, mtu);
        packets.saturating_mul(mtu).min(RunLimit::BYTES_MAX / 2)
    }

    #[inline]
    fn odata_run(&mut self, limit: Budget) -> Option<Run<'_>> {
        let room = self.flow_room();
        if self.log.unsent() == self.log.lead() || room == 0 || self.cork_due() > self.now {
            return None;
        }
        // Releases all data that waits, even if it takes several runs to leave.
        self.uncork();
        self.close_row();
        let segment = self.log.range(self.log.unsent()).len();
        let mut datagrams = self.datagrams_max(limit, segment).min(room);
        if let Some(parity) = &self.parity {
            datagrams = datagrams.min(parity.run_room(self.log.unsent()));
        }
        let run = self.log.unsent_run(limit.bytes, datagrams);
        self.out.ranges.clear();
        self.out.ranges.push(run.offset..run.offset + run.len);
        self.out.pending = Pending::Odata(run);
        Some(Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment: run.segment,
            memory: self.log.memory(),
            ranges: &self.out.ranges,
        })
    }

    fn odata_left(&mut self, now: Instant, sent: usize) {
        let bytes = self.log.mark_sent(sent);
        if let Some(parity) = &mut self.parity {
            parity.pass_groups(self.log.unsent());
        }
        self.counters.odata_packets += sent as u64;
        self.counters.odata_bytes += bytes as u64;
        self.count_on_wire(now, sent, bytes);
        let on_wire = bytes + sent * self.limits.datagram_overhead;
        self.askers.data_sent(now, bytes, on_wire);
        self.spm.data_sent(now);
        self.cork.left(now, self.log.unsent());
    }

    /// Returns how many new packets may leave before receivers that report are too far behind. The
    /// flow window limits this in packets and in bytes; a run may exceed the limit in bytes.
    #[inline]
    pub(super) fn flow_room(&self) -> usize {
        if self.reports.is_waiting {
            return 0;
        }
        if self.reports.hold == u64::MAX {
            return usize::MAX;
        }
        let base = self.reports.hold.clamp(self.log.trail(), self.log.unsent());
        if self.log.span_bytes(base) >= self.config.flow_window_bytes() {
            return 0;
        }
        let end = base + u64::from(self.config.flow_window_sqns());
        usize::try_from(end.saturating_sub(self.log.unsent())).unwrap_or(usize::MAX)
    }

    /// Returns true when the window refused new data and still cannot advance: its oldest packet
    /// was sent, but receivers that report still lack that packet.
    pub(super) const fn is_full(&self) -> bool {
        let trail = self.log.trail();
        let is_lacked = self.reports.hold <= trail && trail < self.log.unsent();
        is_lacked && self.reports.refused_at == trail
    }

    /// Returns the most datagrams of one run under the caller's budget and the rate limit.
    #[inline]
    fn datagrams_max(&self, limit: Budget, segment: usize) -> usize {
        let burst = self
            .pacers
            .all
            .burst_packets(self.config.pacing_quantum(), self.on_wire(segment));
        limit.datagrams.min(burst)
    }

    /// Counts sent TPDUs, with their IP and UDP headers, against the rate limit.
    #[inline]
    pub(super) fn count_on_wire(&mut self, now: Instant, datagrams: usize, bytes: usize) {
        let on_wire = bytes + datagrams * self.limits.datagram_overhead;
        self.counters.wire_bytes += on_wire as u64;
        self.pacers.all.spend(now, on_wire);
    }

    #[inline]
    pub(super) const fn on_wire(&self, tpdu_bytes: usize) -> usize {
        tpdu_bytes + self.limits.datagram_overhead
    }
}

/// The run that was given out and waits for [`Source::run_done`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// No run.
    None,
    /// The first NCFs of the queue: one for each entry of `ranges`.
    Ncf,
    /// The SPM in the control buffer.
    Spm,
    /// The POLL in the control buffer.
    Poll,
    /// The repairs listed in `repaired`.
    Rdata,
    /// Staged parity packets of one group, and their number.
    Parity(Batch, usize),
    /// The first unsent data packets.
    Odata(LogRun),
}

impl Pending {
    /// Returns the number of datagrams in the run.
    const fn count(&self, ranges: usize, repaired: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Ncf => ranges,
            Self::Spm | Self::Poll => 1,
            Self::Rdata => repaired,
            Self::Parity(_, count) => *count,
            Self::Odata(run) => run.count,
        }
    }
}

/// The most confirmations in one run.
const NCF_RUN_MAX: usize = 16;
const NS_PER_S: u64 = 1_000_000_000;
