//! The memory of one frame while its pieces come.

use wire::object::FrameHeader;

/// The memory of one frame: its bytes, and a bit for each piece that has come.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) bytes: Vec<u8>,
    have: Vec<u64>,
}

impl Room {
    /// Makes room for frames of up to `len` bytes. The operating system supplies the memory when it
    /// is first used.
    pub(super) fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; len],
            have: Vec::new(),
        }
    }

    /// Prepares the room for a frame of which no piece has come.
    pub(super) fn prepare(&mut self, header: &FrameHeader) {
        self.bytes.resize(header.len as usize, 0);
        self.have.clear();
        self.have.resize(header.pieces().div_ceil(64) as usize, 0);
    }

    /// Copies a piece to its place. Returns false when that piece has come before.
    #[inline]
    pub(super) fn put(&mut self, header: &FrameHeader, piece: &[u8]) -> bool {
        let (word, bit) = (header.index as usize / 64, 1_u64 << (header.index % 64));
        if self.have[word] & bit != 0 {
            return false;
        }
        self.have[word] |= bit;
        let at = header.offset();
        self.bytes[at..at + piece.len()].copy_from_slice(piece);
        true
    }

    /// Returns the number of the first piece that has not come.
    pub(super) fn first_missing(&self) -> u64 {
        let word = self.have.iter().position(|&word| word != u64::MAX);
        let word = word.unwrap_or(self.have.len());
        let bit = self.have.get(word).map_or(0, |word| word.trailing_ones());
        word as u64 * 64 + u64::from(bit)
    }
}
