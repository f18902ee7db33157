//! The stage between state machines and network that protects packets with a key.
//!
//! ```text
//!   ODATA, RDATA   header, options | encrypted payload | position 8 | tag 16
//!   parity         header, options | encrypted payload | number 8   | tag 16
//!   SPM            ... the mark, whose last fields are number 8, edge 8, tag 16
//!   the rest       the packet | instance 8 | number 8 | tag 16
//! ```
//!
//! Numbers in the drawing are lengths in bytes.
//!
//! - The headers are not encrypted, and the lengths in them do not count the added bytes. So a PGM
//!   end without the key reads SPMs, which name the session as protected, and finds everything else
//!   malformed.
//! - The checksums of data and parity are 0: a sum of the payload would reveal something about it.
//! - The encrypted payload and the tag depend on the position of the data, not on the packet's
//!   type. So a repair has the same encrypted payload and tag as the original. The tag covers
//!   header and options, except type, checksum and trail, which a repair changes. The trail that a
//!   receiver sees is the trail of the last SPM, or the packet's own number when that is older.
//! - A receiver numbers its own packets; `instance` tells receivers apart.
//!
//! Invariants: a holder of the key made, for this session, each packet that
//! [`PacketProtection::unprotect`] hands on. Each packet is handed on once, except data: the same
//! data may be handed on again, and its position shows that. No nonce is used twice for different
//! payloads.
//!
//! **Spec**: `docs/src/protocol.md` section 9, "Packets".

use std::{collections::BTreeMap, fmt, net::IpAddr, ops::Range};

use base::{Arrival, DropCounters, DropReason, Run, RunLimit};
use wire::{
    Sqn, checksum,
    pgm::{Body, Flags, Header, Mark, MarkTag, Packet, PacketType, PgmOption, Tsi},
};

use crate::parameters::{NOTICES_MAX, PROTECTED_SESSIONS_MAX};
use crate::{Key, TAG_LEN};

mod replay;

mod session;
use session::{From, Kind, Session};

base::counters! {
    /// The counters of the protection of packets.
    pub struct ProtectionCounters: "protection" {
        protected: Packets, "packets encrypted or tagged with the key";
        unprotected: Packets, "packets that showed the key and were handed on";
        sessions: Events, "sessions that a genuine SPM has announced";
        sessions_evicted: Events, "sessions forgotten because too many were announced";
        receivers_evicted: Events, "receivers whose numbers were forgotten because too many sent \
         NAKs";
        notices_omitted: Events,
            "hosts without the key that no message names: those after the first 16";
        failed: Packets, "packets of this end that could not be protected and were not sent";
    }
}

/// A stage that protects what one end sends, and lets in what others protected with the same key.
#[derive(Debug)]
pub struct PacketProtection {
    key: Key,
    role: Role,
    sessions: BTreeMap<Tsi, Session>,
    /// Number of packets received so far: the clock that says when a session was last heard.
    seen: u64,
    /// The most bytes of a protected run of several datagrams.
    run_bytes_max: usize,
    /// Length of the data packets that were protected last, in bytes; 0 at first.
    segment: usize,
    /// Protected datagrams of the run that is being sent.
    sealed: Vec<u8>,
    range: Range<usize>,
    /// What the tag of a payload covers besides the payload.
    associated: Vec<u8>,
    notices: Vec<Notice>,
    noticed: Vec<Notice>,
    counters: ProtectionCounters,
    drops: DropCounters,
}

/// The end of a session that this stage protects.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// A source; `number` counts all its packets except data and repairs of data.
    Source {
        tsi: Tsi,
        number: u64,
    },
    Receiver {
        instance: u64,
        number: u64,
    },
}

/// A notice for a person. The owner gets one for each host and kind, up to `NOTICES_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The host whose SPMs are dropped.
    pub host: IpAddr,
    /// Why this end drops them.
    pub kind: NoticeKind,
}

/// The reason why the SPMs of a host are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The host's session is not protected.
    Bare,
    /// The host has another key, or its packets are forged.
    OtherKey,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, kind } = self;
        match kind {
            NoticeKind::Bare => write!(
                f,
                "{host} sends without a key: this end drops its packets; give that end the same \
                 key file"
            ),
            NoticeKind::OtherKey => write!(
                f,
                "{host} sends with another key, or its packets were forged: this end drops them; \
                 give both ends the same key file"
            ),
        }
    }
}

impl PacketProtection {
    /// Makes the protection of a source whose first packet will have the sequence number `first`.
    #[must_use]
    pub fn source(key: Key, tsi: Tsi, session_id: u64, nla: IpAddr, first: Sqn) -> Self {
        let mut own = Session::new(&key, tsi, session_id, nla);
        own.edge = FIRST_LAP + u64::from(first.0);
        let mut source = Self::new(key, Role::Source { tsi, number: 0 });
        source.sessions.insert(tsi, own);
        source
    }

    /// Makes the protection of a receiver. The owner draws `instance` at random, so that no two
    /// receivers of a group have the same.
    #[must_use]
    pub fn receiver(key: Key, instance: u64) -> Self {
        let number = 0;
        Self::new(key, Role::Receiver { instance, number })
    }

    fn new(key: Key, role: Role) -> Self {
        Self {
            key,
            role,
            sessions: BTreeMap::new(),
            seen: 0,
            run_bytes_max: RunLimit::BYTES_MAX,
            segment: 0,
            sealed: Vec::new(),
            range: 0..0,
            associated: Vec::new(),
            notices: Vec::new(),
            noticed: Vec::new(),
            counters: ProtectionCounters::default(),
            drops: DropCounters::default(),
        }
    }

    /// Returns the counters of what the stage has done.
    #[must_use]
    pub const fn counters(&self) -> &ProtectionCounters {
        &self.counters
    }

    /// Returns the number of packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Returns the notices that a person has not been given yet.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + use<> {
        std::mem::take(&mut self.notices).into_iter()
    }

    /// Takes `limit` as the largest run that may leave, and returns how much of it plain packets
    /// may take. Protection makes each packet longer. The stage estimates the number of packets
    /// from the length of the last data packets.
    ///
    /// Packets of another length may need more than one run; `protect` leaves the rest for the
    /// next.
    pub fn room(&mut self, limit: RunLimit) -> RunLimit {
        let RunLimit { bytes, datagrams } = limit;
        self.run_bytes_max = bytes;
        let segment = match self.segment {
            0 => bytes / datagrams.max(1),
            segment => segment,
        };
        let count = (bytes / (segment + DATA_OVERHEAD).max(1)).max(1);
        RunLimit {
            bytes: (count * segment).min(bytes),
            datagrams,
        }
    }

    /// Protects the datagrams of a run, from the front. The run that leaves may hold fewer
    /// datagrams. It ends before the first that grows by another length, that exceeds the limit
    /// told to [`PacketProtection::room`], or that cannot be protected; that datagram waits for the
    /// next run. Returns `None` when the first datagram cannot be protected; that datagram must not
    /// leave.
    ///
    /// **Cost**: one pass over the payloads, which copies and encrypts them; no allocation once the
    /// longest run was seen.
    pub fn protect(&mut self, run: &Run<'_>) -> Option<Run<'_>> {
        self.sealed.clear();
        let mut overhead = None;
        for datagram in run.datagrams() {
            let start = self.sealed.len();
            let end = start + datagram.len() + overhead.unwrap_or(0);
            if overhead.is_some() && end > self.run_bytes_max {
                break;
            }
            let added = self.protect_one(datagram);
            let is_like_first = overhead.is_none() || overhead == added;
            if added.is_none() || !is_like_first {
                self.sealed.truncate(start);
                self.counters.failed += u64::from(added.is_none());
                break;
            }
            self.counters.protected += 1;
            overhead = added;
        }
        let overhead = overhead?;
        if overhead == DATA_OVERHEAD {
            self.segment = run.segment;
        }
        self.range = 0..self.sealed.len();
        Some(Run {
            segment: run.segment + overhead,
            memory: &self.sealed,
            ranges: std::slice::from_ref(&self.range),
            ..*run
        })
    }

    /// Appends the datagram in its protected form to `sealed`. Returns by how many bytes it grew,
    /// or `None` for a packet that this end cannot protect.
    fn protect_one(&mut self, tpdu: &[u8]) -> Option<usize> {
        let packet = Packet::parse(tpdu).ok()?;
        let header = packet.header();
        let is_parity = header.flags.contains(Flags::PARITY);
        let start = self.sealed.len();
        self.sealed.extend_from_slice(tpdu);
        match (self.role, packet.body()) {
            (Role::Source { tsi, .. }, Body::Odata(data) | Body::Rdata(data)) => {
                let session = self.sessions.get_mut(&tsi)?;
                let (kind, number) = if is_parity {
                    (Kind::Parity, next_number(&mut self.role))
                } else {
                    let position = data.sqn.extend(session.edge);
                    session.edge = session.edge.max(position);
                    (Kind::Data, position)
                };
                let payload = start + packet.tsdu_range().start;
                self.associated.clear();
                self.associated
                    .extend_from_slice(&self.sealed[start..payload]);
                neutralise(&mut self.associated);
                clear_checksum(&mut self.sealed[start..]);
                let sealed = &mut self.sealed[payload..];
                let tag = session.seal(kind, number, &self.associated, sealed);
                self.sealed.extend_from_slice(&number.to_be_bytes());
                self.sealed.extend_from_slice(&tag);
            }
            (Role::Source { tsi, .. }, Body::Spm(_)) => {
                mark_tag(&packet)?;
                let session = self.sessions.get(&tsi)?;
                let number = next_number(&mut self.role);
                let spm = &mut self.sealed[start..];
                clear_checksum(spm);
                let (_, fields) = spm.split_last_chunk_mut::<{ MarkTag::LEN }>()?;
                fields[..8].copy_from_slice(&number.to_be_bytes());
                fields[8..16].copy_from_slice(&session.edge.to_be_bytes());
                fields[16..].fill(0);
                let tag = session.tag(From::Source, spm);
                let tag_at = spm.len() - TAG_LEN;
                spm[tag_at..].copy_from_slice(&tag);
                // Ends without the key read the SPM, too, and must notice damage.
                let sum = checksum::finish(checksum::sum(spm));
                spm[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
            }
            (Role::Source { tsi, .. }, _) => self.append_tag(start, tsi, From::Source, 0)?,
            (Role::Receiver { instance, .. }, _) => {
                self.append_tag(start, header.upstream_tsi(), From::Receiver, instance)?;
            }
        }
        Some(self.sealed.len() - start - tpdu.len())
    }

    /// Appends `instance`, the next number and the tag to the packet that begins at `start`.
    fn append_tag(&mut self, start: usize, tsi: Tsi, from: From, instance: u64) -> Option<()> {
        let session = self.sessions.get(&tsi)?;
        let number = next_number(&mut self.role);
        self.sealed.extend_from_slice(&instance.to_be_bytes());
        self.sealed.extend_from_slice(&number.to_be_bytes());
        let tag = session.tag(from, &self.sealed[start..]);
        self.sealed.extend_from_slice(&tag);
        Some(())
    }

    /// Takes the protection off one datagram, in place. Returns the PGM packet; when it carries
    /// data, it has no checksum and needs none.
    ///
    /// # Errors
    /// The reason why the datagram is thrown away; the stage has counted it.
    #[inline]
    pub fn unprotect<'t>(
        &mut self,
        arrival: &Arrival,
        tpdu: &'t mut [u8],
    ) -> Result<&'t [u8], DropReason> {
        self.seen += 1;
        match self.look(arrival.source.ip(), tpdu) {
            Ok(len) => {
                self.counters.unprotected += 1;
                Ok(&tpdu[..len])
            }
            Err(reason) => {
                self.drops.count(reason);
                Err(reason)
            }
        }
    }

    /// Checks a datagram and decrypts its data; returns the length of the PGM packet in bytes.
    fn look(&mut self, source: IpAddr, tpdu: &mut [u8]) -> Result<usize, DropReason> {
        let header = Header::parse(tpdu).map_err(|_| DropReason::Malformed)?;
        match header.kind {
            kind if matches!(self.role, Role::Source { .. }) && !kind.is_upstream() => {
                Err(DropReason::UnknownSession)
            }
            PacketType::Odata | PacketType::Rdata => self.open_data(source, &header, tpdu),
            PacketType::Spm => self.check_spm(source, tpdu),
            kind if kind.is_upstream() => self.check_tag(header.upstream_tsi(), None, tpdu),
            _ => self.check_tag(header.tsi(), Some(source), tpdu),
        }
    }

    fn open_data(
        &mut self,
        source: IpAddr,
        header: &Header,
        tpdu: &mut [u8],
    ) -> Result<usize, DropReason> {
        let session = self
            .sessions
            .get_mut(&header.tsi())
            .ok_or(DropReason::UnknownSession)?;
        let (packet, tail) = tpdu
            .split_last_chunk_mut::<{ 8 + TAG_LEN }>()
            .ok_or(DropReason::Unprotected)?;
        let parsed = Packet::parse(packet).map_err(|_| DropReason::Unprotected)?;
        let (Body::Odata(data) | Body::Rdata(data)) = parsed.body() else {
            return Err(DropReason::Malformed);
        };
        let (number, tag) = split_number(tail);
        let payload = parsed.tsdu_range();
        let kind = if header.flags.contains(Flags::PARITY) {
            Kind::Parity
        } else if Sqn::of(number) == data.sqn && number.abs_diff(session.edge) < LAP_HALF {
            Kind::Data
        } else {
            return Err(DropReason::Replayed);
        };
        self.associated.clear();
        self.associated.extend_from_slice(&packet[..payload.start]);
        neutralise(&mut self.associated);
        let sealed = &mut packet[payload];
        let is_genuine = session.open(kind, number, &self.associated, sealed, tag);
        #[cfg(feature = "planted-bugs")]
        let is_genuine = is_genuine || base::planted::is_planted(base::planted::Bug::ForgedTaken);
        if !is_genuine {
            return Err(DropReason::Forged);
        }
        if source != session.nla {
            return Err(DropReason::WrongSource);
        }
        match kind {
            Kind::Data => session.edge = session.edge.max(number),
            Kind::Parity if session.numbers.take(number) => {}
            Kind::Parity => return Err(DropReason::Replayed),
        }
        session.heard = self.seen;
        // A repair may lie below the last SPM's trail: its own number is then the trail.
        let trail = match session.trail.distance_from(data.sqn) {
            ahead if ahead > 0 => data.sqn,
            _ => session.trail,
        };
        clear_checksum(packet);
        packet[TRAIL].copy_from_slice(&trail.0.to_be_bytes());
        Ok(packet.len())
    }

    fn check_spm(&mut self, source: IpAddr, tpdu: &mut [u8]) -> Result<usize, DropReason> {
        let packet = Packet::parse(tpdu).map_err(|_| DropReason::Malformed)?;
        let Body::Spm(spm) = packet.body() else {
            return Err(DropReason::Malformed);
        };
        let tsi = packet.header().tsi();
        let Some((mark, told)) = mark_tag(&packet) else {
            // A person with a key need not hear of sessions of other PGM programs.
            if packet
                .options()
                .any(|option| matches!(option, PgmOption::Mark(_)))
            {
                self.note(source, NoticeKind::Bare);
            }
            return Err(DropReason::Unprotected);
        };
        clear_checksum(tpdu);
        let tag_at = tpdu.len() - TAG_LEN;
        tpdu[tag_at..].fill(0);
        let known = self.sessions.get_mut(&tsi);
        let is_known = known
            .as_ref()
            .is_some_and(|s| s.session_id == mark.session_id);
        let mut fresh = None;
        let session = match known {
            Some(session) if is_known => session,
            _ => fresh.insert(Session::new(&self.key, tsi, mark.session_id, spm.path_nla)),
        };
        if !session.is_tag(From::Source, tpdu, &told.tag) {
            self.note(source, NoticeKind::OtherKey);
            return Err(DropReason::Forged);
        }
        if source != spm.path_nla || source != session.nla {
            return Err(DropReason::WrongSource);
        }
        if !session.numbers.take(told.number) {
            return Err(DropReason::Replayed);
        }
        session.heard = self.seen;
        session.edge = session.edge.max(told.edge);
        session.trail = spm.trail;
        if let Some(fresh) = fresh {
            // A session identifier is random, and an honest sender makes one for each TSI. So this
            // end refuses another one while it remembers the first.
            if self.sessions.contains_key(&tsi) {
                return Err(DropReason::UnknownSession);
            }
            self.counters.sessions += 1;
            self.make_room();
            self.sessions.insert(tsi, fresh);
        }
        Ok(tpdu.len())
    }

    /// Checks the tag of a packet without data; `source` is set for packets from the session's
    /// source.
    fn check_tag(
        &mut self,
        tsi: Tsi,
        source: Option<IpAddr>,
        tpdu: &[u8],
    ) -> Result<usize, DropReason> {
        let session = self
            .sessions
            .get_mut(&tsi)
            .ok_or(DropReason::UnknownSession)?;
        let (covered, tag) = tpdu.split_last_chunk().ok_or(DropReason::Unprotected)?;
        let (packet, tail) = covered
            .split_last_chunk::<16>()
            .ok_or(DropReason::Unprotected)?;
        Packet::parse(packet).map_err(|_| DropReason::Unprotected)?;
        let (from, other) = match source {
            Some(_) => (From::Source, source.filter(|&source| source != session.nla)),
            None => (From::Receiver, None),
        };
        if !session.is_tag(from, covered, tag) {
            return Err(DropReason::Forged);
        }
        if other.is_some() {
            return Err(DropReason::WrongSource);
        }
        let (instance, number) = split_instance(tail);
        session.heard = self.seen;
        let is_new = match from {
            From::Source => session.numbers.take(number),
            From::Receiver => {
                let verdict = session.take_number(instance, number, self.seen);
                self.counters.receivers_evicted += u64::from(verdict.has_evicted);
                verdict.is_new
            }
        };
        if is_new {
            Ok(packet.len())
        } else {
            Err(DropReason::Replayed)
        }
    }

    /// Forgets the session that was silent for longest, when the table is full.
    fn make_room(&mut self) {
        if self.sessions.len() < PROTECTED_SESSIONS_MAX as usize {
            return;
        }
        let oldest = self
            .sessions
            .iter()
            .min_by_key(|(_, session)| session.heard);
        if let Some((&tsi, _)) = oldest {
            self.sessions.remove(&tsi);
            self.counters.sessions_evicted += 1;
        }
    }

    fn note(&mut self, host: IpAddr, kind: NoticeKind) {
        let notice = Notice { host, kind };
        if self.noticed.contains(&notice) {
            return;
        }
        if self.noticed.len() < NOTICES_MAX as usize {
            self.noticed.push(notice);
            self.notices.push(notice);
        } else {
            self.counters.notices_omitted += 1;
        }
    }
}

/// Returns the mark of a protected session, and its tag. `None` when the packet does not end with
/// this tag.
fn mark_tag(packet: &Packet<'_>) -> Option<(Mark, MarkTag)> {
    let PgmOption::Mark(mark) = packet.options().last()? else {
        return None;
    };
    let tag = mark.tag?;
    let (_, end) = packet.bytes().split_last_chunk::<TAG_LEN>()?;
    // In a later version the option may be longer, and then does not end with its tag.
    (*end == tag.tag).then_some((mark, tag))
}

fn next_number(role: &mut Role) -> u64 {
    let (Role::Source { number, .. } | Role::Receiver { number, .. }) = role;
    *number += 1;
    *number
}

/// Sets the fields of a data packet's header that a repair, a relay or this stage may change: the
/// type to ODATA, checksum and trail to 0.
fn neutralise(head: &mut [u8]) {
    head[Header::TYPE_AT] = PacketType::Odata.code();
    clear_checksum(head);
    head[TRAIL].fill(0);
}

fn clear_checksum(packet: &mut [u8]) {
    packet[CHECKSUM].fill(0);
}

fn split_number(tail: &[u8; 8 + TAG_LEN]) -> (u64, &[u8; TAG_LEN]) {
    let (number, tag) = tail.split_first_chunk().expect("24 bytes hold 8");
    let tag = tag.first_chunk().expect("16 bytes are left");
    (u64::from_be_bytes(*number), tag)
}

fn split_instance(tail: &[u8; 16]) -> (u64, u64) {
    let (instance, number) = tail.split_first_chunk().expect("16 bytes hold 8");
    let number = number.first_chunk().expect("8 bytes are left");
    (u64::from_be_bytes(*instance), u64::from_be_bytes(*number))
}

/// The bytes by which protection makes a data packet longer: its position (for parity, its number)
/// and the tag.
const DATA_OVERHEAD: usize = 8 + TAG_LEN;

/// Place of the checksum in every packet.
const CHECKSUM: Range<usize> = Header::CHECKSUM_AT..Header::CHECKSUM_AT + 2;

/// Place of the trail in a data packet.
const TRAIL: Range<usize> = Header::LEN + 4..Header::LEN + 8;

/// Start of a source's positions: one lap (2^32) up, so that subtraction never goes below zero.
const FIRST_LAP: u64 = 1 << 32;
const LAP_HALF: u64 = 1 << 31;

#[cfg(all(test, feature = "portable"))]
mod tests;
