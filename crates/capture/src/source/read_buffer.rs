//! Bytes of a file that were read and not decoded yet.
//!
//! ```text
//! | room | what was left over | offset of the file, page for page | ... |
//!                             ^ the next reading goes here
//! ```
//! The kernel copies several times faster when source and target have the same offset in their
//! pages. So each byte has the same offset in its page here as in the file. What one reading leaves
//! over is moved in front of the next. The memory is reused, and small enough to stay in the
//! processor's cache.
//!
//! When a file is long, a thread reads or unpacks the next pieces while one is decoded. At the end
//! of the file it gives the input back. When all is decoded, the input is read once more, because
//! the file may have grown.

use std::{
    io::{self, Read},
    mem,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
};

/// The bytes that were read and not decoded, and the input that gives more bytes.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    piece: Piece,
    input: Input,
    /// Bytes read since the beginning of the file.
    offset: u64,
    may_read_ahead: bool,
}

/// Who reads the input: this thread or another one.
enum Input {
    Here(Box<dyn Read + Send>),
    Ahead(ReadAhead),
}

impl ReadBuffer {
    /// Makes an empty buffer at the beginning of a file. With `may_read_ahead` a thread reads ahead
    /// when the file turns out to be long.
    pub(super) fn new(input: Box<dyn Read + Send>, may_read_ahead: bool) -> Self {
        Self {
            piece: Piece::new(LEFT_OVER_BYTES, BUFFER_BYTES),
            input: Input::Here(input),
            offset: 0,
            may_read_ahead,
        }
    }

    /// Returns the bytes that were read and not consumed.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// Consumes the first `len` bytes.
    #[inline]
    pub(super) const fn consume(&mut self, len: usize) {
        self.piece.start += len;
    }

    /// Consumes all bytes.
    pub(super) const fn clear(&mut self) {
        self.piece.start = self.piece.end;
    }

    /// Reads until `needed` bytes are in the buffer. Returns false when the file ends before that.
    ///
    /// # Errors
    /// When reading fails. What was read before is in the buffer.
    pub(super) fn fill(&mut self, needed: usize) -> io::Result<bool> {
        if self.bytes().len() < needed && self.may_read_ahead && self.offset >= AHEAD_AFTER_BYTES {
            self.read_ahead();
        }
        loop {
            match &mut self.input {
                Input::Here(input) => return self.piece.fill(input, needed, &mut self.offset),
                Input::Ahead(_) if self.piece.bytes().len() >= needed => return Ok(true),
                Input::Ahead(ahead) => match ahead.next() {
                    Some(piece) => self.offset += ahead.append(&mut self.piece, piece?),
                    None => self.input = Input::Here(ahead.end()?),
                },
            }
        }
    }

    /// Reads to the end, or until reading fails; returns how many bytes there were.
    pub(super) fn skip_rest(&mut self) -> u64 {
        let mut skipped = 0;
        loop {
            skipped += self.bytes().len() as u64;
            self.clear();
            if !self.fill(1).unwrap_or(false) {
                return skipped;
            }
        }
    }

    /// Starts a thread that reads from here on. There is only one such thread in the process,
    /// because several would take each other's processor.
    fn read_ahead(&mut self) {
        self.may_read_ahead = false;
        let has_room = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        if !has_room || IS_READING_AHEAD.swap(true, Ordering::Relaxed) {
            return;
        }
        let (give, given) = channel();
        let Ok(ahead) = ReadAhead::start(given, self.offset) else {
            return;
        };
        if let Input::Here(input) = mem::replace(&mut self.input, Input::Ahead(ahead)) {
            // The thread waits for the input, so this cannot fail.
            let _taken = give.send(input);
        }
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here(_) => "Here",
            Self::Ahead(_) => "Ahead",
        })
    }
}

/// A piece of a file in memory.
#[derive(Debug)]
struct Piece {
    memory: Vec<u8>,
    /// Where the first page for new bytes begins; leftover bytes stand in front of it.
    page: usize,
    start: usize,
    end: usize,
}

impl Piece {
    /// Makes a piece with `before` bytes before the beginning of a page, and `behind` bytes from
    /// there on.
    fn new(before: usize, behind: usize) -> Self {
        let memory = vec![0; before + PAGE + behind];
        let page = before + memory[before..].as_ptr().align_offset(PAGE).min(PAGE);
        Self {
            memory,
            page,
            start: page,
            end: page,
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Empties the piece; the next bytes read into it are those at `offset` of the file.
    const fn empty_at(&mut self, offset: u64) {
        self.start = self.page + (offset % PAGE as u64) as usize;
        self.end = self.start;
    }

    /// Reads from `offset` on until `needed` bytes are in the piece. Returns false when the file
    /// ends before that.
    fn fill(&mut self, input: &mut dyn Read, needed: usize, offset: &mut u64) -> io::Result<bool> {
        if self.bytes().len() < needed {
            self.make_room(needed, *offset);
        }
        while self.bytes().len() < needed {
            let len = self.read(input)?;
            if len == 0 {
                return Ok(false);
            }
            *offset += len as u64;
        }
        Ok(true)
    }

    /// Reads once. Returns the number of bytes read; 0 at the end of the file.
    fn read(&mut self, input: &mut dyn Read) -> io::Result<usize> {
        loop {
            match input.read(&mut self.memory[self.end..]) {
                Ok(len) => {
                    self.end += len;
                    return Ok(len);
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Moves the leftover bytes to just before the place for the bytes at `offset` of the file.
    fn make_room(&mut self, needed: usize, offset: u64) {
        let left_over = self.start..self.end;
        let len = left_over.len();
        let within_page = (offset % PAGE as u64) as usize;
        let room_behind = self.memory.len() - self.page - within_page;
        if len > self.page + within_page || needed - len > room_behind {
            let mut longer = Self::new(needed, needed + PAGE);
            longer.empty_at(offset);
            let end = longer.end;
            longer.memory[end - len..end].copy_from_slice(&self.memory[left_over]);
            longer.start = end - len;
            *self = longer;
        } else {
            let end = self.page + within_page;
            self.memory.copy_within(left_over, end - len);
            (self.start, self.end) = (end - len, end);
        }
    }

    /// Appends the bytes of `next` to the leftover bytes of this piece. `next` can be reused after
    /// that.
    fn go_on(&mut self, next: &mut Self) {
        let len = self.bytes().len();
        if len <= next.start {
            let start = next.start - len;
            next.memory[start..next.start].copy_from_slice(self.bytes());
            next.start = start;
            mem::swap(self, next);
        } else {
            // A record is longer than a piece: the memory grows with it.
            self.memory.truncate(self.end);
            self.memory.drain(..self.start);
            self.memory.extend_from_slice(next.bytes());
            (self.page, self.start, self.end) = (0, 0, self.memory.len());
        }
    }
}

/// A thread that reads the pieces of a file one after the other, up to eight ahead of the decoder.
struct ReadAhead {
    pieces: Receiver<io::Result<Piece>>,
    free: Sender<Piece>,
    thread: Option<JoinHandle<Option<Box<dyn Read + Send>>>>,
}

impl ReadAhead {
    /// Starts a thread that waits for an input and reads it from `offset` on. The thread ends at
    /// the end of the file, or when nobody takes its pieces any more. When nobody takes its pieces,
    /// nobody waits for the thread either, because its read may hang.
    fn start(input: Receiver<Box<dyn Read + Send>>, offset: u64) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let (free, returned) = channel();
        let work = move || {
            let mut input = input.recv().ok()?;
            supply(&mut input, offset, &sender, &returned);
            Some(input)
        };
        let builder = thread::Builder::new().name("read-ahead".to_owned());
        Ok(Self {
            pieces,
            free,
            thread: Some(builder.spawn(work)?),
        })
    }

    /// Returns the next bytes; `None` when the thread has ended.
    fn next(&self) -> Option<io::Result<Piece>> {
        self.pieces.recv().ok()
    }

    /// Appends a piece that was read, and returns how many bytes it has.
    fn append(&self, piece: &mut Piece, mut next: Piece) -> u64 {
        let len = next.bytes().len() as u64;
        piece.go_on(&mut next);
        if next.memory.len() == LEFT_OVER_BYTES + PAGE + BUFFER_BYTES {
            // When the thread has ended, nobody takes the free piece.
            let _taken = self.free.send(next);
        }
        len
    }

    /// Returns the input of a thread that has ended.
    fn end(&mut self) -> io::Result<Box<dyn Read + Send>> {
        let input = self.thread.take().and_then(|thread| thread.join().ok()?);
        input.ok_or_else(|| sys::panicked("that reads it"))
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        IS_READING_AHEAD.store(false, Ordering::Relaxed);
    }
}

/// Sends piece after piece, until the end, an error, or until nobody takes them.
fn supply(
    input: &mut dyn Read,
    mut offset: u64,
    pieces: &SyncSender<io::Result<Piece>>,
    returned: &Receiver<Piece>,
) {
    let mut is_more = true;
    while is_more {
        let mut piece = returned
            .try_recv()
            .unwrap_or_else(|_| Piece::new(LEFT_OVER_BYTES, BUFFER_BYTES));
        piece.empty_at(offset);
        let read = match piece.read(input) {
            Ok(0) => return,
            Ok(len) => {
                offset += len as u64;
                Ok(piece)
            }
            Err(cause) => Err(cause),
        };
        is_more = read.is_ok();
        is_more &= pieces.send(read).is_ok();
    }
}

/// Bytes read at once, so few that the second-level cache still has them when they are decoded.
const BUFFER_BYTES: usize = 256 << 10;
/// Room for leftover bytes. Longer records are rare, and the buffer grows for them.
const LEFT_OVER_BYTES: usize = 64 << 10;
/// The machine's page size or a fraction of it; both work.
const PAGE: usize = 4096;
/// Bytes read before a thread reads ahead: a shorter file would be read before the thread has
/// started.
const AHEAD_AFTER_BYTES: u64 = 4 << 20;
/// Pieces between the two threads, so many that neither waits for each piece; of 2, 4 and 8 pieces,
/// 8 was the fastest.
const PIECES_AHEAD: usize = 8;
static IS_READING_AHEAD: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most this many bytes in each read.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(into.len());
            self.0.read(&mut into[..len])
        }
    }

    /// Two buffers: a thread reads for the first from the start, and for the second when the file
    /// is long.
    fn buffers(input: impl Fn() -> Box<dyn Read + Send>) -> [ReadBuffer; 2] {
        let (give, given) = channel();
        let ahead = ReadAhead::start(given, 0).unwrap();
        give.send(input()).unwrap();
        let mut by_thread = ReadBuffer::new(Box::new(io::empty()), false);
        by_thread.input = Input::Ahead(ahead);
        [by_thread, ReadBuffer::new(input(), true)]
    }

    fn trickle(file: &'static [u8], at_once: usize) -> Box<dyn Read + Send> {
        Box::new(Trickle(file, at_once))
    }

    #[test]
    fn all_bytes_come_in_order_however_they_are_read_and_consumed() {
        let file: Vec<u8> = (0..13_000_000_u32).map(|at| (at % 251) as u8).collect();
        let file: &'static [u8] = file.leak();
        for (at_once, needs) in [
            (usize::MAX, &[16, 90, 1500][..]),
            (5000, &[16, 9000]),
            (70_000, &[4, 100_000, 300_000, 3]),
            (usize::MAX, &[16, 90_000, 1_000_000]),
        ] {
            for mut buffer in buffers(|| trickle(file, at_once)) {
                let mut got = Vec::new();
                for needed in needs.iter().cycle() {
                    let is_whole = buffer.fill(*needed).unwrap();
                    let bytes = buffer.bytes();
                    assert_eq!(is_whole, bytes.len() >= *needed);
                    let len = bytes.len().min(*needed);
                    got.extend_from_slice(&bytes[..len]);
                    buffer.consume(len);
                    if !is_whole {
                        break;
                    }
                }
                assert!(got == file);
            }
        }
    }

    #[test]
    fn bytes_stand_in_their_pages_as_in_the_file() {
        let file: &'static [u8] = vec![7; 6 << 20].leak();
        // The first bytes of a file often come in a read of their own.
        let mut buffer = ReadBuffer::new(Box::new(file[..4].chain(&file[4..])), true);
        while buffer.fill(90).unwrap() {
            let last = buffer.piece.memory[buffer.piece.end..].as_ptr().addr();
            assert_eq!(last % PAGE, (buffer.offset % PAGE as u64) as usize);
            let whole = buffer.bytes().len() / 90 * 90;
            buffer.consume(whole);
        }
    }

    #[test]
    fn an_error_and_a_reader_that_fails_are_told() {
        struct Failing(bool);
        impl Read for Failing {
            fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0, "a test's reader fails");
                Err(io::Error::other("the disk is gone"))
            }
        }
        for (panics, told) in [(false, "the disk is gone"), (true, "thread")] {
            let [mut buffer, _] = buffers(|| Box::new(Failing(panics)));
            let error = buffer.fill(1000).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_rest_is_counted() {
        let file: &'static [u8] = vec![7; 9_000_000].leak();
        for mut buffer in buffers(|| trickle(file, usize::MAX)) {
            assert!(buffer.fill(1000).unwrap());
            buffer.consume(1000);
            assert_eq!(buffer.skip_rest(), 9_000_000 - 1000);
        }
    }
}
