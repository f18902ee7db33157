//! Which process has which socket: `/proc/PID/fd` names sockets by their inodes.

use std::{collections::BTreeMap, fs, io, path::Path};

/// Returns the inodes of a process's sockets.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub(super) fn sockets_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed after it was listed.
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        let inode = target.ok().and_then(|target| inode_of(&target));
        found.extend(inode);
    }
    Ok(found)
}

/// Returns the process of each socket, as far as this user may see.
///
/// **Cost**: reads a link for each open descriptor of the host.
pub(super) fn all() -> BTreeMap<u32, u32> {
    let mut owners = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else {
        return owners;
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for pid in pids {
        for inode in sockets_of(pid).unwrap_or_default() {
            owners.entry(inode).or_insert(pid);
        }
    }
    owners
}

/// Returns the name of a process's program; empty when it has ended.
pub(super) fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    crate::shown(name.trim_end())
}

/// Returns true when there is no such process any more, or only a zombie that its parent has not
/// reaped.
pub(super) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain anything.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

fn inode_of(target: &Path) -> Option<u32> {
    let text = target.to_str()?.strip_prefix("socket:[")?;
    text.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_process_finds_its_own_sockets_and_its_name() {
        let before = sockets_of(std::process::id()).unwrap().len();
        let _listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let after = sockets_of(std::process::id()).unwrap();
        // Other tests of this process may open and close sockets meanwhile.
        assert!(!after.is_empty() || before > 0);
        let owners = all();
        assert!(owners.values().any(|&pid| pid == std::process::id()));
        assert!(!name_of(std::process::id()).is_empty());
        assert_eq!(name_of(0), "");
        assert!(has_ended(0) && !has_ended(std::process::id()));
        assert_eq!(inode_of(Path::new("socket:[123]")), Some(123));
        for other in ["pipe:[123]", "socket:[x]", "/dev/null"] {
            assert_eq!(inode_of(Path::new(other)), None, "{other}");
        }
    }
}
