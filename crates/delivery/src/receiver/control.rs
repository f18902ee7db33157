//! The control connection of a transfer receiver: dialling, greeting, and what the sender's
//! messages mean.
//!
//! **Spec**: `docs/src/protocol.md` sections 2, 5 and 7.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkEvent, LinkId, earliest};
use wire::object::{
    Block, Decoder, ErrorCode, MANIFEST_HEADER_LEN, Message, PassEnd, Refusal, Seals, Welcome,
};

use super::{
    Began, BlockVerdict, Offer, Step, TransferReceiver, TransferReceiverEvent, Way, objects::Bytes,
};
use crate::parameters::{DUPLICATE_PATIENCE, READING_RESTS_MAX};
use crate::{
    ManifestError, ManifestId, Store,
    control::{Answer, Call, Caller, Link, Links, NameTaken, Talks},
};

/// The sender that this receiver was told to dial, or that has dialled this receiver.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) call: Call,
    /// Since when there has been no connection on which the sender admits this receiver. The value
    /// has no meaning while there is such a connection.
    lost_at: Instant,
    /// Time of the first dial, from this receiver or from the sender.
    asked_at: Option<Instant>,
    /// The sender's reason for giving this receiver up. The sender is not dialled again in that
    /// session, and may come back in another.
    given_up: Option<String>,
}

/// Whether the connection is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Reading {
    /// The connection is read. If there was a pause, something has arrived since.
    #[default]
    On,
    /// Reading has resumed, and nothing has arrived since. It pauses again only after something has
    /// arrived.
    Due,
    /// The connection is left unread until `until`, or until the store has caught up.
    Rests { until: Instant },
}

impl Reading {
    pub(super) const fn rests_until(self) -> Option<Instant> {
        match self {
            Self::Rests { until } => Some(until),
            Self::On | Self::Due => None,
        }
    }
}

impl<S: Store> TransferReceiver<S> {
    /// Tells which sender to dial. `session_id` and `receiver_count` are those of its mark; `peer`
    /// is the address from which the mark came, with the mark's control port. The caller has
    /// checked that this address is unicast, and that the SPM names it as the address of the
    /// source. The call is ignored when the transfer is over, and while there is a sender:
    /// [`TransferReceiver::session`] names that sender.
    pub fn dial(&mut self, now: Instant, peer: SocketAddr, session_id: u64, receiver_count: u32) {
        if self.sender.is_none() && !self.is_over() {
            self.sender = Some(self.sender_at(now, peer, session_id, receiver_count));
        }
    }

    /// Greets a sender on a connection that the sender has dialled; `entry` holds what has arrived
    /// there. The first such connection decides which sender this receiver has. The caller ensures
    /// that later connections are of the same sender and session.
    pub(crate) fn answer_call(
        &mut self,
        now: Instant,
        sender: (SocketAddr, u64),
        link: LinkId,
        entry: Link,
    ) {
        let number = self.config.number;
        let sender = self.sender.get_or_insert_with(|| Sender {
            call: Caller::expect(now, sender, number),
            lost_at: now,
            asked_at: Some(now),
            given_up: None,
        });
        if self.caller.answer(now, &mut sender.call, link, entry) {
            self.replaced(now);
        }
    }

    /// Notes that another connection of the sender has taken the place of the open one. Messages
    /// sent on the old connection may not have arrived.
    fn replaced(&mut self, now: Instant) {
        if let Some(sender) = &mut self.sender {
            sender.lost_at = now;
            self.counters.connections_lost += 1;
        }
        self.answers.forget();
        self.feedback.disconnected();
    }

    fn sender_at(&mut self, now: Instant, peer: SocketAddr, session_id: u64, count: u32) -> Sender {
        let number = self.config.number;
        Sender {
            call: self.caller.call(now, (peer, session_id), number, count),
            lost_at: now,
            asked_at: None,
            given_up: None,
        }
    }

    /// Continues the same manifest in a new session: the sender was restarted, or is reached
    /// another way. What is held stays; messages that may not have arrived are sent again. Ignored
    /// when the transfer is over.
    pub fn redirect(&mut self, now: Instant, peer: SocketAddr, session_id: u64) {
        if self.is_over() {
            return;
        }
        self.hang_up();
        self.counters.redirected += 1;
        let is_dialled = |sender: &Sender| sender.call.is_dialled_by_sender();
        let mut next = self.sender_at(now, peer, session_id, 0);
        // The sender has already answered: it sent its offer to another receiver of this process.
        next.call = next.call.answered_elsewhere();
        if self.sender.as_ref().is_some_and(is_dialled) {
            next.call = Caller::expect(now, (peer, session_id), self.config.number);
        }
        self.sender = Some(next);
        self.forget_stream(now);
    }

    /// Returns the manifest that the sender offers, until the owner answers by
    /// [`TransferReceiver::accept`] or [`TransferReceiver::decline`].
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        let (Step::Offered, Some(welcome), Some((peer, session_id))) =
            (self.step, &self.welcome, self.session())
        else {
            return None;
        };
        Some(Offer {
            peer,
            session_id,
            manifest: ManifestId(welcome.manifest),
            manifest_bytes: welcome.manifest_bytes,
        })
    }

    /// Takes the offered manifest into `store`.
    pub fn accept(&mut self, now: Instant, store: S) {
        if self.step == Step::Offered {
            self.store = Some(store);
            self.joined(now);
            // Messages that the sender sent right after its offer have waited unread.
            if let Some(link) = self.link() {
                self.read(now, link, &[]);
            }
        }
    }

    /// Declines the offered manifest, and tells the sender why. This ends the transfer.
    pub fn decline(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if self.step == Step::Offered {
            self.fail_here(now, code, text);
        }
    }

    /// Leaves the sender silently, as if the connection were lost: another receiver of this process
    /// continues the manifest, or asks another sender instead. This ends the transfer.
    pub fn withdraw(&mut self, now: Instant) {
        if let Some(link) = self.any_link() {
            self.caller.links.abort(link);
        }
        self.over(now);
    }

    /// Returns true when the sender has admitted this receiver and the connection is open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link().is_some()
    }

    /// Returns true when the sender has given this receiver up. The receiver then keeps what it
    /// holds, and waits for a new session of the same manifest: [`TransferReceiver::redirect`].
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.sender.as_ref().is_some_and(|s| s.given_up.is_some())
    }

    /// Returns the manifest that the sender named when it admitted this receiver.
    #[must_use]
    pub fn manifest_id(&self) -> Option<ManifestId> {
        self.welcome
            .as_ref()
            .map(|welcome| ManifestId(welcome.manifest))
    }

    /// Returns the size of the manifest in bytes, as the sender has told it; 0 before the sender
    /// has admitted this receiver.
    #[must_use]
    pub fn manifest_bytes(&self) -> u64 {
        self.welcome
            .as_ref()
            .map_or(0, |welcome| welcome.manifest_bytes)
    }

    /// Returns the time of the first dial, from this receiver or from the sender; `None` before it.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.sender.as_ref()?.asked_at
    }

    /// Returns the sender's address and session, once there is a sender. `None` again when the
    /// sender refused this receiver or did not answer: then another sender may be dialled.
    #[must_use]
    pub fn session(&self) -> Option<(SocketAddr, u64)> {
        let sender = self.sender.as_ref();
        sender.map(|sender| (sender.call.peer, sender.call.session_id))
    }

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.contract.tell_time(now);
        match event {
            LinkEvent::Opened => {
                if let Some(sender) = &mut self.sender {
                    self.caller.hello(now, &mut sender.call, link);
                }
            }
            LinkEvent::Data => {
                if matches!(self.reading, Reading::Due) {
                    self.reading = Reading::On;
                }
                self.read(now, link, data);
            }
            LinkEvent::Writable => self.caller.links.writable(link),
            LinkEvent::Closed => {
                let is_refused = self.is_connecting(link);
                self.caller.links.forget(link);
                self.lost(now, link);
                if is_refused && self.welcome.is_none() {
                    self.pass_over(
                        now,
                        "its control port is not open, or cannot be reached: look at firewalls and \
                         the way to it",
                        true,
                    );
                }
            }
            LinkEvent::Accepted { .. } => {
                self.caller.link_opened(None, link);
            }
        }
    }

    /// Notes the number that the back end gave to the connection that was opened with `key`.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.caller.links.opened();
        let sender = self.sender.as_mut().filter(|_| key == self.config.number);
        self.caller
            .link_opened(sender.map(|sender| &mut sender.call), link);
    }

    /// Returns the connection on which the sender has admitted this receiver.
    pub(super) fn link(&self) -> Option<LinkId> {
        self.sender.as_ref()?.call.link()
    }

    /// Returns true for a connection that is not open yet, unless the sender has said on an earlier
    /// connection that this receiver's name is taken.
    fn is_connecting(&self, link: LinkId) -> bool {
        let call = self.sender.as_ref().map(|sender| &sender.call);
        call.is_some_and(|call| call.connecting_link() == Some(link) && !call.is_name_taken())
    }

    fn any_link(&self) -> Option<LinkId> {
        self.sender.as_ref()?.call.any_link()
    }

    pub(super) fn call_due(&self) -> Option<Instant> {
        let sender = self.sender.as_ref()?;
        let is_waiting = sender.call.is_looking() || sender.given_up.is_some();
        let give_up = is_waiting.then(|| self.give_up_at(sender)).flatten();
        earliest(sender.call.due(), give_up)
    }

    /// Says when to give up. `None` while the store commits: otherwise the commit could succeed
    /// after this end had reported a failure.
    fn give_up_at(&self, sender: &Sender) -> Option<Instant> {
        if self.welcome.is_none() {
            let more = match sender.call.is_name_taken() {
                true => DUPLICATE_PATIENCE,
                false => Duration::ZERO,
            };
            return Some(sender.asked_at? + self.config.answer_patience + more);
        }
        (self.step != Step::Committing).then(|| sender.lost_at + self.config.give_up_after)
    }

    /// Restarts the time that this end may be without a connection, because the store is done. The
    /// sender needs the proof, so this end tries for another `give_up_after` to deliver the proof.
    pub(super) fn look_on(&mut self, now: Instant) {
        if let Some(sender) = self.sender.as_mut().filter(|s| s.call.link().is_none()) {
            sender.lost_at = now;
        }
    }

    pub(super) fn check_call(&mut self, now: Instant) {
        let Some(sender) = &self.sender else {
            return;
        };
        let is_waiting = sender.call.is_looking() || sender.given_up.is_some();
        if is_waiting && self.give_up_at(sender).is_some_and(|at| at <= now) {
            if self.welcome.is_none() {
                return self.pass_over(now, "the sender does not answer", true);
            }
            let seconds = self.config.give_up_after.as_secs();
            let text = match &sender.given_up {
                Some(why) => format!(
                    "the sender gave up on this receiver ({why}) and has not come back within \
                     {seconds} s"
                ),
                None => format!(
                    "the connection to the sender was lost, and no new one came up within \
                     {seconds} s"
                ),
            };
            return self.failed(now, ErrorCode::TimedOut, &text);
        }
        if let Some(sender) = &mut self.sender
            && self.caller.dial(now, &mut sender.call)
        {
            sender.asked_at.get_or_insert(now);
            self.counters.dialled += 1;
        }
    }

    /// Queues a message for the sender. Aborts the connection when the queue is full, because the
    /// sender does not read.
    pub(super) fn tell(&mut self, now: Instant, message: &Message<'_>) {
        if let Some(link) = self.link()
            && !self.caller.links.queue(link, message)
        {
            self.caller.links.abort(link);
            self.lost(now, link);
        }
    }

    /// Closes the connection once its queue is empty, and dials no more.
    pub(super) fn hang_up(&mut self) {
        self.feedback.disconnected();
        if let Some(sender) = &mut self.sender {
            self.caller.hang_up(&mut sender.call);
        }
    }

    /// Waits for another sender, because the transfer cannot begin with this one: it refuses the
    /// receiver, has left, has not shown the key, or offers a manifest that is too short or too
    /// long. A mark is easily forged, and an earlier transfer may just be closing, so a refusal
    /// does not end the wait for a sender.
    fn look_elsewhere(&mut self, now: Instant, text: &str) {
        self.pass_over(now, text, false);
    }

    fn pass_over(&mut self, now: Instant, text: &str, is_silent: bool) {
        if let Some(link) = self.any_link().filter(|_| is_silent) {
            self.caller.links.abort(link);
        }
        self.hang_up();
        self.counters.senders_passed_over += 1;
        if let Some(sender) = self.sender.take() {
            let (peer, text) = (sender.call.peer, text.to_owned());
            self.event(TransferReceiverEvent::PassedOver {
                peer,
                text,
                is_silent,
            });
        }
        self.forget_stream(now);
    }

    /// Handles a peer that has not shown the key: it does not count as the sender.
    fn not_believed(&mut self, now: Instant, link: LinkId, text: &str) {
        self.counters.not_believed += 1;
        if self.welcome.is_none() {
            return self.look_elsewhere(now, text);
        }
        self.lost(now, link);
        self.caller.links.close(link);
    }

    /// Handles a connection that ended without a good-bye: dials again after a while, or expects
    /// the sender to dial.
    fn lost(&mut self, now: Instant, link: LinkId) {
        if let Some(sender) = &mut self.sender
            && self.caller.rival_lost(&mut sender.call, link)
        {
            return;
        }
        let sender = self.sender.as_mut();
        let Some(sender) = sender.filter(|sender| sender.call.any_link() == Some(link)) else {
            return;
        };
        if self.caller.redial(now, &mut sender.call) {
            sender.lost_at = now;
            self.counters.connections_lost += 1;
        }
        self.answers.forget();
        self.feedback.disconnected();
    }

    /// Leaves the connection unread while the disk is behind: a block that is read when there is no
    /// room for it would have to be sent again. While a disk hangs, the connection is still read
    /// now and then, or the sender would take this receiver for dead.
    pub(super) fn check_reading(&mut self, now: Instant) {
        let Some(link) = self.link() else {
            if let Reading::Rests { .. } = self.reading {
                self.reading = Reading::Due;
            }
            return;
        };
        let is_behind = self.store.as_ref().is_some_and(Store::is_behind);
        match self.reading {
            Reading::On if is_behind && self.caller.links.pause(link, true) => {
                self.counters.reads_rested += 1;
                let until = now + READING_RESTS_MAX;
                self.reading = Reading::Rests { until };
            }
            Reading::Rests { until } if !is_behind || until <= now => {
                self.caller.links.pause(link, false);
                self.reading = Reading::Due;
            }
            _ => {}
        }
    }

    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>) {
        match message {
            Message::Error { text, .. } if self.welcome.is_none() => {
                self.look_elsewhere(now, text);
            }
            Message::Bye if self.welcome.is_none() => {
                self.look_elsewhere(now, "the sender has left");
            }
            Message::Error { code, text }
                if *code == ErrorCode::TimedOut || self.step == Step::Committing =>
            {
                self.given_up(now, *code, text);
            }
            Message::Error { code, text } => self.failed(now, *code, &format!("sender: {text}")),
            Message::Bye => self.left(now, ErrorCode::Cancelled, "the sender has left"),
            Message::Block(block) => self.block(now, block),
            Message::PassEnd(end) => self.pass_ended(now, end),
            Message::Seals(seals) => self.seals_known(now, link, seals),
            Message::Acknowledged => self.acknowledged(now),
            Message::Unknown { .. } | Message::Progress(_) => self.counters.messages_ignored += 1,
            _ => self.violation(now, link),
        }
    }

    fn welcomed(&mut self, now: Instant, welcome: &Welcome) {
        if self
            .welcome
            .as_ref()
            .is_some_and(|first| first.manifest != welcome.manifest)
        {
            let (code, text) = (ErrorCode::Protocol, "the sender changed its manifest");
            self.tell(now, &Message::Error { code, text });
            return self.left(now, code, text);
        }
        let max = self.config.limits.manifest_bytes_max;
        let bytes = welcome.manifest_bytes;
        let min = MANIFEST_HEADER_LEN as u64;
        if self.step == Step::Joining && !(min..=max).contains(&bytes) {
            let text = if bytes < min {
                format!("the manifest has {bytes} bytes, and an empty one has {min} already")
            } else {
                ManifestError::ManifestTooLong { bytes, max }.to_string()
            };
            let (code, text) = (ErrorCode::ManifestRefused, text.as_str());
            self.tell(now, &Message::Error { code, text });
            return self.look_elsewhere(now, text);
        }
        self.welcome = Some(*welcome);
        self.sealer = self.sealer.or(self.session().map(|(peer, _)| peer));
        self.feedback.welcomed(welcome);
        self.answers.is_have_told = false;
        match self.step {
            Step::Joining if self.store.is_some() => self.joined(now),
            Step::Joining => self.step = Step::Offered,
            // The connection was lost, and the sender has admitted this end again, with the same
            // manifest: this end reports its state again.
            Step::Manifest => self.send_lacking(now, 0),
            Step::Receiving | Step::Committing | Step::Delivered => self.send_standing(now),
            // On the former connection, the sender may have asked what this end lacks. It does not
            // ask again, so this end acts as if it had been asked now.
            Step::Preparing => {
                let (pass, position) = (0, None);
                self.pass_ended(now, &PassEnd { pass, position });
            }
            Step::Offered | Step::Over { .. } => {}
        }
        self.send_progress(now);
    }

    fn joined(&mut self, now: Instant) {
        let Some(welcome) = self.welcome else {
            return;
        };
        let bytes = welcome.manifest_bytes;
        let len = usize::try_from(bytes).expect("checked against the limit");
        self.manifest = Some(Bytes::new(len, self.config.ranges_max));
        self.step = Step::Manifest;
        self.began = Began::at(now);
        let (slot, manifest) = (welcome.slot, ManifestId(welcome.manifest));
        self.event(TransferReceiverEvent::Joined { slot, manifest });
        if welcome.is_late {
            self.send_lacking(now, 0);
        }
    }

    fn refused(&mut self, now: Instant, link: LinkId, reason: Refusal, text: &str) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let mut is_passing = reason == Refusal::WrongSession && self.welcome.is_some();
        if reason == Refusal::DuplicateName {
            let taken = sender.call.name_taken(now);
            if taken == NameTaken::First {
                // Nobody knows yet whether the other receiver of this name is alive.
                let peer = sender.call.peer;
                let event = TransferReceiverEvent::NameTaken { peer };
                self.counters.events_lost += self.events.push(event);
            }
            is_passing = taken != NameTaken::ForGood || self.welcome.is_some();
        }
        // A refusal that may be temporary counts as a lost connection. For example, a sender
        // restarted at the same port refuses the old session, then sends its new session's mark.
        if is_passing {
            self.caller.links.abort(link);
            return self.lost(now, link);
        }
        // If the sender has said that the name is taken, and has not admitted this receiver since,
        // another receiver of this name is alive: this one fails.
        let is_duplicate = sender.call.is_name_taken();
        // Without a key, anybody can have sent the refusal, so it counts as passing.
        let is_passing = self.config.key.is_none()
            || matches!(
                reason,
                Refusal::Over | Refusal::Full | Refusal::WrongSession
            );
        if is_passing && self.welcome.is_none() && !is_duplicate {
            return self.look_elsewhere(now, text);
        }
        if reason == Refusal::Over && self.welcome.is_some() && !is_duplicate {
            return self.given_up(now, ErrorCode::TimedOut, text);
        }
        let duplicate = is_duplicate.then(|| Refusal::DuplicateName.to_string());
        let text = duplicate.as_deref().unwrap_or(text);
        let text = format!("the sender refused this receiver: {text}");
        self.left(now, ErrorCode::Limit, &text);
    }

    /// Handles a sender that is done with this receiver. A store that is putting verified files in
    /// place goes on; otherwise the transfer fails.
    fn left(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if self.step == Step::Committing {
            self.given_up(now, code, text);
        } else {
            self.failed(now, code, text);
        }
    }

    /// Handles a sender that has given this receiver up. While this receiver takes the manifest or
    /// content, or commits, it keeps what it holds: nothing is wrong at this end, and a sender that
    /// comes back may send the same manifest. In any other step the transfer ends.
    fn given_up(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if !matches!(
            self.step,
            Step::Manifest | Step::Preparing | Step::Receiving | Step::Committing
        ) {
            return self.failed(now, code, &format!("sender: {text}"));
        }
        self.counters.given_up += 1;
        self.hang_up();
        if let Some(sender) = &mut self.sender {
            sender.given_up = Some(text.to_owned());
            sender.lost_at = now;
        }
        self.answers.forget();
        let text = text.to_owned();
        self.event(TransferReceiverEvent::GivenUp { text });
    }

    fn block(&mut self, now: Instant, block: &Block<'_>) {
        let way = Way::Connection;
        let verdict = self.take(now, way, block.object, block.offset, block.data);
        if verdict == BlockVerdict::Taken {
            self.counters.fill_bytes += block.data.len() as u64;
        }
    }

    fn seals_known(&mut self, now: Instant, link: LinkId, seals: &Seals) {
        // Once the commit has begun, other seals are ignored: all slabs were verified by the seals
        // known before.
        let (Some(contents), Step::Preparing | Step::Receiving) = (&mut self.contents, self.step)
        else {
            return;
        };
        if contents.expect_seals(seals.bytes, &seals.hash) {
            self.sealer = self.session().map(|(peer, _)| peer);
            self.check_seals(now);
        } else {
            self.violation(now, link);
        }
    }

    fn acknowledged(&mut self, now: Instant) {
        if self.step == Step::Delivered {
            self.event(TransferReceiverEvent::Acknowledged);
            self.tell(now, &Message::Bye);
            self.over(now);
        }
    }

    fn violation(&mut self, now: Instant, link: LinkId) {
        self.counters.violations += 1;
        self.caller.links.abort(link);
        self.lost(now, link);
    }
}

impl<S: Store> Talks for TransferReceiver<S> {
    fn links(&mut self) -> &mut Links {
        &mut self.caller.links
    }

    fn step(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool {
        let Some(sender) = self.sender.as_mut().filter(|_| self.step != Step::Offered) else {
            return false;
        };
        match self.caller.next(&mut sender.call, link, decoder) {
            Answer::Nothing => return false,
            Answer::Handshake => {}
            Answer::Welcomed(welcome) => self.welcomed(now, &welcome),
            Answer::Replaced(welcome) => {
                self.replaced(now);
                self.welcomed(now, &welcome);
            }
            Answer::Refused { reason, text } => self.refused(now, link, reason, text),
            Answer::Unproven { text, .. } => self.not_believed(now, link, text),
            Answer::Said(message) => self.message(now, link, &message),
            Answer::Violation => self.violation(now, link),
        }
        true
    }
}
