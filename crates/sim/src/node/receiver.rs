//! A receiver process: compares everything that it is given with the ledger.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use base::{Instant, Io as _};
use delivery::{Key, ReporterConfig};
use driver::{Driver, MessageSink, Receiving, SessionEvent, Subscriber};
use pgm::{Config, Mode};
use wire::object::Refusal;

use super::{Progress, batch, identity_fault};
use crate::{
    SimIo,
    check::{SharedLedger, Totals, Witness},
};

/// What a receiver process is started with.
#[derive(Clone, Debug)]
pub struct ReceiverPlan {
    /// The receiver's name.
    pub name: String,
    /// Parameters.
    pub config: Config,
    /// In sequence, or as packets arrive.
    pub mode: Mode,
    /// The host's own address.
    pub own: IpAddr,
    /// The group that the receiver listens to.
    pub group: SocketAddr,
    /// Seed of every random choice.
    pub seed: u64,
    /// The receiver reports to senders that ask.
    pub reports: bool,
    /// The receiver must miss nothing of a session that waited for it.
    pub from_start: bool,
    /// When the owner ends the receiver.
    pub ends_at: Option<Instant>,
    /// The receiver believes only senders with this key.
    pub key: Option<Key>,
}

impl ReceiverPlan {
    /// Returns the session to open.
    pub(super) const fn receiving(&self) -> Receiving {
        Receiving {
            config: self.config,
            group: self.group,
            destination_port: self.group.port(),
            own: self.own,
            seed: self.seed,
            instance: self.seed,
            combine: pgm::fec::combine,
        }
    }
}

/// A receiver process.
#[derive(Debug)]
pub struct ReceiverNode {
    driver: Driver<SimIo, Subscriber>,
    sink: Sink,
    totals: Rc<RefCell<Vec<Totals>>>,
    progress: Progress,
    held_bytes_max: usize,
    bound_bytes: usize,
    has_key: bool,
    ends_at: Option<Instant>,
    /// Set while the receiver leaves: the time by which it ends in any case.
    leaves_by: Option<Instant>,
    has_exited: bool,
}

impl ReceiverNode {
    /// Starts a receiver on `io`, which adds its totals to `totals` when it ends.
    pub fn new(
        io: SimIo,
        plan: &ReceiverPlan,
        ledger: &SharedLedger,
        totals: Rc<RefCell<Vec<Totals>>>,
    ) -> Self {
        let now = io.world_now();
        let receiving = plan.receiving();
        let reporter = plan.reports.then(|| ReporterConfig {
            key: plan.key.clone(),
            ..ReporterConfig::new(plan.name.clone(), plan.seed)
        });
        let endpoint = Subscriber::open(&receiving, plan.mode, reporter, now);
        let is_in_order = plan.mode == Mode::Sequence;
        let (name, key) = (plan.name.clone(), plan.key.clone());
        ledger.borrow_mut().begin(&name, key, plan.from_start);
        let witness = Witness::new(name, ledger.clone(), is_in_order);
        Self {
            sink: Sink {
                witness,
                io: io.clone(),
            },
            driver: Driver::new(io, endpoint, batch())
                .with_protection(receiving.protection(plan.key.clone())),
            totals,
            progress: Progress::default(),
            held_bytes_max: 0,
            bound_bytes: plan.config.rx_total_bytes(),
            has_key: plan.key.is_some(),
            ends_at: plan.ends_at,
            leaves_by: None,
            has_exited: false,
        }
    }

    /// Makes one turn of the process.
    pub fn turn(&mut self) {
        let now = self.driver.io.now();
        if self.has_exited {
            return;
        }
        if self.ends_at.take_if(|due| *due <= now).is_some() {
            let by = now + Subscriber::LEAVE_TIME_MAX;
            self.leaves_by = Some(by);
            self.driver.endpoint.close(now, by);
        }
        let turn = match self.driver.turn(&mut self.sink) {
            Ok(turn) => turn,
            Err(fault) => {
                return self
                    .sink
                    .witness
                    .fail(&format!("the back end gave up: {fault}"));
            }
        };
        self.check_reports();
        self.held_bytes_max = self
            .held_bytes_max
            .max(self.driver.endpoint.receiver().held_memory_bytes());
        let due = self.driver.next_timeout();
        let was_idle = turn.is_idle() && !turn.blocked;
        if let Some(turns) = self.progress.note(was_idle, now, due) {
            let text = format!("{turns} turns in a row did nothing, yet another is due at once");
            self.sink.witness.fail(&text);
        }
        let has_left = self.driver.endpoint.left().is_some() && self.driver.io.has_sent_links();
        if has_left || self.leaves_by.is_some_and(|by| by <= now) {
            self.has_exited = true;
            self.driver.io.exit();
        } else if turn.is_idle() {
            // The shipped receiver also looks again whether the sockets have taken its last
            // messages.
            let look = self.leaves_by.map(|_| now + LEAVE_POLL);
            self.driver.wait(base::earliest(self.ends_at, look));
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    /// Returns true when the process has ended, or every session that it found has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.has_exited || self.sink.witness.open_sessions() == 0
    }

    /// Says what the process is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        let receiver = self.driver.endpoint.receiver();
        let positions: Vec<_> = receiver.sessions().collect();
        format!(
            "receiver has {} sessions open, {:?}, due {:?} at {:?}, {:?}",
            self.sink.witness.open_sessions(),
            self.sink.witness.totals(),
            self.driver.next_timeout(),
            self.driver.now(),
            positions,
        )
    }

    /// Checks what must hold when the process ends, by a crash or otherwise.
    pub fn judge(&self, is_crashed: bool) {
        let witness = &self.sink.witness;
        self.driver.io.world().borrow_mut().note(|| {
            let (counters, receiver) = (self.driver.counters(), self.driver.endpoint.receiver());
            format!(
                "END {counters:?} {:?} {:?}",
                receiver.counters(),
                receiver.drops()
            )
        });
        let receiver = self.driver.endpoint.receiver();
        let counters = receiver.counters();
        let kept = [
            ("payload", counters.payload_packets),
            ("held", counters.held_packets),
            ("control", counters.control_packets),
        ];
        if let Some(fault) = identity_fault(counters.seen_packets, &kept, receiver.drops()) {
            witness.fail(&fault);
        }
        let (seen, looked_at) = (self.driver.handed_on(), counters.seen_packets);
        if looked_at != seen {
            let text = format!("the loop took {seen} packets, the receiver looked at {looked_at}");
            witness.fail(&text);
        }
        let counts = self
            .driver
            .io
            .world()
            .borrow()
            .counts(self.driver.io.endpoint());
        let damaged = witness.totals().damaged;
        let hidden = counts.tainted;
        // A bit error that no checksum detects also spoils the packets recovered with the damaged
        // one.
        let spoiled = if hidden > 0 {
            counters.recovered_sqns
        } else {
            0
        };
        if damaged > hidden + spoiled {
            witness.fail(&format!(
                "{damaged} damaged messages, {hidden} hidden bit errors"
            ));
        }
        let told = witness.totals().lost + witness.totals().lost_of_strangers;
        if told != counters.lost_sqns {
            let counted = counters.lost_sqns;
            witness.fail(&format!("told of {told} lost packets, counted {counted}"));
        }
        if self.held_bytes_max > self.bound_bytes {
            let (held, bound) = (self.held_bytes_max, self.bound_bytes);
            witness.fail(&format!("{held} bytes held, {bound} allowed"));
        }
        self.totals.borrow_mut().push(Totals {
            is_crashed,
            has_left: self.leaves_by.is_some(),
            ..witness.final_totals()
        });
    }

    /// Checks that a receiver with a key reports only to senders that have the same key.
    fn check_reports(&self) {
        let end = &self.driver.endpoint;
        if let Some(reporter) = end.reporter().filter(|_| self.has_key) {
            let all = end.receiver().sessions();
            all.filter(|&session| reporter.is_reporting(session))
                .for_each(|session| self.sink.witness.reports(session));
        }
    }
}

/// The application: compares each message with the ledger and forgets it.
#[derive(Debug)]
struct Sink {
    witness: Witness,
    io: SimIo,
}

impl MessageSink for Sink {
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        self.witness.message(session, position, data);
    }

    fn event(&mut self, event: SessionEvent) {
        let endpoint = self.io.endpoint().0;
        self.io
            .world()
            .borrow_mut()
            .note(|| format!("{endpoint} is told {event:?}"));
        match event {
            SessionEvent::Found {
                session,
                tsi,
                source,
            } => self.witness.found(session, &tsi.to_string(), source),
            SessionEvent::Lost {
                session,
                first,
                count,
            } => {
                self.witness.lost(session, first, count);
            }
            SessionEvent::Ended { session } => self.witness.ended(session),
            // Its packets are protected with a key that this end does not have: it takes none.
            SessionEvent::Refused {
                session,
                reason: Refusal::KeyRequired,
            } => self.witness.gone(session),
            SessionEvent::Refused { .. } | SessionEvent::NameTaken { .. } => {}
            SessionEvent::Dropped { session, .. } => self.witness.dropped(session),
            SessionEvent::Reset { session } => self.witness.broken_off(session),
            SessionEvent::Expired { session } => self.witness.gone(session),
            other => panic!("{other:?} is new: say what it means for the checks"),
        }
    }
}

/// A receiver that leaves looks this often whether its last messages have left.
const LEAVE_POLL: Duration = Duration::from_millis(5);
