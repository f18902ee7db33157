//! Control connections as the state machines see them: each has a decoder and a bounded queue.
//!
//! [`Links`] frames and queues; it does not know what the messages mean.
//!
//! ```text
//!   Data ----> decoder ----> messages           queue() ----> out ----> poll() ----> link_sent()
//! ```
//!
//! Invariants: a link is in `sendable` exactly when it has bytes queued and is not blocked. A
//! closing link is removed from `links` once its queued bytes are sent.
//!
//! **Spec**: `docs/src/protocol.md` section 5.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    net::SocketAddr,
};

use base::LinkId;
use wire::object::{
    BODY_LEN_MAX, Block, Decoder, HELLO_LEN_MAX, Message, ObjectId, StreamError, TAG_LEN,
    protect_frame,
};

use super::protect::LinkProtection;
use crate::parameters::LINK_QUEUE_MAX;

/// What a state machine asks the back end to do with control connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCommand<'a> {
    /// Dial `peer`; `link_opened(key, link)` then gives the connection's number.
    Open {
        /// The address to dial.
        peer: SocketAddr,
        /// The number by which the state machine recognises its request.
        key: u32,
    },
    /// Send these bytes; `link_sent(link, taken)` then says how many the back end took.
    Send {
        /// The connection.
        link: LinkId,
        /// Bytes from the front of the connection's queue.
        bytes: &'a [u8],
    },
    /// Stop reading from the connection, or resume reading.
    Pause {
        /// The connection.
        link: LinkId,
        /// True to stop reading, false to resume.
        is_paused: bool,
    },
    /// Close the connection once the back end has sent what it took.
    Close {
        /// The connection.
        link: LinkId,
    },
}

/// All control connections of one state machine.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    sendable: BTreeSet<LinkId>,
    opens: VecDeque<(SocketAddr, u32)>,
    /// How many [`LinkCommand::Open`] the back end was given and has not answered.
    opening: u32,
    closes: VecDeque<LinkId>,
    /// Links that the back end is to pause or resume; at most one entry for each.
    pauses: BTreeMap<LinkId, bool>,
    /// The link with which the round over `sendable` continues, so that every link gets its turn.
    turn: u32,
}

/// One connection, with what has arrived on it and what waits to leave.
#[derive(Debug)]
pub(crate) struct Link {
    decoder: Option<Decoder>,
    /// When set, every further message is protected.
    protection: Option<LinkProtection>,
    body_len_max: usize,
    out: Vec<u8>,
    head: usize,
    /// How many bytes the last [`LinkCommand::Send`] gave to the back end; 0 once that has
    /// answered.
    given: usize,
    is_blocked: bool,
    is_paused: bool,
    is_closing: bool,
}

impl Links {
    /// Requests a connection to `peer`; `key` names the request.
    pub(crate) fn open(&mut self, peer: SocketAddr, key: u32) {
        self.opens.push_back((peer, key));
    }

    /// Withdraws the request `key` for a connection, unless [`Links::poll`] has returned it.
    pub(crate) fn withdraw(&mut self, key: u32) {
        self.opens.retain(|&(_, asked)| asked != key);
    }

    /// Takes a connection in. Until [`Links::greeted`] only short messages are accepted.
    pub(crate) fn insert(&mut self, link: LinkId) {
        let fresh = Link {
            decoder: Some(Decoder::new(HELLO_LEN_MAX)),
            protection: None,
            body_len_max: HELLO_LEN_MAX,
            out: Vec::new(),
            head: 0,
            given: 0,
            is_blocked: false,
            is_paused: false,
            is_closing: false,
        };
        self.links.insert(link, fresh);
    }

    /// Takes a connection out, with what has arrived on it; `None` when it is gone or closing, or
    /// has bytes to send.
    pub(crate) fn take(&mut self, link: LinkId) -> Option<Link> {
        let entry = self.links.get(&link)?;
        if entry.is_closing || entry.queued() > 0 {
            return None;
        }
        let entry = self.links.remove(&link);
        self.sendable.remove(&link);
        self.pauses.remove(&link);
        entry
    }

    /// Takes in a connection that [`Links::take`] took out of another `Links`.
    pub(crate) fn adopt(&mut self, link: LinkId, entry: Link) {
        self.links.insert(link, entry);
    }

    /// Accepts longer messages from now on: the peer has said who it is, or this end has dialled
    /// it.
    pub(crate) fn greeted(&mut self, link: LinkId) {
        if let Some(entry) = self.links.get_mut(&link) {
            entry.body_len_max = BODY_LEN_MAX;
        }
    }

    /// Protects every further message on the link, in both directions.
    pub(crate) fn protect(&mut self, link: LinkId, protection: LinkProtection) {
        if let Some(entry) = self.links.get_mut(&link) {
            entry.protection = Some(protection);
        }
    }

    /// Returns the next message of a link whose decoder was taken. On a protected link, a message
    /// that is forged, repeated or out of its place is an error.
    pub(crate) fn next_message<'d>(
        &mut self,
        link: LinkId,
        decoder: &'d mut Decoder,
    ) -> Result<Option<Message<'d>>, StreamError> {
        let Some(entry) = self.links.get_mut(&link) else {
            return Ok(None);
        };
        decoder.set_body_len_max(entry.body_len_max);
        match &mut entry.protection {
            None => decoder.next_message(),
            Some(protection) => {
                decoder.next_protected(|header, body, tag| protection.open(header, body, tag))
            }
        }
    }

    /// Returns true while messages of the link are to be handled.
    pub(crate) fn is_open(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|entry| !entry.is_closing)
    }

    /// Returns the number of connections, including those that are closing.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns true when there is nothing left to send, open or close.
    pub(crate) fn is_idle(&self) -> bool {
        let is_quiet = |link: &Link| link.queued() == 0 && !link.is_closing;
        self.opens.is_empty() && self.closes.is_empty() && self.links.values().all(is_quiet)
    }

    /// Takes the link's decoder out, so that `self` can change while the caller handles messages.
    pub(crate) fn take_decoder(&mut self, link: LinkId) -> Option<Decoder> {
        let entry = self.links.get_mut(&link)?;
        if entry.is_closing {
            return None;
        }
        entry.decoder.take()
    }

    /// Puts the decoder back; drops it when the link is gone or closing.
    pub(crate) fn put_decoder(&mut self, link: LinkId, decoder: Decoder) {
        if let Some(entry) = self.links.get_mut(&link).filter(|entry| !entry.is_closing) {
            entry.decoder = Some(decoder);
        }
    }

    /// Returns true when `link` is one of these connections, even if it is closing.
    pub(crate) fn contains(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// Queues a message. Returns false when the link is gone or closing, or when its queue is full,
    /// because the peer does not read.
    #[must_use]
    pub(crate) fn queue(&mut self, link: LinkId, message: &Message<'_>) -> bool {
        if let Some(entry) = self.links.get_mut(&link).filter(|it| it.queued() == 0) {
            entry.out.shrink_to(SPARE_MAX);
        }
        let queued = self.queue_with::<Infallible>(link, |out| {
            message.emit(out);
            Ok(())
        });
        matches!(queued, Ok(true))
    }

    /// Queues a block of an object. `fill` appends the block's `len` bytes straight to the queue.
    /// Returns false in the same cases as [`Links::queue`]; when `fill` fails, nothing is queued.
    pub(crate) fn queue_block<E>(
        &mut self,
        link: LinkId,
        place: (ObjectId, u64),
        len: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.queue_with(link, |out| Block::emit_filled(out, place, len, fill))
    }

    fn queue_with<E>(
        &mut self,
        link: LinkId,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(entry) = self.links.get_mut(&link) else {
            return Ok(false);
        };
        if entry.is_closing || entry.queued() > LINK_QUEUE_MAX {
            return Ok(false);
        }
        entry.compact();
        let start = entry.out.len();
        write(&mut entry.out)?;
        if let Some(protection) = &mut entry.protection {
            protect_frame(&mut entry.out, start, |header, body| {
                protection.seal(header, body)
            });
        }
        if !entry.is_blocked {
            self.sendable.insert(link);
        }
        Ok(true)
    }

    /// Queues whole frames as they are, without protection; they may exceed the queue's bound.
    pub(crate) fn queue_bytes(&mut self, link: LinkId, bytes: &[u8]) {
        let Some(entry) = self.links.get_mut(&link).filter(|it| !it.is_closing) else {
            return;
        };
        entry.compact();
        entry.out.extend_from_slice(bytes);
        if !entry.is_blocked && entry.queued() > 0 {
            self.sendable.insert(link);
        }
    }

    /// Returns how many queued bytes the back end has not taken; `None` for a link that is gone or
    /// closing.
    pub(crate) fn queued(&self, link: LinkId) -> Option<usize> {
        let entry = self.links.get(&link)?;
        (!entry.is_closing).then(|| entry.queued())
    }

    /// Pauses or resumes reading the link; returns true when that changes anything.
    pub(crate) fn pause(&mut self, link: LinkId, is_paused: bool) -> bool {
        let Some(entry) = self.links.get_mut(&link) else {
            return false;
        };
        if entry.is_closing || entry.is_paused == is_paused {
            return false;
        }
        entry.is_paused = is_paused;
        self.pauses.insert(link, is_paused);
        true
    }

    /// Closes the link once its queue is empty.
    pub(crate) fn close(&mut self, link: LinkId) {
        let Some(entry) = self.links.get_mut(&link) else {
            return;
        };
        entry.is_closing = true;
        entry.decoder = None;
        if entry.queued() == 0 {
            self.finish(link);
        }
    }

    /// Queues a last message, and closes the link once it is sent. Closes the link at once when the
    /// message cannot be queued.
    pub(crate) fn close_with(&mut self, link: LinkId, message: &Message<'_>) {
        if self.queue(link, message) {
            self.close(link);
        } else {
            self.abort(link);
        }
    }

    /// As [`Links::close_with`], but with a tag that no key makes, whatever protects the link: the
    /// frame is nothing by which a guessed key could be tested.
    pub(crate) fn close_without_key(&mut self, link: LinkId, message: &Message<'_>) {
        let mut frame = Vec::new();
        message.emit(&mut frame);
        protect_frame(&mut frame, 0, |_, _| [0; TAG_LEN]);
        self.queue_bytes(link, &frame);
        self.close(link);
    }

    /// Closes the link and drops its queue. Used when the peer does not read, or must not get the
    /// queued bytes.
    pub(crate) fn abort(&mut self, link: LinkId) {
        if self.links.contains_key(&link) {
            self.finish(link);
        }
    }

    /// Closes every link and drops what is queued.
    pub(crate) fn abort_all(&mut self) {
        self.closes.extend(self.links.keys());
        self.links.clear();
        self.sendable.clear();
        self.pauses.clear();
    }

    fn finish(&mut self, link: LinkId) {
        self.forget(link);
        self.closes.push_back(link);
    }

    /// Forgets a link that is over.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.sendable.remove(&link);
        self.pauses.remove(&link);
    }

    /// Notes that the link has room again.
    pub(crate) fn writable(&mut self, link: LinkId) {
        if let Some(entry) = self.links.get_mut(&link) {
            entry.is_blocked = false;
            if entry.queued() > 0 {
                self.sendable.insert(link);
            }
        }
    }

    /// Notes that the back end answered a [`LinkCommand::Open`].
    ///
    /// **Panics**: in debug builds, when no [`LinkCommand::Open`] was given out.
    #[track_caller]
    pub(crate) fn opened(&mut self) {
        debug_assert!(
            self.opening > 0,
            "link_opened without a LinkCommand::Open that it answers"
        );
        self.opening = self.opening.saturating_sub(1);
    }

    /// Notes how many bytes of a [`LinkCommand::Send`] the back end took.
    ///
    /// **Panics**: in debug builds, when it took more than it was given.
    #[track_caller]
    pub(crate) fn sent(&mut self, link: LinkId, taken: usize) {
        let Some(entry) = self.links.get_mut(&link) else {
            return;
        };
        let given = std::mem::take(&mut entry.given);
        debug_assert!(
            taken <= given,
            "link_sent says that {taken} bytes of {link:?} were taken, of {given} that \
             LinkCommand::Send gave"
        );
        entry.head += taken.min(entry.queued());
        self.sendable.remove(&link);
        if entry.queued() > 0 {
            entry.is_blocked = true;
            return;
        }
        entry.compact();
        if entry.is_closing {
            self.finish(link);
        }
    }

    /// Returns true when [`Links::poll`] has something to give.
    pub(crate) fn has_command(&self) -> bool {
        let has_other = !(self.opens.is_empty() && self.closes.is_empty());
        has_other || !(self.pauses.is_empty() && self.sendable.is_empty())
    }

    /// Returns the next command: first all dials, then closes, then pauses, then sends, for which
    /// the links take turns.
    pub(crate) fn poll(&mut self) -> Option<LinkCommand<'_>> {
        if let Some((peer, key)) = self.opens.pop_front() {
            self.opening += 1;
            return Some(LinkCommand::Open { peer, key });
        }
        if let Some(link) = self.closes.pop_front() {
            return Some(LinkCommand::Close { link });
        }
        if let Some((link, is_paused)) = self.pauses.pop_first() {
            return Some(LinkCommand::Pause { link, is_paused });
        }
        let after = self.sendable.range(LinkId(self.turn)..).next();
        let link = *after.or_else(|| self.sendable.first())?;
        self.turn = link.0.wrapping_add(1);
        let entry = self.links.get_mut(&link)?;
        entry.given = entry.queued();
        let bytes = &entry.out[entry.head..];
        Some(LinkCommand::Send { link, bytes })
    }
}

impl Link {
    const fn queued(&self) -> usize {
        self.out.len() - self.head
    }

    /// Removes the sent bytes from the buffer when they are more than half of it, so that the rest
    /// is seldom moved. Keeps the buffer's memory; [`Links::queue`] frees most of it once the queue
    /// is empty.
    fn compact(&mut self) {
        if self.head == self.out.len() {
            self.out.clear();
            self.head = 0;
        } else if self.head > self.out.len() / 2 {
            self.out.drain(..self.head);
            self.head = 0;
        }
    }
}

/// Bytes of buffer that an empty queue keeps: [`Links::queue`] cuts a larger buffer to this size.
const SPARE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkId = LinkId(3);
    const B: LinkId = LinkId(5);

    fn send_of(links: &mut Links) -> Option<(LinkId, usize)> {
        match links.poll()? {
            LinkCommand::Send { link, bytes } => Some((link, bytes.len())),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn a_short_send_waits_for_room() {
        let mut links = Links::default();
        links.insert(A);
        assert!(links.queue(A, &Message::Bye));
        assert_eq!(send_of(&mut links), Some((A, 8)));
        links.sent(A, 3);
        assert_eq!(links.poll(), None);
        assert!(links.queue(A, &Message::Bye));
        assert_eq!(links.poll(), None, "still blocked");
        links.writable(A);
        assert_eq!(send_of(&mut links), Some((A, 13)));
        links.sent(A, 13);
        assert_eq!(links.queued(A), Some(0));
        assert!(links.is_idle());
    }

    #[test]
    fn links_take_turns_and_close_after_their_bytes() {
        let mut links = Links::default();
        links.insert(A);
        links.insert(B);
        assert!(links.queue(A, &Message::Bye) && links.queue(B, &Message::Bye));
        links.close(A);
        assert_eq!(send_of(&mut links), Some((A, 8)));
        assert_eq!(send_of(&mut links), Some((B, 8)), "peeks, but in turn");
        links.sent(A, 8);
        assert_eq!(links.poll(), Some(LinkCommand::Close { link: A }));
        assert!(!links.queue(A, &Message::Bye), "gone");
        links.close(B);
        assert!(!links.queue(B, &Message::Bye), "closing");
        links.forget(B);
        assert_eq!(links.poll(), None);
        assert!(links.is_idle());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "link_sent says that 9 bytes of LinkId(3) were taken, of 8")]
    fn an_owner_that_sends_more_than_was_given_is_named() {
        let mut links = Links::default();
        links.insert(A);
        assert!(links.queue(A, &Message::Bye));
        assert_eq!(send_of(&mut links), Some((A, 8)));
        assert!(links.queue(A, &Message::Bye));
        links.sent(A, 9);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "of 0 that LinkCommand::Send gave")]
    fn an_owner_that_answers_twice_is_named() {
        let mut links = Links::default();
        links.insert(A);
        assert!(links.queue(A, &Message::Bye) && links.queue(A, &Message::Bye));
        assert_eq!(send_of(&mut links), Some((A, 16)));
        links.sent(A, 3);
        links.sent(A, 3);
    }

    #[test]
    fn a_peer_that_does_not_read_is_noticed() {
        let mut links = Links::default();
        links.insert(A);
        let mut taken = 0;
        let bytes = [0; 960];
        let block = Block {
            object: ObjectId::CONTENT,
            offset: 0,
            data: &bytes,
        };
        while links.queue(A, &Message::Block(block)) {
            taken += 980;
        }
        assert!((LINK_QUEUE_MAX..LINK_QUEUE_MAX + 2000).contains(&taken));
        links.abort(A);
        assert_eq!(links.poll(), Some(LinkCommand::Close { link: A }));
    }
}
