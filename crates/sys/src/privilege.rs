//! The privileges of a process, and how it gives them up.
//!
//! **Spec**: capabilities(7), capset(2), `PR_SET_NO_NEW_PRIVS` in prctl(2).

use std::{ffi::CString, io};

use nix::unistd::{User, initgroups, setgid, setuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Gives up every capability of the calling thread for good. Threads that it starts later have
/// none, either; threads that run already keep theirs. Open files stay open.
///
/// # Errors
/// Never in practice: dropping privileges is always allowed.
pub fn drop_capabilities() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

/// Gives up capabilities as [`drop_capabilities`] does, but keeps CAP_DAC_OVERRIDE: the right to
/// open files anywhere. It gives no right to see or send packets.
///
/// # Errors
/// Never in practice.
pub fn keep_file_capabilities() -> io::Result<()> {
    keep(CapabilitySet::DAC_OVERRIDE)
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Makes this process run as the user called `name`, in that user's groups, for good. Open files
/// stay open.
///
/// # Errors
/// `NotFound` when there is no such user; EPERM without `CAP_SETUID` and `CAP_SETGID`.
pub fn become_user(name: &str) -> io::Result<()> {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    let in_c = CString::new(name).map_err(|_| not_found())?;
    let user = User::from_name(name)?.ok_or_else(not_found)?;
    initgroups(&in_c, user.gid)?;
    // The C library makes both calls for every thread.
    setgid(user.gid)?;
    Ok(setuid(user.uid)?)
}

/// Returns true when the calling thread has any capability in effect.
///
/// # Errors
/// Never in practice.
pub fn has_capabilities() -> io::Result<bool> {
    Ok(!capabilities(None)?.effective.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_gone() {
        // Capabilities belong to a thread: the test's other threads keep theirs.
        let thread = std::thread::spawn(|| {
            drop_capabilities().unwrap();
            has_capabilities().unwrap()
        });
        assert!(!thread.join().unwrap());
    }

    #[test]
    fn opening_files_is_all_that_may_stay() {
        let thread = std::thread::spawn(|| {
            let before = capabilities(None).unwrap();
            keep_file_capabilities().unwrap();
            (before, capabilities(None).unwrap())
        });
        let (before, after) = thread.join().unwrap();
        let opening = CapabilitySet::DAC_OVERRIDE;
        assert_eq!(after.effective, before.effective & opening);
        assert!((after.permitted - opening).is_empty());
    }

    #[test]
    fn who_is_no_user_is_told_so() {
        for name in ["no such user", "zero\0in it"] {
            let error = become_user(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
