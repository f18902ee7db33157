//! Capture files of arbitrary bytes, and frames changed in arbitrary ways.

use std::{
    io::{Cursor, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::ControlFlow,
    path::Path,
};

use capture::{
    Editor, Edits, Losses, Packet, Source, TagEdit,
    source::{FileSource, MergedSource, Progress},
};
use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sys::packet::Checksum;
use wire::{
    checksum,
    link::Layers,
    pcapng::Options,
    trace_file::{Step, TraceDecoder},
};

/// Changes any frame as the first bytes of the input say. Changing it again must change nothing. A
/// cut frame must stay cut by the same number of bytes. When no tag changes, a right checksum of
/// the IPv4 header must stay right, and a wrong one must stay as wrong.
///
/// **Panics**: when one of these conditions fails.
pub fn edits(data: &[u8]) {
    let Some((asked, frame)) = data.split_at_checked(ASKED_LEN) else {
        return;
    };
    let packet = Packet {
        data: frame,
        // This byte says how many bytes of the frame were cut off.
        wire_len: frame.len() as u32 + u32::from(asked[1]),
        stamp_ns: 7,
        interface: 0,
        direction: None,
        checksum: Checksum::Unknown,
        offload: None,
        notes: Options::empty(),
        is_rejected: false,
    };
    let edits = edits_of(asked, frame);
    let (mut first, mut second) = (Editor::new(edits.clone()), Editor::new(edits.clone()));
    let once = first.edit(&packet);
    let twice = second.edit(&once);
    if frame.len() >= HEADER_LEN || !matches!(edits.tag, TagEdit::Set(_)) {
        assert_eq!(once.data, twice.data, "what was changed is as it should be");
    }
    let missing = |packet: &Packet<'_>| packet.wire_len as usize - packet.data.len();
    assert_eq!(missing(&once), missing(&packet), "a cut is a cut");
    if edits.tag == TagEdit::Keep {
        assert_eq!(once.data.len(), frame.len(), "nothing was put in");
        let sum = header_sum(frame);
        assert_eq!(header_sum(once.data), sum, "as right or wrong as before");
    }
}

/// Reads the changes from the first bytes of the input. Addresses to replace are taken from the
/// frame, so that it has them.
fn edits_of(asked: &[u8], frame: &[u8]) -> Edits {
    let mac = |at: usize| asked[at..].first_chunk::<6>().copied();
    let mut edits = Edits {
        to: mac(2).filter(|_| asked[0] & 1 != 0),
        from: mac(8).filter(|_| asked[0] & 2 != 0),
        addresses: Vec::new(),
        tag: match asked[0] >> 2 & 3 {
            0 | 1 => TagEdit::Keep,
            2 => TagEdit::Remove,
            _ => TagEdit::Set(u16::from_be_bytes([asked[2], asked[3]])),
        },
    };
    let layers = Layers::parse(frame);
    let at = |offset: usize| frame.get(layers.network + offset..);
    let new = asked[4..].first_chunk::<16>().copied().unwrap_or_default();
    if asked[0] & 16 == 0 {
        return edits;
    }
    if let Some(old) = at(8).and_then(<[u8]>::first_chunk::<16>) {
        let pair = (Ipv6Addr::from(*old), Ipv6Addr::from(new));
        edits
            .addresses
            .push((IpAddr::V6(pair.0), IpAddr::V6(pair.1)));
    }
    let source = if layers.ip.is_some() { 12 } else { 14 };
    if let Some(old) = at(source).and_then(<[u8]>::first_chunk::<4>) {
        let new = Ipv4Addr::new(new[0], new[1], new[2], new[3]);
        let old = Ipv4Addr::from(*old);
        edits.addresses.push((IpAddr::V4(old), IpAddr::V4(new)));
    }
    edits
}

/// Returns the sum over a whole IPv4 header, as for its checksum.
fn header_sum(frame: &[u8]) -> Option<u64> {
    let layers = Layers::parse(frame);
    let ip = layers.ip.filter(|ip| ip.version == 4)?;
    let header = frame.get(layers.network..ip.transport)?;
    Some(checksum::sum(header) % 0xFFFF)
}

/// Reads any bytes as up to three files, and merges them. All packets must come: those of each file
/// in their order, and of the next packets of the files always the earliest first.
///
/// **Panics**: when one of these conditions fails.
pub fn merged(data: &[u8]) {
    let Some(([first, second], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (a, rest) = rest.split_at(rest.len() * usize::from(*first) / 256);
    let (b, c) = rest.split_at(rest.len() * usize::from(*second) / 256);
    let open = || [a, b, c].into_iter().filter_map(file);
    let parts: Vec<Contents> = open()
        .map(|mut source| Contents::read(&mut source))
        .collect();
    let mut expected = Vec::new();
    let mut queues: Vec<_> = parts.iter().map(|part| part.packets.iter()).collect();
    let heads = |queues: &[std::slice::Iter<'_, Seen>]| {
        let head = |(at, queue): (usize, &std::slice::Iter<'_, Seen>)| {
            queue.as_slice().first().map(|seen| (seen.stamp_ns, at))
        };
        queues.iter().enumerate().filter_map(head).min()
    };
    while let Some((_, earliest)) = heads(&queues) {
        expected.extend(queues[earliest].next().cloned());
    }
    let sources = open().map(|source| Box::new(source) as Box<dyn Source>);
    let merged = Contents::read(&mut MergedSource::new(sources.collect()));
    assert_eq!(merged.packets, expected, "the earliest is next");
    let lost = parts.iter().map(|part| part.losses.lost_bytes).sum::<u64>();
    assert_eq!(merged.losses.lost_bytes, lost, "what is lost is said");
}

/// Reads any bytes as a compressed file to its end. Then reads them as a file, which must have the
/// same content when it is packed by gzip or zstd.
///
/// **Panics**: when the content differs.
pub fn compressed(data: &[u8]) {
    if let Some((kind, rest)) = data.split_first() {
        let magic: &[u8] = match kind & 1 {
            0 => &[0x1f, 0x8b],
            _ => &[0x28, 0xb5, 0x2f, 0xfd],
        };
        if let Some(mut source) = file(&[magic, rest].concat()) {
            Contents::read(&mut source);
        }
    }
    // A file that is packed twice is unpacked only once.
    if matches!(TraceDecoder::new().step(data).1, Step::Lost(_)) {
        return;
    }
    let Some(mut plain) = file(data) else {
        return;
    };
    let plain = Contents::read(&mut plain);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = gzip.write_all(data).and_then(|()| gzip.finish());
    let packed = packed.expect("memory takes it");
    let mut again = file(&packed).expect("it begins as the plain one does");
    assert_eq!(Contents::read(&mut again), plain, "packed by gzip");
    let packed = compress_to_vec(data, CompressionLevel::Fastest);
    let mut again = file(&packed).expect("it begins as the plain one does");
    assert_eq!(Contents::read(&mut again), plain, "packed by zstd");
}

/// Makes a source that reads these bytes; `None` when they do not begin like a capture file.
fn file(data: &[u8]) -> Option<FileSource> {
    let input = Cursor::new(data.to_vec());
    FileSource::new(Path::new("fuzzed"), Box::new(input)).ok()
}

/// Everything that a source gave.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    packets: Vec<Seen>,
    losses: Losses,
    interfaces: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    stamp_ns: u64,
    wire_len: u32,
    data: Vec<u8>,
}

impl Contents {
    fn read(source: &mut dyn Source) -> Self {
        let mut packets = Vec::new();
        let mut bytes = 0;
        loop {
            let progress = source.read(&mut |packet| {
                packets.push(Seen {
                    stamp_ns: packet.stamp_ns,
                    wire_len: packet.wire_len,
                    data: packet.data.to_vec(),
                });
                bytes += 64 + packet.data.len();
                ControlFlow::Continue(())
            });
            // A few packed bytes may unpack to very many.
            if progress.expect("memory is readable") == Progress::End || bytes > BYTES_MAX {
                break;
            }
        }
        Self {
            packets,
            losses: source.losses().expect("a file knows its own"),
            interfaces: source.interfaces().len(),
        }
    }
}

/// How many bytes before a frame say how to change it.
const ASKED_LEN: usize = 20;
/// Bytes of an Ethernet header. In a shorter frame an inserted tag looks like part of the
/// addresses.
const HEADER_LEN: usize = 14;
const BYTES_MAX: usize = 8 << 20;
