//! Every block type in both byte orders; files cut at every length; damage in the middle.

use super::*;
use crate::trace_file::{Step, TraceDecoder};

/// Writes blocks in either byte order: an implementation of its own, to compare with.
struct File {
    bytes: Vec<u8>,
    is_big_endian: bool,
}

impl File {
    fn new(is_big_endian: bool) -> Self {
        let mut file = Self {
            bytes: Vec::new(),
            is_big_endian,
        };
        file.section();
        file
    }

    fn section(&mut self) {
        let body = [
            self.u32(ORDER),
            self.u16(1),
            self.u16(0),
            vec![0xff; 8],
            self.option(4, b"test"),
        ];
        self.block(SECTION, &body.concat());
    }

    fn u16(&self, value: u16) -> Vec<u8> {
        if self.is_big_endian {
            value.to_be_bytes().to_vec()
        } else {
            value.to_le_bytes().to_vec()
        }
    }

    fn u32(&self, value: u32) -> Vec<u8> {
        if self.is_big_endian {
            value.to_be_bytes().to_vec()
        } else {
            value.to_le_bytes().to_vec()
        }
    }

    fn words(&self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap();
        let mut bytes = [self.u16(code), self.u16(len), value.to_vec()].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.u32(u32::try_from(body.len() + 12).unwrap());
        let block = [self.u32(kind), len.clone(), body, len].concat();
        self.bytes.extend(block);
    }

    fn interface(&mut self, snap_len: u32, resolution: u8) {
        let body = [
            self.u16(1),
            self.u16(0),
            self.u32(snap_len),
            self.option(IF_NAME, b"e0"),
            self.option(IF_RESOLUTION, &[resolution]),
            vec![0; 4],
        ];
        self.block(INTERFACE, &body.concat());
    }

    fn packet(&mut self, interface: u32, ticks: u64, data: &[u8]) {
        let len = u32::try_from(data.len()).unwrap();
        let mut body = self.words(&[
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            len,
            len + 100,
        ]);
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.option(PACKET_FLAGS, &self.u32(2)));
        self.block(PACKET, &body);
    }
}

fn steps(file: &[u8]) -> Vec<String> {
    let mut decoder = TraceDecoder::new();
    let mut at = 0;
    let mut seen = Vec::new();
    loop {
        let (taken, step) = decoder.step(&file[at..]);
        at += taken;
        match step {
            Step::More(_) => {
                if at < file.len() {
                    seen.push("cut".to_owned());
                }
                return seen;
            }
            Step::Lost(damage) => {
                seen.push(format!("lost: {damage}"));
                return seen;
            }
            Step::Damaged(damage) => seen.push(format!("damaged: {damage}")),
            Step::Packet(record) => seen.push(format!(
                "packet {} {:?} {} {:?} {:?}",
                record.interface,
                record.stamp_ns,
                record.wire_len,
                record.data,
                record
                    .options
                    .find(PACKET_FLAGS)
                    .and_then(|flags| flags.u32()),
            )),
            Step::Block(Block::Section(section)) => {
                seen.push(format!("section {:?} {:?}", section.version, section.len));
            }
            Step::Block(Block::Interface(interface)) => {
                let name = interface.options.find(IF_NAME).unwrap().text();
                seen.push(format!("interface {} {name}", interface.index));
            }
            Step::Block(Block::Statistics(statistics)) => {
                let received = statistics.options.find(STATS_RECEIVED).unwrap().u64();
                let at_ns = statistics.stamp_ns;
                seen.push(format!(
                    "statistics {} {at_ns} {received:?}",
                    statistics.interface
                ));
            }
            Step::Block(Block::Other { kind, body, .. }) => {
                seen.push(format!("other {kind:#x} {}", body.len()));
            }
            Step::Block(Block::Pcap(_)) => panic!("not that format"),
        }
    }
}

/// One of each block type.
fn everything(is_big_endian: bool) -> File {
    let mut file = File::new(is_big_endian);
    file.interface(0, 9);
    file.interface(4, 0x80 | 10);
    file.packet(0, 5_000_000_001, b"abcde");
    file.packet(1, 1024 + 512, b"");
    let mut simple = file.u32(3);
    simple.extend(b"xyz");
    file.block(PACKET_SIMPLE, &simple);
    let ids = [file.u16(0), file.u16(7)].concat();
    let mut obsolete = [ids, file.words(&[0, 9, 2, 2])].concat();
    obsolete.extend(b"ab");
    file.block(PACKET_OBSOLETE, &obsolete);
    file.block(NAMES, &[0; 4]);
    let received = if is_big_endian {
        77_u64.to_be_bytes()
    } else {
        77_u64.to_le_bytes()
    };
    let counters = [
        file.words(&[0, 0, 3]),
        file.option(STATS_RECEIVED, &received),
    ]
    .concat();
    file.block(STATISTICS, &counters);
    for kind in [SECRETS, JOURNAL, CUSTOM, CUSTOM_UNCOPIED, 0x8000_0001] {
        file.block(kind, &[1, 2, 3, 4, 5, 6, 7, 8]);
    }
    file.section();
    file.interface(0, 6);
    file.packet(0, 2, b"z");
    file
}

const EVERYTHING: [&str; 17] = [
    "section (1, 0) None",
    "interface 0 e0",
    "interface 1 e0",
    "packet 0 Some(5000000001) 105 [97, 98, 99, 100, 101] Some(2)",
    "packet 1 Some(1500000000) 100 [] Some(2)",
    "packet 0 None 3 [120, 121, 122] None",
    "packet 0 Some(9) 2 [97, 98] None",
    "other 0x4 4",
    "statistics 0 3 Some(77)",
    "other 0xa 8",
    "other 0x9 8",
    "other 0xbad 8",
    "other 0x40000bad 8",
    "other 0x80000001 8",
    "section (1, 0) None",
    "interface 2 e0",
    "packet 2 Some(2000) 101 [122] Some(2)",
];

#[test]
fn all_block_types_are_read_in_both_orders() {
    for is_big_endian in [false, true] {
        let file = everything(is_big_endian);
        assert_eq!(steps(&file.bytes), EVERYTHING);
    }
}

#[test]
fn a_file_cut_anywhere_gives_what_came_before() {
    let file = everything(true);
    let mut last = 0;
    for len in 0..file.bytes.len() {
        let seen = steps(&file.bytes[..len]);
        let whole = seen.iter().take_while(|text| *text != "cut").count();
        assert_eq!(seen[..whole], EVERYTHING[..whole]);
        assert!(whole >= last && seen.len() <= whole + 1);
        last = whole;
    }
    assert_eq!(last, 16);
}

#[test]
fn damage_costs_one_block_where_the_next_can_be_found() {
    let mut file = File::new(false);
    file.interface(0, 9);
    file.packet(5, 1, b"nobody's");
    let at = file.bytes.len();
    file.packet(0, 2, b"long");
    file.bytes[at + 8 + 12] = 200;
    file.packet(0, 3, b"ends wrong");
    let end = file.bytes.len() - 1;
    file.bytes[end] = 9;
    file.packet(0, 4, b"good");
    let at = file.bytes.len();
    file.packet(0, 5, b"gone");
    file.bytes[at + 4] = 3;
    assert_eq!(
        steps(&file.bytes)[2..],
        [
            "damaged: a packet of interface 5, which is not described",
            "damaged: captured bytes at offset 28: cut short, 200 bytes needed but 12 left by the \
             block's length",
            "damaged: a block's length is 52 at its beginning and 150994996 at its end",
            "packet 0 Some(4) 104 [103, 111, 111, 100] Some(2)",
            "lost: a block claims 3 bytes; a length is a multiple of 4 from 12 to 16777216",
        ]
    );
}

/// Each kind of block one byte short of its fixed part (and so four: a length is a multiple of 4).
#[test]
fn a_block_that_ends_too_early_says_what_it_lacks() {
    let cases = [
        (INTERFACE, 8, "interface description block"),
        (PACKET, 20, "enhanced packet block"),
        (PACKET_OBSOLETE, 20, "packet block"),
        (PACKET_SIMPLE, 4, "simple packet block"),
        (STATISTICS, 12, "interface statistics block"),
        (CUSTOM, 4, "custom block"),
    ];
    for (kind, needed, layer) in cases {
        let available = needed - 4;
        let mut file = File::new(false);
        file.interface(0, 9);
        file.block(kind, &vec![0; available]);
        let told = format!(
            "damaged: {layer} at offset 8: cut short, {needed} bytes needed but {available} left \
             by the block's length"
        );
        assert_eq!(steps(&file.bytes)[2..], [told]);
    }
}

#[test]
fn stamps_of_every_resolution_become_nanoseconds() {
    let stamp = |resolution: u8, ticks: u64| {
        let mut file = File::new(false);
        file.interface(0, resolution);
        file.packet(0, ticks, b"");
        let text = steps(&file.bytes)[2].clone();
        let text = text.strip_prefix("packet 0 Some(").unwrap().to_owned();
        text.split(')').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(stamp(0, 2), 2_000_000_000);
    assert_eq!(stamp(3, 2), 2_000_000);
    assert_eq!(stamp(12, 2_999), 2);
    assert_eq!(stamp(127, u64::MAX), 0);
    assert_eq!(stamp(0x80, 2), 2_000_000_000);
    assert_eq!(stamp(0x80 | 30, 1 << 29), 500_000_000);
    assert_eq!(stamp(0x80 | 127, u64::MAX), 0);
    assert_eq!(stamp(0, u64::MAX), u64::MAX);
}

#[test]
fn our_own_files_hold_what_was_put_in() {
    let mut out = Vec::new();
    let section = SectionText {
        system: "Linux",
        application: "test",
        comment: "all of it",
        ..SectionText::default()
    };
    Encoder.section(&mut out, &section);
    let text = InterfaceText {
        link_type: 1,
        snap_len: 262_144,
        name: "e0",
        description: "",
        filter: "udp",
    };
    Encoder.interface(&mut out, &text);
    let notes = PacketNotes {
        flags: Some(1),
        drops: Some(3),
        comment: Some("note"),
        // A flags word, which is not carried over, and a comment in big-endian order.
        carried: Options::new(
            &[0, 2, 0, 1, 9, 0, 0, 0, 0, 1, 0, 3, b'o', b'l', b'd', 0],
            true,
        ),
    };
    Encoder.packet(&mut out, 0, 12, 60, b"abc", &notes);
    let values = StatisticsValues {
        received: Some(77),
        ..StatisticsValues::default()
    };
    for text in ["all of it", "note", "old"] {
        let option = [&[1, 0, text.len() as u8, 0], text.as_bytes()].concat();
        assert!(
            out.windows(option.len()).any(|bytes| bytes == option),
            "{text}"
        );
    }
    Encoder.statistics(&mut out, 0, 99, &values);
    Encoder.other(&mut out, CUSTOM, &[1, 2, 3, 4, 5]);
    assert_eq!(
        steps(&out),
        [
            "section (1, 0) None",
            "interface 0 e0",
            "packet 0 Some(12) 60 [97, 98, 99] Some(1)",
            "statistics 0 99 Some(77)",
            "other 0xbad 8",
        ]
    );
}
