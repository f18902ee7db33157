//! Frames under 200 seeded mixes of faults; `towline-sim --frames --seeds 0..10000` runs more.

use towline_sim::frames::{self, FramesReport};

#[test]
fn no_frame_is_damaged_or_late_and_every_number_is_accounted_for() {
    let mut all = FramesReport::default();
    for seed in 0..200 {
        let report = frames::run(seed).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        all.numbered += report.numbered;
        all.whole += report.whole;
        all.repaired += report.repaired;
        for (sum, lost) in all.lost.iter_mut().zip(report.lost) {
            *sum += lost;
        }
    }
    assert!(all.whole > all.numbered, "most frames come: {all}");
    assert!(all.repaired > 0 && all.lost[0] > 0, "faults show: {all}");
}
