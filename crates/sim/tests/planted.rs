//! The proof that the swarm finds bugs: each planted one within 500 seeds.
//!
//! Needs the feature: `cargo test -p towline-sim --features planted-bugs --test planted`.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use base::planted::{Bug, plant};
use towline_sim::{run, swarm};

/// The first seed below 500 that fails with `bug`, and how it fails.
fn first_failure(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let found = (0..500).find_map(|seed| {
        let report = run(&swarm::plan(seed), seed).unwrap();
        report
            .failures
            .first()
            .map(|failure| (seed, failure.clone()))
    });
    plant(None);
    found
}

#[test]
fn every_planted_bug_is_found_within_500_seeds() {
    // Some of the bugs end in a panic, which is a finding as well.
    std::panic::set_hook(Box::new(|_| {}));
    let all = Bug::ALL.map(|bug| (bug, first_failure(bug)));
    drop(std::panic::take_hook());
    for (bug, found) in &all {
        match found {
            Some((seed, how)) => println!("{bug:?}: seed {seed}: {how:.200}"),
            None => println!("{bug:?}: NOT FOUND"),
        }
    }
    let missed: Vec<_> = all.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn without_a_bug_the_same_seeds_hold() {
    for seed in 0..20 {
        let report = run(&swarm::plan(seed), seed).unwrap();
        assert!(report.is_good(), "{report}");
    }
}
