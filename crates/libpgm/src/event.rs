//! Descriptors that show a program by `poll` or `select` how things stand.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd. It is readable while raised, and writable unless it is full.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the eventfd readable.
    pub(crate) fn raise(&self) {
        self.add(1);
    }

    /// Makes the eventfd not writable. It becomes readable, too, which does no harm: programs watch
    /// a filled eventfd only for writing.
    pub(crate) fn fill(&self) {
        self.add(u64::MAX - 1);
    }

    /// Makes the eventfd writable and not readable.
    pub(crate) fn clear(&self) {
        // One that is clear already has nothing to read.
        let _clear = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn add(&self, count: u64) {
        // One that is full stays full.
        let _full = rustix::io::write(&self.0, &count.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn state(event: &Event) -> PollFlags {
        let mut fds = [PollFd::new(&event.0, PollFlags::IN | PollFlags::OUT)];
        poll(&mut fds, Some(&rustix::time::Timespec::default())).unwrap();
        fds[0].revents()
    }

    #[test]
    fn it_shows_what_it_was_told() {
        let event = Event::new().unwrap();
        assert_eq!(state(&event), PollFlags::OUT);
        event.raise();
        event.raise();
        assert_eq!(state(&event), PollFlags::OUT | PollFlags::IN);
        event.clear();
        assert_eq!(state(&event), PollFlags::OUT);
        event.fill();
        assert_eq!(state(&event), PollFlags::IN);
        event.clear();
        event.clear();
        assert_eq!(state(&event), PollFlags::OUT);
    }
}
