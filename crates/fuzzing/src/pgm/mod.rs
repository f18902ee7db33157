//! The three state machines of PGM, each checked against a simple model and driven by lists of
//! operations.

mod element;
pub use element::element_ops;

mod parity;
pub use parity::parity_ops;

mod receiver;
pub use receiver::receiver_ops;

mod source;
pub use source::{SourceOp, SourcePlan, source_ops};

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use base::Rng;

    /// Calls `body` with arbitrary bytes, one list for each seed, with lengths from `len`. There
    /// are `rounds` rounds, or as many as `TOWLINE_FUZZ_ROUNDS` says.
    pub(super) fn each_seed(
        rounds: u64,
        len: RangeInclusive<u64>,
        mut body: impl FnMut(u64, &mut [u8]),
    ) {
        let told = std::env::var("TOWLINE_FUZZ_ROUNDS").ok();
        let rounds = told.and_then(|text| text.parse().ok()).unwrap_or(rounds);
        for seed in 0..rounds {
            let mut rng = Rng::new(seed);
            let len = rng.between(*len.start(), *len.end());
            let mut data = vec![0; usize::try_from(len).unwrap()];
            rng.fill(&mut data);
            body(seed, &mut data);
        }
    }
}
