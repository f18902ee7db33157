//! The processes of a run: each is the shipped loop around a publisher or a receiver, with an
//! application. A publisher's application offers the messages of the workload; a receiver's
//! compares what it is given with the ledger.

use std::{fmt::Write as _, time::Duration};

use base::{CounterSet as _, DropCounters, Instant, RecvBatch};

use crate::simulation::Node;

mod disk;
pub use disk::{Disk, DiskStore};

mod intruder;
pub use intruder::IntruderNode;

mod objects;
pub use objects::{SenderNode, TakerNode, Tree};

mod publisher;
pub use publisher::{PublisherNode, PublisherPlan};

mod receiver;
pub use receiver::{ReceiverNode, ReceiverPlan};

/// A process of a run.
#[derive(Debug)]
pub enum SimNode {
    /// Sends messages.
    Publisher(Box<PublisherNode>),
    /// Receives them.
    Receiver(Box<ReceiverNode>),
    /// Sends a tree.
    Sender(Box<SenderNode>),
    /// Receives it.
    Taker(Box<TakerNode>),
    /// Sends what no correct program sends.
    Intruder(Box<IntruderNode>),
    /// A process that starts later.
    Asleep,
}

impl Node for SimNode {
    fn turn(&mut self) {
        match self {
            Self::Publisher(node) => node.turn(),
            Self::Receiver(node) => node.turn(),
            Self::Sender(node) => node.turn(),
            Self::Taker(node) => node.turn(),
            Self::Intruder(node) => node.turn(),
            Self::Asleep => {}
        }
    }

    fn crashed(&mut self) {
        self.judge(true);
    }
}

impl SimNode {
    /// Returns true when the process has nothing left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Publisher(node) => node.is_finished(),
            Self::Receiver(node) => node.is_finished(),
            Self::Sender(node) => node.is_finished(),
            Self::Taker(node) => node.is_finished(),
            Self::Intruder(_) => true,
            Self::Asleep => false,
        }
    }

    /// Says what the process is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        match self {
            Self::Publisher(node) => node.explain(),
            Self::Receiver(node) => node.explain(),
            Self::Sender(node) => node.explain(),
            Self::Taker(node) => node.explain(),
            Self::Intruder(_) => "intruder".to_owned(),
            Self::Asleep => "asleep".to_owned(),
        }
    }

    /// Checks what must hold when the process ends, by a crash or otherwise.
    pub fn judge(&self, is_crashed: bool) {
        match self {
            Self::Publisher(node) => node.judge(),
            Self::Receiver(node) => node.judge(is_crashed),
            Self::Sender(node) => node.judge(),
            Self::Taker(node) => node.judge(is_crashed),
            Self::Intruder(_) | Self::Asleep => {}
        }
    }
}

/// Detects a loop that spins: turn after turn does nothing and asks for another one at once.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    idle_turns: u32,
    is_told: bool,
}

impl Progress {
    /// Notes one turn. Returns the number of idle turns in a row, once, when there are too many.
    fn note(&mut self, was_idle: bool, now: Instant, due: Option<Instant>) -> Option<u32> {
        // Only turns that ask for another one at once count: a timer may well be short.
        let spins = was_idle && due.is_some_and(|due| due <= now + SPIN_WITHIN);
        self.idle_turns = if spins { self.idle_turns + 1 } else { 0 };
        let too_many = self.idle_turns > IDLE_TURNS_MAX && !self.is_told;
        self.is_told |= too_many;
        too_many.then_some(self.idle_turns)
    }
}

/// Checks that `kept + thrown away == seen` since the process started; returns what is wrong, if
/// anything.
fn identity_fault(seen: u64, kept: &[(&str, u64)], drops: &DropCounters) -> Option<String> {
    let sum = kept.iter().map(|(_, value)| value).sum::<u64>() + drops.total();
    if sum == seen {
        return None;
    }
    let mut text = format!("saw {seen} packets and accounts for {sum}: {kept:?}");
    drops.for_each(&mut |_, info, value| {
        if value > 0 {
            write!(text, " {}={value}", info.name).expect("a String takes everything");
        }
    });
    Some(text)
}

/// Makes the receive batch that a host with GRO uses.
pub(crate) fn batch() -> RecvBatch {
    RecvBatch::new(4, 65_535)
}

const SPIN_WITHIN: Duration = Duration::from_nanos(500);
const IDLE_TURNS_MAX: u32 = 10_000;
