//! Errors, as programs get and free them.
//!
//! A function that can fail gets a place for a pointer to an error. When it fails, it fills the
//! place, unless the place holds an error already.

use std::{
    ffi::{CStr, c_int},
    io,
};

use cabi::guard;

use crate::{
    abi::Error,
    memory::{self, pgm_free},
};

/// Where a program wants an error; `None` when it wants none.
pub(crate) type Slot<'a> = Option<&'a mut *mut Error>;

/// Which part an error comes from: `PGM_ERROR_DOMAIN_...`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Domain {
    Interface = 0,
    Recv = 2,
    Socket = 4,
}

/// What an error is: `PGM_ERROR_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    AfNoSupport = 1,
    Again = 2,
    BadF = 4,
    ConnReset = 7,
    Fail = 8,
    Fault = 9,
    Intr = 11,
    Inval = 12,
    MFile = 13,
    NFile = 14,
    NoData = 16,
    NoDev = 17,
    NoEnt = 18,
    NoMem = 19,
    NoName = 20,
    NoNet = 21,
    NoProtoOpt = 22,
    NotUniq = 24,
    NxIo = 25,
    Perm = 26,
    Proto = 28,
    Range = 29,
    Service = 30,
    SockTNoSupport = 31,
    XDev = 35,
    Failed = 36,
}

impl Code {
    const fn of_errno(errno: c_int) -> Self {
        match errno {
            libc::EPERM => Self::Perm,
            libc::ENOENT => Self::NoEnt,
            libc::EINTR => Self::Intr,
            libc::ENXIO => Self::NxIo,
            libc::EBADF => Self::BadF,
            libc::EAGAIN => Self::Again,
            libc::ENOMEM => Self::NoMem,
            libc::EFAULT => Self::Fault,
            libc::EXDEV => Self::XDev,
            libc::ENODEV => Self::NoDev,
            libc::EINVAL => Self::Inval,
            libc::ENFILE => Self::NFile,
            libc::EMFILE => Self::MFile,
            libc::ERANGE => Self::Range,
            libc::ENONET => Self::NoNet,
            libc::EPROTO => Self::Proto,
            libc::ENOTUNIQ => Self::NotUniq,
            libc::ENOPROTOOPT => Self::NoProtoOpt,
            libc::EAFNOSUPPORT => Self::AfNoSupport,
            libc::ECONNRESET => Self::ConnReset,
            _ => Self::Failed,
        }
    }

    /// Returns the code of an error of `towline`, on which this library stands.
    pub(crate) fn of(error: &towline::Error) -> Self {
        match error {
            towline::Error::System(error) => error.errno().map_or(Self::Failed, Self::of_errno),
            towline::Error::Interface(_) => Self::NoDev,
            _ => Self::Failed,
        }
    }
}

/// What went wrong in a function of this library.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) domain: Domain,
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(domain: Domain, code: Code, text: impl Into<String>) -> Self {
        Self {
            domain,
            code,
            text: text.into(),
        }
    }
}

/// Gives the program an error, unless its place holds one already.
pub(crate) fn put(slot: Slot<'_>, fault: &Fault) {
    set(
        slot,
        fault.domain as c_int,
        fault.code as c_int,
        &fault.text,
    );
}

pub(crate) fn set(slot: Slot<'_>, domain: c_int, code: c_int, text: &str) {
    let Some(slot) = slot.filter(|slot| slot.is_null()) else {
        return;
    };
    let message = memory::text(text);
    *slot = memory::allocate_one(Error {
        domain,
        code,
        message,
    });
}

/// Puts `prefix` before the message of the error in `slot`, if there is one.
pub(crate) fn prefix(slot: Slot<'_>, prefix: &str) {
    let Some(error) = slot.and_then(|slot| {
        // SAFETY: the program's place holds null or an error that this library made.
        unsafe { slot.as_mut() }
    }) else {
        return;
    };
    let old = error.message;
    // SAFETY: the messages of errors are null or texts that this library made.
    let behind = unsafe { cabi::text(old) }.unwrap_or_default();
    error.message = memory::text(&format!("{prefix}{}", behind.to_string_lossy()));
    pgm_free(old.cast());
}

#[unsafe(no_mangle)]
extern "C" fn pgm_error_free(error: *mut Error) {
    guard((), || {
        // SAFETY: it is null, or an error that this library made and that nobody else frees.
        if let Some(inner) = unsafe { error.as_ref() } {
            pgm_free(inner.message.cast());
            pgm_free(error.cast());
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn pgm_clear_error(slot: Slot<'_>) {
    guard((), || {
        if let Some(slot) = slot {
            pgm_error_free(std::mem::replace(slot, std::ptr::null_mut()));
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn pgm_propagate_error(slot: Slot<'_>, error: *mut Error) {
    guard((), || match slot {
        Some(slot) if slot.is_null() => *slot = error,
        _ => pgm_error_free(error),
    });
}

#[unsafe(no_mangle)]
extern "C" fn pgm_error_from_errno(errno: c_int) -> c_int {
    Code::of_errno(errno) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn pgm_error_from_h_errno(errno: c_int) -> c_int {
    let code = match errno {
        1 => Code::NoName,
        2 => Code::Again,
        3 => Code::Fail,
        4 => Code::NoData,
        _ => Code::Failed,
    };
    code as c_int
}

#[unsafe(no_mangle)]
extern "C" fn pgm_error_from_eai_errno(error: c_int, errno: c_int) -> c_int {
    let code = match error {
        libc::EAI_SYSTEM => Code::of_errno(errno),
        libc::EAI_MEMORY => Code::NoMem,
        libc::EAI_SERVICE => Code::Service,
        libc::EAI_SOCKTYPE => Code::SockTNoSupport,
        libc::EAI_FAMILY => Code::AfNoSupport,
        libc::EAI_FAIL => Code::Fail,
        libc::EAI_AGAIN => Code::Again,
        libc::EAI_NONAME => Code::NoName,
        libc::EAI_BADFLAGS => Code::Inval,
        _ => Code::Failed,
    };
    code as c_int
}

/// Returns the code of an unknown error: only Windows has such errors.
#[unsafe(no_mangle)]
extern "C" fn pgm_error_from_wsa_errno(_error: c_int) -> c_int {
    Code::Failed as c_int
}

/// Returns the code of an unknown error: only Windows has such errors.
#[unsafe(no_mangle)]
extern "C" fn pgm_error_from_win_errno(_error: c_int) -> c_int {
    Code::Failed as c_int
}

/// Gives the program an error whose text a variadic function has formatted.
pub(crate) fn set_formatted(slot: Slot<'_>, domain: c_int, code: c_int, text: &CStr) {
    set(slot, domain, code, &text.to_string_lossy());
}

/// Makes a fault of the operating system.
pub(crate) fn system(domain: Domain, what: &str, error: &io::Error) -> Fault {
    let code = error.raw_os_error().map_or(Code::Failed, Code::of_errno);
    let cause = net::with_usual_remedy(error);
    Fault::new(domain, code, format!("{what}: {cause}"))
}
