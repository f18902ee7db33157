//! The senders that a receiver knows, found by session number, or by TSI and address. Their number
//! is bounded. One TSI at two addresses makes two senders, because either address may be forged.
//!
//! When the table is full, a new session displaces one that is over, or an unproven one, whose
//! sender has sent only a few packets. Among these, the sender that has been silent longest goes. A
//! sender that has sent more packets, or that the owner vouches for, is not displaced before its
//! session is over, unless its host or network has more than its share. So a million forged TSIs
//! fill a bounded table and cost no real session, and one host whose sessions are all proven keeps
//! no other host out.
//!
//! ```text
//!   host of the new session has     sessions that may be displaced
//!   less than its share             all over or unproven; one of a greedy host or network
//!   less, but its network is full   all that are over; of its network: the unproven, one of a
//!                                   greedy host
//!   its share or more               all that are over; of this host: the unproven
//! ```
//!
//! A host's share is a quarter of the places; the share of a network (an IPv6 /64) is three
//! quarters. A host or network is full when it has its share, and greedy when it has more. Shares
//! count only when the table is full. Of a greedy host's sessions, the one that was found last goes
//! first: packets that forge a host's address can make the host greedy, and the host's real
//! sessions were mostly found before. Sessions that the owner vouches for go after all others.
//!
//! Invariants: `index` and `slots` agree; the evictable slots form one list, least recently heard
//! first; a session number is the index of its slot; `places` has the number of senders of each
//! host and network, and `greedy` is how many hosts, and how many networks, have more than their
//! share.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use base::{Party, Share, counted_share, network_share};
use wire::pgm::{Gsi, Tsi};

use super::peer::Peer;

/// The table of senders.
#[derive(Debug)]
pub(super) struct PeerTable {
    slots: Vec<Slot>,
    index: BTreeMap<(Tsi, IpAddr), u32>,
    free: Vec<u32>,
    /// The sender that was looked up last: many packets of one sender come in a row.
    latest: (Tsi, IpAddr, u32),
    /// The two ends of the list of evictable slots: the slots of the senders heard least recently
    /// (`eldest`) and most recently (`youngest`).
    eldest: u32,
    youngest: u32,
    peers_max: usize,
    /// For each host and each network, its number of senders in the table.
    places: BTreeMap<Party, usize>,
    greedy: Greedy,
    /// Number of senders that were entered in the table so far.
    found: u64,
}

/// How many hosts, and how many networks, have more than their share.
#[derive(Clone, Copy, Debug, Default)]
struct Greedy {
    hosts: usize,
    networks: usize,
}

impl Greedy {
    const fn of_mut(&mut self, party: Party) -> &mut usize {
        match party {
            Party::Host(_) => &mut self.hosts,
            Party::Network(_) => &mut self.networks,
        }
    }
}

#[derive(Debug)]
struct Slot {
    peer: Option<Box<Peer>>,
    /// The sender's number in the order in which senders were entered.
    found: u64,
    older: u32,
    younger: u32,
    is_listed: bool,
}

impl PeerTable {
    pub(super) const fn new(peers_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            index: BTreeMap::new(),
            free: Vec::new(),
            latest: (NOBODY, LOWEST, NONE),
            eldest: NONE,
            youngest: NONE,
            peers_max,
            places: BTreeMap::new(),
            greedy: Greedy {
                hosts: 0,
                networks: 0,
            },
            found: 0,
        }
    }

    /// Returns the session of `tsi` whose packets come from `source`.
    #[inline]
    pub(super) fn find(&mut self, tsi: Tsi, source: IpAddr) -> Option<u32> {
        if self.latest.0 == tsi && self.latest.1 == source && self.latest.2 != NONE {
            return Some(self.latest.2);
        }
        let session = *self.index.get(&(tsi, source))?;
        self.latest = (tsi, source, session);
        Some(session)
    }

    /// Returns the sessions of `tsi`, one for each address.
    pub(super) fn sharing(&self, tsi: Tsi) -> impl Iterator<Item = u32> {
        let all = (tsi, LOWEST)..=(tsi, HIGHEST);
        self.index.range(all).map(|(_, &session)| session)
    }

    #[inline]
    pub(super) fn get(&self, session: u32) -> Option<&Peer> {
        self.slots.get(session as usize)?.peer.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, session: u32) -> Option<&mut Peer> {
        self.slots.get_mut(session as usize)?.peer.as_deref_mut()
    }

    /// Takes a session number that is free, or a new one; `None` when all `peers_max` are in use.
    pub(super) fn vacancy(&mut self) -> Option<u32> {
        if let Some(session) = self.free.pop() {
            return Some(session);
        }
        if self.slots.len() >= self.peers_max {
            return None;
        }
        self.slots.push(Slot {
            peer: None,
            found: 0,
            older: NONE,
            younger: NONE,
            is_listed: false,
        });
        u32::try_from(self.slots.len() - 1).ok()
    }

    /// Returns the session that makes room for a new session of a host at `address`, when no number
    /// is free.
    ///
    /// Unproven sessions are removed first, then sessions that are over and whose sender was real.
    /// If the table forgot these too soon, their last repairs would open them anew, and their data
    /// would be given out twice. A proven session of a greedy host or network is removed last.
    ///
    /// **Cost**: looks at up to [`EVICTION_STEPS_MAX`] sessions, or at all sessions when a session
    /// of a greedy host is removed.
    pub(super) fn evictable(&self, address: IpAddr) -> Option<u32> {
        let own = self.share_of(address);
        let may_take = |peer: &Peer| own.may_displace(address, peer.source);
        let (mut session, mut remembered) = (self.eldest, None);
        for _ in 0..EVICTION_STEPS_MAX {
            let Some(slot) = self.slots.get(session as usize) else {
                break;
            };
            match &slot.peer {
                Some(peer) if peer.is_remembered() => remembered = remembered.or(Some(session)),
                Some(peer) if !peer.is_over() && !may_take(peer) => {}
                _ => return Some(session),
            }
            session = slot.younger;
        }
        let is_nobody_greedy = match own {
            Share::Free => self.greedy.hosts + self.greedy.networks == 0,
            Share::NetworkFull => self.greedy.hosts == 0,
            Share::HostFull => true,
        };
        if remembered.is_some() || is_nobody_greedy {
            return remembered;
        }
        // When the new session's network has used up its share, only a host with more than its own
        // share loses a proven session.
        let is_greedy = |peer: &Peer| {
            let mut parties = Party::all_of(peer.source);
            parties.any(|party| {
                let counts = own == Share::Free || party == Party::host(peer.source);
                counts && self.places_of(party) > self.share_max(party)
            })
        };
        let all = self.slots.iter();
        let all = all.filter_map(|slot| Some((slot.found, slot.peer.as_deref()?)));
        let greedy = all.filter(|(_, peer)| may_take(peer) && is_greedy(peer));
        let last = greedy.max_by_key(|(found, peer)| (!peer.is_vouched_for(), *found));
        last.map(|(_, peer)| peer.session)
    }

    /// Puts a sender into the free slot of its session number.
    pub(super) fn insert(&mut self, peer: Peer) {
        let session = peer.session;
        self.index.insert((peer.tsi, peer.source), session);
        self.latest = (peer.tsi, peer.source, session);
        for party in Party::all_of(peer.source) {
            let limit = self.share_max(party);
            let places = self.places.entry(party).or_default();
            *places += 1;
            *self.greedy.of_mut(party) += usize::from(*places == limit + 1);
        }
        self.found += 1;
        let slot = &mut self.slots[session as usize];
        (slot.peer, slot.found) = (Some(Box::new(peer)), self.found);
        self.touch(session);
    }

    /// Takes a sender out. Its session number is not free until [`PeerTable::vacate`].
    pub(super) fn remove(&mut self, session: u32) -> Option<Peer> {
        let peer = self.slots.get_mut(session as usize)?.peer.take()?;
        self.unlist(session);
        self.index.remove(&(peer.tsi, peer.source));
        self.latest = (NOBODY, LOWEST, NONE);
        for party in Party::all_of(peer.source) {
            let limit = self.share_max(party);
            if let Some(places) = self.places.get_mut(&party) {
                *self.greedy.of_mut(party) -= usize::from(*places == limit + 1);
                *places -= 1;
                if *places == 0 {
                    self.places.remove(&party);
                }
            }
        }
        Some(*peer)
    }

    /// Makes the session number of a removed sender free.
    pub(super) fn vacate(&mut self, session: u32) {
        self.free.push(session);
    }

    /// Notes that the sender was heard: it moves to the end of the list of evictable senders, or
    /// leaves the list.
    pub(super) fn touch(&mut self, session: u32) {
        let slot = &self.slots[session as usize];
        let is_evictable = slot.peer.as_ref().is_some_and(|peer| !peer.is_proven());
        if slot.is_listed {
            if is_evictable && self.youngest == session {
                return;
            }
            self.unlist(session);
        }
        if is_evictable {
            self.list(session);
        }
    }

    /// Returns every sender.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.peer.as_deref())
    }

    /// Returns one past the highest session number ever used.
    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the share of a host or a network: a number of places in the table.
    fn share_max(&self, party: Party) -> usize {
        let own_max = self.peers_max.div_ceil(HOST_PART);
        match party {
            Party::Host(_) => own_max,
            Party::Network(_) => network_share(own_max, self.peers_max),
        }
    }

    /// Returns whether a host at `address` has its full share already, and if not, whether its
    /// network has.
    fn share_of(&self, address: IpAddr) -> Share {
        let own = self.places_of(Party::host(address));
        let near = Party::network(address).map_or(own, |network| self.places_of(network));
        let own_max = self.peers_max.div_ceil(HOST_PART);
        counted_share(own_max, self.peers_max, own, near)
    }

    fn places_of(&self, party: Party) -> usize {
        self.places.get(&party).copied().unwrap_or(0)
    }

    fn list(&mut self, session: u32) {
        let slot = &mut self.slots[session as usize];
        slot.is_listed = true;
        slot.older = self.youngest;
        slot.younger = NONE;
        match self.slots.get_mut(self.youngest as usize) {
            Some(before) => before.younger = session,
            None => self.eldest = session,
        }
        self.youngest = session;
    }

    fn unlist(&mut self, session: u32) {
        let slot = &mut self.slots[session as usize];
        if !std::mem::take(&mut slot.is_listed) {
            return;
        }
        let (older, younger) = (slot.older, slot.younger);
        match self.slots.get_mut(older as usize) {
            Some(before) => before.younger = younger,
            None => self.eldest = younger,
        }
        match self.slots.get_mut(younger as usize) {
            Some(after) => after.older = older,
            None => self.youngest = older,
        }
    }
}

/// Judgement: a host's share is a quarter of the table's places, more than most hosts need. When
/// the table is full, a host loses proven sessions only above its share. With a smaller share,
/// forged senders could displace more sessions of a real host.
const HOST_PART: usize = 4;

/// The search for an unproven session to evict looks at no more sessions than this.
const EVICTION_STEPS_MAX: usize = 64;

/// The number that stands for no slot.
const NONE: u32 = u32::MAX;

/// The least and the greatest [`IpAddr`], for a range over all addresses.
const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const HIGHEST: IpAddr = IpAddr::V6(Ipv6Addr::new(
    0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff,
));

const NOBODY: Tsi = Tsi {
    gsi: Gsi([0; 6]),
    port: 0,
};
