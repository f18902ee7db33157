//! Signals as a descriptor: a program that is told to stop finishes what it has begun.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use crate::call::check;

/// Becomes readable when the process is told to stop (SIGINT, SIGTERM), which then does not end it.
#[derive(Debug)]
pub struct StopSignal(OwnedFd);

impl StopSignal {
    /// Takes the two signals over for the calling thread and all that it starts from here on: to be
    /// called before there are others.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn take_over() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is live and exclusively borrowed; the call initialises all of it.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: `set` was initialised above; the signal exists.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: `set` was initialised above; the old mask is not asked for (null is allowed).
        let masked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
        if masked != 0 {
            return Err(io::Error::from_raw_os_error(masked));
        }
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: -1 asks for a new descriptor; `set` is live and only read.
        let raw = check(unsafe { libc::signalfd(-1, set.as_ptr(), flags) })?;
        // SAFETY: `raw` was just returned open by signalfd and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// True when a signal has come since the last call.
    #[must_use]
    pub fn has_come(&self) -> bool {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: `info` is live, exclusively borrowed and as long as announced.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) };
        read > 0
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_and_does_not_end_the_process() {
        // A thread of its own: the mask of the test runner's stays as it is.
        let thread = std::thread::spawn(|| {
            let stop = StopSignal::take_over().unwrap();
            assert!(!stop.has_come());
            // SAFETY: takes nothing and cannot fail.
            let this = unsafe { libc::pthread_self() };
            // SAFETY: a signal that is blocked here, for a thread that lives.
            let sent = unsafe { libc::pthread_kill(this, libc::SIGTERM) };
            assert_eq!(sent, 0);
            assert!(stop.has_come());
            assert!(!stop.has_come());
        });
        thread.join().unwrap();
    }
}
