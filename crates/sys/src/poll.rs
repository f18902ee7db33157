//! Waiting for descriptors: epoll, and descriptors that make a deadline and a wake-up pollable.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use base::Instant;
use libc::c_int;
use rustix::{
    event::{
        EventfdFlags,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd,
    },
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    },
};

use crate::{call::check_len, clock::timespec};

/// The events that a caller asks for on one descriptor. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Data to read, a connection to accept, or the end of the stream.
    pub readable: bool,
    /// Room to write, or a finished connect.
    pub writable: bool,
}

impl Interest {
    /// Only data to read.
    pub const READ: Self = Self {
        readable: true,
        writable: false,
    };
    /// Data to read and room to write.
    pub const BOTH: Self = Self {
        readable: true,
        writable: true,
    };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(READ_FLAGS, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the descriptor was added with.
    pub token: u64,
    /// Something to read, or an error to collect by reading.
    pub readable: bool,
    /// Room to write, or an error to collect by writing.
    pub writable: bool,
    /// An error or hang-up. A UDP socket also sets this while its error queue is not empty.
    pub faulty: bool,
}

/// A set of descriptors that a thread waits for together, level-triggered.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    // rustix's own event type contains a pointer, with which an `Epoll` could not move to another
    // thread.
    events: Vec<libc::epoll_event>,
    has_pwait2: bool,
}

impl Epoll {
    /// Makes an empty set that reports up to `events_max` ready descriptors a call.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(events_max: usize) -> io::Result<Self> {
        Ok(Self {
            fd: epoll::create(CreateFlags::CLOEXEC)?,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; events_max.max(1)],
            has_pwait2: true,
        })
    }

    /// Adds a descriptor. A descriptor that was duplicated must be removed before it is closed.
    ///
    /// # Errors
    /// When the descriptor cannot be polled, is in the set already, or memory is short.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::add(&self.fd, fd, data, interest.flags())?)
    }

    /// Changes the events that the set reports for one of its descriptors.
    ///
    /// # Errors
    /// When the descriptor is not in the set.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::modify(&self.fd, fd, data, interest.flags())?)
    }

    /// Watches a descriptor until it is reported once; it need not be in the set yet. After that,
    /// nothing of the descriptor is reported, not even an error or a hang-up, until the next call.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    ///
    /// **Cost**: one system call; the first time two.
    pub fn watch_once(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        let flags = interest.flags() | EventFlags::ONESHOT;
        match epoll::modify(&self.fd, fd, data, flags) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.fd, fd, data, flags)?),
            modified => Ok(modified?),
        }
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// When the descriptor is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits up to `timeout` (`None`: for ever; zero: not at all) and returns what is ready. A
    /// signal ends the wait early with nothing ready.
    ///
    /// # Errors
    /// Never in practice; kept because the kernel's interface allows it.
    ///
    /// **Cost**: one system call, 0.24 us when nothing is ready; no allocation.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl ExactSizeIterator<Item = Ready> + '_> {
        let result = match timeout {
            None => self.wait_millis(-1),
            Some(Duration::ZERO) => self.wait_millis(0),
            Some(timeout) if self.has_pwait2 => match self.wait_exactly(timeout) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    self.has_pwait2 = false;
                    self.wait_millis(millis(timeout))
                }
                result => result,
            },
            Some(timeout) => self.wait_millis(millis(timeout)),
        };
        let count = match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            result => result?,
        };
        Ok(self.events[..count].iter().map(|event| {
            let (flags, token) = (EventFlags::from_bits_retain(event.events), event.u64);
            Ready {
                token,
                readable: flags.intersects(READ_FLAGS | FAULT_FLAGS),
                writable: flags.intersects(EventFlags::OUT | FAULT_FLAGS),
                faulty: flags.intersects(FAULT_FLAGS),
            }
        }))
    }

    fn wait_millis(&mut self, timeout_ms: c_int) -> io::Result<usize> {
        let capacity = c_int::try_from(self.events.len()).unwrap_or(c_int::MAX);
        // SAFETY: `events` is exclusively borrowed and holds at least `capacity` entries; the
        // kernel writes no more than that.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                capacity,
                timeout_ms,
            )
        };
        check_len(count as isize)
    }

    /// Waits, exact to the nanosecond. The call is made by its number: rustix offers it only in
    /// builds for Linux 5.11 and later, and such builds lack the fallback for older kernels.
    fn wait_exactly(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = timespec(timeout);
        let capacity = c_int::try_from(self.events.len()).unwrap_or(c_int::MAX);
        // SAFETY: `events` is exclusively borrowed and holds at least `capacity` entries; the
        // kernel writes no more than these. `timeout` is live and only read. The signal mask is
        // null, so its size is ignored.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                capacity,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        check_len(isize::try_from(count).unwrap_or(-1))
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A deadline on the monotonic clock as a descriptor, which is readable once the deadline has
/// passed. Timer slack does not delay it.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Makes a timer that is not set.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Makes the timer readable from `deadline` on, at once for a past deadline; `None` unsets the
    /// timer.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set(&self, deadline: Option<Instant>) -> io::Result<()> {
        // A value of zero would unset the timer, so a deadline at zero is set to one nanosecond.
        let at = deadline.map_or(0, |deadline| deadline.as_nanos().max(1));
        let value = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(Duration::from_nanos(at)),
        };
        let _former = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &value)?;
        Ok(())
    }

    /// If the deadline has passed, makes the timer unreadable until it is set again, and returns
    /// true.
    #[must_use]
    pub fn take(&self) -> bool {
        take_count(&self.0)
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A wake-up as a descriptor: any thread makes it readable, and the waiting thread takes it.
#[derive(Debug)]
pub struct WakeFd(OwnedFd);

impl WakeFd {
    /// Makes a wake-up that is not raised.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes a second handle on the same wake-up, for another thread.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Makes the wake-up readable. Raising it twice is the same as once.
    pub fn raise(&self) {
        // The only possible failure is a full counter, and then the wake-up is readable already.
        let _written_or_raised_already = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Lowers the wake-up. Returns true when it was raised.
    #[must_use]
    pub fn take(&self) -> bool {
        take_count(&self.0)
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for WakeFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns whole milliseconds for a poll call, rounded up so that the wait does not end early; at
/// most about 24 days.
fn millis(timeout: Duration) -> c_int {
    let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
    c_int::try_from(rounded_up).unwrap_or(c_int::MAX)
}

/// Takes the 64-bit count of a timerfd or eventfd. Returns false when the count is zero.
fn take_count(fd: &OwnedFd) -> bool {
    rustix::io::read(fd, &mut [0; 8]) == Ok(8)
}

const READ_FLAGS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);
const FAULT_FLAGS: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn what_is_watched_once_is_told_once_until_it_is_asked_for_again() {
        let mut epoll = Epoll::new(8).unwrap();
        let (from, to) = io::pipe().unwrap();
        let count = |epoll: &mut Epoll| epoll.wait(Some(Duration::ZERO)).unwrap().len();
        for _ in 0..2 {
            epoll.watch_once(from.as_fd(), 1, Interest::READ).unwrap();
            assert_eq!(count(&mut epoll), 0);
        }
        // Dropping `to` makes a hang-up, which is reported whatever the interest is.
        drop(to);
        for _ in 0..2 {
            assert_eq!((count(&mut epoll), count(&mut epoll)), (1, 0));
            epoll.watch_once(from.as_fd(), 1, Interest::READ).unwrap();
        }
        epoll.remove(from.as_fd()).unwrap();
        assert_eq!(count(&mut epoll), 0);
    }

    #[test]
    fn a_timer_and_a_wake_up_are_pollable() {
        let mut epoll = Epoll::new(8).unwrap();
        let (timer, wake) = (TimerFd::new().unwrap(), WakeFd::new().unwrap());
        epoll.add(timer.as_fd(), 1, Interest::READ).unwrap();
        epoll.add(wake.as_fd(), 2, Interest::READ).unwrap();
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap().len(), 0);

        let start = monotonic();
        timer.set(Some(start + Duration::from_millis(3))).unwrap();
        let tokens: Vec<_> = epoll.wait(None).unwrap().map(|ready| ready.token).collect();
        assert_eq!(tokens, [1]);
        assert!(monotonic().since(start) >= Duration::from_millis(3));
        assert!(timer.take() && !timer.take());

        wake.try_clone().unwrap().raise();
        let tokens: Vec<_> = epoll.wait(None).unwrap().map(|ready| ready.token).collect();
        assert_eq!(tokens, [2]);
        assert!(wake.take() && !wake.take());
    }

    #[test]
    fn a_timed_wait_is_never_early() {
        let mut epoll = Epoll::new(1).unwrap();
        for has_pwait2 in [true, false] {
            epoll.has_pwait2 = has_pwait2;
            let start = monotonic();
            let timeout = Duration::from_micros(1500);
            assert_eq!(epoll.wait(Some(timeout)).unwrap().len(), 0);
            assert!(monotonic().since(start) >= timeout);
        }
    }
}
