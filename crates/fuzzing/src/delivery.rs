//! The state machines of `delivery`, each with a peer that sends arbitrary messages.
//!
//! Each body drives a real machine with operations read from the input: pieces of a control
//! connection, blocks, time. It panics when an invariant of the machine does not hold.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use base::{Instant, LinkEvent, LinkId};
use delivery::{
    Audience, AudienceConfig, Entry, Key, LinkCommand, Manifest, ManifestLimits, Reporter,
    ReporterConfig, ReporterEvent, StreamState, TransferOutcome, TransferReceiver,
    TransferReceiverConfig, TransferSender, TransferSenderConfig,
    memory::{MemoryContent, MemoryStore},
};
use wire::{
    object::{BlockHeader, Hello, Message, ObjectId, VERSION, Welcome},
    pgm::{Mark, Profile},
};

const SESSION: u64 = 7;
/// The seed of the nonces that receivers answer with their proofs.
const SEED: u64 = 0;

/// Reads any bytes as a manifest. In an accepted manifest no path leaves the tree, the slabs fill
/// the content without gaps, each hard link leads to an earlier entry, and the ID is that of the
/// bytes.
///
/// **Panics**: when one of these conditions fails.
pub fn manifest(data: &[u8]) {
    let limits = ManifestLimits {
        slabs_max: 1 << 16,
        ..ManifestLimits::default()
    };
    let Ok(manifest) = Manifest::from_bytes(data.to_vec(), &limits) else {
        return;
    };
    for entry in manifest.entries() {
        let mut names = entry.path.split(|&byte| byte == b'/');
        assert!(names.all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0)));
        assert_ne!(entry.target.first(), Some(&b'/'));
    }
    let mut at = 0;
    for index in 0..manifest.slab_count() {
        let slab = manifest.slab(index);
        assert_eq!(slab.start, at);
        at += u64::from(slab.len);
    }
    assert_eq!(at, manifest.content_bytes());
    for link in manifest.hard_links() {
        let (file, entry) = (&manifest.files()[link.file as usize], link.entry as usize);
        assert!(file.entry < link.entry && manifest.path_of(file) == manifest.entry(entry).target);
    }
    assert_eq!(Manifest::id_of(data), manifest.id());
}

/// Drives an audience whose receivers send arbitrary messages.
///
/// **Panics**: when a hold is more than one packet beyond the last packet sent, or when an
/// invariant breaks.
pub fn audience(data: &[u8]) {
    let mut audience = Audience::new(AudienceConfig::new(SESSION));
    let lead = (1 << 32) - 5;
    for operation in Operations::new(data) {
        audience.set_lead(lead);
        match operation {
            Operation::Link(now, link, event, bytes) => {
                audience.handle_link(now, link, event, bytes);
            }
            Operation::Greet(now, link, name) => {
                audience.handle_link(now, link, LinkEvent::Data, &greeting(name));
            }
            Operation::Time(now) | Operation::Block(now, _) => audience.handle_timeout(now),
        }
        assert!(audience.hold().is_none_or(|hold| hold <= lead + 1));
        drain(|| audience.poll_link().map(taken));
    }
}

/// Drives a transfer sender whose receivers send arbitrary messages.
///
/// **Panics**: when the sender calls a transfer proven, takes in a receiver without the key, or
/// when an invariant breaks.
pub fn sender(data: &[u8]) {
    let keyless = TransferSenderConfig::new(SESSION, 1, SEED);
    let outcome = sender_with(keyless, data);
    // The proof is a hash of random content, which the input cannot have guessed.
    assert!(!outcome.is_proven());
    let mut keyed = TransferSenderConfig::new(SESSION, 1, SEED);
    keyed.key = Some(Key::derive(b"nobody has it", protection::portable));
    let outcome = sender_with(keyed, data);
    assert!(
        outcome.receivers.is_empty(),
        "nobody is taken in without the key"
    );
}

fn sender_with(config: TransferSenderConfig, data: &[u8]) -> TransferOutcome {
    let entries = vec![Entry::file("a", 3000), Entry::directory("d")];
    let (manifest, content) =
        MemoryContent::generate(entries, [0; 16], 1).expect("it is a manifest");
    let mut sender = TransferSender::new(config, manifest, content, Instant::ZERO);
    let mut out = [0; 1000];
    let mut sqn = 0;
    for operation in Operations::new(data) {
        let now = operation.now();
        match operation {
            Operation::Link(now, link, event, bytes) => sender.handle_link(now, link, event, bytes),
            Operation::Greet(now, link, name) => {
                sender.handle_link(now, link, LinkEvent::Data, &greeting(name));
            }
            Operation::Time(now) => sender.handle_timeout(now),
            Operation::Block(now, _) => sender.pass_drained(now),
        }
        while let Some(block) = sender.next_block(out.len()) {
            if !sender.fill(now, &block, 0, &mut out[..block.len]) {
                break;
            }
            sqn += 1;
            sender.blocks_committed(now, &block, 1, sqn);
        }
        drain(|| sender.poll_link().map(taken));
    }
    sender.outcome()
}

/// Drives a transfer receiver whose sender sends arbitrary messages after a plausible beginning.
///
/// **Panics**: when the receiver commits content that was not sent, believes a sender without the
/// key, or when an invariant breaks.
pub fn receiver(data: &[u8]) {
    receiver_with(TransferReceiverConfig::new("r", 1), data);
    let mut keyed = TransferReceiverConfig::new("r", 1);
    keyed.key = Some(Key::derive(b"nobody has it", protection::portable));
    let receiver = receiver_with(keyed, data);
    assert_eq!(
        receiver.manifest_id(),
        None,
        "nobody is believed without the key"
    );
}

fn receiver_with(config: TransferReceiverConfig, data: &[u8]) -> TransferReceiver<MemoryStore> {
    let entries = vec![Entry::file("a", 300), Entry::file("b", 5)];
    let (manifest, content) =
        MemoryContent::generate(entries, [0; 16], 1).expect("it is a manifest");
    let mut receiver = TransferReceiver::new(config, MemoryStore::default(), Instant::ZERO);
    receiver.dial(
        Instant::ZERO,
        SocketAddr::from(([10, 0, 0, 1], 1)),
        SESSION,
        0,
    );
    receiver.handle_timeout(Instant::ZERO);
    let opened = drain(|| receiver.poll_link().map(taken));
    receiver.link_opened(opened.expect("it dials"), LINK);
    receiver.handle_link(Instant::ZERO, LINK, LinkEvent::Opened, &[]);
    receiver.handle_link(Instant::ZERO, LINK, LinkEvent::Data, &welcome(&manifest));
    for operation in Operations::new(data) {
        match operation {
            Operation::Link(now, _, LinkEvent::Data, bytes) => {
                receiver.handle_link(now, LINK, LinkEvent::Data, bytes);
            }
            Operation::Link(now, ..) => {
                // The sender sometimes sends the true manifest, so that later steps are reached.
                let header = BlockHeader::data(ObjectId::MANIFEST, 0).to_bytes();
                receiver.handle_block(now, &[&header[..], manifest.bytes()].concat());
            }
            Operation::Greet(now, link, _) => {
                let header = BlockHeader::data(ObjectId::CONTENT, 0).to_bytes();
                receiver.handle_block(now, &[&header[..], content.bytes()].concat());
                receiver.observe(now, &StreamState::at(link.0.into(), 9));
            }
            Operation::Time(now) => receiver.handle_timeout(now),
            Operation::Block(now, bytes) => {
                receiver.handle_block(now, bytes);
            }
        }
        drain(|| receiver.poll_link().map(taken));
    }
    assert!(
        receiver
            .store()
            .and_then(MemoryStore::committed)
            .is_none_or(|bytes| bytes == content.bytes())
    );
    receiver
}

/// Drives a reporter whose sender sends arbitrary messages, before and after a welcome.
///
/// **Panics**: when it reports without a welcome, dials a sender that has sent it away, or when an
/// invariant breaks.
pub fn reporter(data: &[u8]) {
    let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
    let (session, source) = (0, IpAddr::from([10, 0, 0, 1]));
    let mut mark = Mark::new(Profile::Messages, SESSION);
    mark.control_port = 7501;
    let entries = vec![Entry::file("a", 1)];
    let (manifest, _) = MemoryContent::generate(entries, [0; 16], 1).expect("it is a manifest");
    let truth = welcome(&manifest);
    let mut link = LINK;
    let (mut is_welcome, mut is_sent_away) = (false, false);
    for operation in Operations::new(data) {
        let now = operation.now();
        reporter.mark(now, session, source, &mark);
        reporter.handle_timeout(now);
        if let Some(key) = drain(|| reporter.poll_link().map(taken)) {
            assert!(!is_sent_away, "it dials a sender that does not want it");
            link = LinkId(link.0 + 1);
            reporter.link_opened(key, link);
            reporter.handle_link(now, link, LinkEvent::Opened, &[]);
        }
        match operation {
            Operation::Link(_, _, LinkEvent::Accepted { .. }, _) => {
                // The sender sometimes answers correctly, so that later steps are reached.
                reporter.handle_link(now, link, LinkEvent::Data, &truth);
            }
            Operation::Link(_, _, event, bytes) => reporter.handle_link(now, link, event, bytes),
            Operation::Greet(_, _, number) => {
                reporter.observe(now, session, &StreamState::at(number.into(), 99));
            }
            Operation::Time(_) => reporter.handle_timeout(now),
            Operation::Block(..) => {
                reporter.session_over(now, session);
                (is_welcome, is_sent_away) = (false, false);
            }
        }
        while let Some(event) = reporter.pop_event() {
            match event {
                ReporterEvent::Joined { .. } => is_welcome = true,
                // The reporter asks again, until the receiver that had its name has gone.
                ReporterEvent::NameTaken { .. }
                | ReporterEvent::Named { .. }
                | ReporterEvent::Window { .. } => {}
                ReporterEvent::Refused { .. }
                | ReporterEvent::Dropped { .. }
                | ReporterEvent::Closed { .. } => is_sent_away = true,
            }
        }
        assert!(is_welcome || !reporter.is_reporting(session));
    }
}

const LINK: LinkId = LinkId(1);

fn greeting(name: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message::Hello(Hello {
        version_min: VERSION,
        version_max: VERSION,
        instance: 1,
        session_id: SESSION,
        name: ["a", "b", "c", "d"][usize::from(name % 4)],
        nonce: None,
    })
    .emit(&mut bytes);
    bytes
}

fn welcome(manifest: &Arc<Manifest>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message::Welcome(Welcome {
        version: VERSION,
        slot: 0,
        manifest: manifest.id().0,
        session_id: SESSION,
        receiver_count: 1,
        report_interval_us: 1000,
        report_sqns: 1,
        manifest_bytes: manifest.bytes().len() as u64,
        is_late: false,
        nonce: [0; 16],
    })
    .emit(&mut bytes);
    bytes
}

/// The kind of a command that a machine gave.
enum Taken {
    Open(u32),
    Other,
}

fn taken(command: LinkCommand<'_>) -> Taken {
    match command {
        LinkCommand::Open { key, .. } => Taken::Open(key),
        LinkCommand::Send { .. } | LinkCommand::Pause { .. } | LinkCommand::Close { .. } => {
            Taken::Other
        }
    }
}

/// Looks at a machine's commands, and gives the key of the connection that it asks for. A send
/// command stays in its queue, as with a peer that does not read.
fn drain(mut poll: impl FnMut() -> Option<Taken>) -> Option<u32> {
    let mut asked = None;
    for _ in 0..8 {
        match poll() {
            Some(Taken::Open(key)) => asked = Some(key),
            Some(Taken::Other) => {}
            None => break,
        }
    }
    asked
}

/// One step of an operation list.
enum Operation<'a> {
    Link(Instant, LinkId, LinkEvent, &'a [u8]),
    Greet(Instant, LinkId, u8),
    Time(Instant),
    Block(Instant, &'a [u8]),
}

impl Operation<'_> {
    const fn now(&self) -> Instant {
        match *self {
            Self::Link(now, ..) | Self::Greet(now, ..) | Self::Time(now) | Self::Block(now, _) => {
                now
            }
        }
    }
}

/// Reads operations from bytes: a kind, a parameter, a length, and then as many bytes.
struct Operations<'a> {
    rest: &'a [u8],
    now: Instant,
}

impl<'a> Operations<'a> {
    const fn new(data: &'a [u8]) -> Self {
        Self {
            rest: data,
            now: Instant::ZERO,
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        let (&[kind, parameter, len], rest) = self.rest.split_first_chunk::<3>()?;
        let len = usize::from(len).min(rest.len());
        let link = LinkId(u32::from(parameter % 4));
        let peer = SocketAddr::from(([10, 0, 0, 9], 9));
        let (bytes, rest, now) = match kind % 8 {
            // Only these operations have bytes of their own.
            3 | 4 | 7 => (&rest[..len], &rest[len..], self.now),
            6 => (
                &[][..],
                rest,
                self.now + Duration::from_millis(u64::from(len as u8) * 50),
            ),
            _ => (&[][..], rest, self.now),
        };
        (self.rest, self.now) = (rest, now);
        Some(match kind % 8 {
            0 => Operation::Link(now, link, LinkEvent::Accepted { peer }, bytes),
            1 => Operation::Link(now, link, LinkEvent::Writable, bytes),
            2 => Operation::Link(now, link, LinkEvent::Closed, bytes),
            3 | 4 => Operation::Link(now, link, LinkEvent::Data, bytes),
            5 => Operation::Greet(now, link, parameter / 4),
            6 => Operation::Time(now),
            _ => Operation::Block(now, bytes),
        })
    }
}
