//! The proof of delivery: how a receiver shows that it has hashed every byte, and how the sender
//! checks that.
//!
//! ```text
//!   WELCOME{nonce} -------------------------->  receiver
//!   sender  <--------- DONE{root, bytes, proof}   proof = keyed hash(joint witness;
//!                                                   nonce, session, instance, name)
//! ```
//!
//! The joint witness follows from the witnesses of all slabs, and no message tells any witness. So
//! a peer that has only the manifest, the seals and the published hashes of files cannot make a
//! proof. A proof is for one connection of one receiver: it is worthless for any other receiver,
//! and on any other connection.
//!
//! The proof does not show that the bytes are still there. A receiver that has once hashed all
//! bytes can keep the joint witness, and make proofs without the bytes.
//!
//! **Spec**: `docs/src/protocol.md` sections 1, 6 and 7.

use base::{Instant, LinkId};
use wire::object::NONCE_LEN;

use crate::{Hash, Manifest, SlabHashes};

/// The values that a receiver can prove when it holds everything that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// One hash over all files.
    pub(crate) root: Hash,
    /// Number of content bytes, not counting withdrawn files.
    pub(crate) bytes: u64,
    joint_witness: Hash,
}

/// The connection for which a proof is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'a> {
    /// The bytes that the sender drew for this connection.
    pub(crate) nonce: [u8; NONCE_LEN],
    pub(crate) session_id: u64,
    /// The number that identifies this run of the receiver.
    pub(crate) instance: u64,
    /// The receiver's name, as its greeting told it.
    pub(crate) name: &'a str,
}

impl Holding {
    pub(crate) fn of(manifest: &Manifest, hashes: &SlabHashes) -> Self {
        Self {
            root: manifest.tree_root(hashes),
            bytes: manifest.delivered_bytes(hashes),
            joint_witness: hashes.joint_witness(),
        }
    }

    /// Computes the proof for a connection.
    pub(crate) fn prove(&self, occasion: &Occasion<'_>) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.joint_witness);
        hasher.update(&occasion.nonce);
        hasher.update(&occasion.session_id.to_be_bytes());
        hasher.update(&occasion.instance.to_be_bytes());
        hasher.update(occasion.name.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// Draws the nonce of a connection that is admitted at `now`. A nonce does not repeat, and nobody
/// can predict it without `seed`.
pub(crate) fn nonce(seed: u64, session_id: u64, link: LinkId, now: Instant) -> [u8; NONCE_LEN] {
    let unique = [seed, session_id, link.0.into(), now.as_nanos()];
    let unique: Vec<u8> = unique.iter().flat_map(|n| n.to_be_bytes()).collect();
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&blake3::derive_key(NONCE_CONTEXT, &unique)[..NONCE_LEN]);
    nonce
}

const NONCE_CONTEXT: &str = "towline 2026-11-24 nonce of a connection";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Entry, ManifestLimits, WITHDRAWN, hash_bytes, memory::MemoryContent};

    const OCCASION: Occasion<'_> = Occasion {
        nonce: [1; NONCE_LEN],
        session_id: 2,
        instance: 3,
        name: "r4",
    };

    fn manifest() -> Manifest {
        let entries = vec![
            Entry::file("a", 700),
            Entry::file("b", 5_000),
            Entry::file("c", (2 << 20) + 7),
            Entry::file("d", 0),
        ];
        Manifest::build([0; 16], entries, &ManifestLimits::default()).unwrap()
    }

    fn content(manifest: &Manifest) -> MemoryContent {
        let bytes = (0..manifest.content_bytes()).map(|at| (at * 31 + at / 997) as u8);
        MemoryContent::new(bytes.collect())
    }

    #[test]
    fn a_proof_is_for_one_connection_of_one_receiver() {
        let manifest = manifest();
        let holding = Holding::of(&manifest, &content(&manifest).hashes(&manifest));
        let others = [
            Occasion {
                nonce: [9; NONCE_LEN],
                ..OCCASION
            },
            Occasion {
                session_id: 9,
                ..OCCASION
            },
            Occasion {
                instance: 9,
                ..OCCASION
            },
            Occasion {
                name: "r5",
                ..OCCASION
            },
        ];
        for other in &others {
            assert_ne!(holding.prove(other), holding.prove(&OCCASION), "{other:?}");
        }
        let at = Instant::from_nanos;
        let drawn = [
            nonce(1, 2, LinkId(3), at(4)),
            nonce(9, 2, LinkId(3), at(4)),
            nonce(1, 9, LinkId(3), at(4)),
            nonce(1, 2, LinkId(9), at(4)),
            nonce(1, 2, LinkId(3), at(9)),
        ];
        for (index, one) in drawn.iter().enumerate() {
            assert!(drawn[..index].iter().all(|other| other != one));
        }
    }

    #[test]
    fn published_hashes_and_seals_tell_no_witness_and_a_seal_tells_no_hash() {
        let manifest = manifest();
        let content = content(&manifest);
        let hashes = content.hashes(&manifest);
        let told: Vec<Hash> = manifest
            .file_roots(&hashes)
            .map(|(_, root)| root)
            .chain((0..manifest.slab_count()).map(|slab| hashes.seal(slab)))
            .collect();
        assert!(told.contains(&hash_bytes(&content.bytes()[..700])));
        for witness in hashes.witnesses().chunks(32) {
            assert!(told.iter().all(|it| it != witness));
        }
        for (index, one) in told.iter().enumerate() {
            assert!(told[..index].iter().all(|other| other != one));
        }
        let mut seals = vec![0; 32 * manifest.slab_count() as usize];
        hashes.copy_seals(0, &mut seals);
        assert_eq!(hash_bytes(&seals), hashes.seals_hash());
        let mut part = [0; 50];
        hashes.copy_seals(45, &mut part);
        assert_eq!(part, seals[45..95]);
    }

    proptest! {
        /// A receiver's proof is right exactly when its witnesses are the sender's.
        #[test]
        fn a_proof_holds_if_and_only_if_the_witnesses_are_the_same(
            turned in proptest::option::of(any::<prop::sample::Index>()),
            sent in proptest::collection::vec(any::<bool>(), 3),
            held in proptest::collection::vec(any::<bool>(), 3),
        ) {
            let manifest = manifest();
            let content = content(&manifest);
            let (mut bytes, mut own) = (content.bytes().to_vec(), content.hashes(&manifest));
            if let Some(turned) = turned {
                let at = turned.index(bytes.len());
                bytes[at] ^= 1;
            }
            let mut theirs = MemoryContent::new(bytes).hashes(&manifest);
            for file in 0..3 {
                if !sent[file] {
                    own.withdraw(&manifest, file);
                }
                if !held[file] {
                    theirs.withdraw(&manifest, file);
                }
            }
            let is_same = own.witnesses() == theirs.witnesses();
            let proofs = [&own, &theirs].map(|it| Holding::of(&manifest, it).prove(&OCCASION));
            prop_assert_eq!(proofs[0] == proofs[1], is_same);
            for index in 0..manifest.slab_count() {
                let is_same = own.seal(index) == theirs.seal(index);
                let place = 32 * index as usize..32 * (index as usize + 1);
                let witnesses = [&own, &theirs].map(|it| &it.witnesses()[place.clone()]);
                prop_assert_eq!(is_same, witnesses[0] == witnesses[1]);
            }
            prop_assert_eq!(own.seal(0) == WITHDRAWN, !sent[0]);
        }
    }
}
