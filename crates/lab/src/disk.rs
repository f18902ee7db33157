//! A disk of a given size, seen only by programs that are started on it.

use std::{path::Path, process::Command};

pub use sys::namespace::Access;
use sys::namespace::{CommandExt as _, Namespace, run_in};

use crate::LabError;

/// An empty filesystem in memory, mounted over a directory. Only commands and threads that are
/// started on this disk see it. A small one stands for a full disk, and a read-only one for a disk
/// that even root cannot write. It exists as long as there is a handle to it.
#[derive(Debug)]
pub struct Disk {
    mounts: Namespace,
}

impl Disk {
    /// Covers the directory `at` with `bytes` bytes.
    ///
    /// # Errors
    /// When the kernel permits no namespace of mounts, or there is no such directory.
    pub fn new(at: &Path, bytes: u64, access: Access) -> Result<Self, LabError> {
        let made = Namespace::filesystem(at, bytes, access);
        let operation = format!("mount a disk on {}", at.display());
        let mounts = made.map_err(|cause| LabError::os(operation, cause))?;
        Ok(Self { mounts })
    }

    /// Makes `command` see the disk.
    pub fn give_to(&self, command: &mut Command) {
        command.namespace(&self.mounts);
    }

    /// Runs `body` on a new thread that sees the disk.
    ///
    /// **Panics**: when `body` panics.
    ///
    /// # Errors
    /// When the thread cannot be made or moved.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        run_in(&[&self.mounts], body).map_err(|cause| LabError::os("look at a lab's disk", cause))
    }
}
