//! A publisher process: offers the workload's messages, closes, and waits until its session has
//! ended.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Instant, Io as _, Rng};
use delivery::{AudienceConfig, AudienceEvent, Key, Policy};
use driver::{Driver, Ended, Identity, Publisher, Sending};
use pgm::{Config, Full};

use super::{Progress, batch, identity_fault};
use crate::{
    SimIo,
    check::SharedLedger,
    plan::{PolicyPlan, Workload},
};

/// What a publisher process is started with.
#[derive(Clone, Debug)]
pub struct PublisherPlan {
    /// Parameters.
    pub config: Config,
    /// The host's own address.
    pub own: IpAddr,
    /// The destination of data.
    pub group: SocketAddr,
    /// The first sequence number.
    pub first_sqn: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// What the publisher does about a slow receiver.
    pub policy: PolicyPlan,
    /// True when the publisher takes reports.
    pub reports: bool,
    /// The publisher offers nothing before this many receivers have joined.
    pub expected: Option<usize>,
    /// The port on which the publisher takes control connections.
    pub control_port: u16,
    /// What the publisher sends.
    pub workload: Workload,
    /// When the owner ends the publisher; later messages are not sent.
    pub ends_at: Option<Instant>,
    /// How long the end may take before the publisher breaks off.
    pub patience: Duration,
    /// The publisher admits only receivers with this key.
    pub key: Option<Key>,
}

impl PublisherPlan {
    /// Returns the session to open. Its random parts are drawn from `rng`.
    pub(super) fn sending(&self, rng: &mut Rng) -> Sending {
        let drawn = Identity::draw(self.group.port(), || Ok::<_, Infallible>(rng.next_u64()));
        let Ok(identity) = drawn;
        Sending {
            config: self.config,
            group: self.group,
            destination_port: self.group.port(),
            own: self.own,
            control_port: self.reports.then_some(self.control_port),
            upstream_port: 0,
            identity: Identity {
                first_sqn: self.first_sqn,
                ..identity
            },
            partner: None,
            combine: pgm::fec::combine,
        }
    }
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
    is_closed: bool,
    is_confirmed: bool,
    has_exited: bool,
    progress: Progress,
    window_bytes_max: usize,
}

impl PublisherNode {
    /// Starts a publisher on `io`.
    pub fn new(mut io: SimIo, plan: &PublisherPlan, ledger: SharedLedger) -> Self {
        let now = io.now();
        let mut rng = Rng::new(plan.seed);
        let sending = plan.sending(&mut rng);
        let name = sending.identity.tsi.to_string();
        let endpoint = Publisher::open(&sending, audience(plan, &sending), now);
        let source = endpoint.source();
        let publication = ledger.borrow_mut().open(
            name.clone(),
            plan.key.clone(),
            plan.own,
            source.lead(),
            source.max_fragment_tsdu(),
        );
        Self {
            driver: Driver::new(io, endpoint, batch())
                .with_protection(sending.protection(plan.key.clone())),
            ledger,
            publication,
            plan: plan.clone(),
            name,
            started: now,
            next: 0,
            burst_left: 0,
            burst_at: now,
            message: Vec::new(),
            is_composed: false,
            is_closed: false,
            is_confirmed: false,
            has_exited: false,
            progress: Progress::default(),
            window_bytes_max: 0,
            rng,
        }
    }

    /// Makes one turn of the process.
    pub fn turn(&mut self) {
        let now = self.driver.io.now();
        if self.has_exited {
            return;
        }
        self.end_when_due(now);
        let offered = self.offer_due(now);
        let reporting = self.reporting();
        let turn = match self.driver.turn(&mut ()) {
            Ok(turn) => turn,
            Err(fault) => return self.fail(&format!("the back end gave up: {fault}")),
        };
        self.check_confirmation(reporting);
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
        // The next offer is due with the next burst, but not before `RETRY` has passed.
        let next_offer = self.has_more().then_some(self.burst_at.max(now + RETRY));
        if self.driver.endpoint.ended().is_some() {
            self.has_exited = true;
            self.driver.io.exit();
        } else if turn.is_idle() {
            self.driver.wait(base::earliest(next_offer, self.due_end()));
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    /// Returns true when the process has ended.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.has_exited
    }

    /// Says how the session has ended; `None` before its end.
    #[must_use]
    pub const fn ended(&self) -> Option<Ended> {
        self.driver.endpoint.ended()
    }

    /// Returns the transport session identifier, as text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says what the process is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        let source = self.driver.endpoint.source();
        format!(
            "publisher offered {} of {} messages, {:?}, closed {}, trail {} hold {} unsent {} \
             lead {}, due {:?} at {:?}",
            self.next,
            self.plan.workload.messages,
            self.driver.endpoint.audience(),
            self.is_closed,
            source.trail(),
            source.hold(),
            source.unsent(),
            source.lead(),
            self.driver.next_timeout(),
            self.driver.now(),
        )
    }

    /// Checks what must hold when the process ends, by a crash or otherwise.
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
        let seen = self.driver.handed_on();
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

    /// Offers the messages that are due, until the window is full. Returns how many were taken.
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

    /// Returns true when the expected receivers have joined, or none are expected. If they have not
    /// joined within `START_MAX`, the publisher never sends anything.
    fn may_begin(&mut self, now: Instant) -> bool {
        if self.plan.expected.is_none() || self.next > 0 {
            return true;
        }
        let is_complete = self.driver.endpoint.audience().has_expected();
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
        self.is_closed = true;
        self.ledger.borrow_mut().close(self.publication);
        self.driver.endpoint.close(now, now + self.plan.patience);
    }

    /// Returns when the owner ends the publisher; `None` once it is closed.
    fn due_end(&self) -> Option<Instant> {
        self.plan.ends_at.filter(|_| !self.is_closed)
    }

    /// Offers no more messages once the owner's time has come.
    fn end_when_due(&mut self, now: Instant) {
        if self.due_end().is_some_and(|due| due <= now) {
            self.plan.workload.messages = self.next;
        }
    }

    /// Returns the names of the receivers that report, while the session's end waits for them.
    fn reporting(&self) -> Vec<String> {
        if !self.is_closed || self.is_confirmed {
            return Vec::new();
        }
        let receivers = self.driver.endpoint.audience().receivers();
        receivers.map(|receiver| receiver.name.to_owned()).collect()
    }

    /// Compares what the sender says about its receivers with what they were given. `reporting`
    /// names those that reported before this turn.
    fn check_confirmation(&mut self, mut reporting: Vec<String>) {
        while let Some(event) = self.driver.endpoint.pop_event() {
            match event {
                AudienceEvent::Joined { name, .. } => {
                    self.ledger.borrow_mut().admit(self.publication, &name);
                }
                AudienceEvent::Left { name, .. } | AudienceEvent::Dropped { name, .. } => {
                    reporting.retain(|other| *other != name);
                }
                _ => {}
            }
        }
        if self.driver.endpoint.is_confirmed() && !self.is_confirmed {
            self.is_confirmed = true;
            let names = reporting.iter().map(String::as_str);
            self.ledger.borrow_mut().confirm(self.publication, names);
        }
    }
}

fn audience(plan: &PublisherPlan, sending: &Sending) -> AudienceConfig {
    let mut config = AudienceConfig::new(sending.identity.session_id);
    config.key = plan.key.clone();
    config.seed = sending.identity.seed;
    config.policy = match plan.policy {
        PolicyPlan::Wait => Policy::Wait,
        PolicyPlan::Lose => Policy::Lose,
        PolicyPlan::Drop => Policy::Drop,
    };
    config.expected = plan
        .expected
        .map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
    config
}

/// An application whose offer was refused waits at least this long before it tries again.
const RETRY: Duration = Duration::from_micros(200);
/// How long the publisher waits for the expected receivers.
const START_MAX: Duration = Duration::from_secs(20);
