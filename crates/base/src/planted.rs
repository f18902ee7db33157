//! Bugs planted on purpose, to prove that the simulation finds such bugs. They exist only with the
//! feature `planted-bugs`, which only that proof turns on.
//!
//! [`plant`] chooses one bug at a time for the calling thread. The places that can misbehave ask
//! [`is_planted`]. State machines have no other hidden input.

use std::cell::Cell;

/// The bugs that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A receiver whose NAK was not confirmed never asks again.
    NakNotRepeated,
    /// A receiver puts a sequence number into the wrong lap of 2^32, as plain comparison would.
    PlainComparison,
    /// A source evicts packets that reporting receivers still need.
    HeldEvicted,
    /// A receiver takes a repair as new data although it already has that data.
    RepairTakenTwice,
    /// A loss report leaves out the pieces of the broken message that had arrived.
    LossMiscounted,
    /// A source repairs each packet only once.
    RepairedOnce,
    /// A sender of messages ends when it has sent everything, whether receivers were given it or
    /// not.
    ConfirmedTooEarly,
    /// An end with a key takes data whose tag is wrong.
    ForgedTaken,
    /// A receiver with a key greets senders as if it had none, and does not ask them to prove that
    /// they have the key.
    SenderNotAsked,
    /// A source repairs in one order for all receivers, even when one of them asks for much more.
    RepairsInOneLine,
}

impl Bug {
    /// The bugs that the simulator's swarm must find. [`Bug::RepairsInOneLine`] is not among them:
    /// it breaks no promise of a single run but costs time, and a separate test measures that.
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

/// Plants a bug in everything that this thread runs from now on; `None` removes it.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Returns true when this thread must behave as `bug` says.
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
