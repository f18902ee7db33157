//! What is in a file is what was sent; other programs read it, and theirs are read.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use lab::isolated;
use towline_capture::{
    Filter, Limits, LiveOptions, ReplayTiming, SendOptions, Session, Sink, SinkAddress, Source,
    generated::{Generator, GeneratorSpec},
    sink::{self, NullSink, RotatingSink, Rotation},
    source::{self, FileSource, MergedSource},
};
use wire::{
    pcap::{Header, emit_record},
    pcapng::{Block, Encoder, InterfaceText, OPTION_COMMENT, Options, PacketNotes, SectionText},
    trace_file::{Step, TraceDecoder},
};

use crate::{assert_closed, capture, incoming, pair, send};

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// Stamp and bytes of every packet in a file.
fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let mut decoder = TraceDecoder::new();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let (taken, step) = decoder.step(&bytes[at..]);
        if let Step::Packet(record) = step {
            found.push((record.stamp_ns.unwrap(), record.data.to_vec()));
        }
        assert!(taken > 0, "{step:?}");
        at += taken;
    }
    found
}

fn convert(from: &Path, to: SinkAddress, limits: Limits) -> u64 {
    let options = LiveOptions::default();
    let source = source::open(
        &format!("file:{}", from.display()).parse().unwrap(),
        &options,
    );
    let sink = sink::open(&to, &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source.unwrap()], sink, limits).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    session.account().delivered
}

/// Every frame that was sent is in the file, byte for byte, in order and with rising stamps.
#[test]
fn the_file_holds_what_was_sent() {
    isolated(|| {
        let lab = pair();
        let folder = Folder::new("capture");
        let file = folder.file("trace.pcapng");
        let options = incoming();
        let address = SinkAddress::Pcapng(file.clone());
        let sink = sink::open(&address, &SendOptions::default()).unwrap();
        let mut sent = 0;
        let captured = capture(lab.host(1), "ring", &options, sink, || {
            sent = send(
                lab.host(0),
                "ring",
                "size=60-1514,count=2000",
                ReplayTiming::TopSpeed,
            );
        });
        assert_closed(&captured, sent);
        let mut generator = Generator::new("size=60-1514".parse::<GeneratorSpec>().unwrap());
        let found = packets(&file);
        assert_eq!(found.len() as u64, captured.account.delivered);
        assert!(found.is_sorted_by_key(|(stamp_ns, _)| *stamp_ns));
        let ours: Vec<_> = found
            .iter()
            .filter(|(_, data)| data[6..12] == [2, 0, 0, 0, 0, 1])
            .collect();
        assert_eq!(ours.len(), 2000);
        for (_, data) in ours {
            assert_eq!(data, generator.next_frame().unwrap());
        }
    });
}

/// Through both formats and back, nothing changes; a limit takes the first packets.
#[test]
fn formats_are_converted_without_change() {
    let folder = Folder::new("convert");
    let (first, classic, again) = (
        folder.file("a.pcapng"),
        folder.file("b.pcap"),
        folder.file("c.pcapng"),
    );
    let options = LiveOptions::default();
    let spec = "gen:size=60-1514,count=5000".parse().unwrap();
    let source = source::open(&spec, &options).unwrap();
    let sink = sink::open(&SinkAddress::Pcapng(first.clone()), &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    assert_eq!(
        convert(
            &first,
            SinkAddress::Pcap(classic.clone()),
            Limits::default()
        ),
        5000
    );
    assert_eq!(
        convert(
            &classic,
            SinkAddress::Pcapng(again.clone()),
            Limits::default()
        ),
        5000
    );
    let packets_of = packets(&first);
    assert_eq!(packets_of.len(), 5000);
    assert_eq!(packets(&classic), packets_of);
    assert_eq!(packets(&again), packets_of);
    let limits = Limits {
        packets: Some(10),
        snap_len: Some(40),
        ..Limits::default()
    };
    assert_eq!(
        convert(&again, SinkAddress::Pcap(classic.clone()), limits),
        10
    );
    let short = packets(&classic);
    assert!(short.len() == 10 && short.iter().all(|(_, data)| data.len() == 40));
}

/// The remarks of a file, in order: on sections, and on packets with the packet's first byte.
fn comments(path: &Path) -> Vec<(Option<u8>, String)> {
    let bytes = fs::read(path).unwrap();
    let mut decoder = TraceDecoder::new();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let (taken, step) = decoder.step(&bytes[at..]);
        let (of, options) = match step {
            Step::Packet(record) => (record.data.first().copied(), record.options),
            Step::Block(Block::Section(section)) => (None, section.options),
            _ => (None, Options::empty()),
        };
        let texts = options
            .iter()
            .filter(|option| option.code == OPTION_COMMENT);
        found.extend(texts.map(|option| (of, option.text())));
        assert!(taken > 0);
        at += taken;
    }
    found
}

/// Remarks on packets go with them, from one file and from several; a remark on all of them is in
/// each file that holds some.
#[test]
fn remarks_go_on_with_their_packets() {
    let folder = Folder::new("remarks");
    let (first, second) = (folder.file("a.pcapng"), folder.file("b.pcapng"));
    for (path, offset) in [(&first, 0_u8), (&second, 1)] {
        let mut bytes = Vec::new();
        Encoder.section(&mut bytes, &SectionText::default());
        Encoder.interface(&mut bytes, &InterfaceText::default());
        for number in 0..50_u8 {
            let text = format!("number {number}");
            let mut more = Vec::new();
            more.extend_from_slice(&[0, 1, 0, 4]);
            more.extend_from_slice(b"more");
            let notes = PacketNotes {
                flags: Some(1),
                comment: (number % 5 == 0).then_some(text.as_str()),
                carried: if number == 5 {
                    Options::new(&more, true)
                } else {
                    Options::empty()
                },
                ..PacketNotes::default()
            };
            let data = [number * 2 + offset; 60];
            let stamp_ns = u64::from(number) * 10 + u64::from(offset);
            Encoder.packet(&mut bytes, 0, stamp_ns, 60, &data, &notes);
        }
        fs::write(path, bytes).unwrap();
    }
    let copy = folder.file("c.pcapng");
    convert(&first, SinkAddress::Pcapng(copy.clone()), Limits::default());
    let of_first = comments(&first);
    assert_eq!(of_first.len(), 11);
    assert_eq!(of_first[2], (Some(10), "more".to_owned()));
    assert_eq!(comments(&copy), of_first);

    let open = |path: &PathBuf| Box::new(FileSource::open(path).unwrap()) as Box<dyn Source>;
    let merged = MergedSource::new(vec![open(&first), open(&second)]);
    let rotation = Rotation {
        bytes: Some(4000),
        ..Rotation::default()
    };
    let address = SinkAddress::Pcapng(folder.file("d.pcapng"));
    let mut sink = RotatingSink::open(&address, rotation).unwrap();
    sink.describe("seen in the lab").unwrap();
    let source: Box<dyn Source> = Box::new(merged);
    let mut session = Session::new(vec![source], Box::new(sink), Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    let mut found = Vec::new();
    let mut files = 0;
    while let name = folder.file(&format!("d.{:05}.pcapng", files + 1))
        && name.exists()
    {
        let mut of_file = comments(&name);
        assert_eq!(of_file.remove(0), (None, "seen in the lab".to_owned()));
        found.append(&mut of_file);
        files += 1;
    }
    let mut both = [of_first, comments(&second)].concat();
    both.sort_by_key(|(of, _)| *of);
    assert!(files > 2 && found == both, "{files} files: {found:?}");
    let classic = sink::open(&SinkAddress::Pcap(copy), &SendOptions::default());
    let error = classic.unwrap().describe("x").unwrap_err().to_string();
    assert!(error.contains("only pcapng:FILE has a place"), "{error}");
}

/// A file that was cut in the middle of a record is read up to there, and the rest is counted.
#[test]
fn a_cut_file_is_read_as_far_as_it_goes() {
    let folder = Folder::new("cut");
    let (whole, cut) = (folder.file("whole.pcap"), folder.file("cut.pcap"));
    let spec = "gen:size=100,count=50".parse().unwrap();
    let source = source::open(&spec, &LiveOptions::default()).unwrap();
    let sink = sink::open(&SinkAddress::Pcap(whole.clone()), &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..24 + 116 * 30 + 50]).unwrap();
    let address = format!("pcap:{}", cut.display()).parse().unwrap();
    let source = source::open(&address, &LiveOptions::default()).unwrap();
    let sink = sink::open(&SinkAddress::Null, &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    assert_eq!(session.account().delivered, 30);
    assert_eq!(session.account().losses.lost_bytes, 50);
    let remark = &session.take_remarks()[0];
    let wanted = "at byte 3504, is cut short: 116 bytes needed but 50 left by the file's end";
    assert!(remark.ends_with(wanted), "{remark}");
}

/// Damage is named with its place in the file: a block whose two lengths differ is left out, and
/// behind one that claims an impossible length nothing can be found.
#[test]
fn damage_is_named_with_its_place_in_the_file() {
    let folder = Folder::new("damage");
    let file = folder.file("damaged.pcapng");
    let spec = "gen:size=100,count=50".parse().unwrap();
    let source = source::open(&spec, &LiveOptions::default()).unwrap();
    let sink = sink::open(&SinkAddress::Pcapng(file.clone()), &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let packet_blocks = blocks(&bytes);
    let (one, len) = packet_blocks[10];
    bytes[one + len - 4] ^= 4;
    let (other, _) = packet_blocks[20];
    bytes[other + 4] = 3;
    fs::write(&file, &bytes).unwrap();
    let source: Box<dyn Source> = Box::new(FileSource::open(&file).unwrap());
    let mut session = Session::new(vec![source], Box::new(NullSink), Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    assert_eq!(session.account().delivered, 19);
    let remarks = session.take_remarks();
    let left_out = format!(
        ": at byte {one}: a block's length is {len} at its beginning and {} at its end; its {len} \
         bytes",
        len ^ 4
    );
    assert!(remarks[0].contains(&left_out), "{remarks:?}");
    let lost = format!(": at byte {other}: a block claims 3 bytes; a length is a multiple of 4");
    assert!(remarks[1].contains(&lost), "{remarks:?}");
}

/// Where each packet block of a little-endian pcapng file begins, and how long it is.
fn blocks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        if word(at) == 6 {
            found.push((at, len));
        }
        at += len;
    }
    found
}

/// A filter means the same whatever stands in front of the IP header.
#[test]
fn a_filter_is_for_the_packets_of_its_file() {
    let filter = match Filter::compile("udp src port 20001") {
        Err(error) if error.to_string().contains("need libpcap") => {
            println!("skipped: {error}");
            return;
        }
        filter => filter.unwrap(),
    };
    let folder = Folder::new("link-types");
    let file = folder.file("x.pcap");
    let sll = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0];
    let heads: [(u16, &[u8]); 5] = [
        (101, &[]),
        (228, &[]),
        (0, &[2, 0, 0, 0]),
        (108, &[0, 0, 0, 2]),
        (113, &sll),
    ];
    for (link_type, head) in heads {
        let mut bytes = Vec::new();
        Header::new(link_type, 65_535).emit(&mut bytes);
        let mut generator = Generator::new("count=1000,flows=4,size=100".parse().unwrap());
        while let Some(frame) = generator.next_frame() {
            let packet = [head, &frame[14..]].concat();
            emit_record(&mut bytes, 1, packet.len() as u32, &packet);
        }
        fs::write(&file, &bytes).unwrap();
        let source: Box<dyn Source> = Box::new(FileSource::open(&file).unwrap());
        let sink = Box::new(NullSink);
        let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
        session.set_filter(filter.clone()).unwrap();
        session.run(&|| false, &mut |_| {}).unwrap();
        let account = session.account();
        assert_eq!(
            (account.passed, account.filtered),
            (250, 750),
            "{link_type}"
        );
    }
    // Nothing is kept or rejected by chance where nobody knows what the bytes are.
    let mut bytes = Vec::new();
    Header::new(147, 65_535).emit(&mut bytes);
    emit_record(&mut bytes, 1, 4, &[1; 4]);
    fs::write(&file, &bytes).unwrap();
    let source: Box<dyn Source> = Box::new(FileSource::open(&file).unwrap());
    let sink = Box::new(NullSink);
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.set_filter(filter).unwrap();
    let error = session.run(&|| false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("for packets of link type 147: "), "{error}");
}

/// tshark and tcpdump see in our files what we wrote, and we read what tshark writes.
#[test]
fn other_programs_agree() {
    let folder = Folder::new("others");
    let (ours, theirs) = (folder.file("ours.pcapng"), folder.file("theirs.pcapng"));
    let spec = "gen:size=60-1514,count=500".parse().unwrap();
    let source = source::open(&spec, &LiveOptions::default()).unwrap();
    let sink = sink::open(&SinkAddress::Pcapng(ours.clone()), &SendOptions::default()).unwrap();
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    let mut tshark = Command::new("tshark");
    let Ok(output) = tshark.arg("-r").arg(&ours).arg("-w").arg(&theirs).output() else {
        println!("skipped: tshark is not installed");
        return;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(packets(&theirs), packets(&ours));
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&ours)
        .args(["-o", "udp.check_checksum:TRUE", "-T", "fields"]);
    let output = tshark
        .args(["-e", "frame.len", "-e", "udp.checksum.status"])
        .output()
        .unwrap();
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut generator = Generator::new("size=60-1514".parse::<GeneratorSpec>().unwrap());
    let expected: Vec<String> = (0..500)
        .map(|_| format!("{}\t1", generator.next_frame().unwrap().len()))
        .collect();
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
}

/// What gzip and zstd packed is read as what it was, and as far as it goes when it was cut.
#[test]
fn compressed_files_are_read_as_far_as_they_go() {
    let plain = scratch("plain.pcap");
    let source = "gen:count=80000,size=60-200".parse().unwrap();
    let source = source::open(&source, &LiveOptions::default()).unwrap();
    let address = format!("pcap:{}", plain.display()).parse().unwrap();
    let sink = sink::open(&address, &SendOptions::default()).unwrap();
    let limits = Limits::default();
    let mut session = Session::new(vec![source], sink, limits).unwrap();
    session.run(&|| false, &mut |_| {}).unwrap();
    for program in ["gzip", "zstd"] {
        let packed = match Command::new(program).arg("-c").arg(&plain).output() {
            Ok(output) if output.status.success() => output.stdout,
            _ => {
                println!("skipped: {program} is not installed");
                continue;
            }
        };
        for (part, is_whole) in [(packed.len(), true), (packed.len() / 2, false)] {
            let input = std::io::Cursor::new(packed[..part].to_vec());
            let source = FileSource::new(&plain, Box::new(input)).unwrap();
            let limits = Limits {
                checks_sequence: true,
                ..Limits::default()
            };
            let sources: Vec<Box<dyn Source>> = vec![Box::new(source)];
            let mut session = Session::new(sources, Box::new(NullSink), limits).unwrap();
            session.run(&|| false, &mut |_| {}).unwrap();
            let check = session.sequence().unwrap();
            assert_eq!((check.missing(), check.corrupt), (0, 0), "{program}");
            assert_eq!(
                check.frames == 80_000,
                is_whole,
                "{program}: {}",
                check.frames
            );
            let damaged = session.account().losses.damaged;
            assert_eq!(damaged > 0, !is_whole, "{program}");
        }
    }
    fs::remove_file(plain).unwrap();
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("towline-capture-{}-{name}", process::id()))
}
