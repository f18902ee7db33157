//! A sender's bytes: the files of its manifest, which a separate thread reads ahead.
//!
//! A sender goes over its content in pieces of 256 KiB. A piece may be part of a long file, or many
//! small files, each of which must be opened first. A thread reads the next pieces into a few
//! buffers. While the session's thread needs pieces in order, it takes them from these buffers. The
//! session's thread itself does the short reads for single receivers that lack some bytes. It also
//! reads a piece of a long file itself, if the system has the piece in memory and the reading
//! thread is not about to read it. Taking such a piece from the reading thread would cost several
//! times as much, because that thread runs on another processor.
//!
//! ```text
//!   session: read(n) ──> taken from the queue ──> room for one more
//!   thread:              [n+1][n+2]...[n+depth]   depth 1; each read in order doubles it, to 8
//! ```
//!
//! A read out of order (a jump) sets the depth to 1 again.
//!
//! Invariants: at most 8 pieces are read ahead. A piece is given only for the exact range that it
//! was read for. A piece that could not be read returns its error each time that it is asked for.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
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
#[derive(Debug)]
pub struct FileContent {
    manifest: Arc<Manifest>,
    roots: Arc<Roots>,
    withdrawn: Withdrawn,
    /// Reads content that was not read ahead.
    files: Files,
    ahead: Option<Arc<Ahead>>,
    has_no_thread: bool,
}

impl FileContent {
    pub(crate) fn new(manifest: Arc<Manifest>, roots: Roots) -> Self {
        let (roots, withdrawn) = (Arc::new(roots), Withdrawn::default());
        Self {
            manifest,
            files: Files::new(Arc::clone(&roots), withdrawn.clone()),
            roots,
            withdrawn,
            ahead: None,
            has_no_thread: false,
        }
    }

    /// Returns the reading thread's queue, and starts the thread on the first call; `None` when the
    /// system gives no thread.
    fn ahead(&mut self) -> Option<&Ahead> {
        if self.ahead.is_none() && !self.has_no_thread {
            let ahead = Arc::new(Ahead::default());
            let (manifest, files) = (
                Arc::clone(&self.manifest),
                Files::new(Arc::clone(&self.roots), self.withdrawn.clone()),
            );
            let theirs = Arc::clone(&ahead);
            let thread = thread::Builder::new().name("content".into());
            let spawned = thread.spawn(move || theirs.run(&manifest, files));
            self.has_no_thread = spawned.is_err();
            self.ahead = spawned.ok().map(|_| ahead);
        }
        self.ahead.as_deref()
    }
}

impl Content for FileContent {
    fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ContentError> {
        self.files.read(manifest, offset, out)
    }

    fn read_into(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ContentError> {
        let is_piece = offset.is_multiple_of(PIECE_BYTES)
            && len as u64 == piece_len(manifest, offset)
            && manifest.id() == self.manifest.id();
        if is_piece {
            out.resize(len, 0);
            if self.read_cached(manifest, offset, out) {
                return Ok(());
            }
            if let Some(ahead) = self.ahead() {
                return ahead.take(offset, out);
            }
        }
        out.resize(len, 0);
        self.files.read(manifest, offset, out)
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
    there: Condvar,
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
    is_stopped: bool,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
    outcome: Result<(), ContentError>,
}

impl Ahead {
    /// Puts the piece at `offset` into `out`, and keeps the old memory of `out` for later pieces.
    /// Waits for the piece if necessary.
    fn take(&self, offset: u64, out: &mut Vec<u8>) -> Result<(), ContentError> {
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
            state.depth = (state.depth * 2).min(DEPTH_MAX);
        } else {
            state.jump_to(offset);
        }
        loop {
            if let Some(piece) = state.pieces.front_mut() {
                let outcome = piece.outcome.clone();
                if outcome.is_ok() {
                    std::mem::swap(out, &mut piece.bytes);
                    state.recycle_first();
                }
                self.wanted.notify_one();
                return outcome;
            }
            self.wanted.notify_one();
            if state.is_stopped {
                let cause = sys::panicked("that reads it");
                let text = format!("cannot read the content: {cause}");
                return Err(ContentError::new(ErrorCode::Io, text));
            }
            state = self
                .there
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, manifest: &Manifest, mut files: Files) {
        let _end = End(self);
        let mut state = self.lock();
        while !state.is_stopped {
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
            self.there.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that is dropped when the reading thread ends, even by a panic. It wakes the session's
/// thread, which would otherwise wait for ever.
struct End<'a>(&'a Ahead);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.there.notify_all();
    }
}

impl State {
    /// Returns true when the piece at `offset` was read ahead, or is the next to read ahead.
    fn is_coming(&self, offset: u64) -> bool {
        (self.first()..=self.next).contains(&offset) && self.depth > 0
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

#[cfg(test)]
mod tests;
