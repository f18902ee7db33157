//! Results, and the text of each thread's last error.

use std::{
    cell::RefCell,
    ffi::{CStr, c_char},
    time::Duration,
};

use towline::{ErrorKind, SystemError};

use crate::ffi::{self, guard};

/// `towline_result`. The numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum Outcome {
    Ok = 0,
    Again = 1,
    TimedOut = 2,
    Invalid = 3,
    NoInterface = 4,
    AddressInUse = 5,
    PermissionDenied = 6,
    NotFound = 7,
    System = 8,
    TooLong = 9,
    Closed = 10,
    Interrupted = 11,
    NotProven = 12,
    Panicked = 13,
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    outcome: Outcome,
    text: String,
}

impl Failure {
    pub(crate) fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            outcome,
            text: text.into(),
        }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::new(Outcome::Invalid, format!("{what} is NULL"))
    }
}

impl From<towline::Error> for Failure {
    fn from(error: towline::Error) -> Self {
        let outcome = match error.kind() {
            ErrorKind::InvalidInput => Outcome::Invalid,
            ErrorKind::NoInterface => Outcome::NoInterface,
            ErrorKind::AddressInUse => Outcome::AddressInUse,
            ErrorKind::PermissionDenied => Outcome::PermissionDenied,
            ErrorKind::NotFound => Outcome::NotFound,
            ErrorKind::TooLong => Outcome::TooLong,
            ErrorKind::Closed => Outcome::Closed,
            ErrorKind::Interrupted => Outcome::Interrupted,
            ErrorKind::TimedOut => Outcome::TimedOut,
            ErrorKind::Panicked => Outcome::Panicked,
            _ => Outcome::System,
        };
        Self::new(outcome, error.to_string())
    }
}

impl From<SystemError> for Failure {
    fn from(error: SystemError) -> Self {
        towline::Error::from(error).into()
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a function's body, and keeps the text of its failure for this thread.
pub(crate) fn attempt(body: impl FnOnce() -> Result<Outcome, Failure>) -> Outcome {
    let panicked = || Err(Failure::new(Outcome::Panicked, "a bug of this library"));
    match guard(None, || Some(body())).unwrap_or_else(panicked) {
        Ok(outcome) => outcome,
        Err(failure) => {
            LAST.set(failure.text);
            failure.outcome
        }
    }
}

/// Reads a text of the program.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the header says that texts end with a zero byte and stay during the call.
    let text = unsafe { ffi::text(text) }.ok_or_else(|| Failure::null(what))?;
    let wrong = |_| Failure::new(Outcome::Invalid, format!("{what} is not UTF-8"));
    CStr::to_str(text).map_err(wrong)
}

/// Reads a time in milliseconds; `None` for a negative one, which means without end.
pub(crate) fn time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

#[unsafe(no_mangle)]
extern "C" fn towline_error_text(buffer: *mut c_char, len: usize) -> usize {
    guard(0, || {
        // SAFETY: the header says that there is so much room.
        let room = unsafe { ffi::room(buffer, len) };
        LAST.with_borrow(|last| ffi::print(last, room.unwrap_or_default()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn towline_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
