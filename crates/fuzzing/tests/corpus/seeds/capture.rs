//! Frames and captured files.

use std::io::Write as _;

use capture::generated::{Generator, GeneratorSpec};
use flate2::{Compression, write::GzEncoder};
use wire::{link::insert_tag, pcap, pcapng};

use super::write;

pub(super) fn write_all() {
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
