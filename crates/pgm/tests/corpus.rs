//! Replays the committed fuzz corpora of the two state machines, and lists of operations made from
//! them: a fuzzer for machines without one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{fs, path::PathBuf};

use base::Rng;
use towline_pgm::fuzzing;

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 3] = [
    ("source_ops", fuzzing::source_ops),
    ("receiver_ops", fuzzing::receiver_ops),
    ("parity_ops", fuzzing::parity_ops),
];

/// The seeds of a target, in an order that does not depend on the file system.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = fs::read_dir(folder).expect("the corpus is part of the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no seeds");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn every_seed_of_the_corpus_is_survived() {
    for (target, body) in TARGETS {
        seeds(target).iter().for_each(|seed| body(seed));
    }
}

#[test]
fn seeds_of_the_corpus_cut_and_joined_are_survived() {
    let mut rng = Rng::new(3);
    for (target, body) in TARGETS {
        let seeds = seeds(target);
        let mut draw = |len: usize| usize::try_from(rng.below(len as u64)).unwrap();
        for _ in 0..500 {
            let mut input = Vec::new();
            for _ in 0..=draw(4) {
                let seed = &seeds[draw(seeds.len())];
                input.extend_from_slice(&seed[draw(seed.len().max(1)).min(seed.len())..]);
            }
            for _ in 0..draw(4) {
                let at = draw(input.len().max(1));
                if let Some(byte) = input.get_mut(at) {
                    *byte = u8::try_from(draw(256)).unwrap();
                }
            }
            body(&input);
        }
    }
}
