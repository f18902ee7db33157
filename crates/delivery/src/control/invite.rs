//! The hosts that a sender dials, because no packet stream makes their receivers dial the sender.
//! This module notes which connection each host has, and when the host is dialled again.
//!
//! ```text
//!   Waiting -> Dialling -> Connecting --open: INVITE--> Invited --WAIT--> InLine
//!      ^------ lost, or told to come later ----------------'|------- greeted --'
//!                                       Over <-- refused ---'
//! ```
//!
//! Invariant: a host has at most one connection, or one request for a connection.
//!
//! **Cost**: a look-up of one host takes time logarithmic in the number of hosts. There may be ten
//! thousand hosts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use base::{Instant, LinkId};
use wire::object::Refusal;

use super::dial::back_off;
use crate::parameters::INVITE_LATER;

/// All hosts that a sender was told to dial. A host's *place* is its index in `all`.
#[derive(Debug, Default)]
pub(crate) struct Invitations {
    all: Vec<Invitation>,
    /// For each connection, its host's index in `all`.
    by_link: BTreeMap<LinkId, usize>,
    /// For each address, the hosts there, as indexes in `all`.
    by_peer: BTreeSet<(SocketAddr, usize)>,
    /// Pairs: an admitted receiver's number, and its host's index in `all`.
    by_slot: BTreeSet<(usize, usize)>,
    /// Pairs: the time at which a waiting host is dialled, and the host's index in `all`.
    due: BTreeSet<(Instant, usize)>,
    /// How many hosts have no admitted receiver yet, and may still get one.
    unsettled_count: usize,
    /// Pairs: since when a host makes this sender wait its turn, and the host's index in `all`.
    in_line: BTreeSet<(Instant, usize)>,
}

/// One host that the sender dials, and the state of the connection to it.
#[derive(Debug)]
pub(crate) struct Invitation {
    pub(crate) peer: SocketAddr,
    state: State,
    /// Number of dials of this host since a receiver there was last admitted.
    attempts: u32,
    /// When the host first made this sender wait. Set anew when the receiver there has more bytes
    /// than before.
    waits_since: Option<Instant>,
    /// Bytes that the host's receiver had when the host last made this sender wait.
    held: u64,
    /// The number of the receiver at this host, once one was admitted.
    pub(crate) slot: Option<usize>,
    /// Why no receiver at this host was admitted, as a text for a person.
    pub(crate) text: String,
}

/// A host that made this sender wait its turn for too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GivenUp {
    pub(crate) link: LinkId,
    pub(crate) peer: SocketAddr,
    /// The number of the receiver at that host, once one was admitted.
    pub(crate) slot: Option<usize>,
    /// Why the host was given up, as a text for a person.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The host is dialled at this time.
    Waiting { until: Instant },
    /// The back end was asked for a connection.
    Dialling,
    /// The connection has a number and is not open yet.
    Connecting { link: LinkId },
    /// The receiver was told of the session, and may have been admitted since.
    Invited { link: LinkId },
    /// The receiver makes this sender wait its turn.
    InLine { link: LinkId },
    /// The host is not dialled again.
    Over,
}

impl Invitations {
    /// Makes the list of these hosts, which are all due at `now`.
    pub(crate) fn new(now: Instant, peers: &[SocketAddr]) -> Self {
        let fresh = |&peer: &SocketAddr| Invitation {
            peer,
            state: State::Waiting { until: now },
            attempts: 0,
            waits_since: None,
            held: 0,
            slot: None,
            text: "it was not dialled yet".to_owned(),
        };
        Self {
            all: peers.iter().map(fresh).collect(),
            by_link: BTreeMap::new(),
            by_peer: peers.iter().copied().zip(0..).collect(),
            by_slot: BTreeSet::new(),
            due: (0..peers.len()).map(|place| (now, place)).collect(),
            unsettled_count: peers.len(),
            in_line: BTreeSet::new(),
        }
    }

    /// Returns the index and address of a host that is to be dialled now, if there is one. Notes
    /// that it is being dialled.
    pub(crate) fn dial(&mut self, now: Instant) -> Option<(usize, SocketAddr)> {
        let &(_, place) = self.due.first().filter(|&&(due, _)| due <= now)?;
        self.set(place, State::Dialling);
        let invitation = &mut self.all[place];
        if invitation.attempts == 0 {
            "it has not answered yet".clone_into(&mut invitation.text);
        }
        invitation.attempts = invitation.attempts.saturating_add(1);
        Some((place, invitation.peer))
    }

    /// Notes the number of the connection that the back end opens to the host at `place`. Returns
    /// false when that connection is not wanted any more.
    pub(crate) fn link_opened(&mut self, place: usize, link: LinkId) -> bool {
        let asked = self.all.get(place);
        let is_wanted = asked.is_some_and(|it| it.state == State::Dialling);
        if is_wanted {
            self.set(place, State::Connecting { link });
        }
        is_wanted
    }

    /// Notes that a connection is open; returns the host to which INVITE goes.
    pub(crate) fn opened(&mut self, link: LinkId) -> Option<SocketAddr> {
        let &place = self.by_link.get(&link)?;
        self.set(place, State::Invited { link });
        Some(self.all[place].peer)
    }

    /// Notes that the receiver on this connection was admitted with the number `slot`.
    pub(crate) fn admitted(&mut self, link: LinkId, slot: usize) {
        let Some(&place) = self.by_link.get(&link) else {
            return;
        };
        self.set(place, State::Invited { link });
        let invitation = &mut self.all[place];
        self.unsettled_count -= usize::from(invitation.is_unsettled());
        invitation.attempts = 0;
        if let Some(former) = invitation.slot.replace(slot) {
            self.by_slot.remove(&(former, place));
        }
        self.by_slot.insert((slot, place));
    }

    /// Handles a connection that ended or could not be opened: the host is dialled again. Returns
    /// the host and the reason when the reason is news.
    pub(crate) fn lost(&mut self, now: Instant, link: LinkId) -> Option<(SocketAddr, &str)> {
        let &place = self.by_link.get(&link)?;
        let invitation = &self.all[place];
        let text = match invitation.state {
            State::Connecting { .. } => "nothing answers there",
            _ => "the connection to it was lost",
        };
        let until = now + back_off(invitation.attempts);
        self.set(place, State::Waiting { until });
        self.all[place].say(text)
    }

    /// Handles a connection on which one end refused the other. If the receiver is busy, is done
    /// with this session, or has a name that is taken, the host is dialled again later; otherwise
    /// it never is. Returns the host and the reason when the reason is news.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        link: LinkId,
        reason: Refusal,
        text: &str,
    ) -> Option<(SocketAddr, &str)> {
        let &place = self.by_link.get(&link)?;
        let state = match reason {
            Refusal::Busy | Refusal::Over | Refusal::DuplicateName => State::Waiting {
                until: now + INVITE_LATER,
            },
            _ => State::Over,
        };
        self.set(place, state);
        self.all[place].say(text)
    }

    /// Notes that the receiver on this connection makes this sender wait its turn. `held` says how
    /// many bytes the receiver has. Returns the host and the reason when the reason is news.
    pub(crate) fn waits(
        &mut self,
        now: Instant,
        link: LinkId,
        held: u64,
    ) -> Option<(SocketAddr, &str)> {
        let &place = self.by_link.get(&link)?;
        // The host leaves `in_line`, where it is listed by `waits_since`, before that time changes.
        self.set(place, State::Invited { link });
        let invitation = &mut self.all[place];
        if held > invitation.held {
            (invitation.held, invitation.waits_since) = (held, None);
        }
        invitation.waits_since.get_or_insert(now);
        self.set(place, State::InLine { link });
        self.all[place].say("it serves others, and this sender waits its turn")
    }

    /// Gives up the host that has made this sender wait for the longest time, if that wait began
    /// `timeout` ago or earlier. A wait begins anew when the host's receiver has more bytes than
    /// before.
    pub(crate) fn give_up_waiting(&mut self, now: Instant, timeout: Duration) -> Option<GivenUp> {
        let first = self.in_line.first();
        let &(_, place) = first.filter(|&&(since, _)| since + timeout <= now)?;
        let link = self.all[place].link()?;
        self.set(place, State::Over);
        let Invitation {
            peer, slot, text, ..
        } = &mut self.all[place];
        *text = format!(
            "it had this sender wait its turn for {} s, and that is the limit",
            timeout.as_secs()
        );
        Some(GivenUp {
            link,
            peer: *peer,
            slot: *slot,
            text: text.clone(),
        })
    }

    /// Stops dialling the host of receiver `slot`, whose part in the session is over.
    pub(crate) fn end(&mut self, slot: usize) {
        let places = self.by_slot.range((slot, 0)..=(slot, usize::MAX));
        let places: Vec<usize> = places.map(|&(_, place)| place).collect();
        for place in places {
            self.set(place, State::Over);
        }
    }

    /// Stops dialling all hosts.
    pub(crate) fn end_all(&mut self) {
        for place in 0..self.all.len() {
            self.set(place, State::Over);
        }
    }

    /// Handles as lost each connection for which `is_there` returns false: this end has closed it.
    pub(crate) fn check(&mut self, now: Instant, is_there: impl Fn(LinkId) -> bool) {
        let links = self.by_link.keys().copied();
        let gone: Vec<_> = links.filter(|&link| !is_there(link)).collect();
        for link in gone {
            let _known_already = self.lost(now, link);
        }
    }

    /// Returns the number of the receiver that was admitted at the host of this connection.
    pub(crate) fn slot_of(&self, link: LinkId) -> Option<usize> {
        let &place = self.by_link.get(&link)?;
        self.all[place].slot
    }

    /// Returns the hosts at which no receiver was admitted.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = &Invitation> {
        self.all.iter().filter(|it| it.slot.is_none())
    }

    /// Returns true when `peer` is in the list and no receiver there was admitted yet.
    pub(crate) fn awaits(&self, peer: SocketAddr) -> bool {
        let mut places = self.by_peer.range((peer, 0)..=(peer, usize::MAX));
        places.any(|&(_, place)| self.all[place].slot.is_none())
    }

    /// Returns true when each host either has a receiver that was admitted or is not dialled again.
    /// False when there are no hosts to dial: receivers then come by themselves.
    pub(crate) fn are_settled(&self) -> bool {
        !self.all.is_empty() && self.unsettled_count == 0
    }

    /// Returns true while at least one host makes this sender wait its turn.
    pub(crate) fn is_in_line(&self) -> bool {
        !self.in_line.is_empty()
    }

    /// Returns true while the host of receiver `slot` makes this sender wait its turn.
    pub(crate) fn waits_for(&self, slot: usize) -> bool {
        let mut places = self.by_slot.range((slot, 0)..=(slot, usize::MAX));
        places.any(|&(_, place)| self.all[place].in_line_since().is_some())
    }

    /// Says when the next host is to be dialled.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Changes a host's state, and the indices and counts that depend on the state.
    fn set(&mut self, place: usize, state: State) {
        let invitation = &mut self.all[place];
        if let Some(link) = invitation.link() {
            self.by_link.remove(&link);
        }
        if let Some(due) = invitation.due() {
            self.due.remove(&(due, place));
        }
        self.unsettled_count -= usize::from(invitation.is_unsettled());
        if let Some(since) = invitation.in_line_since() {
            self.in_line.remove(&(since, place));
        }
        invitation.state = state;
        self.unsettled_count += usize::from(invitation.is_unsettled());
        if let Some(since) = invitation.in_line_since() {
            self.in_line.insert((since, place));
        }
        if let Some(link) = invitation.link() {
            self.by_link.insert(link, place);
        }
        if let Some(due) = invitation.due() {
            self.due.insert((due, place));
        }
    }
}

impl Invitation {
    fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Connecting { link } | State::Invited { link } | State::InLine { link } => {
                Some(link)
            }
            _ => None,
        }
    }

    /// Returns true while no receiver at this host was admitted, and one may still be.
    fn is_unsettled(&self) -> bool {
        self.slot.is_none() && self.state != State::Over
    }

    /// Returns since when the host makes this sender wait its turn; `None` while the host does not.
    fn in_line_since(&self) -> Option<Instant> {
        let is_in_line = matches!(self.state, State::InLine { .. });
        self.waits_since.filter(|_| is_in_line)
    }

    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Keeps the reason and returns it with the host, if the reason is news: it differs from the
    /// last one, and no receiver at this host was admitted.
    fn say(&mut self, text: &str) -> Option<(SocketAddr, &str)> {
        let is_news = self.text != text && self.slot.is_none();
        if is_news {
            text.clone_into(&mut self.text);
        }
        is_news.then_some((self.peer, self.text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_awaited_until_its_own_receiver_was_admitted() {
        let now = Instant::from_nanos(1);
        let peers = [7500, 7501].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut invitations = Invitations::new(now, &peers);
        let (place, peer) = invitations.dial(now).unwrap();
        assert_eq!((place, peer), (0, peers[0]));
        assert!(invitations.link_opened(place, LinkId(3)));
        assert_eq!(invitations.opened(LinkId(3)), Some(peer));
        assert!(peers.iter().all(|&peer| invitations.awaits(peer)));
        invitations.admitted(LinkId(3), 0);
        // The first host's connection is lost. The first host had its receiver, so only the second
        // is awaited.
        assert!(invitations.lost(now, LinkId(3)).is_none());
        assert_eq!(peers.map(|peer| invitations.awaits(peer)), [false, true]);
        let told: Vec<_> = invitations.unreached().map(|it| &*it.text).collect();
        assert_eq!(told, ["it was not dialled yet"]);
    }

    #[test]
    fn a_sender_is_in_line_until_it_is_greeted_or_its_connection_is_lost() {
        let now = Instant::from_nanos(1);
        for is_lost in [false, true] {
            let mut invitations = Invitations::new(now, &[SocketAddr::from(([10, 0, 0, 1], 1))]);
            let (place, _) = invitations.dial(now).unwrap();
            assert!(invitations.link_opened(place, LinkId(3)));
            invitations.opened(LinkId(3));
            assert!(!invitations.is_in_line());
            assert!(invitations.waits(now, LinkId(3), 0).is_some());
            assert!(invitations.waits(now, LinkId(3), 0).is_none(), "no news");
            assert!(invitations.is_in_line());
            match is_lost {
                true => assert!(invitations.lost(now, LinkId(3)).is_some()),
                false => invitations.admitted(LinkId(3), 0),
            }
            assert!(!invitations.is_in_line());
        }
    }

    #[test]
    fn time_in_line_goes_on_over_lost_connections_until_a_receiver_has_more() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let timeout = Duration::from_secs(20);
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        let mut invitations = Invitations::new(at(0), &[peer]);
        let connect = |invitations: &mut Invitations, now, link: LinkId, held| {
            let (place, _) = invitations.dial(now).unwrap();
            assert!(invitations.link_opened(place, link));
            invitations.opened(link);
            invitations.waits(now, link, held);
        };
        connect(&mut invitations, at(10), LinkId(1), 0);
        invitations.admitted(LinkId(1), 7);
        invitations.lost(at(29), LinkId(1));
        // The receiver has got more bytes meanwhile.
        connect(&mut invitations, at(40), LinkId(2), 100);
        assert_eq!(invitations.give_up_waiting(at(59), timeout), None);
        // The receiver was admitted again, and has got no more bytes.
        invitations.admitted(LinkId(2), 7);
        invitations.lost(at(59), LinkId(2));
        assert_eq!(invitations.give_up_waiting(at(99), timeout), None);
        connect(&mut invitations, at(100), LinkId(3), 100);
        let given_up = invitations.give_up_waiting(at(100), timeout).unwrap();
        assert_eq!(
            (given_up.link, given_up.peer, given_up.slot),
            (LinkId(3), peer, Some(7))
        );
        assert!(given_up.text.contains("for 20 s"));
        assert!(!invitations.is_in_line() && invitations.due().is_none());
    }

    #[test]
    fn a_receiver_that_was_admitted_is_waited_for_while_its_host_has_the_sender_wait() {
        let now = Instant::from_nanos(1);
        let mut invitations = Invitations::new(now, &[SocketAddr::from(([10, 0, 0, 1], 1))]);
        for link in [LinkId(3), LinkId(4)] {
            let (place, _) = invitations.dial(now + INVITE_LATER * 9).unwrap();
            assert!(invitations.link_opened(place, link));
            invitations.opened(link);
            if link == LinkId(3) {
                invitations.admitted(link, 7);
                invitations.lost(now, link);
            }
            assert!(!invitations.waits_for(7));
        }
        assert!(invitations.waits(now, LinkId(4), 0).is_none(), "no news");
        assert!(invitations.waits_for(7) && !invitations.waits_for(8));
        invitations.admitted(LinkId(4), 7);
        assert!(!invitations.waits_for(7));
    }
}
