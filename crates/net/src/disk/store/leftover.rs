//! What earlier attempts left in a directory: listed, mentioned, and removed when somebody says so.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use delivery::PlanId;
use sys::file::Directory;

use super::{STAGING, claim::Claim, journal};
use crate::SystemError;

/// A transfer that did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What was to be delivered.
    pub plan: PlanId,
    /// Bytes of its content that are staged.
    pub bytes: u64,
    /// When the last of them came, by the wall clock.
    pub changed: SystemTime,
}

/// What unfinished transfers are staged in a directory, also those under way.
///
/// # Errors
/// When the directory cannot be read.
pub fn leftovers(directory: &Path) -> Result<Vec<Leftover>, SystemError> {
    let opened = Directory::open(directory)
        .map_err(|error| SystemError::system("open", directory.display(), &error))?;
    Ok(list(&opened))
}

/// Removes what is staged of one transfer, which then begins anew.
///
/// # Errors
/// When it is under way, or the directory cannot be used.
pub fn discard_leftover(directory: &Path, plan: PlanId) -> Result<(), SystemError> {
    let opened = Directory::open(directory)
        .map_err(|error| SystemError::system("open", directory.display(), &error))?;
    let claim = Claim::take(&Arc::new(opened), plan).map_err(|fault| {
        SystemError::system(
            "discard what is staged in",
            directory.display(),
            &fault.error,
        )
    })?;
    claim.clear();
    Ok(())
}

/// One sentence for each old leftover of other plans.
pub(super) fn notes(directory: &Directory, shown: &Path, current: PlanId) -> Vec<String> {
    let now = SystemTime::now();
    let is_old = |leftover: &Leftover| {
        let age = now.duration_since(leftover.changed);
        leftover.plan != current && age.is_ok_and(|age| age > OLD)
    };
    let list = list(directory).into_iter().filter(is_old);
    list.map(|old| {
        let place = shown.join(STAGING).join(old.plan.to_string());
        let bytes = old.bytes;
        format!(
            "{}: {bytes} bytes of another transfer, untouched for over {} days; remove it if it is \
             not going to be continued",
            place.display(),
            OLD.as_secs() / 86_400,
        )
    })
    .collect()
}

fn list(directory: &Directory) -> Vec<Leftover> {
    let names = directory
        .directory(Path::new(STAGING))
        .and_then(|staging| staging.names());
    let mut list: Vec<_> = names
        .into_iter()
        .flatten()
        .filter_map(|name| plan_of(name.to_str()?))
        .filter_map(|plan| one(directory, plan))
        .collect();
    list.sort_by_key(|leftover| leftover.changed);
    list
}

fn one(directory: &Directory, plan: PlanId) -> Option<Leftover> {
    let path = Path::new(STAGING).join(plan.to_string());
    let place = directory.directory(&path).ok()?;
    let found = journal::Found::read_any(&place, plan);
    let file = place.open_to_read(Path::new(journal::NAME)).ok()?;
    Some(Leftover {
        plan,
        bytes: found.map_or(0, |found| found.held.bytes()),
        changed: file.metadata().and_then(|of| of.modified()).ok()?,
    })
}

fn plan_of(name: &str) -> Option<PlanId> {
    let mut id = [0; 16];
    if name.len() != 32 || !name.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(PlanId(id))
}

/// Untouched for so long, a leftover is mentioned.
const OLD: Duration = Duration::from_secs(7 * 86_400);
