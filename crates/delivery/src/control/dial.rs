//! The dialling end: connects to a sender, greets it, and learns whether it is admitted.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkId, Rng};
use protection::Key;
use wire::{
    object::{Decoder, Hello, Message, Refusal, StreamError, VERSION, Welcome},
    pgm::Mark,
};

use super::{
    link::Links,
    protect::{LinkProtection, Nonce, Role, nonce},
};
use crate::parameters::{DIAL_JITTER_MAX, DUPLICATE_PATIENCE, REDIAL_DOUBLINGS, REDIAL_MIN};

/// The identity of this receiver, the same for every sender.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Cut to 255 bytes.
    pub(crate) name: String,
    /// Tells two runs of this receiver apart.
    pub(crate) instance: u64,
    /// Seed of the jitter and, with the instance, of the nonces of connections.
    pub(crate) seed: u64,
    /// With a key, only a sender that has it is believed.
    pub(crate) key: Option<Key>,
}

/// What all calls of one receiver share.
#[derive(Debug)]
pub(crate) struct Caller {
    identity: Identity,
    pub(crate) links: Links,
    pub(crate) rng: Rng,
    /// Greetings so far: each has a nonce of its own.
    greetings: u64,
}

/// The way to one sender.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) peer: SocketAddr,
    /// The sender's session, as its mark says.
    pub(crate) session_id: u64,
    /// The number by which the owner recognises its request for a connection.
    id: u32,
    state: State,
    /// Since the last connection that was welcomed.
    attempts: u32,
    /// When the sender first said that it already has a receiver of this name.
    taken_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Dials at this time.
    Waiting { until: Instant },
    /// A request for a connection is out.
    Dialling,
    /// The connection is under way.
    Connecting { link: LinkId },
    /// The greeting is out. With a key, `nonce` is what was said in it, until the sender has shown
    /// that it has the key.
    Greeting { link: LinkId, nonce: Option<Nonce> },
    /// The sender has admitted this receiver.
    Open { link: LinkId },
    /// It is not dialled again.
    Silent,
}

/// What a message of the sender means to the end that dialled.
#[derive(Debug)]
pub(crate) enum Answer<'d> {
    /// None is whole.
    Nothing,
    /// It was part of the greeting.
    Handshake,
    /// The sender admits this receiver.
    Welcomed(Welcome),
    /// The sender does not.
    Refused { reason: Refusal, text: &'d str },
    /// The other end has not shown that it has the key: it is not the sender.
    Unproven { reason: Refusal, text: &'d str },
    /// Something else; before the sender has admitted this receiver, ERROR or BYE.
    Said(Message<'d>),
    /// It breaks the protocol.
    Violation,
}

/// What a refusal because of a duplicate name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameTaken {
    /// The other receiver may be dead: the owner learns it once, and the dialling continues.
    First,
    /// The same, and its owner knows.
    Again,
    /// The other one lives.
    ForGood,
}

/// The required features of a session that an end with this key, or without one, can follow.
pub(crate) fn features(key: Option<&Key>) -> u16 {
    key.map_or(0, |_| Mark::PROTECTED)
}

impl Caller {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            links: Links::default(),
            rng: Rng::new(identity.seed),
            identity,
            greetings: 0,
        }
    }

    /// The required features that this end can follow.
    pub(crate) fn features(&self) -> u16 {
        features(self.identity.key.as_ref())
    }

    /// A call to `peer`, by one of `receivers` that hear its mark at the same moment.
    pub(crate) fn call(&mut self, now: Instant, to: (SocketAddr, u64), id: u32, n: u32) -> Call {
        let jitter = DIAL_JITTER_MAX.min(Duration::from_millis(n.into()));
        let until = now + self.rng.duration_up_to(jitter);
        let (peer, session_id) = to;
        Call {
            peer,
            session_id,
            id,
            state: State::Waiting { until },
            attempts: 0,
            taken_since: None,
        }
    }

    /// Asks for a connection if it is time; true when it was.
    pub(crate) fn dial(&mut self, now: Instant, call: &mut Call) -> bool {
        if call.due().is_none_or(|due| due > now) {
            return false;
        }
        call.state = State::Dialling;
        call.attempts = call.attempts.saturating_add(1);
        self.links.open(call.peer, call.id);
        true
    }

    /// The back end gave the connection that was asked for this number; false when nobody wants it
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

    /// The connection is up: greets the sender.
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
            // With a key, the name travels only in the second greeting, which is protected.
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

    /// Takes the first message of a sender that is to have the key: nothing is believed before it
    /// has shown that.
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

    /// Handles a connection that broke: dials again after a while. True when the sender had
    /// admitted this receiver on it.
    pub(crate) fn redial(&mut self, now: Instant, call: &mut Call) -> bool {
        let ceiling = REDIAL_MIN * 2_u32.pow(call.attempts.min(REDIAL_DOUBLINGS));
        let until = now + REDIAL_MIN + self.rng.duration_up_to(ceiling);
        let was_open = call.link().is_some();
        call.state = State::Waiting { until };
        was_open
    }

    /// Closes the connection after what is queued, and dials no more.
    pub(crate) fn hang_up(&mut self, call: &mut Call) {
        if let Some(link) = call.any_link() {
            self.links.close(link);
        }
        self.links.withdraw(call.id);
        call.state = State::Silent;
    }
}

impl Call {
    /// The connection on which the sender has admitted this receiver.
    pub(crate) const fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Open { link } => Some(link),
            _ => None,
        }
    }

    /// The connection, whatever was said on it.
    pub(crate) const fn any_link(&self) -> Option<LinkId> {
        match self.state {
            State::Open { link } | State::Greeting { link, .. } | State::Connecting { link } => {
                Some(link)
            }
            _ => None,
        }
    }

    /// The connection on which the greeting is out, and has not been answered.
    pub(crate) const fn greeted_link(&self) -> Option<LinkId> {
        match self.state {
            State::Greeting { link, .. } => Some(link),
            _ => None,
        }
    }

    /// When it is dialled.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// True while it is, or is going to be, dialled or greeted.
    pub(crate) const fn is_looking(&self) -> bool {
        !matches!(self.state, State::Open { .. } | State::Silent)
    }

    /// Handles the sender's refusal because of a duplicate name. The sender recognises our own
    /// former connection. A connection of an earlier run, on a host that lost its network or power,
    /// counts as live until it was silent for a while.
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

    /// The sender's last word on the name was that it is taken.
    pub(crate) const fn is_name_taken(&self) -> bool {
        self.taken_since.is_some()
    }
}
