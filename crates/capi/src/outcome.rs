//! Results, and the text of each thread's last error.

use std::{
    cell::RefCell,
    ffi::{CStr, c_char},
    time::Duration,
};

use towline::{ErrorKind, SystemError};

use cabi::guard;

/// How a call ended. The numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum Outcome {
    Ok = 0,
    /// Nothing is there yet, or there is no room yet: call again.
    Again = 1,
    /// What was awaited did not happen in time.
    TimedOut = 2,
    /// An argument is NULL, unknown or out of range.
    Invalid = 3,
    /// No network interface can be used.
    NoInterface = 4,
    /// Another program has the address and port.
    AddressInUse = 5,
    /// The process may not do that.
    PermissionDenied = 6,
    /// There is no such file, counter or sender.
    NotFound = 7,
    /// The system refused something else.
    System = 8,
    /// The message is longer than the parameters allow.
    TooLong = 9,
    /// The session is over.
    Closed = 10,
    /// The wait was ended.
    Interrupted = 11,
    /// Not every receiver has everything.
    NotProven = 12,
    /// A bug of this library; the handle can only be freed.
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

    pub(crate) fn no_session() -> Self {
        Self::no_handle("session", "new")
    }

    pub(crate) fn no_publisher() -> Self {
        Self::no_handle("publisher", "open")
    }

    pub(crate) fn no_subscriber() -> Self {
        Self::no_handle("subscriber", "open")
    }

    /// Makes the failure of a call without its handle, and names the function that makes one.
    fn no_handle(what: &str, maker: &str) -> Self {
        let text = format!("the {what} is NULL: get one from towline_{what}_{maker}");
        Self::new(Outcome::Invalid, text)
    }

    /// Makes the failure of a call whose `data` cannot be there: it is null, or of an impossible
    /// length.
    pub(crate) fn no_room<T>(what: &str, data: *const T) -> Self {
        if data.is_null() {
            return Self::null(what);
        }
        let text = format!(
            "{what} is longer than any memory; check its length: a negative number becomes a huge \
             one"
        );
        Self::new(Outcome::Invalid, text)
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
    let panicked = || {
        let text = "the call panicked, which is a fault of this library; report the text on \
                    standard error; do nothing with the handle but free it, unless the call was a \
                    close, which has freed it";
        Err(Failure::new(Outcome::Panicked, text))
    };
    match guard(None, || Some(body())).unwrap_or_else(panicked) {
        Ok(outcome) => outcome,
        Err(failure) => {
            // A thread that is ending keeps no text.
            let _kept = LAST.try_with(|last| last.replace(failure.text));
            failure.outcome
        }
    }
}

/// Reads a text of the program.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the header says that texts end with a zero byte and stay during the call.
    let text = unsafe { cabi::text(text) }.ok_or_else(|| Failure::null(what))?;
    let wrong = |_| Failure::new(Outcome::Invalid, format!("{what} is not UTF-8"));
    CStr::to_str(text).map_err(wrong)
}

/// Reads a time in milliseconds; `None` for a negative one, which means without end.
pub(crate) fn time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Writes the reason of this thread's last failure into a buffer of len bytes, cut to its room,
/// and returns the length of the whole text, without its zero byte.
#[unsafe(no_mangle)]
extern "C" fn towline_error_text(buffer: *mut c_char, len: usize) -> usize {
    guard(0, || {
        // SAFETY: the header says that there is room for `len` bytes.
        let room = unsafe { cabi::room(buffer, len) };
        let print = |last: &RefCell<String>| cabi::print(&last.borrow(), room.unwrap_or_default());
        LAST.try_with(print).unwrap_or(0)
    })
}

/// Returns the library's version, such as "0.1.0".
#[unsafe(no_mangle)]
extern "C" fn towline_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_result_with_its_text() {
        assert_eq!(attempt(|| panic!("a bug")), Outcome::Panicked);
        let said = LAST.with_borrow(String::clone);
        assert!(said.starts_with("the call panicked"), "{said}");
        assert_eq!(attempt(|| Ok(Outcome::Again)), Outcome::Again);
    }
}
