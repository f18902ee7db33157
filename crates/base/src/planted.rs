//! Bugs planted on purpose, to prove that the simulation finds such bugs. They exist only with the
//! feature `planted-bugs`, which only that proof turns on.
//!
//! One bug at a time, chosen for the calling thread with [`plant`]; the places that misbehave ask
//! [`is_planted`]. State machines otherwise have no such hidden input.

use std::cell::Cell;

/// The bugs that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A receiver whose NAK was not confirmed never asks again.
    NakNotRepeated,
    /// A sequence number is put into the lap of its neighbour, as plain comparison would.
    PlainComparison,
    /// A source evicts packets that reporting receivers still need.
    HeldEvicted,
    /// A receiver takes a repair of data that it has as new data.
    RepairTakenTwice,
    /// A loss report leaves out the pieces of the broken message that had arrived.
    LossMiscounted,
    /// A source repairs each packet once in its life.
    RepairedOnce,
    /// A sender of messages ends when everything was sent, as if every receiver had been given it.
    ConfirmedTooEarly,
    /// An end with a key takes data whose tag is wrong.
    ForgedTaken,
    /// A receiver with a key greets senders without showing it, and asks for nothing.
    SenderNotAsked,
    /// A source repairs in one order for all receivers, however much each asks for.
    RepairsInOneLine,
}

impl Bug {
    /// The bugs that the swarm must find. [`Bug::RepairsInOneLine`] breaks no promise of a single
    /// run: it costs time, which a test of its own measures.
    pub const ALL: [Self; 9] = [
        Self::NakNotRepeated,
        Self::PlainComparison,
        Self::HeldEvicted,
        Self::RepairTakenTwice,
        Self::LossMiscounted,
        Self::RepairedOnce,
        Self::ConfirmedTooEarly,
        Self::ForgedTaken,
        Self::SenderNotAsked,
    ];
}

#[expect(
    clippy::disallowed_macros,
    reason = "only in the simulator's own proof"
)]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Plants a bug in everything that this thread runs from here on; `None` removes it.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// True when this thread is to behave as `bug` says.
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
