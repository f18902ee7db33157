//! What a transfer receiver reports without being asked: its progress, and its position in the
//! packet stream.
//!
//! **Spec**: `docs/src/protocol.md` section 5 (POS, PROGRESS), section 7.

use std::time::Duration;

use base::Instant;
use wire::object::{Message, Phase, Progress, Progressed};

use super::{Step, TransferReceiver, objects::Contents};
use crate::{
    Store,
    feedback::{Timing, interval},
    parameters::KEEP_ALIVE,
};

/// The last PROGRESS message that was sent, and when it was sent.
#[derive(Debug)]
pub(super) struct Told {
    progress: Progress,
    timing: Timing,
}

impl Told {
    pub(super) const fn nothing(now: Instant) -> Self {
        let numbers = Progressed {
            held: 0,
            verified: 0,
            lost: 0,
            repairs_asked: 0,
            repairs_got: 0,
            store_waits: 0,
        };
        let phase = Phase::Joining;
        Self {
            progress: Progress { phase, numbers },
            timing: Timing::new(now),
        }
    }
}

impl<S: Store> TransferReceiver<S> {
    pub(super) fn report(&self) -> Progress {
        let contents = self.contents.as_ref();
        let is_whole = contents.is_some_and(Contents::is_whole);
        let phase = match self.step {
            Step::Joining | Step::Offered | Step::Manifest => Phase::Joining,
            Step::Preparing => Phase::Preparing,
            Step::Receiving if is_whole => Phase::Verifying,
            Step::Receiving => Phase::Receiving,
            Step::Committing => Phase::Committing,
            Step::Over {
                is_delivered: false,
                ..
            } => Phase::Failed,
            Step::Delivered | Step::Over { .. } => Phase::Done,
        };
        let streams = self.stream.totals();
        // While the manifest comes, its bytes are reported as held, because it may take long: so
        // the sender sees progress.
        let held = match (contents, &self.manifest) {
            (Some(contents), _) => contents.held.bytes(),
            (None, Some(manifest)) if phase == Phase::Joining => manifest.held().bytes(),
            (None, _) => 0,
        };
        let numbers = Progressed {
            held,
            verified: contents.map_or(0, |contents| contents.verified_bytes),
            lost: streams.missed,
            repairs_asked: streams.repairs_asked,
            repairs_got: streams.repairs_got,
            store_waits: self.counters.blocks_store_full + self.counters.holds,
        };
        Progress { phase, numbers }
    }

    /// Returns the time between two PROGRESS messages, and the time over which receivers spread
    /// messages that are due at once. `None` without a connection.
    fn report_after(&self) -> Option<(Duration, Duration)> {
        self.link()?;
        let interval = interval(self.welcome.as_ref()?);
        if self.report() == self.told.progress {
            return Some((KEEP_ALIVE.max(interval), Duration::ZERO));
        }
        Some((interval, self.feedback.spread().min(interval)))
    }

    pub(super) fn report_due(&self) -> Option<Instant> {
        let (after, _) = self.report_after()?;
        Some(self.told.timing.due(after))
    }

    pub(super) fn check_report(&mut self, now: Instant) {
        if let Some((after, spread)) = self.report_after()
            && (self.told.timing).is_due(now, after, spread, &mut self.caller.rng)
        {
            self.send_progress(now);
        }
    }

    pub(super) fn send_progress(&mut self, now: Instant) {
        self.told.progress = self.report();
        self.told.timing.said(now);
        self.tell(now, &Message::Progress(self.told.progress));
    }

    pub(super) fn check_pos(&mut self, now: Instant) {
        if let Some(mut pos) = self.feedback.poll(now, &mut self.caller.rng) {
            pos.lost = self.stream.totals().missed;
            self.tell(now, &Message::Pos(pos));
        }
    }
}
