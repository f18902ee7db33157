//! A small program, written from the documentation alone: packets into memory and back, through a
//! filter and a sink of its own, without an interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{Cursor, Write},
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex},
};

use towline_capture::{
    Account, CaptureError, Filter, Interface, Limits, LiveOptions, Packet, Packets, Session, Sink,
    Source, SourceAddress,
    sink::{Output, PcapngSink},
    source::{self, FileSource, Progress},
};

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Counts what it is given.
#[derive(Clone, Debug, Default)]
struct Tally(Arc<Mutex<(u64, usize)>>);

impl Sink for Tally {
    fn interface(&mut self, _interface: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let mut tally = self.0.lock().unwrap();
        *tally = (tally.0 + 1, tally.1 + packet.data.len());
        Ok(())
    }

    fn note(&mut self, _account: &Account, _stamp_ns: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}

/// Runs `source` into `sink` until it ends; gives the packets delivered.
fn run(source: Box<dyn Source>, sink: Box<dyn Sink>, filter: Option<&str>) -> u64 {
    let mut session = Session::new(vec![source], sink, Limits::default()).unwrap();
    if let Some(text) = filter {
        session.set_filter(Filter::compile(text).unwrap()).unwrap();
    }
    session.run(&|| false, &mut |_| {}).unwrap();
    assert!(session.account().closes());
    session.account().delivered
}

fn from_memory(bytes: Vec<u8>) -> Result<FileSource, CaptureError> {
    FileSource::new(Path::new("memory"), Box::new(Cursor::new(bytes)))
}

/// The packets that can be read, and whether the source was glad to the end.
fn count(mut source: FileSource) -> (u64, bool) {
    let mut count = 0;
    let mut visit = |_: &Packet<'_>| {
        count += 1;
        ControlFlow::Continue(())
    };
    while source.read(&mut visit).unwrap() != Progress::End {}
    let is_whole = source.take_remarks().is_empty();
    (count, is_whole)
}

#[test]
fn packets_go_into_memory_and_come_back() {
    let made = source::open(
        &"gen:size=60-1514,count=500".parse().unwrap(),
        &LiveOptions::default(),
    );
    let memory = Memory::default();
    let output = Output::to_writer(Path::new("memory"), Box::new(memory.clone()));
    let file = Box::new(PcapngSink::new(output));
    assert_eq!(run(made.unwrap(), file, None), 500);
    let bytes = memory.0.lock().unwrap().clone();

    assert_eq!(count(from_memory(bytes.clone()).unwrap()), (500, true));
    let (left, is_whole) = count(from_memory(bytes[..bytes.len() / 2].to_vec()).unwrap());
    assert!((1..500).contains(&left) && !is_whole, "{left} packets");

    let tally = Tally::default();
    let source = || Box::new(from_memory(bytes.clone()).unwrap());
    assert_eq!(run(source(), Box::new(tally.clone()), Some("udp")), 500);
    let (packets, taken) = *tally.0.lock().unwrap();
    assert!(packets == 500 && taken > 500 * 60, "{taken} bytes");
    assert_eq!(run(source(), Box::new(Tally::default()), Some("tcp")), 0);
}

#[test]
fn packets_are_asked_for_one_by_one() {
    let address = "gen:size=60-1514,count=500".parse().unwrap();
    let made = source::open(&address, &LiveOptions::default()).unwrap();
    let memory = Memory::default();
    let output = Output::to_writer(Path::new("memory"), Box::new(memory.clone()));
    run(made, Box::new(PcapngSink::new(output)), None);
    let bytes = memory.0.lock().unwrap().clone();
    let file = from_memory(bytes).unwrap();
    let mut packets = Packets::new(Box::new(file)).unwrap();
    let mut sizes = Vec::new();
    while let Some(packet) = packets.next(None).unwrap() {
        assert_eq!(packet.data.len(), packet.wire_len as usize);
        sizes.push(packet.wire_len);
    }
    assert!(packets.is_ended() && packets.source().interfaces().len() == 1);
    assert_eq!(sizes.len(), 500);
    assert!(sizes.iter().all(|size| (60..=1514).contains(size)));
    assert!(sizes.iter().min() < sizes.iter().max());
}

#[test]
fn what_is_no_capture_place_or_filter_is_refused_by_name() {
    let garbage = from_memory(b"hello world, no capture".to_vec()).unwrap_err();
    assert!(garbage.to_string().contains("memory"), "{garbage}");
    for address in ["ring:", "ring:nope0", "file:/nonexistent.pcap", "gen:bogus"] {
        let parsed = address.parse::<SourceAddress>();
        let refused = match parsed {
            Ok(address) => source::open(&address, &LiveOptions::default())
                .map(drop)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        assert!(refused.is_err_and(|text| !text.is_empty()), "{address}");
    }
    Filter::compile("tcp prt 80").unwrap_err();
}
