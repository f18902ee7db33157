//! The sending end of an object session: a PGM source that a transfer feeds, or a transfer alone,
//! which goes over connections.
//!
//! **Spec**: `docs/src/protocol.md` sections 3 and 6.

use std::sync::Arc;

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{Content, LinkCommand, Manifest, TransferSender, TransferSenderConfig};
use pgm::{Full, Source};
use wire::pgm::Profile;

use crate::parameters::{FILES_BACKLOG_BYTES, FILES_BURST_BYTES};
use crate::{Endpoint, Handle, Sending, opening, steering};

/// A sender of one manifest: it fills the source's window with the blocks of a transfer, and tells
/// the transfer when a pass has left.
///
/// **Flow control**: new blocks wait while the slowest receiver that reports its position is a
/// whole flow window behind. The source sends the repairs and enforces the flow window.
#[derive(Debug)]
pub struct ObjectSender<C> {
    /// The PGM source; `None` when everything goes over control connections.
    source: Option<Source>,
    transfer: TransferSender<C>,
    is_closing: bool,
}

impl<C: Content> ObjectSender<C> {
    /// Opens a session that sends `manifest`. `config` holds the owner's choices. Its `rate` and
    /// `report_sqns` are overwritten with those that follow from the protocol parameters.
    #[must_use]
    pub fn open(
        sending: &Sending,
        mut config: TransferSenderConfig,
        manifest: Arc<Manifest>,
        content: C,
        now: Instant,
    ) -> Self {
        let sending = Sending {
            config: sending.config.for_objects(),
            ..*sending
        };
        opening::settle_transfer(&mut config, &sending.config);
        Self {
            source: Some(sending.source(Profile::Objects, config.key.is_some(), now)),
            transfer: TransferSender::new(config, manifest, content, now),
            is_closing: false,
        }
    }

    /// Opens a session that sends `manifest` over connections alone, to the hosts that
    /// [`TransferSenderConfig::carriage`] names.
    #[must_use]
    pub fn dial(
        config: TransferSenderConfig,
        manifest: Arc<Manifest>,
        content: C,
        now: Instant,
    ) -> Self {
        Self {
            source: None,
            transfer: TransferSender::new(config, manifest, content, now),
            is_closing: false,
        }
    }

    /// Returns the PGM source; `None` where everything goes over connections.
    pub const fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// Returns the transfer: the manifest and its receivers.
    pub const fn transfer(&self) -> &TransferSender<C> {
        &self.transfer
    }

    /// Returns the transfer, for callers that take events or cancel.
    pub const fn transfer_mut(&mut self) -> &mut TransferSender<C> {
        &mut self.transfer
    }

    /// Returns the counts of packets thrown away, by reason; `None` when all goes over connections.
    pub fn drops(&self) -> Option<&DropCounters> {
        self.source.as_ref().map(Source::drops)
    }

    /// Returns true when the outcome is final, and the receivers have been told of it or the time
    /// to tell them is over.
    pub const fn is_over(&self) -> bool {
        self.transfer.is_closed() && self.is_closing
    }

    /// Moves blocks of the transfer into the source's window while fewer than
    /// [`FILES_BACKLOG_BYTES`] bytes wait there.
    fn feed(&mut self, now: Instant) {
        let Some(source) = &mut self.source else {
            return;
        };
        while source.backlog_bytes() < FILES_BACKLOG_BYTES {
            let Some(block) = self.transfer.next_block(source.max_tsdu()) else {
                return;
            };
            let count = block
                .count
                .min((FILES_BURST_BYTES / block.len).max(1))
                .min(source.burst_count_max(block.len));
            let mut burst = match source.reserve_burst(block.len, count) {
                Ok(burst) => burst,
                Err(Full::Window | Full::TooLong { .. } | Full::Closed) => return,
            };
            let mut filled = 0;
            while filled < count && self.transfer.fill(now, &block, filled, burst.slot(filled)) {
                filled += 1;
            }
            if filled == 0 {
                return;
            }
            let last_position = burst.commit_first(filled);
            self.transfer
                .blocks_committed(now, &block, filled, last_position);
        }
    }

    fn follow_receivers(&mut self, now: Instant) {
        self.transfer.look_for_content(now);
        if let Some(source) = &mut self.source {
            let state = steering::state_of(source, now);
            let wanted = self.transfer.observe(now, &state);
            steering::follow(source, &wanted);
        }
        self.feed(now);
        let is_drained = self.source.as_ref().is_none_or(Source::is_drained);
        if self.transfer.is_draining() && is_drained {
            self.transfer.pass_drained(now);
        }
        if self.transfer.is_finished() && !self.is_closing {
            self.is_closing = true;
            if let Some(source) = &mut self.source {
                source.close(now);
            }
        }
    }
}

impl<C: Content> Handle<()> for ObjectSender<C> {
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        let Some(source) = &mut self.source else {
            return;
        };
        let verdict = if self.transfer.has_host(arrival.source.ip()) {
            source.handle_reporter(now, arrival, tpdu)
        } else {
            source.handle(now, arrival, tpdu)
        };
        debug_assert!(!matches!(verdict, Verdict::Payload { .. } | Verdict::Held));
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.follow_receivers(now);
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        // The order of these two timeouts does not matter: the source does not end by itself, but
        // only when `follow_receivers` closes it for the transfer.
        if let Some(source) = &mut self.source {
            source.handle_timeout(now);
        }
        self.transfer.handle_timeout(now);
    }
}

impl<C: Content> Endpoint for ObjectSender<C> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.transfer.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.transfer.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.transfer.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.transfer.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.source.as_mut()?.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        if let Some(source) = &mut self.source {
            source.run_done(now, outcome);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let source = self.source.as_ref().and_then(Source::next_timeout);
        base::earliest(source, self.transfer.next_timeout())
    }
}
