//! The queue between the session's thread and the disk's thread.
//!
//! ```text
//!   session: extent being filled --full or asked for--> requests --> disk: write, hash, commit
//!            <--events-- <--emptied buffers-- + the owner's waker
//! ```
//!
//! Invariants: the buffers of extents, filled or empty, never exceed the bytes allowed. Waiting
//! events are bounded, because each follows from a request, and requests are bounded. Requests are
//! served in the order in which they were made.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use delivery::{Manifest, StoreEvent};

/// Something for the disk's thread to do.
#[derive(Debug)]
pub(super) enum Request {
    Prepare(Arc<Manifest>),
    Extent(Extent),
    Hash(u32),
    /// Give all files their names, except those at these indices.
    Commit(Vec<usize>),
}

/// Pieces of the content in the order in which they came, and the slabs to hash once the pieces are
/// written.
#[derive(Debug)]
pub(super) struct Extent {
    /// How many bytes the extent has room for.
    bytes_max: usize,
    /// The bytes of all pieces, end to end.
    bytes: Vec<u8>,
    /// For each piece, its range in the transfer's content, and its offset in `bytes`.
    pieces: Vec<(Range<u64>, usize)>,
    pub(super) slabs: Vec<u32>,
}

impl Extent {
    const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: Vec::new(),
            pieces: Vec::new(),
            slabs: Vec::new(),
        }
    }

    /// Takes bytes of the content; returns false when the extent is full.
    pub(super) fn push(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if self.bytes.capacity() == 0 {
            // Each of the few buffers allocates once, and is then used again and again.
            self.bytes.reserve_exact(self.bytes_max);
        }
        let end = offset + bytes.len() as u64;
        if !self.is_empty() && self.bytes.len() + bytes.len() > self.bytes_max {
            return false;
        }
        let is_full = self.pieces.len() >= PIECES_MAX;
        match self.pieces.last_mut() {
            Some((last, _)) if last.end == offset => last.end = end,
            _ if is_full => return false,
            _ => self.pieces.push((offset..end, self.bytes.len())),
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns true when the disk's thread should be woken to write this extent: the session waits
    /// for a hash of its slabs, or the extent is at least a quarter full. For less, a wake-up costs
    /// too much: as much as writing several packets.
    pub(super) const fn is_worth_a_wake_up(&self) -> bool {
        !self.slabs.is_empty() || self.bytes.len() >= self.bytes_max / 4
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<u64>, &[u8])> {
        self.pieces.iter().map(|(range, at)| {
            let len = usize::try_from(range.end - range.start).expect("a piece is in memory");
            (range.clone(), &self.bytes[*at..at + len])
        })
    }

    /// Returns the bytes of `range`, if one piece has all of them and no later piece changed any.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<&[u8]> {
        let touches = |piece: &Range<u64>| piece.start < range.end && range.start < piece.end;
        // The search begins at the newest piece, because it mostly has the range.
        let (piece, at) = self.pieces.iter().rev().find(|(piece, _)| touches(piece))?;
        if range.start < piece.start || piece.end < range.end {
            return None;
        }
        let from = at + usize::try_from(range.start - piece.start).ok()?;
        let len = usize::try_from(range.end - range.start).ok()?;
        self.bytes.get(from..from + len)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.slabs.clear();
    }
}

/// The queue between the session's thread and the disk's thread; both threads share it.
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    end: Condvar,
    notify: Option<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    requests: VecDeque<Request>,
    events: VecDeque<StoreEvent>,
    notes: Vec<String>,
    spare: Vec<Extent>,
    /// The most extents (buffers of content) that may exist, and how many bytes each holds.
    extents: usize,
    extent_bytes: usize,
    /// How many extents may still be made.
    unmade: usize,
    /// The disk's thread has nothing to do.
    is_idle: bool,
    /// The session holds an extent back until the disk's thread has nothing to do.
    is_held_back: bool,
    is_stopped: bool,
    is_ended: bool,
}

impl State {
    fn is_behind(&self) -> bool {
        // The left side includes the extent that the session is filling. That extent alone never
        // means that the disk is behind, so the right side is at least 1.
        self.extents - self.unmade - self.spare.len() > (self.extents / 4).max(1)
    }
}

impl Queue {
    /// Makes a queue for `bytes_max` bytes of content, with at least two extents. When fewer than
    /// [`EXTENTS_MIN`] extents of [`EXTENT_BYTES`] would fit, the extents are shorter.
    pub(super) fn new(bytes_max: usize, notify: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        let extent_bytes = (bytes_max / EXTENTS_MIN).clamp(EXTENT_BYTES_MIN, EXTENT_BYTES);
        let extents = (bytes_max / extent_bytes).max(2);
        let state = State {
            requests: VecDeque::new(),
            events: VecDeque::new(),
            notes: Vec::new(),
            spare: Vec::new(),
            extents,
            extent_bytes,
            unmade: extents,
            is_idle: false,
            is_held_back: false,
            is_stopped: false,
            is_ended: false,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            end: Condvar::new(),
            notify,
        }
    }

    // Functions that the session's thread calls:

    pub(super) fn push(&self, request: Request) {
        self.lock().requests.push_back(request);
        self.work.notify_one();
    }

    /// Returns an empty extent; `None` while all are on their way to the disk.
    pub(super) fn take_spare(&self) -> Option<Extent> {
        let mut state = self.lock();
        if let Some(extent) = state.spare.pop() {
            return Some(extent);
        }
        state.unmade = state.unmade.checked_sub(1)?;
        Some(Extent::new(state.extent_bytes))
    }

    /// Returns true while more than a quarter of the extents are being filled or on their way to
    /// the disk. The other extents are for data that the sender sends before it hears of that.
    pub(super) fn is_behind(&self) -> bool {
        self.lock().is_behind()
    }

    /// Returns the next event, and what the disk's thread is doing. `holds` says that the session
    /// holds an extent back: the session is then woken once the disk's thread has nothing to do.
    pub(super) fn poll(&self, holds: bool) -> (Option<StoreEvent>, Idle) {
        let mut state = self.lock();
        let idle = match (state.is_ended, state.is_idle && state.requests.is_empty()) {
            (true, _) => Idle::Ended,
            (false, true) => Idle::Yes,
            (false, false) => Idle::No,
        };
        state.is_held_back = holds && idle == Idle::No;
        (state.events.pop_front(), idle)
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Drops all events, and all queued requests except those that write content.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        // No more content comes, so no empty buffer is needed.
        state.spare = Vec::new();
        state.requests.retain(|r| matches!(r, Request::Extent(_)));
        state.events.clear();
        self.work.notify_one();
    }

    /// Returns true when the disk's thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Waits for the disk's thread to end, but no longer than `at_most`, because a disk may hang.
    pub(super) fn wait_for_end(&self, at_most: Duration) {
        let ended = self
            .end
            .wait_timeout_while(self.lock(), at_most, |state| !state.is_ended);
        drop(ended);
    }

    // Functions that the disk's thread calls:

    /// Waits for the next request and returns it; `None` when no more requests will come.
    pub(super) fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        loop {
            if let Some(request) = state.requests.pop_front() {
                state.is_idle = false;
                return Some(request);
            }
            if state.is_stopped {
                return None;
            }
            state.is_idle = true;
            if std::mem::take(&mut state.is_held_back) {
                drop(state);
                self.wake();
                state = self.lock();
                continue;
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().requests.is_empty()
    }

    /// Gives an emptied extent back.
    pub(super) fn give_back(&self, mut extent: Extent) {
        extent.clear();
        let mut state = self.lock();
        if state.is_stopped {
            return;
        }
        let was_behind = state.is_behind();
        state.spare.push(extent);
        let has_caught_up = was_behind && !state.is_behind();
        drop(state);
        if has_caught_up {
            // The session may have stopped reading its connection because the disk was behind.
            self.wake();
        }
    }

    pub(super) fn tell(&self, events: &mut Vec<StoreEvent>) {
        if events.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.is_stopped {
            events.clear();
        }
        state.events.extend(events.drain(..));
        drop(state);
        self.wake();
    }

    pub(super) fn note(&self, note: String) {
        self.lock().notes.push(note);
    }

    /// Notes that the disk's thread has ended, perhaps by a panic.
    pub(super) fn ended(&self) {
        let mut state = self.lock();
        state.is_ended = true;
        // The session may keep the queue after the thread has ended, so free its content now.
        state.requests = VecDeque::new();
        state.spare = Vec::new();
        drop(state);
        self.end.notify_all();
        self.wake();
    }

    fn wake(&self) {
        if let Some(notify) = &self.notify {
            notify();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the disk's thread has nothing to do, is busy, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    Yes,
    No,
    Ended,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The most bytes of an extent. One extent puts hundreds of small writes together.
pub(super) const EXTENT_BYTES: usize = 256 << 10;
/// How many extents of [`EXTENT_BYTES`] a queue must have room for. A queue with less memory has
/// shorter extents, but none is shorter than [`EXTENT_BYTES_MIN`].
const EXTENTS_MIN: usize = 4;
/// Bytes of the shortest extent: room for two of the longest blocks that a connection carries.
const EXTENT_BYTES_MIN: usize = 64 << 10;
/// The most pieces of an extent. A piece mostly has a thousand bytes or more, so an extent usually
/// reaches [`EXTENT_BYTES`] before it has this many pieces.
const PIECES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_session_is_woken_when_the_disk_has_nothing_to_do_and_it_holds_something_back() {
        for holds in [true, false] {
            let (bell, rings) = mpsc::channel();
            let bell = Mutex::new(bell);
            let ring = move || bell.lock().unwrap().send(()).unwrap();
            let queue = Arc::new(Queue::new(4 * EXTENT_BYTES, Some(Box::new(ring))));
            // The disk's thread has not looked yet.
            assert_eq!(queue.poll(holds), (None, Idle::No));
            let disk = Arc::clone(&queue);
            let disk = std::thread::spawn(move || disk.next().is_none());
            let limit = Duration::from_secs(30);
            if holds {
                rings.recv_timeout(limit).expect("nobody rings");
            }
            while queue.poll(holds).1 != Idle::Yes {
                std::thread::yield_now();
            }
            // It is idle: what was held back can be handed over, and nobody need ring for it.
            queue.stop();
            assert!(disk.join().unwrap());
            assert_eq!(rings.try_iter().count(), 0, "holds: {holds}");
        }
    }

    #[test]
    fn bytes_that_a_later_piece_changed_are_not_found() {
        let mut extent = Extent::new(EXTENT_BYTES);
        assert!(extent.push(100, &[1; 100]) && extent.push(300, &[2; 50]));
        assert_eq!(extent.find(&(110..200)), Some(&[1; 90][..]));
        assert!(extent.push(190, &[3; 20]));
        assert_eq!(extent.find(&(110..200)), None);
        assert_eq!(extent.find(&(195..205)), Some(&[3; 10][..]));
        assert_eq!(extent.find(&(110..190)), Some(&[1; 80][..]));
        assert_eq!(extent.find(&(340..360)), None);
    }

    #[test]
    fn a_queue_that_is_over_keeps_no_buffers() {
        let queue = Queue::new(4 * EXTENT_BYTES_MIN, None);
        let take = || queue.take_spare().unwrap();
        let (idle, at_disk, left) = (take(), take(), take());
        queue.give_back(idle);
        queue.push(Request::Extent(left));
        queue.stop();
        assert_eq!(queue.lock().spare.len(), 0, "nothing comes any more");
        assert_eq!(queue.lock().requests.len(), 1, "what has come is written");
        queue.give_back(at_disk);
        assert_eq!(queue.lock().spare.len(), 0);
        queue.ended();
        assert_eq!(queue.lock().requests.len(), 0);
    }

    #[test]
    fn a_short_queue_is_not_behind_for_the_run_that_is_being_filled() {
        let queue = Queue::new(2 * EXTENT_BYTES_MIN, None);
        let first = queue.take_spare().unwrap();
        assert!(!queue.is_behind());
        let second = queue.take_spare().unwrap();
        assert!(queue.is_behind() && queue.take_spare().is_none());
        queue.give_back(first);
        assert!(!queue.is_behind());
        queue.give_back(second);
    }
}
