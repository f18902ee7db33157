//! `pgm_set_error` and `pgm_prefix_error`, which take a format and any number of arguments. Rust
//! cannot be called so: a few instructions gather the arguments for the C library's `vasprintf`.
//!
//! On other processors than x86-64, the format itself becomes the text, and the arguments are
//! ignored.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

use cabi::guard;

use crate::{
    error::{self, Slot},
    memory::pgm_free,
};

/// The arguments of a call, as the C library's functions with a `v` take them: on x86-64 a pointer.
type Arguments = *mut c_void;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: Arguments) -> c_int;
}

extern "C" fn set_error(
    slot: Slot<'_>,
    domain: c_int,
    code: c_int,
    format: *const c_char,
    arguments: Arguments,
) {
    formatted(format, arguments, |text| {
        error::set_formatted(slot, domain, code, text);
    });
}

extern "C" fn prefix_error(slot: Slot<'_>, format: *const c_char, arguments: Arguments) {
    formatted(format, arguments, |text| {
        error::prefix(slot, &text.to_string_lossy());
    });
}

fn formatted(format: *const c_char, arguments: Arguments, then: impl FnOnce(&CStr)) {
    guard((), || {
        if format.is_null() {
            return;
        }
        let mut text = null_mut();
        if arguments.is_null() {
            // SAFETY: the program's format ends with a zero byte.
            return then(unsafe { CStr::from_ptr(format) });
        }
        // SAFETY: the arguments are those of the call, and the program says that they fit the
        // format.
        if unsafe { vasprintf(&raw mut text, format, arguments) } >= 0 {
            // SAFETY: the C library has made the text.
            then(unsafe { CStr::from_ptr(text) });
            pgm_free(text.cast());
        }
    });
}

// The System V convention for x86-64: six integer arguments in registers, eight others in xmm0 to
// xmm7 when al is not 0, the rest on the stack. A `va_list` holds three things: how many bytes of
// the registers are used up, where the arguments on the stack begin, and where the registers were
// saved. Here they are saved 48 bytes above the list.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($name:ident, $to:ident, $fixed_bytes:literal, $list_register:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            std::arch::naked_asm!(
                "sub rsp, 232",
                "mov [rsp + 48], rdi",
                "mov [rsp + 56], rsi",
                "mov [rsp + 64], rdx",
                "mov [rsp + 72], rcx",
                "mov [rsp + 80], r8",
                "mov [rsp + 88], r9",
                "test al, al",
                "je 2f",
                "movups [rsp + 96], xmm0",
                "movups [rsp + 112], xmm1",
                "movups [rsp + 128], xmm2",
                "movups [rsp + 144], xmm3",
                "movups [rsp + 160], xmm4",
                "movups [rsp + 176], xmm5",
                "movups [rsp + 192], xmm6",
                "movups [rsp + 208], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $fixed_bytes),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 240]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 48]",
                "mov [rsp + 16], rax",
                concat!("mov ", $list_register, ", rsp"),
                "call {to}",
                "add rsp, 232",
                "ret",
                to = sym $to,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
variadic!(pgm_set_error, set_error, "32", "r8");
#[cfg(target_arch = "x86_64")]
variadic!(pgm_prefix_error, prefix_error, "16", "rdx");

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn pgm_set_error(slot: Slot<'_>, domain: c_int, code: c_int, format: *const c_char) {
    set_error(slot, domain, code, format, null_mut());
}

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn pgm_prefix_error(slot: Slot<'_>, format: *const c_char) {
    prefix_error(slot, format, null_mut());
}
