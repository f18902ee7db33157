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
    /// The sender takes no place of its own: it may continue a transfer that has lost its sender.
    Claim,
    /// The sender may be asked in place of an earlier sender, which has not answered for a while.
    /// This is the index of the earlier sender's transfer.
    InsteadOf(usize),
    /// The sender may not be asked yet: as many senders as allowed are being asked, or the store of
    /// an ended transfer is still at work.
    Later,
    /// All places for transfers are taken, and this sender continues no transfer.
    Full,
    /// This host or network has as many transfers as its share allows, and this sender continues
    /// none of them.
    NoShare(Share),
    /// This receiver will never want the sender's offers.
    Never,
}

/// What to do with an offer.
#[derive(Debug)]
pub(super) enum Decision<S> {
    Take(S),
    /// The offer continues the transfer with this index, in the session of the offer's sender.
    Continue(usize),
    /// There is no place any more. The sender, which has dialled this receiver, dials again and
    /// waits in line.
    PutOff,
    Decline(Decline),
}

impl<S: Store> Transfer<S> {
    fn is_under_way(&self) -> bool {
        self.state == State::Accepted && !self.receiver.is_over()
    }

    fn is_lost(&self) -> bool {
        self.is_under_way() && !self.receiver.is_connected()
    }

    fn is_asked(&self) -> bool {
        self.state == State::Asking && !self.receiver.is_over()
    }

    fn is_of(&self, host: IpAddr) -> bool {
        self.sender.address.ip().to_canonical() == host.to_canonical()
    }

    /// Returns true when a sender at `host` may be this transfer's own sender, restarted. A sender
    /// at another address must have the key, and the transfer must have lost its connection.
    /// Without a key, such a sender could bring its own content under the first sender's name.
    fn may_continue_at(&self, host: IpAddr, has_key: bool) -> bool {
        self.is_of(host) || (has_key && !self.receiver.is_connected())
    }
}

impl<I: Intake> Transfers<I> {
    /// Notes that a packet stream from `source` was found; its first mark has yet to be looked at.
    /// Drops the stream if the owner does not admit senders at that host.
    pub fn found(&mut self, stream: u32, source: IpAddr) {
        let sender = Sender {
            address: SocketAddr::new(source, 0),
            session_id: 0,
        };
        self.is_host_admitted(stream, sender);
    }

    /// Returns true when the owner admits senders at this sender's host. Otherwise drops the
    /// stream, so that it takes no place that another stream needs, and tells the owner once about
    /// the sender.
    pub(super) fn is_host_admitted(&mut self, stream: u32, sender: Sender) -> bool {
        let Err(text) = self.intake.admit_host(sender.address.ip()) else {
            return true;
        };
        if self.turned_away.note(sender, true, &mut self.counters) {
            self.counters.senders_heard += 1;
            self.counters.senders_refused += 1;
            self.refused(sender, text);
        }
        self.unwanted(stream);
        false
    }

    pub(super) fn place_for(&mut self, now: Instant, sender: &Sender) -> Place {
        let host = sender.address.ip();
        let place = match () {
            () if self.config.is_single => self.place_beside_a_single_one(host),
            () if self.may_claim(sender) => Place::Claim,
            () => self.room_for(host, None),
        };
        if !matches!(place, Place::Free | Place::Claim) {
            return place;
        }
        let asked = self.all.iter().enumerate().filter_map(|(index, transfer)| {
            let since = transfer.receiver.asked_at().unwrap_or(now);
            let is_asked = transfer.state == State::Asking;
            is_asked.then(|| (index, transfer.sender.address.ip(), since))
        });
        // When senders dial this receiver, a host that was asked does not make other hosts wait.
        let counts = |whose| self.door.is_none() || whose == host;
        let is_fresh = |(_, whose, since)| counts(whose) && now.since(since) < ANSWER_EXPECTED;
        if self.config.is_single && asked.clone().any(is_fresh) {
            return Place::Later;
        }
        let seat = seat(now, host, self.config.prospects_max, asked, &mut self.rng);
        match seat {
            Seat::Free => place,
            // A sender that is late, perhaps on a slow path, keeps its seat: the new sender can
            // wait in line meanwhile.
            Seat::InsteadOf(_) if self.has_line() => Place::Later,
            Seat::InsteadOf(index) => Place::InsteadOf(index),
            Seat::None => Place::Later,
        }
    }

    /// Says whether a receiver of a single transfer may ask a sender at `host`.
    fn place_beside_a_single_one(&self, host: IpAddr) -> Place {
        if self.is_over() {
            return Place::Never;
        }
        if self.intake.stores_ending() >= self.config.transfers_max {
            // An earlier transfer gave way, and the earlier transfer's store is still at work.
            return Place::Later;
        }
        // While a transfer is under way, only its own sender may be asked: that sender may have
        // been restarted.
        let is_its = self.taken().next().is_some_and(|t| t.is_of(host));
        match self.all.iter().any(Transfer::is_under_way) && !is_its {
            true => Place::Never,
            false => Place::Free,
        }
    }

    /// Says whether there is a place for one more transfer from `host`. Two transfers do not count:
    /// the one with index `asked`, whose sender wants the place, and one that gives way to a
    /// transfer from `host`.
    ///
    /// Where senders wait in line, each sender that is asked already has a place, except a sender
    /// that was let in by [`Place::Claim`]. So it usually still has the place when its offer comes.
    fn room_for(&self, host: IpAddr, asked: Option<usize>) -> Place {
        let has_line = self.has_line();
        let has_place = |&(index, t): &(usize, &Transfer<I::Store>)| {
            let has_one = t.is_under_way() || (has_line && t.is_asked() && !t.is_claim);
            has_one && asked != Some(index) && !self.gives_way(t, host)
        };
        let having = || self.all.iter().enumerate().filter(has_place);
        if having().count() + self.intake.stores_ending() >= self.config.transfers_max {
            return Place::Full;
        }
        match self.share_of(having().map(|(_, transfer)| transfer), host) {
            Share::Free => Place::Free,
            share => Place::NoShare(share),
        }
    }

    /// Returns true when a sender may be asked without a place, because it may continue a transfer
    /// that has lost its sender. The transfer must be one from the sender's own host. With a key,
    /// and while no sender waits in line, it may be one from any host. For each such transfer, at
    /// most one sender at a time is asked without a place. A sender whose offer was put off is not
    /// asked in this way again: otherwise it could get ahead of the senders that wait in line.
    pub(super) fn may_claim(&self, sender: &Sender) -> bool {
        let host = sender.address.ip();
        let door = self.door.as_ref();
        let is_any_its = self.has_key() && door.is_none_or(|door| door.line.is_empty());
        let (mut own, mut all) = ((0, 0), (0, 0));
        for transfer in &self.all {
            let is_lost = usize::from(transfer.is_lost());
            let is_claim = usize::from(transfer.is_asked() && transfer.is_claim);
            all = (all.0 + is_lost, all.1 + is_claim);
            if transfer.is_of(host) {
                own = (own.0 + is_lost, own.1 + is_claim);
            }
        }
        let may = own.0 > own.1 || (is_any_its && all.0 > all.1);
        may && !self.turned_away.was_put_off(sender)
    }

    /// Decides what to do with the offer that came for the transfer at `index`.
    pub(super) fn decide(&mut self, index: usize, offer: &Offer) -> Decision<I::Store> {
        let sender = self.all[index].sender;
        let host = sender.address.ip();
        let is_same =
            |t: &Transfer<_>| t.is_under_way() && t.receiver.manifest_id() == Some(offer.manifest);
        match self.all.iter().position(is_same) {
            Some(twin) if self.all[twin].may_continue_at(host, self.has_key()) => {
                self.answered(host);
                return Decision::Continue(twin);
            }
            // The text does not say who the other sender is.
            Some(_) => {
                let text = "the same files are being received from another sender";
                return Decision::Decline(limit(text.to_owned()));
            }
            None => {}
        }
        let place = self.room_for(host, Some(index));
        if place != Place::Free && self.has_line() {
            self.answered(host);
            return Decision::PutOff;
        }
        let allowed = self
            .check_place(place, host)
            .and_then(|()| self.check_bytes(offer, host));
        match allowed.and_then(|()| self.intake.accept(&sender, offer)) {
            Ok(store) => {
                self.answered(host);
                Decision::Take(store)
            }
            Err(decline) => Decision::Decline(decline),
        }
    }

    /// Returns true when this receiver has a line, where senders wait until there is a place.
    const fn has_line(&self) -> bool {
        self.door.is_some() && !self.config.is_single
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

    /// Says in words how many transfers `host` may have. When `share` says that its network is
    /// full, says how many the network may have.
    pub(super) fn share_in_words(&self, share: Share, host: IpAddr) -> String {
        let (own_max, all_max) = (
            self.config.transfers_per_host_max,
            self.config.transfers_max,
        );
        match share {
            Share::NetworkFull => {
                let count = network_share(own_max, all_max);
                format!(
                    "{} from the network {}/64",
                    transfers(count),
                    network_of(host)
                )
            }
            Share::Free | Share::HostFull => format!("{} from {host}", transfers(own_max)),
        }
    }

    /// Says how many places for transfers there are, and what has taken them all.
    pub(super) fn in_use(&self) -> String {
        let most = transfers(self.config.transfers_max);
        match self.intake.stores_ending() {
            0 => format!("{most} at once, and all are under way"),
            ending => {
                format!("{most} at once, and {ending} that have ended still wait for its disk")
            }
        }
    }

    /// Checks that there is a place for an offer. The error is what the sender at `host` is told.
    fn check_place(&self, place: Place, host: IpAddr) -> Result<(), Decline> {
        match place {
            Place::Full => Err(limit(format!("this receiver takes {}", self.in_use()))),
            Place::NoShare(share) => {
                let most = self.share_in_words(share, host);
                Err(limit(format!("this receiver takes {most} at once")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the manifests of all transfers together stay within the byte limit for
    /// manifests.
    fn check_bytes(&self, offer: &Offer, host: IpAddr) -> Result<(), Decline> {
        let stays = |t: &&Transfer<_>| t.is_under_way() && !self.gives_way(t, host);
        let others = self.all.iter().filter(stays);
        let bytes = others.fold(offer.manifest_bytes, |sum, transfer| {
            sum.saturating_add(transfer.receiver.manifest_bytes())
        });
        let bytes_max = self.config.manifest_bytes_max;
        if bytes > bytes_max {
            return Err(limit(format!(
                "with this one, the lists of files of all transfers would take {bytes} bytes, and \
                 this receiver keeps at most {bytes_max}"
            )));
        }
        Ok(())
    }

    /// Returns true when a receiver of a single transfer gives that transfer up for another
    /// manifest from `host`. This is so when the transfer's sender is at that host and has given
    /// this receiver up. False while the store is putting files in place.
    pub(super) fn gives_way(&self, transfer: &Transfer<I::Store>, host: IpAddr) -> bool {
        self.config.is_single
            && transfer.state == State::Accepted
            && transfer.receiver.is_given_up()
            && transfer.receiver.progress().phase != Phase::Committing
            && transfer.is_of(host)
    }
}

/// Returns the number with its noun, such as `2 transfers`.
pub(super) fn transfers(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} transfer{plural}")
}

const fn limit(text: String) -> Decline {
    Decline {
        code: ErrorCode::Limit,
        text,
    }
}

/// The senders that were most recently turned away, in a bounded list.
#[derive(Debug, Default)]
pub(super) struct TurnedAway(VecDeque<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    sender: Sender,
    /// True when the sender is not dialled again. When false, the sender may be dialled again, but
    /// the event about it is not repeated.
    is_barred: bool,
    /// True when the sender was greeted, and there was no place for the transfer that it offered.
    is_put_off: bool,
    /// How often the sender has not answered. It is not dialled before `rests_until`.
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

    /// Remembers a sender for whose offer there was no place.
    pub(super) fn put_off(&mut self, sender: Sender, counters: &mut ObjectReceiverCounters) {
        let (known, _) = self.entry(sender, counters);
        known.is_put_off = true;
    }

    /// Remembers a sender that has not answered: it is dialled again after a while. Returns true
    /// when the sender was not yet among those turned away.
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

    /// Returns the entry of a sender, and true when the entry was made by this call.
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
            is_put_off: false,
            silences: 0,
            rests_until: Instant::ZERO,
        });
        let at = self.0.len() - 1;
        (&mut self.0[at], true)
    }

    pub(super) fn is_known(&self, sender: &Sender) -> bool {
        self.0.iter().any(|known| known.sender == *sender)
    }

    /// Returns true when a sender has not answered, and is not to be asked again yet.
    pub(super) fn rests(&self, now: Instant, sender: &Sender) -> bool {
        let mut known = self.0.iter();
        known.any(|known| known.sender == *sender && known.rests_until > now)
    }

    pub(super) fn was_put_off(&self, sender: &Sender) -> bool {
        let mut known = self.0.iter();
        known.any(|known| known.is_put_off && known.sender == *sender)
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
