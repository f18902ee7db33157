//! The control conversation: each message, and whole talks.

use delivery::{Attribute, Entry, Manifest, ManifestLimits, Owner, OwnerNames};
use wire::object::{
    Block, BlockHeader, Done, DoneNumbers, ErrorCode, Hello, Message, ObjectId, PassEnd, Phase,
    Pos, Progress, Progressed, RangeList, Ranges, Refusal, Seals, StreamPhase, VERSION, Welcome,
    Window,
};

use super::write;

pub(super) fn write_all() {
    let frames = frames();
    let manifest = manifest().bytes().to_vec();
    let whole: Vec<u8> = frames.iter().flat_map(|(_, frame)| frame.clone()).collect();
    for (name, frame) in &frames {
        write("object_stream", name, frame);
        let session = [&[0, 0, 0, 5, 0, 0][..], &operation(frame), &[6, 0, 20]].concat();
        write("delivery_audience", name, &session);
        write("delivery_sender", name, &session);
        // The manifest, then the message, then content and time.
        let session = [&[1, 0, 0][..], &operation(frame), &[5, 0, 0, 6, 0, 20]].concat();
        write("delivery_receiver", name, &session);
        // What it sends once it is welcome, and how its own time and position go on.
        let session = [&[1, 0, 0][..], &operation(frame), &[7, 0, 0, 6, 0, 20]].concat();
        write("delivery_reporter", name, &session);
    }
    write("object_stream", "all", &whole);
    write("object_manifest", "tree", &manifest);
    write("delivery_manifest", "tree", &manifest);
    let linked = linked().bytes().to_vec();
    write("object_manifest", "linked", &linked);
    write("delivery_manifest", "linked", &linked);
    let owned = owned().bytes().to_vec();
    write("object_manifest", "owned", &owned);
    write("delivery_manifest", "owned", &owned);
    let attributed = attributed().bytes().to_vec();
    write("object_manifest", "attributed", &attributed);
    write("delivery_manifest", "attributed", &attributed);
    let block = BlockHeader::data(ObjectId::CONTENT, 1 << 33).to_bytes();
    write("object_block", "content", &[&block[..], b"bytes"].concat());
    let order = [
        "hello", "have", "need", "complete", "progress", "done", "bye",
    ];
    let talk = order.iter().map(|name| {
        let (_, frame) = frames
            .iter()
            .find(|(known, _)| known == name)
            .expect("it is one");
        [&operation(frame)[..], &[6, 0, 4, 7, 0, 0]].concat()
    });
    let talk = [&[0, 0, 0, 5, 0, 0][..], &talk.collect::<Vec<_>>().concat()].concat();
    write("delivery_sender", "transfer", &talk);
    write("delivery_audience", "session", &talk);
    let order = ["acknowledged", "welcome", "error", "bye"].iter();
    let talk = order.flat_map(|name| {
        let (_, frame) = frames
            .iter()
            .find(|(known, _)| known == name)
            .expect("it is one");
        [&operation(frame)[..], &[1, 0, 0, 7, 0, 0, 6, 0, 4]].concat()
    });
    write("delivery_reporter", "session", &talk.collect::<Vec<_>>());
}

/// Bytes on connection 0, as the machines' fuzz bodies read them.
fn operation(frame: &[u8]) -> Vec<u8> {
    let len = u8::try_from(frame.len()).unwrap_or(u8::MAX);
    [&[3, 0, len], frame].concat()
}

/// Version 2.
fn linked() -> Manifest {
    let entries = vec![
        Entry::directory("d"),
        Entry::file("d/one", 7),
        Entry::hard_link("d/two", "d/one"),
        Entry::hard_link("three", "d/one"),
    ];
    Manifest::build([0; 16], entries, &ManifestLimits::default()).expect("it is a manifest")
}

/// Version 2, with both sections.
fn attributed() -> Manifest {
    let attribute = |name: &str, value: &str| Attribute {
        name: name.into(),
        value: value.into(),
    };
    let mut entries = vec![
        Entry::directory("d"),
        Entry::file("d/one", 7),
        Entry::symlink("d/to", "one"),
        Entry::file("d/two", 7),
    ];
    for entry in &mut entries {
        entry.owner = Some(Owner { user: 0, group: 0 });
        entry.attributes = Some(Vec::new());
    }
    entries[1].attributes = Some(vec![attribute("user.a", "1"), attribute("user.b", "")]);
    entries[3].attributes = Some(vec![attribute("security.x", "label")]);
    let limits = ManifestLimits::default();
    Manifest::build_with(0, &OwnerNames::default(), [0; 16], entries, &limits)
        .expect("it is a manifest")
}

/// Version 2, with a section.
fn owned() -> Manifest {
    let mut entries = vec![Entry::directory("d"), Entry::file("d/one", 7)];
    for (entry, user) in entries.iter_mut().zip([0, 1000]) {
        entry.owner = Some(Owner { user, group: 0 });
    }
    entries.push(Entry::hard_link("two", "d/one"));
    let mut names = OwnerNames::default();
    names.users.insert(1000, b"ann".to_vec());
    let limits = ManifestLimits::default();
    Manifest::build_with(0, &names, [0; 16], entries, &limits).expect("it is a manifest")
}

fn manifest() -> Manifest {
    let entries = vec![
        Entry::file("a", 300),
        Entry::directory("d"),
        Entry::symlink("d/l", "../a"),
        Entry::file("d/e", 0),
    ];
    Manifest::build([0; 16], entries, &ManifestLimits::default()).expect("it is a manifest")
}

/// One of each message, by name.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let manifest = manifest();
    let mut scratch = Vec::new();
    let ranges = Ranges::encode(&mut scratch, &mut [0..100, 200..300].into_iter());
    let list = RangeList {
        pass: 1,
        object: ObjectId::CONTENT,
        is_last: true,
        ranges,
    };
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        instance: 1,
        session_id: 7,
        name: "receiver",
        nonce: None,
    };
    let welcome = Welcome {
        version: VERSION,
        slot: 1,
        manifest: manifest.id().0,
        session_id: 7,
        receiver_count: 3,
        report_interval_us: 50_000,
        report_sqns: 1000,
        manifest_bytes: manifest.bytes().len() as u64,
        is_late: true,
        nonce: [3; 16],
    };
    let block = Block {
        object: ObjectId::CONTENT,
        offset: 9,
        data: b"data",
    };
    let progress = Progress {
        phase: Phase::Receiving,
        numbers: Progressed::default(),
    };
    let end = PassEnd {
        pass: 1,
        position: Some(9),
    };
    let messages = [
        ("hello", Message::Hello(hello)),
        ("welcome", Message::Welcome(welcome)),
        ("refused", refused()),
        ("have", Message::Have(list)),
        ("need", Message::Need(list)),
        ("pass_end", Message::PassEnd(end)),
        ("complete", Message::Complete { pass: 1 }),
        ("seals", seals()),
        ("block", Message::Block(block)),
        ("pos", Message::Pos(Pos::default())),
        ("progress", Message::Progress(progress)),
        ("done", done()),
        ("acknowledged", Message::Acknowledged),
        ("ask", Message::Ask),
        ("name", Message::Name { name: "ticks" }),
        ("window", window()),
        ("error", error()),
        ("bye", Message::Bye),
    ];
    let emit = |(name, message): (&'static str, Message<'_>)| {
        let mut frame = Vec::new();
        message.emit(&mut frame);
        (name, frame)
    };
    messages.into_iter().map(emit).collect()
}

fn refused() -> Message<'static> {
    Message::Refused {
        reason: Refusal::Full,
        text: "full",
    }
}

fn seals() -> Message<'static> {
    Message::Seals(Seals {
        bytes: 32,
        hash: [2; 32],
    })
}

fn window() -> Message<'static> {
    Message::Window(Window {
        trail: 5,
        end: 10,
        phase: StreamPhase::Ended,
    })
}

fn done() -> Message<'static> {
    Message::Done(Done {
        root: [1; 32],
        proof: [4; 32],
        numbers: DoneNumbers::default(),
    })
}

fn error() -> Message<'static> {
    Message::Error {
        code: ErrorCode::DiskFull,
        text: "full",
    }
}
