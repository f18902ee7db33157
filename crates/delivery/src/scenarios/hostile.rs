//! Liars: forged manifests, blocks and messages. A liar can stop only its own transfer.

use base::{LinkEvent, LinkId};
use wire::object::{
    BLOCK_DATA_MAX, Block, BlockHeader, EntryKind, EntryRef, ErrorCode, Hello, ManifestHeader,
    ManifestRef, Message, Mtime, ObjectId, Phase, RangeList, Ranges, Refusal, Seals, Sections,
    VERSION, Welcome,
};

use super::*;
use crate::{LinkCommand, TransferReceiverConfig, fabric::over_ipv4_and_ipv6, hash_bytes};

const LINK: LinkId = LinkId(9);

fn frame(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn block(object: ObjectId, offset: u64, data: &[u8]) -> Vec<u8> {
    [&BlockHeader::data(object, offset).to_bytes()[..], data].concat()
}

fn now() -> Instant {
    Instant::from_nanos(5_000_000_000)
}

/// Makes a receiver that a sender has admitted with this manifest. The sender may lie.
fn welcomed(manifest: &[u8]) -> TransferReceiver<MemoryStore> {
    let config = TransferReceiverConfig::new("r", 1);
    let mut receiver = TransferReceiver::new(config, MemoryStore::default(), now());
    receiver.dial(now(), Fabric::address(0), SESSION, 0);
    greet(&mut receiver, LINK);
    receiver.handle_link(now(), LINK, LinkEvent::Data, &welcome(manifest, SESSION));
    receiver
}

/// Lets a receiver dial and greet.
fn greet(receiver: &mut TransferReceiver<MemoryStore>, link: LinkId) {
    greet_at(receiver, now(), link);
}

fn greet_at(receiver: &mut TransferReceiver<MemoryStore>, now: Instant, link: LinkId) {
    receiver.handle_timeout(now);
    let key = loop {
        match receiver.poll_link() {
            Some(LinkCommand::Open { key, .. }) => break key,
            Some(LinkCommand::Close { .. } | LinkCommand::Pause { .. }) => {}
            other => panic!("it does not dial: {other:?}"),
        }
    };
    receiver.link_opened(key, link);
    receiver.handle_link(now, link, LinkEvent::Opened, &[]);
}

fn welcome(manifest: &[u8], session_id: u64) -> Vec<u8> {
    let id = Manifest::id_of(manifest).0;
    frame(&offer(id, session_id, manifest.len() as u64))
}

fn offer(manifest: [u8; 16], session_id: u64, manifest_bytes: u64) -> Message<'static> {
    Message::Welcome(Welcome {
        version: VERSION,
        slot: 0,
        manifest,
        session_id,
        receiver_count: 1,
        report_interval_us: 0,
        report_sqns: 0,
        manifest_bytes,
        is_late: false,
        nonce: [0; 16],
    })
}

fn failure(receiver: &mut TransferReceiver<MemoryStore>) -> Option<(ErrorCode, String)> {
    std::iter::from_fn(|| receiver.pop_event()).find_map(|event| match event {
        TransferReceiverEvent::Failed { code, text } => Some((code, text)),
        _ => None,
    })
}

#[test]
fn a_sender_that_does_not_take_it_in_does_not_end_the_wait_for_another() {
    over_ipv4_and_ipv6(|| {
        let text = "not here";
        let words = [
            Some(Message::Refused {
                reason: Refusal::Over,
                text,
            }),
            Some(Message::Refused {
                reason: Refusal::Full,
                text,
            }),
            Some(Message::Refused {
                reason: Refusal::WrongSession,
                text,
            }),
            Some(Message::Refused {
                reason: Refusal::Version,
                text,
            }),
            Some(Message::Refused {
                reason: Refusal::KeyRequired,
                text,
            }),
            Some(Message::Refused {
                reason: Refusal::Other(99),
                text,
            }),
            Some(offer([7; 16], 1, 0)),
            Some(offer([7; 16], 1, 1 << 40)),
            Some(Message::Error {
                code: ErrorCode::Cancelled,
                text,
            }),
            Some(Message::Bye),
            None,
        ];
        let (manifest, content) =
            MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
        let (first, second) = (Fabric::address(1), Fabric::address(2));
        for word in words {
            let config = TransferReceiverConfig::new("r", 1);
            let mut receiver = TransferReceiver::new(config, MemoryStore::default(), now());
            receiver.dial(now(), first, 1, 0);
            greet(&mut receiver, LINK);
            receiver.observe(now(), &StreamState::at(7, 7));
            receiver.session_over(now());
            let later = now() + Duration::from_secs(30);
            match &word {
                Some(word) => receiver.handle_link(later, LINK, LinkEvent::Data, &frame(word)),
                None => receiver.handle_timeout(later),
            }
            assert_eq!((receiver.session(), failure(&mut receiver)), (None, None));
            assert!(!receiver.is_over() && receiver.next_timeout().is_none());
            // The same session number from another address belongs to another sender.
            receiver.dial(later, second, 1, 0);
            assert_eq!(receiver.session(), Some((second, 1)));
            let link = LinkId(10);
            greet_at(&mut receiver, later, link);
            receiver.handle_link(later, LINK, LinkEvent::Closed, &[]);
            receiver.handle_link(later, link, LinkEvent::Data, &welcome(manifest.bytes(), 1));
            receiver.handle_block(later, &block(ObjectId::MANIFEST, 0, manifest.bytes()));
            receiver.handle_block(later, &block(ObjectId::CONTENT, 0, content.bytes()));
            assert_eq!(receiver.progress().numbers.held, 9, "{word:?}");
            assert_eq!(receiver.counters().senders_passed_over, 1);
        }
    });
}

#[test]
fn a_sender_that_nobody_named_is_not_told_what_is_on_this_host() {
    let (manifest, _) = MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let secret = "cannot write /srv/in/a: it exists already";
    for is_discreet in [false, true] {
        let mut config = TransferReceiverConfig::new("r", 1);
        config.is_discreet = is_discreet;
        let mut receiver = TransferReceiver::prospect(config, now());
        receiver.dial(now(), Fabric::address(0), SESSION, 0);
        greet(&mut receiver, LINK);
        while let Some(LinkCommand::Send { link, bytes }) = receiver.poll_link() {
            let len = bytes.len();
            receiver.link_sent(link, len);
        }
        let welcome = welcome(manifest.bytes(), SESSION);
        receiver.handle_link(now(), LINK, LinkEvent::Data, &welcome);
        receiver.decline(now(), ErrorCode::Exists, secret);
        let mut said = Vec::new();
        while let Some(command) = receiver.poll_link() {
            if let LinkCommand::Send { link, bytes } = command {
                said.extend_from_slice(bytes);
                let len = bytes.len();
                receiver.link_sent(link, len);
            }
        }
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.contains("/srv/in"), !is_discreet, "{said}");
        assert_eq!(said.contains("exist"), !is_discreet, "{said}");
        assert_eq!(said.contains("its own report"), is_discreet, "{said}");
        // The receiver's own user is told the whole reason.
        let (code, text) = failure(&mut receiver).unwrap();
        assert_eq!((code, text.as_str()), (ErrorCode::Exists, secret));
    }
}

#[test]
fn once_taken_in_a_refusal_is_the_end() {
    let (manifest, _) = MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let mut receiver = welcomed(manifest.bytes());
    let refused = frame(&Message::Refused {
        reason: Refusal::Full,
        text: "full",
    });
    receiver.handle_link(now(), LINK, LinkEvent::Data, &refused);
    assert_eq!(failure(&mut receiver).unwrap().0, ErrorCode::Limit);
}

/// Returns messages that may come while a receiver puts its files in place. For each, says by how
/// much it raises the counters `given_up` and `violations`.
fn words_at_the_end() -> Vec<(Vec<u8>, [u64; 2])> {
    let hash = hash_bytes(&[5; 32]);
    let text = "no more";
    let refused = |reason| frame(&Message::Refused { reason, text });
    let error = |code| frame(&Message::Error { code, text });
    let (nothing, gone, broken) = ([0, 0], [1, 0], [0, 1]);
    vec![
        (frame(&Message::Seals(Seals { bytes: 64, hash })), nothing),
        (frame(&Message::Acknowledged), nothing),
        (refused(Refusal::Full), gone),
        (refused(Refusal::Over), gone),
        (refused(Refusal::DuplicateName), nothing),
        (refused(Refusal::WrongSession), nothing),
        (error(ErrorCode::TimedOut), gone),
        (error(ErrorCode::Cancelled), gone),
        (frame(&Message::Bye), gone),
        (welcome(other_manifest().bytes(), SESSION), broken),
        (vec![255; 64], broken),
    ]
}

/// Returns the seals of this content, and the message by which a sender announces them.
fn seals_of(manifest: &Manifest, content: &MemoryContent) -> (Vec<u8>, Vec<u8>) {
    let hashes = content.hashes(manifest);
    let bytes = manifest.seals_bytes();
    let mut seals = vec![0; usize::try_from(bytes).unwrap()];
    hashes.copy_seals(0, &mut seals);
    let hash = hashes.seals_hash();
    (seals, frame(&Message::Seals(Seals { bytes, hash })))
}

fn other_manifest() -> Arc<Manifest> {
    let files = vec![Entry::file("b", 8)];
    MemoryContent::generate(files, [0; 16], 2).unwrap().0
}

/// Makes a receiver that is putting a file of nine bytes in place, and whose disk hangs meanwhile.
fn putting_in_place() -> TransferReceiver<MemoryStore> {
    let (manifest, content) =
        MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let (seal, seals) = seals_of(&manifest, &content);
    let mut receiver = welcomed(manifest.bytes());
    receiver.store_mut().unwrap().faults.commit_hangs = true;
    receiver.handle_block(now(), &block(ObjectId::MANIFEST, 0, manifest.bytes()));
    receiver.handle_block(now(), &block(ObjectId::CONTENT, 0, content.bytes()));
    receiver.handle_link(now(), LINK, LinkEvent::Data, &seals);
    receiver.handle_block(now(), &block(ObjectId::SEALS, 0, &seal));
    receiver.handle_timeout(now());
    assert_eq!(receiver.progress().phase, Phase::Committing);
    receiver
}

/// Checks that the receiver goes on waiting, and delivers once its disk no longer hangs.
fn assert_its_disk_decides(receiver: &mut TransferReceiver<MemoryStore>) {
    receiver.handle_timeout(now() + Duration::from_secs(60));
    assert_eq!(failure(receiver), None);
    receiver.store_mut().unwrap().faults.commit_hangs = false;
    receiver.handle_timeout(now() + Duration::from_secs(61));
    let events: Vec<_> = std::iter::from_fn(|| receiver.pop_event()).collect();
    let is_delivered = |event: &_| matches!(event, TransferReceiverEvent::Delivered { .. });
    assert!(events.iter().any(is_delivered), "{events:?}");
    assert!(receiver.store().unwrap().committed().is_some());
}

#[test]
fn nothing_that_a_sender_says_ends_a_commit_under_way() {
    for (word, [given_up, violations]) in words_at_the_end() {
        let mut receiver = putting_in_place();
        receiver.handle_link(now(), LINK, LinkEvent::Data, &word);
        let counters = receiver.counters();
        let heard = [counters.given_up, counters.violations];
        assert_eq!(heard, [given_up, violations], "{word:?}");
        assert_its_disk_decides(&mut receiver);
    }
}

#[test]
fn another_plan_after_a_lost_connection_does_not_end_a_commit_under_way() {
    let mut receiver = putting_in_place();
    receiver.handle_link(now(), LINK, LinkEvent::Closed, &[]);
    let link = LinkId(LINK.0 + 1);
    let at = dial_again(&mut receiver, link);
    let other = welcome(other_manifest().bytes(), SESSION);
    receiver.handle_link(at, link, LinkEvent::Data, &other);
    assert_eq!(receiver.counters().given_up, 1);
    assert_its_disk_decides(&mut receiver);
}

#[test]
fn a_name_that_was_taken_at_first_is_forgotten_once_the_sender_takes_the_receiver_in() {
    let (manifest, _) = MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let config = TransferReceiverConfig::new("r", 1);
    let mut receiver = TransferReceiver::new(config, MemoryStore::default(), now());
    receiver.dial(now(), Fabric::address(0), SESSION, 0);
    let refused = |reason| {
        frame(&Message::Refused {
            reason,
            text: "why",
        })
    };
    // The receiver's previous run was killed, and the sender does not know that yet.
    let at = dial_again(&mut receiver, LINK);
    let taken = refused(Refusal::DuplicateName);
    receiver.handle_link(at, LINK, LinkEvent::Data, &taken);
    let peer = Fabric::address(0);
    let told = receiver.pop_event();
    assert_eq!(told, Some(TransferReceiverEvent::NameTaken { peer }));
    let (second, third) = (LinkId(LINK.0 + 1), LinkId(LINK.0 + 2));
    let at = dial_again(&mut receiver, second);
    let welcome = welcome(manifest.bytes(), SESSION);
    receiver.handle_link(at, second, LinkEvent::Data, &welcome);
    assert!(receiver.is_connected());
    // The receiver's host is cut off, and meanwhile the sender gives the receiver up.
    receiver.handle_link(at, second, LinkEvent::Closed, &[]);
    let at = dial_again(&mut receiver, third);
    let over = refused(Refusal::Over);
    receiver.handle_link(at, third, LinkEvent::Data, &over);
    assert_eq!(failure(&mut receiver), None);
    assert!(receiver.is_given_up() && !receiver.is_over());
}

/// Lets a receiver dial when its next timeout is due, and greet. Returns the time of the dial.
fn dial_again(receiver: &mut TransferReceiver<MemoryStore>, link: LinkId) -> Instant {
    let later = receiver.next_timeout().unwrap();
    receiver.handle_timeout(later);
    let key = loop {
        match receiver.poll_link() {
            Some(LinkCommand::Open { key, .. }) => break key,
            Some(LinkCommand::Close { .. } | LinkCommand::Pause { .. }) => {}
            Some(LinkCommand::Send { link, bytes }) => {
                let len = bytes.len();
                receiver.link_sent(link, len);
            }
            other => panic!("it does not dial: {other:?}"),
        }
    };
    receiver.link_opened(key, link);
    receiver.handle_link(later, link, LinkEvent::Opened, &[]);
    later
}

#[test]
fn a_sender_that_gives_a_receiver_up_is_waited_for_and_then_named() {
    let (manifest, _) = MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let words = [
        Message::Error {
            code: ErrorCode::TimedOut,
            text: "too late",
        },
        Message::Refused {
            reason: Refusal::Over,
            text: "too late",
        },
    ];
    for word in words {
        let mut receiver = welcomed(manifest.bytes());
        receiver.handle_link(now(), LINK, LinkEvent::Data, &frame(&word));
        assert!(receiver.is_given_up() && !receiver.is_over());
        let patience = Duration::from_secs(30);
        receiver.handle_timeout(now() + patience - Duration::from_millis(1));
        assert!(!receiver.is_over());
        assert_eq!(receiver.next_timeout(), Some(now() + patience));
        receiver.handle_timeout(now() + patience);
        let (code, text) = failure(&mut receiver).unwrap();
        assert_eq!(code, ErrorCode::TimedOut);
        assert!(text.contains("too late") && text.contains("30 s"), "{text}");
    }
}

#[test]
fn a_manifest_that_leaves_the_tree_is_refused_before_the_store_hears_of_it() {
    let honest = Manifest::build(
        [0; 16],
        vec![Entry::file("aa", 4)],
        &crate::ManifestLimits::default(),
    );
    let mut manifest = honest.unwrap().bytes().to_vec();
    let at = manifest.len() - 2;
    manifest[at..].copy_from_slice(b"..");
    let mut receiver = welcomed(&manifest);
    receiver.handle_block(now(), &block(ObjectId::MANIFEST, 0, &manifest));
    let (code, text) = failure(&mut receiver).unwrap();
    assert_eq!(code, ErrorCode::ManifestRefused);
    assert!(text.contains("\"..\""), "{text}");
    assert!(receiver.store().unwrap().manifest().is_none() && receiver.is_over());
}

/// Makes a manifest of these entries and does not check it. Its header claims `content_bytes`.
fn forged(entries: &[EntryRef<'_>], content_bytes: u64) -> Vec<u8> {
    let header = ManifestHeader {
        slab_shift: 20,
        flags: 0,
        entry_count: 0,
        content_bytes,
        identity: [0; 16],
    };
    let mut bytes = Vec::new();
    let entries = entries.iter().copied();
    ManifestRef::emit(&mut bytes, &header, entries, Sections::default());
    bytes
}

fn entry<'a>(kind: EntryKind, path: &'a [u8], size_bytes: u64, target: &'a [u8]) -> EntryRef<'a> {
    EntryRef {
        kind,
        mode: 0o644,
        mtime: Mtime {
            seconds: 0,
            nanoseconds: 0,
        },
        size_bytes,
        path,
        target,
    }
}

#[test]
fn forged_manifests_are_refused_with_the_reason_and_nothing_is_prepared() {
    let file = |path, size| entry(EntryKind::File, path, size, b"");
    let link = |path, target| entry(EntryKind::Symlink, path, 0, target);
    let mut short = forged(&[file(b"a", 4)], 4);
    short.pop();
    let mut many = forged(&[file(b"a", 4)], 4);
    many[8..12].copy_from_slice(&1_000_000_u32.to_be_bytes());
    let mut countless = many.clone();
    countless[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let cases = [
        (forged(&[file(b"..", 4)], 4), "\"..\""),
        (forged(&[file(b"a/../../b", 4)], 4), "\"..\""),
        (forged(&[file(b"/etc/passwd", 4)], 4), "absolute"),
        (forged(&[link(b"l", b"../x")], 0), "leads out"),
        (forged(&[link(b"l", b"/etc")], 0), "leads out"),
        (forged(&[file(b"a", 1), file(b"a", 1)], 2), "comes twice"),
        (forged(&[link(b"a", b"b"), file(b"a/b", 1)], 1), "parent"),
        (forged(&[file(b".towline/x", 1)], 1), "reserved"),
        (forged(&[file(b"a", 1 << 63)], 1 << 63), "longer than 2^63"),
        (
            forged(&[file(b"a", u64::MAX), file(b"b", 2)], 1),
            "longer than 2^63",
        ),
        (forged(&[file(b"a", (1 << 63) - 1)], (1 << 63) - 1), "slabs"),
        (forged(&[file(b"a", 4)], 5), "header says 5"),
        (short, "cannot be read"),
        (many, "cannot be read"),
        (countless, "cannot be read"),
    ];
    for (manifest, reason) in cases {
        let mut receiver = welcomed(&manifest);
        while let Some(command) = receiver.poll_link() {
            if let LinkCommand::Send { link, bytes } = command {
                let taken = bytes.len();
                receiver.link_sent(link, taken);
            }
        }
        receiver.handle_block(now(), &block(ObjectId::MANIFEST, 0, &manifest));
        let (code, text) = failure(&mut receiver).expect(reason);
        assert_eq!(code, ErrorCode::ManifestRefused, "{reason}");
        assert!(text.contains(reason), "{reason}: {text}");
        assert!(receiver.store().unwrap().manifest().is_none(), "{reason}");
        // The sender is told the same reason.
        let Some(LinkCommand::Send { bytes, .. }) = receiver.poll_link() else {
            panic!("{reason}: the sender is not told");
        };
        let told = String::from_utf8_lossy(bytes).into_owned();
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn a_million_and_one_entries_are_one_too_many() {
    let names: Vec<String> = (0..=1_000_000).map(|n| format!("{n:07}")).collect();
    let entries: Vec<_> = names
        .iter()
        .map(|name| entry(EntryKind::File, name.as_bytes(), 0, b""))
        .collect();
    let manifest = forged(&entries, 0);
    let mut receiver = welcomed(&manifest);
    for (index, piece) in manifest.chunks(60_000).enumerate() {
        let offset = index as u64 * 60_000;
        receiver.handle_block(now(), &block(ObjectId::MANIFEST, offset, piece));
    }
    let (_, text) = failure(&mut receiver).unwrap();
    assert!(
        text.contains("1000001 entries where 1000000 are allowed"),
        "{text}"
    );
}

#[test]
fn a_claimed_manifest_of_gigabytes_is_refused_without_memory() {
    for bytes in [0, 1 << 40] {
        let config = TransferReceiverConfig::new("r", 1);
        let mut receiver = TransferReceiver::new(config, MemoryStore::default(), now());
        receiver.dial(now(), Fabric::address(0), SESSION, 0);
        greet(&mut receiver, LINK);
        let claim = frame(&offer([7; 16], SESSION, bytes));
        receiver.handle_link(now(), LINK, LinkEvent::Data, &claim);
        assert_eq!(receiver.held_memory_bytes(), 0);
        assert!(!receiver.is_over(), "another sender may come");
        assert_eq!(receiver.counters().senders_passed_over, 1);
    }
}

#[test]
fn another_senders_blocks_in_the_manifest_are_thrown_out() {
    let mut world = World::new(30, 1, tree());
    assert!(world.run_until(Duration::from_secs(9), |world| !world.events.is_empty()));
    let forged = block(ObjectId::MANIFEST, 0, &[0xEE; 64]);
    for _ in 0..30 {
        let time = world.now;
        world.nodes[0].receiver.handle_block(time, &forged);
        world.step();
    }
    let outcome = world.run(Duration::from_secs(60));
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert!(world.nodes[0].receiver.counters().manifests_bad > 0);
}

#[test]
fn forged_content_and_seals_end_in_the_right_content() {
    let mut world = World::new(31, 2, tree());
    let len = world.manifest.content_bytes();
    let mut rng = Rng::new(1);
    for _ in 0..400 {
        let time = world.now;
        for object in [
            ObjectId::CONTENT,
            ObjectId::SEALS,
            ObjectId(3),
            ObjectId(u32::MAX),
        ] {
            let forged = block(object, rng.below(len), &[0xEE; 50]);
            world.nodes[0].receiver.handle_block(time, &forged);
        }
        let beyond = block(ObjectId::CONTENT, len - 10, &[0xEE; 50]);
        world.nodes[1].receiver.handle_block(time, &beyond);
        world.nodes[1]
            .receiver
            .handle_block(time, &block(ObjectId::CONTENT, u64::MAX, &[1]));
        world.nodes[1].receiver.handle_block(time, b"short");
        world.step();
    }
    let outcome = world.run(Duration::from_secs(60));
    assert!(outcome.is_final);
    for node in &world.nodes {
        let bytes = node.store().committed();
        assert!(bytes.is_none_or(|bytes| bytes == &world.content[..]));
    }
    // Each forged block for the second receiver is malformed or reaches beyond the content.
    assert!(world.nodes[1].store().committed().is_some());
    assert!(world.nodes[1].receiver.counters().blocks_refused > 0);
}

#[test]
fn seals_that_contradict_the_plan_cost_the_sender_its_connection() {
    let (manifest, content) =
        MemoryContent::generate(vec![Entry::file("a", 9)], [0; 16], 1).unwrap();
    let mut receiver = welcomed(manifest.bytes());
    receiver.handle_block(now(), &block(ObjectId::MANIFEST, 0, manifest.bytes()));
    receiver.handle_block(now(), &block(ObjectId::CONTENT, 0, content.bytes()));
    let hash = hash_bytes(&[5; 32]);
    let seals = frame(&Message::Seals(Seals {
        bytes: 1 << 60,
        hash,
    }));
    receiver.handle_link(now(), LINK, LinkEvent::Data, &seals);
    assert_eq!(receiver.counters().violations, 1);
    assert!(receiver.store().unwrap().committed().is_none());
}

#[test]
fn a_block_across_a_verified_slab_leaves_its_bytes_alone() {
    let entries = ["a", "b", "c"].map(|name| Entry::file(name, 10)).to_vec();
    let (manifest, content) = MemoryContent::generate(entries, [0; 16], 1).unwrap();
    let (seal, seals) = seals_of(&manifest, &content);
    let mut receiver = welcomed(manifest.bytes());
    receiver.handle_block(now(), &block(ObjectId::MANIFEST, 0, manifest.bytes()));
    receiver.handle_link(now(), LINK, LinkEvent::Data, &seals);
    receiver.handle_block(now(), &block(ObjectId::SEALS, 0, &seal));
    let middle = &content.bytes()[10..20];
    receiver.handle_block(now(), &block(ObjectId::CONTENT, 10, middle));
    assert_eq!(receiver.progress().numbers.verified, 10);

    // A block of all three slabs. Only the bytes of the second slab, which is verified, are forged.
    let mut forged = content.bytes().to_vec();
    forged[10..20].fill(0xEE);
    let verdict = receiver.handle_block(now(), &block(ObjectId::CONTENT, 0, &forged));

    assert_eq!(verdict, BlockVerdict::Taken);
    assert_eq!(receiver.store().unwrap().committed(), Some(content.bytes()));
    let again = receiver.handle_block(now(), &block(ObjectId::CONTENT, 0, &forged));
    assert_eq!(again, BlockVerdict::Refused);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "time goes back")]
fn a_receivers_owner_whose_time_goes_back_is_named() {
    let mut receiver = welcomed(&[]);
    receiver.handle_timeout(Instant::from_nanos(now().as_nanos() - 1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "time goes back")]
fn a_senders_owner_whose_time_goes_back_is_named() {
    let mut world = World::new(32, 1, tree());
    world
        .sender
        .handle_timeout(world.now + Duration::from_nanos(1));
    world.sender.handle_timeout(world.now);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "link_opened without a LinkCommand::Open")]
fn an_owner_that_opens_what_was_not_asked_for_is_named() {
    let mut receiver = welcomed(&[]);
    receiver.link_opened(0, LinkId(LINK.0 + 1));
}

/// Sends these bytes to a sender as an admitted receiver. Returns the sender.
fn speak(bytes: &[u8]) -> TransferSender<MemoryContent> {
    let mut world = World::new(32, 1, tree());
    let link = world.fabric.dial(7, 0);
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        instance: 1,
        session_id: SESSION,
        name: "liar",
        nonce: None,
    };
    world
        .fabric
        .send(7, link, frame(&Message::Hello(hello)), false);
    world.fabric.send(7, link, bytes.to_vec(), false);
    world.run_until(Duration::from_secs(70), |world| world.sender.is_closed());
    world.sender
}

fn list(object: ObjectId, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut scratch = Vec::new();
    let mut ranges = ranges.iter().map(|&(start, end)| start..end);
    let list = RangeList {
        pass: 0,
        object,
        is_last: true,
        ranges: Ranges::encode(&mut scratch, &mut ranges),
    };
    frame(&Message::Need(list))
}

#[test]
fn receivers_that_lie_fail_alone() {
    let cases: [(&str, Vec<u8>); 6] = [
        (
            "a proof of nothing",
            frame(&Message::Done(wire::object::Done {
                root: [0; 32],
                proof: [0; 32],
                numbers: wire::object::DoneNumbers::default(),
            })),
        ),
        (
            "needs beyond the end",
            list(ObjectId::CONTENT, &[(0, 1 << 62)]),
        ),
        ("needs of no object", list(ObjectId(9), &[(0, 1)])),
        (
            "seals before there are any",
            list(ObjectId::SEALS, &[(0, 32)]),
        ),
        ("a sender's message", frame(&Message::Acknowledged)),
        ("noise", vec![0xFF; 100]),
    ];
    for (what, bytes) in cases {
        let sender = speak(&bytes);
        let outcome = sender.outcome();
        let liar = outcome
            .receivers
            .iter()
            .find(|report| report.name == "liar");
        let liar = liar.unwrap_or_else(|| panic!("{what}: it was never taken in"));
        let crate::ReceiverState::Failed { code, .. } = &liar.state else {
            panic!("{what}: {liar:?}");
        };
        assert!(
            matches!(code, ErrorCode::Protocol | ErrorCode::HashMismatch),
            "{what}: {code}"
        );
    }
}

#[test]
fn a_greedy_receiver_costs_bounded_memory() {
    let many: Vec<_> = (0..2000).map(|n| (2 * n, 2 * n + 1)).collect();
    let mut bytes = Vec::new();
    for _ in 0..50 {
        bytes.extend(list(ObjectId::MANIFEST, &many[..100]));
    }
    let sender = speak(&bytes);
    assert!(sender.counters().fill_bytes < 100_000);
}

#[test]
fn a_receiver_given_up_while_its_disk_was_slow_ends_when_all_is_in_place() {
    let mut config = TransferSenderConfig::new(SESSION, 2, SEED);
    config.progress_timeout = Duration::from_secs(2);
    let mut world = World::with(24, 2, vec![Entry::file("f", 1 << 20)], config);
    world.nodes[0].store_mut().faults.commit_hangs = true;
    let is_given_up = |world: &World| world.nodes[0].receiver.is_given_up();
    assert!(world.run_until(Duration::from_secs(600), is_given_up));
    assert!(!world.nodes[0].receiver.is_over(), "its store is at work");
    world.nodes[0].store_mut().faults.commit_hangs = false;
    let now = world.now;
    world.nodes[0].receiver.handle_store(now);
    assert!(world.nodes[0].receiver.is_over(), "it waits for nobody");
    world.step();
    let told = world.nodes[0].events.last();
    assert!(
        matches!(told, Some(TransferReceiverEvent::Delivered { .. })),
        "{told:?}"
    );
    assert!(!world.sender.outcome().is_proven());
}

#[test]
fn content_that_is_forged_again_and_again_does_not_end_a_transfer() {
    let (manifest, content) =
        MemoryContent::generate(vec![Entry::file("a", 900_000)], [0; 16], 1).unwrap();
    let (seals, told) = seals_of(&manifest, &content);
    let content = content.bytes();
    let forged = vec![0xEE; content.len()];
    for is_first_wrong in [ObjectId::CONTENT, ObjectId::SEALS, ObjectId::MANIFEST] {
        let mut receiver = welcomed(manifest.bytes());
        let right = [
            (ObjectId::MANIFEST, manifest.bytes()),
            (ObjectId::SEALS, &seals[..]),
            (ObjectId::CONTENT, content),
        ];
        // The object `is_first_wrong` comes forged five times, and then with its right bytes.
        for (object, bytes) in right {
            if object == ObjectId::SEALS {
                receiver.handle_link(now(), LINK, LinkEvent::Data, &told);
            }
            for round in 0..5 {
                if object == is_first_wrong {
                    receiver.handle_block(now(), &block(object, 0, &forged[..bytes.len()]));
                    receiver.handle_store(now());
                }
                if round < 4 {
                    continue;
                }
                for (index, part) in bytes.chunks(BLOCK_DATA_MAX).enumerate() {
                    let part = frame(&Message::Block(Block {
                        object,
                        offset: (index * BLOCK_DATA_MAX) as u64,
                        data: part,
                    }));
                    receiver.handle_link(now(), LINK, LinkEvent::Data, &part);
                }
                receiver.handle_store(now());
            }
        }
        assert_eq!(failure(&mut receiver), None, "{is_first_wrong:?}");
        assert!(receiver.proof().is_some(), "{is_first_wrong:?}");
        assert_eq!(receiver.counters().blocks_doubtful, 4);
    }
}

#[test]
fn what_was_forged_for_all_comes_to_each_over_its_connection_however_little_it_is() {
    for len in [1, 2, 3, 700] {
        let mut world = World::new(41, 3, vec![Entry::file("a", len)]);
        let forged = block(ObjectId::CONTENT, 0, &vec![0xEE; len as usize]);
        for _ in 0..2_000 {
            let time = world.now;
            for node in &mut world.nodes {
                node.receiver.handle_block(time, &forged);
            }
            world.step();
        }
        let outcome = world.run(Duration::from_secs(60));
        assert!(outcome.is_proven(), "{len}: {outcome:#?}");
        world.assert_whole();
        assert!(world.nodes[0].receiver.counters().blocks_doubtful > 0);
    }
}
