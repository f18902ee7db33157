//! Which transfer a connection belongs to, and whose connections are served next.
//!
//! There may be thousands of transfers. So a map finds the transfer of a connection, and one look
//! at all transfers finds all that have commands; these are then served in turn.

use std::collections::{BTreeMap, VecDeque};

use base::{Instant, LinkEvent, LinkId};

use super::{Intake, Transfers};
use crate::LinkCommand;

/// Which transfers were lately found for connections, and which transfers had commands. All of this
/// may be out of date: it only says where to look first.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// For each connection, the number of its transfer.
    by_link: BTreeMap<LinkId, u32>,
    /// The indices of the transfers that had commands for connections at the last look at all
    /// transfers. They take turns in this order.
    talkers: VecDeque<usize>,
}

impl<I: Intake> Transfers<I> {
    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        let is_new = matches!(event, LinkEvent::Accepted { .. });
        if self.door.is_some() && (is_new || self.is_at_door(link)) {
            self.knock(now, link, event, data);
        } else if let Some(index) = self.index_of(link) {
            let receiver = &mut self.all[index].receiver;
            receiver.handle_link(now, link, event, data);
            self.settle(now, index);
        } else if is_new {
            self.strays.push_back(link);
        }
    }

    /// Returns the next thing to do on a control connection; every transfer has its turn.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        if let Some(link) = self.strays.pop_front() {
            return Some(LinkCommand::Close { link });
        }
        let door = self.door.as_ref();
        if door.is_some_and(|door| door.listener.links.has_command()) {
            return self.door.as_mut()?.listener.links.poll();
        }
        let index = self.next_talker()?;
        self.all[index].receiver.poll_link()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        if self.is_at_door(link) {
            if let Some(door) = &mut self.door {
                door.listener.links.sent(link, taken);
            }
        } else if let Some(index) = self.index_of(link) {
            self.all[index].receiver.link_sent(link, taken);
        }
    }

    fn is_at_door(&self, link: LinkId) -> bool {
        let door = self.door.as_ref();
        door.is_some_and(|door| door.listener.links.contains(link))
    }

    /// Returns the index of the transfer to which the connection `link` belongs.
    fn index_of(&mut self, link: LinkId) -> Option<usize> {
        // The transfers are sorted by number, unless numbers have begun again after 2^32 transfers.
        // Then the search may fail, and all transfers are looked at below.
        let number = self.routes.by_link.get(&link);
        let index = number.and_then(|number| {
            let found = self.all.binary_search_by_key(number, |t| t.number);
            found.ok()
        });
        let has_it = |index: &usize| self.all[*index].receiver.has_link(link);
        if let Some(index) = index.filter(has_it) {
            return Some(index);
        }
        let index = (0..self.all.len()).find(has_it);
        match index {
            Some(index) => {
                self.forget_routes();
                let number = self.all[index].number;
                self.routes.by_link.insert(link, number);
            }
            None => {
                self.routes.by_link.remove(&link);
            }
        }
        index
    }

    /// Forgets connections that are gone, once the number of connections remembered reaches
    /// [`ROUTES_SPARE`] plus twice the number of transfers.
    fn forget_routes(&mut self) {
        let routes = &mut self.routes.by_link;
        if routes.len() >= 2 * self.all.len() + ROUTES_SPARE {
            let all = &self.all;
            routes.retain(|&link, number| {
                let found = all.binary_search_by_key(number, |t| t.number);
                found.is_ok_and(|index| all[index].receiver.has_link(link))
            });
        }
    }

    /// Returns the index of the next transfer that has a command.
    fn next_talker(&mut self) -> Option<usize> {
        let all = &self.all;
        let talks = |index: &usize| {
            all.get(*index)
                .is_some_and(|t| t.receiver.has_link_command())
        };
        let talkers = &mut self.routes.talkers;
        while let Some(index) = talkers.pop_front() {
            if talks(&index) {
                return Some(index);
            }
        }
        talkers.extend((0..all.len()).filter(talks));
        talkers.pop_front()
    }
}

/// Connections that are gone are forgotten when the number of connections remembered reaches this
/// constant plus twice the number of transfers.
const ROUTES_SPARE: usize = 64;
