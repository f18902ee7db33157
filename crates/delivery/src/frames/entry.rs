//! A frame that was not yet reported as whole or lost. At least one of its packets was heard.

use std::time::Duration;

use base::Instant;
use wire::object::FrameHeader;

use super::{
    clock::{ClockFloor, Heard},
    counts::FrameLoss,
    room::Room,
    whole::Whole,
};
use crate::parameters::FRAME_DEADLINE_MAX;

/// A frame that was not yet reported as whole or lost. At least one of its packets was heard.
#[derive(Debug)]
pub(super) struct Entry {
    /// The header of the frame's first piece.
    pub(super) header: FrameHeader,
    /// The position of the frame's first piece.
    pub(super) first: u64,
    pub(super) heard: Heard,
    /// How many packets the kernel had dropped when this entry was made.
    pub(super) drops: u64,
    /// How many packets the kernel had dropped when the previous entry was made; for the first
    /// entry of a stream, when the stream was made.
    pub(super) drops_before: u64,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Open {
        room: Room,
        missing: u32,
        is_repaired: bool,
    },
    Whole {
        room: Room,
        is_repaired: bool,
    },
    /// Whole, and given out before its turn: [`Entry::take_ahead`].
    Ahead {
        is_repaired: bool,
    },
    Lost(FrameLoss),
}

impl State {
    pub(super) const fn room(&self) -> Option<&Room> {
        match self {
            Self::Open { room, .. } | Self::Whole { room, .. } => Some(room),
            Self::Ahead { .. } | Self::Lost(_) => None,
        }
    }
}

impl Entry {
    /// Returns when the frame is due: the time from which it is late.
    pub(super) fn due(&self, clock: &ClockFloor) -> Instant {
        clock.due(self.heard, deadline_of(&self.header))
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole { .. } | State::Ahead { .. })
    }

    /// Gives the frame out before its turn if it is whole and in time.
    pub(super) fn take_ahead(&mut self, now: Instant, clock: &ClockFloor) -> Option<Whole> {
        let due = self.due(clock);
        let State::Whole { room, is_repaired } = &mut self.state else {
            return None;
        };
        if now >= due {
            return None;
        }
        let (room, is_repaired) = (std::mem::take(room), *is_repaired);
        self.state = State::Ahead { is_repaired };
        Some(Whole {
            is_ahead: true,
            ..Whole::new(self.header, room, is_repaired, due)
        })
    }

    /// Gives the frame up if its time is past (`is_past`) and it was not given out. Gives an open
    /// frame up also if its stream is over (`is_over`).
    pub(super) fn expire(
        &mut self,
        is_past: bool,
        is_over: bool,
        high: u64,
        drops: u64,
        release: &mut impl FnMut(Room),
    ) {
        let cause = match &self.state {
            State::Open { room, .. } if is_past || is_over => {
                let missing_at = self.first + room.first_missing();
                match () {
                    () if drops > self.drops_before => FrameLoss::SocketBuffer,
                    () if missing_at >= high && is_past => FrameLoss::Late,
                    () => FrameLoss::Network,
                }
            }
            State::Whole { .. } if is_past => FrameLoss::Late,
            _ => return,
        };
        release_of(
            std::mem::replace(&mut self.state, State::Lost(cause)),
            release,
        );
    }

    /// Returns when the unheard frames before this one are given up: one interval before this frame
    /// is due. If the interval is short or unknown, they are given up earlier, so that this frame
    /// is given out in time.
    pub(super) fn passed_at(&self, clock: &ClockFloor) -> Instant {
        let interval = Duration::from_micros(self.header.interval_us.into());
        self.due(clock) - interval.max(margin_of(&self.header))
    }
}

/// The upper limit of [`margin_of`]. A judgement: on a busy host, a timer runs at most 10 ms late.
const MARGIN_MAX: Duration = Duration::from_millis(10);

/// Returns the margin: a whole frame should be given out at least this long before it is due.
pub(super) fn margin_of(header: &FrameHeader) -> Duration {
    (deadline_of(header) / 8).min(MARGIN_MAX)
}

/// Returns how long after its timestamp a frame is of use, at most `FRAME_DEADLINE_MAX`.
pub(super) fn deadline_of(header: &FrameHeader) -> Duration {
    Duration::from_micros(header.deadline_us.into()).min(FRAME_DEADLINE_MAX)
}

pub(super) fn release_of(state: State, release: &mut impl FnMut(Room)) {
    match state {
        State::Open { room, .. } | State::Whole { room, .. } => release(room),
        State::Ahead { .. } | State::Lost(_) => {}
    }
}
