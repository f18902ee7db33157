//! The polls by which one sender counts its receivers, and the replies of one receiver or network
//! element to them.
//!
//! The module makes no packets and decides nothing about the sender. In: POLLs of a sender that the
//! receiver or element follows, time. Out: when to reply, and with what. A poll costs its sender
//! one packet, and brings at most one shorter packet from each host that it reaches.
//!
//! ```text
//!            random bits match                  due: POLR
//!   Quiet ----------------------> Waiting ---------------> Quiet
//!                                  |   ^ a later round of the poll: new time
//!                                  '---'
//!                                  '---> Quiet   a poll with another number
//! ```
//!
//! Only receivers that heard the first round reply to later rounds. So a poll counts the receivers
//! of one moment.
//!
//! **Spec**: RFC 3208 sections 14.3, 14.5.

use std::{net::IpAddr, time::Duration};

use base::{Instant, Rng};
use wire::{
    Sqn,
    pgm::{Poll, Polr},
};

/// The state of one sender's polls at a receiver or network element.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polls {
    /// Sequence number and round of the latest poll heard.
    last: Option<(Sqn, u16)>,
    /// Sequence number of the latest poll whose first round was heard.
    opened: Option<Sqn>,
    reply: Option<Reply>,
}

/// A reply that waits for its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    due: Instant,
    /// The address to which the reply goes, as the poll says.
    pub(crate) path_nla: IpAddr,
    pub(crate) polr: Polr,
}

impl Polls {
    /// Takes a POLL. `node_bits` are this host's own random bits, drawn once.
    pub(crate) fn heard(&mut self, now: Instant, poll: &Poll, node_bits: u32, rng: &mut Rng) {
        let this = (poll.sqn, poll.round);
        if self.last.is_some_and(|(sqn, _)| sqn != poll.sqn) {
            self.reply = None;
        }
        if poll.round == 0 {
            self.opened = Some(poll.sqn);
        }
        let is_repeated = self.last.replace(this) == Some(this);
        let is_opened = self.opened == Some(poll.sqn);
        let is_drawn = (poll.random ^ node_bits) & poll.mask == 0;
        if is_repeated || !is_opened || !is_drawn || poll.sub_type != Poll::GENERAL {
            return;
        }
        let wait = rng.duration_up_to(Duration::from_micros(u64::from(poll.back_off_us)));
        self.reply = Some(Reply {
            due: now + wait,
            path_nla: poll.path_nla,
            polr: Polr {
                sqn: poll.sqn,
                round: poll.round,
            },
        });
    }

    /// Returns true when the latest poll whose first round was heard has the sequence number `sqn`
    /// or an earlier one; false when no first round was heard.
    pub(crate) fn has_opened(&self, sqn: Sqn) -> bool {
        self.opened
            .is_some_and(|opened| opened == sqn || sqn.is_after(opened))
    }

    /// Returns the time at which the waiting reply is due; [`Instant::NEVER`] when none waits.
    pub(crate) fn due(&self) -> Instant {
        self.reply.map_or(Instant::NEVER, |reply| reply.due)
    }

    /// Takes the reply that is due.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Reply> {
        self.reply.take_if(|reply| reply.due <= now)
    }
}
