//! Waits until the disk threads of dropped stores end, but only when the wait holds up no other
//! transfer.
//!
//! A disk may stand still. A thread that serves many connections must not wait for the disk
//! whenever one transfer ends, so it waits once, at the end of all transfers. If a manifest is
//! offered again before that, the disk thread of its new store waits for the disk threads of its
//! former stores.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use delivery::ManifestId;

use super::{END_WAIT, queue::Queue};

/// The disk's threads that are still at work for dropped stores. All clones share this list. The
/// drop of the last clone waits until these threads have ended, 2 s at most for all together.
///
/// Invariant: the list has only the queues of threads that are at work, or that have ended since a
/// method last looked at the list.
#[derive(Clone, Debug, Default)]
pub struct Endings(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending(Mutex<Vec<(ManifestId, Arc<Queue>)>>);

impl Endings {
    /// Adds the queue of a store that is over; the store was for `manifest`. The store's disk
    /// thread may still be at work.
    pub(super) fn add(&self, manifest: ManifestId, queue: Arc<Queue>) {
        self.at_work().push((manifest, queue));
    }

    /// Returns how many dropped or abandoned stores have disk threads still at work. **Cost**: one
    /// lock for each store in the list.
    #[must_use]
    pub fn count(&self) -> usize {
        self.at_work().len()
    }

    /// Returns the queues of those former stores of a manifest whose disk threads are still at
    /// work.
    pub(super) fn of(&self, manifest: ManifestId) -> Vec<Arc<Queue>> {
        let pending = self.at_work();
        let its = pending.iter().filter(|(whose, _)| *whose == manifest);
        its.map(|(_, queue)| Arc::clone(queue)).collect()
    }

    /// Returns the queues whose threads have not ended, and forgets the others.
    fn at_work(&self) -> MutexGuard<'_, Vec<(ManifestId, Arc<Queue>)>> {
        let mut pending = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|(_, queue)| !queue.has_ended());
        pending
    }
}

/// Waits until the threads of all `queues` have ended, for `at_most` in all. Returns false when one
/// has not ended by then.
pub(super) fn wait_for_all(
    queues: impl IntoIterator<Item = Arc<Queue>>,
    at_most: Duration,
) -> bool {
    let end = Instant::now() + at_most;
    let mut queues = queues.into_iter();
    queues.all(|queue| {
        queue.wait_for_end(end.saturating_duration_since(Instant::now()));
        queue.has_ended()
    })
}

impl Drop for Pending {
    fn drop(&mut self) {
        let pending = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _have_ended = wait_for_all(pending.drain(..).map(|(_, queue)| queue), END_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_drops_a_store_does_not_wait_for_its_disk_and_the_last_one_does() {
        let endings = Endings::default();
        let (stuck, over) = (Arc::new(Queue::new(0, None)), Arc::new(Queue::new(0, None)));
        over.ended();
        let (one, other) = (ManifestId([1; 16]), ManifestId([2; 16]));
        endings.add(one, over);
        endings.add(one, Arc::clone(&stuck));
        let kept = |manifest| endings.of(manifest).len();
        assert_eq!(
            (kept(one), kept(other)),
            (1, 0),
            "who has ended is forgotten"
        );
        let other = endings.clone();
        drop(endings);
        assert!(!stuck.has_ended(), "it was not waited for");
        let (work, disk) = (Arc::clone(&stuck), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            disk.1.recv().unwrap();
            work.ended();
        });
        disk.0.send(()).unwrap();
        drop(other);
        assert!(stuck.has_ended(), "it was waited for");
        thread.join().unwrap();
    }
}
