//! Limits the room that transfers take on a disk: how much a directory may hold, and how much stays
//! free.
//!
//! A manifest alone takes no room. To buy room is to count it against the limits before content is
//! written to it. Room is bought as content arrives, in steps that grow with the content:
//!
//! ```text
//!   arrived  ....      ........          ................
//!   bought   1 MiB     2 x arrived + 1 MiB, at most 64 MiB ahead
//! ```
//!
//! So a sender takes about twice the room of what it has sent, and buying a step mostly costs one
//! system call. When there is no room for a step, only what has arrived is bought. When there is no
//! room even for that, the leftovers of unfinished transfers are removed, the oldest first.
//!
//! Invariant: after a step was bought, the content in the directory is within its quota, and the
//! filesystem still has the room that must stay free. This holds while only this process writes
//! there. Transfers under way also take room for directories and journals. That room is counted
//! only when the receive directory is next looked through.

use std::{
    collections::BTreeSet,
    fmt, io, mem,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use base::quantity;
use sys::file::{Directory, Kind, Space};

/// The limits of the room that transfers take on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomLimits {
    /// The most bytes that the receive directory may hold, as the filesystem counts them. All bytes
    /// count, whoever wrote them: what was delivered, what is staged, and everything else. Default:
    /// no limit.
    pub quota_bytes: Option<u64>,
    /// How much of the filesystem stays free. Default: [`KeepFree::Usual`].
    pub keep_free: KeepFree,
}

/// How much of a filesystem stays free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepFree {
    /// 5 % of the filesystem's bytes, at most 1 GiB; and 5 % of the files that it can have, at most
    /// 100,000.
    #[default]
    Usual,
    /// This many bytes.
    Bytes(u64),
    /// This percentage of the filesystem's bytes, and of the files that it can have; less than 100.
    Percent(u8),
}

/// The room that all stores of one receiver share.
#[derive(Clone, Debug, Default)]
pub struct Room {
    limits: RoomLimits,
    /// Bytes that the directory held when it was last looked through, and bytes bought since;
    /// `None` before the first look.
    used: Arc<Mutex<Option<u64>>>,
    /// Bytes of room that all transfers together have bought and that are in no file yet.
    ahead: Arc<AtomicU64>,
}

/// The most bytes, and the most files and directories, that a manifest needs on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// The room on the disk that one transfer has bought, and what has arrived of its content.
#[derive(Debug)]
pub(super) struct Share {
    room: Room,
    arrived: u64,
    bought: u64,
    /// Bytes bought that no file was given yet.
    credit: u64,
    /// Bytes of room that files have taken from `credit` for content that may not be written yet.
    /// [`Room::ahead`] is the sum of `given` and `credit` over all transfers.
    given: u64,
}

impl Room {
    /// Makes the room for the stores of one receiver.
    #[must_use]
    pub fn new(limits: RoomLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Checks, before any byte arrives, that there is room for a manifest. `left` says how many
    /// bytes of unfinished transfers may be removed for it.
    pub(super) fn check(
        &self,
        directory: &Directory,
        needs: Needs,
        left: impl Fn() -> u64,
    ) -> io::Result<()> {
        if let Ok(space) = self.space(directory)
            && let Some(lack) = self.limits.keep_free.lack(&space, needs, &left)
        {
            return Err(self.too_little(&lack));
        }
        let Some(quota) = self.limits.quota_bytes else {
            return Ok(());
        };
        let mut known = self.lock();
        let used = self.look(directory);
        *known = Some(used);
        drop(known);
        let free = quota.saturating_sub(used);
        if needs.bytes > free && needs.bytes > free.saturating_add(left()) {
            let lack = format!("{} bytes, and the quota has {free} left", needs.bytes);
            return Err(self.too_little(&lack));
        }
        Ok(())
    }

    fn too_little(&self, lack: &str) -> io::Error {
        let text = format!("the transfer needs {lack}{}", self.limits.shown());
        io::Error::new(io::ErrorKind::StorageFull, text)
    }

    /// Takes `bytes` more bytes of room. `discard` removes the leftover of one unfinished transfer,
    /// and returns false when there is none to remove.
    fn take(
        &self,
        directory: &Directory,
        bytes: u64,
        discard: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        loop {
            let Err(error) = self.try_take(directory, bytes) else {
                return Ok(());
            };
            if !discard() {
                return Err(error);
            }
        }
    }

    /// Takes `bytes` more bytes of room, and counts them as bought and in no file yet. Takes
    /// nothing when that would break a limit.
    pub(super) fn try_take(&self, directory: &Directory, bytes: u64) -> io::Result<()> {
        // The lock is held until the room is counted as taken: otherwise two transfers could pass
        // the checks and both take the last room.
        let mut known = self.lock();
        if let Ok(space) = self.space(directory) {
            let (kept, _) = self.limits.keep_free.of(&space);
            if space.available_bytes < kept.saturating_add(bytes) {
                let text = "all the room that may be used on the disk is taken";
                let text = text.to_owned() + &self.limits.shown();
                return Err(io::Error::new(io::ErrorKind::StorageFull, text));
            }
        }
        if let Some(quota) = self.limits.quota_bytes {
            let is_fine = |used: u64| used.saturating_add(bytes) <= quota;
            let used = match *known {
                Some(used) if is_fine(used) => used,
                _ => self.look(directory),
            };
            if !is_fine(used) {
                let text = "the directory would hold more than its quota";
                let text = text.to_owned() + &self.limits.shown();
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
            }
            *known = Some(used + bytes);
        }
        self.ahead.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the filesystem's space, less the bytes that are bought and in no file yet.
    fn space(&self, directory: &Directory) -> io::Result<Space> {
        // Read before the space: bytes that another transfer writes in between then count twice,
        // and are never overlooked.
        let ahead = self.ahead.load(Ordering::Relaxed);
        let mut space = directory.space()?;
        space.available_bytes = space.available_bytes.saturating_sub(ahead);
        Ok(space)
    }

    /// Returns how many bytes the directory holds, plus the bytes that are bought and in no file
    /// yet. The caller holds the lock, so that no transfer takes room meanwhile.
    ///
    /// **Cost**: one system call for each file in the directory.
    fn look(&self, directory: &Directory) -> u64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        taken_bytes(directory).saturating_add(ahead)
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Makes the share of a transfer that holds `arrived` bytes from an earlier attempt.
    pub(super) const fn new(room: Room, arrived: u64) -> Self {
        Self {
            room,
            arrived,
            bought: arrived,
            credit: 0,
            given: 0,
        }
    }

    /// Provides room for `bytes` bytes that have arrived and are about to be written. Buys more
    /// room when too little is left. `lacking` is how many bytes of the transfer are still to be
    /// written, these `bytes` included.
    pub(super) fn pay(
        &mut self,
        directory: &Directory,
        bytes: u64,
        lacking: u64,
        discard: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        self.settle();
        self.arrived += bytes;
        if self.credit < bytes {
            let missing = bytes - self.credit;
            let due = (2 * self.arrived + STEP_BYTES_MIN).saturating_sub(self.bought);
            let step = due.min(STEP_BYTES_MAX).min(lacking).max(missing);
            // Near a limit, room is bought only for the bytes that have arrived, not ahead.
            let bought = match self.room.try_take(directory, step) {
                Ok(()) => step,
                Err(_) => {
                    self.room.take(directory, missing, discard)?;
                    missing
                }
            };
            self.bought += bought;
            self.credit += bought;
        }
        self.spend(bytes);
        Ok(())
    }

    /// Gives a file `bytes` of the bytes that this transfer has bought. Returns false, and gives
    /// nothing, when fewer are left.
    pub(super) fn covers(&mut self, bytes: u64) -> bool {
        let is_enough = bytes <= self.credit;
        if is_enough {
            self.spend(bytes);
        }
        is_enough
    }

    /// Returns how many of `wanted` bytes of room one file may take before its content arrives, and
    /// counts them as given to the file.
    pub(super) fn ahead(&mut self, wanted: u64) -> u64 {
        let given = wanted.min(self.credit);
        if given < AHEAD_BYTES_MIN && given < wanted {
            return 0;
        }
        self.spend(given);
        given
    }

    fn spend(&mut self, bytes: u64) {
        self.credit -= bytes;
        self.given += bytes;
    }

    /// Removes the bytes that files were given from [`Room::ahead`], because they are written now.
    /// Between writing and removal, another transfer may count them twice, but never overlooks
    /// them.
    pub(super) fn settle(&mut self) {
        let written = mem::take(&mut self.given);
        self.room.ahead.fetch_sub(written, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.spend(self.credit);
        self.settle();
    }
}

impl RoomLimits {
    /// Names the limits, for a person.
    fn shown(&self) -> String {
        let keep_free = self.keep_free;
        match self.quota_bytes {
            None => format!(" (keep free {keep_free})"),
            Some(quota) => {
                let quota = quantity::size_text(quota);
                format!(" (quota {quota}, keep free {keep_free})")
            }
        }
    }
}

impl KeepFree {
    /// Says how much room is needed and how much there is; `None` when there is enough. When bytes
    /// are compared, the `left` bytes that may be removed count as room, too.
    fn lack(self, space: &Space, needs: Needs, left: impl Fn() -> u64) -> Option<String> {
        let Needs { bytes, entries } = needs;
        let (kept_bytes, kept_files) = self.of(space);
        let free = space.available_bytes.saturating_sub(kept_bytes);
        let files = space.available_files.saturating_sub(kept_files);
        if space.total_files > 0 && entries > files {
            return Some(format!(
                "{entries} files and directories, and the disk has room for {files}"
            ));
        }
        (bytes > free && bytes > free.saturating_add(left()))
            .then(|| format!("{bytes} bytes, and the disk has {free} left"))
    }

    /// Returns how many bytes, and how many files, must stay free on the filesystem.
    fn of(self, space: &Space) -> (u64, u64) {
        let part = |whole: u64, percent: u8| whole / 100 * u64::from(percent);
        match self {
            Self::Usual => (
                part(space.total_bytes, 5).min(USUAL_BYTES_MAX),
                part(space.total_files, 5).min(USUAL_FILES_MAX),
            ),
            Self::Bytes(bytes) => (bytes, 0),
            Self::Percent(percent) => (
                part(space.total_bytes, percent),
                part(space.total_files, percent),
            ),
        }
    }
}

impl FromStr for KeepFree {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is neither a size nor a share below 100%: write 2GiB, 0 or 10%");
        match text.trim().strip_suffix('%') {
            None => quantity::size(text).map(Self::Bytes).map_err(|_| wrong()),
            Some(percent) => match percent.trim().parse() {
                Ok(percent) if percent < 100 => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
        }
    }
}

impl fmt::Display for KeepFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("5%, at most 1GiB"),
            Self::Bytes(bytes) => f.write_str(&quantity::size_text(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Returns the bytes that everything in a directory takes on the disk. A file with several names
/// counts once. Symbolic links are not followed. What is below a mount point, or cannot be read, is
/// not counted.
pub(super) fn taken_bytes(directory: &Directory) -> u64 {
    let mut to_read = vec![PathBuf::new()];
    let mut seen = BTreeSet::new();
    let mut sum = 0_u64;
    while let Some(path) = to_read.pop() {
        let below;
        let place = if path.as_os_str().is_empty() {
            directory
        } else {
            let Ok(opened) = directory.directory_unmounted(&path) else {
                continue;
            };
            below = opened;
            &below
        };
        for name in place.names().into_iter().flatten() {
            let Ok(status) = place.status(Path::new(&name)) else {
                continue;
            };
            if status.kind == Kind::Directory {
                to_read.push(path.join(name));
            } else if status.links > 1 && !seen.insert((status.device, status.inode)) {
                continue;
            }
            sum = sum.saturating_add(status.taken_bytes);
        }
    }
    sum
}

/// The most bytes and files that [`KeepFree::Usual`] keeps free.
const USUAL_BYTES_MAX: u64 = 1 << 30;
const USUAL_FILES_MAX: u64 = 100_000;
/// A transfer buys room for twice the bytes that have arrived, plus this many bytes.
const STEP_BYTES_MIN: u64 = 1 << 20;
/// The most bytes of room bought in one step ahead of need: larger steps save nothing.
const STEP_BYTES_MAX: u64 = 64 << 20;
/// The fewest bytes of room that a file takes before its content arrives: for fewer, the system
/// call to take them costs more than it saves.
const AHEAD_BYTES_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_free_is_a_size_or_a_share() {
        for (text, expected) in [
            ("0", KeepFree::Bytes(0)),
            ("2GiB", KeepFree::Bytes(2 << 30)),
            ("10%", KeepFree::Percent(10)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
        for text in ["100%", "-1%", "x", "5.5%", ""] {
            assert!(text.parse::<KeepFree>().is_err(), "{text}");
        }
        let space = Space {
            available_bytes: 0,
            total_bytes: 10 << 30,
            available_files: 0,
            total_files: 1_000,
        };
        assert_eq!(KeepFree::Usual.of(&space), ((10 << 30) / 100 * 5, 50));
        let total_bytes = 1 << 50;
        let space = Space {
            total_bytes,
            ..space
        };
        assert_eq!(KeepFree::Usual.of(&space).0, USUAL_BYTES_MAX);
        assert_eq!(KeepFree::Bytes(7).of(&space), (7, 0));
        assert_eq!(KeepFree::Percent(10).of(&space).1, 100);
    }

    #[test]
    fn directories_need_room_as_files_do() {
        let space = Space {
            available_bytes: 100_000,
            total_bytes: 200_000,
            available_files: 60,
            total_files: 200,
        };
        let fits = |bytes, entries, left| {
            let needs = Needs { bytes, entries };
            KeepFree::Percent(10).lack(&space, needs, || left).is_none()
        };
        assert!(fits(80_000, 40, 0) && !fits(80_001, 40, 0) && fits(80_001, 40, 1));
        assert!(!fits(0, 41, 1_000_000), "inodes");
        let unlimited = Space {
            available_files: 0,
            total_files: 0,
            ..space
        };
        let needs = Needs {
            bytes: 1,
            entries: 1_000_000,
        };
        assert_eq!(KeepFree::Usual.lack(&unlimited, needs, || 0), None);
    }

    #[test]
    fn what_is_bought_stays_within_twice_what_has_arrived() {
        let directory = Directory::open(&std::env::temp_dir()).unwrap();
        let mut share = Share::new(Room::new(open_limits()), 0);
        let (mut arrived, mut steps) = (0_u64, 0);
        for _ in 0..100_000 {
            let before = share.bought;
            share
                .pay(&directory, 1_400, u64::MAX, &mut || false)
                .unwrap();
            arrived += 1_400;
            steps += u64::from(share.bought != before);
            assert!(share.bought <= 2 * arrived + STEP_BYTES_MIN);
            assert!(share.bought >= arrived);
        }
        assert!(steps < 20, "{steps} steps");
    }

    fn open_limits() -> RoomLimits {
        RoomLimits {
            quota_bytes: None,
            keep_free: KeepFree::Bytes(0),
        }
    }
}
