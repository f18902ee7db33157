//! The seeded generator behind every random choice of the state machines and the simulator.

use std::time::Duration;

/// A small fast generator (xoshiro256**, Blackman and Vigna 2018), seeded by SplitMix64.
///
/// The generator is not for secrets: the owner draws identifiers that must be unpredictable from
/// the operating system, and passes them in. It uses no floating-point numbers, so that a run
/// repeats exactly on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Makes a generator whose whole output is determined by `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut mixer = seed;
        let mut i = 0;
        while i < 4 {
            mixer = mixer.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mixer;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state[i] = z ^ (z >> 31);
            i += 1;
        }
        Self { state }
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= t;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// Returns the next 32 random bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a value in `0..bound`, and 0 for bound 0. The bias of the method (multiply-shift) is
    /// negligible.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a value in `low..=high`.
    ///
    /// `low > high` gives `low`. **Panics** (bug): in debug builds, when the range is
    /// `0..=u64::MAX`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            low
        } else {
            low + self.below(high - low + 1)
        }
    }

    /// Draws once; returns true in `numerator` of `denominator` draws on average.
    pub const fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Returns a duration in `Duration::ZERO..=ceiling`, in steps of a nanosecond.
    pub fn duration_up_to(&mut self, ceiling: Duration) -> Duration {
        let ns = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.between(0, ns.min(u64::MAX - 1)))
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Makes a generator for one part of the owner, so that its draws do not shift another part's.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn draws_stay_inside_their_bounds() {
        let mut rng = Rng::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(rng.below(10)).unwrap()] += 1;
            assert!((5..=6).contains(&rng.between(5, 6)));
            assert!(rng.duration_up_to(Duration::from_nanos(3)) <= Duration::from_nanos(3));
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
