//! Waiting: one epoll descriptor over everything, and the strategies by which a loop waits on it.

use std::{
    cell::Cell,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use base::Instant;
use sys::{Epoll, Interest, Ready, TimerFd, WakeFd, clock, errno};

use super::{options::WaitStrategy, tally::Tally};
use crate::SystemError;

/// Which descriptor an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signal(pub(super) u64);

impl Signal {
    pub(super) const UPSTREAM: Self = Self(0);
    pub(super) const GROUP: Self = Self(1);
    const TIMER: Self = Self(2);
    const WAKE: Self = Self(3);
    pub(super) const LISTENER: Self = Self(4);
    /// The signal of control connection `n` is `LINKS + n`.
    pub(super) const LINKS: u64 = 16;
}

/// Everything a session waits for.
#[derive(Debug)]
pub(super) struct Readiness {
    epoll: Epoll,
    timer: TimerFd,
    wake: WakeFd,
    strategy: WaitStrategy,
    armed: Option<Instant>,
    /// A [`Waker`] was asked for, so another thread may end a wait.
    has_waker: Cell<bool>,
}

impl Readiness {
    pub(super) fn new(strategy: WaitStrategy) -> Result<Self, SystemError> {
        let fault = |error: std::io::Error| {
            SystemError::system("prepare to wait for", "the session's sockets", &error)
        };
        let readiness = Self {
            epoll: Epoll::new(EVENTS_MAX).map_err(fault)?,
            timer: TimerFd::new().map_err(fault)?,
            wake: WakeFd::new().map_err(fault)?,
            strategy,
            armed: None,
            has_waker: Cell::new(false),
        };
        readiness.add(&readiness.timer, Signal::TIMER, Interest::READ)?;
        readiness.add(&readiness.wake, Signal::WAKE, Interest::READ)?;
        Ok(readiness)
    }

    pub(super) fn add(
        &self,
        fd: &impl AsFd,
        signal: Signal,
        interest: Interest,
    ) -> Result<(), SystemError> {
        self.epoll
            .add(fd.as_fd(), signal.0, interest)
            .map_err(|error| {
                let target = match signal {
                    Signal::TIMER => "the session's timer",
                    Signal::WAKE => "the descriptor that wakes the session",
                    Signal::LISTENER => "new control connections",
                    _ => "a socket of the session",
                };
                match error.raw_os_error() {
                    // The system's own text for this error speaks of a full disk.
                    Some(errno::ENOSPC) => SystemError::refused(
                        "wait for",
                        target,
                        "this user's programs already watch the most descriptors that the kernel \
                         allows",
                    )
                    .advise("raise the limit (`sysctl fs.epoll.max_user_watches`)"),
                    _ => SystemError::system("wait for", target, &error),
                }
            })
    }

    /// Changes which events of a descriptor are reported; the descriptor was added before.
    pub(super) fn modify(&self, fd: &impl AsFd, signal: Signal, interest: Interest) {
        let result = self.epoll.modify(fd.as_fd(), signal.0, interest);
        debug_assert!(
            result.is_ok(),
            "only descriptors that were added: {result:?}"
        );
    }

    pub(super) fn waker(&self) -> Result<Waker, SystemError> {
        let wake = self.wake.try_clone();
        self.has_waker.set(true);
        wake.map(|wake| Waker(Arc::new(wake))).map_err(|error| {
            SystemError::system("copy", "the descriptor that wakes the session", &error)
        })
    }

    /// Returns true when a [`Waker`] was ever asked for.
    pub(super) fn has_waker(&self) -> bool {
        self.has_waker.get()
    }

    /// Makes the epoll descriptor readable at `deadline`; `None` undoes that.
    pub(super) fn arm(&mut self, deadline: Option<Instant>) {
        if self.armed != deadline {
            let result = self.timer.set(deadline);
            debug_assert!(result.is_ok(), "any time can be set: {result:?}");
            self.armed = deadline;
        }
    }

    /// Waits, by the chosen strategy, until something is ready or `until` has passed, and tells
    /// `note` about each socket that is ready. When `until` has passed already, it only looks.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        tally: &mut Tally,
        mut note: impl FnMut(Signal, Ready),
    ) {
        if until == Some(Instant::ZERO) {
            self.look(Some(Duration::ZERO), tally, &mut note);
            return;
        }
        let mut polls = match self.strategy {
            WaitStrategy::Block => 0,
            WaitStrategy::Busy { polls } => polls,
            WaitStrategy::Spin => u32::MAX,
        };
        while polls > 0 {
            if self.look(Some(Duration::ZERO), tally, &mut note) > 0 || is_past(until) {
                return;
            }
            if self.strategy != WaitStrategy::Spin {
                polls -= 1;
            }
            std::hint::spin_loop();
        }
        let timeout = until.map(|until| until.since(clock::monotonic()));
        if timeout != Some(Duration::ZERO) {
            tally.counters.sleeps += 1;
            wake_on_time();
        }
        self.look(timeout, tally, &mut note);
    }

    fn look(
        &mut self,
        timeout: Option<Duration>,
        tally: &mut Tally,
        note: &mut impl FnMut(Signal, Ready),
    ) -> usize {
        let Ok(ready) = self.epoll.wait(timeout) else {
            return 0;
        };
        let count = ready.len();
        let (mut is_due, mut is_woken) = (false, false);
        for ready in ready {
            match Signal(ready.token) {
                Signal::TIMER => is_due = true,
                Signal::WAKE => is_woken = true,
                signal => note(signal, ready),
            }
        }
        if is_due && self.timer.take() {
            self.armed = None;
        }
        if is_woken && self.wake.take() {
            tally.counters.wakes += 1;
        }
        count
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A handle that ends the wait of a back end, such as [`crate::UdpIo`], from another thread. Clones
/// end the same wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakeFd>);

impl Waker {
    /// Ends the wait under way. When no wait is under way, the next one ends at once.
    pub fn wake(&self) {
        self.0.raise();
    }
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::monotonic() >= until)
}

/// Makes the kernel wake this thread on time; otherwise, it may wake the thread up to 50 us late.
/// Only the first call in a thread has an effect.
fn wake_on_time() {
    thread_local! {
        static IS_SET: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_SET.replace(true) {
        let result = clock::set_timer_slack(Duration::from_nanos(1));
        debug_assert!(result.is_ok(), "every thread may set its own: {result:?}");
    }
}

/// The most descriptors that one call reports; the next call reports the rest.
const EVENTS_MAX: usize = 256;
