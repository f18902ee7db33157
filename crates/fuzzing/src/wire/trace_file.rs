//! Files of captured packets.

use std::ops::ControlFlow;

use wire::{
    pcap,
    pcapng::{
        Block, Encoder, InterfaceText, OPTION_COMMENT, OptionField, PACKET_FLAGS, PacketNotes,
        SectionText,
    },
    trace_file::{Record, Step, TraceDecoder},
};

/// Reads any bytes as a capture file to its end. The result must be the same however the bytes are
/// divided into reads, and every packet must be the same when it is written to a file and read
/// again.
///
/// **Panics**: when one of these conditions fails.
pub fn file(data: &[u8]) {
    let mut decoder = TraceDecoder::new();
    let mut at = 0;
    loop {
        let rest = &data[at..];
        packets_are_as_by_steps(&decoder, rest);
        let shorter = decoder.clone().step(&rest[..rest.len() / 2]);
        let (taken, step) = decoder.step(rest);
        assert!(taken <= rest.len(), "a step takes what it was shown");
        if !matches!(shorter.1, Step::More(_)) {
            assert_eq!(
                shorter,
                (taken, step),
                "a step does not depend on what follows"
            );
        }
        match step {
            Step::Packet(record) => identity(&record),
            Step::Block(block) => describe(&block),
            Step::Damaged(damage) => assert!(!damage.to_string().is_empty()),
            Step::More(needed) => {
                assert!(needed > rest.len(), "more is asked for than was shown");
                return;
            }
            Step::Lost(damage) => {
                assert!(!damage.to_string().is_empty());
                return;
            }
        }
        assert!(taken > 0, "a step goes on");
        at += taken;
    }
}

/// Checks that [`TraceDecoder::packets`] gives the packets that single steps give, and no others.
fn packets_are_as_by_steps(decoder: &TraceDecoder, rest: &[u8]) {
    let mut by_steps = decoder.clone();
    let mut at = 0;
    let (taken, end) = decoder.packets(rest, &mut |record| {
        let (len, step) = by_steps.step(&rest[at..]);
        assert_eq!(step, Step::Packet(*record), "the same packets");
        at += len;
        // Only the first packets are compared: comparing all of them from every place of the file
        // would take quadratic time.
        if at < PACKETS_BYTES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    assert_eq!(taken, at, "the same bytes");
    // In pcapng files only steps give packets of the rarer kinds.
    if end.is_continue() && decoder.format_name() == Some("pcap") {
        let next = by_steps.step(&rest[at..]).1;
        assert!(!matches!(next, Step::Packet(_)), "none is left behind");
    }
}

fn describe(block: &Block<'_>) {
    let options = match block {
        Block::Section(section) => section.options,
        Block::Interface(interface) => interface.options,
        Block::Statistics(statistics) => statistics.options,
        Block::Pcap(_) | Block::Other { .. } => return,
    };
    for option in options.iter() {
        let _any = (option.text(), option.u32(), option.u64());
    }
}

/// Checks that a record is the same after it was written to either format and read again.
fn identity(record: &Record<'_>) {
    let stamp_ns = record.stamp_ns.unwrap_or(0);
    let mut out = Vec::new();
    Encoder.section(&mut out, &SectionText::default());
    let text = InterfaceText {
        link_type: record.link_type,
        ..InterfaceText::default()
    };
    Encoder.interface(&mut out, &text);
    let flags = record.options.find(PACKET_FLAGS);
    let notes = PacketNotes {
        flags: flags.as_ref().and_then(OptionField::u32),
        carried: record.options,
        ..PacketNotes::default()
    };
    let comments = |record: &Record<'_>| -> Vec<Vec<u8>> {
        let options = record.options.iter();
        let comments = options.filter(|option| option.code == OPTION_COMMENT);
        comments.map(|comment| comment.value.to_vec()).collect()
    };
    Encoder.packet(&mut out, 0, stamp_ns, record.wire_len, record.data, &notes);
    let again = last_packet(&out, &mut |again| {
        assert_eq!((again.stamp_ns, again.data), (Some(stamp_ns), record.data));
        assert_eq!(again.wire_len, record.wire_len);
        assert_eq!(again.link_type, record.link_type);
        let flags = again.options.find(PACKET_FLAGS);
        assert_eq!(flags.as_ref().and_then(OptionField::u32), notes.flags);
        assert_eq!(comments(again), comments(record));
    });
    assert!(again, "what was written is read");
    let seconds = stamp_ns / 1_000_000_000;
    if u32::try_from(seconds).is_ok() {
        out.clear();
        pcap::Header::new(record.link_type, 0).emit(&mut out);
        pcap::emit_record(&mut out, stamp_ns, record.wire_len, record.data);
        let again = last_packet(&out, &mut |again| {
            assert_eq!((again.stamp_ns, again.data), (Some(stamp_ns), record.data));
        });
        assert!(again, "what was written is read");
    }
}

fn last_packet(file: &[u8], check: &mut dyn FnMut(&Record<'_>)) -> bool {
    let mut decoder = TraceDecoder::new();
    let mut at = 0;
    let mut found = false;
    while at < file.len() {
        let (taken, step) = decoder.step(&file[at..]);
        match step {
            Step::Packet(record) => {
                check(&record);
                found = true;
            }
            Step::Block(_) => {}
            other => panic!("our own file: {other:?}"),
        }
        at += taken;
    }
    found
}

/// How many bytes are read both in a row and by steps.
const PACKETS_BYTES: usize = 256;
