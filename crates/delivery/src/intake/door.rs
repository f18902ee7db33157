//! The *door* of a receiver that senders dial: it decides which senders are let in, which wait in
//! line, and what the others are told.
//!
//! ```text
//!   accepted --> greets --INVITE--> sender known?  --> its transfer goes on with this connection
//!                  |                  | admitted? --> in line --WAIT--.
//!                  '--too late        '-- else REFUSED                |  a place is free
//!                                     a new transfer asks what it offers <--'
//! ```
//!
//! A sender that dials is known by its host and its session, because its port changes with each
//! connection. The bounds are the same as for senders that are heard by their marks: the number of
//! transfers, the admission, and how often a host is asked what it offers. A sender that was asked
//! and has not answered is not asked again for a while. Where senders wait in line, a sender is
//! greeted only when there is a place for what it offers. The exception is a sender that may
//! continue a transfer that has lost its sender. A sender that is greeted keeps its place until it
//! has had time to answer.
//!
//! A sender that may not be asked yet waits in line, connected, so that senders that come all at
//! once are not refused. It is told again and again that it waits. If it hears nothing for long, it
//! dials again. Networks take turns, and so do the hosts within a network. When the line is full, a
//! newcomer may take a place from the host or network with most places, if its own then still has
//! fewer. A sender that waits costs little more than its connection: it has nothing to say, so no
//! memory is kept for its messages.
//!
//! Invariant: each connection is counted once by what became of it: greeted, refused, cut (closed
//! for a newer one), late (nobody said in time who dialled) or gone (its sender left first).

use std::net::{IpAddr, SocketAddr};

use base::{Instant, LinkEvent, LinkId};
use wire::{
    object::{Invite, Message, Refusal},
    pgm::Mark,
};

use super::{Intake, Sender, State, Transfer, Transfers, admission::Place, line::Line};
use crate::{
    control::{Listener, Seat, features},
    parameters::SENDERS_LOOK_INTERVAL,
};

/// The connections that belong to no transfer.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) listener: Listener,
    /// The senders that wait for a place.
    pub(super) line: Line,
}

impl Door {
    fn new(waiting_max: usize) -> Self {
        let waiting_max = u32::try_from(waiting_max).unwrap_or(u32::MAX);
        Self {
            // A door has no session of its own, so the session number 0 means nothing.
            listener: Listener::new(0, waiting_max),
            line: Line::new(waiting_max as usize),
        }
    }

    /// Says when the door has something to do even if no sender dials or says anything.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        base::earliest(self.listener.next_deadline(), self.line.next_deadline())
    }
}

/// Why a sender is not let in.
enum Stopped {
    /// The sender may be let in later, so it waits in line.
    Wait,
    Refused(Refusal),
}

impl<I: Intake> Transfers<I> {
    /// Lets senders dial this receiver, which then dials nobody.
    #[must_use]
    pub fn with_door(mut self) -> Self {
        self.door = Some(Door::new(self.config.waiting_max));
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
                let accepted = door.listener.accept(now, link, peer, is_over);
                self.counters.callers_refused += u64::from(accepted.is_err());
                self.counters.callers_cut += door.listener.take_cut();
            }
            LinkEvent::Data => {
                if door.line.contains(link) {
                    // A sender that waits must say nothing.
                    return self.refuse(link, Refusal::Protocol);
                }
                let listener = &mut door.listener;
                let Some(mut decoder) = listener.links.take_decoder(link) else {
                    return;
                };
                decoder.push(data);
                let word = listener.next_invitation(link, &mut decoder);
                // A sender says nothing after its invitation until it is greeted.
                let word = match word {
                    Some(Ok(_)) if !decoder.is_empty() => Some(Err(Refusal::Protocol)),
                    word => word,
                };
                listener.links.put_decoder(link, decoder);
                match word {
                    None => {}
                    Some(Ok((peer, invite))) => self.invited(now, link, peer, &invite),
                    Some(Err(reason)) => {
                        if let Some(peer) = listener.peer_of(link) {
                            let sender = sender_of(peer, 0);
                            self.tell_refused(sender, "it does not speak this protocol".to_owned());
                        }
                        self.refuse(link, reason);
                    }
                }
            }
            LinkEvent::Writable => door.listener.links.writable(link),
            LinkEvent::Closed => {
                let is_in_line = door.line.leave(link).is_some();
                let is_open = is_in_line || door.listener.peer_of(link).is_some();
                self.counters.callers_gone += u64::from(is_open);
                door.listener.forget(link);
            }
            LinkEvent::Opened => {}
        }
    }

    fn refuse(&mut self, link: LinkId, reason: Refusal) {
        self.counters.callers_refused += 1;
        if let Some(door) = &mut self.door {
            door.line.leave(link);
            door.listener.refuse(link, reason);
        }
    }

    /// Takes in a sender that has named its session, makes it wait, or refuses it.
    fn invited(&mut self, now: Instant, link: LinkId, peer: SocketAddr, invite: &Invite) {
        let sender = sender_of(peer, invite.session_id);
        let is_known = |t: &Transfer<_>| t.sender == sender && t.state != State::Leaving;
        match self.all.iter().position(is_known) {
            Some(index) if self.all[index].receiver.is_over() => self.refuse(link, Refusal::Over),
            Some(index) => self.come_in(now, link, index),
            None => match self.may_wait(now, sender, invite) {
                Ok(()) => self.queue(now, link, sender),
                Err(refusal) => self.refuse(link, refusal),
            },
        }
    }

    /// Continues the transfer at `index` over this connection.
    fn come_in(&mut self, now: Instant, link: LinkId, index: usize) {
        let door = self.door.as_mut();
        if let Some(entry) = door.and_then(|door| door.listener.hand_over(link)) {
            self.counters.callers_greeted += 1;
            let sender = self.all[index].sender;
            let called = (sender.address, sender.session_id);
            let receiver = &mut self.all[index].receiver;
            receiver.answer_call(now, called, link, entry);
            self.settle(now, index);
        }
    }

    /// Says whether a new sender may have a place, now or later. The error is the refusal for that
    /// sender.
    fn may_wait(&mut self, now: Instant, sender: Sender, invite: &Invite) -> Result<(), Refusal> {
        if self.is_over() || self.is_cancelled || self.turned_away.is_barred(&sender) {
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
            // `text` goes to the owner only: the sender must not learn which senders are admitted.
            return Err(Refusal::NotAdmitted);
        }
        match self.turned_away.rests(now, &sender) {
            true => Err(Refusal::Busy),
            false => Ok(()),
        }
    }

    /// Lets a new sender in if its turn has come; otherwise puts it in line, if the line has room.
    fn queue(&mut self, now: Instant, link: LinkId, sender: Sender) {
        let Some(door) = &mut self.door else {
            return;
        };
        if let Some(older) = door.line.link_of(&sender) {
            // A sender that dials again has lost its connection.
            door.line.leave(older);
            door.listener.close(older);
            self.counters.callers_gone += 1;
        }
        // A transfer that has lost its sender does not wait long, so a sender that may continue it
        // need not wait in line.
        if door.line.is_empty() || self.may_claim(&sender) {
            match self.let_in(now, sender) {
                Ok(index) => return self.come_in(now, link, index),
                Err(Stopped::Refused(refusal)) => return self.refuse(link, refusal),
                Err(Stopped::Wait) => {}
            }
        }
        let Some(door) = &mut self.door else {
            return;
        };
        let seat = door.line.room_for(sender.address.ip());
        if seat == Seat::None || !door.listener.links.queue(link, &Message::Wait) {
            return self.come_later(link, sender);
        }
        if door.line.is_empty() {
            door.line.look_at = now + SENDERS_LOOK_INTERVAL;
        }
        door.listener.keep_waiting(link);
        let other = match seat {
            Seat::InsteadOf(other) => door.line.leave(other).map(|sender| (other, sender)),
            Seat::Free | Seat::None => None,
        };
        door.line.join(now, link, sender);
        self.counters.callers_waited += 1;
        if let Some((other, sender)) = other {
            self.come_later(other, sender);
        }
    }

    /// Refuses a sender for which there is no room.
    fn come_later(&mut self, link: LinkId, sender: Sender) {
        self.counters.senders_full += 1;
        let text =
            "this receiver serves as many senders as it can; this one was told to come later";
        self.tell_refused(sender, text.to_owned());
        self.refuse(link, Refusal::Busy);
    }

    /// Makes a transfer for a new sender, whose turn it is; returns the transfer's index.
    fn let_in(&mut self, now: Instant, sender: Sender) -> Result<usize, Stopped> {
        if self.turned_away.rests(now, &sender) {
            return Err(Stopped::Refused(Refusal::Busy));
        }
        let (late, is_claim) = match self.place_for(now, &sender) {
            Place::Free => (None, false),
            Place::Claim => (None, true),
            Place::InsteadOf(late) => (Some(late), false),
            Place::Never => return Err(Stopped::Refused(Refusal::Busy)),
            Place::Later | Place::Full | Place::NoShare(_) => return Err(Stopped::Wait),
        };
        let is_first = !self.turned_away.is_known(&sender);
        let host = sender.address.ip();
        if !self.dials.take(now, host, is_first, &mut self.rng) {
            let door = self.door.as_ref();
            let is_in_line = door.is_some_and(|door| door.line.link_of(&sender).is_some());
            // A sender in line is tried again and again: `callers_waited` has counted it once.
            self.counters.senders_put_off += u64::from(!is_in_line);
            return Err(Stopped::Wait);
        }
        self.prospect(now, sender, None, late);
        let index = self.all.len() - 1;
        self.all[index].is_claim = is_claim;
        Ok(index)
    }

    /// Lets in senders that wait, turn by turn, while there are places. Each call stops when
    /// [`TRIES_MAX`] senders had to go on waiting, and the next call goes on with others.
    pub(super) fn serve_line(&mut self, now: Instant) {
        let mut tries = 0;
        for _ in 0..TURNS_MAX {
            let Some(door) = &mut self.door else {
                return;
            };
            let Some((link, sender)) = door.line.next_turn() else {
                return;
            };
            door.line.look_at = now + SENDERS_LOOK_INTERVAL;
            let is_told = door.listener.links.queued(link) == Some(0);
            let index = match is_told {
                // The WAIT message to this sender is still in the connection's queue.
                false => Err(Stopped::Wait),
                true => self.let_in(now, sender),
            };
            match index {
                Ok(index) => {
                    if let Some(door) = &mut self.door {
                        door.line.leave(link);
                    }
                    self.come_in(now, link, index);
                }
                Err(Stopped::Refused(refusal)) => self.refuse(link, refusal),
                Err(Stopped::Wait) => tries += 1,
            }
            if tries == TRIES_MAX {
                return;
            }
        }
        if let Some(door) = &mut self.door {
            door.line.look_at = now;
        }
    }

    /// Does what is due at the door. Closes connections whose peer has not said in time who it is.
    /// Tells senders in line that they still wait, so that they know that this end works.
    pub(super) fn mind_door(&mut self, now: Instant) {
        let Some(door) = &mut self.door else {
            return;
        };
        self.counters.callers_late += door.listener.expire(now);
        while let Some(link) = door.line.tell_next(now) {
            let links = &mut door.listener.links;
            if links.queued(link) == Some(0) {
                let is_queued = links.queue(link, &Message::Wait);
                debug_assert!(is_queued, "nothing is queued before it");
            }
        }
    }

    /// Closes the door: tells senders in line that this receiver is over, and closes the
    /// connections whose peer has not said who it is.
    pub(super) fn close_line(&mut self) {
        let links = self.door.iter().flat_map(|door| door.line.links());
        let links: Vec<LinkId> = links.collect();
        for link in links {
            self.refuse(link, Refusal::Over);
        }
        if let Some(door) = &mut self.door {
            self.counters.callers_refused += door.listener.close_greeting();
        }
    }

    /// Notes that a sender at `host` has made an offer that is not declined. Where senders dial
    /// this receiver, the limits on dials then no longer count that sender's dial.
    pub(super) fn answered(&mut self, host: IpAddr) {
        if self.door.is_some() {
            self.dials.answered(host);
        }
    }

    /// Tells the owner that a sender was refused, once for each sender.
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

/// The most senders that one call of [`Transfers::serve_line`] may find no place for. [`TURNS_MAX`]
/// is the most senders that have a turn in one call. Each turn costs a look at all transfers.
const TRIES_MAX: u32 = 4;
const TURNS_MAX: u32 = 64;
