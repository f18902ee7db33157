//! The door of a receiver that senders dial: who knocks, who comes in, who waits, and what others
//! are told.
//!
//! ```text
//!   accepted --> greets --INVITE--> sender known?  --> its transfer goes on with this connection
//!                  |                  | admitted? --> in line --WAIT--.
//!                  '--too late        '-- else REFUSED                |  a place is free
//!                                     a new transfer asks what it offers <--'
//! ```
//!
//! A sender that dials is known by its host and its session, because its port changes with each
//! connection. The bounds are those for senders that are heard by their marks: the number of
//! transfers, the admission, and how often a host is asked what it offers. A sender that was asked
//! and has not answered is not asked again for a while.
//!
//! Whoever may not be asked at once waits in line, connected, so that nobody is refused in a rush.
//! Every host has its turn, and half of the line at most. One that waits costs its connection.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, LinkEvent, LinkId, Party, Share};
use wire::{
    object::{Invite, Message, Refusal},
    pgm::Mark,
};

use super::{Intake, Sender, State, Transfers, admission::Place};
use crate::{
    control::{Crowd, Listener, features},
    parameters::{GREETING_TIMEOUT, SENDERS_LOOK_INTERVAL},
};

/// The connections that belong to no transfer.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) listener: Listener,
    /// The senders that wait for a place, and below, by their hosts.
    waiting: BTreeMap<LinkId, Sender>,
    line: Crowd,
    /// The host that had its turn last.
    last: Option<Party>,
    /// When to look at the line next, while senders wait.
    look_at: Instant,
}

impl Door {
    fn new(waiting_max: usize) -> Self {
        // A door serves no session of its own, so the session's number means nothing.
        let waiting_max = u32::try_from(waiting_max).unwrap_or(u32::MAX);
        Self {
            listener: Listener::new(0, waiting_max, GREETING_TIMEOUT),
            waiting: BTreeMap::new(),
            line: Crowd::default(),
            last: None,
            look_at: Instant::NEVER,
        }
    }

    /// Says when the door is to be looked at although nobody knocks.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let look_at = (!self.waiting.is_empty()).then_some(self.look_at);
        base::earliest(self.listener.next_deadline(), look_at)
    }

    fn leave_line(&mut self, link: LinkId) {
        self.waiting.remove(&link);
        self.line.remove(link);
    }
}

/// Why a sender is not let in.
enum Stopped {
    /// It may be in a while: it waits in line.
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
                if door.waiting.contains_key(&link) {
                    // Who waits has nothing to say.
                    return self.refuse(link, Refusal::Protocol);
                }
                let listener = &mut door.listener;
                let Some(mut decoder) = listener.links.take_decoder(link) else {
                    return;
                };
                decoder.push(data);
                let word = listener.next_invitation(link, &mut decoder);
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
                door.leave_line(link);
                door.listener.forget(link);
            }
            LinkEvent::Opened => {}
        }
    }

    fn refuse(&mut self, link: LinkId, reason: Refusal) {
        self.counters.callers_refused += 1;
        if let Some(door) = &mut self.door {
            door.leave_line(link);
            door.listener.refuse(link, reason);
        }
    }

    /// Takes in a sender that says what session it has, has it wait, or refuses it.
    fn invited(&mut self, now: Instant, link: LinkId, peer: SocketAddr, invite: &Invite) {
        let sender = sender_of(peer, invite.session_id);
        let known = self.all.iter().position(|t| t.sender == sender);
        let known = known.filter(|&index| self.all[index].state != State::Leaving);
        match known {
            Some(index) if self.all[index].receiver.is_over() => self.refuse(link, Refusal::Over),
            Some(index) => self.come_in(now, link, index),
            None => match self.may_wait(now, sender, invite) {
                Ok(()) => self.queue(now, link, sender),
                Err(refusal) => self.refuse(link, refusal),
            },
        }
    }

    /// Goes on with the transfer at `index` on this connection.
    fn come_in(&mut self, now: Instant, link: LinkId, index: usize) {
        let door = self.door.as_mut();
        if let Some(entry) = door.and_then(|door| door.listener.hand_over(link)) {
            let sender = self.all[index].sender;
            let called = (sender.address, sender.session_id);
            let receiver = &mut self.all[index].receiver;
            receiver.answer_call(now, called, link, entry);
            self.settle(now, index);
        }
    }

    /// Says whether a new sender may have a place at some time.
    fn may_wait(&mut self, now: Instant, sender: Sender, invite: &Invite) -> Result<(), Refusal> {
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
        match self.turned_away.rests(now, &sender) {
            true => Err(Refusal::Busy),
            false => Ok(()),
        }
    }

    /// Lets a new sender in if it is its turn; otherwise it waits, if the line has room for it.
    fn queue(&mut self, now: Instant, link: LinkId, sender: Sender) {
        let is_first = self.door.as_ref().is_some_and(|it| it.waiting.is_empty());
        if is_first {
            match self.let_in(now, sender) {
                Ok(index) => return self.come_in(now, link, index),
                Err(Stopped::Refused(refusal)) => return self.refuse(link, refusal),
                Err(Stopped::Wait) => {}
            }
        }
        let Some(door) = &mut self.door else {
            return;
        };
        let (host, waiting_max) = (sender.address.ip(), self.config.waiting_max);
        let share = door.line.share(waiting_max.div_ceil(2), waiting_max, host);
        let has_room = share == Share::Free && door.waiting.len() < waiting_max;
        if !has_room || !door.listener.links.queue(link, &Message::Wait) {
            self.counters.senders_full += 1;
            let text = "as many senders as it takes are being served; it was told to come later";
            self.tell_refused(sender, text.to_owned());
            return self.refuse(link, Refusal::Busy);
        }
        if door.waiting.is_empty() {
            door.look_at = now + SENDERS_LOOK_INTERVAL;
        }
        door.listener.keep_waiting(link);
        door.waiting.insert(link, sender);
        door.line.add(link, host);
        self.counters.callers_waited += 1;
    }

    /// Makes a transfer for a new sender, whose turn it is; returns its index.
    fn let_in(&mut self, now: Instant, sender: Sender) -> Result<usize, Stopped> {
        if self.turned_away.rests(now, &sender) {
            return Err(Stopped::Refused(Refusal::Busy));
        }
        let late = match self.place_for(now, &sender) {
            Place::Free => None,
            Place::InsteadOf(late) => Some(late),
            Place::Never => return Err(Stopped::Refused(Refusal::Busy)),
            Place::Later | Place::Full | Place::NoShare(_) => return Err(Stopped::Wait),
        };
        let is_first = !self.turned_away.is_known(&sender);
        let host = sender.address.ip();
        if !self.dials.take(now, host, is_first, &mut self.rng) {
            self.counters.senders_put_off += 1;
            return Err(Stopped::Wait);
        }
        self.prospect(now, sender, None, late);
        Ok(self.all.len() - 1)
    }

    /// Lets in who waits, host by host, while there are places. Each call tries a few hosts, and
    /// the next one goes on with others.
    pub(super) fn serve_line(&mut self, now: Instant) {
        let mut tries = 0;
        while tries < TRIES_MAX {
            let Some(door) = &mut self.door else {
                return;
            };
            let Some((host, link)) = door.line.next_host(door.last) else {
                return;
            };
            door.last = Some(host);
            door.look_at = now + SENDERS_LOOK_INTERVAL;
            let Some(&sender) = door.waiting.get(&link) else {
                return;
            };
            if door.listener.links.queued(link) != Some(0) {
                // It has not yet been told that it waits.
                tries += 1;
                continue;
            }
            // Its other connection may have brought it in meanwhile.
            let known = self.all.iter().position(|t| t.sender == sender);
            let index = match known.filter(|&index| self.all[index].state != State::Leaving) {
                Some(index) if self.all[index].receiver.is_over() => {
                    Err(Stopped::Refused(Refusal::Over))
                }
                Some(index) => Ok(index),
                None => self.let_in(now, sender),
            };
            match index {
                Ok(index) => {
                    if let Some(door) = &mut self.door {
                        door.leave_line(link);
                    }
                    self.come_in(now, link, index);
                }
                Err(Stopped::Refused(refusal)) => self.refuse(link, refusal),
                Err(Stopped::Wait) => tries += 1,
            }
        }
    }

    /// Tells everybody who waits that nobody comes in any more.
    pub(super) fn close_line(&mut self) {
        let links = self.door.iter().flat_map(|door| door.waiting.keys());
        let links: Vec<LinkId> = links.copied().collect();
        for link in links {
            self.refuse(link, Refusal::Over);
        }
    }

    /// Notes that a sender at `host` has answered: further ones of it may be asked.
    pub(super) fn answered(&mut self, host: IpAddr) {
        if self.door.is_some() {
            self.dials.answered(host);
        }
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

/// How many hosts of the line are tried at a time: each costs a look at all transfers.
const TRIES_MAX: u32 = 4;
