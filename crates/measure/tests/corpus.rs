//! Replays the committed fuzz corpus of messages, and changes of each.
//!
//! `cargo test -p towline-measure --test corpus -- --ignored` writes the seeds again.

use std::{fs, path::PathBuf};

use towline_measure::{CLOCK_BYTES, ClockWord, PROBE_BYTES_MIN, Probe, ProbeKind, fuzzing};

fn corpus(target: &str) -> PathBuf {
    let corpora = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    corpora.join(target)
}

#[test]
fn the_corpus_and_every_change_of_a_byte_are_survived() {
    let folder = fs::read_dir(corpus("rtt_message")).expect("the corpus is part of the repository");
    let mut count = 0;
    for seed in folder {
        let seed = seed.expect("a readable folder").path();
        let bytes = fs::read(seed).expect("a readable seed");
        fuzzing::message(&bytes);
        count += 1;
        for at in 0..bytes.len() {
            fuzzing::message(&bytes[..at]);
            for mask in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= mask;
                fuzzing::message(&changed);
            }
        }
    }
    assert_eq!(count, KINDS.len());
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_seeds() {
    for (name, kind, size) in KINDS {
        let mut message = vec![0; size];
        let (token, sequence) = (0x0123_4567_89ab_cdef, 7);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        if kind == ProbeKind::ClockTold {
            let word = ClockWord {
                is_synchronised: true,
                error_ns_max: 1_500_000,
                error_ns_estimated: 20_000,
                received_ns: 1_700_000_000_000_000_000,
                sent_ns: 1_700_000_000_000_004_000,
            };
            word.put(&mut message);
        }
        fs::write(corpus("rtt_message").join(name), message).expect("the corpus can be written");
    }
}

const KINDS: [(&str, ProbeKind, usize); 5] = [
    ("hello", ProbeKind::Hello, PROBE_BYTES_MIN),
    ("probe", ProbeKind::Probe, 64),
    ("echo", ProbeKind::Echo, 100),
    ("clock", ProbeKind::Clock, CLOCK_BYTES),
    ("clock_told", ProbeKind::ClockTold, CLOCK_BYTES + 8),
];
