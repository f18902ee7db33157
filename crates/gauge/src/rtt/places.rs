//! The places of a TCP reflector: which clients get one, and which lose theirs. This module
//! decides; it neither listens nor answers.
//!
//! Each client is answered by a thread of its own, so there are only [`PLACES_MAX`] places. A host
//! has at most [`PLACES_PER_HOST_MAX`] of them, a network at most three quarters ([`share`]). A
//! client that sends no message for [`IDLE_MAX`] loses its place. So no host keeps the others out.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::{Instant, Share, share};

/// All places of a reflector.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Taken>);

/// A place, shared with the thread that answers the client.
#[derive(Debug)]
pub(super) struct TcpPlace {
    host: IpAddr,
    messages: AtomicU64,
    is_ended: AtomicBool,
}

#[derive(Debug)]
struct Taken {
    place: Arc<TcpPlace>,
    /// The number of messages at the last count, and the time when it last grew.
    messages: u64,
    active: Instant,
}

impl Places {
    /// Gives a place to a client at `host`; `None` when there is none for it.
    pub(super) fn take(&mut self, host: IpAddr, now: Instant) -> Option<Arc<TcpPlace>> {
        let hosts = self.0.iter().map(|it| it.place.host);
        let has_share = share(PLACES_PER_HOST_MAX, PLACES_MAX, hosts, host) == Share::Free;
        if self.0.len() >= PLACES_MAX || !has_share {
            return None;
        }
        let place = Arc::new(TcpPlace {
            host,
            messages: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
        });
        self.0.push(Taken {
            place: Arc::clone(&place),
            messages: 0,
            active: now,
        });
        Some(place)
    }

    /// Ends the clients that said nothing for [`IDLE_MAX`]; returns how many.
    pub(super) fn end_idle(&mut self, now: Instant) -> u64 {
        let mut ended = 0;
        for taken in self.0.iter_mut().filter(|it| !it.place.is_ended()) {
            let messages = taken.place.messages.load(Ordering::Relaxed);
            if messages != taken.messages {
                (taken.messages, taken.active) = (messages, now);
            } else if now.since(taken.active) > IDLE_MAX {
                taken.place.end();
                ended += 1;
            }
        }
        ended
    }

    /// Frees the place of a client that has gone.
    pub(super) fn leave(&mut self, place: &Arc<TcpPlace>) {
        self.0.retain(|it| !Arc::ptr_eq(&it.place, place));
    }
}

impl TcpPlace {
    /// Notes that a message has come.
    pub(super) fn note(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the client.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }
}

/// The most places: each costs a thread.
const PLACES_MAX: usize = 64;
/// The most places of a host: a measurement takes one, and a host may make a few at a time.
const PLACES_PER_HOST_MAX: usize = 8;
/// How long a client may be silent: even the slowest schedule sends a message each second.
const IDLE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_host_has_its_share_and_keeps_it_by_messages() {
        let mut places = Places::default();
        let greedy = [10, 0, 0, 1].into();
        let taken: Vec<_> = (0..PLACES_MAX)
            .filter_map(|_| places.take(greedy, at(0)))
            .collect();
        assert_eq!(taken.len(), PLACES_PER_HOST_MAX);
        let other = places.take([10, 0, 0, 2].into(), at(0));
        assert!(other.is_some(), "a host took all places");
        taken[0].note();
        assert_eq!(places.end_idle(at(5)), 0);
        assert_eq!(places.end_idle(at(6)), PLACES_PER_HOST_MAX as u64);
        assert!(!taken[0].is_ended() && taken[1].is_ended());
        assert_eq!(places.end_idle(at(7)), 0, "each is ended once");
        for place in &taken[1..] {
            places.leave(place);
        }
        assert!(places.take(greedy, at(7)).is_some());
    }

    #[test]
    fn hosts_of_one_network_have_their_share_each() {
        let mut places = Places::default();
        let host = |n: u16| -> IpAddr { [0xfe80, 0, 0, 0, 0, 0, 0, n].into() };
        let taken = |places: &mut Places, n| {
            let tries = (0..PLACES_MAX).filter(|_| places.take(host(n), at(0)).is_some());
            tries.count()
        };
        let each: Vec<usize> = (1..=7).map(|n| taken(&mut places, n)).collect();
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
        let mut places = Places::default();
        let hosts = (0..=u8::MAX).map(|n| [10, 0, 0, n].into());
        assert_eq!(
            hosts.filter_map(|it| places.take(it, at(0))).count(),
            PLACES_MAX
        );
    }
}
