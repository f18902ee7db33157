//! Room for one frame, between the thread that receives frames and the thread that looks at some of
//! them.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use video::Shape;

/// Room for one frame. The receiving side never waits: it passes over a frame while an earlier one
/// still waits in the room.
#[derive(Debug, Default)]
pub struct Glimpse {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slot {
    frame: Vec<u8>,
    /// The shape, which says how to read the frame; `None` when there is no frame.
    shape: Option<Shape>,
    is_over: bool,
}

impl Glimpse {
    /// Offers a frame. Returns true when it was taken; false when an earlier frame still waits, or
    /// when another thread has the lock at this moment.
    ///
    /// **Cost**: one copy of the frame if there was room, and nothing else.
    ///
    /// **Panics** (bug): when the length of `frame` is not [`Shape::frame_bytes`].
    pub fn offer(&self, shape: Shape, frame: &[u8]) -> bool {
        assert_eq!(frame.len(), shape.frame_bytes(), "one whole frame");
        let Ok(mut slot) = self.slot.try_lock() else {
            return false;
        };
        if slot.shape.is_some() {
            return false;
        }
        slot.frame.clear();
        slot.frame.extend_from_slice(frame);
        slot.shape = Some(shape);
        drop(slot);
        self.changed.notify_all();
        true
    }

    /// Takes the frame that is there, or that comes within `time`, and returns its shape. Returns
    /// `None` when no frame comes, or when [`Glimpse::end`] ends the wait. The memory of `into`
    /// serves a later frame.
    pub fn take(&self, into: &mut Vec<u8>, time: Duration) -> Option<Shape> {
        let nothing = |slot: &mut Slot| slot.shape.is_none() && !slot.is_over;
        let waited = self.changed.wait_timeout_while(self.lock(), time, nothing);
        let mut slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        let shape = slot.shape.take()?;
        std::mem::swap(into, &mut slot.frame);
        Some(shape)
    }

    /// Ends the wait of a thread that waits for a frame, and all further waits.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Returns true once [`Glimpse::end`] was called.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Locks the slot, even when a thread panicked while holding the lock: the slot is valid at all
    /// times.
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use video::PixelFormat;

    use super::*;

    #[test]
    fn one_frame_lies_there_until_it_is_taken() {
        let (glimpse, mut frame) = (Glimpse::default(), Vec::new());
        let shape = Shape::new(2, 1, PixelFormat::Mono8).unwrap();
        assert!(glimpse.offer(shape, b"ab"));
        assert!(!glimpse.offer(shape, b"cd"), "there is no room");
        let long = Duration::from_secs(60);
        assert_eq!(glimpse.take(&mut frame, long), Some(shape));
        assert_eq!(frame, b"ab");
        assert_eq!(glimpse.take(&mut frame, Duration::ZERO), None);
        assert!(glimpse.offer(shape, b"ef"));
        glimpse.end();
        assert_eq!(glimpse.take(&mut frame, long), Some(shape));
        assert_eq!(
            glimpse.take(&mut frame, long),
            None,
            "the end is not waited for"
        );
        assert!(glimpse.is_over());
    }
}
