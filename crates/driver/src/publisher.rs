//! The sending end of a message session: a PGM source, and the audience of reporting receivers.

use std::time::Duration;

use base::{
    Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, RunLimit, Verdict,
};
use delivery::{Audience, AudienceConfig, AudienceEvent, LinkCommand};
use pgm::{Full, Source};
use wire::pgm::{Data, Profile};

use crate::{Ended, Endpoint, Handle, Sending, ending::Ending, opening, steering};

/// A source of messages. Reporting receivers can hold its window back.
#[derive(Debug)]
pub struct Publisher {
    source: Source,
    audience: Audience,
    ending: Ending,
    /// Bytes that the source has taken since the last call of `poll_run`: messages and their PGM
    /// headers.
    fresh_bytes: usize,
    /// The most bytes of a run, as the last call of `poll_run` said.
    run_bytes_max: usize,
    /// True while all messages wait for the first reports of the expected receivers.
    keeps_for_expected: bool,
}

impl Publisher {
    /// Opens a session. `audience` holds the owner's choices. Its `rate` and `report_sqns` are
    /// overwritten with those that follow from the protocol parameters.
    #[must_use]
    pub fn open(sending: &Sending, audience: AudienceConfig, now: Instant) -> Self {
        Self::of(Profile::Messages, sending, audience, now)
    }

    /// Opens a session whose mark tells receivers to read packets as `profile` says.
    pub(crate) fn of(
        profile: Profile,
        sending: &Sending,
        mut audience: AudienceConfig,
        now: Instant,
    ) -> Self {
        opening::settle_audience(&mut audience, &sending.config);
        let source = sending.source(profile, audience.key.is_some(), now);
        Self::new(source, Audience::new(audience))
    }

    /// Makes a publisher from a source and an audience as they are, for callers that do not want
    /// the choices of [`Publisher::open`].
    #[must_use]
    pub const fn new(source: Source, audience: Audience) -> Self {
        Self {
            source,
            audience,
            ending: Ending::Open,
            fresh_bytes: 0,
            run_bytes_max: RunLimit::BYTES_MAX,
            keeps_for_expected: false,
        }
    }

    /// Keeps all messages back until the expected receivers have reported. Otherwise a receiver
    /// could miss messages, because it begins with the first packet that it hears.
    pub fn keep_for_expected(&mut self) {
        self.keeps_for_expected = true;
        self.follow_audience();
    }

    fn follow_audience(&mut self) {
        // The wait ends when the expected receivers have sent a report; it is not enough to join.
        self.keeps_for_expected &= !self.audience.has_heard_expected();
        self.source.set_waiting(self.keeps_for_expected);
    }

    /// Takes one message into the transmit log; it leaves with the next turn or later. Returns the
    /// position of the message's first packet.
    ///
    /// # Errors
    /// [`Full`] says why nothing was taken.
    #[inline]
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, Full> {
        let first = self.source.offer(message)?;
        self.fresh_bytes += message.len() + Data::HEAD_LEN;
        Ok(first)
    }

    /// Takes one message of `len` bytes that fits one packet; `fill` writes it into the transmit
    /// log, from where it is sent.
    ///
    /// # Errors
    /// [`Full`] says why nothing was taken.
    #[inline]
    pub fn offer_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut slot = self.source.reserve(len)?;
        fill(slot.payload_mut());
        slot.commit();
        self.fresh_bytes += len + Data::HEAD_LEN;
        Ok(())
    }

    /// Takes payloads that are of use only together, as [`Source::offer_pieces`] does.
    pub(crate) fn offer_pieces(
        &mut self,
        len: usize,
        pieces: (usize, usize),
        fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<u64, Full> {
        self.source.offer_pieces(len, pieces, fill)
    }

    /// Returns true when a full run waits, so that a turn is worth its system calls: one more
    /// message of `len` bytes would not fit the run.
    #[inline]
    #[must_use]
    pub const fn has_full_run(&self, len: usize) -> bool {
        self.fresh_bytes + len + Data::HEAD_LEN > self.run_bytes_max
    }

    /// Returns true when data waits that may leave at `now`.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now: Instant) -> bool {
        self.source.has_due(now)
    }

    /// Ends the cork: data that waits for more data leaves with the next run.
    pub const fn uncork(&mut self) {
        self.source.uncork();
    }

    /// Begins an orderly end of the session. If the end has begun already, only a nearer deadline
    /// has an effect. Further turns send everything, wait until the expected receivers have joined
    /// and every reporting receiver has everything or is gone, and announce the end. If the
    /// deadline comes before everything was sent, or while a connected receiver lacks something,
    /// the source breaks the session off and tells receivers so. [`Publisher::ended`] says how the
    /// session ended, once it has.
    pub fn close(&mut self, now: Instant, deadline: Instant) {
        self.ending
            .begin(now, deadline, false, &mut self.source, &self.audience);
    }

    /// Delivers everything as [`Publisher::close`] does, then breaks the session off and tells
    /// receivers so. Call it when the owner has more to send but cannot.
    pub fn break_off(&mut self, now: Instant, deadline: Instant) {
        self.ending
            .begin(now, deadline, true, &mut self.source, &self.audience);
    }

    /// Begins to count the receivers by polls, as [`Source::count_receivers`] does.
    pub fn count_receivers(&mut self, now: Instant) {
        self.source.count_receivers(now);
    }

    /// Says how the session ended; `None` until it has ended.
    #[must_use]
    pub const fn ended(&self) -> Option<Ended> {
        self.ending.ended()
    }

    /// Returns true once the end has begun, everything was sent, every reporting receiver has it or
    /// is gone, and no expected receiver is awaited. Returns false when the session was broken off.
    #[must_use]
    pub const fn is_confirmed(&self) -> bool {
        self.ending.is_confirmed()
    }

    /// Returns the PGM source.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the reporting receivers.
    pub const fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Returns the next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.audience.pop_event()
    }

    /// Returns the counts of packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.source.drops()
    }
}

impl Handle<()> for Publisher {
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        let naks = self.source.counters().naks;
        let verdict = if self.audience.has_host(arrival.source.ip()) {
            self.source.handle_reporter(now, arrival, tpdu)
        } else {
            self.source.handle(now, arrival, tpdu)
        };
        if self.source.counters().naks > naks {
            self.audience.asked_by(arrival.source.ip());
        }
        debug_assert!(!matches!(verdict, Verdict::Payload { .. } | Verdict::Held));
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.ending
            .advance(now, &mut self.source, &mut self.audience);
        let state = steering::state_of(&self.source, now);
        let wanted = self.audience.observe(now, &state);
        steering::follow(&mut self.source, &wanted);
        self.follow_audience();
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.audience.handle_timeout(now);
        // The ending comes first, because it may lengthen the source's linger. Otherwise the source
        // could end while a receiver lacks something.
        self.ending
            .advance(now, &mut self.source, &mut self.audience);
        self.source.handle_timeout(now);
    }
}

impl Endpoint for Publisher {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        // The audience cuts each reported position to the lead that it knows. With an old lead, a
        // receiver that reports packets of the last turn would count as behind until its next
        // report.
        let state = steering::state_of(&self.source, now);
        self.audience.set_stream(&state);
        self.audience.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.audience.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.audience.link_sent(link, taken);
    }

    fn link_opened(&mut self, _key: u32, _link: LinkId) {}

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.fresh_bytes = 0;
        self.run_bytes_max = budget.bytes.min(RunLimit::BYTES_MAX);
        self.source.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.source.run_done(now, outcome);
    }

    fn run_took(&mut self, end: Instant, took: Duration) {
        self.source.run_took(end, took);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let ending = self.ending.due(&self.source, &self.audience);
        let parts = base::earliest(self.source.next_timeout(), self.audience.next_timeout());
        base::earliest(ending, parts)
    }
}

#[cfg(test)]
mod tests {
    use base::{PathId, Socket};
    use delivery::AudienceConfig;
    use pgm::{Config, SourceSetup};
    use wire::{
        object::{Hello, Message, Pos},
        pgm::{Addressing, Body, Gsi, Mark, Nak, Sqn, Tsi, emit},
    };

    use super::*;

    const LINK: LinkId = LinkId(1);
    const SESSION: u64 = 9;

    const TSI: Tsi = Tsi {
        gsi: Gsi([1; 6]),
        port: 4,
    };

    fn publisher(now: Instant) -> Publisher {
        publisher_with(None, now)
    }

    fn publisher_with(mark: Option<Mark>, now: Instant) -> Publisher {
        let setup = SourceSetup {
            tsi: TSI,
            destination_port: 7,
            group: ([239, 1, 1, 1], 7).into(),
            nla: [10, 0, 0, 1].into(),
            path: PathId(0),
            first_sqn: 100,
            seed: 1,
            mark,
        };
        let source = Source::new(Config::default(), setup, now);
        let audience = Audience::new(AudienceConfig::new(SESSION));
        Publisher::new(source, audience)
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
            publisher.run_took(start, Duration::from_micros(5));
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
        // All data that may leave does leave, in as many runs as that takes.
        let due = due + Duration::from_micros(41);
        for len in [100, 1000, 500] {
            publisher.offer(&vec![7; len]).unwrap();
        }
        let runs: Vec<usize> = (0..3).map(|_| leaving(&mut publisher, due)).collect();
        assert_eq!(runs.iter().sum::<usize>(), 3, "{runs:?}");
        publisher.offer(b"in a hurry").unwrap();
        publisher.uncork();
        assert_eq!(leaving(&mut publisher, due), 1);
        // Data does not wait once the session closes.
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
            session_id: SESSION,
            name: "r",
            nonce: None,
        };
        say(&mut publisher, now, &Message::Hello(hello));
        publisher.drain(now, &mut ());

        let position = publisher.offer(b"message").unwrap();
        send_all(&mut publisher, now);
        // The next turn begins with the answer, before anything is drained.
        let pos = Pos {
            contiguous: position + 1,
            lead: position,
            ..Pos::default()
        };
        say(&mut publisher, now, &Message::Pos(pos));

        assert_eq!(publisher.audience().counters().reports_ahead, 0);
        assert!(publisher.audience().has_confirmed(position + 1));
    }

    /// An expected receiver joins on `link` and says that it has everything below `contiguous`.
    fn join(publisher: &mut Publisher, now: Instant, link: LinkId, contiguous: Option<u64>) {
        let peer = ([10, 0, 0, 2], 4000).into();
        publisher.handle_link(now, link, LinkEvent::Accepted { peer }, &[]);
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            instance: 1,
            session_id: SESSION,
            name: "r",
            nonce: None,
        };
        let mut bytes = Vec::new();
        Message::Hello(hello).emit(&mut bytes);
        if let Some(contiguous) = contiguous {
            let pos = Pos {
                contiguous,
                ..Pos::default()
            };
            Message::Pos(pos).emit(&mut bytes);
        }
        publisher.handle_link(now, link, LinkEvent::Data, &bytes);
        publisher.drain(now, &mut ());
    }

    fn expecting(count: u32, now: Instant) -> Publisher {
        let mut publisher = publisher(now);
        let mut config = AudienceConfig::new(SESSION);
        config.expected = count;
        publisher.audience = Audience::new(config);
        publisher
    }

    #[test]
    fn an_expected_receiver_whose_connection_breaks_is_awaited_at_the_end() {
        let start = Instant::from_nanos(1_000_000_000);
        let s = |n: u64| start + Duration::from_secs(n);
        let mut publisher = expecting(1, start);
        join(&mut publisher, start, LINK, Some(100));
        let position = publisher.offer(b"message").unwrap();
        send_all(&mut publisher, start);
        publisher.close(start, s(60));
        publisher.handle_link(s(1), LINK, LinkEvent::Closed, &[]);
        for n in 1..20 {
            publisher.drain(s(n), &mut ());
            publisher.handle_timeout(s(n), &mut ());
            send_all(&mut publisher, s(n));
        }
        assert!(!publisher.is_confirmed(), "it lacks the message");
        assert_eq!(publisher.ended(), None);
        join(&mut publisher, s(20), LinkId(2), Some(position + 1));
        assert_eq!(publisher.audience().counters().refused, 0);
        assert!(publisher.is_confirmed());
    }

    fn nak_from(publisher: &mut Publisher, now: Instant, host: u8, sqn: Sqn) {
        let body = Body::Nak(Nak {
            sqn,
            source_nla: [10, 0, 0, 1].into(),
            group_nla: [239, 1, 1, 1].into(),
        });
        let mut tpdu = Vec::new();
        emit(&mut tpdu, &Addressing::upstream(TSI, 7), &body, &[], &[]);
        let from = ([10, 0, 0, host], 4000).into();
        let arrival = Arrival::from(from, Socket::Upstream);
        publisher.handle(now, &arrival, &tpdu, &mut ());
    }

    #[test]
    fn repairs_have_full_service_where_a_receiver_reports_and_a_share_elsewhere() {
        let now = Instant::from_nanos(1_000_000_000);
        let mut publisher = publisher(now);
        join(&mut publisher, now, LINK, Some(100));
        let messages = 2000_u64;
        for _ in 0..messages {
            publisher.offer(&[7; 1400]).unwrap();
            send_all(&mut publisher, now);
        }
        for sqn in 100..100 + messages {
            nak_from(&mut publisher, now, 66, Sqn::of(sqn));
        }
        let refused = publisher.source().counters().nak_refused;
        assert!(refused > messages / 4, "{refused}");
        for sqn in 100..100 + messages {
            nak_from(&mut publisher, now, 2, Sqn::of(sqn));
        }
        assert_eq!(publisher.source().counters().nak_queued, messages);
        // A receiver that has left is a stranger.
        publisher.handle_link(now, LINK, LinkEvent::Closed, &[]);
        assert!(!publisher.audience().has_host([10, 0, 0, 2].into()));
    }

    /// Returns how long the end of a session takes. Its source takes reports. With `reports`, the
    /// host 10.0.0.2 reports. With `asker`, the host 10.0.0.`asker` has asked for a repair.
    fn end_of(reports: bool, asker: Option<u8>) -> Duration {
        let start = Instant::from_nanos(1_000_000_000);
        let mark = Some(Mark {
            control_port: 9,
            ..Mark::new(Profile::Messages, SESSION)
        });
        let mut publisher = publisher_with(mark, start);
        let position = publisher.offer(b"message").unwrap();
        send_all(&mut publisher, start);
        if let Some(asker) = asker {
            nak_from(&mut publisher, start, asker, Sqn::of(position));
            assert_eq!(publisher.source().counters().naks, 1);
        }
        if reports {
            join(&mut publisher, start, LINK, Some(position + 1));
        }
        publisher.close(start, start + Duration::from_secs(60));
        let mut now = start;
        while publisher.ended().is_none() {
            publisher.drain(now, &mut ());
            publisher.handle_timeout(now, &mut ());
            send_all(&mut publisher, now);
            now += Duration::from_millis(10);
        }
        assert_eq!(publisher.ended(), Some(Ended::Confirmed));
        now.since(start)
    }

    /// OpenPGM asks again only after two seconds. So half a second without a NAK does not show that
    /// an OpenPGM receiver has everything.
    #[test]
    fn one_who_asked_for_repairs_and_does_not_report_gets_the_whole_linger() {
        let linger = Config::default().linger();
        assert!(end_of(false, None) < linger / 2);
        assert!(end_of(false, Some(9)) >= linger);
        // The same holds when another host reports. A host that asked before it joined is no
        // stranger.
        assert!(end_of(true, None) < linger / 2);
        assert!(end_of(true, Some(2)) < linger / 2);
        assert!(end_of(true, Some(9)) >= linger);
    }

    #[test]
    fn one_that_joins_and_never_reports_keeps_nobody_from_beginning() {
        let now = Instant::from_nanos(1_000_000_000);
        let mut publisher = expecting(1, now);
        publisher.keep_for_expected();
        send_all(&mut publisher, now);
        publisher.offer(b"message").unwrap();
        join(&mut publisher, now, LINK, None);
        assert_eq!(leaving(&mut publisher, now), 0, "it has not reported");
        let peer = ([10, 0, 0, 3], 4000).into();
        publisher.handle_link(now, LinkId(2), LinkEvent::Accepted { peer }, &[]);
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            instance: 2,
            session_id: SESSION,
            name: "other",
            nonce: None,
        };
        let mut bytes = Vec::new();
        Message::Hello(hello).emit(&mut bytes);
        let contiguous = 100;
        let pos = Pos {
            contiguous,
            ..Pos::default()
        };
        Message::Pos(pos).emit(&mut bytes);
        publisher.handle_link(now, LinkId(2), LinkEvent::Data, &bytes);
        publisher.drain(now, &mut ());
        let soon = now + Duration::from_millis(1);
        assert_eq!(leaving(&mut publisher, soon), 1, "one has reported");
    }
}
