//! Waiting for descriptors: epoll, and the two descriptors that make time and a wake-up pollable.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    time::Duration,
};

use base::Instant;

use crate::{
    call::{check, check_len},
    clock::timespec,
};

/// Which events of a descriptor are asked for. Errors and hang-ups are always reported.
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

    fn bits(self) -> u32 {
        let readable = if self.readable { READ_BITS } else { 0 };
        let writable = if self.writable {
            bits(libc::EPOLLOUT)
        } else {
            0
        };
        readable | writable
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token it was added with.
    pub token: u64,
    /// Something to read, or an error to collect by reading.
    pub readable: bool,
    /// Room to write, or an error to collect by writing.
    pub writable: bool,
    /// An error or hang-up; of a UDP socket also reports waiting in its error queue.
    pub faulty: bool,
}

/// A set of descriptors that are waited for together, level-triggered.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    has_pwait2: bool,
}

impl Epoll {
    /// An empty set that reports up to `events_max` ready descriptors a call.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(events_max: usize) -> io::Result<Self> {
        // SAFETY: takes a flag by value.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: `raw` was just returned open by epoll_create1 and belongs to nobody else.
            fd: unsafe { OwnedFd::from_raw_fd(raw) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; events_max.max(1)],
            has_pwait2: true,
        })
    }

    /// Adds a descriptor. It must be removed before it is closed if it was duplicated.
    ///
    /// # Errors
    /// When the descriptor cannot be polled, is in the set already, or memory is short.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what is asked of a descriptor in the set.
    ///
    /// # Errors
    /// When the descriptor is not in the set.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// When the descriptor is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::default())
    }

    /// Waits up to `timeout` (`None`: for ever; zero: only looks) and gives what is ready.
    /// A signal ends the wait early with nothing ready.
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
            let (events, token) = (event.events, event.u64);
            Ready {
                token,
                readable: events & (READ_BITS | FAULT_BITS) != 0,
                writable: events & (bits(libc::EPOLLOUT) | FAULT_BITS) != 0,
                faulty: events & FAULT_BITS != 0,
            }
        }))
    }

    fn wait_millis(&mut self, timeout_ms: libc::c_int) -> io::Result<usize> {
        let capacity = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `events` is exclusively borrowed and holds at least `capacity` entries; the
        // kernel writes no more than that.
        let count = check(unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                capacity,
                timeout_ms,
            )
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// By system call number: the C library's wrapper is newer than the kernels we run on.
    fn wait_exactly(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = timespec(timeout);
        let capacity = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `events` is exclusively borrowed and holds at least `capacity` entries, of which
        // the kernel writes no more; `timeout` is live and only read; the signal mask is null, for
        // which its size is ignored.
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

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.bits(),
            u64: token,
        };
        // SAFETY: both descriptors are borrowed, hence open; `event` is live and only read.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                operation,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })?;
        Ok(())
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

/// A deadline on the monotonic clock as a descriptor: readable once it has passed. Not subject to
/// timer slack.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes two integers by value.
        let raw = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: `raw` was just returned open by timerfd_create and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Readable from `deadline` on (at once when it has passed); `None` unsets it.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set(&self, deadline: Option<Instant>) -> io::Result<()> {
        // A value of zero would unset the timer, so the clock's origin becomes its first instant.
        let at = deadline.map_or(0, |deadline| deadline.as_nanos().max(1));
        let zero = timespec(Duration::ZERO);
        let value = libc::itimerspec {
            it_interval: zero,
            it_value: timespec(Duration::from_nanos(at)),
        };
        // SAFETY: `value` is live and only read; the old value is not asked for (null is allowed).
        check(unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const value,
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Makes a passed timer unreadable until it is set again; true when it had passed.
    #[must_use]
    pub fn take(&self) -> bool {
        read_count(self.0.as_fd()).is_some()
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A wake-up as a descriptor: any thread makes it readable, the waiting one takes it.
#[derive(Debug)]
pub struct WakeFd(OwnedFd);

impl WakeFd {
    /// One that is not raised.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes two integers by value.
        let raw = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: `raw` was just returned open by eventfd and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// A second handle on the same wake-up, for another thread.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Makes it readable. Raising twice is the same as once.
    pub fn raise(&self) {
        let one = 1_u64;
        // SAFETY: the eight bytes of `one` are readable for the call. The only failure is a full
        // counter, and then it is readable already.
        let _written_or_raised_already = unsafe {
            libc::write(
                self.0.as_raw_fd(),
                std::ptr::from_ref(&one).cast(),
                size_of::<u64>(),
            )
        };
    }

    /// Lowers it; true when it was raised.
    #[must_use]
    pub fn take(&self) -> bool {
        read_count(self.0.as_fd()).is_some()
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

/// The 64-bit count that timerfd and eventfd give when read; `None` when there is none.
fn read_count(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut count = 0_u64;
    // SAFETY: `count` is live and exclusively borrowed, and eight bytes long as announced.
    let read = unsafe {
        libc::read(
            fd.as_raw_fd(),
            std::ptr::from_mut(&mut count).cast(),
            size_of::<u64>(),
        )
    };
    (read == 8).then_some(count)
}

/// Whole milliseconds, rounded up so that a wait never ends early, within what poll calls take.
fn millis(timeout: Duration) -> libc::c_int {
    let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
    libc::c_int::try_from(rounded_up).unwrap_or(libc::c_int::MAX)
}

const fn bits(flag: libc::c_int) -> u32 {
    flag.cast_unsigned()
}

const READ_BITS: u32 = bits(libc::EPOLLIN) | bits(libc::EPOLLRDHUP);
const FAULT_BITS: u32 = bits(libc::EPOLLERR) | bits(libc::EPOLLHUP);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

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
