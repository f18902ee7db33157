//! Frames under 200 seeded mixes of faults; `towline-sim --frames --seeds 0..10000` runs more.

use towline_sim::frames::{self, FeedsReport, FramesReport};

/// Of this seed, the links of the sender and of a receiver flip a bit each of one packet, and its
/// checksum is right again.
#[test]
fn damage_that_no_checksum_can_detect_is_not_held_against_frames() {
    let report = frames::run(1928).unwrap();
    assert!(report.tainted > 0, "it damages no packet: {report}");
    assert!(report.damaged > 0, "it damages no frame: {report}");
}

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

#[test]
fn of_two_feeds_each_frame_is_given_out_once_and_accounted_for() {
    let mut all = FeedsReport::default();
    let mut saved = 0;
    for seed in 0..200 {
        let report = frames::run_feeds(seed).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        let [first, second] = report.feeds;
        assert_eq!(
            first.first + second.first,
            report.frames.whole,
            "seed {seed}: {report}"
        );
        saved += first.saved + second.saved;
        all.frames.numbered += report.frames.numbered;
        all.frames.whole += report.frames.whole;
        for (sum, lost) in all.frames.lost.iter_mut().zip(report.frames.lost) {
            *sum += lost;
        }
    }
    assert!(all.frames.whole > all.frames.numbered, "most come: {all}");
    assert!(saved > 0, "one feed saves what the other loses: {all}");
}
