//! Who uses a server's only place, and for how long. This module decides; it neither listens nor
//! sends.
//!
//! ```text
//!   asks --> place free --------------------------------> Turn --> leaves, or its turn is over
//!        --> the other host is idle for 2 s ---> its turn is over, this one waits
//!        --> the other host measures ----------> this one waits for 3 s, then it is refused
//!        --> it had its 30 minutes ------------> refused for as long as it was served
//! ```
//! Two measurements at a time would disturb each other, so there is only one place. A host that
//! wants the place all the time gets half of the time: after [`SERVED_MAX`] it stays away for as
//! long as it was served. A host that comes back sooner continues with the time that it had left.
//! All addresses of a network together have a share of the time, [`NETWORK_SHARE`].

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::{Instant, Party, parameters::NETWORK_SHARE};

/// The place of one server.
#[derive(Debug, Default)]
pub(super) struct Place {
    turn: Option<Arc<Turn>>,
    /// The hosts that were served last, and their networks, oldest first.
    past: Vec<Past>,
}

/// The answer to a host that asks for the place.
#[derive(Debug)]
pub(super) enum Answer {
    /// The host gets the place.
    Served(Arc<Turn>),
    /// Another host has the place: ask again.
    Wait,
    /// The host had all its time, and may come again after this.
    Later(Duration),
}

/// The turn of a host: shared by the thread that serves the host and the one that gives out the
/// place.
#[derive(Debug)]
pub(super) struct Turn {
    host: IpAddr,
    began: Instant,
    /// How long the host and its network were served before, in turns that count together with this
    /// one.
    before: Vec<(Party, Duration)>,
    is_ended: AtomicBool,
    /// Since when the host is idle, in nanoseconds of the monotonic clock; [`Turn::BUSY`] in a
    /// trial.
    idle_since_ns: AtomicU64,
    trials: AtomicU32,
}

/// A host that was served, or its network.
#[derive(Debug)]
struct Past {
    who: Party,
    ended: Instant,
    served: Duration,
}

impl Past {
    /// Returns how long the host or network must still stay away if it had all its time.
    /// [`Duration::ZERO`] means that it may come back as if it had never been served.
    fn rest(&self, now: Instant) -> Duration {
        let away = match self.who {
            Party::Host(_) => self.served,
            Party::Network(_) => self.served * (100 - NETWORK_SHARE) / NETWORK_SHARE,
        };
        away.saturating_sub(now.since(self.ended))
    }
}

impl Place {
    /// Answers a host that asks for the place.
    pub(super) fn ask(&mut self, host: IpAddr, now: Instant) -> Answer {
        self.past.retain(|past| !past.rest(now).is_zero());
        let before = Party::all_of(host).map(|who| (who, self.served_to(who)));
        let before: Vec<_> = before.collect();
        let had_all = |past: &&Past| before.iter().any(|it| it.0 == past.who && is_all(*it));
        let rests = self.past.iter().filter(had_all).map(|past| past.rest(now));
        if let Some(rest) = rests.max() {
            return Answer::Later(rest);
        }
        if let Some(turn) = &self.turn {
            if turn.host != host && turn.idle(now) > IDLE_SHARED_MAX {
                turn.end();
            }
            return Answer::Wait;
        }
        let turn = Arc::new(Turn {
            host,
            began: now,
            before,
            is_ended: AtomicBool::new(false),
            idle_since_ns: AtomicU64::new(now.as_nanos()),
            trials: AtomicU32::new(0),
        });
        self.turn = Some(Arc::clone(&turn));
        Answer::Served(turn)
    }

    /// Frees the place: the host that has it has gone.
    pub(super) fn leave(&mut self, now: Instant) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        for (who, served) in turn.served(now) {
            self.past.retain(|past| past.who != who);
            if self.past.len() == PAST_MAX {
                self.past.remove(0);
            }
            self.past.push(Past {
                who,
                ended: now,
                served,
            });
        }
    }

    /// Returns how long a host was served in the turns that count together with its next turn.
    pub(super) fn served(&self, host: IpAddr) -> Duration {
        self.served_to(Party::host(host))
    }

    fn served_to(&self, who: Party) -> Duration {
        let past = self.past.iter().find(|past| past.who == who);
        past.map_or(Duration::ZERO, |past| past.served)
    }

    /// Ends the turn of the host that has the place: the server stops.
    pub(super) fn close(&self) {
        if let Some(turn) = &self.turn {
            turn.end();
        }
    }
}

impl Turn {
    const BUSY: u64 = u64::MAX;

    /// Returns true when the host must leave: it is idle for long, it is idle while another host
    /// waits, it had all its time or trials, or the server stops.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.is_ended.load(Ordering::Relaxed)
            || self.idle(now) > IDLE_MAX
            || self.served(now).any(is_all)
            || self.trials.load(Ordering::Relaxed) >= TRIALS_MAX
    }

    /// Returns true when even a trial must stop: the server stops, or the host was idle while
    /// another host waited. Every other reason waits for the trial's end, which is at most a minute
    /// away.
    pub(super) fn is_cut(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Notes that a trial begins to send. Returns what [`Turn::end_trial`] needs if the trial
    /// fails.
    pub(super) fn begin_trial(&self) -> u64 {
        self.trials.fetch_add(1, Ordering::Relaxed);
        self.idle_since_ns.swap(Self::BUSY, Ordering::Relaxed)
    }

    /// Notes that a trial has ended. A trial that failed does not end the host's idle time: a host
    /// that keeps a place must measure.
    pub(super) fn end_trial(&self, idle_since_ns: u64, is_whole: bool, now: Instant) {
        let since = if is_whole {
            now.as_nanos()
        } else {
            idle_since_ns
        };
        self.idle_since_ns.store(since, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    fn idle(&self, now: Instant) -> Duration {
        match self.idle_since_ns.load(Ordering::Relaxed) {
            Self::BUSY => Duration::ZERO,
            since => Duration::from_nanos(now.as_nanos().saturating_sub(since)),
        }
    }

    /// Returns how long the host and its network were served.
    fn served(&self, now: Instant) -> impl Iterator<Item = (Party, Duration)> {
        let lasted = now.since(self.began);
        let all = self.before.iter();
        all.map(move |&(who, before)| (who, before + lasted))
    }
}

/// Returns true when a host or network had all the time that it gets before it must stay away. It
/// then stays away for at least [`SERVED_MAX`].
fn is_all((who, served): (Party, Duration)) -> bool {
    served
        >= match who {
            Party::Host(_) => SERVED_MAX,
            Party::Network(_) => SERVED_MAX * NETWORK_SHARE / (100 - NETWORK_SHARE),
        }
}

/// How long a host may be idle: a client pauses for moments between trials, and with several
/// servers until all of them are ready.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How long a host may be idle while another host waits.
const IDLE_SHARED_MAX: Duration = Duration::from_secs(2);
/// How long a host is served: a sweep of all sizes, modes, sockets and directions takes about 18
/// minutes.
const SERVED_MAX: Duration = Duration::from_secs(30 * 60);
/// The most trials of a turn: more than a sweep of all sizes, modes, sockets and directions makes.
const TRIALS_MAX: u32 = 4_096;
/// The most hosts and networks that are remembered.
const PAST_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn served(place: &mut Place, host: IpAddr, now: Instant) -> Arc<Turn> {
        match place.ask(host, now) {
            Answer::Served(turn) => turn,
            other => panic!("not served: {other:?}"),
        }
    }

    #[test]
    fn an_idle_host_makes_room_for_another_and_not_for_itself() {
        let mut place = Place::default();
        let turn = served(&mut place, A, at(0));
        assert!(matches!(place.ask(A, at(9)), Answer::Wait));
        assert!(matches!(place.ask(B, at(2)), Answer::Wait));
        assert!(!turn.is_over(at(9)), "nobody has waited for an idle place");
        assert!(matches!(place.ask(B, at(3)), Answer::Wait));
        assert!(turn.is_over(at(3)));
        place.leave(at(3));
        served(&mut place, B, at(3));
    }

    #[test]
    fn greetings_and_failed_trials_keep_no_place() {
        let mut place = Place::default();
        let turn = served(&mut place, A, at(0));
        let idle = turn.begin_trial();
        assert!(!turn.is_over(at(60)), "a trial is under way");
        turn.end_trial(idle, false, at(60));
        assert!(turn.is_over(at(60)), "the trial failed");
        let idle = turn.begin_trial();
        turn.end_trial(idle, true, at(61));
        assert!(!turn.is_over(at(70)) && turn.is_over(at(72)));
    }

    /// Returns how much of `seconds` those get who want the place all the time, at the address
    /// that `host` gives for the n-th turn.
    fn had_by(host: impl Fn(u16) -> IpAddr, seconds: u64) -> u64 {
        let mut place = Place::default();
        let (mut now, mut had, mut turns) = (0, 0, 0);
        while now < seconds {
            match place.ask(host(turns), at(now)) {
                Answer::Served(turn) => {
                    // It leaves before its turn would be over, to look like a new one.
                    turn.begin_trial();
                    let began = now;
                    while !turn.is_over(at(now + 1)) && now - began < 1_700 {
                        now += 1;
                    }
                    had += now - began;
                    now += 1;
                    turns += 1;
                    place.leave(at(now));
                }
                Answer::Later(wait) => now += wait.as_secs().max(1),
                Answer::Wait => panic!("the place is free"),
            }
        }
        had
    }

    #[test]
    fn who_takes_the_place_again_and_again_gets_half_of_the_time() {
        let had = had_by(|_| A, 100_000);
        assert!((45_000..=55_000).contains(&had), "{had}");
    }

    #[test]
    fn who_has_many_addresses_gets_three_quarters_of_the_time() {
        let had = had_by(|turn| [0xfd00, 0, 0, 0, 0, 0, 1, turn].into(), 100_000);
        assert!((70_000..=80_000).contains(&had), "{had}");
        let had = had_by(|turn| [0xfd00, 0, 0, turn, 0, 0, 1, 1].into(), 100_000);
        assert!(had > 90_000, "{had}: other networks have time of their own");
    }

    #[test]
    fn trials_are_counted() {
        let mut place = Place::default();
        let turn = served(&mut place, A, at(0));
        for _ in 0..TRIALS_MAX {
            assert!(!turn.is_over(at(1)));
            let idle = turn.begin_trial();
            turn.end_trial(idle, true, at(1));
        }
        assert!(turn.is_over(at(1)));
        place.leave(at(1));
        for host in 0..=u16::try_from(PAST_MAX).unwrap() {
            let [high, low] = host.to_be_bytes();
            served(&mut place, [10, 1, high, low].into(), at(1));
            place.leave(at(10));
        }
        assert_eq!(place.past.len(), PAST_MAX);
    }
}
