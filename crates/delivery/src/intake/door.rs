//! The door of a receiver that senders dial: who knocks, who comes in, and what others are told.
//!
//! ```text
//!   accepted --> waits --INVITE--> sender known?  --> its transfer goes on with this connection
//!                  |                  | admitted? --> a new transfer asks what it offers
//!                  '--too late        '-- else REFUSED, with the reason
//! ```
//!
//! A sender that dials is known by its host and its session, because its port changes with each
//! connection. The bounds are those for senders that are heard by their marks: the number of
//! transfers, the admission, and how often a host is asked what it offers. A sender that was asked
//! and has not answered is not asked again for a while.

use std::net::SocketAddr;

use base::{Instant, LinkEvent, LinkId};
use wire::{
    object::{Invite, Refusal},
    pgm::Mark,
};

use super::{Intake, Sender, State, Transfers, admission::Place};
use crate::{
    control::{Listener, features},
    parameters::{GREETING_TIMEOUT, TRANSFERS_MAX},
};

impl<I: Intake> Transfers<I> {
    /// Lets senders dial this receiver, which then dials nobody.
    #[must_use]
    pub fn with_door(mut self) -> Self {
        // A door serves no session of its own, so the session's number means nothing.
        self.door = Some(Listener::new(0, TRANSFERS_MAX, GREETING_TIMEOUT));
        self
    }

    /// Handles what happened on a connection that belongs to no transfer yet.
    pub(super) fn knock(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        let is_over = self.is_over() || self.is_cancelled;
        let Some(door) = &mut self.door else {
            return;
        };
        match event {
            LinkEvent::Accepted { peer } => {
                let accepted = door.accept(now, link, peer, is_over);
                self.counters.callers_refused += u64::from(accepted.is_err());
            }
            LinkEvent::Data => {
                let Some(mut decoder) = door.links.take_decoder(link) else {
                    return;
                };
                decoder.push(data);
                let word = door.next_invitation(link, &mut decoder);
                door.links.put_decoder(link, decoder);
                match word {
                    None => {}
                    Some(Ok((peer, invite))) => self.invited(now, link, peer, &invite),
                    Some(Err(reason)) => {
                        if let Some(peer) = door.peer_of(link) {
                            let sender = sender_of(peer, 0);
                            self.tell_refused(sender, "it does not speak this protocol".to_owned());
                        }
                        self.refuse(link, reason);
                    }
                }
            }
            LinkEvent::Writable => door.links.writable(link),
            LinkEvent::Closed => door.forget(link),
            LinkEvent::Opened => {}
        }
    }

    fn refuse(&mut self, link: LinkId, reason: Refusal) {
        self.counters.callers_refused += 1;
        if let Some(door) = &mut self.door {
            door.refuse(link, reason);
        }
    }

    /// Takes in a sender that says what session it has, or refuses it.
    fn invited(&mut self, now: Instant, link: LinkId, peer: SocketAddr, invite: &Invite) {
        let sender = sender_of(peer, invite.session_id);
        let known = self.all.iter().position(|t| t.sender == sender);
        let known = known.filter(|&index| self.all[index].state != State::Leaving);
        let index = match known {
            Some(index) if self.all[index].receiver.is_over() => Err(Refusal::Over),
            Some(index) => Ok(index),
            None => self.let_in(now, sender, invite),
        };
        let index = match index {
            Ok(index) => index,
            Err(refused) => return self.refuse(link, refused),
        };
        let entry = self.door.as_mut().and_then(|door| door.hand_over(link));
        if let Some(entry) = entry {
            let called = (sender.address, sender.session_id);
            let receiver = &mut self.all[index].receiver;
            receiver.answer_call(now, called, link, entry);
            self.settle(now, index);
        }
    }

    /// Makes a transfer for a new sender; returns its index, or why the sender is refused.
    fn let_in(&mut self, now: Instant, sender: Sender, invite: &Invite) -> Result<usize, Refusal> {
        if self.turned_away.is_barred(&sender) {
            return Err(Refusal::Over);
        }
        let missing = invite.required & !features(self.config.receiver.key.as_ref());
        if missing != 0 {
            let refusal = match missing == Mark::PROTECTED {
                true => Refusal::KeyRequired,
                false => Refusal::Version,
            };
            self.tell_refused(sender, refusal.to_string());
            return Err(refusal);
        }
        if let Err(text) = self.intake.admit(&sender) {
            self.counters.senders_refused += 1;
            self.tell_refused(sender, text);
            // The sender does not learn who is admitted.
            return Err(Refusal::NotAdmitted);
        }
        if self.turned_away.rests(now, &sender) {
            return Err(Refusal::Busy);
        }
        let late = match self.place_for(now, &sender) {
            Place::Free => None,
            Place::InsteadOf(late) => Some(late),
            Place::Later | Place::Full | Place::NoShare(_) | Place::Never => {
                self.counters.senders_full += 1;
                let text = "this receiver serves as many senders as it can; this one was told to \
                            come later";
                self.tell_refused(sender, text.to_owned());
                return Err(Refusal::Busy);
            }
        };
        let is_first = !self.turned_away.is_known(&sender);
        let host = sender.address.ip();
        if !self.dials.take(now, host, is_first, &mut self.rng) {
            self.counters.senders_put_off += 1;
            return Err(Refusal::Busy);
        }
        self.prospect(now, sender, None, late);
        Ok(self.all.len() - 1)
    }

    /// Tells the owner of a sender that was refused; the same sender only once.
    fn tell_refused(&mut self, sender: Sender, text: String) {
        if self.turned_away.note(sender, false, &mut self.counters) {
            self.refused(sender, text);
        }
    }
}

/// Returns the identity of a sender that dials, without its port, which changes with each
/// connection.
fn sender_of(peer: SocketAddr, session_id: u64) -> Sender {
    Sender {
        address: SocketAddr::new(peer.ip().to_canonical(), 0),
        session_id,
    }
}
