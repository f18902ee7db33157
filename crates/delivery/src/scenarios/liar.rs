//! A receiver that holds nothing and says that it has everything: it knows the manifest, the seals
//! and the published hashes of the files, and tries whatever can be made of them.

use base::LinkId;
use wire::object::{
    BODY_LEN_MAX, Decoder, Done, DoneNumbers, ErrorCode, Hello, Message, ObjectId, RangeList,
    Ranges,
};

use super::*;
use crate::{
    Hash, ReceiverState, SlabHashes, hash_bytes,
    proof::{Holding, Occasion},
};

const LIAR: usize = 7;
const MINUTE: Duration = Duration::from_secs(60);

/// All that the liar knows when it must prove.
struct Known {
    hashes: SlabHashes,
    /// Object 2, as the sender told it.
    seals: Vec<u8>,
    occasion: Occasion<'static>,
}

fn say(world: &mut World, link: LinkId, message: &Message<'_>) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    world.fabric.send(LIAR, link, bytes, false);
}

/// Says that it has, or lacks, all of an object.
fn list(world: &mut World, link: LinkId, object: ObjectId, len: u64) {
    let mut scratch = Vec::new();
    let list = RangeList {
        pass: 1,
        object,
        is_last: true,
        ranges: Ranges::encode(&mut scratch, &mut std::iter::once(0..len)),
    };
    let message = match object {
        ObjectId::CONTENT => Message::Have(list),
        _ => Message::Need(list),
    };
    say(world, link, &message);
}

/// Joins as `liar`, says that it has all content, asks for the seals, and gives the proof that
/// `prove` makes. Returns what the sender thinks of it in the end.
fn lie(world: &mut World, prove: impl Fn(&World, &Known) -> Hash) -> ReceiverState {
    let content = MemoryContent::new(world.content.clone());
    let occasion = Occasion {
        nonce: [0; 16],
        session_id: SESSION,
        instance: 77,
        name: "liar",
    };
    let mut known = Known {
        hashes: content.hashes(&world.manifest),
        seals: Vec::new(),
        occasion,
    };
    let link = world.fabric.dial(LIAR, 0);
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        instance: occasion.instance,
        session_id: SESSION,
        name: occasion.name,
        nonce: None,
    };
    say(world, link, &Message::Hello(hello));
    let (mut decoder, mut has_asked) = (Decoder::new(BODY_LEN_MAX), false);
    let (content_bytes, seals_bytes) =
        (world.manifest.content_bytes(), world.manifest.seals_bytes());
    let end = world.now + MINUTE;
    while world.now < end && !world.sender.is_finished() {
        world.step();
        for (_, data) in world.fabric.take(LIAR) {
            decoder.push(&data);
        }
        while let Ok(Some(message)) = decoder.next_message() {
            match message {
                Message::Welcome(welcome) => {
                    known.occasion.nonce = welcome.nonce;
                    list(world, link, ObjectId::CONTENT, content_bytes);
                }
                Message::Seals(_) if !has_asked => {
                    has_asked = true;
                    list(world, link, ObjectId::SEALS, seals_bytes);
                }
                Message::Block(block) if block.object == ObjectId::SEALS => {
                    known.seals.extend_from_slice(block.data);
                }
                Message::PassEnd(_) if known.seals.len() as u64 == seals_bytes => {
                    let numbers = DoneNumbers {
                        bytes: content_bytes,
                        ..DoneNumbers::default()
                    };
                    let done = Done {
                        root: world.manifest.tree_root(&known.hashes),
                        proof: prove(world, &known),
                        numbers,
                    };
                    say(world, link, &Message::Done(done));
                }
                _ => {}
            }
        }
    }
    assert!(has_asked && known.seals.len() as u64 == seals_bytes);
    let reports = world.sender.outcome().receivers;
    let mut reports = reports.into_iter().filter(|it| it.name == "liar");
    reports.next().expect("it was admitted").state
}

/// A world in which one receiver is expected, and nobody but the liar comes.
fn alone(entries: Vec<Entry>) -> World {
    World::with(50, 0, entries, TransferSenderConfig::new(SESSION, 1, SEED))
}

/// What a receiver would hold if this were the witness of the only slab.
fn holding_of(world: &World, witness: Hash) -> Holding {
    let mut hashes = SlabHashes::unknown(&world.manifest);
    let hash = crate::SlabHash {
        witness,
        root: None,
    };
    hashes.set(&world.manifest.slab(0), &hash);
    Holding::of(&world.manifest, &hashes)
}

fn seal(known: &Known) -> Hash {
    known.seals[..32].try_into().unwrap()
}

fn assert_refused(state: &ReceiverState, what: &str) {
    let ReceiverState::Failed { code, text } = state else {
        panic!("{what}: {state:?}");
    };
    assert_eq!(*code, ErrorCode::HashMismatch, "{what}");
    assert!(text.contains("claims what it cannot show"), "{text}");
}

type Guess = fn(&World, &Known) -> Hash;

#[test]
fn who_holds_nothing_proves_nothing_with_seals_and_published_hashes() {
    let guesses: [(&str, Guess); 9] = [
        ("nothing", |_, _| [0; 32]),
        ("the seal", |_, known| seal(known)),
        ("the file's hash", |world, _| hash_bytes(&world.content)),
        ("the root", |world, known| {
            world.manifest.tree_root(&known.hashes)
        }),
        ("the seal as its witness", |world, known| {
            holding_of(world, seal(known)).prove(&known.occasion)
        }),
        ("the file's hash as its witness", |world, known| {
            holding_of(world, hash_bytes(&world.content)).prove(&known.occasion)
        }),
        ("the seals' hash as its witness", |world, known| {
            holding_of(world, hash_bytes(&known.seals)).prove(&known.occasion)
        }),
        ("a withdrawn file", |world, known| {
            let none = SlabHashes::unknown(&world.manifest);
            Holding::of(&world.manifest, &none).prove(&known.occasion)
        }),
        ("a proof for another connection", |world, known| {
            let occasion = Occasion {
                nonce: [1; 16],
                ..known.occasion
            };
            Holding::of(&world.manifest, &known.hashes).prove(&occasion)
        }),
    ];
    // One chunk, several, and several groups: always one slab, whose hash `b3sum` prints.
    for len in [9, 700, 5_000, 900_000] {
        for (what, prove) in guesses {
            let mut world = alone(vec![Entry::file("a", len)]);
            let state = lie(&mut world, prove);
            assert_refused(&state, what);
            assert!(!world.sender.outcome().is_proven(), "{what}, {len} bytes");
        }
    }
}

#[test]
fn who_has_hashed_every_byte_proves_it_in_the_same_way() {
    let mut world = alone(tree());
    let state = lie(&mut world, |world, known| {
        Holding::of(&world.manifest, &known.hashes).prove(&known.occasion)
    });
    assert!(matches!(state, ReceiverState::Done { .. }), "{state:?}");
    assert!(world.sender.outcome().is_proven());
}

#[test]
fn the_proof_of_another_receiver_is_of_no_use() {
    let mut world = World::with(51, 1, tree(), TransferSenderConfig::new(SESSION, 2, SEED));
    // The honest receiver has proved by the time: both begin together.
    let state = lie(&mut world, |world, _| {
        let heard = world.nodes[0].receiver.proof();
        heard.map_or([0; 32], |done| done.proof)
    });
    assert_refused(&state, "what another has proved");
    let outcome = world.sender.outcome();
    assert!(!outcome.is_proven());
    let honest = outcome.receivers.iter().find(|it| it.name == "r1").unwrap();
    let is_done = matches!(honest.state, ReceiverState::Done { .. });
    assert!(is_done, "{honest:?}");
}
