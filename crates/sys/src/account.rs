//! Users and groups by number and by name, as this machine knows them (`nsswitch.conf`).

use std::{
    ffi::{CStr, CString, c_char, c_int},
    mem::MaybeUninit,
    ptr,
};

use libc::{group, passwd, size_t};

/// Returns the name of a user; `None` when there is no such user, or the system cannot tell.
///
/// **Cost**: reads files, and may ask a directory service.
#[must_use]
pub fn user_name(number: u32) -> Option<Vec<u8>> {
    let found = |it: &passwd| name_of(it.pw_name);
    ask::<passwd, _>(found, |record, buffer, len, result| {
        // SAFETY: during the call, all pointers are to live memory of the given lengths.
        unsafe { libc::getpwuid_r(number, record, buffer, len, result) }
    })
}

/// Returns the name of a group, as [`user_name`] does for a user.
#[must_use]
pub fn group_name(number: u32) -> Option<Vec<u8>> {
    let found = |it: &group| name_of(it.gr_name);
    ask::<group, _>(found, |record, buffer, len, result| {
        // SAFETY: during the call, all pointers are to live memory of the given lengths.
        unsafe { libc::getgrgid_r(number, record, buffer, len, result) }
    })
}

/// Returns the number of the user called `name`; `None` when there is no such user, or the system
/// cannot tell.
///
/// **Cost**: as [`user_name`].
#[must_use]
pub fn user_number(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    ask::<passwd, _>(
        |it| it.pw_uid,
        |record, buffer, len, result| {
            // SAFETY: during the call, all pointers are to live memory of the given lengths, and
            // the name is a string that ends with a zero.
            unsafe { libc::getpwnam_r(name.as_ptr(), record, buffer, len, result) }
        },
    )
}

/// Returns the number of the group called `name`, as [`user_number`] does for a user.
#[must_use]
pub fn group_number(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    ask::<group, _>(
        |it| it.gr_gid,
        |record, buffer, len, result| {
            // SAFETY: during the call, all pointers are to live memory of the given lengths, and
            // the name is a string that ends with a zero.
            unsafe { libc::getgrnam_r(name.as_ptr(), record, buffer, len, result) }
        },
    )
}

/// Asks the system through `call`, and returns the result of `found` on the record; `None` when
/// there is no record or the call fails. When a record does not fit the buffer, it asks again with
/// a larger buffer, of up to [`BUFFER_BYTES_MAX`] bytes.
fn ask<T, R>(
    found: impl FnOnce(&T) -> R,
    call: impl Fn(*mut T, *mut c_char, size_t, *mut *mut T) -> c_int,
) -> Option<R> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let mut record = MaybeUninit::<T>::uninit();
        let mut result = ptr::null_mut();
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        let errno = call(record.as_mut_ptr(), start, len, &raw mut result);
        if errno == libc::ERANGE && buffer.len() < BUFFER_BYTES_MAX {
            buffer.resize(2 * buffer.len(), 0);
            continue;
        }
        if errno == libc::EINTR {
            continue;
        }
        // SAFETY: after the call, this pointer is null or points to the record, which the call has
        // then filled. The record's own pointers lead into the buffer, which outlives `found`.
        return unsafe { result.as_ref() }.map(found);
    }
}

fn name_of(name: *const c_char) -> Vec<u8> {
    // SAFETY: `name` is a field of a record that the system filled: it points to a zero-terminated
    // string in the buffer of the call.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

const BUFFER_BYTES: usize = 4096;
/// Length of the largest buffer in bytes. It is large because a group's record holds the names of
/// all the group's members.
const BUFFER_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_is_known_both_ways_and_nobody_else_by_chance() {
        assert_eq!(user_name(0).as_deref(), Some(&b"root"[..]));
        assert_eq!(user_number(b"root"), Some(0));
        assert_eq!(group_name(0).as_deref(), Some(&b"root"[..]));
        assert_eq!(group_number(b"root"), Some(0));
        assert_eq!(user_name(3_999_999_999), None);
        for name in [&b"no such account here"[..], b"", b"a\0b"] {
            assert_eq!((user_number(name), group_number(name)), (None, None));
        }
    }
}
