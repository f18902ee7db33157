//! BLAKE3 in pieces: the witnesses of a file's slabs, which merge into the file's root.
//!
//! A slab begins at a multiple of the size of a full slab, which is a power of two. So its subtree
//! of the file's hash tree can be computed alone. Merging the witnesses of a file, if there are two
//! or more, gives the same root as hashing the file from end to end.
//!
//! **Spec**: `docs/src/protocol.md` section 1 (witness, seal, root).

use blake3::hazmat::{self, ContextKey, HasherExt, Mode};

/// A BLAKE3 value, such as a root or the chaining value of a subtree.
pub type Hash = [u8; HASH_LEN];

/// Bytes of a [`type@Hash`].
pub const HASH_LEN: usize = 32;

/// The value that stands for the seals and witnesses of a withdrawn file, and for a hash that is
/// not known yet. No known bytes have this hash.
pub const WITHDRAWN: Hash = [0; HASH_LEN];

/// The hashes of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabHash {
    /// The chaining value of the slab at its place in the file. Only an end that has hashed the
    /// slab's bytes knows it. No message tells it. It does not follow from a file's published hash,
    /// even when the slab is the whole file.
    pub witness: Hash,
    /// The file's hash, when the slab is the whole file.
    pub root: Option<Hash>,
}

/// A hasher of one slab, or of one group of its chunks. It takes the bytes in order.
#[derive(Clone, Debug)]
pub struct SlabHasher {
    hasher: blake3::Hasher,
    is_whole_file: bool,
}

impl SlabHasher {
    /// Makes a hasher for bytes that begin at `file_offset` of their file.
    #[must_use]
    pub fn new(file_offset: u64, is_whole_file: bool) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(file_offset);
        Self {
            hasher,
            is_whole_file,
        }
    }

    /// Takes the next bytes of the slab. Many bytes at a time are hashed several times faster than
    /// few.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Returns the hashes of the bytes taken so far; at least one byte must have been taken.
    #[must_use]
    pub fn finish(&self) -> SlabHash {
        let root = || *self.hasher.finalize().as_bytes();
        SlabHash {
            witness: self.hasher.finalize_non_root(),
            root: self.is_whole_file.then(root),
        }
    }
}

/// Computes the BLAKE3 root of bytes in one piece.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

/// Computes seals of slabs. The context of all seals is hashed only once, so that each seal takes
/// one compression of BLAKE3 and not two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealer(ContextKey);

impl Sealer {
    pub(super) fn new() -> Self {
        Self(hazmat::hash_derive_key_context(SEAL_CONTEXT))
    }

    /// Computes the seal of a slab from its witness. The seal shows whether a witness is right, but
    /// does not tell the witness. The seal of [`WITHDRAWN`] is [`WITHDRAWN`].
    pub(super) fn seal(&self, witness: &Hash) -> Hash {
        if *witness == WITHDRAWN {
            return WITHDRAWN;
        }
        let mut hasher = blake3::Hasher::new_from_context_key(&self.0);
        hasher.update(witness);
        *hasher.finalize().as_bytes()
    }
}

/// Computes the root of a file of `size_bytes` from the witnesses of its parts. There are at least
/// two parts, and each begins at a multiple of `2^shift` bytes.
pub(super) fn merged_root(witnesses: &[u8], size_bytes: u64, shift: u8) -> Hash {
    let (left, right) = halves(witnesses, size_bytes, shift);
    *hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
}

/// Computes the chaining value of a subtree of `size_bytes` from the witnesses of its parts.
pub(super) fn subtree(witnesses: &[u8], size_bytes: u64, shift: u8) -> Hash {
    if let Ok(witness) = witnesses.try_into() {
        return witness;
    }
    let (left, right) = halves(witnesses, size_bytes, shift);
    hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
}

/// Computes the chaining values of a tree's two halves. **Cost**: recursion of at most 32 levels,
/// one for each level of the tree, because parts are counted in 32 bits.
fn halves(witnesses: &[u8], size_bytes: u64, shift: u8) -> (Hash, Hash) {
    let left_bytes = hazmat::left_subtree_len(size_bytes);
    let left_parts = usize::try_from(left_bytes >> shift).expect("fewer parts than witnesses");
    let (left, right) = witnesses.split_at(left_parts * HASH_LEN);
    (
        subtree(left, left_bytes, shift),
        subtree(right, size_bytes - left_bytes, shift),
    )
}

/// The BLAKE3 context from which seals are derived; it is used for nothing else.
const SEAL_CONTEXT: &str = "towline 2026-11-24 seal of a slab";
