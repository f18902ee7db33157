//! Replays the committed fuzz corpora of captured files and of changes to frames.
//!
//! `cargo test -p towline-capture --test corpus -- --ignored` writes the seeds again.

use std::{fs, io::Write as _, path::PathBuf};

use flate2::{Compression, write::GzEncoder};
use towline_capture::{
    fuzzing,
    generated::{Generator, GeneratorSpec},
};
use wire::{link::insert_tag, pcap, pcapng};

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 3] = [
    ("capture_edits", fuzzing::edits),
    ("capture_merged", fuzzing::merged),
    ("capture_compressed", fuzzing::compressed),
];

fn corpus(target: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../fuzz/corpus").join(target)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = fs::read_dir(corpus(target)).expect("the corpus is part of the repository");
    let mut paths: Vec<_> = folder
        .map(|seed| seed.expect("a readable folder").path())
        .collect();
    paths.sort();
    let read = |path| fs::read(path).expect("a readable seed");
    paths.iter().map(read).collect()
}

#[test]
fn every_seed_of_the_corpus_is_survived() {
    for (target, body) in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{target} has no seeds");
        seeds.iter().for_each(|seed| body(seed));
    }
}

/// A fuzzer for machines without one: seeds cut, joined and changed, from a fixed seed.
#[test]
fn changed_seeds_of_the_corpus_are_survived() {
    let rounds = std::env::var("MUTATIONS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(2000);
    let mut rng = base::Rng::new(5);
    let mut pick = |len: usize| usize::try_from(rng.below(len as u64)).expect("an index");
    for (target, body) in TARGETS {
        let seeds = seeds(target);
        for _ in 0..rounds {
            let mut input = seeds[pick(seeds.len())].clone();
            if pick(3) == 0 {
                let other = &seeds[pick(seeds.len())];
                input.truncate(pick(input.len()) + 1);
                input.extend_from_slice(&other[pick(other.len())..]);
            }
            for _ in 0..pick(6) {
                let at = pick(input.len());
                input[at] = [0, 1, 8, 0x45, 0x7F, 0x81, 0xFF][pick(7)];
            }
            body(&input);
        }
    }
}

#[test]
#[ignore = "writes the seeds into the repository"]
fn write_the_seeds() {
    let frames = frames();
    for (name, frame) in &frames {
        for (kind, asked) in [("all", 0x1F_u8), ("tag", 0x0C), ("address", 0x10)] {
            let asked = [&[asked, 0][..], &[2; 18]].concat();
            let name = format!("{name}_{kind}");
            write("capture_edits", &name, &[&asked[..], frame].concat());
        }
    }
    let classic = classic(&frames, 5);
    let next = newer(&frames, 3);
    write("capture_merged", "pair", &halves(&classic, &next));
    write("capture_merged", "same", &halves(&classic, &classic));
    write("capture_merged", "alone", &[&[255, 0][..], &next].concat());
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&classic).expect("memory takes it");
    let gzip = gzip.finish().expect("memory takes it");
    write("capture_compressed", "gzip", &gzip);
    // Behind the byte that says which it is taken for; the magic number is put in front.
    write("capture_compressed", "body", &[&[0], &gzip[2..]].concat());
    write("capture_compressed", "classic", &classic);
    write("capture_compressed", "newer", &next);
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    fs::create_dir_all(corpus(target)).expect("a folder");
    fs::write(corpus(target).join(name), bytes).expect("a seed");
}

/// Two files, and the bytes that tell where the first ends.
fn halves(first: &[u8], second: &[u8]) -> Vec<u8> {
    // Three files are cut at 256ths: the first is filled up by what a reader calls cut short.
    let whole = first.len() + second.len();
    let share = (first.len() * 256).div_ceil(whole);
    let filled = (0..).find(|more| (whole + more) * share / 256 >= first.len() + more);
    let mut first = first.to_vec();
    first.resize(first.len() + filled.unwrap_or(0), 0);
    let share = u8::try_from(share).expect("less than all");
    [&[share, 255][..], &first, second].concat()
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let spec: GeneratorSpec = "count=2,size=60".parse().expect("a specification");
    let mut generator = Generator::new(spec);
    let udp = generator.next_frame().expect("a frame").to_vec();
    let mut tagged = udp.clone();
    insert_tag(&mut tagged, 5);
    let mut twice = tagged.clone();
    insert_tag(&mut twice, 7);
    let mut arp = vec![2; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut six = vec![0; 74];
    six[12..15].copy_from_slice(&[0x86, 0xDD, 0x60]);
    (six[19], six[20], six[29]) = (20, 6, 1);
    vec![
        ("udp", udp),
        ("tagged", tagged),
        ("twice", twice),
        ("arp", arp),
        ("six", six),
    ]
}

/// A classic file, a packet every so many nanoseconds.
fn classic(frames: &[(&str, Vec<u8>)], gap_ns: u64) -> Vec<u8> {
    let mut file = Vec::new();
    pcap::Header::new(1, 65_535).emit(&mut file);
    for (at, (_, frame)) in frames.iter().enumerate() {
        pcap::emit_record(&mut file, at as u64 * gap_ns, frame.len() as u32, frame);
    }
    file
}

/// The same as pcapng.
fn newer(frames: &[(&str, Vec<u8>)], gap_ns: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = pcapng::Encoder;
    let section = pcapng::SectionText {
        application: "seed",
        ..pcapng::SectionText::default()
    };
    encoder.section(&mut file, &section);
    let interface = pcapng::InterfaceText {
        link_type: 1,
        ..pcapng::InterfaceText::default()
    };
    encoder.interface(&mut file, &interface);
    for (at, (_, frame)) in frames.iter().enumerate() {
        let stamp_ns = at as u64 * gap_ns;
        let notes = pcapng::PacketNotes::default();
        encoder.packet(&mut file, 0, stamp_ns, frame.len() as u32, frame, &notes);
    }
    file
}
