//! The control connection of a plan receiver: dialling, greeting, and what the sender's messages
//! mean.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkEvent, LinkId, earliest};
use wire::object::{
    Block, Decoder, ErrorCode, Hello, MANIFEST_HEADER_LEN, Message, PassEnd, Refusal, Seals,
    VERSION, Welcome,
};

use super::{BlockVerdict, Offer, PlanReceiver, PlanReceiverEvent, Step, objects::Bytes};
use crate::{
    PlanId, Store,
    seal::{Nonce, Role},
};

/// The way to the sender.
#[derive(Debug)]
pub(super) struct Dialler {
    peer: Option<SocketAddr>,
    session: u64,
    state: State,
    key: u32,
    attempts: u32,
    /// The sender has said that a receiver of this name is there.
    is_duplicate: bool,
    /// Which was told.
    is_taken_told: bool,
    /// Since when there has been no connection that was welcomed.
    lost_at: Instant,
    /// What the sender said when it gave this receiver up: it is not dialled in that session again,
    /// and may come back in another one.
    given_up: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nobody to dial.
    Idle,
    /// Dials at this time.
    Waiting { until: Instant },
    /// A request for a connection is out.
    Dialling,
    /// The greeting is out, or will be once the connection opens. With a key, `nonce` is what was
    /// said in it, until the sender has shown that it has the key.
    Greeting { link: LinkId, nonce: Option<Nonce> },
    /// The sender has taken this receiver in.
    Open { link: LinkId },
}

impl Default for Dialler {
    fn default() -> Self {
        Self {
            peer: None,
            session: 0,
            state: State::Idle,
            key: 0,
            attempts: 0,
            is_duplicate: false,
            is_taken_told: false,
            lost_at: Instant::ZERO,
            given_up: None,
        }
    }
}

impl Dialler {
    /// The connection on which the sender has taken this receiver in.
    pub(super) const fn link(&self) -> Option<LinkId> {
        match self.state {
            State::Open { link } => Some(link),
            _ => None,
        }
    }

    const fn any_link(&self) -> Option<LinkId> {
        match self.state {
            State::Open { link } | State::Greeting { link, .. } => Some(link),
            _ => None,
        }
    }
}

impl<S: Store> PlanReceiver<S> {
    /// Names the sender: `session` and `receiver_count` as in its mark, `peer` the address the mark
    /// came from with the mark's control port. The caller has checked that the address is unicast
    /// and the SPM's own. Ignored while a sender is named: [`PlanReceiver::session`] says who.
    pub fn dial(&mut self, now: Instant, peer: SocketAddr, session: u64, receiver_count: u32) {
        if self.dialler.peer.is_some() || self.step == Step::Over {
            return;
        }
        let jitter = DIAL_JITTER_MAX.min(Duration::from_millis(receiver_count.into()));
        let until = now + self.rng.duration_up_to(jitter);
        self.dialler.peer = Some(peer);
        self.dialler.session = session;
        self.dialler.state = State::Waiting { until };
        self.dialler.lost_at = now;
    }

    /// The sender was restarted, or is reached another way: the same plan goes on in this session.
    /// What is held stays; what was in doubt between the two ends is said anew. Ignored when the
    /// transfer is over.
    pub fn redirect(&mut self, now: Instant, peer: SocketAddr, session: u64) {
        if self.step == Step::Over {
            return;
        }
        self.hang_up();
        self.counters.redirected += 1;
        self.dialler = Dialler {
            peer: Some(peer),
            session,
            state: State::Waiting { until: now },
            key: self.dialler.key,
            attempts: 0,
            is_duplicate: false,
            is_taken_told: false,
            lost_at: now,
            given_up: None,
        };
        self.is_complete_told = false;
        self.forget_stream();
    }

    /// The plan that the sender offers, while the owner is to say whether it is wanted: by
    /// [`PlanReceiver::accept`] or [`PlanReceiver::decline`].
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        let (Step::Offered, Some(welcome), Some(peer)) =
            (self.step, &self.welcome, self.dialler.peer)
        else {
            return None;
        };
        Some(Offer {
            peer,
            session: self.dialler.session,
            plan: PlanId(welcome.plan),
            manifest_bytes: welcome.manifest_bytes,
        })
    }

    /// Takes the offered plan, into `store`.
    pub fn accept(&mut self, now: Instant, store: S) {
        if self.step == Step::Offered {
            self.store = Some(store);
            self.joined(now);
        }
    }

    /// Does not take the offered plan; the sender is told why. The transfer is over.
    pub fn decline(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if self.step == Step::Offered {
            self.fail(now, code, text);
        }
    }

    /// Leaves the sender without a word, as if the connection were lost: another receiver of this
    /// process goes on with the plan. The transfer is over.
    pub fn withdraw(&mut self, now: Instant) {
        if let Some(link) = self.dialler.any_link() {
            self.links.abort(link);
        }
        self.over(now);
    }

    /// The sender has taken this receiver in, and the connection is up.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.dialler.link().is_some()
    }

    /// The sender has given this receiver up, which keeps what it holds and waits for a new session
    /// of the same plan: [`PlanReceiver::redirect`].
    #[must_use]
    pub const fn is_given_up(&self) -> bool {
        self.dialler.given_up.is_some()
    }

    /// The plan that the sender named when it took this receiver in.
    #[must_use]
    pub fn plan_id(&self) -> Option<PlanId> {
        self.welcome.as_ref().map(|welcome| PlanId(welcome.plan))
    }

    /// Bytes of the manifest that the sender named; within the limits once the plan is accepted.
    #[must_use]
    pub fn manifest_bytes(&self) -> u64 {
        self.welcome
            .as_ref()
            .map_or(0, |welcome| welcome.manifest_bytes)
    }

    /// The sender's address and the session, once a sender is named. `None` again when it did not
    /// take this receiver in: another one may be named.
    #[must_use]
    pub fn session(&self) -> Option<(SocketAddr, u64)> {
        self.dialler.peer.map(|peer| (peer, self.dialler.session))
    }

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        match event {
            LinkEvent::Opened => self.hello(now, link),
            LinkEvent::Data => self.read(now, link, data),
            LinkEvent::Writable => self.links.writable(link),
            LinkEvent::Closed => {
                self.links.forget(link);
                self.lost(now, link);
            }
            LinkEvent::Accepted { .. } => {
                self.links.insert(link);
                self.links.abort(link);
            }
        }
    }

    /// The back end gave the connection asked for with `key` this number.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.links.insert(link);
        if key == self.dialler.key && matches!(self.dialler.state, State::Dialling) {
            self.links.greeted(link);
            self.dialler.state = State::Greeting { link, nonce: None };
        } else {
            self.links.abort(link);
        }
    }

    pub(super) fn dialler_due(&self) -> Option<Instant> {
        let give_up = self.give_up_at();
        match self.dialler.state {
            State::Waiting { until } => earliest(Some(until), give_up),
            State::Dialling | State::Greeting { .. } => give_up,
            State::Idle if self.is_given_up() => give_up,
            State::Idle | State::Open { .. } => None,
        }
    }

    /// Not while the store commits: it may be done after it was called a failure.
    fn give_up_at(&self) -> Option<Instant> {
        (self.step != Step::Committing).then(|| self.dialler.lost_at + self.config.give_up_after)
    }

    /// The store is done: a sender that is not connected is looked for from now on, as it wants the
    /// proof.
    pub(super) fn look_on(&mut self, now: Instant) {
        if self.dialler.link().is_none() {
            self.dialler.lost_at = now;
        }
    }

    pub(super) fn check_dialler(&mut self, now: Instant) {
        let is_looking = self.dialler_due().is_some();
        if is_looking && self.give_up_at().is_some_and(|at| at <= now) {
            if self.welcome.is_none() {
                return self.look_elsewhere("it does not answer");
            }
            let text = match &self.dialler.given_up {
                Some(why) => {
                    let seconds = self.config.give_up_after.as_secs();
                    format!("given up by the sender ({why}), which is not back after {seconds} s")
                }
                None => "no connection to the sender".to_owned(),
            };
            return self.failed(now, ErrorCode::TimedOut, &text);
        }
        let (State::Waiting { until }, Some(peer)) = (self.dialler.state, self.dialler.peer) else {
            return;
        };
        if until <= now {
            self.dialler.key = self.dialler.key.wrapping_add(1);
            self.dialler.state = State::Dialling;
            self.dialler.attempts = self.dialler.attempts.saturating_add(1);
            self.links.open(peer, self.dialler.key);
            self.counters.dialled += 1;
        }
    }

    /// Queues a message for the sender; a sender that does not read loses the connection.
    pub(super) fn tell(&mut self, now: Instant, message: &Message<'_>) {
        if let Some(link) = self.dialler.link()
            && !self.links.queue(link, message)
        {
            self.links.abort(link);
            self.lost(now, link);
        }
    }

    /// Closes the connection after what is queued, and dials no more.
    pub(super) fn hang_up(&mut self) {
        if let Some(link) = self.dialler.any_link() {
            self.links.close(link);
        }
        self.links.withdraw(self.dialler.key);
        self.dialler.state = State::Idle;
    }

    /// The sender does not take this receiver in: another one may be named. A mark is easily forged
    /// and an earlier transfer may just be closing, so neither ends the wait for a sender.
    fn look_elsewhere(&mut self, text: &str) {
        if let Some(link) = self.dialler.any_link() {
            self.links.close(link);
        }
        self.links.withdraw(self.dialler.key);
        self.counters.senders_passed_over += 1;
        if let Some(peer) = self.dialler.peer {
            let text = text.to_owned();
            self.events
                .push_back(PlanReceiverEvent::PassedOver { peer, text });
        }
        self.dialler = Dialler {
            // A connection that opens late is told apart by its key.
            key: self.dialler.key,
            ..Dialler::default()
        };
        self.forget_stream();
    }

    fn hello(&mut self, now: Instant, link: LinkId) {
        if self.dialler.any_link() != Some(link) {
            return;
        }
        let (instance, seed) = (self.config.instance, self.config.seed);
        let unique = [instance, seed, self.dialler.key.into(), now.as_nanos()];
        let key = self.config.key.as_ref();
        let nonce = key.map(|key| key.nonce(Role::Receiver, &unique));
        self.dialler.state = State::Greeting { link, nonce };
        self.greet(now, link, nonce);
    }

    fn greet(&mut self, now: Instant, link: LinkId, nonce: Option<Nonce>) {
        let hello = Message::Hello(Hello {
            version_min: VERSION,
            version_max: VERSION,
            instance: self.config.instance,
            session: self.dialler.session,
            name: &self.config.name,
            nonce,
        });
        if !self.links.queue(link, &hello) {
            self.links.abort(link);
            self.lost(now, link);
        }
    }

    /// Takes the first message of a sender that is to have the key: nothing is believed before it
    /// has shown that. False when the message is not whole yet.
    fn challenged(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool {
        let (Some(key), State::Greeting { nonce, .. }) = (&self.config.key, self.dialler.state)
        else {
            return false;
        };
        let (frame, own) = match (decoder.next_frame(), nonce) {
            (Ok(Some(frame)), Some(own)) => (frame, own),
            (Ok(_), _) => return false,
            (Err(_), _) => {
                self.not_believed(now, link, "it does not speak this protocol");
                return true;
            }
        };
        let challenge = match frame.message() {
            Ok(Message::Challenge(challenge)) => challenge,
            Ok(Message::Refused { text, .. }) => {
                self.not_believed(now, link, text);
                return true;
            }
            _ => {
                self.not_believed(now, link, "it shows no key");
                return true;
            }
        };
        let mut seal = key.seal(Role::Receiver, self.dialler.session, &own, &challenge.nonce);
        if seal.is_genuine(&frame) {
            self.links.seal(link, seal);
            self.dialler.state = State::Greeting { link, nonce: None };
            self.greet(now, link, nonce);
        } else {
            // It cannot be told under a key, and changes nothing at an end that has the right one.
            let reason = Refusal::WrongKey;
            let text = reason.to_string();
            let text = text.as_str();
            if self.links.queue(link, &Message::Refused { reason, text }) {
                self.links.close(link);
            }
            self.not_believed(now, link, "it has another key");
        }
        true
    }

    /// Whoever is at the other end has not shown that it has the key: it is not the sender.
    fn not_believed(&mut self, now: Instant, link: LinkId, text: &str) {
        self.counters.not_believed += 1;
        if self.welcome.is_none() {
            return self.look_elsewhere(text);
        }
        self.lost(now, link);
        self.links.close(link);
    }

    /// The connection is over without a word: dials again after a while.
    fn lost(&mut self, now: Instant, link: LinkId) {
        if self.dialler.any_link() != Some(link) {
            return;
        }
        if self.dialler.link().is_some() {
            self.dialler.lost_at = now;
            self.dialler.attempts = 0;
            self.counters.connections_lost += 1;
        }
        self.pass = None;
        self.is_complete_told = false;
        let ceiling = REDIAL_MIN * 2_u32.saturating_pow(self.dialler.attempts.min(5));
        let until = now + REDIAL_MIN + self.rng.duration_up_to(ceiling);
        self.dialler.state = State::Waiting { until };
    }

    /// Leaves the connection unread while the disk is behind: blocks that find no room would have
    /// to be sent again. A disk that hangs is not waited for without a look now and then, or the
    /// sender would take the connection for dead.
    pub(super) fn check_reading(&mut self, now: Instant) {
        let Some(link) = self.dialler.link() else {
            self.reading_rests_until = None;
            return;
        };
        let is_behind = self.store.as_ref().is_some_and(Store::is_behind);
        match self.reading_rests_until {
            None if is_behind && self.has_read && self.links.pause(link, true) => {
                self.counters.reads_rested += 1;
                self.reading_rests_until = Some(now + READING_RESTS_MAX);
            }
            Some(until) if !is_behind || until <= now => {
                self.links.pause(link, false);
                self.reading_rests_until = None;
                // It rests again only after it was read.
                self.has_read = false;
            }
            _ => {}
        }
    }

    fn read(&mut self, now: Instant, link: LinkId, data: &[u8]) {
        let Some(mut decoder) = self.links.take_decoder(link) else {
            return;
        };
        self.has_read = true;
        decoder.push(data);
        loop {
            if self.is_unproven(link) {
                if !self.challenged(now, link, &mut decoder) {
                    break self.links.put_decoder(link, decoder);
                }
                if !self.links.is_open(link) {
                    break;
                }
                continue;
            }
            match self.links.next_message(link, &mut decoder) {
                Ok(Some(message)) => self.message(now, link, &message),
                Ok(None) => break self.links.put_decoder(link, decoder),
                Err(_) => break self.violation(now, link),
            }
            if !self.links.is_open(link) {
                break;
            }
        }
    }

    /// True while the sender at the other end has still to show that it has the key.
    fn is_unproven(&self, link: LinkId) -> bool {
        match self.dialler.state {
            State::Greeting {
                link: asked,
                nonce: Some(_),
            } => asked == link,
            _ => false,
        }
    }

    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>) {
        if self.dialler.any_link() != Some(link) {
            return;
        }
        match message {
            Message::Welcome(welcome) => self.welcomed(now, link, welcome),
            Message::Refused { reason, text } => self.refused(now, link, *reason, text),
            Message::Error { text, .. } if self.welcome.is_none() => self.look_elsewhere(text),
            Message::Bye if self.welcome.is_none() => self.look_elsewhere("it has left"),
            Message::Error { code, text }
                if *code == ErrorCode::TimedOut || self.step == Step::Committing =>
            {
                self.given_up(now, *code, text);
            }
            Message::Error { code, text } => self.failed(now, *code, &format!("sender: {text}")),
            Message::Bye => self.left(now, ErrorCode::Cancelled, "the sender has left"),
            _ if self.dialler.link().is_none() => self.violation(now, link),
            Message::Block(block) => self.block(now, block),
            Message::PassEnd(end) => self.pass_ended(now, end),
            Message::Seals(seals) => self.seals_known(now, link, seals),
            Message::Acknowledged => self.acknowledged(now),
            Message::Unknown { .. } | Message::Progress(_) => self.counters.messages_ignored += 1,
            _ => self.violation(now, link),
        }
    }

    fn welcomed(&mut self, now: Instant, link: LinkId, welcome: &Welcome) {
        let is_ours = welcome.session == self.dialler.session && welcome.version == VERSION;
        if !is_ours || self.dialler.link().is_some() {
            return self.violation(now, link);
        }
        self.dialler.state = State::Open { link };
        self.dialler.attempts = 0;
        self.dialler.is_duplicate = false;
        self.dialler.is_taken_told = false;
        if self
            .welcome
            .as_ref()
            .is_some_and(|first| first.plan != welcome.plan)
        {
            let (code, text) = (ErrorCode::Protocol, "the sender changed its plan");
            self.tell(now, &Message::Error { code, text });
            return self.left(now, code, text);
        }
        self.welcome = Some(*welcome);
        self.is_have_told = false;
        match self.step {
            Step::Joining if self.store.is_some() => self.joined(now),
            Step::Joining => self.step = Step::Offered,
            // It is the same plan, after the connection was lost: tell the sender where we are.
            Step::Manifest => self.send_lacking(now, 0),
            Step::Receiving | Step::Committing | Step::Delivered => self.send_standing(now),
            // The sender may have asked on the former connection, and does not ask again.
            Step::Preparing => {
                let (pass, position) = (0, None);
                self.pass_ended(now, &PassEnd { pass, position });
            }
            Step::Offered | Step::Over => {}
        }
        self.send_progress(now);
    }

    fn joined(&mut self, now: Instant) {
        let Some(welcome) = self.welcome else {
            return;
        };
        let max = self.config.limits.manifest_bytes_max;
        let bytes = welcome.manifest_bytes;
        if bytes > max || bytes < MANIFEST_HEADER_LEN as u64 {
            let text = format!("a manifest of {bytes} bytes where {max} are allowed");
            return self.fail(now, ErrorCode::PlanRefused, &text);
        }
        let len = usize::try_from(bytes).expect("checked against the limit");
        self.manifest = Some(Bytes::new(len, self.config.ranges_max));
        self.step = Step::Manifest;
        self.started_at = now;
        let (slot, plan) = (welcome.slot, PlanId(welcome.plan));
        self.events
            .push_back(PlanReceiverEvent::Joined { slot, plan });
        if welcome.is_late {
            self.send_lacking(now, 0);
        }
    }

    fn refused(&mut self, now: Instant, link: LinkId, reason: Refusal, text: &str) {
        // A connection of ours that the sender still believes in goes away by itself. A sender that
        // was restarted at the same port is heard of by its new session's mark.
        if reason == Refusal::DuplicateName {
            self.name_taken();
        }
        let is_passing = matches!(reason, Refusal::DuplicateName | Refusal::WrongSession);
        if is_passing && self.welcome.is_some() {
            self.links.abort(link);
            return self.lost(now, link);
        }
        // To the sender, one that was killed may look alive for some seconds.
        let has_waited = now.since(self.dialler.lost_at) >= DUPLICATE_PATIENCE;
        if reason == Refusal::DuplicateName && !has_waited {
            self.dialler.is_duplicate = true;
            self.links.abort(link);
            return self.lost(now, link);
        }
        let is_passing = matches!(
            reason,
            Refusal::Over | Refusal::Full | Refusal::WrongSession
        );
        // Over, after that: the other one was alive, and is done.
        let is_duplicate = self.dialler.is_duplicate;
        if is_passing && self.welcome.is_none() && !is_duplicate {
            return self.look_elsewhere(text);
        }
        if reason == Refusal::Over && self.welcome.is_some() && !is_duplicate {
            return self.given_up(now, ErrorCode::TimedOut, text);
        }
        let duplicate = is_duplicate.then(|| Refusal::DuplicateName.to_string());
        let text = duplicate.as_deref().unwrap_or(text);
        let text = format!("the sender refused this receiver: {text}");
        self.left(now, ErrorCode::Limit, &text);
    }

    /// The sender does not go on with this receiver. What is being put in place is whole, whoever
    /// still wants to know of it: that goes on.
    fn left(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if self.step == Step::Committing {
            self.given_up(now, code, text);
        } else {
            self.failed(now, code, text);
        }
    }

    /// Tells once, before it is known whether the other one of this name lives.
    fn name_taken(&mut self) {
        let is_told = std::mem::replace(&mut self.dialler.is_taken_told, true);
        if let (false, Some(peer)) = (is_told, self.dialler.peer) {
            let event = PlanReceiverEvent::NameTaken { peer };
            self.events.push_back(event);
        }
    }

    /// The sender does not wait for this receiver any longer. Nothing is wrong at this end, and
    /// whoever sends again sends the same plan: what is held is kept for that.
    fn given_up(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if !matches!(
            self.step,
            Step::Manifest | Step::Preparing | Step::Receiving | Step::Committing
        ) {
            return self.failed(now, code, &format!("sender: {text}"));
        }
        self.counters.given_up += 1;
        self.hang_up();
        self.dialler.given_up = Some(text.to_owned());
        self.dialler.lost_at = now;
        self.pass = None;
        self.is_complete_told = false;
        let text = text.to_owned();
        self.events.push_back(PlanReceiverEvent::GivenUp { text });
    }

    fn block(&mut self, now: Instant, block: &Block<'_>) {
        let verdict = self.take(now, block.object, block.offset, block.data);
        if verdict == BlockVerdict::Taken {
            self.counters.fill_bytes += block.data.len() as u64;
        }
    }

    fn seals_known(&mut self, now: Instant, link: LinkId, seals: &Seals) {
        // What is verified was so by the seals that were known then.
        let (Some(contents), Step::Preparing | Step::Receiving) = (&mut self.contents, self.step)
        else {
            return;
        };
        if contents.expect_seals(seals.bytes, &seals.hash) {
            self.check_seals(now);
        } else {
            self.violation(now, link);
        }
    }

    fn acknowledged(&mut self, now: Instant) {
        if self.step == Step::Delivered {
            self.events.push_back(PlanReceiverEvent::Acknowledged);
            self.tell(now, &Message::Bye);
            self.over(now);
        }
    }

    fn violation(&mut self, now: Instant, link: LinkId) {
        self.counters.violations += 1;
        self.links.abort(link);
        self.lost(now, link);
    }
}

/// A connection that is left unread is looked at so often: well below the patience of its peer.
const READING_RESTS_MAX: Duration = Duration::from_secs(1);
/// Greetings of many receivers are spread over one millisecond for each, at most over this.
const DIAL_JITTER_MAX: Duration = Duration::from_secs(2);
const REDIAL_MIN: Duration = Duration::from_millis(50);
/// A sender that heard nothing of a receiver for 5 s lets its successor in; the last wait between
/// two attempts comes on top.
const DUPLICATE_PATIENCE: Duration = Duration::from_secs(7);
