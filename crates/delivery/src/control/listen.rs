//! The listening end: accepts connections, waits for their greetings, and hands on the messages of
//! admitted receivers. A receiver can listen, too: senders then dial it, and it waits for their
//! invitations.
//!
//! **Spec**: `docs/src/protocol.md` sections 2, 5 and 6.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use base::{Instant, LinkId};
use protection::Key;
use wire::object::{
    Challenge, Decoder, ErrorCode, HELLO_LEN_MAX, Hello, Invite, Message, Refusal, StreamError,
    VERSION,
};

use crate::{
    Admission,
    parameters::{GREETING_TIMEOUT, GREETINGS_MAX, WAIT_PATIENCE},
};

use super::{
    crowd::Crowd,
    dial::features,
    link::{Link, Links},
    protect::{LinkProtection, Role, nonce},
};

/// The listening end of a session's control connections.
#[derive(Debug)]
pub(crate) struct Listener {
    session_id: u64,
    /// The key, and a secret random number, on which the nonces of challenges depend.
    key: Option<(Key, u64)>,
    /// The hosts whose connections are taken; `None` for all hosts.
    admission: Option<Admission>,
    /// The most connections that are served at once.
    links_max: usize,
    pub(crate) links: Links,
    /// Connections that have yet to greet. `deadlines` and `hosts` hold the same connections, by
    /// their deadlines and by their hosts.
    greeting: BTreeMap<LinkId, Greeting>,
    deadlines: BTreeSet<(Instant, LinkId)>,
    hosts: Crowd,
    challenged: u64,
    /// How many connections were closed for newer ones since the last [`Listener::take_cut`].
    cut: u64,
}

/// A connection that has not said who it is.
#[derive(Clone, Copy, Debug)]
struct Greeting {
    peer: SocketAddr,
    deadline: Instant,
    /// True when the peer was asked to greet again, to show that it has the key.
    is_challenged: bool,
    /// True when this end has dialled the peer and invited it to this end's session.
    is_invited: bool,
}

/// What a message means to the end that listens.
#[derive(Debug)]
pub(crate) enum Word<'d> {
    /// No message is complete.
    Nothing,
    /// The peer was asked to show that it has the key.
    Challenged,
    /// A greeting, which [`Listener::admit`] or [`Listener::refuse`] answers.
    Hello { peer: SocketAddr, hello: Hello<'d> },
    /// This end has invited the peer, which has no place for it at present. The peer greets later,
    /// when it has a place.
    Waits,
    /// A message of a newer protocol, before the greeting. It may be skipped.
    Skipped,
    /// This end has refused the peer.
    Refused { peer: SocketAddr, reason: Refusal },
    /// This end has invited the peer, and the peer refuses. The link is closed.
    Declined { reason: Refusal, text: &'d str },
    /// A message of an admitted receiver.
    Said(Message<'d>),
    /// The messages on the link cannot be read any further, for this reason.
    Violation(String),
    /// A message on the link of an admitted receiver was not made with the key: another host sent
    /// it. The link is closed.
    Forged,
}

impl Listener {
    pub(crate) fn new(session_id: u64, receivers_max: u32) -> Self {
        Self {
            session_id,
            key: None,
            admission: None,
            links_max: (receivers_max as usize).saturating_add(GREETINGS_MAX as usize),
            links: Links::default(),
            greeting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            hosts: Crowd::new(),
            challenged: 0,
            cut: 0,
        }
    }

    /// Sets the key. With one, only receivers that have it are admitted and believed. `seed` must
    /// be random and secret: who does not know it cannot test a guessed key on the nonces.
    pub(crate) fn with_key(mut self, key: Option<Key>, seed: u64) -> Self {
        self.key = key.map(|key| (key, seed));
        self
    }

    /// Sets the hosts whose connections are taken; `None` for all hosts.
    pub(crate) fn with_admission(mut self, admission: Option<Admission>) -> Self {
        self.admission = admission;
        self
    }

    /// Takes a connection. When the session is over or full, or the host is not admitted, refuses
    /// the connection and returns why.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        link: LinkId,
        peer: SocketAddr,
        is_over: bool,
    ) -> Result<(), Refusal> {
        self.links.insert(link);
        let admission = self.admission.as_ref();
        if admission.is_some_and(|it| !it.admits(peer.ip())) {
            self.refuse(link, Refusal::NotAdmitted);
            return Err(Refusal::NotAdmitted);
        }
        if self.links.len() > self.links_max && !is_over {
            self.make_room_for(peer);
        }
        let reason = match () {
            () if is_over => Refusal::Over,
            () if self.links.len() > self.links_max => Refusal::Full,
            () => {
                let fresh = Greeting {
                    peer,
                    deadline: now + GREETING_TIMEOUT,
                    is_challenged: false,
                    is_invited: false,
                };
                self.await_greeting(link, fresh);
                return Ok(());
            }
        };
        self.refuse(link, reason);
        Err(reason)
    }

    /// Invites the peer to the session, on a connection that this end has dialled, and waits for
    /// the peer's greeting.
    pub(crate) fn invite(&mut self, now: Instant, link: LinkId, peer: SocketAddr, count: u32) {
        let invite = Message::Invite(Invite {
            session_id: self.session_id,
            required: features(self.key.as_ref().map(|(key, _)| key)),
            receiver_count: count,
        });
        let is_queued = self.links.queue(link, &invite);
        debug_assert!(is_queued, "a fresh link has room for an invitation");
        let fresh = Greeting {
            peer,
            deadline: now + GREETING_TIMEOUT,
            is_challenged: false,
            is_invited: true,
        };
        self.await_greeting(link, fresh);
    }

    fn await_greeting(&mut self, link: LinkId, greeting: Greeting) {
        self.end_greeting(link);
        self.deadlines.insert((greeting.deadline, link));
        self.hosts.add(link, greeting.peer.ip());
        self.greeting.insert(link, greeting);
    }

    /// Forgets that a connection has yet to greet.
    fn end_greeting(&mut self, link: LinkId) {
        if let Some(greeting) = self.greeting.remove(&link) {
            self.deadlines.remove(&(greeting.deadline, link));
            self.hosts.remove(link);
        }
    }

    /// Takes the first message of a connection, which must be a sender's invitation; `None` while
    /// it is not complete.
    pub(crate) fn next_invitation(
        &mut self,
        link: LinkId,
        decoder: &mut Decoder,
    ) -> Option<Result<(SocketAddr, Invite), Refusal>> {
        let peer = self.greeting.get(&link)?.peer;
        match self.links.next_message(link, decoder) {
            Ok(None) => None,
            Ok(Some(Message::Invite(invite))) => Some(Ok((peer, invite))),
            Ok(Some(_)) | Err(_) => Some(Err(Refusal::Protocol)),
        }
    }

    /// Lets a peer wait for as long as it likes, after it has said who it is. The listener still
    /// counts the peer's connection, but closes it neither for a newer one nor because time has
    /// passed. The buffer for the peer's messages is freed.
    pub(crate) fn keep_waiting(&mut self, link: LinkId) {
        self.end_greeting(link);
        self.links.put_decoder(link, Decoder::new(HELLO_LEN_MAX));
    }

    /// Returns the peer of a connection that has yet to greet.
    pub(crate) fn peer_of(&self, link: LinkId) -> Option<SocketAddr> {
        self.greeting.get(&link).map(|greeting| greeting.peer)
    }

    /// Removes a connection and returns it, with the bytes that have arrived on it.
    pub(crate) fn hand_over(&mut self, link: LinkId) -> Option<Link> {
        self.end_greeting(link);
        self.links.take(link)
    }

    /// Closes a connection that has not greeted, to make room for a new one from `peer`: the oldest
    /// from the same host, else the oldest from that host's network, else the oldest of all. So a
    /// host that opens many connections without greeting keeps nobody out: each new connection
    /// closes an older one of the same host.
    fn make_room_for(&mut self, peer: SocketAddr) {
        if let Some(link) = self.hosts.oldest_near(peer.ip()) {
            self.close(link);
            self.cut += 1;
        }
    }

    /// Takes the next message of a connection.
    pub(crate) fn next<'d>(
        &mut self,
        now: Instant,
        link: LinkId,
        decoder: &'d mut Decoder,
    ) -> Word<'d> {
        let greeting = self.greeting.get(&link).copied();
        let message = match self.links.next_message(link, decoder) {
            Ok(Some(message)) => message,
            Ok(None) => return Word::Nothing,
            Err(error) => {
                // What could be opened was made with the key.
                let is_unopened =
                    matches!(error, StreamError::Forged | StreamError::TooLong { .. });
                return match greeting {
                    Some(it) if it.is_challenged && is_unopened => {
                        self.refuse_without_key(link);
                        let (peer, reason) = (it.peer, Refusal::WrongKey);
                        Word::Refused { peer, reason }
                    }
                    None if error == StreamError::Forged => {
                        self.close(link);
                        Word::Forged
                    }
                    _ => Word::Violation(error.to_string()),
                };
            }
        };
        let Some(greeting) = greeting else {
            return Word::Said(message);
        };
        let peer = greeting.peer;
        let reason = match message {
            Message::Refused { reason, text } if greeting.is_invited => {
                self.end_greeting(link);
                self.links.close(link);
                return Word::Declined { reason, text };
            }
            Message::Wait if greeting.is_invited => {
                // If the peer's host is gone, the system reports that. If the peer's program is
                // stuck and repeats no WAIT, this deadline ends the wait.
                let deadline = now + WAIT_PATIENCE;
                self.await_greeting(
                    link,
                    Greeting {
                        deadline,
                        ..greeting
                    },
                );
                return Word::Waits;
            }
            Message::Hello(hello) => match self.check(now, link, greeting, &hello) {
                Ok(true) => return Word::Hello { peer, hello },
                Ok(false) => return Word::Challenged,
                Err(reason) => reason,
            },
            // This may be skipped: `next_message` gives an error for unknown messages that may not.
            Message::Unknown { .. } => return Word::Skipped,
            _ => Refusal::Protocol,
        };
        self.refuse(link, reason);
        Word::Refused { peer, reason }
    }

    /// Checks a greeting. Returns true when it suffices, and false when the peer must first show
    /// that it has the key.
    fn check(
        &mut self,
        now: Instant,
        link: LinkId,
        greeting: Greeting,
        hello: &Hello<'_>,
    ) -> Result<bool, Refusal> {
        match (&self.key, hello.nonce) {
            (None, None) => {}
            (Some(_), _) if greeting.is_challenged => {}
            (None, Some(_)) => return Err(Refusal::NoKey),
            (Some(_), None) => return Err(Refusal::KeyRequired),
            (Some((key, seed)), Some(their)) => {
                self.challenged += 1;
                let unique = [*seed, self.session_id, self.challenged, now.as_nanos()];
                let own = nonce(key, Role::Sender, &unique);
                let challenge = Message::Challenge(Challenge { nonce: own });
                let is_queued = self.links.queue(link, &challenge);
                debug_assert!(is_queued, "a fresh link has room for a challenge");
                let protection =
                    LinkProtection::new(key, Role::Sender, self.session_id, &their, &own);
                self.links.protect(link, protection);
                // Each peer has this time for its answer, whatever deadline a WAIT set before.
                let greeting = Greeting {
                    deadline: now + GREETING_TIMEOUT,
                    is_challenged: true,
                    ..greeting
                };
                self.await_greeting(link, greeting);
                return Ok(false);
            }
        }
        if !(hello.version_min..=hello.version_max).contains(&VERSION) {
            return Err(Refusal::Version);
        }
        if hello.name.is_empty() {
            return Err(Refusal::Protocol);
        }
        if hello.session_id != self.session_id {
            return Err(Refusal::WrongSession);
        }
        Ok(true)
    }

    /// Admits the peer that greeted: its further messages go to the owner.
    pub(crate) fn admit(&mut self, link: LinkId) {
        self.end_greeting(link);
        self.links.greeted(link);
    }

    /// Refuses the peer, and tells it why.
    pub(crate) fn refuse(&mut self, link: LinkId, reason: Refusal) {
        self.end_greeting(link);
        let text = reason.to_string();
        let text = text.as_str();
        self.links
            .close_with(link, &Message::Refused { reason, text });
    }

    /// Refuses a peer that was challenged and has not shown the key, with a tag that no key makes.
    /// A peer that has a key cannot open the frame, and takes that for the sign that its key is
    /// another.
    fn refuse_without_key(&mut self, link: LinkId) {
        self.end_greeting(link);
        let reason = Refusal::WrongKey;
        let text = reason.to_string();
        let text = text.as_str();
        self.links
            .close_without_key(link, &Message::Refused { reason, text });
    }

    /// Tells a peer how it broke the protocol, and closes the connection.
    pub(crate) fn break_off(&mut self, link: LinkId, text: &str) {
        self.end_greeting(link);
        let code = ErrorCode::Protocol;
        self.links.close_with(link, &Message::Error { code, text });
    }

    /// Closes a connection at once, without telling the peer why.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.end_greeting(link);
        self.links.abort(link);
    }

    /// Forgets a connection that the back end reports as over.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.forget(link);
        self.end_greeting(link);
    }

    /// Returns how many connections that had not greeted were closed for newer ones since the last
    /// call.
    pub(crate) const fn take_cut(&mut self) -> u64 {
        std::mem::replace(&mut self.cut, 0)
    }

    /// Closes the connections that have not greeted in time; returns their number.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut count = 0;
        while let Some(&(deadline, link)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.close(link);
            count += 1;
        }
        count
    }

    /// Closes all connections that have not greeted; returns their number.
    pub(crate) fn close_greeting(&mut self) -> u64 {
        self.expire(Instant::NEVER)
    }

    /// Returns the earliest deadline of the connections that have yet to greet.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fabric::{Fabric, over_ipv4_and_ipv6},
        parameters::WAIT_INTERVAL,
    };

    fn at(milliseconds: u64) -> Instant {
        Instant::from_nanos(milliseconds * 1_000_000)
    }

    fn peer(host: usize) -> SocketAddr {
        Fabric::address(host)
    }

    #[test]
    fn idle_connections_of_one_host_keep_nobody_out() {
        over_ipv4_and_ipv6(|| {
            let mut listener = Listener::new(1, 4);
            let idle = 2 * listener.links_max as u32;
            for number in 0..idle {
                let accepted = listener.accept(at(number.into()), LinkId(number), peer(66), false);
                assert_eq!(accepted, Ok(()));
            }
            assert_eq!(listener.greeting.len(), listener.links_max);
            // An honest host connects, and the idle host goes on opening connections.
            let honest = LinkId(idle);
            let accepted = listener.accept(at(idle.into()), honest, peer(1), false);
            assert_eq!(accepted, Ok(()));
            for number in idle + 1..2 * idle {
                let now = at(number.into());
                let accepted = listener.accept(now, LinkId(number), peer(66), false);
                assert_eq!(accepted, Ok(()));
            }
            assert!(listener.greeting.contains_key(&honest));
            assert_eq!(listener.links.len(), listener.links_max);
        });
    }

    #[test]
    fn a_host_that_is_not_admitted_takes_no_place() {
        over_ipv4_and_ipv6(|| {
            let admission = Admission::new(|host| host == peer(1).ip());
            let listener = Listener::new(1, 4);
            let mut listener = listener.with_admission(Some(admission));
            for number in 0..100 {
                let accepted = listener.accept(at(0), LinkId(number), peer(2), false);
                assert_eq!(accepted, Err(Refusal::NotAdmitted));
            }
            assert!(listener.greeting.is_empty());
            let accepted = listener.accept(at(0), LinkId(100), peer(1), false);
            assert_eq!(accepted, Ok(()));
        });
    }

    #[test]
    fn a_sender_waits_for_as_long_as_it_is_told_so_and_not_for_a_receiver_that_is_stuck() {
        let wait = |listener: &mut Listener, now, link| {
            let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(64));
            Message::Wait.emit(&mut bytes);
            decoder.push(&bytes);
            matches!(listener.next(now, link, &mut decoder), Word::Waits)
        };
        let mut listener = Listener::new(1, 4);
        for (link, is_dialled) in [(LinkId(1), true), (LinkId(2), true), (LinkId(3), false)] {
            match is_dialled {
                true => {
                    listener.links.insert(link);
                    listener.invite(at(0), link, peer(1), 1);
                }
                false => listener.accept(at(0), link, peer(1), false).unwrap(),
            }
        }
        assert!(wait(&mut listener, at(0), LinkId(1)));
        assert!(
            !wait(&mut listener, at(0), LinkId(3)),
            "only who was invited"
        );
        assert_eq!(listener.next_deadline(), Some(at(5_000)));
        assert_eq!(listener.expire(at(5_000)), 1, "the second was told nothing");
        let mut now = at(0);
        for _ in 0..100 {
            now += WAIT_INTERVAL;
            assert_eq!(listener.expire(now), 0);
            assert!(wait(&mut listener, now, LinkId(1)));
        }
        assert_eq!(listener.next_deadline(), Some(now + WAIT_PATIENCE));
        // From now on, the receiver sends no more WAIT.
        assert_eq!(listener.expire(now + WAIT_PATIENCE), 1);
        assert!(!listener.links.is_open(LinkId(1)));
    }

    #[test]
    fn a_message_that_may_be_skipped_does_not_end_a_greeting() {
        let mut listener = Listener::new(1, 4);
        let says = |listener: &mut Listener, link, is_critical| {
            assert_eq!(listener.accept(at(0), link, peer(1), false), Ok(()));
            let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(64));
            let kind = 999;
            Message::Unknown { kind, is_critical }.emit(&mut bytes);
            decoder.push(&bytes);
            format!("{:?}", listener.next(at(0), link, &mut decoder))
        };
        assert_eq!(says(&mut listener, LinkId(1), false), "Skipped");
        assert!(listener.greeting.contains_key(&LinkId(1)));
        assert!(says(&mut listener, LinkId(2), true).starts_with("Violation"));
    }

    #[test]
    fn who_was_told_to_wait_has_as_long_for_the_key_as_others() {
        let key = Key::derive(b"secret", protection::portable);
        let mut listener = Listener::new(1, 4).with_key(Some(key), 1);
        let link = LinkId(1);
        listener.links.insert(link);
        listener.invite(at(0), link, peer(1), 1);
        for message in [
            Message::Wait,
            Message::Hello(Hello {
                version_min: 1,
                version_max: 1,
                session_id: 1,
                instance: 1,
                name: "r",
                nonce: Some([0; 16]),
            }),
        ] {
            let (mut bytes, mut decoder) = (Vec::new(), Decoder::new(512));
            message.emit(&mut bytes);
            decoder.push(&bytes);
            let word = listener.next(at(9_000), link, &mut decoder);
            assert!(matches!(word, Word::Waits | Word::Challenged), "{word:?}");
        }
        assert_eq!(listener.next_deadline(), Some(at(14_000)));
    }

    #[test]
    fn a_host_with_many_addresses_cuts_off_its_own_network_first() {
        let mut listener = Listener::new(1, 4);
        let address = |network: u64, host: u32| -> SocketAddr {
            let address = (0xfd00_u128 << 112) | (u128::from(network) << 64) | u128::from(host);
            (std::net::Ipv6Addr::from_bits(address), 4000).into()
        };
        let honest = LinkId(0);
        assert_eq!(listener.accept(at(0), honest, address(1, 1), false), Ok(()));
        for number in 1..1_000 {
            let peer = address(2, number);
            let accepted = listener.accept(at(number.into()), LinkId(number), peer, false);
            assert_eq!(accepted, Ok(()));
        }
        assert!(listener.greeting.contains_key(&honest));
    }
}
