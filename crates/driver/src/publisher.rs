//! The sending end of a message session: a PGM source, and the registry of reporting receivers.

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{LinkCommand, Registry, RegistryEvent};
use pgm::{Full, Source};
use wire::pgm::Mark;

use crate::{Endpoint, Handle};

/// A source of messages whose window may be held back by the receivers that report.
#[derive(Debug)]
pub struct Publisher {
    source: Source,
    registry: Registry,
}

/// The parts of a [`Publisher`].
#[derive(Debug)]
pub struct PublisherSetup {
    /// The PGM source.
    pub source: Source,
    /// Who reports, and what a slow one may do.
    pub registry: Registry,
}

impl Publisher {
    /// Joins a source and its registry.
    #[must_use]
    pub fn new(setup: PublisherSetup) -> Self {
        let PublisherSetup { source, registry } = setup;
        Self { source, registry }
    }

    /// Takes one message into the transmit log; it leaves with the next turn.
    ///
    /// # Errors
    /// See [`Full`]: nothing was taken.
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, Full> {
        self.source.offer(message)
    }

    /// The PGM source.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The PGM source, to reserve slots in or to close.
    pub const fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// The reporting receivers.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Says good-bye to every reporting receiver: nobody holds the source back any more.
    pub fn end_reports(&mut self, now: Instant) {
        self.registry.close(now);
    }

    /// The next event about a receiver.
    pub fn pop_event(&mut self) -> Option<RegistryEvent> {
        self.registry.pop_event()
    }

    /// Packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.source.drops()
    }
}

impl Handle<()> for Publisher {
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        let verdict = self.source.handle(now, arrival, tpdu);
        debug_assert!(!matches!(verdict, Verdict::Payload { .. } | Verdict::Held));
    }

    fn drain(&mut self, _now: Instant, (): &mut ()) {
        // What was sent, not what waits: nobody is behind for want of what the flow window keeps
        // back.
        self.registry.set_lead(self.source.unsent() - 1);
        let limiting = self.registry.limiting().unwrap_or(Mark::NO_RECEIVER);
        let rate = self.source.rate();
        self.source
            .set_announced(rate, self.registry.receiver_count(), limiting);
        self.source.set_hold(self.registry.hold());
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.registry.handle_timeout(now);
        self.source.handle_timeout(now);
    }
}

impl Endpoint for Publisher {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        // What left in the turn before may be reported already: a report beyond the lead is cut to
        // it, and a receiver that has everything would stand behind until it reports again.
        self.registry.set_lead(self.source.unsent() - 1);
        self.registry.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.registry.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.registry.link_sent(link, taken);
    }

    fn link_opened(&mut self, _key: u32, _link: LinkId) {}

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.source.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.source.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.source.next_timeout(), self.registry.next_timeout())
    }
}
