//! The hosts that a sender dials, because there is no packet stream that would make receivers dial
//! it: which connection each has, and when it is dialled again.
//!
//! ```text
//!   Waiting -> Dialling -> Connecting --open: INVITE--> Invited      and the greeting follows
//!      ^------ lost, or told to come later ----------------'|
//!                                       Over <-- refused ---'
//! ```
//!
//! Invariant: a host has at most one connection or request.

use std::net::SocketAddr;

use base::{Instant, LinkId};
use wire::object::Refusal;

use super::dial::back_off;
use crate::parameters::INVITE_LATER;

/// All hosts that a sender was told to dial, by their place in its list.
#[derive(Debug, Default)]
pub(crate) struct Invitations(Vec<Invitation>);

/// The way to one host.
#[derive(Debug)]
pub(crate) struct Invitation {
    pub(crate) peer: SocketAddr,
    state: State,
    /// Attempts since a receiver at this host was last admitted.
    attempts: u32,
    /// The number of the receiver at this host, once one was admitted.
    pub(crate) slot: Option<usize>,
    /// Why there is no receiver at this host, for a person.
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
    /// The receiver was told of the session.
    Invited { link: LinkId },
    /// The host is not dialled again.
    Over,
}

impl Invitations {
    /// Dials these hosts from `now` on.
    pub(crate) fn new(now: Instant, peers: &[SocketAddr]) -> Self {
        let fresh = |&peer: &SocketAddr| Invitation {
            peer,
            state: State::Waiting { until: now },
            attempts: 0,
            slot: None,
            text: "it was not dialled yet".to_owned(),
        };
        Self(peers.iter().map(fresh).collect())
    }

    /// Returns a host that is due, with its place, and notes that it is being dialled.
    pub(crate) fn dial(&mut self, now: Instant) -> Option<(usize, SocketAddr)> {
        let is_due = |it: &Invitation| it.due().is_some_and(|due| due <= now);
        let place = self.0.iter().position(is_due)?;
        let invitation = &mut self.0[place];
        if invitation.attempts == 0 {
            "it has not answered yet".clone_into(&mut invitation.text);
        }
        invitation.state = State::Dialling;
        invitation.attempts = invitation.attempts.saturating_add(1);
        Some((place, invitation.peer))
    }

    /// Notes the connection that the back end gave; returns false when nobody wants it any more.
    pub(crate) fn link_opened(&mut self, place: usize, link: LinkId) -> bool {
        let asked = self.0.get_mut(place);
        let asked = asked.filter(|it| it.state == State::Dialling);
        let is_wanted = asked.is_some();
        if let Some(invitation) = asked {
            invitation.state = State::Connecting { link };
        }
        is_wanted
    }

    /// Notes that a connection is open; returns the host to which INVITE goes.
    pub(crate) fn opened(&mut self, link: LinkId) -> Option<SocketAddr> {
        let invitation = self.of_mut(link)?;
        invitation.state = State::Invited { link };
        Some(invitation.peer)
    }

    /// Notes that the receiver on this connection was admitted in place `slot`.
    pub(crate) fn admitted(&mut self, link: LinkId, slot: usize) {
        if let Some(invitation) = self.of_mut(link) {
            (invitation.attempts, invitation.slot) = (0, Some(slot));
        }
    }

    /// Handles a connection that ended or could not be opened: the host is dialled again. Returns
    /// the host and the reason when the reason is news.
    pub(crate) fn lost(&mut self, now: Instant, link: LinkId) -> Option<(SocketAddr, &str)> {
        let invitation = self.of_mut(link)?;
        let text = match invitation.state {
            State::Connecting { .. } => "nothing answers there",
            _ => "the connection to it was lost",
        };
        let until = now + back_off(invitation.attempts);
        invitation.state = State::Waiting { until };
        invitation.say(text)
    }

    /// Handles a connection on which one end refused the other. The host is dialled again when its
    /// receiver is busy or is done with this session, or when the receiver's name is taken at
    /// present. Returns the host and the reason when the reason is news.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        link: LinkId,
        reason: Refusal,
        text: &str,
    ) -> Option<(SocketAddr, &str)> {
        let invitation = self.of_mut(link)?;
        invitation.state = match reason {
            Refusal::Busy | Refusal::Over | Refusal::DuplicateName => State::Waiting {
                until: now + INVITE_LATER,
            },
            _ => State::Over,
        };
        invitation.say(text)
    }

    /// Stops dialling the host of receiver `slot`, whose part is over.
    pub(crate) fn end(&mut self, slot: usize) {
        for invitation in self.0.iter_mut().filter(|it| it.slot == Some(slot)) {
            invitation.state = State::Over;
        }
    }

    /// Dials nobody any more.
    pub(crate) fn end_all(&mut self) {
        for invitation in &mut self.0 {
            invitation.state = State::Over;
        }
    }

    /// Notes the loss of connections that this end has closed by itself.
    pub(crate) fn check(&mut self, now: Instant, is_there: impl Fn(LinkId) -> bool) {
        let gone = |it: &Invitation| it.link().filter(|&link| !is_there(link));
        let gone: Vec<_> = self.0.iter().filter_map(gone).collect();
        for link in gone {
            let _known_already = self.lost(now, link);
        }
    }

    /// Returns the hosts of which no receiver was admitted.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = &Invitation> {
        self.0.iter().filter(|it| it.slot.is_none())
    }

    /// Returns true for a host in the list of which no receiver was admitted yet.
    pub(crate) fn awaits(&self, peer: SocketAddr) -> bool {
        self.unreached().any(|it| it.peer == peer)
    }

    /// Returns true when each host has a receiver that was admitted, or is not dialled again. False
    /// when there are no hosts to dial: receivers then come by themselves.
    pub(crate) fn are_settled(&self) -> bool {
        let is_settled = |it: &Invitation| it.slot.is_some() || it.state == State::Over;
        !self.0.is_empty() && self.0.iter().all(is_settled)
    }

    /// Says when the next host is to be dialled.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(Invitation::due).min()
    }

    fn of_mut(&mut self, link: LinkId) -> Option<&mut Invitation> {
        self.0.iter_mut().find(|it| it.link() == Some(link))
    }
}

impl Invitation {
    fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Connecting { link } | State::Invited { link } => Some(link),
            _ => None,
        }
    }

    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Keeps the reason. Returns it with its host when it is news: it has changed, and no receiver
    /// has joined.
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
        // Its connection is lost: another receiver there is not one of the other host.
        assert!(invitations.lost(now, LinkId(3)).is_none());
        assert_eq!(peers.map(|peer| invitations.awaits(peer)), [false, true]);
        let told: Vec<_> = invitations.unreached().map(|it| &*it.text).collect();
        assert_eq!(told, ["it was not dialled yet"]);
    }
}
