//! Stores that are gone while their disk still works: who waits for it, and when.
//!
//! A disk may stand still. A thread that serves many connections must not wait for it whenever one
//! transfer ends, so it leaves that to the end of all.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{END_WAIT, queue::Queue};

/// What the disk's threads of dropped stores still do. Clones are the same; when the last one is
/// dropped, it waits until these threads have ended, 2 s at most for all together.
///
/// Invariant: as many are kept as there are threads at work, and those that ended since the last
/// store was dropped.
#[derive(Clone, Debug, Default)]
pub struct Endings(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending(Mutex<Vec<Arc<Queue>>>);

impl Endings {
    /// Leaves the wait for a store's disk to these.
    pub(super) fn add(&self, queue: Arc<Queue>) {
        let mut pending = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|queue| !queue.has_ended());
        pending.push(queue);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let pending = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + END_WAIT;
        for queue in pending.drain(..) {
            queue.wait_for_end(end.saturating_duration_since(Instant::now()));
        }
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
        endings.add(over);
        endings.add(Arc::clone(&stuck));
        let kept = endings.0.0.lock().unwrap().len();
        assert_eq!(kept, 1, "who has ended is forgotten");
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
