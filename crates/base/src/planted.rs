//! Bugs on purpose, to prove that the simulation finds such bugs: only with the feature
//! `planted-bugs`, which nothing but that proof turns on.
//!
//! One bug at a time, chosen for the calling thread with [`plant`]; the places that misbehave ask
//! [`is_planted`]. State machines otherwise have no such hidden input.

use std::cell::Cell;

/// What can be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A receiver whose NAK was not confirmed never asks again.
    NakNotRepeated,
    /// A sequence number is put into the lap of its neighbour, as plain comparison would.
    PlainComparison,
    /// A source evicts packets that reporting receivers still need.
    HeldEvicted,
    /// A receiver takes a repair of what it has for new data.
    RepairTakenTwice,
    /// A loss report leaves out the pieces of the broken message that had arrived.
    LossMiscounted,
    /// A source repairs each packet once in its life.
    RepairedOnce,
    /// A sender of messages takes what was sent for what everyone has been given, and ends.
    ConfirmedTooEarly,
    /// A source repairs in one order for all receivers, whoever asks for how much.
    RepairsInOneLine,
}

impl Bug {
    /// Those that the swarm must find. [`Bug::RepairsInOneLine`] breaks no promise of a single run:
    /// it costs time, which a test of its own measures.
    pub const ALL: [Self; 7] = [
        Self::NakNotRepeated,
        Self::PlainComparison,
        Self::HeldEvicted,
        Self::RepairTakenTwice,
        Self::LossMiscounted,
        Self::RepairedOnce,
        Self::ConfirmedTooEarly,
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
