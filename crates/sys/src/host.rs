//! The machine's name and random numbers, and this process's memory and limit of open descriptors.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    sync::OnceLock,
};

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
    let given = getrlimit(Resource::Nofile);
    let maximum = given.maximum;
    let granted = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let limit = Rlimit {
        current: Some(granted),
        maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    let _only_the_first = GIVEN.set(given);
    Ok(granted)
}

/// Starts another program, with the limit of open descriptors that this process was given, even
/// when [`limit_open_files`] has changed the limit since.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn_as_given(command: &mut Command) -> io::Result<Child> {
    if let Some(&given) = GIVEN.get() {
        let restore = move || setrlimit(Resource::Nofile, given).map_err(io::Error::from);
        // SAFETY: the closure runs between fork and exec. It makes one system call, allocates
        // nothing and takes no lock.
        unsafe { command.pre_exec(restore) };
    }
    command.spawn()
}

/// The limit of open descriptors before this process first changed it.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_program_may_have_as_many_descriptors_as_this_process_was_given() {
        let given = open_files_max().unwrap();
        assert_eq!(limit_open_files(given - 1).unwrap(), given - 1);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]).stdout(Stdio::piped());
        let child = spawn_as_given(&mut command).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), given.to_string());
        assert_eq!(limit_open_files(given).unwrap(), given);
    }

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
