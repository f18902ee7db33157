//! A publisher process: offers the workload's messages, closes, and waits until it may go.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Instant, Io as _, PathId, Rng};
use delivery::{Policy, RateConfig, Registry, RegistryConfig};
use driver::{Driver, Publisher, PublisherSetup};
use pgm::{Config, Full, Rate, Source, SourceSetup};
use wire::pgm::{Gsi, Mark, Profile, Tsi};

use super::{Progress, batch, identity_fault};
use crate::{
    SimIo,
    check::SharedLedger,
    plan::{PolicyPlan, Workload},
};

/// What a publisher process is started with.
#[derive(Clone, Copy, Debug)]
pub struct PublisherPlan {
    /// Parameters.
    pub config: Config,
    /// Its own address.
    pub own: IpAddr,
    /// Where data goes.
    pub group: SocketAddr,
    /// The first sequence number.
    pub first_sqn: u32,
    /// For every random choice.
    pub seed: u64,
    /// What a slow receiver may do.
    pub policy: PolicyPlan,
    /// Takes reports.
    pub reports: bool,
    /// Offers nothing before so many receivers have joined.
    pub expected: Option<usize>,
    /// Where it takes control connections.
    pub control_port: u16,
    /// What it sends.
    pub workload: Workload,
}

/// A publisher process.
#[derive(Debug)]
pub struct PublisherNode {
    driver: Driver<SimIo, Publisher>,
    ledger: SharedLedger,
    publication: usize,
    plan: PublisherPlan,
    rng: Rng,
    name: String,
    started: Instant,
    next: u64,
    burst_left: u64,
    burst_at: Instant,
    message: Vec<u8>,
    is_composed: bool,
    confirms_before_close: bool,
    is_closed: bool,
    progress: Progress,
    window_bytes_max: usize,
}

impl PublisherNode {
    /// Starts a publisher on `io`.
    pub fn new(mut io: SimIo, plan: &PublisherPlan, ledger: SharedLedger) -> Self {
        let now = io.now();
        let mut rng = Rng::new(plan.seed);
        let session = rng.next_u64();
        let setup = source_setup(plan, Profile::Messages, session, &mut rng);
        let source = Source::new(plan.config, setup, now);
        let name = setup.tsi.to_string();
        let publication = ledger.borrow_mut().open(
            name.clone(),
            plan.own,
            source.lead(),
            source.max_fragment_tsdu(),
        );
        let registry = registry(plan, session);
        let endpoint = Publisher::new(PublisherSetup { source, registry });
        Self {
            driver: Driver::new(io, endpoint, batch()),
            ledger,
            publication,
            plan: *plan,
            name,
            started: now,
            next: 0,
            burst_left: 0,
            burst_at: now,
            message: Vec::new(),
            is_composed: false,
            confirms_before_close: plan.policy == PolicyPlan::Wait && plan.reports,
            is_closed: false,
            progress: Progress::default(),
            window_bytes_max: 0,
            rng,
        }
    }

    /// One turn of the process.
    pub fn turn(&mut self) {
        let now = self.driver.io.now();
        let offered = self.offer_due(now);
        let turn = match self.driver.turn(&mut ()) {
            Ok(turn) => turn,
            Err(fault) => return self.fail(&format!("the back end gave up: {fault}")),
        };
        while self.driver.endpoint.pop_event().is_some() {}
        self.close_when_done(now);
        let unsent = self.driver.endpoint.source().backlog_bytes();
        self.window_bytes_max = self.window_bytes_max.max(unsent);
        let due = self.driver.next_timeout();
        let was_idle = turn.is_idle() && !turn.blocked && offered == 0;
        if let Some(turns) = self.progress.note(was_idle, now, due) {
            self.fail(&format!(
                "{turns} turns in a row did nothing, yet another is due at once"
            ));
        }
        // A full window asks for no time: what makes room arrives.
        let next_offer = self.has_more().then_some(self.burst_at.max(now + RETRY));
        if turn.is_idle() {
            self.driver.wait(next_offer);
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    /// True when nothing is left to be sent, answered or waited for.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_closed && self.driver.endpoint.source().is_over()
    }

    /// What it is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        let source = self.driver.endpoint.source();
        format!(
            "publisher offered {} of {} messages, {:?}, closed {}, trail {} hold {} unsent {} \
             lead {}, due {:?} at {:?}",
            self.next,
            self.plan.workload.messages,
            self.driver.endpoint.registry(),
            self.is_closed,
            source.trail(),
            source.hold(),
            source.unsent(),
            source.lead(),
            self.driver.next_timeout(),
            self.driver.now(),
        )
    }

    /// Checks what must hold at the end of the process, however it ended.
    pub fn judge(&self) {
        let source = self.driver.endpoint.source();
        let counters = source.counters();
        let loop_counters = self.driver.counters();
        let world = self.driver.io.world();
        world
            .borrow_mut()
            .note(|| format!("END {loop_counters:?} {counters:?}"));
        let kept = [("handled", counters.upstream_handled)];
        if let Some(fault) = identity_fault(counters.upstream_packets, &kept, source.drops()) {
            self.fail(&fault);
        }
        let seen = self.driver.counters().datagrams;
        if counters.upstream_packets != seen {
            let looked_at = counters.upstream_packets;
            self.fail(&format!(
                "the loop took {seen} packets, the source looked at {looked_at}"
            ));
        }
        if self.window_bytes_max > self.plan.config.tx_window_bytes() {
            self.fail(&format!("{} bytes in the window", self.window_bytes_max));
        }
    }

    fn fail(&self, text: &str) {
        self.ledger
            .borrow_mut()
            .fail(format!("publisher {}: {text}", self.name));
    }

    const fn has_more(&self) -> bool {
        self.next < self.plan.workload.messages
    }

    /// Offers what is due until the window is full; how many messages were taken.
    fn offer_due(&mut self, now: Instant) -> u64 {
        if !self.may_begin(now) {
            return 0;
        }
        let mut taken = 0;
        while self.has_more() {
            if self.burst_left == 0 {
                if self.burst_at > now {
                    break;
                }
                self.burst_left = self.plan.workload.burst.max(1);
                self.burst_at = now + self.plan.workload.gap.0;
            }
            if !self.offer_one() {
                break;
            }
            self.burst_left -= 1;
            taken += 1;
        }
        taken
    }

    /// Waits for the receivers that are expected, but not for ever: without them nothing is sent.
    fn may_begin(&mut self, now: Instant) -> bool {
        if self.plan.expected.is_none() || self.next > 0 {
            return true;
        }
        let is_complete = self.driver.endpoint.registry().has_expected();
        if is_complete {
            self.ledger.borrow_mut().waited(self.publication);
        } else if now.since(self.started) > START_MAX {
            self.plan.workload.messages = 0;
        }
        is_complete
    }

    fn offer_one(&mut self) -> bool {
        if !self.is_composed {
            let len = self.plan.workload.draw_len(&mut self.rng);
            self.message.resize(len, 0);
            self.ledger.borrow().compose(self.next, &mut self.message);
            self.is_composed = true;
        }
        let before = self.driver.endpoint.source().lead();
        match self.driver.endpoint.offer(&self.message) {
            Ok(first) => {
                let count = self.driver.endpoint.source().lead() - before;
                let len = self.message.len();
                self.ledger
                    .borrow_mut()
                    .publish(self.publication, self.next, len, first, count);
                self.next += 1;
                self.is_composed = false;
                true
            }
            Err(Full::Window) => false,
            Err(other) => {
                self.fail(&format!(
                    "a message of {} bytes: {other}",
                    self.message.len()
                ));
                self.next += 1;
                self.is_composed = false;
                true
            }
        }
    }

    fn close_when_done(&mut self, now: Instant) {
        if self.has_more() || self.is_closed {
            return;
        }
        let lead = self.driver.endpoint.source().lead();
        let has_begun = self.next > 0;
        if has_begun
            && self.confirms_before_close
            && !self.driver.endpoint.registry().has_confirmed(lead)
        {
            return;
        }
        self.is_closed = true;
        self.ledger.borrow_mut().close(self.publication);
        self.driver.endpoint.source_mut().close(now);
    }
}

/// A source as the plan wants it; the mark names `session` when it takes reports.
pub(super) fn source_setup(
    plan: &PublisherPlan,
    profile: Profile,
    session: u64,
    rng: &mut Rng,
) -> SourceSetup {
    let mut gsi = [0; 6];
    rng.fill(&mut gsi);
    let port = 1000 + (rng.next_u32() & 0xfff) as u16;
    let mut mark = Mark::new(profile, session);
    mark.control_port = plan.control_port;
    SourceSetup {
        tsi: Tsi {
            gsi: Gsi(gsi),
            port,
        },
        destination_port: plan.group.port(),
        group: plan.group,
        nla: plan.own,
        path: PathId(0),
        first_sqn: plan.first_sqn,
        seed: rng.next_u64(),
        mark: plan.reports.then_some(mark),
    }
}

fn registry(plan: &PublisherPlan, session: u64) -> Registry {
    let mut config = RegistryConfig::new(session);
    config.policy = match plan.policy {
        PolicyPlan::Wait => Policy::Wait,
        PolicyPlan::Lose => Policy::Lose,
        PolicyPlan::Drop => Policy::Drop,
    };
    let follows = plan.config.rate() == Rate::Auto && config.policy == Policy::Wait;
    config.rate = follows.then(RateConfig::default);
    config.expected = plan
        .expected
        .map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
    // Shorter than a shipped sender of many asks for: the bound must hold whatever it is.
    config.report_sqns = (plan.config.flow_window_sqns() / 4).max(1);
    Registry::new(config)
}

/// How soon an application whose offer was refused tries again by itself.
const RETRY: Duration = Duration::from_micros(200);
/// How long it waits for the receivers that are expected.
const START_MAX: Duration = Duration::from_secs(20);
