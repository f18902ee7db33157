//! Detects that a receiver's transfer of files no longer moves.

use std::time::{Duration, Instant};

use delivery::ReceiverProgress;
use wire::object::Phase;

/// A watch that detects that nothing has moved in a transfer for some time.
///
/// ```
/// use std::time::{Duration, Instant};
/// use towline::StallWatch;
/// let now = Instant::now();
/// let mut watch = StallWatch::new(now);
/// assert!(!watch.is_stalled(now, Duration::from_secs(10)));
/// // An event came that no number shows.
/// watch.stir(now + Duration::from_secs(8));
/// assert!(!watch.is_stalled(now + Duration::from_secs(17), Duration::from_secs(10)));
/// assert!(watch.is_stalled(now + Duration::from_secs(18), Duration::from_secs(10)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StallWatch {
    /// The bytes of manifest held, plus the bytes of content held, plus the bytes verified, at the
    /// last call of [`StallWatch::note`].
    moved: u64,
    moved_at: Instant,
}

impl StallWatch {
    /// Begins to watch.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            moved: 0,
            moved_at: now,
        }
    }

    /// Notes a movement that the numbers do not show: an event, or a sender that is back.
    pub const fn stir(&mut self, now: Instant) {
        self.moved_at = now;
    }

    /// Compares the progress with that of the last call. A transfer that prepares or renames its
    /// files counts as moving, because nobody can tell how long the disk takes for this.
    pub fn note(&mut self, now: Instant, progress: &ReceiverProgress) {
        let moved = progress.manifest_bytes + progress.numbers.held + progress.numbers.verified;
        let is_at_disk = matches!(progress.phase, Phase::Preparing | Phase::Committing);
        if moved != self.moved || is_at_disk {
            self.moved = moved;
            self.stir(now);
        }
    }

    /// Returns true when nothing has moved for `timeout`.
    #[must_use]
    pub fn is_stalled(&self, now: Instant, timeout: Duration) -> bool {
        now.saturating_duration_since(self.moved_at) >= timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn progress(phase: Phase, held: u64, verified: u64) -> ReceiverProgress {
        let mut progress = ReceiverProgress {
            phase,
            manifest_bytes: 0,
            content_bytes: 100,
            numbers: Default::default(),
        };
        (progress.numbers.held, progress.numbers.verified) = (held, verified);
        progress
    }

    #[test]
    fn bytes_that_come_or_are_verified_move_a_transfer() {
        let start = Instant::now();
        let mut watch = StallWatch::new(start);
        watch.note(start + TIMEOUT / 2, &progress(Phase::Receiving, 10, 0));
        watch.note(start + TIMEOUT, &progress(Phase::Receiving, 10, 0));
        assert!(!watch.is_stalled(start + TIMEOUT, TIMEOUT));
        assert!(watch.is_stalled(start + TIMEOUT * 3 / 2, TIMEOUT));
        watch.note(start + TIMEOUT * 3 / 2, &progress(Phase::Receiving, 10, 5));
        assert!(!watch.is_stalled(start + TIMEOUT * 2, TIMEOUT));
    }

    #[test]
    fn bytes_of_a_long_manifest_move_a_transfer() {
        let start = Instant::now();
        let mut watch = StallWatch::new(start);
        for count in 1..5 {
            let mut joining = progress(Phase::Joining, 0, 0);
            joining.manifest_bytes = u64::from(count);
            let now = start + TIMEOUT * count;
            watch.note(now, &joining);
            assert!(!watch.is_stalled(now, TIMEOUT));
        }
    }

    #[test]
    fn who_waits_for_the_disk_is_not_stalled() {
        let start = Instant::now();
        for phase in [Phase::Preparing, Phase::Committing] {
            let mut watch = StallWatch::new(start);
            watch.note(start + TIMEOUT * 5, &progress(phase, 0, 0));
            assert!(!watch.is_stalled(start + TIMEOUT * 5, TIMEOUT), "{phase}");
        }
    }
}
