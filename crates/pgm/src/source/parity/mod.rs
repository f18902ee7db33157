//! Parity at the source: its offer, the requests of receivers, and the packets that are due.
//!
//! The module does not know the erasure code (that is [`crate::fec`]). It keeps no parity packets:
//! it computes them from the log when they are due. So parity on demand costs nothing while nothing
//! is lost. The number of a group is its first position divided by the group size.
//!
//! ```text
//!   parity NAK --> group full, in the log? --> wanted: the number missing --> RDATA, new indexes
//!                                          \-> parity NCF
//!   group full ---> `share` packets -------------------------------------> ODATA, indexes from 0
//!   close --------> the last group is short: SPMs and its parity say so (OPT_CURR_TGSIZE)
//! ```
//!
//! Invariants: a group that waits for its parity stays in the log; its parity packets use the
//! indexes in order, each once until all are used; at most [`STAGED_MAX`] packets are computed at a
//! time.
//!
//! Deviations: section 11.4 has the source answer selective NAKs for full groups with parity. A
//! receiver that knows no parity would then get no repair, so this source answers such NAKs with
//! the packets that they name. The source cuts a group short only at the end of the session. Before
//! that, receivers may send selective NAKs for a group that stays incomplete, as in section 11.5.
//! When all indexes of a group are used, they start over at 0.
//!
//! **Spec**: RFC 3208 sections 11.2 to 11.4, 11.8.

use std::time::Duration;

use base::{Budget, Instant, Run};
use wire::{
    Sqn,
    pgm::{Addressing, Body, CurrTgsize, Data, Flags, Packet, ParityPrm, PgmOption, emit_flagged},
};

use super::{
    Source,
    askers::{Asker, Askers, Service},
    limits::Limits,
    log::TransmitLog,
    repair::RepairQueue,
    transmit::Pending,
    upstream::Reply,
};
use crate::{
    Config, FecForm,
    fec::{
        Code, Combine, Encoder, FRAGMENT_BYTES, Numbering, Parities, encoded_fragment,
        fragment_contents,
    },
};

mod share;
use share::Share;

/// The parity state of a source that offers parity.
#[derive(Debug)]
pub(super) struct Parity {
    is_on_demand: bool,
    form: FecForm,
    numbering: Numbering,
    code: Code,
    payloads: Encoder,
    fragments: Encoder,
    payload_bytes_max: usize,
    /// The requests for each group in the log. A group's index in this vector is its number modulo
    /// the vector's length.
    groups: Vec<Asked>,
    /// The groups whose requested parity is still to be sent.
    wanted: RepairQueue,
    /// While parity and selective repairs both wait: true when parity is sent next.
    has_turn: bool,
    share: Share,
    /// The first group whose pro-active parity has not all left, and how many of that group's
    /// parity packets have left.
    cursor: u64,
    cursor_sent: u32,
    /// The last group and its size, once the group is known to be short.
    short: Option<(u64, u32)>,
    /// The parity packets of the run staged last, and the length of each packet in bytes.
    staged: Vec<u8>,
    segment: usize,
}

/// The parity that receivers have requested for one group, and how much of it was sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    group: u64,
    /// The index of the group's next parity packet.
    next_index: u32,
    /// Number of parity packets that wait to be sent.
    pending: u32,
    /// Number of requested parity packets sent since their sending last paused for the elimination
    /// interval or longer; `sent_at` is the time of the newest.
    recent: u32,
    sent_at: Instant,
    is_asked: bool,
    /// Number of parity packets granted to strangers (hosts that do not report to the source).
    granted: u32,
}

impl Asked {
    const fn nothing(group: u64) -> Self {
        Self {
            group,
            next_index: 0,
            pending: 0,
            recent: 0,
            sent_at: Instant::ZERO,
            is_asked: false,
            granted: 0,
        }
    }
}

/// The answer to a request for parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The source has queued further parity packets for this request.
    Queued,
    /// Parity that waits to be sent covers this request, too.
    Merged,
    /// Parity that the source has just sent covers this request.
    Eliminated,
}

impl Parity {
    /// Makes the parity state that the configuration asks for; `None` when it asks for no parity.
    pub(super) fn new(config: &Config, limits: &Limits, log: &TransmitLog) -> Option<Box<Self>> {
        let numbering = Numbering::new(config.fec_group())?;
        let code = Code::new(config.fec_group() as usize)?;
        let group_size = u64::from(config.fec_group());
        let groups_max = (log.index_slots() / group_size + 2).next_power_of_two();
        let combine = crate::fec::combine;
        Some(Box::new(Self {
            is_on_demand: config.fec_on_demand(),
            form: config.fec_form(),
            numbering,
            code,
            payloads: Encoder::new(combine, STAGED_MAX, limits.tsdu),
            fragments: Encoder::new(combine, STAGED_MAX, FRAGMENT_BYTES),
            payload_bytes_max: limits.tsdu,
            groups: vec![Asked::nothing(0); groups_max as usize],
            wanted: RepairQueue::new(groups_max.max(64)),
            has_turn: false,
            share: Share::new(config.fec_proactive(), config.fec_proactive_max()),
            cursor: log.unsent().div_ceil(group_size),
            cursor_sent: 0,
            short: None,
            staged: Vec::new(),
            segment: 0,
        }))
    }

    /// The most bytes by which a parity packet is longer than the longest member of its group. Data
    /// packets leave these bytes free.
    pub(super) const BYTES_MAX: usize =
        4 + TGSIZE_BYTES + GROUP_BYTES + OPTION_BYTES + crate::fec::LENGTH_BYTES;

    /// Computes parity with another function from now on.
    pub(super) fn set_combine(&mut self, combine: Combine) {
        self.payloads = Encoder::new(combine, STAGED_MAX, self.payload_bytes_max);
        self.fragments = Encoder::new(combine, STAGED_MAX, FRAGMENT_BYTES);
    }

    /// Returns the options for SPMs: the offer of parity, and, when the session has ended with a
    /// short group, that group's size.
    pub(super) fn spm_options(&self) -> [Option<PgmOption<'static>>; 2] {
        let offer = ParityPrm::new(
            !self.share.is_none(),
            self.is_on_demand,
            self.numbering.group_size(),
            self.form.reading(),
        );
        let size = |(_, size)| PgmOption::CurrTgsize(CurrTgsize { packet_count: size });
        [Some(PgmOption::ParityPrm(offer)), self.short.map(size)]
    }

    /// Returns the position of the first packet that is still needed to compute parity.
    #[inline]
    pub(super) fn hold(&self, unsent: u64) -> u64 {
        let group_size = u64::from(self.numbering.group_size());
        let wanted = self.wanted.oldest().saturating_mul(group_size);
        if self.is_proactive_due(unsent) {
            wanted.min(self.cursor * group_size)
        } else {
            wanted
        }
    }

    /// Makes the group that holds `position` the next in each line of `wanted` that has the group.
    pub(super) fn hasten(&mut self, position: u64) {
        self.wanted
            .hasten(position / u64::from(self.numbering.group_size()));
    }

    /// Returns true when some of the requested parity is still to be sent.
    pub(super) const fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns true when all members of the group `cursor` were sent, but not all of its parity.
    #[inline]
    pub(super) fn is_proactive_due(&self, unsent: u64) -> bool {
        !self.share.is_none() && self.cursor_sent < self.share.count() && {
            self.size(self.cursor, unsent).is_some()
        }
    }

    /// Returns how many data packets may leave as one run. When groups get pro-active parity, a run
    /// ends with its group: the parity must leave before packets of the next group, because these
    /// would make receivers ask for it.
    pub(super) fn run_room(&self, unsent: u64) -> usize {
        if self.share.count() == 0 {
            return usize::MAX;
        }
        let group_size = u64::from(self.numbering.group_size());
        (group_size - unsent % group_size) as usize
    }

    /// Notes that everything before `lead` was sent and nothing follows: the last group may be
    /// short.
    pub(super) fn end(&mut self, trail: u64, lead: u64) {
        let group_size = u64::from(self.numbering.group_size());
        let (group, size) = (lead / group_size, lead % group_size);
        if size > 0 && group * group_size >= trail {
            self.short = Some((group, size as u32));
        }
        self.pass_groups(lead);
    }

    /// Moves `cursor` past the complete groups whose pro-active parity has all left.
    pub(super) fn pass_groups(&mut self, unsent: u64) {
        if self.share.is_none() {
            return;
        }
        while self.cursor_sent >= self.share.count() && self.size(self.cursor, unsent).is_some() {
            self.share.group_sent();
            self.cursor += 1;
            self.cursor_sent = 0;
        }
    }

    /// Forgets what receivers asked for.
    pub(super) fn clear(&mut self) {
        self.wanted.clear();
        self.groups
            .iter_mut()
            .for_each(|asked| *asked = Asked::nothing(asked.group));
    }

    /// Returns true when it is the turn of parity, or when only parity waits.
    pub(super) const fn is_next(&self, others_wait: bool) -> bool {
        self.is_wanted() && (self.has_turn || !others_wait)
    }

    /// Gives the next turn to parity if `has_turn` is true, otherwise to selective repairs.
    pub(super) const fn set_turn(&mut self, has_turn: bool) {
        self.has_turn = has_turn;
    }

    /// Returns the number of the group whose parity is next, and how many of its parity packets to
    /// send. A group with requested parity has a number below `end`.
    fn next(&mut self, end: u64, is_proactive: bool) -> (u64, u32) {
        if is_proactive {
            return (self.cursor, self.share.count() - self.cursor_sent);
        }
        let group = self.wanted.next(end);
        (group, self.asked(group).pending)
    }

    /// Forgets a group that has left the log.
    fn drop_group(&mut self, group: u64, is_proactive: bool) {
        if is_proactive {
            self.cursor += 1;
            self.cursor_sent = 0;
        } else {
            self.asked(group).pending = 0;
            self.wanted.remove(group);
        }
    }

    /// Returns how many members a group has; `None` until all of them were sent.
    fn size(&self, group: u64, unsent: u64) -> Option<u32> {
        let group_size = self.numbering.group_size();
        if (group + 1) * u64::from(group_size) <= unsent {
            return Some(group_size);
        }
        let (last, size) = self.short?;
        (last == group).then_some(size)
    }

    fn asked(&mut self, group: u64) -> &mut Asked {
        let index = group as usize & (self.groups.len() - 1);
        let asked = &mut self.groups[index];
        if asked.group != group {
            *asked = Asked::nothing(group);
        }
        asked
    }

    /// Returns how many more parity packets of a group must be sent when a receiver asks for
    /// `need`.
    fn more(&mut self, now: Instant, elimination: Duration, group: u64, need: u32) -> u32 {
        let asked = self.asked(group);
        let is_recent = asked.recent > 0 && now.since(asked.sent_at) < elimination;
        let sent = if is_recent { asked.recent } else { 0 };
        need.saturating_sub(sent).saturating_sub(asked.pending)
    }

    /// Notes that a receiver asks for `need` parity packets of a group.
    ///
    /// **Spec**: RFC 3208 section 11.4, "A source consolidates requests".
    fn want(&mut self, now: Instant, elimination: Duration, group: u64, need: u32) -> Answer {
        let more = self.more(now, elimination, group, need);
        let asked = self.asked(group);
        let is_first = !std::mem::replace(&mut asked.is_asked, true);
        let answer = if more > 0 {
            Answer::Queued
        } else if asked.pending > 0 {
            Answer::Merged
        } else {
            Answer::Eliminated
        };
        asked.pending += more;
        if is_first && group < self.cursor {
            self.share.group_asked();
        }
        answer
    }

    /// Computes the next parity packets of a group, all of equal length: at most `count_max`
    /// packets and `bytes_max` bytes, but at least one packet. Returns their number, and the length
    /// of each in bytes.
    fn stage(
        &mut self,
        log: &TransmitLog,
        addressing: &Addressing,
        batch: Batch,
        (count_max, bytes_max): (usize, usize),
    ) -> (usize, usize) {
        let first = batch.group * u64::from(self.numbering.group_size());
        let next = self.asked(batch.group).next_index as usize;
        let count = count_max.clamp(1, STAGED_MAX.min(self.code.parities_max() - next));
        let indexes: [usize; STAGED_MAX] = std::array::from_fn(|i| next + i);
        let indexes = &indexes[..count];
        let members = Members::of(log, first, batch.packet_count as usize);
        let options = members.options();
        let options = members.has_fragments.then(|| {
            self.fragments
                .encode(&self.code, &options[..members.count], indexes)
        });
        let mut options = options.iter().flat_map(Parities::payloads);
        let payloads = &members.payloads[..members.count];
        let payloads = self.payloads.encode(&self.code, payloads, indexes);
        self.staged.clear();
        let (mut staged, mut segment) = (0, 0);
        for (&index, payload) in indexes.iter().zip(payloads.payloads()) {
            let at = self.staged.len();
            let head = Head {
                numbering: &self.numbering,
                first: Sqn::of(first),
                trail: Sqn::of(log.trail()),
                index,
                batch,
                is_variable: payloads.is_variable(),
                fragment: options.next().and_then(|bytes| bytes.try_into().ok()),
            };
            head.emit(&mut self.staged, addressing, payload);
            let len = self.staged.len() - at;
            if staged > 0 && (len != segment || self.staged.len() > bytes_max) {
                self.staged.truncate(at);
                break;
            }
            (staged, segment) = (staged + 1, len);
        }
        (staged, segment)
    }

    /// Notes that `sent` parity packets of a group have left. Returns true when all of the group's
    /// requested parity has left; always false for pro-active parity.
    fn left(&mut self, now: Instant, elimination: Duration, batch: Batch, sent: usize) -> bool {
        let indexes = self.code.parities_max() as u32;
        let asked = self.asked(batch.group);
        let sent = sent as u32;
        asked.next_index = (asked.next_index + sent) % indexes;
        if batch.is_proactive {
            self.cursor_sent += sent;
            return false;
        }
        if now.since(asked.sent_at) >= elimination {
            asked.recent = 0;
        }
        asked.recent = asked.recent.saturating_add(sent);
        asked.sent_at = now;
        asked.pending = asked.pending.saturating_sub(sent);
        asked.pending == 0
    }
}

impl Source {
    /// Computes parity with `combine` from now on: the session's owner may have a function that is
    /// faster than [`crate::fec::combine`].
    pub fn set_combine(&mut self, combine: Combine) {
        if let Some(parity) = &mut self.parity {
            parity.set_combine(combine);
        }
    }

    /// Returns true when parity is due to follow the group that was just completed.
    #[inline]
    pub(super) fn is_proactive_due(&self) -> bool {
        let unsent = self.log.unsent();
        let due = |parity: &Parity| parity.is_proactive_due(unsent);
        self.parity.as_deref().is_some_and(due)
    }

    /// Takes a NAK for parity: `sqn` names a group and how many packets are missing.
    pub(super) fn ask_parity(&mut self, now: Instant, from: Asker, sqn: Sqn) -> Reply {
        let (trail, unsent) = (self.log.trail(), self.log.unsent());
        let packet_bytes = self.config.mtu();
        let service = self.service_of(from);
        let Some(parity) = self.parity.as_deref_mut() else {
            return Reply::Beyond;
        };
        let group_size = u64::from(parity.numbering.group_size());
        let first = parity.numbering.first_of(sqn).extend(unsent);
        let group = first / group_size;
        let Some(size) = parity.size(group, unsent) else {
            return Reply::Beyond;
        };
        if first < trail {
            self.counters.nak_behind += 1;
            self.spm.request(now);
            return Reply::Known;
        }
        let need = parity.numbering.requested(sqn, size);
        let elimination = self.reports.elimination;
        let lacking = parity.more(now, elimination, group, need);
        let (more, repairs) = match service {
            Service::Few => Askers::parity_part(parity.asked(group).granted, lacking, size),
            Service::Full | Service::Rate => (lacking, 0),
        };
        if more > 0 && service == Service::Full {
            // A parity packet is as long as the longest packet of its group. Usually all packets of
            // a group have the same length.
            let bytes = self.log.range(first).len();
            self.askers.served(from, more as usize * bytes);
        } else if more > 0 {
            let on_wire = more as usize * packet_bytes;
            if !self.askers.grant(now, from, on_wire, repairs) {
                self.counters.nak_refused += 1;
                return Reply::Refused;
            }
            if service == Service::Few {
                let asked = parity.asked(group);
                asked.granted = asked.granted.saturating_add(more);
            }
        }
        let answer = parity.want(now, elimination, group, need - (lacking - more));
        match answer {
            Answer::Queued => self.counters.parity_queued += 1,
            Answer::Merged => self.counters.nak_merged += 1,
            Answer::Eliminated => self.counters.nak_eliminated += 1,
        }
        if answer != Answer::Eliminated {
            let line = parity.wanted.line_of(from.address);
            parity.wanted.insert(line, group);
        }
        match answer {
            Answer::Queued => Reply::Queued,
            Answer::Merged | Answer::Eliminated => Reply::Known,
        }
    }

    /// Computes the next parity packets of one group. Returns false when the group has left the
    /// log; the source then forgets the group.
    pub(super) fn stage_parity(&mut self, limit: Budget, is_proactive: bool) -> bool {
        let (trail, unsent) = (self.log.trail(), self.log.unsent());
        let quantum = self.config.pacing_quantum();
        let pacer = if is_proactive {
            &self.pacers.all
        } else {
            &self.pacers.repairs
        };
        let burst = pacer.burst_packets(quantum, self.config.mtu());
        let Some(parity) = self.parity.as_deref_mut() else {
            return false;
        };
        let group_size = u64::from(parity.numbering.group_size());
        let (group, pending) = parity.next(unsent / group_size + 1, is_proactive);
        let size = parity.size(group, unsent);
        let Some(size) = size.filter(|_| group * group_size >= trail) else {
            parity.drop_group(group, is_proactive);
            return false;
        };
        let batch = Batch {
            group,
            packet_count: size,
            is_proactive,
        };
        let count_max = burst.min(limit.datagrams).min(pending as usize);
        let (count, segment) =
            parity.stage(&self.log, &self.addressing, batch, (count_max, limit.bytes));
        parity.segment = segment;
        self.out.ranges.clear();
        self.out.ranges.push(0..parity.staged.len());
        self.out.pending = Pending::Parity(batch, count);
        true
    }

    /// Returns the run of parity packets that was staged last.
    pub(super) fn staged_run(&self) -> Option<Run<'_>> {
        let parity = self.parity.as_deref()?;
        Some(Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment: parity.segment,
            memory: &parity.staged,
            ranges: &self.out.ranges,
        })
    }

    /// Notes that `sent` parity packets of one group have left.
    pub(super) fn parity_left(&mut self, now: Instant, batch: Batch, sent: usize) {
        let (turn_bytes, unsent) = (self.repair_turn_bytes(), self.log.unsent());
        let Some(parity) = self.parity.as_deref_mut() else {
            return;
        };
        let bytes = parity.segment * sent;
        let on_wire = bytes + sent * self.limits.datagram_overhead;
        let is_done = parity.left(now, self.reports.elimination, batch, sent);
        self.counters.parity_bytes += bytes as u64;
        if batch.is_proactive {
            self.counters.parity_unasked += sent as u64;
            parity.pass_groups(unsent);
        } else {
            self.counters.parity_packets += sent as u64;
            if is_done {
                parity.wanted.remove(batch.group);
            }
            parity.set_turn(false);
            parity.wanted.spend(on_wire, turn_bytes);
            self.pacers.repairs.spend(now, on_wire);
        }
        self.count_on_wire(now, sent, bytes);
        self.spm.data_sent(now);
    }
}

/// The group whose parity is sent next, how many members (data packets) the group has, and whether
/// the parity goes out unasked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    group: u64,
    packet_count: u32,
    is_proactive: bool,
}

/// The payloads of a group's members, borrowed from the log, and the members' fragment options.
struct Members<'a> {
    payloads: [&'a [u8]; MEMBERS_MAX],
    contents: [[u8; FRAGMENT_BYTES]; MEMBERS_MAX],
    count: usize,
    has_fragments: bool,
}

impl<'a> Members<'a> {
    fn of(log: &'a TransmitLog, first: u64, count: usize) -> Self {
        let mut members = Self {
            payloads: [&[]; MEMBERS_MAX],
            contents: [fragment_contents(None); MEMBERS_MAX],
            count,
            has_fragments: false,
        };
        for (slot, position) in (first..).take(count).enumerate() {
            let record = &log.memory()[log.range(position)];
            let packet = Packet::parse(record).expect("the log holds complete packets");
            let fragment = packet.options().find_map(|option| match option {
                PgmOption::Fragment(fragment) => Some(fragment),
                _ => None,
            });
            members.payloads[slot] = packet.tsdu();
            members.contents[slot] = fragment_contents(fragment.as_ref());
            members.has_fragments |= fragment.is_some();
        }
        members
    }

    fn options(&self) -> [&[u8]; MEMBERS_MAX] {
        std::array::from_fn(|slot| &self.contents[slot][..])
    }
}

/// Headers and options of one parity packet.
struct Head<'a> {
    numbering: &'a Numbering,
    first: Sqn,
    trail: Sqn,
    index: usize,
    batch: Batch,
    is_variable: bool,
    fragment: Option<&'a [u8; FRAGMENT_BYTES]>,
}

impl Head<'_> {
    fn emit(&self, out: &mut Vec<u8>, addressing: &Addressing, payload: &[u8]) {
        let numbered = self.numbering.parity(self.first, self.index);
        let (sqn, group) = numbered.expect("the code has this parity packet");
        let data = Data {
            sqn,
            trail: self.trail,
        };
        let body = if self.batch.is_proactive {
            Body::Odata(data)
        } else {
            Body::Rdata(data)
        };
        let flags = if self.is_variable {
            Flags::PARITY.with(Flags::VAR_PKTLEN)
        } else {
            Flags::PARITY
        };
        let size = self.batch.packet_count;
        let size =
            (size < self.numbering.group_size()).then_some(CurrTgsize { packet_count: size });
        let fragment = self.fragment.map(encoded_fragment);
        let all = [
            size.map(PgmOption::CurrTgsize),
            group.map(PgmOption::ParityGrp),
            fragment.map(PgmOption::Encoded),
        ];
        let mut options = [PgmOption::Fin; 3];
        let mut count = 0;
        for option in all.into_iter().flatten() {
            options[count] = option;
            count += 1;
        }
        emit_flagged(out, addressing, flags, &body, &options[..count], payload);
    }
}

/// The most members of a group.
const MEMBERS_MAX: usize = 128;
/// The most parity packets computed at a time: as many as one pass over a group's members computes
/// at full speed.
const STAGED_MAX: usize = 8;
/// Lengths of OPT_CURR_TGSIZE, OPT_PARITY_GRP and OPT_FRAGMENT in bytes.
const TGSIZE_BYTES: usize = 8;
const GROUP_BYTES: usize = 8;
const OPTION_BYTES: usize = 16;
