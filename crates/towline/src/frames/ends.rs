//! The endpoint ("end") of one session, or the endpoints of two sessions that carry the same
//! frames. Each end has its own sockets. One thread runs the turns of both ends and waits for both.

use std::{
    fmt,
    net::IpAddr,
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use base::Instant;
use delivery::frames::{ArbiterCounters, Feed};
use driver::{Endpoint, Turn};
use net::{SystemError, Waker};
use sys::poll::{Epoll, Interest};

use crate::{
    Error, Snapshot,
    session::{Count, End},
};

/// The one or two session endpoints of a frame sender or a frame receiver.
pub(super) struct Ends<E> {
    pub(super) first: End<E>,
    second: Option<Second<E>>,
    /// For each feed, why it cannot be used any more; `None` while it can.
    faults: [Option<String>; 2],
    /// The last turn left nothing to do.
    is_idle: bool,
    warnings: Vec<String>,
    /// The counters of the arbiter, which makes one stream of the two feeds of a receiver.
    pub(super) arbiter: Option<ArbiterCounters>,
}

struct Second<E> {
    end: End<E>,
    /// Waits for the descriptors of both ends.
    epoll: Epoll,
}

impl<E> Ends<E> {
    /// Joins two ends, or takes one.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn new(first: End<E>, second: Option<End<E>>) -> Result<Self, Error>
    where
        E: Endpoint,
    {
        let second = second.map(|end| {
            let epoll = Epoll::new(2)?;
            epoll.add(first.descriptor(), 0, Interest::READ)?;
            epoll.add(end.descriptor(), 1, Interest::READ)?;
            Ok(Second { end, epoll })
        });
        let second = second.transpose().map_err(|error: std::io::Error| {
            SystemError::system("wait for", "two feeds at once", &error)
        })?;
        Ok(Self {
            first,
            second,
            faults: [None, None],
            is_idle: false,
            warnings: Vec::new(),
            arbiter: None,
        })
    }

    pub(super) fn get(&self, feed: Feed) -> Option<&End<E>> {
        match feed {
            Feed::First => Some(&self.first),
            Feed::Second => self.second.as_ref().map(|second| &second.end),
        }
    }

    pub(super) fn get_mut(&mut self, feed: Feed) -> Option<&mut End<E>> {
        match feed {
            Feed::First => Some(&mut self.first),
            Feed::Second => self.second.as_mut().map(|second| &mut second.end),
        }
    }

    /// Returns all ends, including one that cannot be used any more.
    fn all(&self) -> impl Iterator<Item = &End<E>> {
        let second = self.second.as_ref().map(|second| &second.end);
        std::iter::once(&self.first).chain(second)
    }

    /// Returns the ends that can be used.
    pub(super) fn usable(&self) -> impl Iterator<Item = (Feed, &End<E>)> {
        let all = Feed::ALL.into_iter().zip(self.all());
        all.filter(move |(feed, _)| self.faults[feed.index()].is_none())
    }

    /// Returns the ends that can be used.
    pub(super) fn usable_mut(&mut self) -> impl Iterator<Item = (Feed, &mut End<E>)> {
        let second = self.second.as_mut().map(|second| &mut second.end);
        let all = std::iter::once(&mut self.first).chain(second);
        let (all, faults) = (Feed::ALL.into_iter().zip(all), &self.faults);
        all.filter(move |(feed, _)| faults[feed.index()].is_none())
    }

    pub(super) const fn is_pair(&self) -> bool {
        self.second.is_some()
    }

    /// Keeps a warning until the next call of `take_warnings`.
    pub(super) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Returns why `feed` cannot be used any more; `None` while it can.
    pub(super) fn fault(&self, feed: Feed) -> Option<&str> {
        self.faults[feed.index()].as_deref()
    }
}

impl<E: Endpoint> Ends<E> {
    /// Runs one turn of each end that can be used. An end that fails is left out from then on, and
    /// the other end goes on.
    ///
    /// # Errors
    /// When no end can be used any more.
    pub(super) fn turn(
        &mut self,
        mut turn: impl FnMut(Feed, &mut End<E>) -> Result<Turn, Error>,
    ) -> Result<Turn, Error> {
        let mut sum: Option<Turn> = None;
        for feed in Feed::ALL {
            if self.faults[feed.index()].is_some() {
                continue;
            }
            let is_last = sum.is_none() && (feed == Feed::Second || !self.can_spare(feed));
            let Some(end) = self.get_mut(feed) else {
                continue;
            };
            match turn(feed, end) {
                Ok(done) => sum = Some(sum.map_or(done, |sum| sum.with(done))),
                Err(error) if is_last => return Err(error),
                Err(error) => self.lose(feed, &error),
            }
        }
        let sum = sum.ok_or(Error::Closed)?;
        self.is_idle = sum.is_idle();
        Ok(sum)
    }

    /// Returns true when the session can go on without `feed`: there is another feed, and it can be
    /// used.
    fn can_spare(&self, feed: Feed) -> bool {
        self.is_pair() && self.faults[feed.other().index()].is_none()
    }

    fn lose(&mut self, feed: Feed, error: &Error) {
        if let (Some(second), Some(end)) = (&self.second, self.get(feed)) {
            // If the failed end stayed in the set and were ready, every wait would end at once.
            let _removed = second.epoll.remove(end.descriptor());
            let (interface, _) = end.interface();
            let what = format!("the feed by {interface} cannot be used any more: {error}");
            self.warnings.push(what);
        }
        self.faults[feed.index()] = Some(error.to_string());
    }

    /// Makes `descriptor()` readable when a timer of an end is due, at `until`, or at once if the
    /// last turn left work.
    pub(super) fn arm(&mut self, until: Option<Instant>) {
        // Work that a turn has left over makes no descriptor readable by itself.
        let at_once = (!self.is_idle).then_some(Instant::ZERO);
        let until = base::earliest(until, at_once);
        for (_, end) in self.usable_mut() {
            end.arm(until);
        }
    }

    /// Says when the next turn of an end is due even if nothing arrives.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let due = self.usable().map(|(_, end)| end.next_timeout());
        due.fold(None, base::earliest)
    }

    /// Waits until an end has something to do, at most until `until`.
    pub(super) fn wait(&mut self, until: Option<Instant>) {
        if !self.is_pair() {
            return self.first.wait(until);
        }
        self.arm(until);
        // A waker wakes only the first end. If that end is out of use, no waker ends this wait.
        let is_deaf = self.faults[Feed::First.index()].is_some();
        let timeout = is_deaf.then_some(DEAF_TIME_MAX);
        if let Some(second) = &mut self.second {
            // The result is not needed: in its turn, each end finds out by itself what is ready.
            let _ready = second.epoll.wait(timeout).map(drop);
        }
    }

    pub(super) fn now(&mut self) -> Instant {
        self.first.now()
    }

    pub(super) fn interface(&self) -> (&str, IpAddr) {
        self.first.interface()
    }

    /// Says why nothing has left; `None` when an end has sent something, or has had nothing to
    /// send.
    pub(super) fn send_error(&self) -> Option<SystemError> {
        let mut errors = self.all().map(End::send_error);
        let first = errors.next().flatten()?;
        errors.all(|error| error.is_some()).then_some(first)
    }

    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = self.first.take_warnings();
        if let Some(second) = &mut self.second {
            warnings.extend(second.end.take_warnings());
        }
        warnings.append(&mut self.warnings);
        warnings
    }

    pub(super) fn waker(&self) -> Result<Waker, Error> {
        self.first.waker()
    }

    pub(super) fn describe(&self, face: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.describe(face, f)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.second {
            Some(second) => second.epoll.as_fd(),
            None => self.first.descriptor(),
        }
    }
}

impl<E: Endpoint + Count> Ends<E> {
    /// Adds every counter to `snapshot`; with two ends, adds the sum of their counters.
    pub(super) fn snapshot(&self, snapshot: &mut Snapshot) {
        let Some(second) = &self.second else {
            return self.first.snapshot(snapshot);
        };
        let (mut sum, mut other) = (Snapshot::default(), Snapshot::default());
        self.first.snapshot(&mut sum);
        second.end.snapshot(&mut other);
        sum.sum_up(&other);
        snapshot.append(&sum);
        if let Some(arbiter) = &self.arbiter {
            snapshot.add(arbiter);
        }
    }
}

/// The longest wait while the first end is out of use. A waker wakes only that end, so no wake-up
/// ends this wait. Judgement: a thread that wants to stop the waiting thread can wait that long.
const DEAF_TIME_MAX: Duration = Duration::from_millis(100);
