//! A sender's bytes: the files of its manifest, which a separate thread reads ahead.
//!
//! A sender goes over its content in pieces of 256 KiB. A piece may be part of a long file, or many
//! small files, each of which must be opened first. A thread reads the next pieces into a few
//! buffers. While the session's thread needs pieces in order, it takes them from these buffers. The
//! reading thread also does the short reads for single receivers that lack some bytes; these come
//! before the next piece. What the system has in memory of a long file, the session's thread reads
//! itself, if the reading thread is not about to read it. Taking it from the reading thread would
//! cost several times as much, because that thread runs on another processor.
//!
//! ```text
//!   session: read(n) ──> taken from the queue ──> room for one more
//!   thread:              [n+1][n+2]...[n+depth]   depth 1; each read in order doubles it, to 8
//! ```
//!
//! A read out of order (a jump) sets the depth to 1 again.
//!
//! The session's thread waits for nothing: what is not there yet is pending, and the reading thread
//! wakes the session when it is there. So a disk that stands still delays only those who need what
//! it holds. Two waits remain: the session's thread opens long files itself, and where the system
//! gives no thread, it reads everything itself.
//!
//! Invariants: at most 8 pieces are read ahead, and at most [`SHORT_READS_MAX`] short reads are
//! under way or not taken. Bytes are given only for the exact range that they were read for. A
//! piece that could not be read returns its error each time that it is asked for.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Poll,
    thread,
};

use delivery::{Content, ContentError, Manifest};
use wire::object::ErrorCode;

mod files;
use files::{Files, Withdrawn};
pub(crate) use files::{Parents, Root, Roots};

/// The bytes of a manifest's files, read where they lie.
///
/// When a file's length or modification time has changed, the transfer ends or goes on without the
/// file: otherwise receivers would get a mixture of both versions.
pub struct FileContent {
    manifest: Arc<Manifest>,
    roots: Arc<Roots>,
    withdrawn: Withdrawn,
    /// Reads content that was not read ahead.
    files: Files,
    ahead: Option<Arc<Ahead>>,
    /// Wakes the session that this content belongs to. The reading thread takes it.
    wake: Option<Wake>,
}

type Wake = Box<dyn Fn() + Send>;

impl FileContent {
    pub(crate) fn new(manifest: Arc<Manifest>, roots: Roots) -> Self {
        let (roots, withdrawn) = (Arc::new(roots), Withdrawn::default());
        Self {
            manifest,
            files: Files::new(Arc::clone(&roots), withdrawn.clone()),
            roots,
            withdrawn,
            ahead: None,
            wake: None,
        }
    }

    /// Sets what wakes the session when content is there that was pending. Without it, every read
    /// waits for the disk.
    pub fn wake_by(&mut self, wake: impl Fn() + Send + 'static) {
        self.wake = Some(Box::new(wake));
    }

    /// Reads as [`Content::read`] does, but waits for the disk.
    ///
    /// # Errors
    /// Those of [`Content::read`].
    pub fn read_now(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ContentError> {
        self.files.read(manifest, offset, out)
    }

    /// Returns the reading thread's queue, and starts the thread on the first call; `None` without
    /// a session to wake, and when the system gives no thread.
    fn ahead(&mut self) -> Option<&Ahead> {
        if self.ahead.is_none()
            && let Some(wake) = self.wake.take()
        {
            let ahead = Arc::new(Ahead::default());
            let (manifest, files) = (
                Arc::clone(&self.manifest),
                Files::new(Arc::clone(&self.roots), self.withdrawn.clone()),
            );
            let theirs = Arc::clone(&ahead);
            let thread = thread::Builder::new().name("content".into());
            let spawned = thread.spawn(move || theirs.run(&manifest, files, &wake));
            self.ahead = spawned.ok().map(|_| ahead);
        }
        self.ahead.as_deref()
    }
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("FileContent");
        text.field("files", &self.files).field("ahead", &self.ahead);
        text.finish_non_exhaustive()
    }
}

impl Content for FileContent {
    fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        if self.files.read_cached(manifest, offset, out) {
            return Ok(Poll::Ready(()));
        }
        if manifest.id() == self.manifest.id()
            && let Some(ahead) = self.ahead()
        {
            return ahead.take_short(offset, out);
        }
        self.files.read(manifest, offset, out).map(Poll::Ready)
    }

    fn read_into(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Poll<()>, ContentError> {
        let is_piece = offset.is_multiple_of(PIECE_BYTES)
            && len as u64 == piece_len(manifest, offset)
            && manifest.id() == self.manifest.id();
        if is_piece {
            out.resize(len, 0);
            if self.read_cached(manifest, offset, out) {
                return Ok(Poll::Ready(()));
            }
            if let Some(ahead) = self.ahead() {
                return ahead.take(offset, out);
            }
        }
        out.resize(len, 0);
        self.read(manifest, offset, out)
    }

    fn read_cached(&mut self, manifest: &Manifest, offset: u64, out: &mut [u8]) -> bool {
        let is_coming = |ahead: &Arc<Ahead>| ahead.lock().is_coming(offset);
        let is_coming = self.ahead.as_ref().is_some_and(is_coming);
        !is_coming && self.files.read_cached(manifest, offset, out)
    }

    fn withdraw(&mut self, file: usize) {
        self.withdrawn.add(file);
        if let Some(ahead) = &self.ahead {
            let mut state = ahead.lock();
            let first = state.first();
            state.jump_to(first);
            state.short.clear();
            ahead.wanted.notify_one();
        }
    }
}

impl Drop for FileContent {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            // Nobody waits for the thread to end, because a disk may hang.
            ahead.lock().is_stopped = true;
            ahead.wanted.notify_one();
        }
    }
}

/// What the session's thread and the reading thread share.
#[derive(Debug, Default)]
struct Ahead {
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The pieces that were read ahead, in the order of the content, without gaps.
    pieces: VecDeque<Piece>,
    spare: Vec<Vec<u8>>,
    /// The position at which the reading thread reads next.
    next: u64,
    /// How many pieces may be read ahead.
    depth: usize,
    /// How many times reading ahead started again at a new position (a jump). A piece whose reading
    /// began before a jump is dropped.
    jump: u64,
    /// Short reads, oldest first.
    short: VecDeque<Short>,
    /// The session has found something pending since it was last woken.
    is_awaited: bool,
    is_stopped: bool,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
    outcome: Result<(), ContentError>,
}

/// Bytes that a single receiver lacks.
#[derive(Debug)]
struct Short {
    start: u64,
    len: usize,
    /// What came of it; `None` before it was read.
    read: Option<Result<Vec<u8>, ContentError>>,
}

impl Ahead {
    /// Puts the piece at `offset` into `out`, and keeps the old memory of `out` for later pieces;
    /// or begins to read it.
    fn take(&self, offset: u64, out: &mut Vec<u8>) -> Result<Poll<()>, ContentError> {
        let mut state = self.lock();
        if state.is_coming(offset) {
            // The session has gone past the pieces before `offset`.
            while state
                .pieces
                .front()
                .is_some_and(|piece| piece.start < offset)
            {
                state.recycle_first();
            }
        } else {
            state.jump_to(offset);
        }
        self.wanted.notify_one();
        let Some(piece) = state.pieces.front_mut() else {
            return state.pending();
        };
        let outcome = piece.outcome.clone();
        if outcome.is_ok() {
            std::mem::swap(out, &mut piece.bytes);
            state.recycle_first();
            state.depth = (state.depth * 2).min(DEPTH_MAX);
        }
        outcome.map(Poll::Ready)
    }

    /// Puts the bytes at `offset` into `out`, or begins to read them.
    fn take_short(&self, offset: u64, out: &mut [u8]) -> Result<Poll<()>, ContentError> {
        let mut state = self.lock();
        let is_it = |short: &Short| (short.start, short.len) == (offset, out.len());
        if let Some(at) = state.short.iter().position(is_it) {
            if state.short[at].read.is_none() {
                return state.pending();
            }
            let read = state.short.remove(at).and_then(|short| short.read);
            return read.unwrap_or_else(|| Ok(Vec::new())).map(|bytes| {
                out.copy_from_slice(&bytes);
                Poll::Ready(())
            });
        }
        // Those who asked first and were read may have left.
        if state.short.len() >= SHORT_READS_MAX
            && state
                .short
                .front()
                .is_some_and(|first| first.read.is_some())
        {
            state.short.pop_front();
        }
        if state.short.len() < SHORT_READS_MAX {
            let (start, len, read) = (offset, out.len(), None);
            state.short.push_back(Short { start, len, read });
            self.wanted.notify_one();
        }
        state.pending()
    }

    fn run(&self, manifest: &Manifest, mut files: Files, wake: &Wake) {
        let _end = End(self, wake);
        let mut state = self.lock();
        while !state.is_stopped {
            if let Some((start, len)) = state.next_short() {
                drop(state);
                let mut bytes = vec![0; len];
                let read = files.read(manifest, start, &mut bytes).map(|()| bytes);
                state = self.lock();
                let is_it = |short: &&mut Short| (short.start, short.len) == (start, len);
                if let Some(short) = state.short.iter_mut().find(is_it) {
                    short.read = Some(read);
                }
                state = self.tell(state, wake);
                continue;
            }
            let has_failed = state
                .pieces
                .back()
                .is_some_and(|piece| piece.outcome.is_err());
            let is_over = state.next >= manifest.content_bytes() || has_failed;
            if is_over || state.pieces.len() >= state.depth {
                state = self
                    .wanted
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (start, jump) = (state.next, state.jump);
            let mut bytes = state.spare.pop().unwrap_or_default();
            drop(state);
            let len = piece_len(manifest, start);
            bytes.resize(usize::try_from(len).unwrap_or(0), 0);
            let outcome = files.read(manifest, start, &mut bytes);
            state = self.lock();
            if state.jump != jump {
                state.spare.push(bytes);
                continue;
            }
            state.next = start + len;
            state.pieces.push_back(Piece {
                start,
                bytes,
                outcome,
            });
            state = self.tell(state, wake);
        }
    }

    /// Wakes the session if it has found something pending. It tries again whatever that was.
    fn tell<'a>(&'a self, mut state: MutexGuard<'a, State>, wake: &Wake) -> MutexGuard<'a, State> {
        if !std::mem::take(&mut state.is_awaited) {
            return state;
        }
        drop(state);
        wake();
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that is dropped when the reading thread ends, even by a panic. It wakes the session's
/// thread, which would otherwise wait for ever.
struct End<'a>(&'a Ahead, &'a Wake);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.1();
    }
}

impl State {
    /// Returns true when the piece at `offset` was read ahead, or is the next to read ahead.
    fn is_coming(&self, offset: u64) -> bool {
        (self.first()..=self.next).contains(&offset) && self.depth > 0
    }

    /// Notes that the session is to be woken. An error once nobody reads any more.
    fn pending(&mut self) -> Result<Poll<()>, ContentError> {
        if self.is_stopped {
            let cause = sys::panicked("that reads it");
            let text = format!("cannot read the content: {cause}");
            return Err(ContentError::new(ErrorCode::Io, text));
        }
        self.is_awaited = true;
        Ok(Poll::Pending)
    }

    /// Returns the position and length of the oldest short read that was not read yet.
    fn next_short(&self) -> Option<(u64, usize)> {
        let short = self.short.iter().find(|short| short.read.is_none())?;
        Some((short.start, short.len))
    }

    fn first(&self) -> u64 {
        self.pieces.front().map_or(self.next, |piece| piece.start)
    }

    fn recycle_first(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.spare.push(piece.bytes);
        }
    }

    fn jump_to(&mut self, offset: u64) {
        while !self.pieces.is_empty() {
            self.recycle_first();
        }
        self.next = offset;
        self.depth = 1;
        self.jump += 1;
    }
}

/// Returns the length in bytes of the piece at `start`. `start` is a multiple of [`PIECE_BYTES`].
fn piece_len(manifest: &Manifest, start: u64) -> u64 {
    PIECE_BYTES.min(manifest.content_bytes().saturating_sub(start))
}

/// Length of a piece in bytes; the last piece of the content may be shorter.
const PIECE_BYTES: u64 = 256 << 10;
/// The most pieces that are read ahead: 2 MiB together.
const DEPTH_MAX: usize = 8;
/// The most short reads that are under way or not taken.
const SHORT_READS_MAX: usize = 64;

#[cfg(test)]
mod tests;
