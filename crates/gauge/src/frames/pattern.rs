//! Frames whose content proves itself, for trying what a path carries.
//!
//! A frame holds its number and the seed. Behind them comes a fixed pseudo-random block, again and
//! again; the frame's number sets where in the block the first copy begins. The block's length is a
//! prime number, so a piece that is put in a wrong place does not match there.
//!
//! ```text
//!   number u64 LE | seed u64 LE | block from (number * 8192 + 16) on, again and again
//! ```

use std::sync::Arc;

use base::Rng;

/// Makes and checks the frames of one run. A clone shares the block.
#[derive(Clone, Debug)]
pub struct FramePattern {
    seed: u64,
    block: Arc<[u8]>,
}

impl FramePattern {
    /// Makes the pattern that `seed` determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut block = vec![0; BLOCK_BYTES];
        Rng::new(seed).fill(&mut block);
        let block = block.into();
        Self { seed, block }
    }

    /// Writes the bytes of frame `id` from `offset` on into `room`.
    pub fn fill(&self, id: u64, offset: usize, mut room: &mut [u8]) {
        let mut at = offset;
        if offset < HEAD_BYTES {
            let head = self.head(id);
            let (front, rest) = room.split_at_mut(room.len().min(HEAD_BYTES - offset));
            front.copy_from_slice(&head[offset..offset + front.len()]);
            (room, at) = (rest, offset + front.len());
        }
        for part in self.parts(id, at, room.len()) {
            let (front, rest) = room.split_at_mut(part.len());
            front.copy_from_slice(part);
            room = rest;
        }
    }

    /// Returns true when `frame` is exactly frame `id`.
    #[must_use]
    pub fn is_intact(&self, id: u64, frame: &[u8]) -> bool {
        let (head, mut rest) = frame.split_at(frame.len().min(HEAD_BYTES));
        if head != &self.head(id)[..head.len()] {
            return false;
        }
        self.parts(id, HEAD_BYTES, rest.len()).all(|part| {
            let (front, behind) = rest.split_at(part.len());
            rest = behind;
            front == part
        })
    }

    fn head(&self, id: u64) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&id.to_le_bytes());
        head[8..].copy_from_slice(&self.seed.to_le_bytes());
        head
    }

    /// Returns the parts of the block, `len` bytes in all, that make up frame `id` from `offset`
    /// on.
    fn parts(&self, id: u64, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let first = (id % BLOCK_BYTES as u64 * 8192 + offset as u64) % BLOCK_BYTES as u64;
        let (mut start, mut left) = (first as usize, len);
        std::iter::from_fn(move || {
            let part = &self.block[start..][..left.min(BLOCK_BYTES - start)];
            (start, left) = (0, left - part.len());
            (!part.is_empty()).then_some(part)
        })
    }
}

const HEAD_BYTES: usize = 16;
/// Length of the block in bytes: the largest prime number below 65,536.
const BLOCK_BYTES: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(pattern: &FramePattern, id: u64, len: usize, piece: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        for (index, room) in frame.chunks_mut(piece).enumerate() {
            pattern.fill(id, index * piece, room);
        }
        frame
    }

    #[test]
    fn a_frame_is_the_same_however_it_is_cut() {
        let pattern = FramePattern::new(3);
        for len in [1, 16, 17, 5_000, 200_000] {
            let whole = frame(&pattern, 7, len, len);
            assert!(pattern.is_intact(7, &whole));
            for piece in [5, 16, 1408, 65_521] {
                assert_eq!(frame(&pattern, 7, len, piece), whole, "{len} {piece}");
            }
        }
    }

    #[test]
    fn what_is_wrong_shows() {
        let pattern = FramePattern::new(3);
        let whole = frame(&pattern, 7, 300_000, 1408);
        assert!(!pattern.is_intact(8, &whole));
        assert!(!FramePattern::new(4).is_intact(7, &whole));
        let mut flipped = whole.clone();
        flipped[299_999] ^= 1;
        assert!(!pattern.is_intact(7, &flipped));
        let mut moved = whole.clone();
        let (one, other) = moved.split_at_mut(1408 * 60);
        one[1408 * 9..][..1408].swap_with_slice(&mut other[..1408]);
        assert!(!pattern.is_intact(7, &moved));
    }
}
