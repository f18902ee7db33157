//! The places of a responder over TCP: which clients get one, and which lose theirs. This module
//! decides; it neither listens nor answers.
//!
//! Each client is answered by a thread of its own, so there are only so many places. A host has at
//! most a share of them, a network at most three quarters ([`share`]). A client that sends no whole
//! message for a while loses its place. So no host keeps the others out.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::{Instant, Share, share};

/// All places of a responder.
#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    taken: Vec<Taken>,
}

/// How many places there are, and how a client loses its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceLimits {
    /// The most places: each costs a thread.
    pub(crate) places_max: usize,
    /// The most places of a host: a measurement takes one, and a host may make a few at a time.
    pub(crate) own_max: usize,
    /// How long a client may go without a whole message.
    pub(crate) idle_max: Duration,
}

/// A place. The thread that answers the client holds it; it is free when nobody holds it any more.
#[derive(Debug)]
pub(crate) struct Place {
    host: IpAddr,
    messages: AtomicU64,
    is_ended: AtomicBool,
}

#[derive(Debug)]
struct Taken {
    place: Arc<Place>,
    /// The number of messages at the last count, and the time when it last grew.
    messages: u64,
    active: Instant,
}

impl Places {
    pub(crate) const fn new(limits: PlaceLimits) -> Self {
        let taken = Vec::new();
        Self { limits, taken }
    }

    /// Gives a place to a client at `host`; `None` when there is none for it.
    pub(crate) fn take(&mut self, host: IpAddr, now: Instant) -> Option<Arc<Place>> {
        self.taken.retain(|it| Arc::strong_count(&it.place) > 1);
        let PlaceLimits {
            places_max,
            own_max,
            ..
        } = self.limits;
        let hosts = self.taken.iter().map(|it| it.place.host);
        let has_share = share(own_max, places_max, hosts, host) == Share::Free;
        if self.taken.len() >= places_max || !has_share {
            return None;
        }
        let place = Arc::new(Place {
            host,
            messages: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
        });
        self.taken.push(Taken {
            place: Arc::clone(&place),
            messages: 0,
            active: now,
        });
        Some(place)
    }

    /// Ends the clients that have sent no whole message for [`PlaceLimits::idle_max`]; returns how
    /// many.
    pub(crate) fn end_idle(&mut self, now: Instant) -> u64 {
        let mut ended = 0;
        for taken in self.taken.iter_mut().filter(|it| !it.place.is_ended()) {
            let messages = taken.place.messages.load(Ordering::Relaxed);
            if messages != taken.messages {
                (taken.messages, taken.active) = (messages, now);
            } else if now.since(taken.active) > self.limits.idle_max {
                taken.place.end();
                ended += 1;
            }
        }
        ended
    }

    /// Ends all clients.
    pub(crate) fn end_all(&self) {
        self.taken.iter().for_each(|it| it.place.end());
    }
}

impl Place {
    /// Notes that a whole message has come.
    pub(crate) fn note(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the client.
    fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PlaceLimits = PlaceLimits {
        places_max: 64,
        own_max: 8,
        idle_max: Duration::from_secs(5),
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_host_has_its_share_and_keeps_it_by_messages() {
        let mut places = Places::new(LIMITS);
        let greedy = [10, 0, 0, 1].into();
        let mut taken: Vec<_> = (0..64).filter_map(|_| places.take(greedy, at(0))).collect();
        assert_eq!(taken.len(), 8);
        let other = places.take([10, 0, 0, 2].into(), at(0));
        assert!(other.is_some(), "a host took all places");
        taken[0].note();
        assert_eq!(places.end_idle(at(5)), 0);
        assert_eq!(places.end_idle(at(6)), 8, "seven of it, and the other one");
        assert!(!taken[0].is_ended() && taken[1].is_ended());
        assert_eq!(places.end_idle(at(7)), 0, "each is ended once");
        assert!(places.take(greedy, at(7)).is_none(), "its threads run on");
        taken.truncate(1);
        assert!(places.take(greedy, at(7)).is_some());
        places.end_all();
        assert!(taken[0].is_ended());
    }

    #[test]
    fn hosts_of_one_network_have_their_share_each() {
        let mut places = Places::new(LIMITS);
        let host = |n: u16| -> IpAddr { [0xfe80, 0, 0, 0, 0, 0, 0, n].into() };
        let mut held = Vec::new();
        let each: Vec<usize> = (1..=7)
            .map(|n| {
                let before = held.len();
                held.extend((0..64).filter_map(|_| places.take(host(n), at(0))));
                held.len() - before
            })
            .collect();
        assert_eq!(
            each,
            [8, 8, 8, 8, 8, 8, 0],
            "48 of 64 places are a network's"
        );
        let elsewhere = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        assert!(places.take(elsewhere, at(0)).is_some());
    }

    #[test]
    fn there_is_an_end_to_places() {
        let mut places = Places::new(LIMITS);
        let hosts = (0..=u8::MAX).map(|n| [10, 0, 0, n].into());
        let held: Vec<_> = hosts.filter_map(|it| places.take(it, at(0))).collect();
        assert_eq!(held.len(), 64);
    }
}
