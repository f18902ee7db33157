//! Runs several sessions at once, each on its own thread; they share an interface's packets.
//!
//! ```text
//! interface --by flow--> ring 0 -> session 0 -> sink 0     one account:
//!                   \--> ring 1 -> session 1 -> sink 1     the sum
//! ```
//! When one session ends, the others end too.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Account, CaptureError, Ended, Session, generated::SequenceCheck};

/// Sessions that run together. A single session runs as it would alone.
#[derive(Debug)]
pub struct Workers {
    sessions: Vec<Session>,
}

impl Workers {
    /// Makes workers of sessions that have not begun; there must be at least one.
    #[must_use]
    pub fn new(sessions: Vec<Session>) -> Self {
        assert!(!sessions.is_empty(), "nobody to do the work");
        Self { sessions }
    }

    /// Runs the sessions as [`Session::run`] does. The accounts passed to `tick` are sums over all
    /// sessions.
    ///
    /// # Errors
    /// The first error of any session.
    ///
    /// **Panics**: when a session panics.
    pub fn run(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        tick: &mut dyn FnMut(&Account),
    ) -> Result<Ended, CaptureError> {
        if let [alone] = self.sessions.as_mut_slice() {
            return alone.run(is_stopped, tick);
        }
        let is_over = AtomicBool::new(false);
        // The newest account of each session, until the sum has used it.
        let said: Vec<_> = self.sessions.iter().map(|_| Mutex::new(None)).collect();
        thread::scope(|scope| {
            let is_over = &is_over;
            let begin = |(session, said)| scope.spawn(move || work(session, is_over, said));
            let workers: Vec<_> = self.sessions.iter_mut().zip(&said).map(begin).collect();
            while !workers.iter().any(thread::ScopedJoinHandle::is_finished) && !is_stopped() {
                thread::sleep(LOOK_PAUSE);
                if let Some(sum) = sum_of(&said) {
                    tick(&sum);
                }
            }
            is_over.store(true, Ordering::Release);
            let ended = workers.into_iter().map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let ended: Vec<Ended> = ended.collect::<Result<_, _>>()?;
            // A worker that ended by itself gives the reason: of several, the first in order. The
            // others were only stopped.
            let first = ended.iter().find(|ended| **ended != Ended::Stopped);
            Ok(*first.unwrap_or(&Ended::Stopped))
        })
    }

    /// Returns the sum of all sessions' accounts.
    #[must_use]
    pub fn account(&self) -> Account {
        let (first, others) = self.sessions.split_first().expect("at least one, by `new`");
        let sum = |sum: Account, one: &Session| sum.plus(one.account());
        others.iter().fold(first.account().clone(), sum)
    }

    /// Returns the account of each session, in order.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.sessions.iter().map(Session::account)
    }

    /// Returns the counts of generated frames over all sessions, when the limits ask for them.
    #[must_use]
    pub fn sequence(&self) -> Option<SequenceCheck> {
        let checks = self.sessions.iter().filter_map(Session::sequence).cloned();
        checks.reduce(|sum, one| sum.plus(&one))
    }

    /// Returns how long the sessions have run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let elapsed = self.sessions.iter().map(Session::elapsed);
        elapsed.max().unwrap_or_default()
    }

    /// Takes the remarks for the user; each remark comes once.
    pub fn take_remarks(&mut self) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        for remark in self.sessions.iter_mut().flat_map(Session::take_remarks) {
            // Each session leaves the same remark when the interface goes down.
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }

    /// Takes the error because of which a sink can keep no more packets.
    pub fn take_failure(&mut self) -> Option<CaptureError> {
        self.sessions.iter_mut().find_map(Session::take_failure)
    }
}

/// The newest account of a session, until the sum has used it.
type Said = Mutex<Option<Account>>;

fn work(session: &mut Session, is_over: &AtomicBool, said: &Said) -> Result<Ended, CaptureError> {
    let is_stopped = || is_over.load(Ordering::Acquire);
    session.run(&is_stopped, &mut |account| {
        *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(account.clone());
    })
}

/// Returns the sum, when every session has a new account.
fn sum_of(said: &[Said]) -> Option<Account> {
    let mut held: Vec<_> = said
        .iter()
        .map(|one| one.lock().unwrap_or_else(PoisonError::into_inner))
        .collect();
    if !held.iter().all(|one| one.is_some()) {
        return None;
    }
    let accounts = held.iter_mut().filter_map(|one| one.take());
    accounts.reduce(|sum, one| sum.plus(&one))
}

/// How often the calling thread looks for a stop, for a session that has ended, and for new
/// accounts.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
