//! BLAKE3 in pieces: seals of slabs that merge into the root of their file.
//!
//! A slab begins at a multiple of its size, a power of two, so its subtree of the file's hash tree
//! can be computed alone. Merging the seals of a file gives the same root as hashing the file from
//! end to end.
//!
//! **Spec**: `docs/src/protocol.md` section 1 (seals, root).

use blake3::hazmat::{self, HasherExt, Mode};

/// A BLAKE3 value: a root, or the chaining value of a subtree.
pub type Hash = [u8; HASH_LEN];

/// Bytes of a [`type@Hash`].
pub const HASH_LEN: usize = 32;

/// The hash in place of a seal for a file that the sender withdrew, because it could not read it to
/// its end. No known bytes have this hash.
pub const WITHDRAWN: Hash = [0; HASH_LEN];

/// A hasher of one slab, or of a group of its chunks, in order.
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

    /// Returns the hash of the bytes taken, at least one.
    #[must_use]
    pub fn finish(&self) -> Hash {
        if self.is_whole_file {
            *self.hasher.finalize().as_bytes()
        } else {
            self.hasher.finalize_non_root()
        }
    }
}

/// Computes the BLAKE3 root of bytes in one piece.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

/// Computes the root of a file of `size` bytes from the seals of its parts of `2^shift` bytes.
#[must_use]
pub fn file_root(seals: &[u8], size: u64, shift: u8) -> Hash {
    match seals.len() / HASH_LEN {
        0 => hash_bytes(&[]),
        1 => seal(seals),
        _ => {
            let (left, right) = halves(seals, size, shift);
            *hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
        }
    }
}

/// Computes the chaining value of a subtree of `size` bytes that is not the whole file.
pub(super) fn subtree(seals: &[u8], size: u64, shift: u8) -> Hash {
    if seals.len() == HASH_LEN {
        return seal(seals);
    }
    let (left, right) = halves(seals, size, shift);
    hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
}

/// Computes the chaining values of a tree's two halves. **Cost**: recursion as deep as the tree is
/// high: at most 44.
fn halves(seals: &[u8], size: u64, shift: u8) -> (Hash, Hash) {
    let left_size = hazmat::left_subtree_len(size);
    let left_seals = usize::try_from(left_size >> shift).expect("fewer parts than seals");
    let (left, right) = seals.split_at(left_seals * HASH_LEN);
    (
        subtree(left, left_size, shift),
        subtree(right, size - left_size, shift),
    )
}

fn seal(bytes: &[u8]) -> Hash {
    bytes.try_into().expect("one seal is 32 bytes")
}
