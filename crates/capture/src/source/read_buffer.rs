//! What was read of a file and not decoded yet.
//!
//! ```text
//! | room | what was left over | offset of the file, page for page | ... |
//!                             ^ the next reading goes here
//! ```
//! The kernel copies page to page several times faster than across, so that bytes stand in their
//! pages here as they do in the file; what was left over of one reading is moved in front of the
//! next. The memory is used again and again, and small enough to stay in the processor's cache.

use std::io::{self, Read};

/// Reads ahead by whole pages.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    memory: Vec<u8>,
    /// Where the first page that is read into begins; what is left over stands in front of it.
    page: usize,
    start: usize,
    end: usize,
    /// Bytes read since the beginning of the file.
    offset: u64,
}

impl ReadBuffer {
    /// Empty, at the beginning of a file.
    pub(super) fn new() -> Self {
        let (memory, page) = pages(LEFT_OVER_BYTES, BUFFER_BYTES);
        Self {
            memory,
            page,
            start: page,
            end: page,
            offset: 0,
        }
    }

    /// What was read and not consumed.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Leaves out the first `len` bytes.
    #[inline]
    pub(super) const fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Leaves out all.
    pub(super) const fn clear(&mut self) {
        self.start = self.end;
    }

    /// Reads on until `needed` bytes are at hand; false when the file ends before.
    ///
    /// # Errors
    /// Of the input. What was read before is at hand, and more may be read.
    pub(super) fn fill(&mut self, input: &mut dyn Read, needed: usize) -> io::Result<bool> {
        if self.bytes().len() < needed {
            self.make_room(needed);
        }
        while self.end - self.start < needed {
            match input.read(&mut self.memory[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.end += len;
                    self.offset += len as u64;
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(true)
    }

    /// Moves what is left over in front of where the next bytes go.
    fn make_room(&mut self, needed: usize) {
        let left_over = self.start..self.end;
        let len = left_over.len();
        let within_page = (self.offset % PAGE as u64) as usize;
        let room_behind = self.memory.len() - self.page - within_page;
        if len > self.page + within_page || needed - len > room_behind {
            let (mut memory, page) = pages(needed, needed + PAGE);
            let end = page + within_page;
            memory[end - len..end].copy_from_slice(&self.memory[left_over]);
            (self.memory, self.page) = (memory, page);
        } else {
            let end = self.page + within_page;
            self.memory.copy_within(left_over, end - len);
        }
        self.end = self.page + within_page;
        self.start = self.end - len;
    }
}

/// Memory with a page's beginning in it that has `before` bytes in front of it, and `behind` from
/// there on; and where that is.
fn pages(before: usize, behind: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; before + PAGE + behind];
    let page = before + memory[before..].as_ptr().align_offset(PAGE).min(PAGE);
    (memory, page)
}

/// What fits the second-level cache is still there when it is looked at.
const BUFFER_BYTES: usize = 256 << 10;
/// Longer records, which are rare, cost a larger buffer.
const LEFT_OVER_BYTES: usize = 64 << 10;
/// Of this machine or a part of its pages; either does.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most so many bytes at once.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(into.len());
            self.0.read(&mut into[..len])
        }
    }

    #[test]
    fn all_bytes_come_in_order_however_they_are_read_and_consumed() {
        let file: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        for (at_once, needs) in [
            (usize::MAX, &[16, 90, 1500][..]),
            (5000, &[16, 9000]),
            (70_000, &[4, 100_000, 300_000, 3]),
        ] {
            let mut input = Trickle(&file, at_once);
            let mut buffer = ReadBuffer::new();
            let mut got = Vec::new();
            for needed in needs.iter().cycle() {
                let is_whole = buffer.fill(&mut input, *needed).unwrap();
                let bytes = buffer.bytes();
                assert_eq!(is_whole, bytes.len() >= *needed);
                let len = bytes.len().min(*needed);
                got.extend_from_slice(&bytes[..len]);
                buffer.consume(len);
                if !is_whole {
                    break;
                }
            }
            assert_eq!(got, file);
        }
    }

    #[test]
    fn bytes_stand_in_their_pages_as_in_the_file() {
        let file = vec![7; 1 << 20];
        // The first bytes are often read by themselves.
        let mut input = file[..4].chain(&file[4..]);
        let mut buffer = ReadBuffer::new();
        while buffer.fill(&mut input, 90).unwrap() {
            let last = buffer.memory[buffer.end..].as_ptr().addr();
            assert_eq!(last % PAGE, (buffer.offset % PAGE as u64) as usize);
            let whole = buffer.bytes().len() / 90 * 90;
            buffer.consume(whole);
        }
    }
}
