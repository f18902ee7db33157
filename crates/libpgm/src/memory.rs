//! Memory that programs free: it comes from the C library's `malloc`, so that `pgm_free` and `free`
//! are the same.
//!
//! Running out of memory ends the process, as it does in OpenPGM: its callers do not check.

use std::{
    ffi::{c_char, c_void},
    sync::atomic::AtomicBool,
};

use cabi::guard;

/// A flag that programs may set. It has no effect: memory is never cleared before it is freed.
#[unsafe(no_mangle)]
static pgm_mem_gc_friendly: AtomicBool = AtomicBool::new(false);

/// Returns new memory; null for 0 bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_malloc(bytes: usize) -> *mut c_void {
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: any size may be asked for.
    checked(unsafe { libc::malloc(bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_malloc_n(count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(bytes) => pgm_malloc(bytes),
        None => checked(std::ptr::null_mut()),
    }
}

/// Returns new memory of zeros; null for 0 bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_malloc0(bytes: usize) -> *mut c_void {
    pgm_malloc0_n(1, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_malloc0_n(count: usize, bytes: usize) -> *mut c_void {
    if count == 0 || bytes == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: any size may be asked for.
    checked(unsafe { libc::calloc(count, bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_memdup(from: *const c_void, bytes: usize) -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the program says that `bytes` bytes are there.
        let from = unsafe { cabi::bytes(from, bytes) };
        from.map_or(std::ptr::null_mut(), |from| duplicate(from).cast())
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 {
        pgm_free(memory);
        return std::ptr::null_mut();
    }
    // SAFETY: the program gives null, or what one of these functions returned.
    checked(unsafe { libc::realloc(memory, bytes) })
}

/// Frees what one of these functions returned, or nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_free(memory: *mut c_void) {
    // SAFETY: the caller gives null, or what one of these functions returned, once.
    unsafe { libc::free(memory) }
}

fn checked(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() {
        std::process::abort();
    }
    memory
}

fn duplicate(from: &[u8]) -> *mut u8 {
    let to: *mut u8 = pgm_malloc(from.len()).cast();
    if !to.is_null() {
        // SAFETY: both are that long, and the new memory overlaps nothing.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }
    to
}

/// Returns a copy of `text` for C, up to its first zero byte.
pub(crate) fn text(text: &str) -> *mut c_char {
    let end = text
        .bytes()
        .position(|byte| byte == 0)
        .unwrap_or(text.len());
    duplicate(&[&text.as_bytes()[..end], &[0]].concat()).cast()
}

/// Moves a value to memory that C can free.
pub(crate) fn allocate_one<T>(value: T) -> *mut T {
    let place: *mut T = pgm_malloc(size_of::<T>().max(1)).cast();
    // SAFETY: `malloc` aligns for every type that this library allocates, and the size is right.
    unsafe { place.write(value) };
    place
}
