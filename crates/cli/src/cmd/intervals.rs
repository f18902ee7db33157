//! `--every`: prints what was done in each interval while a command runs.

use std::time::{Duration, Instant};

use crate::{
    failure::Failure,
    report::{Counted, Document as _, Done, Interval, Output},
};

/// A printer of one line of counts for each interval of `--every`. Without `--every` it does
/// nothing, and reads no clock.
pub(super) struct Intervals<'a> {
    output: &'a Output,
    every: Option<Duration>,
    of: String,
    what: Counted,
    /// True when lines are text on standard error even with `--json`, because packets go to
    /// standard output.
    gives_way: bool,
    /// When counting began; what was counted up to the last printed line; and the time from the
    /// beginning to that line.
    begun: Option<(Instant, Done, Duration)>,
    due: Duration,
}

impl<'a> Intervals<'a> {
    pub(super) fn new(
        output: &'a Output,
        every: Option<Duration>,
        of: String,
        what: Counted,
    ) -> Self {
        Self {
            output,
            every,
            of,
            what,
            gives_way: false,
            begun: None,
            due: every.unwrap_or_default(),
        }
    }

    /// Writes text on standard error from here on, even when JSON was asked for.
    pub(super) fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// Prints the line of an interval when it is over. The first interval begins with the first
    /// call. `done` returns what was counted since the command began.
    pub(super) fn look(&mut self, done: impl FnOnce() -> Done) -> Result<(), Failure> {
        let Some(every) = self.every else {
            return Ok(());
        };
        let now = Instant::now();
        let Some((begun, ..)) = self.begun else {
            self.begun = Some((now, Done::default(), Duration::ZERO));
            return Ok(());
        };
        let elapsed = now.saturating_duration_since(begun);
        if elapsed < self.due {
            return Ok(());
        }
        // After a pause of the process, one line covers several intervals and shows their
        // real length.
        while self.due <= elapsed {
            self.due += every;
        }
        self.tell(elapsed, done())
    }

    /// Prints the line of the last interval, which the end of the command cuts short.
    pub(super) fn finish(&mut self, done: Done) -> Result<(), Failure> {
        match self.begun {
            Some((begun, before, _)) if done != before => self.tell(begun.elapsed(), done),
            _ => Ok(()),
        }
    }

    fn tell(&mut self, to: Duration, done: Done) -> Result<(), Failure> {
        let Some((_, before, from)) = &mut self.begun else {
            return Ok(());
        };
        // When only the later reading has a number of losses, the earlier number counts as 0.
        before.lost = before.lost.or(done.lost.map(|_| 0));
        let times = (*from, to);
        let interval = Interval::new(&self.of, self.what, times, done.since(before));
        (*before, *from) = (done, to);
        if self.gives_way && self.output.is_json() {
            self.output.note(interval.text().trim_end());
            return Ok(());
        }
        self.output.one_of_many(&interval)
    }
}
