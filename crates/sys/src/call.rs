//! Turns the results of system calls into Rust results, and sets and reads socket options.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use libc::{c_int, c_void, socklen_t};

/// Returns the result when it is not negative, else the errno.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns the byte or message count when it is not negative, else the errno.
pub(crate) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_negative| io::Error::last_os_error())
}

/// Sets a socket option to the bytes of `value`, an integer or the option's C structure.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let len = socklen_t::try_from(size_of::<T>()).expect("option values are a few bytes");
    // SAFETY: `value` is a live reference, so `len` bytes behind it are readable for the call; the
    // kernel copies them and keeps no pointer. The descriptor is borrowed, hence open.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            len,
        )
    })?;
    Ok(())
}

/// Reads a socket option that is an array of integers. Integers that the kernel does not fill in
/// are zero.
pub(crate) fn int_options<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<[c_int; N]> {
    let mut values = [0; N];
    let mut len = socklen_t::try_from(size_of_val(&values)).expect("options are a few bytes");
    // SAFETY: `values` and `len` are live and exclusively borrowed; the kernel writes at most the
    // `len` bytes announced, which is the size of `values`, and keeps no pointer.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            values.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    })?;
    Ok(values)
}

/// Reads an integer socket option.
pub(crate) fn int_option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    int_options::<1>(fd, level, name).map(|[value]| value)
}

/// Reads a socket option into `out`; the option is a C structure. Returns the number of bytes that
/// the kernel wrote, which depends on the kernel: newer kernels have longer structures.
pub(crate) fn byte_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    out: &mut [u8],
) -> io::Result<usize> {
    let mut len = socklen_t::try_from(out.len()).expect("options are a few bytes");
    // SAFETY: `out` and `len` are live and exclusively borrowed; the kernel writes at most the
    // `len` bytes announced, which is the size of `out`, and keeps no pointer.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            out.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    })?;
    Ok((len as usize).min(out.len()))
}
