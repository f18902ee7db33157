//! The reading side: finds processes and asks them for their counters.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::Path,
    time::Duration,
};

use super::{ProcessCounters, directory};

/// Lists the identifiers of this user's processes that serve their counters, ascending. Removes
/// sockets of dead processes.
///
/// # Errors
/// When the directory exists and cannot be read, or is not this user's.
pub fn processes() -> io::Result<Vec<u32>> {
    processes_in(&directory::path()?)
}

/// Reads the counters of one process.
///
/// # Errors
/// `NotFound` when no process of this user with that identifier serves its counters; `TimedOut`
/// when the process does not answer; `UnexpectedEof` when its answer breaks off; `InvalidData` when
/// this library cannot read its answer.
pub fn read(pid: u32) -> io::Result<ProcessCounters> {
    read_in(&directory::path()?, pid)
}

pub(super) fn processes_in(directory: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    directory::check(directory)?;
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.strip_suffix(".sock"));
        let Some(pid) = pid.and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        match UnixStream::connect(directory::socket(directory, pid)) {
            Ok(_) => found.push(pid),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Another reader may have removed it already.
                drop(fs::remove_file(directory::socket(directory, pid)));
            }
            Err(_) => {}
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(super) fn read_in(directory: &Path, pid: u32) -> io::Result<ProcessCounters> {
    let stream = UnixStream::connect(directory::socket(directory, pid));
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            io::Error::new(io::ErrorKind::NotFound, unserved(directory, pid))
        }
        _ => error,
    })?;
    directory::check(directory)?;
    stream.set_read_timeout(Some(READ_TIME_MAX))?;
    let mut text = Vec::new();
    let read = stream.take(DOCUMENT_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let text = format!(
                "process {pid} has not answered for {} s; check with `ps` whether it is stopped",
                READ_TIME_MAX.as_secs()
            );
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        _ => error,
    })?;
    let document: ProcessCounters = serde_json::from_slice(&text).map_err(|error| {
        if error.is_eof() && (text.len() as u64) < DOCUMENT_BYTES_MAX {
            let text = format!("process {pid} sent only a part of its counters; read them again");
            return io::Error::new(io::ErrorKind::UnexpectedEof, text);
        }
        let text = format!(
            "this release does not read the counters that process {pid} serves ({error}); read \
             them with the release that serves them"
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    if document.schema != ProcessCounters::SCHEMA || document.version != ProcessCounters::VERSION {
        let text = format!(
            "the counters are of {} version {}, which this release does not read; read them with \
             the release that serves them",
            document.schema, document.version
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(document)
}

/// Says why a process serves no counters here.
fn unserved(directory: &Path, pid: u32) -> String {
    match fs::metadata(format!("/proc/{pid}")) {
        Err(_) => format!("there is no process {pid}; check its number"),
        Ok(found) if directory::user().is_ok_and(|own| own != found.uid()) => {
            format!("user {0} runs process {pid}; run as user {0}", found.uid())
        }
        Ok(_) => format!(
            "process {pid} has no session whose counters are served in {}; check its number, and \
             that it has the same XDG_RUNTIME_DIR",
            directory.display()
        ),
    }
}

const READ_TIME_MAX: Duration = Duration::from_secs(2);
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
