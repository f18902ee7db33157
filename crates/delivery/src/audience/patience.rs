//! How long guests (receivers that nobody expects and that have no key) may hold the others back.
//!
//! Anybody can be a guest, and under any number of names. So all guests of a host share one account
//! of the time for which they held back the receivers of other hosts. A quarter of the time that
//! passes is given back to each account. All hosts of an IPv6 /64 together have one more account,
//! because a host may have any number of addresses in such a network. Whenever one of these hosts
//! holds others back, two thirds of that time also go into the account of the network.
//!
//! ```text
//!            --account above GUEST_PATIENCE----------->
//!   awaited                                             not awaited: they may lose data
//!            <--account at most 4/5 of GUEST_PATIENCE--
//! ```
//!
//! Invariant: a host without an account has not held others back for long lately.
//!
//! There are few accounts, because an account is removed when it is empty. In a second, all of them
//! together grow by less than two seconds, and each of them shrinks by a quarter of a second.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use base::{Instant, Party, parameters::NETWORK_PATIENCE};
use wire::object::StreamPhase;

use super::{Audience, AudienceEvent};
use crate::{
    SourceState,
    parameters::{GUEST_PATIENCE, GUEST_SHARE},
};

/// The accounts of the hosts whose guests have held others back, and of the networks of these
/// hosts.
#[derive(Debug, Default)]
pub(super) struct Patience {
    accounts: BTreeMap<Party, Account>,
    /// The time of the last [`Patience::observe`], and the host whose guest held the others back
    /// then; `None` when none did.
    seen: Option<(Instant, IpAddr)>,
    looked_at: Instant,
}

#[derive(Debug, Default)]
struct Account {
    /// How long guests of this host have held others back, minus the time given back so far. In the
    /// account of a network, two thirds of its hosts' time are entered.
    spent: Duration,
    is_over: bool,
}

impl Patience {
    /// Notes the host whose guest holds the others back; `None` when none does.
    pub(super) fn observe(&mut self, now: Instant, holder: Option<IpAddr>) {
        if let Some((at, host)) = self.seen {
            let time = now.since(at);
            self.accounts.entry(Party::host(host)).or_default().spent += time;
            if let Some(network) = Party::network(host) {
                self.accounts.entry(network).or_default().spent += time * 100 / NETWORK_PATIENCE;
            }
        }
        self.seen = holder.map(|host| (now, host));
    }

    /// Reduces each account by the time that is given back to it, and decides for which hosts'
    /// guests the sender waits. Returns false when there were no accounts.
    fn look(&mut self, now: Instant) -> bool {
        let back = now.since(self.looked_at) / GUEST_SHARE;
        self.looked_at = now;
        let had_accounts = !self.accounts.is_empty();
        self.accounts.retain(|_, account| {
            account.spent = account.spent.saturating_sub(back);
            let limit = if account.is_over {
                GUEST_PATIENCE * 4 / 5
            } else {
                GUEST_PATIENCE
            };
            account.is_over = account.spent > limit;
            !account.spent.is_zero()
        });
        had_accounts
    }

    /// Returns true when the sender does not wait for the guests of `host`.
    pub(super) fn is_over(&self, host: IpAddr) -> bool {
        let is_over = |it| {
            self.accounts
                .get(&it)
                .is_some_and(|account| account.is_over)
        };
        Party::all_of(host).any(is_over)
    }
}

impl Audience {
    /// Returns the host of the receiver for which the source waits, if that receiver is a slow
    /// guest. A guest is slow when it is more than twice as far behind as the best receiver on
    /// another host. `None` also while the source waits for nobody, or all receivers are on one
    /// host.
    pub(super) fn holder(&self, source: &SourceState) -> Option<IpAddr> {
        let waits = source.is_held || source.phase != StreamPhase::Open;
        if !waits || self.hosts.len() < 2 {
            return None;
        }
        let &(slowest, link) = self.order.first()?;
        let tracked = &self.tracked[&link];
        let end = source.lead + 1;
        if !self.is_guest(tracked.slot) || slowest >= end {
            return None;
        }
        let host = tracked.peer.ip().to_canonical();
        let is_elsewhere = |link| self.tracked[link].peer.ip().to_canonical() != host;
        // When the `LOOKED_AT_MAX` receivers that are furthest ahead are all on the guest's own
        // host, the search ends, and the guest counts as slow.
        let mut ahead = self.order.iter().rev().take(LOOKED_AT_MAX);
        let best = ahead.find(|(_, link)| is_elsewhere(link));
        let best = best.map_or(end, |&(position, _)| position);
        let is_slow = end - slowest > (end - best.min(end)).saturating_mul(2);
        is_slow.then_some(host)
    }

    /// Stops waiting for guests of hosts that have held the others back for too long. Waits again
    /// for guests of hosts whose accounts have shrunk to 4/5 of `GUEST_PATIENCE`.
    pub(super) fn lose_patience(&mut self, now: Instant) {
        if !self.patience.look(now) {
            return;
        }
        let mut passed_over = Vec::new();
        for (&link, tracked) in &mut self.tracked {
            let is_guest = self
                .config
                .guests_from()
                .is_some_and(|it| tracked.slot >= it);
            let host = tracked.peer.ip().to_canonical();
            let is_awaited = !(is_guest && self.patience.is_over(host));
            if is_awaited == tracked.is_awaited {
                continue;
            }
            tracked.is_awaited = is_awaited;
            if is_awaited {
                self.order.insert((tracked.contiguous, link));
            } else {
                self.order.remove(&(tracked.contiguous, link));
                passed_over.push((tracked.slot, tracked.name.clone()));
            }
        }
        for (slot, name) in passed_over {
            self.counters.passed_over += 1;
            self.event(AudienceEvent::PassedOver { slot, name });
        }
    }
}

/// The most receivers that are looked at, from the one furthest ahead on, to find one that is not
/// on the slowest guest's host. The number is a judgement.
const LOOKED_AT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_address_of_its_network_uses_up_its_own_account() {
        let host = |n: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
        let mut patience = Patience::default();
        let begin = Instant::from_nanos(1_000_000_000);
        patience.observe(begin, Some(host(0)));
        let end = begin + GUEST_PATIENCE + GUEST_PATIENCE / 4;
        patience.looked_at = end;
        patience.observe(end, None);
        assert!(patience.look(end));
        assert!(patience.is_over(host(0)));
        assert!(!patience.is_over(host(1)), "another host of its network");
        patience.observe(end, Some(host(0)));
        patience.observe(end + GUEST_PATIENCE, None);
        patience.looked_at = end + GUEST_PATIENCE;
        patience.look(end + GUEST_PATIENCE);
        assert!(patience.is_over(host(1)), "its network has held long");
    }
}
