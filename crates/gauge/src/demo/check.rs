//! Checks the result of a demo with a tool other than Towline. The tool hashes the tree that was
//! sent and the directories that were written.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use net::SystemError;

use super::{Process, Tree};
use crate::Error;

/// A program that prints a hash and a name for each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Prints the same hashes as Towline.
    B3sum,
    /// Prints SHA-256 hashes; almost every system has it.
    Sha256sum,
}

impl Tool {
    /// Finds the best tool that is installed.
    pub fn find() -> Result<Self, Error> {
        for tool in [Self::B3sum, Self::Sha256sum] {
            let mut command = Command::new(tool.name());
            let found = command
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if found.status().is_ok_and(|status| status.success()) {
                return Ok(tool);
            }
        }
        let cause = "neither `b3sum --version` nor `sha256sum --version` runs without an error";
        Err(SystemError::refused("check", "the received files", cause)
            .advise("install b3sum, or the sha256sum of GNU coreutils")
            .into())
    }

    /// Returns the program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::B3sum => "b3sum",
            Self::Sha256sum => "sha256sum",
        }
    }
}

/// One hash for the tree and one for each directory: the tool hashes every file, and then hashes
/// its own output, sorted by path.
#[derive(Clone, Debug)]
pub struct Checksums {
    /// The tool that made the hashes.
    pub tool: Tool,
    /// The hash of the tree that was sent.
    pub sent: String,
    /// The hash of each receiver's directory.
    pub received: Vec<String>,
}

impl Checksums {
    /// Runs the tool over the tree and all directories. Asks `is_interrupted` at least ten times a
    /// second while the tool hashes files.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; or when the tool fails or a directory cannot be read.
    pub fn take(
        tool: Tool,
        tree: &Tree,
        directories: &[PathBuf],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let mut lines = BTreeMap::new();
        for path in &tree.paths {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            hash_below(tool, parent, &[name], &mut lines, is_interrupted)?;
        }
        let sent = hash_of(tool, lines)?;
        let mut received = Vec::new();
        for directory in directories {
            let mut lines = BTreeMap::new();
            let names = names_in(directory)?;
            hash_below(tool, directory, &names, &mut lines, is_interrupted)?;
            received.push(hash_of(tool, lines)?);
        }
        Ok(Self {
            tool,
            sent,
            received,
        })
    }

    /// Returns true when there is a receiver, and all hashes are equal.
    #[must_use]
    pub fn agree(&self) -> bool {
        !self.received.is_empty() && self.received.iter().all(|hash| *hash == self.sent)
    }
}

/// Returns the names in a directory, without `.towline`, where Towline stages files.
fn names_in(directory: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let entries = fs::read_dir(directory)
        .map_err(|error| SystemError::system("read", directory.display(), &error))?;
    let names = entries.flatten().map(|entry| entry.file_name().into_vec());
    Ok(names.filter(|name| name != b".towline").collect())
}

/// Runs the tool on all regular files below `names` in `root`, and adds the lines that it prints to
/// `lines`, each under the path of its file.
fn hash_below(
    tool: Tool,
    root: &Path,
    names: &[Vec<u8>],
    lines: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let mut files = Vec::new();
    for name in names {
        collect(root, name, &mut files)?;
    }
    for chunk in files.chunks(FILES_PER_CALL) {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let mut command = Command::new(tool.name());
        command.current_dir(root).arg("--");
        command.args(chunk.iter().map(|name| OsString::from_vec(name.clone())));
        let (status, text) =
            Process::start(&mut command, true)?.output(tool.name(), is_interrupted)?;
        let printed: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        if !status.success() || printed.len() != chunk.len() {
            let cause = format!(
                "it ended with {status} and printed {} of {} hashes; check that the files can be \
                 read and that nothing changes them",
                printed.len(),
                chunk.len()
            );
            return Err(SystemError::refused("use", tool.name(), cause).into());
        }
        let pairs = chunk.iter().zip(printed);
        lines.extend(pairs.map(|(name, line)| (name.clone(), line.to_vec())));
    }
    Ok(())
}

fn collect(root: &Path, name: &[u8], files: &mut Vec<Vec<u8>>) -> Result<(), Error> {
    let path = root.join(std::ffi::OsStr::from_bytes(name));
    let failed = |error: &io::Error| SystemError::system("read", path.display(), error);
    let kind = fs::symlink_metadata(&path)
        .map_err(|error| failed(&error))?
        .file_type();
    if kind.is_file() {
        files.push(name.to_vec());
    } else if kind.is_dir() {
        for entry in fs::read_dir(&path).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let below = [name, b"/", entry.file_name().as_bytes()].concat();
            collect(root, &below, files)?;
        }
    }
    Ok(())
}

/// Hashes the lines that the tool printed, with the same tool.
fn hash_of(tool: Tool, lines: BTreeMap<Vec<u8>, Vec<u8>>) -> Result<String, Error> {
    let failed = |error: &io::Error| SystemError::system("run", tool.name(), error);
    let mut child = Command::new(tool.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        for line in lines.into_values() {
            stdin.write_all(&line).map_err(|error| failed(&error))?;
        }
    }
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let hash = text.split_whitespace().next();
    match hash.filter(|_| output.status.success()) {
        Some(hash) => Ok(hash.to_owned()),
        None => {
            let cause = format!("it ended with {} and printed no usable hash", output.status);
            Err(SystemError::refused("run", tool.name(), cause).into())
        }
    }
}

/// The most files of one call, so that its command line stays well below the kernel's limit.
const FILES_PER_CALL: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_ends_when_nobody_wants_it_any_more() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let tree = Tree::of(&root).expect("our own source");
        let parent = [PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
        let tool = Tool::find().expect("a tool");
        let ended = Checksums::take(tool, &tree, &parent, &|| true);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        let taken = Checksums::take(tool, &tree, &[], &|| false).expect("hashes");
        assert!(taken.sent.len() == 64, "{taken:?}");
    }
}
