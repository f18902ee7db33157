//! A receiver that holds nothing and says that it has everything. It knows the manifest, the seals
//! and the published hashes of the files, and tries every proof that can be made from these.

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

/// The data from which a test may make a proof. `hashes` are the right ones, which only an honest
/// receiver would know.
struct Known {
    hashes: SlabHashes,
    /// The bytes of object 2, the seals, as the sender sent them.
    seals: Vec<u8>,
    occasion: Occasion<'static>,
}

fn say(world: &mut World, link: LinkId, message: &Message<'_>) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    world.fabric.send(LIAR, link, bytes, false);
}

/// Says that the liar has all of `object` if that is the content, and that it needs all of
/// `object` otherwise. `len` is the object's length in bytes.
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

/// The liar on one connection.
struct Liar {
    link: LinkId,
    decoder: Decoder,
    occasion: Occasion<'static>,
}

impl Liar {
    /// Joins as the run `instance` of the receiver `liar`, and says that it has all content.
    fn join(world: &mut World, instance: u64) -> Self {
        let link = world.fabric.dial(LIAR, 0);
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            instance,
            session_id: SESSION,
            name: "liar",
            nonce: None,
        };
        say(world, link, &Message::Hello(hello));
        let mut liar = Self {
            link,
            decoder: Decoder::new(BODY_LEN_MAX),
            occasion: Occasion {
                nonce: [0; 16],
                session_id: SESSION,
                instance,
                name: "liar",
            },
        };
        let (mut nonce, end) = (None, world.now + MINUTE);
        while nonce.is_none() && world.now < end {
            liar.hear(world, |message| {
                if let Message::Welcome(welcome) = message {
                    nonce = Some(welcome.nonce);
                }
            });
        }
        liar.occasion.nonce = nonce.expect("it is admitted");
        list(world, link, ObjectId::CONTENT, world.content.len() as u64);
        liar
    }

    /// Lets a millisecond pass. `take` gets the messages that reach the liar during it.
    fn hear(&mut self, world: &mut World, mut take: impl FnMut(&Message<'_>)) {
        world.step();
        for (_, data) in world.fabric.take(LIAR) {
            self.decoder.push(&data);
        }
        while let Ok(Some(message)) = self.decoder.next_message() {
            take(&message);
        }
    }

    /// Sends DONE with the right hash of the tree and with `proof`.
    fn claim(&self, world: &mut World, proof: Hash) {
        let numbers = DoneNumbers {
            bytes: world.manifest.content_bytes(),
            ..DoneNumbers::default()
        };
        let done = Done {
            root: world.manifest.tree_root(&hashes(world)),
            proof,
            numbers,
        };
        say(world, self.link, &Message::Done(done));
    }

    /// Makes the proof that is right on this connection.
    fn right_proof(&self, world: &World) -> Hash {
        Holding::of(&world.manifest, &hashes(world)).prove(&self.occasion)
    }
}

/// Returns the hashes of all content.
fn hashes(world: &World) -> SlabHashes {
    MemoryContent::new(world.content.clone()).hashes(&world.manifest)
}

/// Returns the state of the liar at the sender.
fn state(world: &World) -> ReceiverState {
    let reports = world.sender.outcome().receivers;
    let mut reports = reports.into_iter().filter(|it| it.name == "liar");
    reports.next().expect("it was admitted").state
}

/// Joins as `liar`, says that it has all content, asks for the seals, and gives the proof that
/// `prove` makes. Returns the state of the liar at the sender in the end.
fn lie(world: &mut World, prove: impl Fn(&World, &Known) -> Hash) -> ReceiverState {
    let mut liar = Liar::join(world, 77);
    let mut known = Known {
        hashes: hashes(world),
        seals: Vec::new(),
        occasion: liar.occasion,
    };
    let seals_bytes = world.manifest.seals_bytes();
    let (mut has_asked, end) = (false, world.now + MINUTE);
    while world.now < end && !world.sender.is_finished() {
        let (mut is_told, mut is_time) = (false, false);
        liar.hear(world, |message| match message {
            Message::Seals(_) => is_told = true,
            Message::Block(block) if block.object == ObjectId::SEALS => {
                known.seals.extend_from_slice(block.data);
            }
            Message::PassEnd(_) => is_time |= known.seals.len() as u64 == seals_bytes,
            _ => {}
        });
        if is_told && !has_asked {
            has_asked = true;
            list(world, liar.link, ObjectId::SEALS, seals_bytes);
        }
        if is_time {
            let proof = prove(world, &known);
            liar.claim(world, proof);
        }
    }
    assert!(has_asked && known.seals.len() as u64 == seals_bytes);
    state(world)
}

/// Makes a world in which one receiver is expected, and only the liar comes.
fn alone(entries: Vec<Entry>) -> World {
    World::with(50, 0, entries, TransferSenderConfig::new(SESSION, 1, SEED))
}

/// Returns what a receiver could prove if `witness` were the witness of the only slab.
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
    // The file is one slab, of one chunk, several chunks or several groups. Anybody with the file
    // can publish its hash, as `b3sum` prints it.
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
    // Both receivers begin together, so the honest one has made its proof by the time of the lie.
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

/// What a liar says on its second connection.
#[derive(Clone, Copy, Debug)]
enum Again {
    Nothing,
    TheSameProof,
    ANewProof,
}

/// Makes a world in which the liar and an honest receiver are expected. The honest one joins after
/// 2 s.
fn two() -> World {
    let mut world = World::with(52, 1, tree(), TransferSenderConfig::new(SESSION, 2, SEED));
    world.nodes[0].joins_at = world.now + Duration::from_secs(2);
    world
}

/// Lets the liar join and give a right proof before the sender has read its content. The liar then
/// comes back as the run `instance`, and says what `again` names. Returns the state of the liar at
/// the sender after the honest receiver has made its proof.
fn return_early(instance: u64, again: Again) -> ReceiverState {
    let mut world = two();
    let liar = Liar::join(&mut world, 77);
    let proof = liar.right_proof(&world);
    liar.claim(&mut world, proof);
    world.run_until(Duration::from_millis(50), |_| false);
    assert!(matches!(state(&world), ReceiverState::Active { .. }));
    world.fabric.cut(LIAR);
    world.run_until(Duration::from_millis(50), |_| false);
    drop(world.fabric.take(LIAR));
    let liar = Liar::join(&mut world, instance);
    match again {
        Again::Nothing => {}
        Again::TheSameProof => liar.claim(&mut world, proof),
        Again::ANewProof => {
            let proof = liar.right_proof(&world);
            liar.claim(&mut world, proof);
        }
    }
    let is_done = |world: &World| world.nodes[0].receiver.proof().is_some();
    assert!(world.run_until(MINUTE, is_done));
    world.run_until(Duration::from_millis(200), |_| false);
    state(&world)
}

#[test]
fn a_proof_that_waits_for_the_sender_ends_with_its_connection() {
    // The liar comes back on a second connection: as the same run (77), or as another run (78).
    for instance in [77, 78] {
        let state = return_early(instance, Again::Nothing);
        let is_open = matches!(state, ReceiverState::Active { .. });
        assert!(is_open, "{instance}: {state:?}");
        let state = return_early(instance, Again::TheSameProof);
        assert_refused(&state, "a proof for a connection that is over");
        let state = return_early(instance, Again::ANewProof);
        let is_done = matches!(state, ReceiverState::Done { .. });
        assert!(is_done, "{instance}: {state:?}");
    }
}

#[test]
fn who_has_proved_is_acknowledged_again_for_a_new_proof_only() {
    let mut world = two();
    world.nodes[0].blocks_per_step = 1;
    let liar = Liar::join(&mut world, 77);
    let proof = liar.right_proof(&world);
    liar.claim(&mut world, proof);
    let is_done = |world: &World| matches!(state(world), ReceiverState::Done { .. });
    assert!(world.run_until(MINUTE, is_done), "{:?}", state(&world));
    world.fabric.cut(LIAR);
    world.run_until(Duration::from_millis(50), |_| false);
    drop(world.fabric.take(LIAR));
    let mut liar = Liar::join(&mut world, 77);
    let new = liar.right_proof(&world);
    let mut claims = |proof: Hash| {
        liar.claim(&mut world, proof);
        let mut is_acknowledged = false;
        for _ in 0..200 {
            liar.hear(&mut world, |message| {
                is_acknowledged |= matches!(message, Message::Acknowledged);
            });
        }
        assert!(is_done(&world) && !world.sender.is_finished());
        is_acknowledged
    };
    assert!(!claims(proof), "its own, for a connection that is over");
    assert!(claims(new));
}
