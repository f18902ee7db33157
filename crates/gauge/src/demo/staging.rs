//! The receivers' directories of a demo. The demo removes them at its end, unless the user keeps
//! them. When its process was killed, the next demo removes them.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::Error;

/// The receivers' directories.
pub(super) struct Staging {
    pub(super) root: PathBuf,
    pub(super) directories: Vec<PathBuf>,
    is_kept: bool,
    /// A lock while the demo runs: another demo removes only directories that nobody has locked.
    _lock: Option<File>,
}

impl Staging {
    pub(super) fn new(keep: Option<&Path>, receivers: u32, bytes: u64) -> Result<Self, Error> {
        let root = keep.map_or_else(
            || {
                temporary(bytes * u64::from(receivers))
                    .join(format!("{NAME}{}", std::process::id()))
            },
            Path::to_path_buf,
        );
        let mut lock = None;
        if keep.is_none() {
            for place in [Path::new(MEMORY), &std::env::temp_dir()] {
                sweep(place);
            }
            // Other users may write in the same place. When one of them made the directory,
            // `create_dir` fails.
            fs::create_dir(&root)
                .map_err(|error| net::SystemError::system("make", root.display(), &error))?;
            lock = File::open(&root).ok();
            if let Some(lock) = &lock {
                // Where files cannot be locked, only the process number tells whether the owner is
                // alive.
                lock.try_lock().unwrap_or_default();
            }
        }
        let mut directories = Vec::new();
        for number in 1..=receivers {
            let directory = root.join(format!("receiver-{number}"));
            fs::create_dir_all(&directory)
                .map_err(|error| net::SystemError::system("make", directory.display(), &error))?;
            directories.push(directory);
        }
        Ok(Self {
            root,
            directories,
            is_kept: keep.is_some(),
            _lock: lock,
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            // If the directory cannot be removed, the next demo tries again.
            drop(fs::remove_dir_all(&self.root));
        }
    }
}

/// Returns a directory in memory when it has room for twice `bytes`, so that the demo shows the
/// network and not the disk. Otherwise returns the system's temporary directory.
fn temporary(bytes: u64) -> PathBuf {
    let memory = Path::new(MEMORY);
    let space = sys::file::Directory::open(memory).and_then(|directory| directory.space());
    match space {
        Ok(space) if space.available_bytes > bytes.saturating_mul(2) => memory.to_path_buf(),
        _ => std::env::temp_dir(),
    }
}

/// Removes the directories that this user's demos left in `place` when they were killed. Removes
/// only directories (no links) with a demo's name, whose process is dead and which nobody has
/// locked.
fn sweep(place: &Path) {
    let (Ok(entries), Ok(me)) = (fs::read_dir(place), fs::metadata("/proc/self")) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        let path = entry.path();
        let is_ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_dir() && found.uid() == me.uid());
        let is_dead = !Path::new(&format!("/proc/{pid}")).exists();
        // In another container the process number means another process, but the lock holds there,
        // too.
        let is_free = || File::open(&path).is_ok_and(|root| root.try_lock().is_ok());
        if is_ours && is_dead && is_free() {
            // This fails when another demo removes the directory at the same time.
            drop(fs::remove_dir_all(&path));
        }
    }
}

/// The name of a demo's directory, before its process number.
const NAME: &str = "towline-demo-";
const MEMORY: &str = "/dev/shm";

#[cfg(test)]
mod tests {
    use super::*;

    /// Above the kernel's highest process number.
    const NOBODY: u32 = 4_200_000;

    #[test]
    fn the_dead_ones_directories_are_swept_and_no_others() {
        let place = std::env::temp_dir().join(format!("towline-sweep-{}", std::process::id()));
        let named = |name: &str| place.join(name);
        let dead = named(&format!("{NAME}{NOBODY}"));
        let running = named(&format!("{NAME}{}", NOBODY + 1));
        let alive = named(&format!("{NAME}{}", std::process::id()));
        let other = named(&format!("{NAME}{NOBODY}x"));
        let file = named(&format!("{NAME}{}", NOBODY + 2));
        for directory in [&dead, &running, &alive, &other] {
            fs::create_dir_all(directory.join("receiver-1")).unwrap();
        }
        fs::write(&file, "").unwrap();
        let link = named(&format!("{NAME}{}", NOBODY + 3));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let lock = File::open(&running).unwrap();
        lock.try_lock().unwrap();
        sweep(&place);
        let left = [&dead, &running, &alive, &other, &file, &link].map(|path| path.exists());
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(left, [false, true, true, true, true, true]);
    }
}
