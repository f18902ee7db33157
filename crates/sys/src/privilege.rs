//! What a process may do beyond others, and giving it up.
//!
//! **Spec**: capabilities(7), capset(2), `PR_SET_NO_NEW_PRIVS` in prctl(2).

use std::{
    ffi::{CString, c_char},
    io,
};

use crate::call::check;

/// Gives up every capability of this process for good: of the calling thread, and of threads that
/// it starts from here on. What is open stays open.
///
/// # Errors
/// Never in practice: nobody is refused to have less.
pub fn drop_capabilities() -> io::Result<()> {
    keep(0)
}

/// As [`drop_capabilities`], but what lets its owner open files wherever they are, which is no
/// right to see or send packets, stays where it is there.
///
/// # Errors
/// Never in practice.
pub fn keep_file_capabilities() -> io::Result<()> {
    keep(1 << DAC_OVERRIDE)
}

/// Keeps those of the first 32 capabilities that are in `kept`, and that are there.
fn keep(kept: u32) -> io::Result<()> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let mut sets = [Sets::default(); 2];
    let now = capabilities()?[0];
    sets[0].effective = now.effective & kept;
    sets[0].permitted = now.permitted & kept;
    let mut header = Header::default();
    // SAFETY: both are live and laid out as the kernel has them; version 3 reads two sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes this process one of the user called `name`, in that user's groups, for good. What is open
/// stays open.
///
/// # Errors
/// `NotFound` when there is no such user; EPERM without `CAP_SETUID` and `CAP_SETGID`.
pub fn become_user(name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    let (user, group) = find_user(&name)?;
    // SAFETY: the name ends with a zero and is only read.
    check(unsafe { libc::initgroups(name.as_ptr(), group) })?;
    // SAFETY: takes an integer only; the C library does it for every thread.
    check(unsafe { libc::setgid(group) })?;
    // SAFETY: as above.
    check(unsafe { libc::setuid(user) })?;
    Ok(())
}

/// The numbers of a user and of the user's first group.
fn find_user(name: &CString) -> io::Result<(libc::uid_t, libc::gid_t)> {
    let mut texts: Vec<c_char> = vec![0; USER_TEXT_LEN];
    // SAFETY: a structure of integers and pointers, for which zeros are a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name ends with a zero; all others are live, exclusively borrowed, and as long as
    // announced.
    let error = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            texts.as_mut_ptr(),
            texts.len(),
            &raw mut found,
        )
    };
    match (error, found.is_null()) {
        (0, false) => Ok((entry.pw_uid, entry.pw_gid)),
        (0, true) => Err(io::ErrorKind::NotFound.into()),
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    }
}

/// True when the calling thread has any capability in effect.
///
/// # Errors
/// Never in practice.
pub fn has_capabilities() -> io::Result<bool> {
    Ok(capabilities()?.iter().any(|set| set.effective != 0))
}

/// The calling thread's, 32 in each.
fn capabilities() -> io::Result<[Sets; 2]> {
    let mut sets = [Sets::default(); 2];
    let mut header = Header::default();
    // SAFETY: both are live and laid out as the kernel has them; version 3 writes two sets.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sets)
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

impl Default for Header {
    /// Of the calling thread.
    fn default() -> Self {
        Self {
            version: VERSION_3,
            process: 0,
        }
    }
}

/// `struct __user_cap_data_struct`: 32 capabilities.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;
/// `CAP_DAC_OVERRIDE`.
const DAC_OVERRIDE: u32 = 1;
/// What the C library suggests where it does (`_SC_GETPW_R_SIZE_MAX`), four times.
const USER_TEXT_LEN: usize = 4096;
const _: () = assert!(size_of::<Sets>() == 12 && size_of::<Header>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_gone() {
        // Capabilities belong to a thread: the test's others keep theirs.
        let thread = std::thread::spawn(|| {
            drop_capabilities().unwrap();
            has_capabilities().unwrap()
        });
        assert!(!thread.join().unwrap());
    }

    #[test]
    fn opening_files_is_all_that_may_stay() {
        let thread = std::thread::spawn(|| {
            let before = capabilities().unwrap();
            keep_file_capabilities().unwrap();
            (before, capabilities().unwrap())
        });
        let (before, after) = thread.join().unwrap();
        assert_eq!(after[0].effective, before[0].effective & 2);
        assert_eq!((after[0].permitted & !2, after[1].permitted), (0, 0));
    }

    #[test]
    fn a_user_is_known_or_told_to_be_unknown() {
        let root = find_user(&CString::new("root").unwrap());
        assert_eq!(root.unwrap(), (0, 0));
        for name in ["no such user", "zero\0in it"] {
            let error = become_user(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
