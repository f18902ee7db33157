//! The judge: what was published, what each receiver was given, and whether the two agree.
//!
//! A receiver's deliveries and loss reports must tile what was published: each begins exactly where
//! the one before ended, and a loss report covers exactly the packets that were left out. This one
//! rule demands order, delivery exactly once, and no silent loss. In arrival mode order is free and
//! the tiles are single packets.
//!
//! ```text
//!   published   [ m0 ][ m1 ][ m2 ......... ][ m3 ]|end        one record per message, in packets
//!   delivered   [ m0 ][ m1 ][ Lost 4 ]------[ m3 ]|Ended      no hole, no overlap
//! ```
//!
//! The judge does not look into the state machines; [`crate::node`] checks their counters.

use std::{cell::RefCell, collections::BTreeMap, net::IpAddr, rc::Rc};

use delivery::Key;

use crate::payload::{self, Fnv};

mod tiles;

mod witness;
pub use witness::{Totals, Witness};

/// Everything that was published and everything that went wrong in one run.
#[derive(Debug)]
pub struct Ledger {
    stream: u64,
    publications: Vec<Publication>,
    failures: Vec<String>,
    hash: Fnv,
    has_strangers: bool,
    /// The receivers that have begun, by name.
    receivers: BTreeMap<String, Standing>,
}

/// The ledger as publishers and receivers of one run share it.
pub type SharedLedger = Rc<RefCell<Ledger>>;

/// What the judge knows about a receiver.
#[derive(Debug)]
struct Standing {
    key: Option<Key>,
    /// The receiver was there from the start: in a session that waited for it, it must miss
    /// nothing.
    from_start: bool,
}

/// One session: what one publisher process sends.
#[derive(Debug)]
struct Publication {
    /// Its transport session identifier, as text.
    name: String,
    /// The sender's key. The sender admits and waits for receivers with the same key only.
    key: Option<Key>,
    /// Its host.
    source: IpAddr,
    /// Position of the first packet.
    start: u64,
    /// When a message takes several packets, each but the last carries this many of its bytes.
    piece_len: usize,
    records: Vec<Record>,
    /// One past the last packet.
    end: u64,
    is_closed: bool,
    /// The sender began when all receivers had joined: they must miss nothing.
    has_waited: bool,
    /// For each receiver, the position before which it has been given everything.
    reached: BTreeMap<String, u64>,
}

/// One message.
#[derive(Clone, Copy, Debug)]
struct Record {
    first: u64,
    count: u64,
    message: u64,
    len: usize,
}

impl Ledger {
    /// Makes an empty ledger; `stream` makes this run's messages different from those of other
    /// runs.
    #[must_use]
    pub fn new(stream: u64) -> Self {
        Self {
            stream,
            publications: Vec::new(),
            failures: Vec::new(),
            hash: Fnv::new(stream),
            has_strangers: false,
            receivers: BTreeMap::new(),
        }
    }

    /// Says whether an intruder runs. It may open sessions of its own, which are not judged.
    pub const fn tolerate_strangers(&mut self, tolerates: bool) {
        self.has_strangers = tolerates;
    }

    /// Notes a new session of the host at `source`, and returns the session's index. Its first
    /// packet will have position `start`, and its messages are cut into pieces of `piece_len`
    /// bytes. Only receivers with the same `key` report to it.
    pub fn open(
        &mut self,
        name: String,
        key: Option<Key>,
        source: IpAddr,
        start: u64,
        piece_len: usize,
    ) -> usize {
        self.publications.push(Publication {
            name,
            key,
            source,
            start,
            piece_len,
            records: Vec::new(),
            end: start,
            is_closed: false,
            has_waited: false,
            reached: BTreeMap::new(),
        });
        self.publications.len() - 1
    }

    /// Notes that the sender waited for all receivers before its first message.
    pub fn waited(&mut self, publication: usize) {
        self.publications[publication].has_waited = true;
    }

    /// Writes message `number` into `out`.
    pub fn compose(&self, number: u64, out: &mut [u8]) {
        payload::fill(self.stream, number, out);
    }

    /// Notes that the sender took message `number` of `len` bytes as `count` packets from `first`
    /// on.
    pub fn publish(&mut self, publication: usize, number: u64, len: usize, first: u64, count: u64) {
        let publication = &mut self.publications[publication];
        if publication.end != first || count == 0 {
            let (name, end) = (&publication.name, publication.end);
            let text = format!("{name}: a message was taken at {first}..+{count}, after {end}");
            self.fail(text);
            return;
        }
        publication.records.push(Record {
            first,
            count,
            message: number,
            len,
        });
        publication.end = first + count;
    }

    /// Notes that nothing more will be published.
    pub fn close(&mut self, publication: usize) {
        self.publications[publication].is_closed = true;
    }

    /// Notes that a receiver process with this key begins. With `from_start` it must miss nothing.
    pub fn begin(&mut self, who: &str, key: Option<Key>, from_start: bool) {
        let standing = Standing { key, from_start };
        self.receivers.insert(who.to_owned(), standing);
    }

    /// Notes that the sender admitted a receiver; it is a failure when their keys differ.
    pub fn admit(&mut self, publication: usize, who: &str) {
        let of = &self.publications[publication];
        if !self.is_wanted(of, who) {
            let text = format!("{}: admitted {who}, which does not hold its key", of.name);
            self.fail(text);
        }
    }

    /// Returns true when the receiver has the sender's key: only then may it report to the sender.
    fn is_wanted(&self, of: &Publication, who: &str) -> bool {
        let standing = self.receivers.get(who);
        standing.is_some_and(|standing| standing.key == of.key)
    }

    /// Returns true when the sender waited for the receiver, which therefore must miss nothing.
    fn is_owed_all(&self, of: &Publication, who: &str) -> bool {
        let standing = self.receivers.get(who);
        of.has_waited
            && self.is_wanted(of, who)
            && standing.is_some_and(|standing| standing.from_start)
    }

    /// Notes that a receiver has been given everything before `position` of a session.
    fn reach(&mut self, publication: usize, who: &str, position: Option<u64>) {
        let Some(position) = position else {
            return;
        };
        let reached = &mut self.publications[publication].reached;
        match reached.get_mut(who) {
            Some(at) => *at = position.max(*at),
            None => drop(reached.insert(who.to_owned(), position)),
        }
    }

    /// Checks the sender's claim that the reporting receivers `who` have been given everything.
    pub fn confirm<'a>(&mut self, publication: usize, who: impl Iterator<Item = &'a str>) {
        let of = &self.publications[publication];
        let has_all = |name: &str| of.reached.get(name).is_some_and(|&at| at >= of.end);
        let lacking: Vec<_> = who
            .filter(|name| self.is_owed_all(of, name))
            .filter(|name| of.start < of.end && !has_all(name))
            .map(|name| format!("{name} has {:?}", of.reached.get(name)))
            .collect();
        if !lacking.is_empty() {
            let text = format!(
                "{}: confirmed up to {}, while {}",
                of.name,
                of.end,
                lacking.join(", ")
            );
            self.fail(text);
        }
    }

    /// Notes a failure of the run.
    pub fn fail(&mut self, text: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(text);
        }
    }

    /// Adds a word to the fingerprint of the run.
    pub fn witness(&mut self, word: u64) {
        self.hash.word(word);
    }

    /// Returns a fingerprint of everything that was delivered, in order: equal for equal runs.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.hash.finish()
    }

    /// Returns what went wrong; nothing for a good run.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the number of messages published in all sessions.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.publications
            .iter()
            .map(|one| one.records.len() as u64)
            .sum()
    }

    /// Returns the number of messages published in the sessions whose senders wait for `who`.
    #[must_use]
    pub fn published_for(&self, who: &str) -> u64 {
        let wanted = self
            .publications
            .iter()
            .filter(|of| self.is_wanted(of, who));
        wanted.map(|of| of.records.len() as u64).sum()
    }

    /// Returns the number of packets of new data in all sessions.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.publications
            .iter()
            .map(|one| one.end - one.start)
            .sum()
    }

    fn find(&self, name: &str, source: IpAddr) -> Option<usize> {
        let is_it = |one: &Publication| one.name == name && one.source == source;
        self.publications.iter().position(is_it)
    }
}

impl Publication {
    /// Returns the record that begins at `position`.
    fn record_at(&self, position: u64) -> Option<Record> {
        let index = self
            .records
            .binary_search_by_key(&position, |record| record.first)
            .ok()?;
        self.records.get(index).copied()
    }

    /// Returns the record that `position` lies in.
    fn record_around(&self, position: u64) -> Option<Record> {
        let index = self
            .records
            .partition_point(|record| record.first <= position);
        let record = *self.records.get(index.checked_sub(1)?)?;
        (position < record.first + record.count).then_some(record)
    }
}

/// Returns the position nearest to `near` that has the low 32 bits of `position`. The two ends of a
/// session may count from different multiples of 2^32.
fn near(position: u64, near: u64) -> u64 {
    let ahead = (position as u32).wrapping_sub(near as u32);
    near.wrapping_add_signed(i64::from(ahead.cast_signed()))
}

const FAILURES_MAX: usize = 20;

#[cfg(test)]
mod tests;
