//! The signals that ask a program to end: SIGINT and SIGTERM.
//!
//! ```text
//!    none ---signal---> asked: the flag is set, the program ends by itself
//!                         |  signal within the repeat time: the same request, nothing happens
//!                         +- signal later: the process exits at once
//! ```
//! One request often comes as several signals, microseconds apart. For example, `timeout` signals
//! its child and then the child's group, and supervisors may signal a whole group.
//!
//! The handler needs no thread. So it also serves a program that must stay single-threaded, such as
//! one that makes a user namespace.

use std::{
    io, mem,
    process::Child,
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use libc::c_int;

use crate::{call::check, clock};

/// The state of the request to end, and the settings for later signals.
struct Request {
    is_asked: Arc<AtomicBool>,
    /// Time of the first signal, in monotonic nanoseconds; 0 before it.
    first_ns: AtomicU64,
    repeat_ns: u64,
    exit_code: c_int,
}

/// The meaning of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    First,
    Repeat,
    Second,
}

static REQUEST: OnceLock<Request> = OnceLock::new();

/// Handles SIGINT and SIGTERM from now on. The first signal sets the flag that is returned. Signals
/// that follow it within `repeat` belong to the same request. A later signal ends the process at
/// once with `exit_code`.
///
/// Each signal ends a blocking call, if the kernel does not restart that call after a signal. A
/// second call of this function returns the flag of the first.
///
/// # Errors
/// When the kernel refuses (it never has a reason to).
pub fn watch_end_requests(repeat: Duration, exit_code: u8) -> io::Result<Arc<AtomicBool>> {
    let request = REQUEST.get_or_init(|| Request {
        is_asked: Arc::new(AtomicBool::new(false)),
        first_ns: AtomicU64::new(0),
        repeat_ns: u64::try_from(repeat.as_nanos()).unwrap_or(u64::MAX),
        exit_code: exit_code.into(),
    });
    // SAFETY: a `sigaction` is integers, a set of bits and optional pointers: zeros are valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = take as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `action` is a live, whole `sigaction`; the old one is not asked for. The handler
        // has the signature that goes with flags without SA_SIGINFO, and calls only what a signal
        // handler may (see `take`).
        check(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
    }
    Ok(Arc::clone(&request.is_asked))
}

/// Asks a child to end, by SIGTERM.
///
/// # Errors
/// When the child has ended and was already waited for.
pub fn request_end(child: &Child) -> io::Result<()> {
    let id = c_int::try_from(child.id()).map_err(|_beyond| io::ErrorKind::InvalidInput)?;
    // SAFETY: `kill` takes two integers and reaches no memory. The number is the child's until its
    // owner has waited for it. Afterwards no process has that number until Linux gives it out
    // again, which takes a whole round of process numbers.
    check(unsafe { libc::kill(id, libc::SIGTERM) }).map(drop)
}

/// Handles a signal. It calls only what is safe in a handler: atomics, clock_gettime(2), _exit(2).
extern "C" fn take(_signal: c_int) {
    let Some(request) = REQUEST.get() else {
        return;
    };
    match request.meaning(clock::monotonic().as_nanos()) {
        Meaning::First => request.is_asked.store(true, Ordering::Relaxed),
        Meaning::Repeat => {}
        Meaning::Second => {
            // SAFETY: `_exit` takes an integer, may be called in a handler, and never returns.
            unsafe { libc::_exit(request.exit_code) }
        }
    }
}

impl Request {
    fn meaning(&self, now_ns: u64) -> Meaning {
        let (first, order) = (now_ns.max(1), Ordering::Relaxed);
        match self.first_ns.compare_exchange(0, first, order, order) {
            Ok(_) => Meaning::First,
            Err(first) if now_ns.saturating_sub(first) < self.repeat_ns => Meaning::Repeat,
            Err(_) => Meaning::Second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_are_one_request() {
        let request = Request {
            is_asked: Arc::default(),
            first_ns: AtomicU64::new(0),
            repeat_ns: 500,
            exit_code: 130,
        };
        let meanings = [7, 7, 8, 506, 507, 9_000].map(|now_ns| request.meaning(now_ns));
        let (repeat, second) = (Meaning::Repeat, Meaning::Second);
        let expected = [Meaning::First, repeat, repeat, repeat, second, second];
        assert_eq!(meanings, expected);
    }
}
