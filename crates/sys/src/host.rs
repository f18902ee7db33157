//! The machine: its name and its random numbers; the process: its memory and its descriptors.

use std::{fs, io};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    rand::{GetRandomFlags, getrandom},
};

/// Fills `bytes` from the system's generator of unpredictable numbers. While the machine boots, the
/// call waits until the generator is ready.
///
/// # Errors
/// When a sandbox forbids the call.
pub fn random(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Err(Errno::INTR) => {}
            drawn => bytes = &mut bytes[drawn?..],
        }
    }
    Ok(())
}

/// Draws 64 unpredictable bits.
///
/// # Errors
/// As [`random`].
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the machine's name, if it has one.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the number of bytes of memory that this process occupies (its resident set), if `/proc`
/// shows it.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns how many descriptors this process may have open; `None` when there is no limit.
#[must_use]
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Allows this process up to `wanted` open descriptors, as far as its hard limit permits. Returns
/// the limit that then holds. Libraries must not call it: a program that uses `select` fails beyond
/// 1,024 descriptors.
///
/// # Errors
/// When a sandbox forbids the call.
pub fn limit_open_files(wanted: u64) -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let granted = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let limit = Rlimit {
        current: Some(granted),
        maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(granted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_memory_is_told() {
        let (mut a, mut b) = ([0; 500], [0; 500]);
        random(&mut a).unwrap();
        random(&mut b).unwrap();
        assert_ne!(a, b);
        random(&mut []).unwrap();
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
