//! The receiver of files: of one transfer, or of all that come.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::DirBuilderExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base::Io as _;
use delivery::{
    ObjectReceiverConfig, ObjectReceiverEvent, ReceiverProgress, TransferReceiver,
    TransferReceiverConfig, parameters::GIVE_UP_AFTER,
};
use driver::ObjectReceiver;
use net::{Delete, Existing, SystemError};

use super::{FileIntake, FileSetEntry, FileSums, ReceiverStore, Target};
use crate::{
    Allowed, Error, Snapshot,
    session::{Count, End, OwnName, SessionBuilder, default_name, face, random_u64},
    sources::Sources,
    trace,
    transfer::transfer,
};

/// How a [`FileReceiver`] is to be.
#[derive(Debug)]
pub struct FileReceiverBuilder {
    session: SessionBuilder,
    target: Target,
    allowed: Vec<Allowed>,
    is_serving: bool,
    patience: Duration,
    spool: Option<PathBuf>,
    delete: Delete,
}

impl FileReceiverBuilder {
    /// Takes files from these senders only. Without any, and without a key, a session that others
    /// can reach is refused. Default none.
    #[must_use]
    pub fn allow(mut self, allowed: impl IntoIterator<Item = Allowed>) -> Self {
        self.allowed.extend(allowed);
        self
    }

    /// Goes on after the first transfer, and takes several at a time, until it is cancelled.
    /// Default: it ends with its first transfer.
    #[must_use]
    pub const fn serve(mut self, is_serving: bool) -> Self {
        self.is_serving = is_serving;
        self
    }

    /// How long a transfer that has begun waits for its sender to come back, when the connection to
    /// it is lost or it has given this receiver up; at least 30 s, the default. A sender that sends
    /// the same files again, also after a restart, continues with what is held.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = self.patience.max(patience);
        self
    }

    /// Where a stream is kept until all of it is verified. Default: the system's directory for
    /// temporary files (`$TMPDIR`).
    #[must_use]
    pub fn spool(mut self, directory: Option<PathBuf>) -> Self {
        self.spool = directory;
        self
    }

    /// What becomes of what is in the directories of a transfer and is not in the transfer, once
    /// all of it is in place: `TransferReceiverEvent::Surplus` names it. Default: it stays.
    #[must_use]
    pub const fn delete(mut self, delete: Delete) -> Self {
        self.delete = delete;
        self
    }

    /// Opens the session, then the directory, which is made when it is not there. Nothing is made
    /// when the session cannot be opened.
    ///
    /// # Errors
    /// A directory that cannot be used, parameters that contradict each other, an interface that
    /// cannot be used or that others can reach while nobody is allowed, or what the system refused.
    pub fn open(self) -> Result<FileReceiver, Error> {
        if let Target::Directory { path, .. } = &self.target {
            check_directory(path)?;
        }
        let (mut opened, receiving) = self.session.open_receiving()?;
        opened.io.inner_mut().coalesce(COALESCE_MAX);
        let sources = Sources::new(
            &self.allowed,
            self.session.key.is_some(),
            &self.session.group,
            &opened.adapter,
            opened.local,
        )?;
        let mut own_name = None;
        let own = match &self.target {
            Target::Directory { path, .. } => {
                make_directory(path)?;
                default_name(&name_of(path))
            }
            _ => own_name.insert(OwnName::take()).to_string(),
        };
        let name = self.session.name.unwrap_or(own);
        let intake = FileIntake {
            sources,
            target: self.target,
            is_stream_taken: false,
            spool: self.spool,
            delete: self.delete,
            waker: Arc::new(opened.io.inner().waker()?),
        };
        let mut manifest = TransferReceiverConfig::new(name, random_u64()?);
        manifest.key = self.session.key;
        manifest.give_up_after = self.patience;
        let config = if self.is_serving {
            ObjectReceiverConfig::serving(manifest)
        } else {
            ObjectReceiverConfig::single(manifest)
        };
        let now = opened.io.now();
        let endpoint = ObjectReceiver::open(&receiving, config, intake, now);
        Ok(FileReceiver {
            end: opened.end(endpoint),
            is_idle: false,
            own_name,
        })
    }
}

/// The last name on the way to a directory, and four digits of the whole way: the same at every
/// start.
fn name_of(directory: &Path) -> String {
    let whole = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_path_buf());
    let hash = delivery::hash_bytes(whole.as_os_str().as_encoded_bytes());
    let last = whole.file_name().unwrap_or(whole.as_os_str());
    // A sender that expects names has them in a list, which commas separate.
    let last = last.display().to_string().replace(',', "-");
    format!("{last}-{:02x}{:02x}", hash[0], hash[1])
}

/// Receives transfers into a directory, or one file to a stream.
pub struct FileReceiver {
    end: End<ObjectReceiver<FileIntake>>,
    /// The last turn found nothing to do.
    is_idle: bool,
    /// The name it took for itself, where neither its owner nor its directory gave it one.
    #[expect(dead_code, reason = "it is there to be dropped")]
    own_name: Option<OwnName>,
}

/// Where a receiver stands: each transfer under way, by its number.
pub type FileReceiverState = Vec<(u32, ReceiverProgress)>;

impl FileReceiver {
    /// Starts to describe a receiver into `target`.
    #[must_use]
    pub const fn builder(session: SessionBuilder, target: Target) -> FileReceiverBuilder {
        FileReceiverBuilder {
            session,
            target,
            allowed: Vec::new(),
            is_serving: false,
            patience: GIVE_UP_AFTER,
            spool: None,
            delete: Delete::Nothing,
        }
    }

    /// Opens a receiver of one transfer into `directory`, with every default.
    ///
    /// # Errors
    /// As [`FileReceiverBuilder::open`].
    pub fn open(session: &SessionBuilder, directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let target = Target::Directory {
            path: directory.into(),
            existing: Existing::Refuse,
        };
        Self::builder(session.clone(), target).open()
    }

    /// Does what is due, without waiting. False when all is over and the senders were told.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.is_idle = self.end.turn(&mut ())?.is_idle();
        let drops = self.end.driver.io.inner().counters().kernel_drops;
        self.end.driver.endpoint.set_host_drops(drops);
        let endpoint = &self.end.driver.endpoint;
        let transfers = endpoint.transfers();
        Ok(!(transfers.is_over() && transfers.is_idle() && self.end.is_told()))
    }

    /// What happened.
    pub fn pop_event(&mut self) -> Option<ObjectReceiverEvent> {
        let event = self.end.driver.endpoint.transfers_mut().pop_event()?;
        trace::receiving(&event);
        Some(event)
    }

    /// How far each transfer is.
    #[must_use]
    pub fn progress(&self) -> FileReceiverState {
        let transfers = self.end.driver.endpoint.transfers().iter();
        transfers
            .map(|(number, _, manifest)| (number, manifest.progress()))
            .collect()
    }

    /// The one file or directory that a transfer brings into its directory; `None` while that is
    /// not known, and where it brings several.
    #[must_use]
    pub fn only_entry(&self, transfer: u32) -> Option<&OsStr> {
        let mut transfers = self.end.driver.endpoint.transfers().iter();
        let (_, _, manifest) = transfers.find(|(number, _, _)| *number == transfer)?;
        let mut tops = manifest.manifest()?.entries();
        let mut tops = tops.by_ref().filter(|entry| !entry.path.contains(&b'/'));
        match (tops.next(), tops.next()) {
            (Some(only), None) => Some(OsStr::from_bytes(only.path)),
            _ => None,
        }
    }

    /// Every file, directory and link that a transfer brings, by their paths; `None` while that is
    /// not known, and after [`ObjectReceiverEvent::Left`].
    pub fn entries(&self, transfer: u32) -> Option<impl Iterator<Item = FileSetEntry<'_>>> {
        let manifest = self.receiver(transfer)?.manifest()?;
        Some(manifest.entries().map(FileSetEntry::of))
    }

    /// The checksums of a transfer's files, by their paths; `None` while not all of it is there,
    /// and after [`ObjectReceiverEvent::Left`].
    #[must_use]
    pub fn sums(&self, transfer: u32) -> Option<FileSums> {
        self.receiver(transfer)?.file_roots().map(FileSums::new)
    }

    fn receiver(&self, number: u32) -> Option<&TransferReceiver<ReceiverStore>> {
        let mut transfers = self.end.driver.endpoint.transfers().iter();
        let (_, _, receiver) = transfers.find(|(it, _, _)| *it == number)?;
        Some(receiver)
    }

    /// Gives every transfer up; the senders are told why. What is staged is kept.
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        let transfers = self.end.driver.endpoint.transfers_mut();
        transfers.cancel(now, text);
    }

    /// Gives one transfer up, by its number; its sender is told why. What is staged is kept.
    pub fn cancel_transfer(&mut self, number: u32, text: &str) {
        let now = self.now();
        let transfers = self.end.driver.endpoint.transfers_mut();
        transfers.cancel_one(now, number, text);
    }
}

face!(FileReceiver);

transfer!(
    FileReceiver,
    ObjectReceiverEvent,
    FileReceiverState,
    progress
);

impl Count for ObjectReceiver<FileIntake> {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.receiver().counters());
        snapshot.add(self.drops());
        snapshot.add(self.transfers().counters());
        snapshot.add(&self.transfers().transfer_counters());
    }
}

/// Waking up for each of a sender's runs would cost time that receiving needs: only the whole file
/// matters.
const COALESCE_MAX: Duration = Duration::from_micros(1_500);

/// Finds out whether `path` is a directory or can become one, and makes nothing.
fn check_directory(path: &Path) -> Result<(), SystemError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => {
            let error =
                SystemError::refused("receive into", path.display(), "it is not a directory");
            Err(error.advise("name a directory"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => check_directory(parent),
            _ => Ok(()),
        },
        Err(error) => Err(SystemError::system("receive into", path.display(), &error)),
    }
}

/// Makes the directory and proves that it can be written, before anybody is waited for.
fn make_directory(path: &Path) -> Result<(), Error> {
    let remedy = "receive into a directory that this user may write";
    let failed =
        |error: &io::Error| SystemError::system("write into", path.display(), error).advise(remedy);
    fs::create_dir_all(path).map_err(|error| failed(&error))?;
    // The store's staging directory: a file that a kill leaves there is not mistaken for a received
    // one.
    let staging = path.join(".towline");
    let made = fs::DirBuilder::new().mode(0o700).create(&staging);
    let proven = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let probe = staging.join(format!("probe-{:016x}", random_u64()?));
            fs::File::create_new(&probe).and_then(|_| fs::remove_file(&probe))
        }
        made => made,
    };
    // Stays while a transfer is staged in it, now or for a later attempt.
    drop(fs::remove_dir(&staging));
    match proven {
        // Another transfer has just ended and removed the directory, so it was writable.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        proven => Ok(proven.map_err(|error| failed(&error))?),
    }
}
