//! What earlier attempts left in a directory. Leftovers are listed, limited in size and age, and
//! removed on request.

use std::{
    collections::BTreeSet,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use delivery::{Manifest, ManifestId};
use sys::file::{Directory, Kind};

use super::{
    STAGING,
    claim::{Claim, TAKEN},
    journal,
    prepare::TREE,
    room::taken_bytes,
};
use crate::SystemError;

/// A transfer that was not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The manifest of the transfer.
    pub manifest: ManifestId,
    /// How many bytes of the transfer's content are staged.
    pub bytes: u64,
    /// When the transfer's journal was last written, by the wall clock; without a journal, when the
    /// transfer's staging directory last changed.
    pub changed: SystemTime,
}

/// Lists the unfinished transfers that are staged in a directory, including those under way.
///
/// # Errors
/// When the directory cannot be read.
pub fn leftovers(directory: &Path) -> Result<Vec<Leftover>, SystemError> {
    let opened = Directory::open(directory)
        .map_err(|error| SystemError::system("open", directory.display(), &error))?;
    Ok(list(&opened))
}

/// Removes the staged data of one transfer, so that its next attempt begins from nothing.
///
/// # Errors
/// When the transfer is under way, or when the directory cannot be used.
pub fn discard_leftover(directory: &Path, manifest: ManifestId) -> Result<(), SystemError> {
    let opened = Directory::open(directory)
        .map_err(|error| SystemError::system("open", directory.display(), &error))?;
    let claim = Claim::take(&Arc::new(opened), manifest).map_err(|fault| {
        let (operation, target) = ("discard the unfinished transfer in", directory.display());
        match fault.error.kind() {
            io::ErrorKind::ResourceBusy => SystemError::refused(operation, target, TAKEN)
                .advise("end that receiver, or wait for its end"),
            _ => SystemError::system(operation, target, &fault.error),
        }
    })?;
    claim.clear();
    Ok(())
}

/// The transfer that a receiver works on while it tidies leftovers up.
pub(super) struct Current<'a> {
    pub(super) manifest: &'a Manifest,
    /// True when all entries of `manifest` have their final names.
    pub(super) is_in_place: bool,
}

/// Removes leftovers that probably nobody needs: those older than [`KEPT_TIME`], and those that
/// together with newer ones that stay hold more than [`KEPT_BYTES`]; the newest is never removed
/// for its size. When the files of `current` are in place, also removes leftovers that are other
/// versions of these files. A leftover of `current` itself, or one that another receiver has
/// locked, stays. Returns a sentence for each leftover removed.
pub(super) fn tidy(directory: &Arc<Directory>, shown: &Path, current: &Current<'_>) -> Vec<String> {
    let now = SystemTime::now();
    let mut kept_bytes = 0_u64;
    let mut notes = Vec::new();
    let own = current.manifest.id();
    for leftover in list(directory).into_iter().rev() {
        if leftover.manifest == own {
            continue;
        }
        let age = now.duration_since(leftover.changed).unwrap_or_default();
        let is_newest = kept_bytes == 0;
        let why = if current.is_in_place && is_superseded(directory, &leftover, current.manifest) {
            "the same files have arrived"
        } else if age > KEPT_TIME {
            "no transfer has continued it for 7 days"
        } else if !is_newest && kept_bytes.saturating_add(leftover.bytes) > KEPT_BYTES {
            "newer ones hold more than 10 GB together"
        } else {
            kept_bytes = kept_bytes.saturating_add(leftover.bytes.max(1));
            continue;
        };
        // Another receiver may be using the leftover.
        let Ok(claim) = Claim::take(directory, leftover.manifest) else {
            continue;
        };
        claim.clear();
        let place = shown.join(STAGING).join(leftover.manifest.to_string());
        let bytes = leftover.bytes;
        notes.push(format!(
            "{}: removed, {bytes} bytes of a transfer that was not finished: {why}",
            place.display()
        ));
    }
    forget_locks(directory, own);
    notes
}

/// Removes the oldest leftover that may go, to make room for the transfer `current`. A leftover
/// that a receiver holds, or that belongs to `current`, stays. Returns a sentence about the
/// removal; `None` when no leftover may go.
pub(super) fn discard_oldest(directory: &Arc<Directory>, current: ManifestId) -> Option<String> {
    let mut others = list(directory).into_iter();
    let (leftover, claim) = others.find_map(|leftover| {
        let claim =
            (leftover.manifest != current).then(|| Claim::take(directory, leftover.manifest));
        Some((leftover, claim?.ok()?))
    })?;
    claim.clear();
    let (bytes, manifest) = (leftover.bytes, leftover.manifest);
    Some(format!(
        "{STAGING}/{manifest}: removed, {bytes} bytes of a transfer that was not finished: another \
         one needed the room"
    ))
}

/// Returns how many bytes on the disk could be freed by repeated calls of [`discard_oldest`].
pub(super) fn removable_bytes(directory: &Arc<Directory>, current: ManifestId) -> u64 {
    let others = list(directory).into_iter();
    let others = others.filter(|leftover| leftover.manifest != current);
    let bytes = others.filter_map(|leftover| {
        let claim = Claim::take(directory, leftover.manifest).ok()?;
        let place = directory.directory(claim.path()).ok()?;
        Some(taken_bytes(&place))
    });
    bytes.sum()
}

/// Returns true when `current` has every path that the leftover has staged: the leftover is then
/// another version of the same files. Returns false when the leftover has no staged file, or when
/// its commit had begun.
fn is_superseded(directory: &Directory, leftover: &Leftover, current: &Manifest) -> bool {
    let path = Path::new(STAGING).join(leftover.manifest.to_string());
    let Ok(place) = directory.directory(&path) else {
        return false;
    };
    let found = journal::Found::read_any(&place, leftover.manifest);
    if found.is_some_and(|found| found.is_committing) {
        return false;
    }
    let paths: BTreeSet<&[u8]> = current.entries().map(|entry| entry.path).collect();
    let mut to_read = vec![PathBuf::new()];
    let mut has_file = false;
    while let Some(path) = to_read.pop() {
        let Ok(names) = place
            .directory(&Path::new(TREE).join(&path))
            .and_then(|below| below.names())
        else {
            return false;
        };
        for name in names {
            let below = path.join(name);
            if !paths.contains(below.as_os_str().as_bytes()) {
                return false;
            }
            match place.status(&Path::new(TREE).join(&below)) {
                Ok(status) if status.kind == Kind::Directory => to_read.push(below),
                Ok(_) => has_file = true,
                Err(_) => return false,
            }
        }
    }
    has_file
}

/// Removes the lock files of killed receivers that left nothing else.
fn forget_locks(directory: &Arc<Directory>, current: ManifestId) {
    let staging = Path::new(STAGING);
    let names = directory.directory(staging).and_then(|it| it.names());
    for name in names.into_iter().flatten() {
        let manifest = name
            .to_str()
            .and_then(|name| name.strip_suffix(".lock"))
            .and_then(manifest_of);
        let Some(manifest) = manifest.filter(|&it| it != current) else {
            continue;
        };
        let place = staging.join(manifest.to_string());
        if directory.status(&place).is_err() {
            // Taking and dropping the claim removes the lock file, unless another receiver holds
            // it.
            drop(Claim::take(directory, manifest));
        }
    }
}

fn list(directory: &Directory) -> Vec<Leftover> {
    let names = directory
        .directory(Path::new(STAGING))
        .and_then(|staging| staging.names());
    let mut list: Vec<_> = names
        .into_iter()
        .flatten()
        .filter_map(|name| manifest_of(name.to_str()?))
        .filter_map(|manifest| one(directory, manifest))
        .collect();
    list.sort_by_key(|leftover| leftover.changed);
    list
}

fn one(directory: &Directory, manifest: ManifestId) -> Option<Leftover> {
    let path = Path::new(STAGING).join(manifest.to_string());
    let place = directory.directory(&path).ok()?;
    let found = journal::Found::read_any(&place, manifest);
    // A receiver that was killed early has left no journal.
    let changed = match place.open_to_read(Path::new(journal::NAME)) {
        Ok(file) => file.metadata().and_then(|of| of.modified()).ok()?,
        Err(_) => {
            let seconds = directory.status(&path).ok()?.modified.seconds;
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?)
        }
    };
    Some(Leftover {
        manifest,
        bytes: found.map_or(0, |found| found.held.bytes()),
        changed,
    })
}

fn manifest_of(name: &str) -> Option<ManifestId> {
    let mut id = [0; 16];
    if name.len() != 32 || !name.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(ManifestId(id))
}

/// How long a leftover is kept after its last change.
const KEPT_TIME: Duration = Duration::from_secs(7 * 86_400);
/// The most bytes of all leftovers together; the newest is kept whatever its size.
const KEPT_BYTES: u64 = 10_000_000_000;
