//! The loop itself. It knows no protocol.

use base::{Instant, Io, IoFault, LinkEvent, Outcome, RecvBatch};
use delivery::LinkCommand;
use protection::PacketProtection;

use crate::parameters::{LINK_BYTES_MAX, LINK_COMMANDS_MAX, LINK_EVENTS_MAX, RUNS_MAX};
use crate::{Endpoint, Handle, stage::Stage};

base::counters! {
    /// What the loop has done.
    pub struct DriverCounters: "driver" {
        turns: Events, "turns of the loop";
        turns_full: Events, "turns that received nothing because the application takes nothing";
        datagrams: Packets, "datagrams received, after GRO split";
        buffers: Events, "receive buffers filled; one may hold many datagrams";
        runs: Events, "runs sent whole";
        runs_short: Events, "runs of which the socket took only a part";
        runs_blocked: Events, "runs refused because the socket was full";
        runs_too_big: Events, "runs refused because a datagram exceeds the path's size";
        turns_at_runs_max: Events,
            "turns that sent RUNS_MAX runs; more may have waited for the next turn";
        runs_failed: Events, "runs that the network refused; the receivers ask for them again";
        link_events: Events, "events of control connections";
        turns_at_link_events_max: Events,
            "turns that handled LINK_EVENTS_MAX events, or LINK_BYTES_MAX bytes of them; more may \
             have waited for the next turn";
        turns_at_link_commands_max: Events,
            "turns that carried out LINK_COMMANDS_MAX commands; more may have waited";
    }
}

/// The loop, with the endpoint that it drives and the back end for input and output.
///
/// A debug build panics when the back end breaks its contract: when its clock goes back, or when it
/// takes more of a run or a connection's bytes than it was given.
///
/// **Cost**: the loop itself allocates nothing once its buffers have grown. A turn makes at most
/// one receive call, a few send calls, and what the control connections need; it never blocks.
#[derive(Debug)]
pub struct Driver<I, E> {
    /// The back end.
    pub io: I,
    /// The state machines at this end.
    pub endpoint: E,
    /// With a key: protects the packets that leave, and opens the packets that arrive.
    stage: Stage,
    batch: RecvBatch,
    link_data: Vec<u8>,
    counters: DriverCounters,
    blocked: bool,
    now: Instant,
}

impl<I: Io, E: Endpoint> Driver<I, E> {
    /// Drives `endpoint` over `io`, which receives into `batch`.
    pub fn new(mut io: I, endpoint: E, batch: RecvBatch) -> Self {
        let now = io.now();
        let counters = DriverCounters::default();
        Self {
            io,
            endpoint,
            stage: Stage::default(),
            batch,
            link_data: Vec::new(),
            counters,
            blocked: false,
            now,
        }
    }

    /// Protects the packets that leave, and accepts protected packets only. With `None`, packets
    /// stay unprotected.
    #[must_use]
    pub fn with_protection(mut self, protection: impl Into<Option<PacketProtection>>) -> Self {
        self.stage = Stage::new(protection.into());
        self
    }

    /// Returns the protection of the packets; `None` without a key.
    pub const fn protection(&self) -> Option<&PacketProtection> {
        self.stage.protection()
    }

    /// Returns the number of packets that the endpoint was given: all that arrived, except those
    /// that [`PacketProtection`] refused.
    pub fn handed_on(&self) -> u64 {
        self.counters.datagrams - self.stage.refused()
    }

    /// Returns the protection of the packets, for callers that take its notices.
    pub const fn protection_mut(&mut self) -> Option<&mut PacketProtection> {
        self.stage.protection_mut()
    }

    /// Makes one turn: receives a batch and handles it, serves control connections and timers,
    /// drains the endpoint, and sends runs.
    ///
    /// # Errors
    /// When the back end has a fault from which it cannot recover.
    pub fn turn<S: ?Sized>(&mut self, sink: &mut S) -> Result<Turn, IoFault>
    where
        E: Handle<S>,
    {
        let now = self.tick();
        self.counters.turns += 1;
        let buffers = self.receive(now, sink)?;
        let link_events = self.serve_links(now);
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now, sink);
        }
        self.endpoint.drain(now, sink);
        let runs = self.send_runs(now);
        let link_commands = self.pump_links();
        Ok(Turn {
            buffers,
            link_events,
            link_commands,
            runs,
            blocked: self.blocked,
        })
    }

    /// Reads the time, which must not go back.
    fn tick(&mut self) -> Instant {
        let (before, now) = (self.now, self.io.now());
        debug_assert!(
            now >= before,
            "the clock went back from {before:?} to {now:?}"
        );
        self.now = now;
        now
    }

    fn receive<S: ?Sized>(&mut self, now: Instant, sink: &mut S) -> Result<usize, IoFault>
    where
        E: Handle<S>,
    {
        if self.endpoint.is_full(sink) {
            self.counters.turns_full += 1;
            return Ok(0);
        }
        self.batch.clear();
        let buffers = self.io.recv(&mut self.batch)?;
        for (datagram, bytes) in self.batch.datagrams_mut() {
            self.counters.buffers += 1;
            for tpdu in datagram.split(bytes) {
                self.counters.datagrams += 1;
                if let Some(packet) = self.stage.open(&datagram.arrival, tpdu) {
                    self.endpoint.handle(now, &datagram.arrival, packet, sink);
                }
            }
        }
        Ok(buffers)
    }

    fn serve_links(&mut self, now: Instant) -> u32 {
        let (mut served, mut bytes) = (0, 0);
        while served < LINK_EVENTS_MAX && bytes < LINK_BYTES_MAX {
            let Some((link, event)) = self.io.link_event(&mut self.link_data) else {
                return served;
            };
            self.counters.link_events += 1;
            let data = if event == LinkEvent::Data {
                &self.link_data[..]
            } else {
                &[]
            };
            bytes += data.len();
            self.endpoint.handle_link(now, link, event, data);
            served += 1;
        }
        self.counters.turns_at_link_events_max += 1;
        served
    }

    fn pump_links(&mut self) -> u32 {
        for done in 0..LINK_COMMANDS_MAX {
            match self.endpoint.poll_link() {
                None => return done,
                Some(LinkCommand::Open { peer, key }) => {
                    let link = self.io.link_open(peer);
                    self.endpoint.link_opened(key, link);
                }
                Some(LinkCommand::Send { link, bytes }) => {
                    let (len, taken) = (bytes.len(), self.io.link_send(link, bytes));
                    debug_assert!(
                        taken <= len,
                        "{taken} of {len} bytes were taken of {link:?}"
                    );
                    self.endpoint.link_sent(link, taken);
                }
                Some(LinkCommand::Pause { link, is_paused }) => {
                    self.io.link_pause(link, is_paused);
                }
                Some(LinkCommand::Close { link }) => self.io.link_close(link),
            }
        }
        self.counters.turns_at_link_commands_max += 1;
        LINK_COMMANDS_MAX
    }

    fn send_runs(&mut self, now: Instant) -> u32 {
        self.blocked = false;
        let budget = self.stage.budget(self.io.run_limit());
        for sent in 0..RUNS_MAX {
            let Some(run) = self.endpoint.poll_run(now, budget) else {
                return sent;
            };
            let whole = run.datagram_count();
            let begun = self.io.now();
            let outcome = self.stage.send(&run, &mut self.io);
            if let Outcome::Sent { datagrams } = outcome {
                debug_assert!(
                    datagrams <= whole,
                    "{datagrams} of {whole} datagrams were sent"
                );
            }
            let end = self.io.now();
            self.endpoint.run_took(end, end.since(begun));
            self.endpoint.run_done(now, outcome);
            match outcome {
                Outcome::Sent { datagrams } if datagrams == whole => self.counters.runs += 1,
                Outcome::Sent { .. } => self.counters.runs_short += 1,
                Outcome::TooBig => self.counters.runs_too_big += 1,
                Outcome::Failed => self.counters.runs_failed += 1,
                Outcome::Blocked => {
                    self.counters.runs_blocked += 1;
                    self.blocked = true;
                    return sent;
                }
            }
        }
        self.counters.turns_at_runs_max += 1;
        RUNS_MAX
    }

    /// Sends what waits, so that a message can leave at once. Packets that have arrived wait for
    /// the next turn. Returns the number of runs, counted as in [`Turn::runs`].
    pub fn send_ready(&mut self) -> u32 {
        let now = self.tick();
        self.send_runs(now)
    }

    /// Waits until there is something to do: a packet, a control event, room to send, a deadline,
    /// or `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        let due = base::earliest(self.endpoint.next_timeout(), until);
        self.io.wait(due);
    }

    /// Says when the next turn is due even if nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.endpoint.next_timeout()
    }

    /// Returns the time of the last turn, or of [`Driver::send_ready`] if that was later.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the counters of what the loop has done.
    pub const fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

/// What one turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Receive buffers handled.
    pub buffers: usize,
    /// Control-connection events handled.
    pub link_events: u32,
    /// Commands that were carried out on control connections.
    pub link_commands: u32,
    /// Runs that were sent, at least in part, or refused for good.
    pub runs: u32,
    /// True when the socket was full: wait for room before the next turn.
    pub blocked: bool,
}

impl Turn {
    /// Combines this turn with the turn of another loop on the same thread. The result is idle when
    /// both turns are.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            buffers: self.buffers + other.buffers,
            link_events: self.link_events + other.link_events,
            link_commands: if self.link_commands > other.link_commands {
                self.link_commands
            } else {
                other.link_commands
            },
            runs: self.runs + other.runs,
            blocked: (self.blocked && (other.blocked || other.runs == 0))
                || (other.blocked && self.runs == 0),
        }
    }

    /// Returns true when another turn would find nothing to do now, so that waiting is right.
    pub const fn is_idle(&self) -> bool {
        self.buffers == 0
            && self.link_events == 0
            // A turn that reached this limit may have left commands undone, and no event would wake
            // the loop for them.
            && self.link_commands < LINK_COMMANDS_MAX
            && (self.runs == 0 || self.blocked)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::SocketAddr};

    use base::{Arrival, Budget, LinkId, PathId, Run, RunLimit, Socket};

    use super::*;

    /// A back end that plays back the script of a test.
    #[derive(Default)]
    struct Script {
        arrivals: VecDeque<Vec<u8>>,
        outcomes: VecDeque<Outcome>,
        sent: Vec<usize>,
        link_events: u32,
        times: VecDeque<u64>,
    }

    impl Io for Script {
        fn now(&mut self) -> Instant {
            Instant::from_nanos(self.times.pop_front().unwrap_or(5))
        }

        fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
            let from = Arrival::from(SocketAddr::from(([10, 0, 0, 1], 1)), Socket::Group);
            while let Some(bytes) = self.arrivals.front() {
                if !batch.push_copy(from, bytes) {
                    break;
                }
                self.arrivals.pop_front();
            }
            Ok(batch.filled())
        }

        fn send(&mut self, run: &Run<'_>) -> Outcome {
            self.sent.push(run.len());
            let whole = Outcome::Sent {
                datagrams: run.datagram_count(),
            };
            self.outcomes.pop_front().unwrap_or(whole)
        }

        fn run_limit(&self) -> RunLimit {
            RunLimit {
                bytes: 64_000,
                datagrams: 128,
            }
        }

        fn link_open(&mut self, _peer: SocketAddr) -> LinkId {
            LinkId(0)
        }

        fn link_event(&mut self, _data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
            self.link_events = self.link_events.checked_sub(1)?;
            Some((LinkId(1), LinkEvent::Opened))
        }

        fn link_send(&mut self, _link: LinkId, bytes: &[u8]) -> usize {
            bytes.len()
        }

        fn link_pause(&mut self, _link: LinkId, _is_paused: bool) {}

        fn link_close(&mut self, _link: LinkId) {}

        fn wait(&mut self, _until: Option<Instant>) {}
    }

    /// Sends `runs` runs of two datagrams, and collects what arrives into the sink.
    struct Echo {
        runs: usize,
        is_full: bool,
        closings: u32,
        outcomes: Vec<Outcome>,
    }

    impl Endpoint for Echo {
        fn handle_link(&mut self, _: Instant, _: LinkId, _: LinkEvent, _: &[u8]) {}

        fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
            self.closings = self.closings.checked_sub(1)?;
            Some(LinkCommand::Close { link: LinkId(1) })
        }

        fn link_sent(&mut self, _: LinkId, _: usize) {}

        fn link_opened(&mut self, _: u32, _: LinkId) {}

        fn poll_run(&mut self, _now: Instant, _budget: Budget) -> Option<Run<'_>> {
            (self.runs > 0).then_some(Run {
                path: PathId(0),
                to: SocketAddr::from(([239, 1, 1, 1], 7500)),
                hops: None,
                segment: 2,
                memory: &[1, 2, 3, 4],
                ranges: std::slice::from_ref(const { &(0..4) }),
            })
        }

        fn run_done(&mut self, _now: Instant, outcome: Outcome) {
            self.runs -= usize::from(outcome != Outcome::Blocked);
            self.outcomes.push(outcome);
        }

        fn next_timeout(&self) -> Option<Instant> {
            None
        }
    }

    impl Handle<Vec<Vec<u8>>> for Echo {
        fn handle(&mut self, _: Instant, _: &Arrival, tpdu: &[u8], sink: &mut Vec<Vec<u8>>) {
            sink.push(tpdu.to_vec());
        }

        fn drain(&mut self, _: Instant, _: &mut Vec<Vec<u8>>) {}

        fn handle_timeout(&mut self, _: Instant, _: &mut Vec<Vec<u8>>) {}

        fn is_full(&self, _: &Vec<Vec<u8>>) -> bool {
            self.is_full
        }
    }

    fn driver(runs: usize) -> Driver<Script, Echo> {
        let echo = Echo {
            runs,
            is_full: false,
            closings: 0,
            outcomes: Vec::new(),
        };
        Driver::new(Script::default(), echo, RecvBatch::new(4, 16))
    }

    #[test]
    fn a_turn_hands_over_every_datagram_and_looks_up_between_runs() {
        let mut driver = driver(RUNS_MAX as usize + 1);
        driver.io.arrivals.extend([vec![1], vec![2, 2]]);
        let mut sink = Vec::new();
        let turn = driver.turn(&mut sink).unwrap();
        assert_eq!(sink, [vec![1], vec![2, 2]]);
        assert_eq!(
            (turn.buffers, turn.runs, turn.is_idle()),
            (2, RUNS_MAX, false)
        );
        assert_eq!(driver.turn(&mut sink).unwrap().runs, 1);
        assert!(driver.turn(&mut sink).unwrap().is_idle());
        let counters = driver.counters();
        assert_eq!(counters.runs, u64::from(RUNS_MAX) + 1);
        assert_eq!(counters.turns_at_runs_max, 1);
    }

    #[test]
    fn a_turn_bounds_what_control_connections_take_and_counts_that() {
        let mut driver = driver(0);
        driver.io.link_events = LINK_EVENTS_MAX + 1;
        driver.endpoint.closings = LINK_COMMANDS_MAX + 1;
        let mut sink = Vec::new();
        let turn = driver.turn(&mut sink).unwrap();
        let done = (turn.link_events, turn.link_commands);
        assert_eq!(done, (LINK_EVENTS_MAX, LINK_COMMANDS_MAX));
        assert!(!turn.is_idle());
        let turn = driver.turn(&mut sink).unwrap();
        assert_eq!((turn.link_events, turn.link_commands), (1, 1));
        let counters = driver.counters();
        assert_eq!(counters.turns_at_link_events_max, 1);
        assert_eq!(counters.turns_at_link_commands_max, 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the clock went back")]
    fn a_clock_that_goes_back_is_named() {
        let mut driver = driver(0);
        driver.io.times.push_back(4);
        drop(driver.turn(&mut Vec::new()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "3 of 2 datagrams were sent")]
    fn a_back_end_that_sends_more_than_it_was_given_is_named() {
        let mut driver = driver(1);
        driver.io.outcomes.push_back(Outcome::Sent { datagrams: 3 });
        drop(driver.turn(&mut Vec::new()));
    }

    #[test]
    fn a_full_socket_ends_the_sending_and_the_run_stays() {
        let mut driver = driver(2);
        driver
            .io
            .outcomes
            .extend([Outcome::Sent { datagrams: 1 }, Outcome::Blocked]);
        let turn = driver.turn(&mut Vec::new()).unwrap();
        assert!(turn.blocked && turn.is_idle());
        assert_eq!(
            driver.endpoint.outcomes,
            [Outcome::Sent { datagrams: 1 }, Outcome::Blocked]
        );
        let counters = driver.counters();
        assert_eq!((counters.runs_short, counters.runs_blocked), (1, 1));
        assert_eq!(driver.endpoint.runs, 1);
    }

    #[test]
    fn an_application_that_takes_nothing_leaves_packets_in_the_socket() {
        let mut driver = driver(0);
        driver.io.arrivals.push_back(vec![1]);
        driver.endpoint.is_full = true;
        let mut sink = Vec::new();
        assert_eq!(driver.turn(&mut sink).unwrap().buffers, 0);
        assert_eq!(driver.counters().turns_full, 1);
        driver.endpoint.is_full = false;
        assert_eq!(driver.turn(&mut sink).unwrap().buffers, 1);
        assert_eq!(sink, [vec![1]]);
    }
}
