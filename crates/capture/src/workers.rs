//! Several sessions at once, each with a thread of its own, which share an interface's packets.
//!
//! ```text
//! interface --by flow--> ring 0 -> session 0 -> sink 0     one account:
//!                   \--> ring 1 -> session 1 -> sink 1     the sum
//! ```
//! When one of them ends, so do the others.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Account, CaptureError, Ended, Session, generated::SequenceCheck};

/// Sessions that run together; a single one runs as it would without this.
#[derive(Debug)]
pub struct Workers {
    sessions: Vec<Session>,
}

impl Workers {
    /// Over sessions that have not begun, at least one.
    #[must_use]
    pub fn new(sessions: Vec<Session>) -> Self {
        assert!(!sessions.is_empty(), "nobody to do the work");
        Self { sessions }
    }

    /// As [`Session::run`]; the accounts that are shown are sums.
    ///
    /// # Errors
    /// The first of any session.
    ///
    /// **Panics**: when a session does.
    pub fn run(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        tick: &mut dyn FnMut(&Account),
    ) -> Result<Ended, CaptureError> {
        if let [alone] = self.sessions.as_mut_slice() {
            return alone.run(is_stopped, tick);
        }
        let is_over = AtomicBool::new(false);
        // What each has said last, and whether it is new.
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
            // The worker that stopped the others knows the reason better than they do.
            let first = ended.iter().find(|ended| **ended != Ended::Stopped);
            Ok(*first.unwrap_or(&Ended::Stopped))
        })
    }

    /// The account of all together.
    #[must_use]
    pub fn account(&self) -> Account {
        let (first, others) = self.sessions.split_first().expect("at least one, by `new`");
        let sum = |sum: Account, one: &Session| sum.plus(one.account());
        others.iter().fold(first.account().clone(), sum)
    }

    /// Of each, in order.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.sessions.iter().map(Session::account)
    }

    /// What came of generated frames, when that was asked for.
    #[must_use]
    pub fn sequence(&self) -> Option<SequenceCheck> {
        let checks = self.sessions.iter().filter_map(Session::sequence).cloned();
        checks.reduce(|sum, one| sum.plus(&one))
    }

    /// How long they have run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let elapsed = self.sessions.iter().map(Session::elapsed);
        elapsed.max().unwrap_or_default()
    }

    /// What their user should know, each once.
    pub fn take_remarks(&mut self) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        for remark in self.sessions.iter_mut().flat_map(Session::take_remarks) {
            // Each has seen that the interface went down.
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }

    /// Why a sink can keep nothing more.
    pub fn take_failure(&mut self) -> Option<CaptureError> {
        self.sessions.iter_mut().find_map(Session::take_failure)
    }
}

/// What a session has said since it was asked last.
type Said = Mutex<Option<Account>>;

fn work(session: &mut Session, is_over: &AtomicBool, said: &Said) -> Result<Ended, CaptureError> {
    let is_stopped = || is_over.load(Ordering::Acquire);
    session.run(&is_stopped, &mut |account| {
        *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(account.clone());
    })
}

/// The sum when all have said something new.
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

/// A session looks as often whether it is to stop.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
