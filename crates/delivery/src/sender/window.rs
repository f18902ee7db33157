//! The sender's view of its objects: reads content in large pieces, hashes it on the way, and hands
//! out blocks.
//!
//! Content is read 256 KiB at a time. So one system call reads many blocks, and the pieces are long
//! enough for BLAKE3 to hash several chunks at once. A cursor goes over the content once, from
//! beginning to end, and everything before the cursor is hashed. Content that the window reads for
//! a pass is hashed from the window; [`Window::hash_ahead`] reads content that no pass sent.
//!
//! ```text
//!   content   |.....hashed.....|cursor..........................|
//!   window                 [###########]      is hashed from the cursor on
//! ```
//!
//! A file that cannot be read is withdrawn, if the sender may do that. From then on it reads as
//! zeros, and its seals say that it is withdrawn. This changes seals that receivers may have been
//! told already.
//!
//! **Spec**: `docs/src/protocol.md` sections 1 and 3.

use std::{collections::BTreeSet, sync::Arc, task::Poll};

use wire::object::ObjectId;

use crate::{Content, ContentError, HASH_LEN, Hash, Manifest, SlabHasher, SlabHashes};

/// A reader and hasher of the objects of one manifest.
#[derive(Debug)]
pub(super) struct Window<C> {
    manifest: Arc<Manifest>,
    content: C,
    buffer: Vec<u8>,
    start: u64,
    /// Takes the content that is read next. The window stays as it is until all of it is there.
    spare: Vec<u8>,
    /// A read was pending: the session's thread is woken once its bytes are there.
    awaits: bool,
    /// The position before which all content is hashed: complete slabs in `hashes`, the current one
    /// in `slab`.
    cursor: u64,
    slab: Option<(u32, SlabHasher)>,
    hashes: SlabHashes,
    /// The hash of the seals object, once all content is hashed.
    seals_hash: Option<Hash>,
    /// True when a file that cannot be read is withdrawn instead of ending the transfer.
    may_withdraw: bool,
    withdrawn: BTreeSet<usize>,
    /// Withdrawals that [`Window::take_news`] has not given yet, with their reasons.
    news: Vec<ContentError>,
    /// How often the seals of all slabs were computed.
    #[cfg(test)]
    completions: u32,
}

impl<C: Content> Window<C> {
    pub(super) fn new(manifest: Arc<Manifest>, content: C, may_withdraw: bool) -> Self {
        let hashes = SlabHashes::unknown(&manifest);
        Self {
            seals_hash: (manifest.slab_count() == 0).then(|| hashes.seals_hash()),
            hashes,
            manifest,
            content,
            buffer: Vec::new(),
            start: 0,
            spare: Vec::new(),
            awaits: false,
            cursor: 0,
            slab: None,
            may_withdraw,
            withdrawn: BTreeSet::new(),
            news: Vec::new(),
            #[cfg(test)]
            completions: 0,
        }
    }

    /// Copies bytes of an object. [`Poll::Pending`] when content has to be waited for: `out` may
    /// then have changed.
    ///
    /// **Panics** (bug): when the range is beyond the object.
    pub(super) fn copy(
        &mut self,
        object: ObjectId,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        let at = |position: u64| usize::try_from(position).expect("held in memory");
        match object {
            ObjectId::MANIFEST => {
                out.copy_from_slice(&self.manifest.bytes()[at(offset)..at(offset) + out.len()]);
            }
            ObjectId::SEALS => self.hashes.copy_seals(at(offset), out),
            _ => {
                let mut done = 0;
                while done < out.len() {
                    let from = offset + done as u64;
                    if self.load(from)?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                    let skip = at(from - self.start);
                    let len = (out.len() - done).min(self.buffer.len() - skip);
                    out[done..done + len].copy_from_slice(&self.buffer[skip..skip + len]);
                    done += len;
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Copies bytes as [`Window::copy`] does, but without moving the window: for content that a
    /// single receiver gets over its own connection.
    pub(super) fn copy_apart(
        &mut self,
        object: ObjectId,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        let window = self.start..self.start + self.buffer.len() as u64;
        let end = offset + out.len() as u64;
        let is_near = window.contains(&offset) && end <= window.end;
        if object != ObjectId::CONTENT || is_near {
            return self.copy(object, offset, out);
        }
        self.read(offset, out)
    }

    /// Copies bytes as [`Window::copy_apart`] does, but moves the window when these bytes are the
    /// next to hash. When content goes over connections only, it is thus hashed as it is sent.
    pub(super) fn copy_hashing(
        &mut self,
        object: ObjectId,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        let range = offset..offset + out.len() as u64;
        if object == ObjectId::CONTENT && range.contains(&self.cursor) {
            return self.copy(object, offset, out);
        }
        self.copy_apart(object, offset, out)
    }

    /// Copies bytes as [`Window::copy_hashing`] does, but for a receiver that is the only one to
    /// get blocks. If these bytes are the next to hash and lie in the system's file cache, they
    /// are read straight into `out` and hashed there: no other receiver needs them in the window.
    pub(super) fn copy_alone(
        &mut self,
        object: ObjectId,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError> {
        let is_next = object == ObjectId::CONTENT && offset == self.cursor;
        if is_next && self.content.read_cached(&self.manifest, offset, out) {
            self.hash(offset, out);
            return Ok(Poll::Ready(()));
        }
        self.copy_hashing(object, offset, out)
    }

    /// Appends `len` bytes of an object to `out`. When the window does not hold all of them, `copy`
    /// reads them.
    pub(super) fn append(
        &mut self,
        copy: Copying<C>,
        (object, offset): (ObjectId, u64),
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Poll<()>, ContentError> {
        let skip = offset.checked_sub(self.start);
        let skip = skip.and_then(|skip| usize::try_from(skip).ok());
        let held = skip.and_then(|skip| self.buffer.get(skip..)?.get(..len));
        if let Some(held) = held.filter(|_| object == ObjectId::CONTENT) {
            out.extend_from_slice(held);
            return Ok(Poll::Ready(()));
        }
        let at = out.len();
        out.resize(at + len, 0);
        copy(self, object, offset, &mut out[at..])
    }

    /// Returns true when a read was pending since [`Window::take_awaits`] was called last.
    pub(super) const fn awaits(&self) -> bool {
        self.awaits
    }

    /// Returns what [`Window::awaits`] does, and forgets it.
    pub(super) const fn take_awaits(&mut self) -> bool {
        std::mem::replace(&mut self.awaits, false)
    }

    /// Returns the position before which all content is hashed.
    pub(super) const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the files withdrawn since the last call, with the reasons.
    pub(super) fn take_news(&mut self) -> Vec<ContentError> {
        std::mem::take(&mut self.news)
    }

    /// Returns the files that are not sent any more.
    pub(super) const fn withdrawn(&self) -> &BTreeSet<usize> {
        &self.withdrawn
    }

    /// Returns true for content of a file that is not sent any more.
    pub(super) fn is_withdrawn(&self, object: ObjectId, offset: u64) -> bool {
        object == ObjectId::CONTENT
            && !self.withdrawn.is_empty()
            && self.withdrawn.contains(&self.manifest.file_at(offset))
    }

    /// Hashes up to one window of content that no pass has sent; returns true when all content is
    /// hashed. [`Poll::Pending`] when content has to be waited for.
    pub(super) fn hash_ahead(&mut self) -> Result<Poll<bool>, ContentError> {
        if self.seals_hash.is_none() && self.load(self.cursor)?.is_pending() {
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(self.seals_hash.is_some()))
    }

    /// Returns the hash of the seals object, once all content is hashed.
    pub(super) const fn seals_hash(&self) -> Option<Hash> {
        self.seals_hash
    }

    /// Returns the hashes of all slabs, once all content is hashed.
    pub(super) fn hashes(&self) -> Option<&SlabHashes> {
        self.seals_hash.is_some().then_some(&self.hashes)
    }

    pub(super) const fn content(&self) -> &C {
        &self.content
    }

    #[cfg(test)]
    pub(super) const fn content_mut(&mut self) -> &mut C {
        &mut self.content
    }

    /// Fills the buffer with the content at `position`, unless the buffer holds it already.
    fn load(&mut self, position: u64) -> Result<Poll<()>, ContentError> {
        let end = self.start + self.buffer.len() as u64;
        if (self.start..end).contains(&position) {
            return Ok(Poll::Ready(()));
        }
        let start = position - position % WINDOW_BYTES;
        let len = WINDOW_BYTES.min(self.manifest.content_bytes() - start);
        let len = usize::try_from(len).expect("a window fits in memory");
        let mut next = std::mem::take(&mut self.spare);
        let outcome =
            self.reading(|content, manifest| content.read_into(manifest, start, len, &mut next));
        if let Ok(Poll::Ready(())) = outcome {
            self.hash(start, &next);
            self.start = start;
            std::mem::swap(&mut self.buffer, &mut next);
        }
        self.spare = next;
        outcome
    }

    /// Reads content, and withdraws files that cannot be read, if that is allowed.
    ///
    /// **Cost**: one more call for each file that it withdraws.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<Poll<()>, ContentError> {
        self.reading(|content, manifest| content.read(manifest, offset, out))
    }

    fn reading(
        &mut self,
        mut read: impl FnMut(&mut C, &Manifest) -> Result<Poll<()>, ContentError>,
    ) -> Result<Poll<()>, ContentError> {
        let withdrawn_before = self.withdrawn.len();
        let outcome = loop {
            let error = match read(&mut self.content, &self.manifest) {
                Err(error) => error,
                read => break read,
            };
            let file = error.file.filter(|_| self.may_withdraw);
            let Some(file) = file.filter(|&file| self.withdrawn.insert(file)) else {
                break Err(error);
            };
            self.content.withdraw(file);
            self.news.push(error);
        };
        self.awaits |= outcome == Ok(Poll::Pending);
        // The seals of all slabs are computed once for all files withdrawn here.
        if self.seals_hash.is_some() && self.withdrawn.len() > withdrawn_before {
            self.complete_seals();
        }
        outcome
    }

    /// Completes the seals when all content is hashed; the seals of a withdrawn file say that it is
    /// withdrawn.
    ///
    /// **Cost**: a hash for each slab.
    fn complete_seals(&mut self) {
        #[cfg(test)]
        {
            self.completions += 1;
        }
        for &file in &self.withdrawn {
            self.hashes.withdraw(&self.manifest, file);
        }
        self.seals_hash = Some(self.hashes.seals_hash());
    }

    /// Hashes content from the cursor on, if the cursor lies in `content`, which begins at `start`.
    fn hash(&mut self, start: u64, content: &[u8]) {
        let end = start + content.len() as u64;
        while (start..end).contains(&self.cursor) {
            let slab = self.manifest.slab_at(self.cursor);
            let stop = slab.range().end.min(end);
            let at = |position: u64| usize::try_from(position - start).expect("in memory");
            let bytes = &content[at(self.cursor)..at(stop)];
            let (index, hasher) = self.slab.get_or_insert_with(|| (slab.index, slab.hasher()));
            assert_eq!(
                *index, slab.index,
                "the cursor left a slab that was not finished"
            );
            hasher.update(bytes);
            self.cursor = stop;
            if stop == slab.range().end {
                self.hashes.set(&slab, &hasher.finish());
                self.slab = None;
            }
        }
        if self.cursor == self.manifest.content_bytes() && self.seals_hash.is_none() {
            self.complete_seals();
        }
    }
}

/// A method of [`Window`] that copies bytes of an object.
pub(super) type Copying<C> =
    fn(&mut Window<C>, ObjectId, u64, &mut [u8]) -> Result<Poll<()>, ContentError>;

/// Bytes of content that are read at a time.
const WINDOW_BYTES: u64 = 256 << 10;

const _: () = assert!(WINDOW_BYTES.is_multiple_of(HASH_LEN as u64));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, hash_bytes, memory::MemoryContent};

    fn sample() -> (Arc<Manifest>, MemoryContent) {
        let entries = vec![
            Entry::file("a", 10),
            Entry::file("b", 3 << 20),
            Entry::file("c", 700_000),
            Entry::file("e", 0),
        ];
        MemoryContent::generate(entries, [0; 16], 4).unwrap()
    }

    fn roots_are_right(window: &Window<MemoryContent>) {
        let hashes = window.hashes().unwrap();
        for (index, file) in window.manifest.files().iter().enumerate() {
            let range = usize::try_from(file.start).unwrap()..;
            let bytes = &window.content.bytes()[range][..usize::try_from(file.size_bytes).unwrap()];
            assert_eq!(window.manifest.root_of(index, hashes), hash_bytes(bytes));
        }
    }

    #[test]
    fn sending_in_order_hashes_everything_once() {
        let (manifest, content) = sample();
        let mut window = Window::new(Arc::clone(&manifest), content, false);
        let mut out = vec![0; 1400];
        let mut at = 0;
        while at < manifest.content_bytes() {
            let len = usize::try_from((manifest.content_bytes() - at).min(1400)).unwrap();
            assert!(
                window
                    .copy(ObjectId::CONTENT, at, &mut out[..len])
                    .unwrap()
                    .is_ready()
            );
            let from = usize::try_from(at).unwrap();
            assert_eq!(out[..len], window.content.bytes()[from..from + len]);
            at += len as u64;
        }
        roots_are_right(&window);
        assert_eq!(window.content().bytes_read, manifest.content_bytes());
    }

    #[test]
    fn a_long_file_for_one_receiver_is_hashed_where_it_is_sent_from() {
        let (manifest, content) = sample();
        let mut window = Window::new(Arc::clone(&manifest), content, false);
        let (mut at, mut apart) = (0, 0);
        while at < manifest.content_bytes() {
            let len = usize::try_from((manifest.content_bytes() - at).min(32_768)).unwrap();
            let mut out = b"header".to_vec();
            let place = (ObjectId::CONTENT, at);
            let appended = window.append(Window::copy_alone, place, len, &mut out);
            assert!(appended.unwrap().is_ready());
            let from = usize::try_from(at).unwrap();
            assert_eq!(out[6..], window.content.bytes()[from..from + len]);
            let windows = window.start..window.start + window.buffer.len() as u64;
            apart += u64::from(!windows.contains(&at));
            at += len as u64;
            assert!(window.cursor() >= at);
        }
        roots_are_right(&window);
        assert!(
            apart > 90,
            "{apart} blocks of 118 did not go through the window"
        );
        let read = window.content().bytes_read;
        assert!(
            read <= manifest.content_bytes() + 2 * WINDOW_BYTES,
            "{read}"
        );
    }

    #[test]
    fn a_long_file_that_fails_while_it_is_sent_to_one_receiver_is_an_error() {
        let (manifest, mut content) = sample();
        content.fails_at = Some(1_000_000);
        content.fails_after_bytes = 500_000;
        let mut window = Window::new(manifest, content, false);
        let mut out = vec![0; 32_768];
        let mut copy = |at| window.copy_alone(ObjectId::CONTENT, at, &mut out);
        let sent = (0..).step_by(32_768).find(|&at| copy(at).is_err());
        assert!(sent.is_some_and(|at| at < 1_000_000), "{sent:?}");
    }

    #[test]
    fn what_no_pass_sent_is_hashed_ahead() {
        let (manifest, content) = sample();
        let mut window = Window::new(manifest, content, false);
        let mut out = [0; 100];
        assert!(
            window
                .copy(ObjectId::CONTENT, 2_000_000, &mut out)
                .unwrap()
                .is_ready()
        );
        assert!(window.hashes().is_none());
        while window.hash_ahead() != Ok(Poll::Ready(true)) {}
        roots_are_right(&window);
        assert!(
            window
                .copy(ObjectId::SEALS, 32, &mut out[..64])
                .unwrap()
                .is_ready()
        );
        let hashes = window.hashes().unwrap();
        assert_eq!(out[..64], [hashes.seal(1), hashes.seal(2)].concat());
    }

    #[test]
    fn a_content_that_fails_is_an_error_each_time() {
        let (manifest, mut content) = sample();
        content.fails_at = Some(1_000_000);
        let mut window = Window::new(manifest, content, false);
        let mut out = [0; 100];
        assert!(window.copy(ObjectId::CONTENT, 0, &mut out).is_ok());
        for _ in 0..2 {
            assert!(window.copy(ObjectId::CONTENT, 1_000_000, &mut out).is_err());
        }
    }

    #[test]
    fn a_file_that_fails_is_withdrawn_where_that_is_allowed_also_after_the_seals() {
        let (manifest, mut content) = sample();
        content.fails_at = Some(1_000_000);
        let mut window = Window::new(Arc::clone(&manifest), content, true);
        while window.hash_ahead() != Ok(Poll::Ready(true)) {}
        let withdrawn = |window: &Window<MemoryContent>| -> Vec<usize> {
            manifest
                .withdrawn(window.hashes().unwrap().witnesses())
                .collect()
        };
        assert_eq!(withdrawn(&window), [1]);
        assert_eq!(window.take_news()[0].file, Some(1));
        let before = window.seals_hash();
        window.content.fails_at = Some(manifest.files()[2].start + 9);
        let mut out = [0; 100];
        let at = manifest.files()[2].start + 100;
        assert!(
            window
                .copy_apart(ObjectId::CONTENT, at, &mut out)
                .unwrap()
                .is_ready()
        );
        assert_eq!((out, withdrawn(&window)), ([0; 100], vec![1, 2]));
        assert_ne!(window.seals_hash(), before);
        assert_eq!(manifest.delivered_bytes(window.hashes().unwrap()), 10);
    }

    /// Content of which no file can be read once it `is_gone`.
    #[derive(Debug)]
    struct Going {
        content: MemoryContent,
        is_gone: bool,
        withdrawn: BTreeSet<usize>,
    }

    impl Content for Going {
        fn read(
            &mut self,
            manifest: &Manifest,
            offset: u64,
            out: &mut [u8],
        ) -> Result<Poll<()>, ContentError> {
            let range = offset..offset + out.len() as u64;
            let mut files = manifest.pieces(range).map(|(index, ..)| index);
            let lost = files.find(|it| self.is_gone && !self.withdrawn.contains(it));
            let gone = || ContentError::new(wire::object::ErrorCode::SourceChanged, "it is gone");
            match lost {
                Some(index) => Err(gone().of_file(index)),
                None => self.content.read(manifest, offset, out),
            }
        }

        fn withdraw(&mut self, file: usize) {
            self.withdrawn.insert(file);
            self.content.withdraw(file);
        }
    }

    #[test]
    fn many_files_that_go_at_once_cost_the_seals_once() {
        let entries = (0..1000).map(|n| Entry::file(&format!("f{n:04}"), 1000));
        let (manifest, content) = MemoryContent::generate(entries.collect(), [0; 16], 4).unwrap();
        let content = Going {
            content,
            is_gone: false,
            withdrawn: BTreeSet::new(),
        };
        let mut window = Window::new(Arc::clone(&manifest), content, true);
        while window.hash_ahead() != Ok(Poll::Ready(true)) {}
        window.content.is_gone = true;
        let mut out = vec![1; 500_000];
        assert!(
            window
                .copy_apart(ObjectId::CONTENT, 0, &mut out)
                .unwrap()
                .is_ready()
        );
        assert!(out.iter().all(|byte| *byte == 0));
        assert_eq!(window.take_news().len(), 500);
        assert_eq!(
            window.completions, 2,
            "when all was read, and when files went"
        );
        let hashes = window.hashes().unwrap();
        assert_eq!(manifest.delivered_bytes(hashes), 500_000);
        assert_eq!(window.seals_hash(), Some(hashes.seals_hash()));
    }
}
