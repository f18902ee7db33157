//! The sender of files: it waits for every receiver's proof.

use base::Io as _;
use delivery::{PlanOutcome, PlanSenderConfig, PlanSenderEvent};
use driver::ObjectSender;
use net::FileContent;
use pgm::Config;
use wire::object::ErrorCode;

use super::{Expectation, FileSet, FileSums};
use crate::{
    Error, Snapshot,
    session::{Count, End, SessionBuilder, face},
    trace,
    transfer::transfer,
};

/// Sends files and trees to everyone in a group.
#[derive(Debug)]
pub struct FileSender {
    end: End<ObjectSender<FileContent>>,
    /// The last turn found nothing to do.
    is_idle: bool,
}

impl FileSender {
    /// Opens a session for `files`. Nothing is sent before [`FileSender::turn`].
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(
        session: &SessionBuilder,
        files: FileSet,
        expectation: &Expectation,
    ) -> Result<Self, Error> {
        let (plan, content, notes) = files.into_parts();
        let (mut opened, sending) = session.open_sending()?;
        if sending.config.tx_window_bytes() != Config::default().tx_window_bytes() {
            let text = "tx_window_bytes is of messages and changes nothing here: the window of a \
                        sender of files is object_window_bytes";
            opened.warnings.push(text.to_owned());
        }
        let mut config = PlanSenderConfig::new(sending.identity.session, expectation.receivers);
        config.join_timeout = expectation.join_timeout;
        config.progress_timeout = expectation.progress_timeout;
        config.slow = expectation.slow;
        config.key.clone_from(&session.key);
        config.expected_names.clone_from(&expectation.names);
        let endpoint = ObjectSender::open(&sending, config, plan, content, opened.io.now());
        let mut end = opened.end(endpoint);
        end.warnings.extend(notes);
        Ok(Self {
            end,
            is_idle: false,
        })
    }

    /// Does what is due, without waiting. False when all is over and everyone was told.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.is_idle = self.end.turn(&mut ())?.is_idle();
        Ok(!(self.end.driver.endpoint.is_over() && self.end.is_told()))
    }

    /// What happened to a receiver or the transfer.
    pub fn pop_event(&mut self) -> Option<PlanSenderEvent> {
        let event = self.end.driver.endpoint.plan_mut().pop_event()?;
        trace::sending(&event);
        Some(event)
    }

    /// Gives the transfer up; the receivers are told why.
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        self.end
            .driver
            .endpoint
            .plan_mut()
            .cancel(now, ErrorCode::Cancelled, text);
    }

    /// The checksums of all files, once every byte was read.
    #[must_use]
    pub fn sums(&self) -> Option<FileSums> {
        let plan = self.end.driver.endpoint.plan();
        plan.file_roots().map(FileSums::new)
    }

    /// How many files are sent.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.end.driver.endpoint.plan().plan().files().len()
    }

    /// Where every receiver stands; final after [`PlanSenderEvent::Finished`].
    #[must_use]
    pub fn outcome(&self) -> PlanOutcome {
        self.end.driver.endpoint.plan().outcome()
    }
}

face!(FileSender);

transfer!(FileSender, PlanSenderEvent, PlanOutcome, outcome);

impl Count for ObjectSender<FileContent> {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.source().counters());
        snapshot.add(self.drops());
        snapshot.add(self.plan().counters());
        snapshot.set_receivers(self.plan().receiver_count());
    }
}
