//! The parity groups of one session. The receiver keeps the packets of these groups, so that it can
//! recover lost members.
//!
//! The module does not know what is missing or asked for. In: members and parity packets as they
//! come, and the position before which no packet is wanted any more. Out: lost members, once a
//! group has enough packets.
//!
//! ```text
//!   position   | group 16  | group 24  | group 32  | group 40 ...
//!              |  closed   |  kept     |  closed   |  kept
//!                whole, recovered or unwanted        some of its packets are missing
//! ```
//!
//! Only the first packet received of a group may open it. If a later packet opened it, the group
//! would lack the earlier ones for ever, because they were not kept. A group is barred when it
//! outgrows the memory, or when its packets contradict each other: it stays in the list without
//! packets, so that it is not opened again.
//!
//! Invariants: groups lie in the order of their positions; all memory, including the decoder's, is
//! borrowed from the store, and is at most `bytes_max`.

use std::collections::VecDeque;

use base::DropReason;
use wire::pgm::Fragment;

use super::held::HeldStore;
use crate::fec::{Code, Combine, Group, Parity, Workspace};

/// The groups of one session that offers parity.
#[derive(Debug)]
pub(super) struct Groups {
    code: Code,
    work: Workspace,
    list: VecDeque<Kept>,
    /// Empty groups, kept so that new groups can reuse their memory.
    spare: Vec<Group>,
    /// Number of bytes borrowed from the store.
    used_bytes: usize,
    bytes_max: usize,
}

/// A group in the list, and its first position.
#[derive(Debug)]
struct Kept {
    first: u64,
    group: Group,
}

/// The state of a group, as far as a request for parity needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The group is not kept, or its parity is of no use.
    Closed,
    /// The group has this many packets fewer than a full group.
    Lacks(u32),
}

impl Standing {
    /// Returns the number of missing packets, if parity can help.
    pub(super) const fn lacking(self) -> Option<u32> {
        match self {
            Self::Closed => None,
            Self::Lacks(count) => Some(count),
        }
    }
}

impl Groups {
    /// Makes an empty list for groups of `group_size` packets with payloads of at most
    /// `payload_bytes_max` bytes. `None` when the erasure code has no such group size, or there is
    /// no memory for the decoder.
    pub(super) fn new(
        store: &mut HeldStore,
        combine: Combine,
        group_size: u32,
        payload_bytes_max: usize,
        bytes_max: usize,
    ) -> Option<Box<Self>> {
        let code = Code::new(group_size as usize)?;
        let rows = code.group_size() * (payload_bytes_max + ROW_BYTES);
        let used_bytes = rows + code.group_size() * code.parities_max();
        if used_bytes > bytes_max || !store.has_room() || !store.borrow_bytes(used_bytes) {
            return None;
        }
        Some(Box::new(Self {
            work: Workspace::new(combine, &code, payload_bytes_max),
            code,
            list: VecDeque::new(),
            spare: Vec::new(),
            used_bytes,
            bytes_max,
        }))
    }

    /// Gives all memory back.
    pub(super) fn clear(&mut self, store: &mut HeldStore) {
        self.list = VecDeque::new();
        self.spare = Vec::new();
        store.return_bytes(std::mem::take(&mut self.used_bytes));
    }

    /// Returns the number of packets of a full group.
    pub(super) fn group_size(&self) -> u64 {
        self.code.group_size() as u64
    }

    /// Returns the first position of the group that `position` lies in.
    #[inline]
    pub(super) fn first_of(&self, position: u64) -> u64 {
        position & !(self.group_size() - 1)
    }

    /// Returns true when the group that begins at `first` is in the list, barred or not.
    #[inline]
    pub(super) fn has(&self, first: u64) -> bool {
        self.find(first).is_ok()
    }

    /// Returns the state of the group that begins at `first`.
    pub(super) fn standing(&self, first: u64) -> Standing {
        match self.find(first) {
            Ok(index) if !self.list[index].group.is_barred() => {
                let lacking = self.list[index].group.lacking(&self.code);
                Standing::Lacks(lacking as u32)
            }
            _ => Standing::Closed,
        }
    }

    /// Begins to keep the group that begins at `first`, of which no packet was received before.
    /// Returns false when there is no memory for the group.
    pub(super) fn open(&mut self, store: &mut HeldStore, first: u64) -> bool {
        let Err(index) = self.find(first) else {
            return true;
        };
        if !self.borrow(store, KEPT_BYTES) {
            return false;
        }
        let group = self.spare.pop().unwrap_or_default();
        self.list.insert(index, Kept { first, group });
        true
    }

    /// Keeps the member at `position`, if its group is kept. Returns true when lost members can now
    /// be recovered.
    pub(super) fn add_member(
        &mut self,
        store: &mut HeldStore,
        position: u64,
        payload: &[u8],
        fragment: Option<&Fragment>,
    ) -> bool {
        let first = self.first_of(position);
        let Ok(index) = self.find(first) else {
            return false;
        };
        let group = &mut self.list[index].group;
        let before = group.memory_bytes();
        let at = (position - first) as usize;
        group.add_member(&self.code, &self.work, at, payload, fragment);
        self.account(store, index, before);
        let group = &self.list[index].group;
        if group.is_whole(&self.code) {
            self.close(store, index);
            return false;
        }
        group.is_full(&self.code) && !group.is_barred()
    }

    /// Keeps a parity packet of the group that begins at `first`. Returns true when lost members
    /// can now be recovered.
    ///
    /// # Errors
    /// The reason to drop the packet: the group is not in the list, was barred before, has the
    /// packet already, or is barred now because the packet contradicts others.
    pub(super) fn add_parity(
        &mut self,
        store: &mut HeldStore,
        first: u64,
        parity: &Parity<'_>,
    ) -> Result<bool, DropReason> {
        let index = self.find(first).map_err(|_| DropReason::NoRoom)?;
        let group = &mut self.list[index].group;
        if group.is_barred() {
            return Err(DropReason::Unexpected);
        }
        let before = group.memory_bytes();
        let is_new = group.add_parity(&self.code, &self.work, parity);
        let is_sound = !group.is_barred();
        self.account(store, index, before);
        let group = &self.list[index].group;
        match (is_new, is_sound) {
            _ if group.is_full(&self.code) => Ok(is_sound),
            (true, _) => Ok(false),
            (false, true) => Err(DropReason::Duplicate),
            (false, false) => Err(DropReason::Malformed),
        }
    }

    /// Recovers the lost members of the group that begins at `first`, which has enough packets.
    /// Calls `visit` with each member's position, payload and OPT_FRAGMENT, closes the group and
    /// returns true. If the group's packets contradict each other, bars the group instead and
    /// returns false.
    pub(super) fn recover(
        &mut self,
        store: &mut HeldStore,
        first: u64,
        mut visit: impl FnMut(&mut HeldStore, u64, &[u8], Option<Fragment>),
    ) -> bool {
        let Ok(index) = self.find(first) else {
            return false;
        };
        let group = &mut self.list[index].group;
        let before = group.memory_bytes();
        let recovered = group.recover(&self.code, &mut self.work, |at, payload, fragment| {
            visit(store, first + at as u64, payload, fragment);
        });
        if recovered.is_ok() {
            self.close(store, index);
        } else {
            self.account(store, index, before);
        }
        recovered.is_ok()
    }

    /// Forgets the groups that end at or before `position`.
    #[inline]
    pub(super) fn prune(&mut self, store: &mut HeldStore, position: u64) {
        while let Some(front) = self.list.front()
            && front.first + self.group_size() <= position
        {
            self.close(store, 0);
        }
    }

    fn find(&self, first: u64) -> Result<usize, usize> {
        match self.list.back() {
            None => Err(0),
            Some(back) if back.first == first => Ok(self.list.len() - 1),
            Some(back) if back.first < first => Err(self.list.len()),
            Some(_) => self.list.binary_search_by_key(&first, |kept| kept.first),
        }
    }

    /// Takes a group out of the list, and keeps its memory for the next group.
    fn close(&mut self, store: &mut HeldStore, index: usize) {
        let Some(mut kept) = self.list.remove(index) else {
            return;
        };
        self.give_back(store, KEPT_BYTES);
        kept.group.reset();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(kept.group);
        } else {
            self.give_back(store, kept.group.memory_bytes());
        }
    }

    /// Borrows from the store the bytes by which a group has grown, or gives back those by which it
    /// shrank. Bars a group that outgrows the memory.
    fn account(&mut self, store: &mut HeldStore, index: usize, before: usize) {
        let after = self.list[index].group.memory_bytes();
        if after <= before {
            self.give_back(store, before - after);
            return;
        }
        while !self.borrow(store, after - before) {
            let Some(spare) = self.spare.pop() else {
                self.list[index].group.bar();
                self.give_back(store, before);
                return;
            };
            self.give_back(store, spare.memory_bytes());
        }
    }

    fn borrow(&mut self, store: &mut HeldStore, bytes: usize) -> bool {
        let fits = self.used_bytes + bytes <= self.bytes_max
            && store.has_room()
            && store.borrow_bytes(bytes);
        self.used_bytes += if fits { bytes } else { 0 };
        fits
    }

    fn give_back(&mut self, store: &mut HeldStore, bytes: usize) {
        if bytes > 0 {
            self.used_bytes -= bytes;
            store.return_bytes(bytes);
        }
    }
}

/// Memory that an entry of the list takes, in bytes.
const KEPT_BYTES: usize = size_of::<Kept>();
/// How many empty groups are kept for reuse, at most. About 16 groups wait for parity at 1 % loss
/// and 100,000 packets a second.
const SPARE_MAX: usize = 16;
/// Memory that the decoder takes for each member besides its payload, in bytes, rounded up.
const ROW_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::{Encoder, combine};

    const STORE_BYTES: usize = 4 << 20;

    fn store() -> HeldStore {
        HeldStore::new(STORE_BYTES, 65_536, 0)
    }

    fn groups(store: &mut HeldStore, bytes_max: usize) -> Box<Groups> {
        Groups::new(store, combine, 4, 100, bytes_max).unwrap()
    }

    fn payload(position: u64) -> Vec<u8> {
        vec![position as u8; 50]
    }

    /// Makes parity packet 0 of the group at `first`.
    fn parity_of(first: u64) -> Vec<u8> {
        let code = Code::new(4).unwrap();
        let members: Vec<_> = (first..first + 4).map(payload).collect();
        let members: Vec<&[u8]> = members.iter().map(|member| &member[..]).collect();
        let mut encoder = Encoder::new(combine, 1, 100);
        let parities = encoder.encode(&code, &members, &[0]);
        parities.payloads().next().unwrap().to_vec()
    }

    fn plain(payload: &[u8]) -> Parity<'_> {
        Parity {
            index: 0,
            payload,
            is_variable: false,
            fragment: None,
            packet_count: None,
        }
    }

    #[test]
    fn a_lost_member_comes_back_and_all_memory_is_returned() {
        let mut store = store();
        let mut groups = groups(&mut store, 1 << 20);
        let fixed = store.used_bytes();
        for first in [400, 408, 404] {
            assert!(groups.open(&mut store, first) && groups.has(first));
            assert_eq!(groups.standing(first), Standing::Lacks(4));
        }
        for position in [400, 401, 403, 408, 409, 410] {
            assert!(!groups.add_member(&mut store, position, &payload(position), None));
        }
        assert_eq!(groups.standing(400), Standing::Lacks(1));
        let parity = parity_of(400);
        assert_eq!(
            groups.add_parity(&mut store, 400, &plain(&parity)),
            Ok(true)
        );
        let mut found = Vec::new();
        let visit = |_: &mut HeldStore, at, bytes: &[u8], _| found.push((at, bytes.to_vec()));
        assert!(groups.recover(&mut store, 400, visit));
        assert_eq!(found, [(402, payload(402))]);
        assert!(
            !groups.add_member(&mut store, 411, &payload(411), None),
            "all came"
        );
        assert!(!groups.has(400) && !groups.has(408) && groups.has(404));
        groups.prune(&mut store, 407);
        assert!(groups.has(404));
        groups.prune(&mut store, 408);
        assert!(
            !groups.has(404) && store.used_bytes() > fixed,
            "memory is kept for the next"
        );
        groups.clear(&mut store);
        assert_eq!(store.used_bytes(), 0);
    }

    #[test]
    fn a_group_that_outgrows_the_memory_is_barred_and_stays_so() {
        let mut store = store();
        let fixed = 4 * (100 + ROW_BYTES) + 4 * 251;
        let mut groups = groups(&mut store, fixed + 2 * KEPT_BYTES + 100);
        assert!(groups.open(&mut store, 8) && groups.open(&mut store, 16));
        assert!(!groups.open(&mut store, 24), "there is no room for a third");
        assert!(!groups.add_member(&mut store, 8, &payload(8), None));
        assert_eq!(groups.standing(8), Standing::Closed);
        let parity = parity_of(8);
        let refused = groups.add_parity(&mut store, 8, &plain(&parity));
        assert_eq!(refused, Err(DropReason::Unexpected));
        groups.clear(&mut store);
        assert_eq!(store.used_bytes(), 0);
    }

    #[test]
    fn packets_that_contradict_bar_their_group() {
        let mut store = store();
        let mut groups = groups(&mut store, 1 << 20);
        assert!(groups.open(&mut store, 8));
        let parity = parity_of(8);
        assert_eq!(groups.add_parity(&mut store, 8, &plain(&parity)), Ok(false));
        let again = groups.add_parity(&mut store, 8, &plain(&parity));
        assert_eq!(again, Err(DropReason::Duplicate));
        let other = Parity {
            index: 1,
            packet_count: Some(2),
            ..plain(&parity)
        };
        assert_eq!(
            groups.add_parity(&mut store, 8, &other),
            Err(DropReason::Malformed)
        );
        assert_eq!(groups.standing(8), Standing::Closed);
        groups.clear(&mut store);
        assert_eq!(store.used_bytes(), 0);
    }

    #[test]
    fn a_decoder_that_does_not_fit_is_not_made() {
        let mut store = store();
        assert!(Groups::new(&mut store, combine, 128, 1500, 10_000).is_none());
        assert!(Groups::new(&mut store, combine, 12, 1500, 1 << 20).is_none());
        assert_eq!(store.used_bytes(), 0);
    }
}
