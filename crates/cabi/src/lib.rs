//! Turns what C hands over into what Rust can take: places to write to, bytes and text. It also
//! keeps panics from crossing into C.
//!
//! Arguments that C declares as pointers to one object are declared as `Option<&T>` or [`Out`].
//! Null becomes `None`. For any other pointer, the caller in C must see to it that the object is
//! there.
//!
//! Both libraries for C stand on this crate: `libtowline` (`capi`) and the stand-in for libpgm
//! (`libpgm`).
#![allow(
    unsafe_code,
    reason = "pointers of a C program become references and slices here"
)]

use std::{
    ffi::{CStr, c_char, c_void},
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A place for a result, which may hold nothing yet; `None` for a null pointer.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Writes a result to its place, if there is one.
pub fn give<T>(place: Out<'_, T>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// Runs the body of an exported function; returns `failed` when it panics.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}

/// Returns the `len` elements at a pointer of the program; `None` for null, and when the elements
/// would be longer than an object can be.
///
/// # Safety
/// `data` is null, or is aligned and `len` elements can be read there while the result is in use.
pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> Option<&'a [T]> {
    if data.is_null() || isize::try_from(len.saturating_mul(size_of::<T>())).is_err() {
        return None;
    }
    // SAFETY: it is not null, not longer than an object may be, and the caller vouches for the
    // rest.
    Some(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Returns the bytes at a pointer of the program; `None` for null, and when `len` is more than an
/// object can have.
///
/// # Safety
/// `data` is null, or `len` bytes can be read there while the result is in use.
pub unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for it.
    unsafe { slice(data.cast(), len) }
}

/// Returns the room of `len` elements at a pointer of the program; `None` for null, and when the
/// room would be longer than an object can be.
///
/// # Safety
/// `data` is null, or is aligned and `len` elements can be written there while the result is in
/// use.
pub unsafe fn room<'a, T>(data: *mut T, len: usize) -> Option<&'a mut [MaybeUninit<T>]> {
    if data.is_null() || isize::try_from(len.saturating_mul(size_of::<T>())).is_err() {
        return None;
    }
    // SAFETY: it is not null, not longer than an object may be, and the caller vouches for the
    // rest.
    Some(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// Returns the text at a pointer of the program; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero byte and stays while the result is in use.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: it is not null, and the caller vouches for its end.
    Some(unsafe { CStr::from_ptr(text) })
}

/// Writes as much of `text` into `room` as fits, and a zero byte. Returns the length of the whole
/// text, as `snprintf` does.
pub fn print(text: &str, room: &mut [MaybeUninit<c_char>]) -> usize {
    if let Some(last) = room.len().checked_sub(1) {
        let written = last.min(text.len());
        for (place, byte) in room.iter_mut().zip(&text.as_bytes()[..written]) {
            place.write(byte.cast_signed());
        }
        room[written].write(0);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_leave() {
        assert_eq!(guard(-1, || panic!("a bug")), -1);
        assert_eq!(guard(-1, || 7), 7);
    }

    #[test]
    fn text_is_cut_to_its_room_and_always_ends() {
        let mut room = [MaybeUninit::new(9); 4];
        assert_eq!(print("abcdef", &mut room), 6);
        // SAFETY: every element was initialised.
        let written = room.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(written.map(c_char::cast_unsigned), *b"abc\0");
        assert_eq!(print("abc", &mut []), 3);
    }
}
