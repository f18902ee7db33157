//! Files and trees: the sender that waits for every receiver's proof, and the receiver that gives
//! it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base::{Instant, Io as _};
use delivery::{
    PlanOutcome, PlanReceiver, PlanReceiverConfig, PlanReceiverEvent, PlanSender, PlanSenderConfig,
    PlanSenderEvent, ReceiverProgress,
};
use driver::{Driver, ObjectReceiver, ObjectSender};
use net::{FileContent, FileStore, Tree};
use pgm::Mode;
use wire::pgm::Profile;

use crate::{
    Error, Snapshot,
    session::{Port, Session, random_u64, report_sqns},
};

/// Whom a sender of files waits for, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// Receivers that must prove delivery; 0 for whoever has joined at the deadline.
    pub receivers: u32,
    /// How long to wait for them to join.
    pub join_timeout: Duration,
    /// A receiver without progress for so long is given up.
    pub progress_timeout: Duration,
}

/// Sends files and trees to everyone in a group.
#[derive(Debug)]
pub struct FileSender {
    driver: Driver<Port, ObjectSender<FileContent>>,
    warnings: Vec<String>,
}

impl FileSender {
    /// Walks `paths` and opens the session. Nothing is sent before [`FileSender::turn`].
    ///
    /// # Errors
    /// A path that cannot be read or delivered, parameters that contradict each other, an interface
    /// that cannot be used, or what the system refused.
    pub fn open(
        session: &Session,
        paths: &[PathBuf],
        expectation: &Expectation,
    ) -> Result<Self, Error> {
        let tree = Tree::read(paths)?;
        let (mut opened, source, session_id) = session.open_source(Profile::Objects)?;
        let mut config = PlanSenderConfig::new(session_id, expectation.receivers);
        config.join_timeout = expectation.join_timeout;
        config.progress_timeout = expectation.progress_timeout;
        config.report_sqns = report_sqns(&opened.config, expectation.receivers);
        let plan = PlanSender::new(config, tree.plan, tree.content, opened.io.now());
        let endpoint = ObjectSender::new(source, plan);
        let mut warnings = opened.warnings;
        warnings.extend(tree.notes);
        Ok(Self {
            driver: Driver::new(opened.io, endpoint, opened.batch),
            warnings,
        })
    }

    /// Does what is due and then waits for more, at most until `until`. False when all is over.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let turn = self.driver.turn(&mut ())?;
        let is_told = self.driver.io.inner().links_unfinished() == 0;
        if self.driver.endpoint.is_over() && is_told {
            return Ok(false);
        }
        if turn.is_idle() {
            self.driver.wait(until);
        }
        Ok(true)
    }

    /// What happened to a receiver or the transfer.
    pub fn pop_event(&mut self) -> Option<PlanSenderEvent> {
        self.driver.endpoint.plan_mut().pop_event()
    }

    /// Where every receiver stands; final after [`PlanSenderEvent::Finished`].
    #[must_use]
    pub fn outcome(&self) -> PlanOutcome {
        self.driver.endpoint.plan().outcome()
    }

    /// The state machines, to look at.
    #[must_use]
    pub const fn endpoint(&self) -> &ObjectSender<FileContent> {
        &self.driver.endpoint
    }

    /// The session's clock.
    pub fn now(&mut self) -> Instant {
        self.driver.io.now()
    }

    /// Things that work, but not as asked: one sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let late = std::iter::from_fn(|| self.driver.io.inner_mut().take_warning());
        self.warnings.extend(late);
        std::mem::take(&mut self.warnings)
    }

    /// Adds every counter of the session to a snapshot.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.driver.counters());
        snapshot.add(self.driver.endpoint.source().counters());
        snapshot.add(self.driver.endpoint.drops());
        snapshot.add(self.driver.endpoint.plan().counters());
        snapshot.add(self.driver.io.inner().counters());
        snapshot.add(self.driver.io.counters());
    }
}

/// Receives one transfer into a directory.
#[derive(Debug)]
pub struct FileReceiver {
    driver: Driver<Port, ObjectReceiver<FileStore>>,
    warnings: Vec<String>,
}

impl FileReceiver {
    /// Opens the session and the directory, which is made when it is not there.
    ///
    /// # Errors
    /// A directory that cannot be used, parameters that contradict each other, an interface that
    /// cannot be used, or what the system refused.
    pub fn open(session: &Session, directory: &Path, overwrite: bool) -> Result<Self, Error> {
        let store = FileStore::open(directory, overwrite)?;
        let (mut opened, receiver) = session.open_receiver(Mode::Arrival)?;
        let config = PlanReceiverConfig::new(session.name.clone(), random_u64()?);
        let plan = PlanReceiver::new(config, store, opened.io.now());
        let endpoint = ObjectReceiver::new(receiver, plan);
        let driver = Driver::new(opened.io, endpoint, opened.batch);
        Ok(Self {
            driver,
            warnings: opened.warnings,
        })
    }

    /// Does what is due and then waits for more, at most until `until`. False when all is over.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let turn = self.driver.turn(&mut ())?;
        let plan = self.driver.endpoint.plan();
        let is_told = self.driver.io.inner().links_unfinished() == 0;
        if plan.is_over() && plan.is_idle() && is_told {
            return Ok(false);
        }
        if turn.is_idle() {
            // The store's own thread has no way to end a wait.
            let soon = self.driver.now() + STORE_POLL;
            self.driver
                .wait(Some(until.map_or(soon, |until| until.min(soon))));
        }
        Ok(true)
    }

    /// What happened.
    pub fn pop_event(&mut self) -> Option<PlanReceiverEvent> {
        self.driver.endpoint.plan_mut().pop_event()
    }

    /// How far the transfer is.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        self.driver.endpoint.plan().progress()
    }

    /// Gives the transfer up; the sender is told why.
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        self.driver.endpoint.plan_mut().cancel(now, text);
    }

    /// The state machines, to look at.
    #[must_use]
    pub const fn endpoint(&self) -> &ObjectReceiver<FileStore> {
        &self.driver.endpoint
    }

    /// The session's clock.
    pub fn now(&mut self) -> Instant {
        self.driver.io.now()
    }

    /// Things that work, but not as asked: one sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let late = std::iter::from_fn(|| self.driver.io.inner_mut().take_warning());
        self.warnings.extend(late);
        std::mem::take(&mut self.warnings)
    }

    /// Adds every counter of the session to a snapshot.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.driver.counters());
        snapshot.add(self.driver.endpoint.receiver().counters());
        snapshot.add(self.driver.endpoint.drops());
        snapshot.add(self.driver.endpoint.plan().counters());
        snapshot.add(self.driver.io.inner().counters());
        snapshot.add(self.driver.io.counters());
    }
}

/// How often a receiver looks whether its store has finished something.
const STORE_POLL: Duration = Duration::from_millis(10);
