//! Compares what one receiver is given with the ledger, at each delivery.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{SharedLedger, tiles::Tiles};

/// The judge at one receiver.
#[derive(Debug)]
pub struct Witness {
    who: String,
    ledger: SharedLedger,
    sessions: BTreeMap<u32, Session>,
    strangers: BTreeSet<u32>,
    is_in_order: bool,
    totals: Totals,
}

/// What one receiver got, all its sessions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages delivered with the right bytes; in arrival mode, packets.
    pub messages: u64,
    /// Messages of senders that do not wait for this receiver, with right or wrong bytes.
    pub unowed: u64,
    /// Messages published by senders that wait for this receiver, counted when the receiver ended.
    pub owed: u64,
    /// Messages in their place with wrong bytes: bit errors that PGM cannot see.
    pub damaged: u64,
    /// Packets reported lost.
    pub lost: u64,
    /// Packets reported lost in sessions that the run did not plan: an intruder opened them.
    pub lost_of_strangers: u64,
    /// Sessions that ended after everything was delivered or reported lost.
    pub ended: u64,
    /// Sessions given up: for silence, because their senders broke them off or dropped this
    /// receiver, or because they need a key that it does not have.
    pub gone: u64,
    /// Of `gone`: sessions that their senders broke off.
    pub broken_off: u64,
    /// Of `gone`: sessions whose senders said that they had dropped this receiver.
    pub dropped: u64,
    /// Sessions heard.
    pub found: u64,
    /// The receiver's process was killed.
    pub is_crashed: bool,
    /// The receiver's owner ended it before the senders ended.
    pub has_left: bool,
}

#[derive(Debug)]
struct Session {
    publication: usize,
    /// The sender waits for this receiver.
    is_wanted: bool,
    tiles: Tiles,
}

impl Witness {
    /// Makes the judge of a receiver that has no session yet. The receiver expects messages in
    /// order, or packets as they arrive. [`Ledger::begin`](super::Ledger::begin) has told the
    /// ledger what the receiver must get.
    #[must_use]
    pub fn new(who: String, ledger: SharedLedger, is_in_order: bool) -> Self {
        let (sessions, totals) = (BTreeMap::new(), Totals::default());
        Self {
            who,
            ledger,
            sessions,
            strangers: BTreeSet::new(),
            is_in_order,
            totals,
        }
    }

    /// Notes that a sender was heard.
    pub fn found(&mut self, session: u32, name: &str, source: IpAddr) {
        let publication = self.ledger.borrow().find(name, source);
        let Some(publication) = publication else {
            let is_expected = self.ledger.borrow().has_strangers;
            if is_expected {
                self.strangers.insert(session);
            } else {
                self.fail(&format!("found {name}, which nobody opened"));
            }
            return;
        };
        self.totals.found += 1;
        let tiles = if self.is_in_order {
            Tiles::InOrder(None)
        } else {
            Tiles::Scattered(Vec::new())
        };
        let ledger = self.ledger.borrow();
        let is_wanted = ledger.is_wanted(&ledger.publications[publication], &self.who);
        drop(ledger);
        let fresh = Session {
            publication,
            is_wanted,
            tiles,
        };
        if self.sessions.insert(session, fresh).is_some() {
            self.fail(&format!("session {session} was found while it was open"));
        }
    }

    /// Checks a message that was delivered.
    pub fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        if self.strangers.contains(&session) {
            return;
        }
        let mut ledger = self.ledger.borrow_mut();
        ledger.hash.word(position);
        ledger.hash.write(data);
        let placed = match self.sessions.get_mut(&session) {
            Some(known) => {
                let publication = &ledger.publications[known.publication];
                self.totals.unowed += u64::from(!known.is_wanted);
                let placed = known.tiles.message(&ledger, publication, position, data);
                let reached = known.tiles.reached();
                ledger.reach(known.publication, &self.who, reached);
                placed
            }
            None => Err("it is not open".to_owned()),
        };
        drop(ledger);
        match placed {
            Ok(placed) => {
                self.totals.damaged += u64::from(placed.is_damaged);
                self.totals.messages += u64::from(!placed.is_damaged);
                if placed.has_begun_late && self.is_owed_all(session) {
                    self.fail(&format!(
                        "session {session}: begins at {position}, not at its start"
                    ));
                }
            }
            Err(text) => self.fail(&format!("session {session}: {text}")),
        }
    }

    /// Checks a report of lost packets.
    pub fn lost(&mut self, session: u32, first: u64, count: u64) {
        if self.strangers.contains(&session) {
            self.totals.lost_of_strangers += count;
            return;
        }
        self.totals.lost += count;
        let mut ledger = self.ledger.borrow_mut();
        ledger.hash.word(first ^ count.rotate_left(32));
        let placed = match self.sessions.get_mut(&session) {
            Some(known) => {
                let publication = &ledger.publications[known.publication];
                let placed = known.tiles.lost(publication, first, count);
                let reached = known.tiles.reached();
                ledger.reach(known.publication, &self.who, reached);
                placed
            }
            None => Err("a loss, although it is not open".to_owned()),
        };
        drop(ledger);
        match placed {
            Ok(true) if self.is_owed_all(session) => {
                self.fail(&format!("session {session}: begins with a loss at {first}"));
            }
            Ok(_) => {}
            Err(text) => self.fail(&format!("session {session}: {text}")),
        }
    }

    /// Notes that the session has ended, and checks that its sender closed it and that everything
    /// before was delivered or reported lost.
    pub fn ended(&mut self, session: u32) {
        if self.strangers.remove(&session) {
            return;
        }
        self.totals.ended += 1;
        let ledger = self.ledger.borrow();
        let verdict = match self.sessions.remove(&session) {
            Some(known) => {
                let publication = &ledger.publications[known.publication];
                if publication.is_closed {
                    known
                        .tiles
                        .end(publication, ledger.is_owed_all(publication, &self.who))
                } else {
                    Err("ended while its sender goes on".to_owned())
                }
            }
            None => Err("ended, although it is not open".to_owned()),
        };
        drop(ledger);
        if let Err(text) = verdict {
            self.fail(&format!("session {session}: {text}"));
        }
    }

    /// Notes that the receiver gave the session up.
    pub fn gone(&mut self, session: u32) {
        if self.strangers.remove(&session) {
            return;
        }
        self.totals.gone += 1;
        if self.sessions.remove(&session).is_none() {
            self.fail(&format!(
                "session {session}: expired, although it is not open"
            ));
        }
    }

    /// Notes that the sender broke the session off, and told the receiver so.
    pub fn broken_off(&mut self, session: u32) {
        self.totals.broken_off += u64::from(self.sessions.contains_key(&session));
        self.gone(session);
    }

    /// Notes that the sender dropped this receiver from the session, and told it.
    pub fn dropped(&mut self, session: u32) {
        self.totals.dropped += u64::from(self.sessions.contains_key(&session));
        self.gone(session);
    }

    /// Checks that the receiver may report to a session's sender: only when their keys are equal.
    pub fn reports(&self, session: u32) {
        let known = self.sessions.get(&session);
        if !known.is_some_and(|known| known.is_wanted) {
            self.fail(&format!(
                "session {session}: the receiver reports to a sender although their keys differ"
            ));
        }
    }

    /// Returns the number of sessions that were found and have not ended.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns what this receiver got.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns true when the receiver takes messages in order and must miss none of this session.
    fn is_owed_all(&self, session: u32) -> bool {
        let ledger = self.ledger.borrow();
        let known = self.sessions.get(&session).filter(|_| self.is_in_order);
        known.is_some_and(|known| {
            ledger.is_owed_all(&ledger.publications[known.publication], &self.who)
        })
    }

    /// Returns the totals at the end of the receiver's process.
    #[must_use]
    pub fn final_totals(&self) -> Totals {
        Totals {
            owed: self.ledger.borrow().published_for(&self.who),
            ..self.totals
        }
    }

    /// Notes a failure, with this receiver's name.
    pub fn fail(&self, text: &str) {
        self.ledger
            .borrow_mut()
            .fail(format!("{}: {text}", self.who));
    }
}
