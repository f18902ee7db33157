//! The receiver of files: of one transfer, or of all that come.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base::Io as _;
use delivery::{
    ObjectReceiverConfig, ObjectReceiverEvent, ReceiverProgress, TransferReceiver,
    TransferReceiverConfig,
    parameters::{GIVE_UP_AFTER, TRANSFERS_MAX},
};
use driver::{ObjectReceiver, Receiving};
use net::{Delete, Endings, Existing, KeepFree, Modes, Owners, Room, RoomLimits, SystemError};

use super::{FileIntake, FileSetEntry, FileSums, ReceiverStore, Target, capacity::Capacity};
use crate::{
    Allowed, Error, Place, Snapshot,
    session::{Count, End, Opened, OwnName, SessionBuilder, default_name, face, random_u64},
    sources::Sources,
    trace,
    transfer::transfer,
};

/// The settings of a [`FileReceiver`].
#[derive(Debug)]
pub struct FileReceiverBuilder {
    session: SessionBuilder,
    target: Target,
    allowed: Vec<Allowed>,
    is_serving: bool,
    transfers_max: u32,
    patience: Duration,
    spool: Option<PathBuf>,
    delete: Delete,
    sparse: bool,
    owner: Owners,
    attributes: bool,
    modes: Modes,
    takes_dot_names: bool,
    room: RoomLimits,
    entries_max: Option<u32>,
}

impl FileReceiverBuilder {
    /// Takes files only from these senders. When none is given, a session that other machines can
    /// reach is refused, unless it has a key or its group names a source. Default none.
    #[must_use]
    pub fn allow(mut self, allowed: impl IntoIterator<Item = Allowed>) -> Self {
        self.allowed.extend(allowed);
        self
    }

    /// Takes any number of transfers, several at a time, until it is cancelled. By default the
    /// receiver ends with its first transfer.
    #[must_use]
    pub const fn serve(mut self, is_serving: bool) -> Self {
        self.is_serving = is_serving;
        self
    }

    /// With [`FileReceiverBuilder::serve`]: sets how many transfers the receiver takes at a time,
    /// at least 1, by default 16. Senders of one host may have at most half of these places.
    /// Further senders have to wait. Where senders dial this receiver, up to 10,000 stay connected
    /// while they wait, or fewer if the process may not open enough descriptors. If these are too
    /// few even for the transfers, [`FileReceiver::take_warnings`] says how many the receiver
    /// takes. A transfer that is over keeps its place until the disk has taken its data.
    ///
    /// **Cost**: each transfer has a thread that writes to the disk, and memory for what the disk
    /// has not taken: 256 MiB divided by this number, but at most 6 MiB and at least 256 KiB.
    #[must_use]
    pub fn transfers_max(mut self, transfers: u32) -> Self {
        self.transfers_max = transfers.max(1);
        self
    }

    /// Sets how long a transfer waits for its sender to come back, after its connection was lost or
    /// the sender has given this receiver up. At least 30 s, which is the default. When a sender
    /// sends the same files again, even after a restart, the receiver goes on with what it holds
    /// already.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = self.patience.max(patience);
        self
    }

    /// Sets the directory in which a stream is kept until the whole stream is verified. Default:
    /// the system's directory for temporary files (`$TMPDIR`).
    #[must_use]
    pub fn spool(mut self, directory: Option<PathBuf>) -> Self {
        self.spool = directory;
        self
    }

    /// Sets what happens, once a transfer is in place, to files that are in its directories but not
    /// in the transfer. `TransferReceiverEvent::Surplus` names them. By default they stay.
    #[must_use]
    pub const fn delete(mut self, delete: Delete) -> Self {
        self.delete = delete;
        self
    }

    /// Leaves holes in files where the content is only zeros, so that the zeros take no room on the
    /// disk. Does so even when the sender does not ask for it. Default false.
    #[must_use]
    pub const fn sparse(mut self, is_sparse: bool) -> Self {
        self.sparse = is_sparse;
        self
    }

    /// Sets who owns the received files, directories and links, if the sender says who owned them.
    /// `TransferReceiverEvent::Unset` names what this process may not set. Default: the user of
    /// this process.
    #[must_use]
    pub const fn owner(mut self, owner: Owners) -> Self {
        self.owner = owner;
        self
    }

    /// Gives files and directories the extended attributes that they have at the sender, if the
    /// sender tells these ([`crate::FileSetBuilder::attributes`]): `user.*`, and others as far as
    /// the system lets this process set them. Removes a `user.*` attribute if the entry does not
    /// have it at the sender. File capabilities and `system.*` are never set.
    /// `TransferReceiverEvent::Unset` names what could not be set. Default false.
    #[must_use]
    pub const fn attributes(mut self, are_set: bool) -> Self {
        self.attributes = are_set;
        self
    }

    /// Sets which of the sender's permission bits the received files get. Default: those that the
    /// process's mask (umask) leaves.
    #[must_use]
    pub const fn modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// Also takes a transfer in which a top-level name begins with a dot. Files with such names may
    /// be settings of this user's programs. Default false: such a transfer is refused.
    #[must_use]
    pub const fn take_dot_names(mut self, takes: bool) -> Self {
        self.takes_dot_names = takes;
        self
    }

    /// Limits the disk space that transfers into a directory may take. Default: 5 % of the
    /// filesystem, but at most 1 GiB, stays free, and there is no quota.
    #[must_use]
    pub const fn room(mut self, limits: RoomLimits) -> Self {
        self.room = limits;
        self
    }

    /// Sets the most files, directories and links of one transfer. The default, 1,000,000, is also
    /// the highest limit.
    #[must_use]
    pub const fn entries_max(mut self, entries: u32) -> Self {
        self.entries_max = Some(entries);
        self
    }

    /// Opens the session and then the directory, which is made when it does not exist. When the
    /// session cannot be opened, nothing is made.
    ///
    /// # Errors
    /// When the directory cannot be used, when parameters contradict each other, when the interface
    /// cannot be used, when other machines can reach the session and no sender is allowed, or when
    /// the system refuses.
    pub fn open(mut self) -> Result<FileReceiver, Error> {
        if let Target::Directory { path, .. } = &self.target {
            check_directory(path)?;
        }
        let links_max = &mut self.session.sockets.links_max;
        let capacity = Capacity::new(sys::open_files_max(), *links_max, self.transfers_max);
        *links_max = capacity.links;
        let (mut opened, receiving, sources) = self.open_session()?;
        if self.is_serving {
            opened.warnings.extend(capacity.warning(self.transfers_max));
        }
        let is_discreet = !sources.are_known();
        let mut own_name = None;
        let own = match &self.target {
            Target::Directory { path, .. } => {
                net::check_directory(path)?;
                default_name(&name_of(path))
            }
            _ => own_name.insert(OwnName::take()).to_string(),
        };
        let name = self.session.name.unwrap_or(own);
        let place = match self.session.place {
            Place::Listen(_) => Place::Listen(opened.destination),
            place => place,
        };
        let intake = FileIntake {
            sources,
            target: self.target,
            is_stream_taken: false,
            spool: self.spool,
            delete: self.delete,
            sparse: self.sparse,
            owner: self.owner,
            attributes: self.attributes,
            modes: self.modes,
            takes_dot_names: self.takes_dot_names,
            room: Room::new(self.room),
            queue_bytes_max: capacity.queue_bytes_max(),
            endings: Endings::default(),
            waker: Arc::new(opened.io.waker()?),
        };
        let mut transfer = TransferReceiverConfig::new(name, random_u64()?);
        let key = self.session.key;
        transfer.key.clone_from(&key);
        transfer.give_up_after = self.patience;
        transfer.is_discreet = is_discreet;
        let limits = &mut transfer.limits;
        limits.entries_max = limits.entries_max.min(self.entries_max.unwrap_or(u32::MAX));
        let config = if self.is_serving {
            capacity.serve(transfer)
        } else {
            ObjectReceiverConfig::single(transfer)
        };
        let now = opened.io.now();
        let end = match &receiving {
            Some(receiving) => {
                let endpoint = ObjectReceiver::open(receiving, config, intake, now);
                opened.end(endpoint, receiving.protection(key))
            }
            None => opened.end(ObjectReceiver::listen(config, intake), None),
        };
        Ok(FileReceiver {
            end,
            is_idle: false,
            own_name,
            place,
        })
    }
}

impl FileReceiverBuilder {
    /// Opens the sockets, either for packets or for connections alone. Makes the rule that says
    /// from whom files are taken.
    fn open_session(&self) -> Result<(Opened, Option<Receiving>, Sources), Error> {
        let (session, has_key) = (&self.session, self.session.key.is_some());
        if let Place::Listen(address) = session.place {
            let sources = Sources::listening(&self.allowed, has_key, address)?;
            return Ok((session.open_links(address)?, None, sources));
        }
        let (mut opened, receiving) = session.open_receiving()?;
        opened.packets()?.coalesce(COALESCE_MAX);
        let (group, adapter) = (session.place.group(), &opened.adapter);
        let (Some(group), Some(adapter)) = (group, adapter) else {
            return Err(session.place.no_packets().into());
        };
        let sources = Sources::new(&self.allowed, has_key, group, adapter, opened.local)?;
        Ok((opened, Some(receiving), sources))
    }
}

/// Makes a receiver name that is the same at every start: the last component of the directory's
/// path, and four hexadecimal digits of a hash of the whole path.
fn name_of(directory: &Path) -> String {
    let whole = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_path_buf());
    let hash = delivery::hash_bytes(whole.as_os_str().as_encoded_bytes());
    let last = whole.file_name().unwrap_or(whole.as_os_str());
    // Commas separate the names in a sender's list, so a name must not have one.
    let last = last.display().to_string().replace(',', "-");
    format!("{last}-{:02x}{:02x}", hash[0], hash[1])
}

/// A receiver of transfers into a [`Target`]. The event
/// [`TransferReceiverEvent::Delivered`](crate::TransferReceiverEvent::Delivered) says that a
/// transfer was delivered.
///
/// ```no_run
/// # fn main() -> Result<(), towline::Error> {
/// use towline::{
///     FileReceiver, ObjectReceiverEvent, SessionBuilder, TransferReceiverEvent, TransferThread,
/// };
/// let session = SessionBuilder::new("239.192.0.1@lo:7500".parse()?);
/// let mut receiver = TransferThread::spawn(FileReceiver::open(&session, "incoming")?)?;
/// while let Some(event) = receiver.recv(None) {
///     if let ObjectReceiverEvent::Transfer { event, .. } = event
///         && let TransferReceiverEvent::Delivered { .. } = event
///     {
///         println!("all of it is in place");
///     }
/// }
/// receiver.join()?;
/// # Ok(())
/// # }
/// ```
pub struct FileReceiver {
    end: End<ObjectReceiver<FileIntake>>,
    /// The last turn found nothing to do.
    is_idle: bool,
    /// A name made for this receiver, kept so that no other end of this process takes it. `None`
    /// when the target is a directory, because the directory's path then gives the name.
    #[expect(dead_code, reason = "it is there to be dropped")]
    own_name: Option<OwnName>,
    place: Place,
}

/// The state of a receiver: the number and the progress of each transfer.
pub type FileReceiverState = Vec<(u32, ReceiverProgress)>;

impl FileReceiver {
    /// Starts to describe a receiver that writes into `target`.
    #[must_use]
    pub const fn builder(session: SessionBuilder, target: Target) -> FileReceiverBuilder {
        FileReceiverBuilder {
            session,
            target,
            allowed: Vec::new(),
            is_serving: false,
            transfers_max: TRANSFERS_MAX,
            patience: GIVE_UP_AFTER,
            spool: None,
            delete: Delete::Nothing,
            sparse: false,
            owner: Owners::Receiver,
            attributes: false,
            modes: Modes::Umask,
            takes_dot_names: false,
            room: RoomLimits {
                quota_bytes: None,
                keep_free: KeepFree::Usual,
            },
            entries_max: None,
        }
    }

    /// Returns the receiver's place: the group, or the address that senders dial. The port that the
    /// system gave replaces a port 0.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
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

    /// Does what is due, without waiting. Returns false when everything is over and the senders
    /// know it.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.is_idle = self.end.turn(&mut ())?.is_idle();
        let drops = self.end.driver.io.counters().kernel_drops;
        self.end.driver.endpoint.set_host_drops(drops);
        if self.end.driver.endpoint.transfers().is_over() {
            // Otherwise a peer that connects again and again would keep this end waiting.
            self.end.stop_listening();
        }
        let transfers = self.end.driver.endpoint.transfers();
        Ok(!(transfers.is_over() && transfers.is_idle() && self.end.is_told()))
    }

    /// Returns the next event.
    pub fn pop_event(&mut self) -> Option<ObjectReceiverEvent> {
        let event = self.end.driver.endpoint.transfers_mut().pop_event()?;
        trace::receiving(&event);
        Some(event)
    }

    /// Returns how far each transfer is at this moment.
    #[must_use]
    pub fn progress(&self) -> FileReceiverState {
        let transfers = self.end.driver.endpoint.transfers().iter();
        transfers
            .map(|(number, _, receiver)| (number, receiver.progress()))
            .collect()
    }

    /// Returns the only file or directory that a transfer brings into its directory; `None` while
    /// that is unknown, or when the transfer brings several.
    #[must_use]
    pub fn only_entry(&self, transfer: u32) -> Option<&OsStr> {
        let mut tops = self.top_entries(transfer);
        match (tops.next(), tops.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Returns the entries that a transfer brings at the top of its directory, without what lies
    /// below them; none while they are unknown.
    pub fn top_entries(&self, transfer: u32) -> impl Iterator<Item = &OsStr> {
        let manifest = self.receiver(transfer).and_then(TransferReceiver::manifest);
        let entries = manifest.into_iter().flat_map(|manifest| manifest.entries());
        let tops = entries.filter(|entry| !entry.path.contains(&b'/'));
        tops.map(|entry| OsStr::from_bytes(entry.path))
    }

    /// Returns every file, directory and link that a transfer brings, by path; `None` while they
    /// are unknown, and after [`ObjectReceiverEvent::Left`].
    pub fn entries(&self, transfer: u32) -> Option<impl Iterator<Item = FileSetEntry<'_>>> {
        let manifest = self.receiver(transfer)?.manifest()?;
        Some(manifest.entries().map(FileSetEntry::of))
    }

    /// Returns the checksums of a transfer's files, by path; `None` before all content is verified,
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

    /// Gives all transfers up, and tells their senders why. If the target is a directory, the data
    /// that has arrived is kept for the next attempt, as after [`FileReceiver::cancel_transfer`].
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        let transfers = self.end.driver.endpoint.transfers_mut();
        transfers.cancel(now, text);
    }

    /// Gives the transfer with this number up, and tells its sender why. If the target is a
    /// directory, the data that has arrived is kept for the next attempt, if it is at least 1 MiB
    /// or 1 % of the transfer.
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
    fn drops(&self) -> Option<&base::DropCounters> {
        self.drops()
    }

    fn count(&self, snapshot: &mut Snapshot) {
        if let Some(receiver) = self.receiver() {
            snapshot.add(receiver.counters());
        }
        snapshot.add(self.transfers().counters());
        snapshot.add(&self.transfers().transfer_counters());
    }
}

/// The longest sleep while packets stream in. Waking up for each burst of a sender would take time
/// from receiving. The delay does no harm, because only the whole file matters.
const COALESCE_MAX: Duration = Duration::from_micros(1_500);

/// Checks that `path` is a directory or can become one, without making anything.
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
        Err(error) => {
            let fault = SystemError::system("receive into", path.display(), &error);
            Err(match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    fault.advise("name a directory that this user may write")
                }
                io::ErrorKind::NotADirectory => {
                    fault.advise("a part of this path is not a directory: name another path")
                }
                _ => fault,
            })
        }
    }
}
