//! The sending end of a message session: a PGM source, and the registry of reporting receivers.

use std::time::Duration;

use base::{
    Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, RunLimit, Verdict,
};
use delivery::{LinkCommand, Registry, RegistryConfig, RegistryEvent};
use pgm::{Full, Source};
use wire::pgm::{Data, Profile};

use crate::{Ended, Endpoint, Handle, Sending, ending::Ending, opening, steering};

/// A source of messages whose window may be held back by the receivers that report.
#[derive(Debug)]
pub struct Publisher {
    source: Source,
    registry: Registry,
    ending: Ending,
    /// Bytes taken since runs were last asked for, with their PGM headers.
    fresh_bytes: usize,
}

impl Publisher {
    /// Opens a session. `registry` holds the owner's choices: what it says about rates and report
    /// intervals is overwritten, as that follows from the protocol parameters.
    #[must_use]
    pub fn open(sending: &Sending, mut registry: RegistryConfig, now: Instant) -> Self {
        opening::settle_registry(&mut registry, &sending.config);
        let source = sending.source(Profile::Messages, now);
        Self::new(source, Registry::new(registry))
    }

    /// Joins a source and its registry as they are: for those who vary what
    /// [`Publisher::open`] decides.
    #[must_use]
    pub const fn new(source: Source, registry: Registry) -> Self {
        Self {
            source,
            registry,
            ending: Ending::Open,
            fresh_bytes: 0,
        }
    }

    /// Takes one message into the transmit log; it leaves with the next turn. Gives the position
    /// of its first packet.
    ///
    /// # Errors
    /// See [`Full`]: nothing was taken.
    #[inline]
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, Full> {
        let first = self.source.offer(message)?;
        self.fresh_bytes += message.len() + Data::HEAD_LEN;
        Ok(first)
    }

    /// Takes one message of `len` bytes, at most one packet's worth, which `fill` writes where it
    /// will be sent from.
    ///
    /// # Errors
    /// See [`Full`]: nothing was taken.
    #[inline]
    pub fn offer_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut slot = self.source.reserve(len)?;
        fill(slot.payload_mut());
        slot.commit();
        self.fresh_bytes += len + Data::HEAD_LEN;
        Ok(())
    }

    /// True when a full run waits: one more message of `len` bytes would have to leave in a run of
    /// its own, so a turn is worth its system calls now.
    #[inline]
    #[must_use]
    pub const fn has_full_run(&self, len: usize) -> bool {
        self.fresh_bytes + len + Data::HEAD_LEN > RunLimit::BYTES_MAX
    }

    /// What waits for company leaves with the next run.
    pub const fn uncork(&mut self) {
        self.source.uncork();
    }

    /// Begins the end of the session in good order, or brings the deadline of one that has begun
    /// nearer. Further turns send everything, wait until the receivers that report have it or are
    /// gone, and announce the end. What is not confirmed by the deadline is broken off, and
    /// receivers are told. [`Publisher::ended`] says when that is done and how.
    pub fn close(&mut self, now: Instant, deadline: Instant) {
        self.ending
            .begin(now, deadline, &mut self.source, &self.registry);
    }

    /// How the session has ended; `None` while it goes on or is being closed.
    #[must_use]
    pub const fn ended(&self) -> Option<Ended> {
        self.ending.ended()
    }

    /// True once everything was sent and every reporting receiver has it or is gone.
    #[must_use]
    pub const fn is_confirmed(&self) -> bool {
        self.ending.is_confirmed()
    }

    /// The PGM source.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The reporting receivers.
    pub const fn registry(&self) -> &Registry {
        &self.registry
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
        self.ending
            .advance(now, &mut self.source, &mut self.registry);
        steering::follow(&mut self.source, &mut self.registry, now);
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.registry.handle_timeout(now);
        // Before the source, which may be over otherwise while somebody lacks something.
        self.ending
            .advance(now, &mut self.source, &mut self.registry);
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
        self.fresh_bytes = 0;
        self.source.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.source.run_done(now, outcome);
    }

    fn run_took(&mut self, took: Duration) {
        self.source.run_took(took);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let ending = self.ending.due(&self.source, &self.registry);
        let parts = base::earliest(self.source.next_timeout(), self.registry.next_timeout());
        base::earliest(ending, parts)
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
        Publisher::new(source, registry)
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
        let Some(run) = publisher.poll_run(now, budget) else {
            return 0;
        };
        let left = run.datagram_count();
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
        publisher.uncork();
        assert_eq!(leaving(&mut publisher, due), 1);
        // At the end nothing waits.
        publisher.offer(b"the last").unwrap();
        publisher.close(due, due + Duration::from_secs(1));
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
