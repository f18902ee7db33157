//! Syncs long files while the rest of them arrives. Then the last sync, before the files get their
//! names, finds little to do.
//!
//! A disk that is told to sync only at the end then has a whole file to write while nothing else
//! happens. Here a separate thread syncs a file after each 32 MiB, so that no write waits for a
//! sync.
//!
//! Invariants: at most one sync is under way, and no other waits. The kernel reports the error of a
//! sync only once, so the error is kept and reported when the transfer is put in place.

use std::{
    fs::File,
    io,
    sync::mpsc::{self, SyncSender},
    thread::{self, JoinHandle},
};

use super::disk::Disk;

/// The thread that syncs long files before the transfer's end. The first long file starts it.
#[derive(Debug, Default)]
pub(super) struct EarlySync(Option<Running>);

#[derive(Debug)]
struct Running {
    files: SyncSender<File>,
    thread: JoinHandle<io::Result<()>>,
}

impl EarlySync {
    /// Begins to sync what was written to a file so far. Returns false when another sync is under
    /// way: the caller tries again later. Also returns false after a sync has failed;
    /// [`EarlySync::finish`] returns its error.
    pub(super) fn begin(&mut self, disk: &Disk, file: &File) -> bool {
        if self.0.is_none() {
            self.0 = Running::start(disk.clone());
        }
        // When there is no thread, or the descriptor cannot be copied, the last sync writes it all.
        match (&self.0, file.try_clone()) {
            (Some(running), Ok(file)) => running.files.try_send(file).is_ok(),
            _ => true,
        }
    }

    /// Waits for the sync that is under way.
    ///
    /// # Errors
    /// The first error of the syncs so far.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(Running { files, thread }) = self.0.take() else {
            return Ok(());
        };
        drop(files);
        let died = |_panic| sys::panicked("that syncs");
        thread.join().map_err(died)?
    }
}

impl Running {
    fn start(disk: Disk) -> Option<Self> {
        // The channel has no room: it takes a file only while the thread waits for one.
        let (files, next) = mpsc::sync_channel::<File>(0);
        let sync = move || next.iter().try_for_each(|file| disk.sync_data(&file));
        let thread = thread::Builder::new().name("sync".into()).spawn(sync);
        let thread = thread.ok()?;
        Some(Self { files, thread })
    }
}

/// A file is synced each time that this many more bytes have been written to it: 32 MiB.
pub(super) const EARLY_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{
        super::disk::{DiskCall, DiskFault, Modes},
        *,
    };

    fn synced(fault: Option<DiskFault>) -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("towline-early-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 100]).unwrap();
        let disk = Disk::new(fault, Modes::default());
        let mut early = EarlySync::default();
        while !early.begin(&disk, &file) {
            thread::yield_now();
        }
        drop(std::fs::remove_file(path));
        early.finish()
    }

    #[test]
    fn an_error_of_an_early_sync_is_told_at_the_end() {
        synced(None).unwrap();
        let (call, after, errno) = (DiskCall::Sync, 0, 5);
        let error = synced(Some(DiskFault { call, after, errno })).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
        EarlySync::default().finish().unwrap();
    }
}
