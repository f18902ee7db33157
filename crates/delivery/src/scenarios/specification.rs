//! Checks that the tables and example bytes of `docs/src/protocol.md` agree with the code.

use std::fmt::Write as _;

use wire::{
    delivered::{DATA_BYTES_MAX, Frame},
    object::{
        Block, BlockHeader, Challenge, Done, DoneNumbers, ErrorCode, Hello, Invite, Message,
        ObjectId, PassEnd, Phase, Pos, Progress, Progressed, RangeList, Ranges, Refusal, Seals,
        StreamPhase, Welcome, Window, protect_frame,
    },
    pgm::{Mark, Profile},
};

use super::*;
use crate::{
    Key, ManifestLimits,
    control::{LinkProtection, Role},
    hash_bytes,
    proof::{Holding, Occasion},
};

const TEXT: &str = include_str!("../../../../docs/src/protocol.md");

const NONCE_R: [u8; 16] = [0x11; 16];
const NONCE_S: [u8; 16] = [0x22; 16];

fn list<'a>(scratch: &'a mut Vec<u8>, object: ObjectId, end: u64) -> RangeList<'a> {
    let mut ranges = (end > 0).then_some(0..end).into_iter();
    RangeList {
        pass: u32::from(object != ObjectId::MANIFEST && end > 0),
        object,
        is_last: object != ObjectId::CONTENT || end == 0,
        ranges: Ranges::encode(scratch, &mut ranges),
    }
}

fn manifest() -> Manifest {
    let mut entry = Entry::file("a", 5);
    entry.mode = 0o644;
    Manifest::build([0; 16], vec![entry], &ManifestLimits::default()).unwrap()
}

fn hello(name: &str, nonce: Option<[u8; 16]>) -> Message<'_> {
    Message::Hello(Hello {
        version_min: 1,
        version_max: 1,
        instance: 7,
        session_id: 42,
        name,
        nonce,
    })
}

/// Passes each message of the example to `take`, after the name of the end that sends it: `sender`
/// or `receiver`.
fn example(manifest: &Manifest, mut take: impl FnMut(&str, &Message<'_>)) {
    joining(manifest, &mut take);
    delivering(manifest, &mut take);
}

fn end(pass: u32) -> Message<'static> {
    let position = (pass == 1).then_some(101);
    Message::PassEnd(PassEnd { pass, position })
}

const fn whole(object: ObjectId, data: &[u8]) -> Message<'_> {
    let offset = 0;
    Message::Block(Block {
        object,
        offset,
        data,
    })
}

/// Hands `take` the first messages of the example, until the receiver has the manifest.
fn joining(manifest: &Manifest, take: &mut impl FnMut(&str, &Message<'_>)) {
    let (mut have, mut need) = (Vec::new(), Vec::new());
    let bytes = manifest.bytes();
    let len = bytes.len() as u64;
    take("receiver", &hello("r1", None));
    take(
        "sender",
        &Message::Welcome(Welcome {
            version: 1,
            slot: 0,
            manifest: manifest.id().0,
            session_id: 42,
            receiver_count: 1,
            report_interval_us: 200_000,
            report_sqns: 0,
            manifest_bytes: len,
            is_late: false,
            nonce: NONCE_S,
        }),
    );
    take("sender", &end(0));
    let lacking = list(&mut need, ObjectId::MANIFEST, len);
    take("receiver", &Message::Need(lacking));
    take("sender", &whole(ObjectId::MANIFEST, bytes));
    take("sender", &end(0));
    let nothing = list(&mut have, ObjectId::CONTENT, 0);
    take("receiver", &Message::Have(nothing));
}

/// Hands `take` the other messages of the example: those about content and proof.
fn delivering(manifest: &Manifest, take: &mut impl FnMut(&str, &Message<'_>)) {
    let (mut need, mut seals_need) = (Vec::new(), Vec::new());
    let hashes = MemoryContent::new(b"hello".to_vec()).hashes(manifest);
    let seal = hashes.seal(0);
    let occasion = Occasion {
        nonce: NONCE_S,
        session_id: 42,
        instance: 7,
        name: "r1",
    };
    let numbers = DoneNumbers {
        bytes: 5,
        time_ns: 1_000_000,
        ..DoneNumbers::default()
    };
    let holding = Holding::of(manifest, &hashes);
    let (root, proof) = (holding.root, holding.prove(&occasion));
    let (bytes, hash) = (32, hash_bytes(&seal));
    take("sender", &Message::Seals(Seals { bytes, hash }));
    take("sender", &end(1));
    take(
        "receiver",
        &Message::Need(list(&mut need, ObjectId::CONTENT, 5)),
    );
    take(
        "receiver",
        &Message::Need(list(&mut seals_need, ObjectId::SEALS, 32)),
    );
    take("sender", &whole(ObjectId::CONTENT, b"hello"));
    take("sender", &whole(ObjectId::SEALS, &seal));
    take("sender", &end(2));
    take("receiver", &Message::Complete { pass: 2 });
    take(
        "receiver",
        &Message::Done(Done {
            root,
            proof,
            numbers,
        }),
    );
    take("sender", &Message::Acknowledged);
    take("receiver", &Message::Bye);
}

fn show(text: &mut String, title: &str, bytes: &[u8]) {
    writeln!(text, "{title}").unwrap();
    for line in bytes.chunks(24) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "    {}", hex.join(" ")).unwrap();
    }
}

fn frame(message: &Message<'_>, link: Option<&mut LinkProtection>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    if let Some(link) = link {
        protect_frame(&mut bytes, 0, |header, body| link.seal(header, body));
    }
    bytes
}

/// Returns the text of the example as it must stand in `docs/src/protocol.md`.
fn written() -> String {
    let manifest = manifest();
    let mut text = String::from("```text\n");
    example(&manifest, |who, message| {
        let title = format!("{} ({who})", message.name());
        show(&mut text, &title, &frame(message, None));
    });
    let header = BlockHeader::data(ObjectId::CONTENT, 0).to_bytes();
    let block = [&header[..], b"hello"].concat();
    show(
        &mut text,
        "the content as one block in a data packet",
        &block,
    );
    text.push_str(concat!(
        "```\n\nThe greeting with the secret `secret`, r = 16 bytes 11, s = 16 bytes 22:",
        "\n\n```text\n",
    ));
    let key = Key::derive(b"secret", protection::portable);
    let mut sender = LinkProtection::new(&key, Role::Sender, 42, &NONCE_R, &NONCE_S);
    let mut receiver = LinkProtection::new(&key, Role::Receiver, 42, &NONCE_R, &NONCE_S);
    let greeting = hello("", Some(NONCE_R));
    show(&mut text, "HELLO (receiver)", &frame(&greeting, None));
    let challenge = Message::Challenge(Challenge { nonce: NONCE_S });
    show(&mut text, "CHALLENGE (sender)", &frame(&challenge, None));
    let greeting = hello("r1", Some(NONCE_R));
    let greeting = frame(&greeting, Some(&mut receiver));
    show(&mut text, "HELLO (receiver), protected", &greeting);
    let bye = frame(&Message::Bye, Some(&mut sender));
    show(&mut text, "BYE (sender), protected", &bye);
    text.push_str("```\n");
    text
}

#[test]
fn the_example_is_what_the_code_writes() {
    let written = written();
    let (_, rest) = TEXT
        .split_once("everything on its connection.\n\n")
        .unwrap();
    let (example, _) = rest.split_once("\n## ").unwrap();
    assert!(example == written, "the example should be:\n\n{written}");
}

#[test]
fn the_table_of_messages_has_every_kind() {
    let mut scratch = Vec::new();
    let text = "";
    let mut all = vec![
        Message::Challenge(Challenge { nonce: NONCE_S }),
        Message::Pos(Pos::default()),
        Message::Progress(Progress {
            phase: Phase::Done,
            numbers: Progressed::default(),
        }),
        Message::Refused {
            reason: Refusal::Over,
            text,
        },
        Message::Error {
            code: ErrorCode::Io,
            text,
        },
        Message::Have(list(&mut scratch, ObjectId::CONTENT, 1)),
        Message::Ask,
        Message::Name { name: "ticks" },
        Message::Invite(Invite {
            session_id: 42,
            required: 0,
            receiver_count: 1,
        }),
        Message::Wait,
        Message::Window(Window {
            trail: 1,
            end: 2,
            phase: StreamPhase::Open,
        }),
    ];
    let mut rows: Vec<(u16, &str)> = Vec::new();
    let mut note = |message: &Message<'_>| {
        let bytes = frame(message, None);
        rows.push((u16::from_be_bytes([bytes[4], bytes[5]]), message.name()));
    };
    all.drain(..).for_each(|message| note(&message));
    example(&manifest(), |_, message| note(message));
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(
        rows.iter().map(|row| row.0).collect::<Vec<_>>(),
        (1..=21).collect::<Vec<_>>()
    );
    for (kind, name) in rows {
        assert!(
            TEXT.contains(&format!("| {kind} | {name} |")),
            "{kind} {name}"
        );
    }
    // If a message of kind 22 were added, the table would lack its row.
    let next = Message::parse(22, 0, &[]);
    assert!(matches!(next, Ok(Message::Unknown { .. })));
}

#[test]
fn the_tables_of_codes_have_every_code() {
    let table = |heading: &str| {
        let start = TEXT.find(&format!("| number | {heading} |")).unwrap();
        let rows = TEXT[start..].lines().skip(2);
        rows.take_while(|line| line.starts_with('|'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let row = |number: usize, text: String| format!("| {number} | {text} |");
    let numbers = 1..;
    let errors = numbers.clone().map(|n| (n, ErrorCode::from_wire(n as u16)));
    let errors = errors.take_while(|(_, code)| !matches!(code, ErrorCode::Other(_)));
    let errors: Vec<_> = errors.map(|(n, code)| row(n, code.to_string())).collect();
    assert_eq!(table("error"), errors);
    let refusals = numbers.clone().map(|n| (n, Refusal::from_wire(n as u16)));
    let refusals = refusals.take_while(|(_, code)| !matches!(code, Refusal::Other(_)));
    let refusals: Vec<_> = refusals.map(|(n, code)| row(n, code.to_string())).collect();
    assert_eq!(table("refusal"), refusals);
    let phases = numbers.map(|n| (n, Phase::from_wire(n as u8)));
    let phases = phases.take_while(|(_, phase)| !matches!(phase, Phase::Other(_)));
    let phases: Vec<_> = phases.map(|(n, phase)| row(n, phase.to_string())).collect();
    assert_eq!(table("phase"), phases);
}

#[test]
fn the_sender_learns_the_round_trip_from_the_times_that_reports_repeat() {
    let mut world = World::new(8, 1, tree());
    assert_eq!(world.sender.round_trip(), None);
    let mut mark = Mark::new(Profile::Objects, SESSION);
    mark.tx_time_us = world.now.as_nanos() / 1000;
    world.nodes[0].receiver.mark(world.now, &mark);
    let is_known = |world: &World| world.sender.round_trip().is_some();
    assert!(world.run_until(Duration::from_secs(60), is_known));
    let round_trip = world.sender.round_trip().unwrap();
    assert!(round_trip < Duration::from_millis(50), "{round_trip:?}");
}

#[test]
fn the_section_of_delivered_streams_is_what_the_code_writes() {
    let (_, section) = TEXT.split_once("## 15. Delivered streams").unwrap();
    let (total, digest) = (5, hash_bytes(b"hello"));
    let data = Frame::Data { bytes: 1 };
    let confirm = Frame::Confirm { total };
    let end = Frame::End { total, digest };
    let done = Frame::Done { total, digest };
    let bytes_of = |frame: Frame| {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        bytes
    };
    for (name, frame) in [
        ("DATA", data),
        ("CONFIRM", confirm),
        ("END", end),
        ("DONE", done),
    ] {
        let row = format!("| {} | {name} |", bytes_of(frame)[0]);
        assert!(section.contains(&row), "{row}");
    }
    assert_eq!(DATA_BYTES_MAX, 262_144);
    let mut example = String::from("```text\n");
    show(&mut example, "END", &bytes_of(end));
    show(&mut example, "DONE", &bytes_of(done));
    assert!(
        section.contains(&example),
        "the example should be:\n\n{example}"
    );
}
