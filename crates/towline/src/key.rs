//! The key that both ends of a transfer share, read from a file that nobody else may read.

use std::{fs, io::Read as _, os::unix::fs::MetadataExt as _, path::Path};

use delivery::Key;
use net::SystemError;

use crate::Error;

/// Reads the key of `path`: a file of 16 to 4096 bytes, best random ones, as from
/// `head -c 32 /dev/urandom`. A line end at its end does not count.
///
/// # Errors
/// A file that cannot be read, that others may read or change, or that is too short to be a secret.
pub fn read_key(path: &Path) -> Result<Key, Error> {
    let shown = path.display();
    let failed = |error: &std::io::Error| SystemError::system("read the key of", &shown, error);
    let mut file = fs::File::open(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    let refused = |cause: &str| SystemError::refused("use the key of", &shown, cause);
    if !metadata.is_file() {
        return Err(refused("it is not a regular file").into());
    }
    if metadata.mode() & OTHERS != 0 {
        let cause = format!(
            "its mode {:04o} lets other users read it",
            metadata.mode() & 0o7777
        );
        return Err(refused(&cause).advise(format!("chmod 600 {shown}")).into());
    }
    let mut secret = Vec::new();
    let limit = SECRET_BYTES_MAX as u64 + 1;
    let read = file.by_ref().take(limit).read_to_end(&mut secret);
    read.map_err(|error| failed(&error))?;
    while secret
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        secret.pop();
    }
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        let cause = format!(
            "it has {} bytes, and a key has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}",
            secret.len()
        );
        let remedy = format!("head -c 32 /dev/urandom > {shown}");
        return Err(refused(&cause).advise(remedy).into());
    }
    Ok(Key::derive(&secret))
}

/// What the group and all others may do.
const OTHERS: u32 = 0o077;
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_a_secret_that_nobody_else_reads() {
        let path = std::env::temp_dir().join(format!("towline-key-{}", std::process::id()));
        let write = |content: &[u8], mode: u32| {
            fs::write(&path, content).expect("room");
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(&path, mode).expect("it is ours");
            read_key(&path).map_err(|error| error.to_string())
        };
        let key = write(b"0123456789abcdef", 0o600).expect("a good key");
        assert!(key == write(b"0123456789abcdef\n", 0o400).expect("the same"));
        for mode in [0o640, 0o604, 0o620, 0o777] {
            let error = write(b"0123456789abcdef", mode).expect_err("others may");
            assert!(error.contains("chmod 600"), "{error}");
        }
        let error = write(b"short", 0o600).expect_err("no secret");
        assert!(
            error.contains("5 bytes") && error.contains("urandom"),
            "{error}"
        );
        let error = write(&[7; 5000], 0o600).expect_err("no key file");
        assert!(error.contains("16 to 4096"), "{error}");
        fs::remove_file(&path).expect("it is ours");
        assert!(read_key(&path).is_err() && read_key(Path::new("/dev/null")).is_err());
    }
}
