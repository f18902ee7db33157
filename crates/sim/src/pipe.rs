//! What a link does to the datagrams that pass: faults are values, put one behind another.
//!
//! A [`Pipe`] is a list of [`Fault`]s with their state. Each fault sees every datagram that the one
//! before it let through, and may drop it, delay it, copy it or change its bits. Nothing here knows
//! what the datagrams mean, apart from [`crate::Frame::corrupt`].
//!
//! ```text
//!   frame at t --> [loss] --> [burst] --> [rate + queue] --> [delay] --> [jitter] --> frames at t'
//! ```
//!
//! Every fault draws from the pipe's own generator, so a fault on one link does not shift the draws
//! of another.

use std::time::Duration;

use base::{Instant, Rng};
use serde::Deserialize;

use crate::{
    frame::Frame,
    quantity::{Ratio, Span},
};

/// One property of a link. In a scenario file: `{ loss = "5%" }`, `{ delay = "2ms" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Drops each datagram independently.
    Loss(Ratio),
    /// Gilbert-Elliott: drops in bursts.
    Burst {
        /// From good to bad, per datagram.
        enter: Ratio,
        /// From bad to good, per datagram.
        leave: Ratio,
        /// Loss in the bad state.
        loss: Ratio,
    },
    /// Delays every datagram by the same time.
    Delay(Span),
    /// Delays each datagram by up to this much more; none overtakes another.
    Jitter(Span),
    /// Holds some datagrams back, so that later ones overtake them.
    Reorder {
        /// The share of the datagrams that are held back.
        chance: Ratio,
        /// The longest time for which a datagram is held back.
        by: Span,
    },
    /// Delivers some datagrams twice.
    Duplicate {
        /// The share of the datagrams that are delivered twice.
        chance: Ratio,
        /// The longest time by which the second copy comes later.
        after: Span,
    },
    /// Flips bits.
    Corrupt {
        /// The share of the datagrams that are changed.
        chance: Ratio,
        /// At most this many bits in one datagram.
        bits_max: u32,
    },
    /// Changes bytes of some datagrams and corrects their checksum, as a host on the path can. Use
    /// it only where a key protects the packets, or with trees.
    Forge {
        /// The share of the datagrams that are changed.
        chance: Ratio,
    },
    /// A serialising link with a queue that drops at its tail.
    Rate {
        /// Bytes per second on the link, frame headers included.
        bytes_per_s: u64,
        /// Room in the queue.
        queue_bytes: u64,
    },
    /// Drops every Nth datagram.
    EveryNth(u32),
}

/// A datagram on its way through a pipe.
#[derive(Clone, Debug)]
pub struct Flight {
    /// When the datagram is at this point of the pipe.
    pub at: Instant,
    /// The datagram.
    pub frame: Frame,
}

/// Faults in the order in which datagrams meet them, with their state.
#[derive(Clone, Debug)]
pub struct Pipe {
    stages: Vec<Stage>,
    rng: Rng,
    lost: u64,
}

impl Pipe {
    /// Makes a pipe of these faults, with its own random generator.
    #[must_use]
    pub fn new(faults: &[Fault], rng: Rng) -> Self {
        let stages = faults.iter().map(|&fault| Stage {
            fault,
            memory: Memory::default(),
        });
        Self {
            stages: stages.collect(),
            rng,
            lost: 0,
        }
    }

    /// Replaces the faults for datagrams that enter from now on; those in flight are not affected.
    pub fn set(&mut self, faults: &[Fault]) {
        *self = Self {
            lost: self.lost,
            ..Self::new(faults, self.rng.clone())
        };
    }

    /// Returns how many datagrams, copies included, the faults have dropped.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Sends one datagram in; calls `out` with each that comes out, and `lost` with the name of
    /// the fault when one disappears.
    pub fn pass(
        &mut self,
        flight: Flight,
        out: &mut dyn FnMut(Flight),
        lost: &mut dyn FnMut(&'static str, &Frame),
    ) {
        let mut copies = vec![flight];
        for stage in &mut self.stages {
            for i in 0..copies.len() {
                if let Some(copy) = stage.second_copy(&copies[i], &mut self.rng) {
                    copies.push(copy);
                }
            }
            copies.retain_mut(|flight| {
                let passed = stage.passes(flight, &mut self.rng);
                if !passed {
                    self.lost += 1;
                    lost(stage.fault.name(), &flight.frame);
                }
                passed
            });
        }
        copies.into_iter().for_each(out);
    }
}

impl Fault {
    /// Returns the fault's name in the trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss(_) => "loss",
            Self::Burst { .. } => "burst",
            Self::Delay(_) => "delay",
            Self::Jitter(_) => "jitter",
            Self::Reorder { .. } => "reorder",
            Self::Duplicate { .. } => "duplicate",
            Self::Corrupt { .. } => "corrupt",
            Self::Forge { .. } => "forge",
            Self::Rate { .. } => "queue full",
            Self::EveryNth(_) => "every nth",
        }
    }
}

/// A fault and what it remembers from one datagram to the next.
#[derive(Clone, Debug)]
struct Stage {
    fault: Fault,
    memory: Memory,
}

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// Burst: the link is in the bad state.
    is_bad: bool,
    /// Jitter: when the last datagram left. Rate: when the link is free.
    free_at: Instant,
    /// EveryNth: datagrams since the last drop.
    passed: u32,
}

impl Stage {
    fn second_copy(&self, flight: &Flight, rng: &mut Rng) -> Option<Flight> {
        let Fault::Duplicate { chance, after } = self.fault else {
            return None;
        };
        chance.draw(rng).then(|| Flight {
            at: flight.at + rng.duration_up_to(after.0),
            frame: flight.frame.clone(),
        })
    }

    /// Applies the fault; returns false when the datagram is gone.
    fn passes(&mut self, flight: &mut Flight, rng: &mut Rng) -> bool {
        let memory = &mut self.memory;
        match self.fault {
            Fault::Loss(chance) => return !chance.draw(rng),
            Fault::Burst { enter, leave, loss } => {
                let turns = if memory.is_bad { leave } else { enter }.draw(rng);
                memory.is_bad ^= turns;
                return !(memory.is_bad && loss.draw(rng));
            }
            Fault::Delay(by) => flight.at += by.0,
            Fault::Jitter(ceiling) => {
                flight.at = (flight.at + rng.duration_up_to(ceiling.0)).max(memory.free_at);
                memory.free_at = flight.at;
            }
            Fault::Reorder { chance, by } => {
                if chance.draw(rng) {
                    flight.at += rng.duration_up_to(by.0);
                }
            }
            Fault::Duplicate { .. } => {}
            Fault::Corrupt { chance, bits_max } => {
                if chance.draw(rng) {
                    flight.frame.corrupt(bits_max, rng);
                }
            }
            Fault::Forge { chance } => {
                if chance.draw(rng) {
                    flight.frame.forge(rng);
                }
            }
            Fault::Rate {
                bytes_per_s,
                queue_bytes,
            } => {
                return memory.serialise(flight, bytes_per_s.max(1), queue_bytes);
            }
            Fault::EveryNth(n) => {
                memory.passed += 1;
                if memory.passed >= n {
                    memory.passed = 0;
                    return false;
                }
            }
        }
        true
    }
}

impl Memory {
    fn serialise(&mut self, flight: &mut Flight, bytes_per_s: u64, queue_bytes: u64) -> bool {
        let wait_ns = self.free_at.since(flight.at).as_nanos();
        let queued = wait_ns * u128::from(bytes_per_s) / 1_000_000_000;
        if queued > u128::from(queue_bytes) {
            return false;
        }
        let bytes = flight.frame.bytes.len() as u64 + FRAME_OVERHEAD_BYTES;
        let on_wire = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / bytes_per_s);
        self.free_at = self.free_at.max(flight.at) + on_wire;
        flight.at = self.free_at;
        true
    }
}

/// What a datagram takes on the link beyond its payload: Ethernet, IPv4 and UDP headers, check
/// sequence, preamble and gap.
const FRAME_OVERHEAD_BYTES: u64 = 14 + 20 + 8 + 4 + 20;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use base::PathId;

    use super::*;
    use crate::EndpointId;

    fn frame(bytes: usize) -> Frame {
        Frame {
            bytes: vec![0; bytes].into(),
            from: EndpointId(0),
            path: PathId(0),
            source: SocketAddr::from(([10, 0, 0, 1], 1)),
            to: SocketAddr::from(([239, 1, 1, 1], 7500)),
            hops: 1,
            is_tainted: false,
            sent: None,
        }
    }

    /// Sends `n` datagrams `gap_us` apart; gives when each arrived, in the order of sending.
    fn arrivals(faults: &[Fault], n: u64, gap_us: u64) -> Vec<u64> {
        let mut pipe = Pipe::new(faults, Rng::new(9));
        let mut out = Vec::new();
        for i in 0..n {
            let at = Instant::from_nanos(i * gap_us * 1_000);
            let flight = Flight {
                at,
                frame: frame(934),
            };
            pipe.pass(
                flight,
                &mut |flight| out.push(flight.at.as_nanos() / 1_000),
                &mut |_, _| {},
            );
        }
        assert!(pipe.lost() + out.len() as u64 >= n);
        out
    }

    #[test]
    fn loss_and_bursts_drop_their_share() {
        let plain = arrivals(&[Fault::Loss(Ratio::percent(30))], 10_000, 1).len();
        assert!((6_800..7_200).contains(&plain), "{plain}");
        let burst = Fault::Burst {
            enter: Ratio::percent(1),
            leave: Ratio::percent(10),
            loss: Ratio::new(1, 1),
        };
        let at = arrivals(&[burst], 10_000, 1);
        let gaps = at.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
        let lost = 10_000 - at.len();
        assert!(
            lost > 500 && lost / gaps > 5,
            "lost {lost} in {gaps} bursts"
        );
        assert_eq!(arrivals(&[Fault::EveryNth(3)], 9, 1), [0, 1, 3, 4, 6, 7]);
    }

    #[test]
    fn jitter_keeps_order_and_reorder_does_not() {
        let jitter = arrivals(
            &[
                Fault::Delay(Span::millis(1)),
                Fault::Jitter(Span::millis(5)),
            ],
            500,
            10,
        );
        assert!(jitter.is_sorted() && jitter[0] >= 1_000);
        let by = Span::millis(1);
        let reorder = arrivals(
            &[Fault::Reorder {
                chance: Ratio::percent(10),
                by,
            }],
            500,
            10,
        );
        assert!(!reorder.is_sorted());
        let after = Span::default();
        let twice = arrivals(
            &[Fault::Duplicate {
                chance: Ratio::new(1, 1),
                after,
            }],
            5,
            10,
        );
        assert_eq!(twice.len(), 10);
    }

    #[test]
    fn a_rate_spaces_datagrams_and_drops_at_the_tail() {
        // 1,000 bytes on the wire at 1 MB/s: one a millisecond.
        let rate = Fault::Rate {
            bytes_per_s: 1_000_000,
            queue_bytes: 4_500,
        };
        let at = arrivals(&[rate], 10, 0);
        assert_eq!(at, [1_000, 2_000, 3_000, 4_000, 5_000]);
    }
}
