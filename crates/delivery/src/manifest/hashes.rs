//! The hashes of all slabs of a manifest, and what follows from them.
//!
//! ```text
//!   slab --hash--> witness --+-- one-way ------> seal: object 2, which everybody is told
//!                            +-- of all slabs --> joint witness: told to nobody
//!                            '-- of a file -----> its root, which `b3sum` prints
//! ```
//!
//! For a file of one slab, neither the root nor the witness can be computed from the other, so both
//! are kept.
//!
//! **Spec**: `docs/src/protocol.md` section 1 (witness, seal, root).

use std::ops::Range;

use super::{
    HASH_LEN, Hash, Manifest, Slab, SlabHash, WITHDRAWN,
    hash::{self, Sealer},
    hash_bytes,
};

/// The hashes of a manifest's slabs. The witness of a slab is [`WITHDRAWN`] when it is not known,
/// or the slab is not sent.
///
/// **Cost**: 32 bytes for each slab and each file.
#[derive(Clone, Debug)]
pub struct SlabHashes {
    /// The witness of each slab in order.
    witnesses: Vec<u8>,
    /// For each file of the manifest, its root. Only the entries of files that have one slab are
    /// used.
    roots: Vec<Hash>,
}

impl SlabHashes {
    /// Makes the state in which no hash is known.
    #[must_use]
    pub fn unknown(manifest: &Manifest) -> Self {
        Self {
            witnesses: vec![0; manifest.slab_count() as usize * HASH_LEN],
            roots: vec![WITHDRAWN; manifest.files().len()],
        }
    }

    /// Notes the hashes of a slab.
    pub fn set(&mut self, slab: &Slab, hash: &SlabHash) {
        self.witnesses[place(slab.index)].copy_from_slice(&hash.witness);
        if let Some(root) = hash.root {
            self.roots[slab.file as usize] = root;
        }
    }

    /// Forgets the witnesses of a file, because the sender does not send it.
    pub(crate) fn withdraw(&mut self, manifest: &Manifest, file: usize) {
        let place = manifest.seals_of(&manifest.files()[file]);
        self.witnesses[place].fill(0);
    }

    /// Computes the seal of a slab.
    pub(crate) fn seal(&self, slab: u32) -> Hash {
        Sealer::new().seal(witness(&self.witnesses[place(slab)]))
    }

    /// Fills `out` with the bytes of object 2 (the seals), from `offset` on.
    pub(crate) fn copy_seals(&self, offset: usize, out: &mut [u8]) {
        let slabs = offset / HASH_LEN..(offset + out.len()).div_ceil(HASH_LEN);
        let skip = offset - slabs.start * HASH_LEN;
        let seals: Vec<u8> = self.seals_in(slabs).flatten().collect();
        out.copy_from_slice(&seals[skip..skip + out.len()]);
    }

    /// Computes the hash of object 2.
    pub(crate) fn seals_hash(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        for seal in self.seals_in(0..self.witnesses.len() / HASH_LEN) {
            hasher.update(&seal);
        }
        *hasher.finalize().as_bytes()
    }

    /// Computes the joint witness of all slabs: the key with which proofs are made.
    pub(crate) fn joint_witness(&self) -> Hash {
        blake3::derive_key(JOINT_CONTEXT, &self.witnesses)
    }

    /// Returns the witnesses of all slabs, 32 bytes each.
    pub(crate) fn witnesses(&self) -> &[u8] {
        &self.witnesses
    }

    /// Computes the root of a file.
    pub(super) fn root_of(&self, manifest: &Manifest, file: usize) -> Hash {
        let place = &manifest.files()[file];
        match manifest.slabs_of(place) {
            0 => hash_bytes(&[]),
            1 => self.roots[file],
            _ => {
                let witnesses = &self.witnesses[manifest.seals_of(place)];
                hash::merged_root(witnesses, place.size_bytes, manifest.header.slab_shift)
            }
        }
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.witnesses.len() + self.roots.len() * HASH_LEN
    }

    fn seals_in(&self, slabs: Range<usize>) -> impl Iterator<Item = Hash> {
        let witnesses = &self.witnesses[slabs.start * HASH_LEN..slabs.end * HASH_LEN];
        let (witnesses, sealer) = (witnesses.chunks_exact(HASH_LEN), Sealer::new());
        witnesses.map(move |bytes| sealer.seal(witness(bytes)))
    }
}

const fn place(slab: u32) -> Range<usize> {
    slab as usize * HASH_LEN..(slab as usize + 1) * HASH_LEN
}

fn witness(bytes: &[u8]) -> &Hash {
    bytes.try_into().expect("a witness is 32 bytes")
}

/// The BLAKE3 context from which joint witnesses are derived; it is used for nothing else.
const JOINT_CONTEXT: &str = "towline 2026-11-24 joint witness";
