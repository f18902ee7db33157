//! The dialling end: connects to a sender, greets it, and learns whether the sender admits this
//! receiver.
//!
//! **Spec**: `docs/src/protocol.md` sections 2, 5 and 7.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkId, Rng};
use protection::Key;
use wire::{
    object::{
        Decoder, Hello, Message, NAME_LEN_MAX, Refusal, StreamError, VERSION, Welcome, carried_text,
    },
    pgm::Mark,
};

use super::{
    link::{Link, Links},
    protect::{LinkProtection, Nonce, Role, nonce},
};
use crate::parameters::{
    DIAL_JITTER_MAX, DIAL_PUT_OFF, DUPLICATE_PATIENCE, REDIAL_DOUBLINGS, REDIAL_MIN,
};

/// The identity of this receiver, the same for every sender.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The receiver's name, cut to 255 bytes.
    pub(crate) name: String,
    /// A number that tells two runs of this receiver apart.
    pub(crate) instance: u64,
    /// The seed of the jitter; with `instance`, also the seed of the connections' nonces.
    pub(crate) seed: u64,
    /// The key. When there is one, this receiver believes only senders that have the same key.
    pub(crate) key: Option<Key>,
}

/// What all calls of one receiver share.
#[derive(Debug)]
pub(crate) struct Caller {
    identity: Identity,
    pub(crate) links: Links,
    pub(crate) rng: Rng,
    /// Number of greetings so far. It goes into the nonce, so that each greeting has its own nonce.
    greetings: u64,
}

/// The connection of this receiver to one sender, and the attempts to make it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) peer: SocketAddr,
    /// The sender's session, as its mark or its invitation says.
    pub(crate) session_id: u64,
    opener: Opener,
    /// The owner's number for this call, by which the owner recognises the connection.
    id: u32,
    state: State,
    /// Number of attempts since the sender last admitted this receiver.
    attempts: u32,
    /// When the last attempt began.
    dialled_at: Instant,
    /// The sender has admitted this receiver at least once.
    is_known: bool,
    /// The limits on dialling did not allow the last attempt.
    is_put_off: bool,
    /// The sender was heard since it was last dialled.
    is_heard: bool,
    /// The sender is known to be there: it has answered on another call.
    is_there: bool,
    /// When the sender first said that it already has a receiver of this name; `None` again once
    /// the sender admits this receiver.
    taken_since: Option<Instant>,
    /// A second connection to the same sender. It takes the place of the open connection once the
    /// sender has shown the key on the second connection and admitted this receiver there.
    rival: Option<State>,
}

/// The end that opens connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    Receiver,
    Sender,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The sender is dialled at this time.
    Waiting { until: Instant },
    /// The sender has never answered, and the last dial failed. The sender is dialled again once it
    /// is heard again, but not before this time.
    Unheard { from: Instant },
    /// The sender is expected to dial.
    Expecting,
    /// The back end was asked for a connection.
    Dialling,
    /// The connection has a number and is not open yet.
    Connecting { link: LinkId },
    /// The greeting was sent. With a key, `nonce` is the greeting's nonce, until the sender's
    /// CHALLENGE has come.
    Greeting { link: LinkId, nonce: Option<Nonce> },
    /// The sender has admitted this receiver.
    Open { link: LinkId },
    /// The sender is not dialled again.
    Silent,
}

/// What a message of the sender means to the receiver.
#[derive(Debug)]
pub(crate) enum Answer<'d> {
    /// No message is complete.
    Nothing,
    /// The owner of the call has nothing to do: the message was part of the greeting, or it ended
    /// a connection that was to take the place of the open one.
    Handshake,
    /// The sender admits this receiver.
    Welcomed(Welcome),
    /// The sender admits this receiver on a new connection, in place of one that was open.
    Replaced(Welcome),
    /// The sender refuses this receiver.
    Refused { reason: Refusal, text: &'d str },
    /// The other end has not shown that it has the key, so it does not count as the sender.
    Unproven { reason: Refusal, text: &'d str },
    /// Any other message. Before the sender has admitted this receiver, only ERROR and BYE are such
    /// messages.
    Said(Message<'d>),
    /// The message breaks the protocol.
    Violation,
}

/// What a refusal because of a duplicate name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameTaken {
    /// The other receiver that has the name may be dead: report the refusal, and dial again.
    First,
    /// The same as `First`, but the refusal was reported already.
    Again,
    /// The other receiver that has the name is alive.
    ForGood,
}

/// Returns the features that a session may require of this end: with a key, the protection of
/// messages; without a key, none.
pub(crate) fn features(key: Option<&Key>) -> u16 {
    key.map_or(0, |_| Mark::PROTECTED)
}

/// Returns the wait after this number of attempts in a row: each attempt doubles it, at most
/// `REDIAL_DOUBLINGS` times. [`Caller::redial`] adds a random wait of at most this length.
pub(crate) fn back_off(attempts: u32) -> Duration {
    REDIAL_MIN * 2_u32.pow(attempts.min(REDIAL_DOUBLINGS))
}

impl Caller {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            links: Links::default(),
            rng: Rng::new(identity.seed),
            identity: Identity {
                name: carried_text(&identity.name, NAME_LEN_MAX).collect(),
                ..identity
            },
            greetings: 0,
        }
    }

    /// Returns this receiver's name as its greetings tell it.
    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Returns the features that a session may require of this end.
    pub(crate) fn features(&self) -> u16 {
        features(self.identity.key.as_ref())
    }

    /// Makes a call to a peer and session. `n` receivers hear the sender at the same moment, so
    /// each dials after a random wait of at most `n` ms.
    pub(crate) fn call(&mut self, now: Instant, to: (SocketAddr, u64), id: u32, n: u32) -> Call {
        let jitter = DIAL_JITTER_MAX.min(Duration::from_millis(n.into()));
        let until = now + self.rng.duration_up_to(jitter);
        let (peer, session_id) = to;
        Call {
            peer,
            session_id,
            opener: Opener::Receiver,
            id,
            state: State::Waiting { until },
            attempts: 0,
            dialled_at: now,
            is_known: false,
            is_put_off: false,
            is_heard: false,
            is_there: false,
            taken_since: None,
            rival: None,
        }
    }

    /// Makes a call to a peer and session whose sender opens the connections.
    pub(crate) fn expect(now: Instant, to: (SocketAddr, u64), id: u32) -> Call {
        let (peer, session_id) = to;
        Call {
            peer,
            session_id,
            opener: Opener::Sender,
            id,
            state: State::Expecting,
            attempts: 0,
            dialled_at: now,
            is_known: false,
            is_put_off: false,
            is_heard: false,
            is_there: false,
            taken_since: None,
            rival: None,
        }
    }

    /// Greets the sender on a connection that it has opened for `call`. Closes the call's earlier
    /// connection, which is dead if the sender has opened another. With a key, however, an open
    /// connection stays until the sender has shown the key on the new one: anybody at the sender's
    /// address can claim to be the sender. Returns true when this closes an open connection: one on
    /// which the sender had admitted this receiver.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        call: &mut Call,
        link: LinkId,
        entry: Link,
    ) -> bool {
        let was_open = call.link().is_some();
        self.links.adopt(link, entry);
        self.links.greeted(link);
        if was_open && self.identity.key.is_some() {
            self.drop_rival(call);
            let open = std::mem::replace(&mut call.state, State::Connecting { link });
            self.hello(now, call, link);
            call.rival = Some(std::mem::replace(&mut call.state, open));
            return false;
        }
        if let Some(old) = call.any_link() {
            self.links.abort(old);
        }
        call.dialled_at = now;
        call.state = State::Connecting { link };
        self.hello(now, call, link);
        was_open
    }

    fn drop_rival(&mut self, call: &mut Call) {
        if let Some(link) = call.rival.take().and_then(State::link) {
            self.links.abort(link);
        }
    }

    /// Forgets a lost connection that was to take the place of the open one. Returns true when
    /// `link` was that connection.
    pub(crate) fn rival_lost(&mut self, call: &mut Call, link: LinkId) -> bool {
        let is_it = call.rival_link() == Some(link);
        if is_it {
            self.drop_rival(call);
        }
        is_it
    }

    /// Takes the next message of a connection that is to take the place of the open one. The
    /// connection takes that place only once the sender has admitted this receiver on it.
    fn next_of_rival<'d>(
        &mut self,
        call: &mut Call,
        link: LinkId,
        rival: State,
        decoder: &'d mut Decoder,
    ) -> Answer<'d> {
        let open = std::mem::replace(&mut call.state, rival);
        call.rival = None;
        let answer = self.next(call, link, decoder);
        match answer {
            Answer::Welcomed(welcome) => {
                if let Some(old) = open.link() {
                    self.links.abort(old);
                }
                return Answer::Replaced(welcome);
            }
            Answer::Nothing | Answer::Handshake => {
                call.rival = Some(std::mem::replace(&mut call.state, open));
            }
            // The other end was not the sender, or refused this receiver: the open connection
            // stays.
            _ => {
                call.state = open;
                self.links.abort(link);
                return Answer::Handshake;
            }
        }
        answer
    }

    /// Asks for a connection if it is time for that. Returns true when it asked.
    pub(crate) fn dial(&mut self, now: Instant, call: &mut Call) -> bool {
        if call.due().is_none_or(|due| due > now) {
            return false;
        }
        call.state = State::Dialling;
        call.attempts = call.attempts.saturating_add(1);
        call.dialled_at = now;
        (call.is_put_off, call.is_heard) = (false, false);
        self.links.open(call.peer, call.id);
        true
    }

    /// Takes the connection that the back end gave for `call`; returns false when nobody wants it
    /// any more.
    pub(crate) fn link_opened(&mut self, call: Option<&mut Call>, link: LinkId) -> bool {
        self.links.insert(link);
        let call = call.filter(|call| matches!(call.state, State::Dialling));
        let Some(call) = call else {
            self.links.abort(link);
            return false;
        };
        self.links.greeted(link);
        call.state = State::Connecting { link };
        true
    }

    /// Greets the sender on a connection that is open.
    pub(crate) fn hello(&mut self, now: Instant, call: &mut Call, link: LinkId) {
        if !matches!(call.state, State::Connecting { link: asked } if asked == link) {
            return;
        }
        self.greetings += 1;
        let Identity { instance, seed, .. } = self.identity;
        let unique = [instance, seed, self.greetings, now.as_nanos()];
        let key = self.identity.key.as_ref();
        #[cfg(feature = "planted-bugs")]
        let key = key.filter(|_| !base::planted::is_planted(base::planted::Bug::SenderNotAsked));
        let nonce = key.map(|key| nonce(key, Role::Receiver, &unique));
        call.state = State::Greeting { link, nonce };
        self.greet(call, link, nonce, nonce.is_some());
    }

    fn greet(&mut self, call: &Call, link: LinkId, nonce: Option<Nonce>, is_name_hidden: bool) {
        let hello = Message::Hello(Hello {
            version_min: VERSION,
            version_max: VERSION,
            instance: self.identity.instance,
            session_id: call.session_id,
            // With a key, the receiver greets twice. Only the second, protected greeting names it.
            name: if is_name_hidden {
                ""
            } else {
                &self.identity.name
            },
            nonce,
        });
        let is_queued = self.links.queue(link, &hello);
        debug_assert!(is_queued, "a fresh link has room for a greeting");
    }

    /// Takes the next message of a call's connection.
    pub(crate) fn next<'d>(
        &mut self,
        call: &mut Call,
        link: LinkId,
        decoder: &'d mut Decoder,
    ) -> Answer<'d> {
        if let Some(rival) = call.rival.filter(|rival| rival.link() == Some(link)) {
            return self.next_of_rival(call, link, rival, decoder);
        }
        if call.any_link() != Some(link) {
            return Answer::Nothing;
        }
        if let State::Greeting {
            nonce: Some(own), ..
        } = call.state
        {
            return self.challenged(call, link, &own, decoder);
        }
        let message = match self.links.next_message(link, decoder) {
            Ok(Some(message)) => message,
            Ok(None) => return Answer::Nothing,
            Err(StreamError::Forged) if call.greeted_link().is_some() => {
                let (reason, text) = (Refusal::WrongKey, "it has another key");
                return Answer::Unproven { reason, text };
            }
            Err(_) => return Answer::Violation,
        };
        match (call.state, message) {
            (_, Message::Refused { reason, text }) => Answer::Refused { reason, text },
            (State::Greeting { .. }, Message::Welcome(welcome))
                if welcome.session_id == call.session_id && welcome.version == VERSION =>
            {
                call.state = State::Open { link };
                call.is_known = true;
                call.attempts = 0;
                call.taken_since = None;
                Answer::Welcomed(welcome)
            }
            (_, Message::Welcome(_)) => Answer::Violation,
            (State::Open { .. }, message)
            | (_, message @ (Message::Error { .. } | Message::Bye)) => Answer::Said(message),
            _ => Answer::Violation,
        }
    }

    /// Takes the first message of a sender that must have the key. Nothing is believed before the
    /// sender has shown the key.
    fn challenged<'d>(
        &mut self,
        call: &mut Call,
        link: LinkId,
        own: &Nonce,
        decoder: &'d mut Decoder,
    ) -> Answer<'d> {
        let unproven = |reason, text| Answer::Unproven { reason, text };
        let challenge = match decoder.next_message() {
            Ok(Some(Message::Challenge(challenge))) => challenge,
            Ok(Some(Message::Refused { reason, text })) => return unproven(reason, text),
            Ok(None) => return Answer::Nothing,
            Ok(Some(_)) => return unproven(Refusal::NoKey, "it shows no key"),
            Err(_) => return unproven(Refusal::NoKey, "it does not speak this protocol"),
        };
        let key = self.identity.key.as_ref().expect("a nonce goes with a key");
        let protection =
            LinkProtection::new(key, Role::Receiver, call.session_id, own, &challenge.nonce);
        self.links.protect(link, protection);
        call.state = State::Greeting { link, nonce: None };
        self.greet(call, link, Some(*own), false);
        Answer::Handshake
    }

    /// Handles a connection that broke: dials again after a while, or expects the sender to dial.
    /// A sender that has never answered may not exist: anybody can forge a sender's mark. So it is
    /// dialled again only when it has been heard again. Returns true when the sender had admitted
    /// this receiver on the connection that broke.
    pub(crate) fn redial(&mut self, now: Instant, call: &mut Call) -> bool {
        let until = now + REDIAL_MIN + self.rng.duration_up_to(back_off(call.attempts));
        let was_open = call.link().is_some();
        self.drop_rival(call);
        call.state = match call.opener {
            Opener::Receiver if call.has_answered() || call.is_heard => State::Waiting { until },
            Opener::Receiver => State::Unheard { from: until },
            Opener::Sender => State::Expecting,
        };
        was_open
    }

    /// Puts off a dial that the limits do not allow: until the sender is heard again, but at most
    /// for twice `DIAL_PUT_OFF`.
    pub(crate) fn put_off(&mut self, now: Instant, call: &mut Call) {
        let until = now + DIAL_PUT_OFF + self.rng.duration_up_to(DIAL_PUT_OFF);
        (call.state, call.is_put_off) = (State::Waiting { until }, true);
    }

    /// Closes the connection once its queue is empty, and dials no more.
    pub(crate) fn hang_up(&mut self, call: &mut Call) {
        if let Some(link) = call.any_link() {
            self.links.close(link);
        }
        self.drop_rival(call);
        self.links.withdraw(call.id);
        call.state = State::Silent;
    }
}

impl State {
    const fn link(self) -> Option<LinkId> {
        match self {
            Self::Open { link } | Self::Greeting { link, .. } | Self::Connecting { link } => {
                Some(link)
            }
            _ => None,
        }
    }
}

impl Call {
    /// Returns true when the sender opens the connections.
    pub(crate) fn is_dialled_by_sender(&self) -> bool {
        self.opener == Opener::Sender
    }

    /// Returns the connection on which the sender has admitted this receiver.
    pub(crate) const fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Open { link } => Some(link),
            _ => None,
        }
    }

    /// Returns the connection, whether or not the sender has admitted this receiver on it.
    pub(crate) const fn any_link(&self) -> Option<LinkId> {
        self.state.link()
    }

    /// Returns the connection that is to take the place of the open one.
    fn rival_link(&self) -> Option<LinkId> {
        self.rival.and_then(State::link)
    }

    /// Returns the connection on which the greeting was sent, and on which the sender has not yet
    /// admitted or refused this receiver.
    pub(crate) const fn greeted_link(&self) -> Option<LinkId> {
        match self.state {
            State::Greeting { link, .. } => Some(link),
            _ => None,
        }
    }

    /// Returns the connection that is not open yet.
    pub(crate) const fn connecting_link(&self) -> Option<LinkId> {
        match self.state {
            State::Connecting { link } => Some(link),
            _ => None,
        }
    }

    /// Returns the time at which the present attempt began. `None` when no attempt is under way, or
    /// when the sender has admitted this receiver before. While this gives a time, the call counts
    /// against the limit on unanswered dials; see [`seat`](super::seat).
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        let is_asked = matches!(
            self.state,
            State::Dialling | State::Connecting { .. } | State::Greeting { .. }
        );
        (is_asked && !self.is_known).then_some(self.dialled_at)
    }

    /// Returns true when the sender has admitted this receiver at least once.
    pub(crate) const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Notes that the sender has answered on another call, so it is there.
    pub(crate) const fn answered_elsewhere(mut self) -> Self {
        self.is_there = true;
        self
    }

    /// Returns true when the sender has admitted this receiver, has said that this receiver's name
    /// is taken, or has answered on another call.
    const fn has_answered(&self) -> bool {
        self.is_known || self.is_there || self.is_name_taken()
    }

    /// Returns true when the sender was not dialled before.
    pub(crate) const fn is_first(&self) -> bool {
        self.attempts == 0 && !self.is_known
    }

    /// Notes that the sender was heard again: a dial that was put off, or that waits until the
    /// sender is heard, may be tried.
    pub(crate) fn heard_again(&mut self, now: Instant) {
        match self.state {
            State::Unheard { from } => {
                let until = from.max(now);
                self.state = State::Waiting { until };
            }
            State::Waiting { .. } if std::mem::take(&mut self.is_put_off) => {
                self.state = State::Waiting { until: now };
            }
            _ => self.is_heard = true,
        }
    }

    /// Says when the sender is to be dialled.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Returns true while there is no connection on which the sender has admitted this receiver,
    /// but there may be one later.
    pub(crate) const fn is_looking(&self) -> bool {
        !matches!(self.state, State::Open { .. } | State::Silent)
    }

    /// Handles the sender's refusal because of a duplicate name. The sender may still have the name
    /// from an earlier run of this receiver, on a host that lost network or power: the sender
    /// frees the name only when nothing has come from that run for a while.
    pub(crate) fn name_taken(&mut self, now: Instant) -> NameTaken {
        let Some(since) = self.taken_since else {
            self.taken_since = Some(now);
            return NameTaken::First;
        };
        if now.since(since) < DUPLICATE_PATIENCE {
            NameTaken::Again
        } else {
            NameTaken::ForGood
        }
    }

    /// Returns true while this receiver's name is taken, as far as the sender has said.
    pub(crate) const fn is_name_taken(&self) -> bool {
        self.taken_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use protection::portable;
    use wire::object::{BODY_LEN_MAX, NONCE_LEN};

    use super::*;
    use crate::control::{LinkCommand, Listener, Word};

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 4_000);
    const SESSION: u64 = 5;

    fn caller(key: &Key) -> Caller {
        Caller::new(Identity {
            name: "r".to_owned(),
            instance: 1,
            seed: 2,
            key: Some(key.clone()),
        })
    }

    /// Makes a connection that a sender has dialled, as the door hands it over.
    fn dialled(link: LinkId) -> Link {
        let mut door = Links::default();
        door.insert(link);
        door.take(link).expect("it was just put there")
    }

    /// Returns what an end sends on a link, and the links that it closes.
    fn sent(links: &mut Links, link: LinkId) -> (Vec<u8>, Vec<LinkId>) {
        let (mut all, mut closed, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(command) = links.poll() {
            match command {
                LinkCommand::Send { link: whose, bytes } => {
                    if whose == link {
                        all.extend_from_slice(bytes);
                    }
                    answers.push((whose, bytes.len()));
                }
                LinkCommand::Close { link } => closed.push(link),
                _ => {}
            }
            for (whose, taken) in answers.drain(..) {
                links.sent(whose, taken);
            }
        }
        (all, closed)
    }

    /// Carries the greeting between both ends, until the sender admits the receiver. Returns what
    /// the last message means to the receiver, and the links that it has closed.
    fn greet(
        caller: &mut Caller,
        call: &mut Call,
        listener: &mut Listener,
        link: LinkId,
    ) -> (&'static str, Vec<LinkId>) {
        let now = Instant::from_nanos(9);
        listener
            .accept(now, link, PEER.into(), false)
            .expect("it has room");
        let [mut theirs, mut ours] = [Decoder::new(BODY_LEN_MAX), Decoder::new(BODY_LEN_MAX)];
        let (mut meaning, mut closed) = ("none", Vec::new());
        for _ in 0..2 {
            let (bytes, mut more) = sent(&mut caller.links, link);
            closed.append(&mut more);
            theirs.push(&bytes);
            let is_hello = matches!(listener.next(now, link, &mut theirs), Word::Hello { .. });
            if is_hello {
                listener.admit(link);
                let welcome = Message::Welcome(Welcome {
                    version: VERSION,
                    slot: 0,
                    manifest: [1; 16],
                    session_id: SESSION,
                    receiver_count: 1,
                    report_interval_us: 1,
                    report_sqns: 0,
                    manifest_bytes: 100,
                    is_late: false,
                    nonce: [0; NONCE_LEN],
                });
                assert!(listener.links.queue(link, &welcome));
            }
            ours.push(&sent(&mut listener.links, link).0);
            meaning = match caller.next(call, link, &mut ours) {
                Answer::Welcomed(_) => "welcomed",
                Answer::Replaced(_) => "replaced",
                Answer::Nothing => "nothing",
                Answer::Handshake => "handshake",
                _ => "other",
            };
        }
        closed.append(&mut sent(&mut caller.links, link).1);
        (meaning, closed)
    }

    #[test]
    fn a_sender_that_never_answered_is_dialled_once_for_each_time_that_it_is_heard() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut caller = caller(&Key::derive(b"secret", portable));
        let mut call = caller.call(at(0), (PEER.into(), SESSION), 0, 1);
        let mut dials = 0;
        // The sender was heard once. It is heard again after 60 s, after 120 s and after 121 s.
        for s in 1..180 {
            if [60, 120, 121].contains(&s) {
                call.heard_again(at(s));
            }
            if caller.dial(at(s), &mut call) {
                dials += 1;
                while caller.links.poll().is_some() {}
                caller.links.opened();
                assert!(caller.link_opened(Some(&mut call), LinkId(dials)));
                let _was_open = caller.redial(at(s), &mut call);
            }
        }
        assert_eq!(dials, 4);
    }

    #[test]
    fn an_open_connection_gives_way_only_to_one_that_has_shown_the_key() {
        let [key, other] = [b"secret", b"wrongs"].map(|it| Key::derive(it, portable));
        let now = Instant::from_nanos(9);
        let listener = |key: &Key| Listener::new(SESSION, 4).with_key(Some(key.clone()), 1);
        let (mut caller, mut genuine) = (caller(&key), listener(&key));
        let mut call = Caller::expect(now, (PEER.into(), SESSION), 0);
        let [first, forged, second] = [LinkId(1), LinkId(2), LinkId(3)];

        assert!(!caller.answer(now, &mut call, first, dialled(first)));
        let welcomed = greet(&mut caller, &mut call, &mut genuine, first);
        assert_eq!(welcomed, ("welcomed", vec![]));
        assert_eq!(call.link(), Some(first));

        // Somebody at the sender's address, who has another key, claims to be the sender.
        assert!(!caller.answer(now, &mut call, forged, dialled(forged)));
        assert_eq!(call.link(), Some(first));
        let (meaning, closed) = greet(&mut caller, &mut call, &mut listener(&other), forged);
        assert_ne!(meaning, "replaced");
        assert_eq!((call.link(), closed), (Some(first), vec![forged]));

        // The sender itself opens another connection: its old one broke without notice.
        assert!(!caller.answer(now, &mut call, second, dialled(second)));
        assert_eq!(call.link(), Some(first));
        let replaced = greet(&mut caller, &mut call, &mut genuine, second);
        assert_eq!(replaced, ("replaced", vec![first]));
        assert_eq!(call.link(), Some(second));
    }

    #[test]
    fn without_a_key_the_new_connection_takes_the_place_at_once() {
        let now = Instant::from_nanos(9);
        let mut caller = Caller::new(Identity {
            name: "r".to_owned(),
            instance: 1,
            seed: 2,
            key: None,
        });
        let mut listener = Listener::new(SESSION, 4);
        let mut call = Caller::expect(now, (PEER.into(), SESSION), 0);
        caller.answer(now, &mut call, LinkId(1), dialled(LinkId(1)));
        let _last = greet(&mut caller, &mut call, &mut listener, LinkId(1));
        assert_eq!(call.link(), Some(LinkId(1)));
        assert!(caller.answer(now, &mut call, LinkId(2), dialled(LinkId(2))));
        assert_eq!(call.any_link(), Some(LinkId(2)));
        let _last = greet(&mut caller, &mut call, &mut listener, LinkId(2));
        assert_eq!(call.link(), Some(LinkId(2)));
    }
}
