//! The sender of files: it waits for the proof of every expected receiver.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use base::{Instant, Io as _};
use delivery::{
    Carriage, Manifest, TransferOutcome, TransferSenderConfig, TransferSenderEvent, Unsent,
    parameters::TRANSFER_LINGER,
};
use driver::ObjectSender;
use net::{FileContent, HeldBack, SystemError, Tree};
use pgm::Config;
use wire::object::ErrorCode;

use super::{Expectation, FileSet, FileSums};
use crate::{
    Allowed, Error, Place, Snapshot,
    session::{Count, End, SessionBuilder, face, random_u64, receivers_max},
    trace,
    transfer::transfer,
};

/// A sender of files and trees: to all receivers of a group, or over TCP to the receivers at named
/// hosts ([`Place::Hosts`]).
///
/// ```no_run
/// # fn main() -> Result<(), towline::Error> {
/// use towline::{Expectation, FileSender, FileSet, SessionBuilder, TransferThread};
/// let session = SessionBuilder::new("239.192.0.1@lo:7500".parse()?);
/// let files = FileSet::builder().path("site").read()?;
/// let sender = FileSender::open(&session, files, &Expectation::default())?;
/// let sender = TransferThread::spawn(sender)?.join()?;
/// println!("proven: {}", sender.outcome().is_proven());
/// # Ok(())
/// # }
/// ```
pub struct FileSender {
    end: End<ObjectSender<FileContent>>,
    /// True when the last turn found nothing to do.
    is_idle: bool,
    /// When the sender stops waiting for its last messages to leave; `None` before the
    /// transfer is over.
    told_until: Option<Instant>,
    /// Files that could not be read when they were found, and are not in the manifest.
    unsent: Vec<Unsent>,
}

impl FileSender {
    /// Opens a session for `files`. Nothing is sent before [`FileSender::turn`].
    ///
    /// # Errors
    /// When parameters contradict each other, when a name is expected twice, when the interface
    /// cannot be used, or when the system refuses.
    pub fn open(
        session: &SessionBuilder,
        files: FileSet,
        expectation: &Expectation,
    ) -> Result<Self, Error> {
        let mut names = expectation.names.iter();
        while let Some(name) = names.next() {
            if names.as_slice().contains(name) {
                let cause = "it is named twice, and no two receivers of a session have the same \
                             name";
                let error = SystemError::refused("expect", name, cause);
                return Err(error.advise("name each receiver once").into());
            }
        }
        let may_skip = files.may_skip();
        let Tree {
            manifest,
            content,
            notes,
            mut unsent,
        } = files.into_tree();
        if !unsent.is_empty() {
            let entries = manifest.entries().map(|entry| entry.path);
            let announced: BTreeSet<_> = entries.collect();
            unsent.retain(|it| !announced.contains(&it.path[..]));
        }
        let (session_id, seed) = (random_u64()?, random_u64()?);
        let mut config = TransferSenderConfig::new(session_id, expectation.receivers, seed);
        config.join_timeout = expectation.join_timeout;
        config.line_timeout = expectation.line_timeout;
        config.settle = expectation.settle;
        config.progress_timeout = expectation.progress_timeout;
        config.slow = expectation.slow;
        config.withdraws = may_skip;
        config.key.clone_from(&session.key);
        config.admission = Allowed::admission(session.receivers_from.iter().copied());
        config.expected_names.clone_from(&expectation.names);
        let mut end = open(session, config, manifest, content)?;
        end.warnings.extend(notes);
        Ok(Self {
            end,
            is_idle: false,
            told_until: None,
            unsent,
        })
    }

    /// Does what is due, without waiting. Returns false when everything is over, and the receivers
    /// know it or have had 2 s to learn it.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.is_idle = self.end.turn(&mut ())?.is_idle();
        self.end.driver.io.look();
        let is_over = self.end.driver.endpoint.is_over();
        if !is_over {
            return Ok(true);
        }
        // A peer that connects again and again, or does not read, must not keep this end waiting.
        self.end.stop_listening();
        let now = self.now();
        let until = *self.told_until.get_or_insert(now + TRANSFER_LINGER);
        Ok(!(self.end.is_told() || now >= until))
    }

    /// Returns the next event about a receiver or the transfer.
    pub fn pop_event(&mut self) -> Option<TransferSenderEvent> {
        let event = self.end.driver.endpoint.transfer_mut().pop_event()?;
        trace::sending(&event);
        Some(event)
    }

    /// Gives the transfer up, and tells the receivers why.
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        self.end
            .driver
            .endpoint
            .transfer_mut()
            .cancel(now, ErrorCode::Cancelled, text);
    }

    /// Returns how long each cause held back the connection to each host while content moved, as
    /// the kernel counts it. Empty when packets, not connections, carry the content.
    #[must_use]
    pub fn held_back(&self) -> Vec<(SocketAddr, HeldBack)> {
        self.end.driver.io.held_back()
    }

    /// Returns the checksums of all files, except those withdrawn because they changed or could not
    /// be read; `None` before every byte was read.
    #[must_use]
    pub fn sums(&self) -> Option<FileSums> {
        let manifest = self.end.driver.endpoint.transfer();
        manifest.file_roots().map(FileSums::new)
    }

    /// Returns how many files are sent, without those withdrawn because they changed or could not
    /// be read. A file with several names counts once for each name.
    #[must_use]
    pub fn file_count(&self) -> usize {
        let transfer = self.end.driver.endpoint.transfer();
        let manifest = transfer.manifest();
        manifest.files().len() + manifest.hard_links().len() - transfer.unsent().len()
    }

    /// Returns the state of every receiver by its last report. A connected receiver reports a
    /// change within 200 ms, or later when there are many receivers. The state is final after
    /// [`TransferSenderEvent::Finished`]. [`TransferOutcome::unsent`] also names files that were
    /// skipped when the tree was walked.
    #[must_use]
    pub fn outcome(&self) -> TransferOutcome {
        let mut outcome = self.end.driver.endpoint.transfer().outcome();
        outcome.unsent.splice(0..0, self.unsent.iter().cloned());
        outcome
    }
}

/// Opens the session: over packets, or over connections to the hosts that `session` names.
fn open(
    session: &SessionBuilder,
    mut config: TransferSenderConfig,
    manifest: Arc<Manifest>,
    mut content: FileContent,
) -> Result<End<ObjectSender<FileContent>>, Error> {
    if let Place::Hosts(hosts) = &session.place {
        let peers = Place::peers(hosts)?;
        let first = peers.first().copied();
        let first = first.ok_or_else(|| {
            SystemError::refused("send", "the files", "no host is named")
                .advise("name at least one")
        })?;
        if config.expected_count() == 0 {
            config.expected = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        }
        config.carriage = Carriage::Links(peers);
        let mut opened = session.open_links(first)?;
        let waker = opened.io.waker()?;
        content.wake_by(move || waker.wake());
        let endpoint = ObjectSender::dial(config, manifest, content, opened.io.now());
        return Ok(opened.end(endpoint, None));
    }
    let (mut opened, sending) = session.open_sending()?;
    let waker = opened.io.waker()?;
    content.wake_by(move || waker.wake());
    if sending.config.tx_window_bytes() != Config::default().tx_window_bytes() {
        let text = "tx_window_bytes is for messages and has no effect on files: set \
                    object_window_bytes, the transmit window of files";
        opened.warnings.push(text.to_owned());
    }
    config.session_id = sending.identity.session_id;
    config.receivers_max = config
        .receivers_max
        .min(receivers_max(sys::open_files_max()));
    let endpoint = ObjectSender::open(&sending, config, manifest, content, opened.io.now());
    Ok(opened.end(endpoint, sending.protection(session.key.clone())))
}

face!(FileSender);

transfer!(FileSender, TransferSenderEvent, TransferOutcome, outcome);

impl Count for ObjectSender<FileContent> {
    fn drops(&self) -> Option<&base::DropCounters> {
        self.drops()
    }

    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.transfer().counters());
        snapshot.set_receivers(self.transfer().receiver_count());
        let Some(source) = self.source() else {
            return;
        };
        snapshot.add(source.counters());
        let unsent = source.unsent();
        if let Some(hold) = self.transfer().hold(unsent - 1) {
            snapshot.set_behind(unsent.saturating_sub(hold));
        }
    }
}
