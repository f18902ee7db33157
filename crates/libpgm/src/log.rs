//! What the library says besides its results: warnings, given to the program's handler.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use cabi::guard;

use crate::memory;

/// A function of the program that takes a message of `level`.
type Handler = extern "C" fn(level: c_int, message: *const c_char, closure: *mut c_void);

/// Which roles a program wants to hear of. All messages of this library are of the role session.
#[unsafe(no_mangle)]
static pgm_log_mask: AtomicI32 = AtomicI32::new(0xffff);

/// The least level of messages that are given out.
#[unsafe(no_mangle)]
static pgm_min_log_level: AtomicI32 = AtomicI32::new(LEVEL_NORMAL);

static HANDLER: Mutex<(Handler, Closure)> = Mutex::new((ignore, Closure(std::ptr::null_mut())));

/// What a program wants to have back with each message.
#[derive(Clone, Copy)]
struct Closure(*mut c_void);

// SAFETY: the library never looks at what it points to, and the program expects its handler to be
// called by any thread.
unsafe impl Send for Closure {}

/// Drops a message: the first handler. A program that wants messages sets its own.
extern "C" fn ignore(_level: c_int, _message: *const c_char, _closure: *mut c_void) {}

/// Sets the handler of messages, and returns the former one; null sets the first handler again.
#[unsafe(no_mangle)]
extern "C" fn pgm_log_set_handler(handler: Option<Handler>, closure: *mut c_void) -> Handler {
    let next = (handler.unwrap_or(ignore), Closure(closure));
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *current, next).0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_messages_init() {
    guard((), || {
        let level = std::env::var("PGM_MIN_LOG_LEVEL").ok();
        let level = level.and_then(|name| LEVELS.iter().position(|&it| name.starts_with(it)));
        if let Some(level) = level {
            pgm_min_log_level.store(level as c_int, Ordering::Relaxed);
        }
        let mask = std::env::var("PGM_LOG_MASK").ok();
        let mask =
            mask.and_then(|text| c_int::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        if let Some(mask) = mask {
            pgm_log_mask.store(mask, Ordering::Relaxed);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_messages_shutdown() {}

/// Gives the program's handler a warning.
pub(crate) fn warn(text: &str) {
    let is_wanted = pgm_min_log_level.load(Ordering::Relaxed) <= LEVEL_WARNING
        && pgm_log_mask.load(Ordering::Relaxed) & ROLE_SESSION != 0;
    if !is_wanted {
        return;
    }
    let (handler, closure) = *HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    let message = memory::text(text);
    guard((), || handler(LEVEL_WARNING, message, closure.0));
    memory::pgm_free(message.cast());
}

/// The names of the levels, from 0.
const LEVELS: [&str; 7] = [
    "DEBUG", "TRACE", "MINOR", "NORMAL", "WARNING", "ERROR", "FATAL",
];
const LEVEL_NORMAL: c_int = 3;
const LEVEL_WARNING: c_int = 4;
const ROLE_SESSION: c_int = 0x010;
