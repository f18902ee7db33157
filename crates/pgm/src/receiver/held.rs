//! The place for data that arrives before its turn: a shared store of pages, and a queue for each
//! session.
//!
//! The module does not decide what to hold or when it is due. In: payloads in any order. Out: the
//! payload with the lowest position, as a slice of its page. A page is filled from its beginning,
//! its bytes never move, and it is free again when no payload in it is wanted any more. Free pages
//! are used again, so holding and handing out allocate nothing once the store has grown to what the
//! sessions need.
//!
//! ```text
//! queue    sqn 7 --.   sqn 9 --.   sqn 12 --.        sorted by position
//! store    page 3 [ 9 | 7 |    ]   page 5 [ 12 | .. free .. ]   free list: page 4
//! ```
//!
//! Part of the store's bound is a reserve for messages in several pieces. One session at a time may
//! take the reserve, for one message, and only when the rest of the bound is used up. Whatever
//! other sessions hold, that message can be put together and handed out; then another session may
//! take the reserve. Without the reserve, the unfinished messages of several sessions could fill
//! the store, so that none could be finished.
//!
//! ```text
//! bytes_max  [ pages and buffers of all sessions            | reserve: one session's buffer ]
//! ```
//!
//! Invariants: a page belongs to one queue; its `live` is the number of entries that point into it.
//! All pages and borrowed bytes together stay within the store's bound; the pages of one queue stay
//! within its `pages_max`. Every entry takes at least [`ENTRY_BYTES_MIN`] bytes of a page, so the
//! bound on pages bounds the number of entries, too.

use std::collections::VecDeque;

use super::apdu::Part;

/// The store: the pages of all sessions.
#[derive(Debug)]
pub(super) struct HeldStore {
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Bytes of all pages that belong to queues, plus the bytes that `borrow_bytes` set aside.
    used_bytes: usize,
    /// The upper limit of `used_bytes`: the bound on the whole store, minus the reserve.
    bytes_max: usize,
    page_bytes: usize,
    /// Number of bytes of the reserve in use, which `used_bytes` does not count; `None` while no
    /// session has the reserve.
    reserve: Option<usize>,
    /// True when a session was refused the reserve, and no memory has been given back since.
    is_awaited: bool,
    has_news: bool,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    live: u32,
}

impl HeldStore {
    /// Makes a store of at most `bytes_max` bytes; `reserve_bytes` of them are the reserve. A page
    /// has `page_bytes` bytes; at least one page fits the store, whatever the other numbers.
    pub(super) fn new(bytes_max: usize, page_bytes: usize, reserve_bytes: usize) -> Self {
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            used_bytes: 0,
            bytes_max: bytes_max.saturating_sub(reserve_bytes).max(page_bytes),
            page_bytes,
            reserve: None,
            is_awaited: false,
            has_news: false,
        }
    }

    /// Returns the payload of an entry. After [`HeldQueue::pop`], the payload stays intact until
    /// another payload is held.
    #[inline]
    pub(super) fn payload(&self, entry: &Entry) -> &[u8] {
        let start = entry.offset as usize;
        &self.pages[entry.page as usize].bytes[start..start + usize::from(entry.len)]
    }

    /// Sets `bytes` bytes of the bound aside for a buffer outside the store. Returns false when
    /// fewer bytes are left.
    pub(super) fn borrow_bytes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.bytes_max - self.used_bytes;
        if fits {
            self.used_bytes += bytes;
        }
        fits
    }

    /// Gives back `bytes` bytes that [`HeldStore::borrow_bytes`] set aside.
    pub(super) fn return_bytes(&mut self, bytes: usize) {
        self.used_bytes -= bytes;
        self.tell();
    }

    /// Gives the reserve to a session. The `bytes` that the session has borrowed then count against
    /// the reserve. Returns false when another session has the reserve; [`HeldStore::take_news`]
    /// tells when to try again.
    pub(super) fn take_reserve(&mut self, bytes: usize) -> bool {
        if self.reserve.is_some() {
            self.is_awaited = true;
            return false;
        }
        self.used_bytes -= bytes;
        self.reserve = Some(bytes);
        true
    }

    /// Takes `bytes` more bytes from the reserve. The calling session must have the reserve.
    pub(super) fn grow_reserve(&mut self, bytes: usize) {
        *self.reserve.get_or_insert(0) += bytes;
    }

    /// Gives the reserve back, with all bytes that were taken from it.
    pub(super) fn return_reserve(&mut self) {
        self.reserve = None;
        self.tell();
    }

    /// Returns true, once, when memory was given back after a session was refused the reserve:
    /// there may be room now.
    pub(super) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    /// Returns true when at least an eighth of the bytes outside the reserve is free.
    pub(super) const fn has_room(&self) -> bool {
        self.bytes_max - self.used_bytes >= self.bytes_max / 8
    }

    /// Returns the number of bytes in use, in pages or borrowed, those of the reserve included.
    pub(super) const fn used_bytes(&self) -> usize {
        match self.reserve {
            Some(bytes) => self.used_bytes + bytes,
            None => self.used_bytes,
        }
    }

    fn tell(&mut self) {
        self.has_news |= std::mem::take(&mut self.is_awaited);
    }

    fn take_page(&mut self) -> Option<u32> {
        if !self.borrow_bytes(self.page_bytes) {
            return None;
        }
        self.free.pop().or_else(|| {
            let page = u32::try_from(self.pages.len()).ok()?;
            self.pages.push(Page {
                bytes: vec![0; self.page_bytes].into_boxed_slice(),
                live: 0,
            });
            Some(page)
        })
    }

    fn return_page(&mut self, page: u32) {
        self.return_bytes(self.page_bytes);
        self.free.push(page);
    }
}

/// The packets that one session holds, by position.
#[derive(Debug)]
pub(super) struct HeldQueue {
    entries: VecDeque<Entry>,
    /// Index of the page that the queue is filling; `fill` is how many bytes of that page are in
    /// use.
    page: Option<u32>,
    fill: usize,
    pages: usize,
    pages_max: usize,
    payload_bytes: u64,
}

/// One held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) position: u64,
    page: u32,
    offset: u32,
    len: u16,
    kind: Kind,
}

/// The kind of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A whole message.
    Whole,
    /// A fragment; its [`Part`] lies before the payload.
    Part,
    /// Nothing usable: the entry holds the position, and its data is lost.
    Broken,
}

/// The content to hold for one position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Whole,
    Part(Part),
    Broken,
}

impl HeldQueue {
    /// Makes a queue of at most `pages_max` pages.
    pub(super) fn new(pages_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            page: None,
            fill: 0,
            pages: 0,
            pages_max,
            payload_bytes: 0,
        }
    }

    /// Stores a copy of `payload` for `position`, which is not held yet. Returns false, and changes
    /// nothing, when the queue or the store is full.
    pub(super) fn push(
        &mut self,
        store: &mut HeldStore,
        position: u64,
        content: Content,
        payload: &[u8],
    ) -> bool {
        let (kind, payload, head) = match content {
            Content::Whole => (Kind::Whole, payload, 0),
            Content::Part(_) => (Kind::Part, payload, Part::LEN),
            Content::Broken => (Kind::Broken, &[][..], 0),
        };
        let Ok(len) = u16::try_from(payload.len()) else {
            return false;
        };
        let Some((page, start)) = self.place(store, head + payload.len()) else {
            return false;
        };
        let bytes = &mut store.pages[page as usize].bytes[start..start + head + payload.len()];
        if let Content::Part(part) = content {
            bytes[..Part::LEN].copy_from_slice(&part.to_bytes());
        }
        bytes[head..].copy_from_slice(payload);
        store.pages[page as usize].live += 1;
        self.payload_bytes += u64::from(len);
        self.insert(Entry {
            position,
            page,
            offset: (start + head) as u32,
            len,
            kind,
        });
        true
    }

    /// Returns the entry with the lowest position.
    #[inline]
    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// Takes out the entry with the lowest position. Its payload stays readable in the store until
    /// another payload is held.
    pub(super) fn pop(&mut self, store: &mut HeldStore) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.payload_bytes -= u64::from(entry.len);
        let page = &mut store.pages[entry.page as usize];
        page.live -= 1;
        if page.live == 0 {
            if self.page == Some(entry.page) {
                self.fill = 0;
            } else {
                self.pages -= 1;
                store.return_page(entry.page);
            }
        }
        Some(entry)
    }

    /// Forgets everything and gives the pages back.
    pub(super) fn clear(&mut self, store: &mut HeldStore) {
        while self.pop(store).is_some() {}
        if let Some(page) = self.page.take() {
            self.pages -= 1;
            store.return_page(page);
        }
        self.entries = VecDeque::new();
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of payload bytes held.
    pub(super) const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Returns true when the queue uses at most half of the pages that it may have.
    pub(super) const fn has_room(&self) -> bool {
        self.pages * 2 <= self.pages_max
    }

    /// Takes room for `bytes` bytes. Returns the page's index and the offset in the page; `None`
    /// when there is no room.
    fn place(&mut self, store: &mut HeldStore, bytes: usize) -> Option<(u32, usize)> {
        let step = bytes.max(ENTRY_BYTES_MIN);
        if let Some(page) = self.page.filter(|_| self.fill + step <= store.page_bytes) {
            let start = self.fill;
            self.fill += step;
            return Some((page, start));
        }
        if step > store.page_bytes || self.pages >= self.pages_max {
            return None;
        }
        let page = store.take_page()?;
        self.page = Some(page);
        self.pages += 1;
        self.fill = step;
        Some((page, 0))
    }

    fn insert(&mut self, entry: Entry) {
        match self.entries.back() {
            Some(back) if back.position > entry.position => {
                let index = self
                    .entries
                    .partition_point(|held| held.position < entry.position);
                self.entries.insert(index, entry);
            }
            _ => self.entries.push_back(entry),
        }
    }
}

impl Entry {
    /// Returns true for a whole message.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// Returns the entry's content; a fragment's [`Part`] is read from the store.
    #[inline]
    pub(super) fn content(&self, store: &HeldStore) -> Content {
        match self.kind {
            Kind::Whole => Content::Whole,
            Kind::Broken => Content::Broken,
            Kind::Part => {
                let end = self.offset as usize;
                let bytes = &store.pages[self.page as usize].bytes[end - Part::LEN..end];
                Content::Part(Part::from_bytes(bytes))
            }
        }
    }
}

/// The fewest bytes that an entry takes, however short its payload.
const ENTRY_BYTES_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn sqns(queue: &HeldQueue) -> Vec<u64> {
        queue.entries.iter().map(|entry| entry.position).collect()
    }

    #[test]
    fn what_was_held_comes_out_by_position() {
        let mut store = HeldStore::new(1 << 20, 4096, 0);
        let mut queue = HeldQueue::new(16);
        for position in [9, 7, 12, 8] {
            assert!(queue.push(&mut store, position, Content::Whole, &[position as u8; 5]));
        }
        assert_eq!(sqns(&queue), [7, 8, 9, 12]);
        assert_eq!(queue.payload_bytes(), 20);
        let entry = queue.pop(&mut store).unwrap();
        assert_eq!(store.payload(&entry), [7; 5]);
        queue.clear(&mut store);
        assert_eq!((store.used_bytes(), queue.payload_bytes()), (0, 0));
    }

    #[test]
    fn a_part_keeps_where_it_belongs() {
        let mut store = HeldStore::new(1 << 20, 4096, 0);
        let mut queue = HeldQueue::new(16);
        let part = Part {
            index: 3,
            offset: 30,
            apdu_len: 100,
        };
        queue.push(&mut store, 5, Content::Part(part), b"payload");
        let entry = *queue.front().unwrap();
        assert!(matches!(entry.content(&store), Content::Part(p) if p == part));
        assert_eq!(store.payload(&entry), b"payload");
    }

    #[test]
    fn pages_are_used_again_and_never_exceed_a_bound() {
        let mut store = HeldStore::new(3 * 4096, 4096, 0);
        let (mut one, mut two) = (HeldQueue::new(2), HeldQueue::new(16));
        let mut position = 0;
        for round in 0..100_u64 {
            while one.push(&mut store, position, Content::Whole, &[0; 1000]) {
                position += 1;
            }
            assert_eq!(
                (position, store.used_bytes()),
                (8 * (round + 1), 8192),
                "own bound"
            );
            while two.push(&mut store, position, Content::Whole, &[]) {
                position += 1;
            }
            assert_eq!(store.used_bytes(), 3 * 4096, "common bound");
            assert_eq!(
                two.entries.len(),
                4096 / ENTRY_BYTES_MIN,
                "empty data is bounded too"
            );
            one.clear(&mut store);
            two.clear(&mut store);
            position = 8 * (round + 1);
        }
        assert_eq!(store.pages.len(), 3);
    }

    #[test]
    fn pages_leave_the_reserve_to_others() {
        let mut store = HeldStore::new(3 * 4096, 4096, 5000);
        let mut queue = HeldQueue::new(16);
        while queue.push(&mut store, 0, Content::Whole, &[0; 4000]) {}
        assert_eq!(store.used_bytes(), 4096);
        assert!(!store.borrow_bytes(5000));
        assert!(store.take_reserve(0));
        store.grow_reserve(5000);
        assert_eq!(store.used_bytes(), 9096);
    }

    #[test]
    fn the_reserve_is_one_sessions_and_whoever_was_refused_is_told() {
        let mut store = HeldStore::new(3 * 4096, 4096, 4096);
        assert!(store.borrow_bytes(100) && store.take_reserve(100));
        store.return_reserve();
        assert_eq!(
            (store.take_news(), store.used_bytes()),
            (false, 0),
            "nobody asked"
        );
        assert!(store.take_reserve(0) && !store.take_reserve(0));
        assert!(!store.take_news(), "there is no room yet");
        store.return_reserve();
        assert_eq!((store.take_news(), store.take_news()), (true, false));
        assert!(store.take_reserve(0));
    }
}
