//! The sending end of an object session: a PGM source fed by a plan.

use std::sync::Arc;

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{Content, LinkCommand, Plan, PlanSender, PlanSenderConfig};
use pgm::{Full, Source};
use wire::pgm::Profile;

use crate::{Endpoint, Handle, Sending, opening, steering};

/// Sends one plan: fills the source's window from the plan, and tells the plan when a pass has
/// left.
///
/// **Flow control**: new blocks wait for the slowest receiver that reports its position, within the
/// source's flow window; repairs and the window itself are the source's.
#[derive(Debug)]
pub struct ObjectSender<C> {
    source: Source,
    plan: PlanSender<C>,
    is_closing: bool,
}

impl<C: Content> ObjectSender<C> {
    /// Opens a session that sends `plan`. `config` holds the owner's choices: what it says about
    /// rates and report intervals is overwritten, as that follows from the protocol parameters.
    #[must_use]
    pub fn open(
        sending: &Sending,
        mut config: PlanSenderConfig,
        plan: Arc<Plan>,
        content: C,
        now: Instant,
    ) -> Self {
        let sending = Sending {
            config: sending.config.for_objects(),
            ..*sending
        };
        opening::settle_plan(&mut config, &sending.config);
        Self {
            source: sending.source(Profile::Objects, now),
            plan: PlanSender::new(config, plan, content, now),
            is_closing: false,
        }
    }

    /// The PGM source.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The plan and its receivers.
    pub const fn plan(&self) -> &PlanSender<C> {
        &self.plan
    }

    /// The plan, to take events from or to cancel.
    pub const fn plan_mut(&mut self) -> &mut PlanSender<C> {
        &mut self.plan
    }

    /// Packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.source.drops()
    }

    /// True when the outcome is final and everyone has been told.
    pub const fn is_over(&self) -> bool {
        self.plan.is_closed() && self.is_closing
    }

    /// Moves blocks from the plan into the source's window while little waits there.
    fn feed(&mut self, now: Instant) {
        while self.source.backlog_bytes() < BACKLOG_BYTES {
            let Some(block) = self.plan.next_block(self.source.max_tsdu()) else {
                return;
            };
            let count = block
                .count
                .min((BURST_BYTES / block.len).max(1))
                .min(self.source.burst_count_max(block.len));
            let mut burst = match self.source.reserve_burst(block.len, count) {
                Ok(burst) => burst,
                Err(Full::Window | Full::TooLong { .. } | Full::Closed) => return,
            };
            let mut filled = 0;
            while filled < count && self.plan.fill(now, &block, filled, burst.slot(filled)) {
                filled += 1;
            }
            if filled == 0 {
                return;
            }
            let last_sqn = burst.commit_first(filled);
            self.plan.blocks_committed(now, &block, filled, last_sqn);
        }
    }

    fn follow_plan(&mut self, now: Instant) {
        let lead = self.source.unsent() - 1;
        let hold = steering::follow(&mut self.source, &mut self.plan, now);
        self.feed(now);
        // Whichever of the flow window's two bounds is reached first.
        let config = self.source.config();
        let in_bytes = (config.flow_window_bytes() / config.mtu()) as u64;
        let window = u64::from(config.flow_window_sqns()).min(in_bytes);
        let ahead = hold.map_or(0, |hold| self.source.unsent().saturating_sub(hold));
        self.plan.stream_waits(now, lead, ahead >= window / 2);
        if self.plan.is_draining() && self.source.is_drained() {
            self.plan.pass_drained(now);
        }
        if self.plan.is_finished() && !self.is_closing {
            self.is_closing = true;
            self.source.close(now);
        }
    }
}

impl<C: Content> Handle<()> for ObjectSender<C> {
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        let verdict = self.source.handle(now, arrival, tpdu);
        debug_assert!(!matches!(verdict, Verdict::Payload { .. } | Verdict::Held));
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.follow_plan(now);
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.source.handle_timeout(now);
        self.plan.handle_timeout(now);
    }
}

impl<C: Content> Endpoint for ObjectSender<C> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.plan.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.plan.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.plan.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.plan.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.source.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.source.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.source.next_timeout(), self.plan.next_timeout())
    }
}

/// Enough waits in the window for the next runs; more would only be older when it leaves.
const BACKLOG_BYTES: usize = 512 << 10;
/// Read and committed in one go: about one run.
const BURST_BYTES: usize = 64_000;
