//! Replays the committed corpora, and changes of their seeds: a fuzzer for machines without one.
//!
//! `cargo test -p towline-fuzzing --test corpus -- --ignored` writes the seeds that are made up
//! here again, after a format has changed; the others were found by fuzzers or captured.

mod seeds;

use std::{fs, path::PathBuf};

use base::Rng;
use towline_fuzzing::TARGETS;

#[test]
fn every_target_has_its_program_its_row_and_its_corpus() {
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(fuzz(folder)).expect("a folder of the repository");
        let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into());
        let mut names: Vec<_> = entries
            .filter_map(|entry| stem(entry.expect("a readable folder").path()))
            .collect();
        names.sort();
        names
    };
    let targets: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("corpus"), targets);
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).expect("its manifest");
    for name in targets {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(!seeds(name).is_empty(), "{name} has no seeds");
    }
}

#[test]
fn every_seed_of_the_corpus_is_survived() {
    for (name, body) in TARGETS {
        seeds(name).iter().for_each(|seed| body(seed));
    }
}

/// Seeds cut, joined and changed, always the same ones; more of them where `MUTATIONS` says so.
#[test]
fn changed_seeds_of_the_corpus_are_survived() {
    let rounds = std::env::var("MUTATIONS").ok();
    let rounds: Option<u32> = rounds.and_then(|text| text.parse().ok());
    for (name, body) in TARGETS {
        // A list of operations plays two machines, which takes longer than a parser.
        let usual = if name.ends_with("_ops") { 500 } else { 3000 };
        let (seeds, mut rng) = (seeds(name), Rng::new(11));
        for _ in 0..rounds.unwrap_or(usual) {
            body(&changed(&seeds, &mut rng));
        }
    }
}

#[test]
fn every_change_of_a_byte_of_a_packet_of_the_corpus_is_survived() {
    for name in ["wire_packet", "rtt_message", "reach_beacon"] {
        let (_, body) = TARGETS.iter().find(|it| it.0 == name).expect("a target");
        for seed in seeds(name) {
            for at in 0..seed.len().min(120) {
                body(&seed[..at]);
                let old = seed[at];
                for new in [0, 1, 4, 0x7F, 0x80, 0xFF, old ^ 0x80, old ^ 1, !old] {
                    let mut changed = seed.clone();
                    changed[at] = new;
                    body(&changed);
                }
            }
        }
    }
}

fn changed(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..rng.between(1, 6) {
        let seed = &seeds[pick(rng, seeds.len())];
        let start = if rng.chance(1, 3) {
            pick(rng, seed.len())
        } else {
            0
        };
        let end = if rng.chance(1, 3) {
            start + pick(rng, seed.len() - start)
        } else {
            seed.len()
        };
        input.extend_from_slice(&seed[start..end]);
    }
    for _ in 0..rng.below(6) {
        let (at, any) = (pick(rng, input.len()), rng.next_u32() as u8);
        let new = [0, 1, 3, 6, 8, 0x45, 0x7F, 0x81, 0xFF, any][pick(rng, 10)];
        if let Some(byte) = input.get_mut(at) {
            *byte = new;
        }
    }
    input
}

/// A number below `len`, or 0.
fn pick(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len.max(1) as u64)).expect("an index")
}

/// The seeds of a target, in an order that does not depend on the file system.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = fs::read_dir(fuzz("corpus").join(target)).expect("the corpus is committed");
    let mut paths: Vec<_> = folder
        .map(|seed| seed.expect("a readable folder").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a readable seed"))
        .collect()
}

fn fuzz(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(path)
}
