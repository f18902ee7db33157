//! A receiving host's disk, which outlives the processes that write to it.
//!
//! ```text
//!   process 1: write, write, hash slab 3 --> disk: slab 3      killed
//!   process 2: prepare <-- held: slab 3, unless a power cut damaged it
//! ```

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use base::Rng;
use delivery::{Manifest, Store, StoreEvent, memory::MemoryStore};

use crate::plan::ObjectsPlan;

/// The slabs that arrived complete, by their place in the content.
#[derive(Clone, Debug, Default)]
pub struct Disk(Rc<RefCell<BTreeMap<u64, Vec<u8>>>>);

impl Disk {
    /// Flips a bit of one slab, as if a write had never reached the platter.
    pub fn damage(&self, rng: &mut Rng) {
        let mut slabs = self.0.borrow_mut();
        if slabs.is_empty() {
            return;
        }
        let which = crate::frame::index(rng.below(slabs.len() as u64));
        let Some((_, bytes)) = slabs.iter_mut().nth(which) else {
            return;
        };
        let at = crate::frame::index(rng.below(bytes.len() as u64));
        bytes[at] ^= 1;
    }
}

/// A store in memory whose complete slabs stay on a [`Disk`].
#[derive(Debug)]
pub struct DiskStore {
    store: MemoryStore,
    disk: Disk,
}

impl DiskStore {
    /// Makes a store with the plan's faults, which finds what `disk` holds.
    #[must_use]
    pub fn new(disk: Disk, objects: &ObjectsPlan) -> Self {
        let mut store = MemoryStore::default();
        store.faults.full_every = objects.store_full_every;
        store.faults.hashes_wrong = objects.hashes_wrong;
        store.resumed = disk.0.borrow().clone();
        Self { store, disk }
    }

    /// Returns the content, once it is in place.
    #[must_use]
    pub fn committed(&self) -> Option<&[u8]> {
        self.store.committed()
    }
}

impl Store for DiskStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        self.store.prepare(manifest);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        self.store.write(offset, bytes)
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let taken = self.store.hash_slab(slab);
        if taken && let Some(manifest) = self.store.manifest() {
            let place = manifest.slab(slab);
            let start = crate::frame::index(place.start);
            let bytes = &self.store.staged()[start..start + place.len as usize];
            self.disk.0.borrow_mut().insert(place.start, bytes.to_vec());
        }
        taken
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        self.store.commit(withdrawn);
    }

    fn abandon(&mut self) {
        self.store.abandon();
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.store.poll_event()
    }
}
