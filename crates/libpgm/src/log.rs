//! What the library says besides its results, to the program's handler: warnings, and answers to
//! what the program asked for, which are printed where there is no handler.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use cabi::guard;

use crate::memory;

/// A function of the program that takes a message of `level`.
type Handler = extern "C" fn(level: c_int, message: *const c_char, closure: *mut c_void);

/// Which roles a program wants to hear of. This library's messages are of the roles
/// network and session.
#[unsafe(no_mangle)]
static pgm_log_mask: AtomicI32 = AtomicI32::new(0xffff);

/// The least level of messages that are given out.
#[unsafe(no_mangle)]
static pgm_min_log_level: AtomicI32 = AtomicI32::new(NORMAL.number);

static HANDLER: Mutex<(Option<Handler>, Closure)> =
    Mutex::new((None, Closure(std::ptr::null_mut())));

/// What a program wants to have back with each message.
#[derive(Clone, Copy)]
struct Closure(*mut c_void);

// SAFETY: the library never looks at what it points to, and the program expects its handler to be
// called by any thread.
unsafe impl Send for Closure {}

/// Sets the handler of messages, and returns the former one. Null, which is the first one, stands
/// for none.
#[unsafe(no_mangle)]
extern "C" fn pgm_log_set_handler(
    handler: Option<Handler>,
    closure: *mut c_void,
) -> Option<Handler> {
    let next = (handler, Closure(closure));
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *current, next).0
}

/// Number of calls of `pgm_messages_init` that no `pgm_messages_shutdown` has answered yet.
static USERS: AtomicU32 = AtomicU32::new(0);

/// Takes the levels and roles that the environment names. Only the first use of the library does
/// this: what a program has set since then stays.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_messages_init() {
    guard((), || {
        if USERS.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
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
pub(crate) extern "C" fn pgm_messages_shutdown() {
    guard((), || {
        let fewer = |users: u32| users.checked_sub(1);
        let _was_unused = USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    });
}

/// Gives the program's handler a warning; without a handler, the warning is dropped.
pub(crate) fn warn(text: &str) {
    tell(&WARNING, ROLE_SESSION, text, |_| ());
}

/// Gives the program's handler a line of what the program asked for; without a handler, prints it.
#[expect(
    clippy::print_stdout,
    reason = "printing is what the program asked for"
)]
pub(crate) fn answer(text: &str) {
    tell(&NORMAL, ROLE_NETWORK, text, |text| println!("{text}"));
}

fn tell(level: &Level, role: c_int, text: &str, otherwise: impl FnOnce(&str)) {
    let is_wanted = pgm_min_log_level.load(Ordering::Relaxed) <= level.number
        && pgm_log_mask.load(Ordering::Relaxed) & role != 0;
    if !is_wanted {
        return;
    }
    let (handler, closure) = *HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    let text = format!("{}: {text}", level.word);
    let Some(handler) = handler else {
        return otherwise(&text);
    };
    let message = memory::text(&text);
    guard((), || handler(level.number, message, closure.0));
    memory::pgm_free(message.cast());
}

/// A level of messages, and the word that stands before each of them.
struct Level {
    number: c_int,
    word: &'static str,
}

const NORMAL: Level = Level {
    number: 3,
    word: "Info",
};
const WARNING: Level = Level {
    number: 4,
    word: "Warn",
};
/// The names of the levels in the environment, from 0.
const LEVELS: [&str; 7] = [
    "DEBUG", "TRACE", "MINOR", "NORMAL", "WARNING", "ERROR", "FATAL",
];
const ROLE_NETWORK: c_int = 0x002;
const ROLE_SESSION: c_int = 0x010;
