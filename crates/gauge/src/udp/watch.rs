//! What a trial does while it runs, for its watchers.

use std::{
    fmt,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use super::receiver::Expectation;

/// What this end did in one stretch of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialPassage {
    /// The row, and the number of the trial in the row.
    pub trial: String,
    /// Start of the stretch, counted from the start of the trial.
    pub from: Duration,
    /// End of the stretch, counted from the start of the trial.
    pub to: Duration,
    /// Bytes of a datagram.
    pub size_bytes: usize,
    /// Datagrams that this end sent; `None` when it only receives.
    pub sent: Option<u64>,
    /// Datagrams that this end received; `None` when it only sends.
    pub received: Option<u64>,
}

/// A function that is called with each [`TrialPassage`].
pub struct TrialWatch<'a> {
    every: Duration,
    tell: &'a mut (dyn FnMut(&TrialPassage) + Send),
}

impl fmt::Debug for TrialWatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrialWatch")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl<'a> TrialWatch<'a> {
    /// Makes a watch that calls `tell` for each stretch of length `every`, and at the end of a
    /// trial for the rest. **Cost**: one thread for each trial, which sleeps between the calls.
    pub fn new(every: Duration, tell: &'a mut (dyn FnMut(&TrialPassage) + Send)) -> Self {
        Self { every, tell }
    }

    /// Watches the counts until the other end of `is_over` is dropped. `about` has everything that
    /// stays the same; a count that `about` lacks is not watched.
    pub(super) fn follow(
        &mut self,
        mut about: TrialPassage,
        (sent, expectation): (&AtomicU64, &Expectation),
        is_over: &Receiver<()>,
    ) {
        let started = Instant::now();
        let mut due = self.every;
        let mut before = [0, 0];
        let counts = [about.sent, about.received].map(|count| count.is_some());
        loop {
            let left = due.saturating_sub(started.elapsed());
            let is_last = is_over.recv_timeout(left) == Err(RecvTimeoutError::Disconnected);
            about.from = about.to;
            about.to = started.elapsed();
            let now = [sent, &expectation.received].map(|count| count.load(Ordering::Relaxed));
            let since = |at: usize| counts[at].then(|| now[at] - before[at]);
            (about.sent, about.received) = (since(0), since(1));
            (self.tell)(&about);
            if is_last {
                return;
            }
            before = now;
            // When this thread pauses, the next stretches still begin at multiples of `every`.
            while due <= about.to {
                due += self.every;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_trial_without_a_whole_interval_is_told_once_it_is_over() {
        let mut told = Vec::new();
        let mut tell = |passage: &TrialPassage| told.push(passage.clone());
        let (over, is_over) = channel();
        let (sent, expectation) = (AtomicU64::new(30), Expectation::new());
        expectation.received.store(4, Ordering::Relaxed);
        drop(over);
        let about = TrialPassage {
            trial: "64 B".to_owned(),
            from: Duration::ZERO,
            to: Duration::ZERO,
            size_bytes: 64,
            sent: None,
            received: Some(0),
        };
        let mut watch = TrialWatch::new(Duration::from_secs(3600), &mut tell);
        watch.follow(about, (&sent, &expectation), &is_over);
        let [passage] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!((passage.sent, passage.received), (None, Some(4)));
    }
}
