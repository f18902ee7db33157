//! The sending end of a message session: a PGM source, and the registry of reporting receivers.

use std::time::Duration;

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

    /// Takes one message into the transmit log; it leaves with the next turn. Gives the position
    /// of its first packet.
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

    fn drain(&mut self, now: Instant, (): &mut ()) {
        // What was sent, not what waits: nobody is behind for want of what the flow window keeps
        // back.
        self.registry.set_lead(self.source.unsent() - 1);
        let is_limited = self.source.is_rate_limited(now);
        if let Some(rate) = self.registry.steer(now, is_limited)
            && rate != self.source.rate()
        {
            self.source.set_rate(rate);
        }
        let sets_rate = self.registry.rate_limit().map(|limit| limit.slot);
        let limiting = sets_rate.or_else(|| self.registry.limiting());
        let limiting = limiting.unwrap_or(Mark::NO_RECEIVER);
        let rate = self.source.rate();
        self.source
            .set_announced(rate, self.registry.receiver_count(), limiting);
        self.source.set_hold(self.registry.hold());
        if let Some(round_trip) = self.registry.round_trip() {
            self.source.set_round_trip(round_trip);
        }
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

    fn run_took(&mut self, took: Duration) {
        self.source.run_took(took);
    }

    fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.source.next_timeout(), self.registry.next_timeout())
    }
}

#[cfg(test)]
mod tests {
    use base::PathId;
    use delivery::RegistryConfig;
    use pgm::{Config, SourceSetup};
    use wire::{
        object::{Hello, Message, Pos},
        pgm::{Gsi, Tsi},
    };

    use super::*;

    const LINK: LinkId = LinkId(1);
    const SESSION: u64 = 9;

    fn publisher(now: Instant) -> Publisher {
        let setup = SourceSetup {
            tsi: Tsi {
                gsi: Gsi([1; 6]),
                port: 4,
            },
            destination_port: 7,
            group: ([239, 1, 1, 1], 7).into(),
            nla: [10, 0, 0, 1].into(),
            path: PathId(0),
            first_sqn: 100,
            seed: 1,
            mark: None,
        };
        let source = Source::new(Config::default(), setup, now);
        let registry = Registry::new(RegistryConfig::new(SESSION));
        Publisher::new(PublisherSetup { source, registry })
    }

    fn say(publisher: &mut Publisher, now: Instant, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        publisher.handle_link(now, LINK, LinkEvent::Data, &bytes);
    }

    fn send_all(publisher: &mut Publisher, now: Instant) {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 64,
        };
        while let Some(run) = publisher.poll_run(now, budget) {
            let datagrams = run.len();
            publisher.run_done(now, Outcome::Sent { datagrams });
        }
    }

    /// How many packets leave at `now`.
    fn leaving(publisher: &mut Publisher, now: Instant) -> usize {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 64,
        };
        let left = publisher
            .poll_run(now, budget)
            .map_or(0, |run| run.datagram_count());
        let sent = Outcome::Sent { datagrams: left };
        publisher.run_done(now, sent);
        left
    }

    #[test]
    fn messages_that_follow_each_other_wait_for_company_and_one_alone_does_not() {
        let start = Instant::from_nanos(1_000_000_000);
        let us = |n: u64| start + Duration::from_micros(n);
        let mut publisher = publisher(start);
        send_all(&mut publisher, start);
        for _ in 0..100 {
            publisher.run_took(Duration::from_micros(5));
        }
        publisher.offer(b"alone").unwrap();
        assert_eq!(leaving(&mut publisher, us(1)), 1);
        for at in [2, 3, 30] {
            publisher.offer(b"soon after").unwrap();
            assert_eq!(leaving(&mut publisher, us(at)), 0);
        }
        let due = publisher.next_timeout().unwrap();
        assert!(due > us(35) && due <= us(41), "{due:?}");
        assert_eq!(leaving(&mut publisher, due), 3, "in one run");
        // What may leave does so in as many runs as it takes.
        let due = due + Duration::from_micros(41);
        for len in [100, 1000, 500] {
            publisher.offer(&vec![7; len]).unwrap();
        }
        let runs: Vec<usize> = (0..3).map(|_| leaving(&mut publisher, due)).collect();
        assert_eq!(runs.iter().sum::<usize>(), 3, "{runs:?}");
        publisher.offer(b"in a hurry").unwrap();
        publisher.source_mut().uncork();
        assert_eq!(leaving(&mut publisher, due), 1);
        // At the end nothing waits.
        publisher.offer(b"the last").unwrap();
        publisher.source_mut().close(due);
        assert_eq!(leaving(&mut publisher, due), 1);
    }

    #[test]
    fn a_report_of_what_just_left_counts_whole() {
        let now = Instant::from_nanos(1_000_000_000);
        let mut publisher = publisher(now);
        let peer = ([10, 0, 0, 2], 4000).into();
        publisher.handle_link(now, LINK, LinkEvent::Accepted { peer }, &[]);
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            instance: 1,
            session: SESSION,
            name: "r",
            nonce: None,
        };
        say(&mut publisher, now, &Message::Hello(hello));
        publisher.drain(now, &mut ());

        let sqn = publisher.offer(b"message").unwrap();
        send_all(&mut publisher, now);
        // The next turn begins with the answer, before anything is drained.
        let pos = Pos {
            contiguous: sqn + 1,
            lead: sqn,
            ..Pos::default()
        };
        say(&mut publisher, now, &Message::Pos(pos));

        assert_eq!(publisher.registry().counters().reports_ahead, 0);
        assert!(publisher.registry().has_confirmed(sqn + 1));
    }
}
