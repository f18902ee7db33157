//! A relay between networks: its network element passes packets on, its forwarder passes control
//! connections on.
//!
//! The element and the forwarder know nothing of each other; this file joins them. The element's
//! SPMs name the forwarder's port, so receivers dial the forwarder. The forwarder dials a session's
//! source only at the address from which the element hears that source.

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, earliest};
use delivery::{Forwarder, LinkCommand};
use pgm::{Element, ElementSetup};

use crate::{Endpoint, Handle};

/// A network element and the connections of the receivers behind it.
#[derive(Debug)]
pub struct Relay {
    element: Element,
    forwarder: Forwarder,
}

impl Relay {
    /// Makes a relay that joins the ways of `setup`: interfaces, or tunnels to other hosts. The
    /// index of a way in `setup` is the number of its path in the back end.
    #[must_use]
    pub fn open(setup: ElementSetup) -> Self {
        Self {
            element: Element::new(setup),
            forwarder: Forwarder::default(),
        }
    }

    /// Returns the network element, which passes packets on.
    #[must_use]
    pub const fn element(&self) -> &Element {
        &self.element
    }

    /// Returns the forwarder, which passes connections on.
    #[must_use]
    pub const fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// Returns the counts of packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        self.element.drops()
    }
}

impl Endpoint for Relay {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        let sender_of = |session_id| self.element.control_address(session_id);
        self.forwarder
            .handle_link(now, link, event, data, sender_of);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.forwarder.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.forwarder.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.forwarder.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.element.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.element.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        earliest(self.element.next_timeout(), self.forwarder.next_timeout())
    }
}

impl Handle<()> for Relay {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        self.element.handle(now, arrival, tpdu);
    }

    fn drain(&mut self, _now: Instant, (): &mut ()) {}

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.element.handle_timeout(now);
        self.forwarder.handle_timeout(now);
    }

    fn is_full(&self, (): &()) -> bool {
        self.element.is_full()
    }
}
