//! What a process may do beyond others, and giving it up.
//!
//! **Spec**: capabilities(7), capset(2), `PR_SET_NO_NEW_PRIVS` in prctl(2).

use std::io;

use crate::call::check;

/// Gives up every capability of this process for good: of the calling thread, and of threads that
/// it starts from here on. What is open stays open.
///
/// # Errors
/// Never in practice: nobody is refused to have less.
pub fn drop_capabilities() -> io::Result<()> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let header = Header {
        version: VERSION_3,
        process: 0,
    };
    let none = [Sets::default(); 2];
    // SAFETY: both are live and laid out as the kernel has them; version 3 reads two sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// True when the calling thread has any capability in effect.
///
/// # Errors
/// Never in practice.
pub fn has_capabilities() -> io::Result<bool> {
    let header = Header {
        version: VERSION_3,
        process: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: both are live and laid out as the kernel has them; version 3 writes two sets.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sets.iter().any(|set| set.effective != 0))
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    process: i32,
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
}
