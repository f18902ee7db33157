//! Decides which senders to ask for their offer, which sender continues a transfer, and which
//! offers to decline.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, Share, network_of, network_share, share};
use wire::object::{ErrorCode, Phase};

use super::{Decline, Intake, ObjectReceiverCounters, Sender, State, Transfer, Transfers};
use crate::parameters::{ANSWER_EXPECTED, TURNED_AWAY_MAX};
use crate::{
    Offer, Store,
    control::{Seat, back_off, seat},
};

/// Whether an unknown sender may be asked what it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// In place of the transfer with this index, whose sender has not answered for a while.
    InsteadOf(usize),
    /// As many senders as allowed are being asked.
    Later,
    /// As many transfers as allowed are under way, and this sender continues none of them.
    Full,
    /// The transfers of this host or network have reached its share, and this sender continues none
    /// of them.
    NoShare(Share),
    /// This receiver will never want the sender's offers.
    Never,
}

/// What to do with an offer.
#[derive(Debug)]
pub(super) enum Decision<S> {
    Take(S),
    /// The transfer with this index continues in the session of the sender that offers.
    Continue(usize),
    Decline(Decline),
}

impl<S: Store> Transfer<S> {
    fn is_under_way(&self) -> bool {
        self.state == State::Accepted && !self.receiver.is_over()
    }

    fn is_of(&self, host: IpAddr) -> bool {
        self.sender.address.ip() == host
    }

    /// Returns true when a sender at `host` may be this transfer's own sender, restarted. A sender
    /// at another address must have the key, and the transfer no connection. Without a key, such a
    /// sender could bring its own content under the first sender's name.
    fn may_continue_at(&self, host: IpAddr, has_key: bool) -> bool {
        self.is_of(host) || (has_key && !self.receiver.is_connected())
    }
}

impl<I: Intake> Transfers<I> {
    /// Takes a packet stream from `source` that has no mark yet. When the owner admits no sender at
    /// that host, the stream is dropped before it takes a place that another one needs.
    pub fn found(&mut self, stream: u32, source: IpAddr) {
        let Err(text) = self.intake.admit_host(source) else {
            return;
        };
        let sender = Sender {
            address: SocketAddr::new(source, 0),
            session_id: 0,
        };
        if self.turned_away.note(sender, true, &mut self.counters) {
            self.counters.senders_heard += 1;
            self.counters.senders_refused += 1;
            self.refused(sender, text);
        }
        self.unwanted(stream);
    }

    pub(super) fn place_for(&mut self, now: Instant, sender: &Sender) -> Place {
        let host = sender.address.ip();
        let under_way = || self.all.iter().filter(|t| t.is_under_way());
        let may_continue = |t: &Transfer<_>| t.may_continue_at(host, self.has_key());
        let count = under_way().count();
        let (ending, places) = (self.intake.stores_ending(), self.config.transfers_max);
        if self.config.is_single && ending >= places && !self.is_over() {
            // A transfer gave way to another one, and its store still works.
            return Place::Later;
        }
        if self.config.is_single && (count > 0 || self.is_over()) {
            // Only the transfer's own sender matters from here on; it may have been restarted.
            let is_its = self.taken().next().is_some_and(|t| t.is_of(host));
            if !is_its || self.is_over() {
                return Place::Never;
            }
        } else if count + ending >= places && !under_way().any(may_continue) {
            // A sender that continues a transfer takes no place of its own.
            return Place::Full;
        } else if !under_way().any(|t| may_continue(t) && !t.receiver.is_connected()) {
            let share = self.share_of(under_way(), host);
            if share != Share::Free {
                return Place::NoShare(share);
            }
        }
        let asked = self.all.iter().enumerate().filter_map(|(index, transfer)| {
            let since = transfer.receiver.asked_at().unwrap_or(now);
            let is_asked = transfer.state == State::Asking;
            is_asked.then(|| (index, transfer.sender.address.ip(), since))
        });
        // Where senders dial, a host that was asked does not make another host wait.
        let counts = |whose| self.door.is_none() || whose == host;
        let is_fresh = |(_, whose, since)| counts(whose) && now.since(since) < ANSWER_EXPECTED;
        if self.config.is_single && asked.clone().any(is_fresh) {
            return Place::Later;
        }
        match seat(now, host, self.config.prospects_max, asked, &mut self.rng) {
            Seat::Free => Place::Free,
            Seat::InsteadOf(index) => Place::InsteadOf(index),
            Seat::None => Place::Later,
        }
    }

    pub(super) fn decide(&mut self, sender: &Sender, offer: &Offer) -> Decision<I::Store> {
        let is_same =
            |t: &Transfer<_>| t.is_under_way() && t.receiver.manifest_id() == Some(offer.manifest);
        let allowed = match self.all.iter().position(is_same) {
            Some(twin) if self.all[twin].may_continue_at(sender.address.ip(), self.has_key()) => {
                self.answered(sender.address.ip());
                return Decision::Continue(twin);
            }
            // The sender learns nothing about the other sender.
            Some(_) => Err(limit(
                "the same files are being received from another sender".to_owned(),
            )),
            None => self.check_bounds(offer),
        };
        match allowed.and_then(|()| self.intake.accept(sender, offer)) {
            Ok(store) => {
                self.answered(sender.address.ip());
                Decision::Take(store)
            }
            Err(decline) => Decision::Decline(decline),
        }
    }

    /// Returns true while a transfer under way has lost its sender at `host`.
    pub(super) fn has_lost_one_of(&self, host: IpAddr) -> bool {
        let is_lost =
            |t: &Transfer<_>| t.is_of(host) && t.is_under_way() && !t.receiver.is_connected();
        self.all.iter().any(is_lost)
    }

    fn has_key(&self) -> bool {
        self.config.receiver.key.is_some()
    }

    /// Says whether a sender at `host` may have one more transfer beside `transfers`.
    fn share_of<'t>(
        &self,
        transfers: impl Iterator<Item = &'t Transfer<I::Store>>,
        host: IpAddr,
    ) -> Share
    where
        I::Store: 't,
    {
        let hosts = transfers.map(|transfer| transfer.sender.address.ip());
        let (own_max, all_max) = (
            self.config.transfers_per_host_max,
            self.config.transfers_max,
        );
        share(own_max, all_max, hosts, host)
    }

    /// Says in words how many transfers `host` may have, or its network when the network's share is
    /// used up.
    pub(super) fn share_in_words(&self, share: Share, host: IpAddr) -> String {
        let (own_max, all_max) = (
            self.config.transfers_per_host_max,
            self.config.transfers_max,
        );
        match share {
            Share::NetworkFull => {
                let count = network_share(own_max, all_max);
                format!("{count} transfers from the network {}/64", network_of(host))
            }
            Share::Free | Share::HostFull => format!("{own_max} transfers from {host}"),
        }
    }

    fn check_bounds(&self, offer: &Offer) -> Result<(), Decline> {
        let host = offer.peer.ip();
        let (mut count, mut bytes) = (0, offer.manifest_bytes);
        let stays = |t: &&Transfer<_>| t.is_under_way() && !self.gives_way(t, host);
        for transfer in self.all.iter().filter(stays) {
            count += 1;
            bytes = bytes.saturating_add(transfer.receiver.manifest_bytes());
        }
        let (transfers_max, bytes_max) =
            (self.config.transfers_max, self.config.manifest_bytes_max);
        let ending = self.intake.stores_ending();
        if count + ending >= transfers_max {
            let text = match ending {
                0 => "all are under way".to_owned(),
                _ => format!("{ending} that are over still wait for its disk"),
            };
            return Err(limit(format!(
                "this receiver takes {transfers_max} transfers at once, and {text}"
            )));
        }
        let share = self.share_of(self.all.iter().filter(stays), host);
        if share != Share::Free {
            let most = self.share_in_words(share, host);
            return Err(limit(format!("this receiver takes {most} at once")));
        }
        if bytes > bytes_max {
            return Err(limit(format!(
                "with this one, the lists of files of all transfers would take {bytes} bytes, and \
                 this receiver keeps at most {bytes_max}"
            )));
        }
        Ok(())
    }

    /// Returns true when a receiver of a single transfer gives that transfer up for another
    /// manifest from `host`: the transfer's sender is at that host, and has given this receiver up.
    /// False while the store is putting files in place.
    pub(super) fn gives_way(&self, transfer: &Transfer<I::Store>, host: IpAddr) -> bool {
        self.config.is_single
            && transfer.state == State::Accepted
            && transfer.receiver.is_given_up()
            && transfer.receiver.progress().phase != Phase::Committing
            && transfer.is_of(host)
    }
}

const fn limit(text: String) -> Decline {
    Decline {
        code: ErrorCode::Limit,
        text,
    }
}

/// The senders that were turned away last; their number is bounded.
#[derive(Debug, Default)]
pub(super) struct TurnedAway(VecDeque<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    sender: Sender,
    /// True when the sender is not dialled again. When false, the sender may be dialled again; only
    /// the event about it is not repeated.
    is_barred: bool,
    /// How often the sender has not answered; until `rests_until` it is not dialled.
    silences: u32,
    rests_until: Instant,
}

impl TurnedAway {
    /// Remembers a sender; returns true when it was not known.
    pub(super) fn note(
        &mut self,
        sender: Sender,
        is_barred: bool,
        counters: &mut ObjectReceiverCounters,
    ) -> bool {
        let (known, is_new) = self.entry(sender, counters);
        known.is_barred |= is_barred;
        is_new
    }

    /// Remembers a sender that has not answered: it is dialled again after a while. Returns true
    /// when it was not among those turned away.
    pub(super) fn rest(
        &mut self,
        now: Instant,
        sender: Sender,
        counters: &mut ObjectReceiverCounters,
    ) -> bool {
        let (known, is_new) = self.entry(sender, counters);
        known.rests_until = now + back_off(known.silences);
        known.silences = known.silences.saturating_add(1);
        is_new
    }

    /// Returns what is known of a sender, and whether that is new.
    fn entry(
        &mut self,
        sender: Sender,
        counters: &mut ObjectReceiverCounters,
    ) -> (&mut Known, bool) {
        let at = self.0.iter().position(|known| known.sender == sender);
        if let Some(at) = at {
            return (&mut self.0[at], false);
        }
        if self.0.len() >= TURNED_AWAY_MAX as usize {
            self.0.pop_front();
            counters.senders_forgotten += 1;
        }
        self.0.push_back(Known {
            sender,
            is_barred: false,
            silences: 0,
            rests_until: Instant::ZERO,
        });
        let at = self.0.len() - 1;
        (&mut self.0[at], true)
    }

    pub(super) fn is_known(&self, sender: &Sender) -> bool {
        self.0.iter().any(|known| known.sender == *sender)
    }

    /// Returns true for a sender that has not answered, until a while is over.
    pub(super) fn rests(&self, now: Instant, sender: &Sender) -> bool {
        let mut known = self.0.iter();
        known.any(|known| known.sender == *sender && known.rests_until > now)
    }

    pub(super) fn is_barred(&self, sender: &Sender) -> bool {
        let mut known = self.0.iter();
        known.any(|known| known.is_barred && known.sender == *sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_turned_away_are_remembered_up_to_a_bound() {
        let sender = |session_id| Sender {
            address: SocketAddr::from(([10, 0, 0, 1], 4000)),
            session_id,
        };
        let mut away = TurnedAway::default();
        let counters = &mut ObjectReceiverCounters::default();
        for session in 0..=u64::from(TURNED_AWAY_MAX) {
            assert!(away.note(sender(session), true, counters));
        }
        assert_eq!(away.0.len(), TURNED_AWAY_MAX as usize);
        assert_eq!(counters.senders_forgotten, 1);
        assert!(away.is_barred(&sender(1)) && !away.is_barred(&sender(0)));
    }

    #[test]
    fn a_sender_that_was_told_about_once_may_be_barred_later_and_not_the_other_way_round() {
        let sender = Sender {
            address: SocketAddr::from(([10, 0, 0, 1], 4000)),
            session_id: 5,
        };
        let mut away = TurnedAway::default();
        let counters = &mut ObjectReceiverCounters::default();
        assert!(away.note(sender, false, counters) && !away.is_barred(&sender));
        assert!(!away.note(sender, true, counters) && away.is_barred(&sender));
        assert!(!away.note(sender, false, counters) && away.is_barred(&sender));
    }
}
