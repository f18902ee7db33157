//! The machine: its name and its random numbers.

use std::{fs, io, io::Read as _};

/// Fills `bytes` from the system's generator, which nobody can predict.
///
/// # Errors
/// When `/dev/urandom` cannot be opened, as in a container without devices.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// The machine's name, when it has one.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
