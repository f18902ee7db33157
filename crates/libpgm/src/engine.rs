//! The beginning and the end of the library's use, and what it says about itself.

use std::{
    ffi::{c_char, c_uint},
    sync::{Mutex, PoisonError, atomic::AtomicI32},
};

use cabi::{Out, give, guard};

use crate::{error::Slot, log};

/// Number of calls of `pgm_init` that no `pgm_shutdown` has answered yet.
static USERS: Mutex<u32> = Mutex::new(0);

#[unsafe(no_mangle)]
extern "C" fn pgm_init(_slot: Slot<'_>) -> bool {
    guard(false, || {
        log::pgm_messages_init();
        *USERS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        true
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_supported() -> bool {
    guard(false, || {
        *USERS.lock().unwrap_or_else(PoisonError::into_inner) > 0
    })
}

/// Ends one use of the library. Returns false when all calls of `pgm_init` were answered already.
/// Sockets that are open stay open.
#[unsafe(no_mangle)]
extern "C" fn pgm_shutdown() -> bool {
    guard(false, || {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let was_used = *users > 0;
        *users = users.saturating_sub(1);
        if was_used {
            log::pgm_messages_shutdown();
        }
        was_used
    })
}

/// Does nothing. OpenPGM gives up here the rights that only raw sockets need. This library opens
/// raw sockets when a socket connects, with the rights that the program has then.
#[unsafe(no_mangle)]
extern "C" fn pgm_drop_superuser() {}

/// Converts a time of the library, which is microseconds since 1970, to a `time_t`.
extern "C" fn since_epoch(time: Option<&u64>, seconds: Out<'_, i64>) {
    guard((), || {
        let time = time.copied().unwrap_or_default();
        give(seconds, i64::try_from(time / 1_000_000).unwrap_or(i64::MAX));
    });
}

/// Data that programs read by name.
macro_rules! exported {
    ($($name:ident: $kind:ty = $value:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
                        static $name: $kind = $value;
        )+
    };
}

exported! {
    pgm_major_version: c_uint = 5;
    pgm_minor_version: c_uint = 3;
    pgm_micro_version: c_uint = 128;
    pgm_build_date: Text = Text::of(c"");
    pgm_build_time: Text = Text::of(c"");
    pgm_build_system: Text = Text::of(c"Linux");
    pgm_build_machine: Text = Text::of(c"towline");
    pgm_build_revision: Text = Text::of(c"towline");
    pgm_ipproto_pgm: AtomicI32 = AtomicI32::new(crate::abi::IPPROTO_PGM);
    pgm_time_since_epoch: extern "C" fn(Option<&u64>, Out<'_, i64>) = since_epoch;
}

/// A text of this library. It stays as long as the process.
#[repr(transparent)]
struct Text(*const c_char);

impl Text {
    const fn of(text: &'static std::ffi::CStr) -> Self {
        Self(text.as_ptr())
    }
}

// SAFETY: it points to text that nobody changes.
unsafe impl Sync for Text {}
