//! Files and trees: the sender that waits for every receiver's proof, and the receiver that gives
//! it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base::{Instant, Io as _};
use delivery::{
    PlanOutcome, PlanReceiverConfig, PlanReceiverEvent, PlanSender, PlanSenderConfig,
    PlanSenderEvent, ReceiverProgress,
};
use driver::{ObjectReceiver, ObjectReceiverEvent, ObjectSender, TakeFirst};
use net::{FileContent, FileStore, Tree};
use pgm::Mode;
use wire::{object::ErrorCode, pgm::Profile};

use crate::{
    Error, Snapshot, Transfer,
    session::{Count, End, SessionBuilder, face, random_u64, report_sqns},
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
    end: End<ObjectSender<FileContent>>,
    /// The last turn found nothing to do.
    is_idle: bool,
}

impl FileSender {
    /// Walks `paths` and opens the session. Nothing is sent before [`FileSender::turn`].
    ///
    /// # Errors
    /// A path that cannot be read or delivered, parameters that contradict each other, an interface
    /// that cannot be used, or what the system refused.
    pub fn open(
        session: &SessionBuilder,
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
        let mut end = opened.end(endpoint);
        end.warnings.extend(tree.notes);
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

    /// Waits until something is due, at most until `until`. Returns at once when there is work.
    pub fn wait(&mut self, until: Option<Instant>) {
        if self.is_idle {
            self.end.wait(until);
        }
    }

    /// When the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.end.next_timeout()
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        let at_once = (!self.is_idle).then(|| self.end.driver.now());
        self.end.arm(at_once);
    }

    /// What happened to a receiver or the transfer.
    pub fn pop_event(&mut self) -> Option<PlanSenderEvent> {
        self.end.driver.endpoint.plan_mut().pop_event()
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

    /// Where every receiver stands; final after [`PlanSenderEvent::Finished`].
    #[must_use]
    pub fn outcome(&self) -> PlanOutcome {
        self.end.driver.endpoint.plan().outcome()
    }
}

face!(FileSender, ObjectSender<FileContent>);

impl Transfer for FileSender {
    type Event = PlanSenderEvent;
    type State = PlanOutcome;

    fn turn(&mut self) -> Result<bool, Error> {
        Self::turn(self)
    }

    fn wait(&mut self) {
        Self::wait(self, None);
    }

    fn pop_event(&mut self) -> Option<Self::Event> {
        Self::pop_event(self)
    }

    fn state(&self) -> Self::State {
        self.outcome()
    }

    fn cancel(&mut self, text: &str) {
        Self::cancel(self, text);
    }

    fn waker(&self) -> Result<net::Waker, Error> {
        Self::waker(self)
    }
}

impl Count for ObjectSender<FileContent> {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.source().counters());
        snapshot.add(self.drops());
        snapshot.add(self.plan().counters());
    }
}

/// Receives one transfer into a directory.
#[derive(Debug)]
pub struct FileReceiver {
    end: End<ObjectReceiver<TakeFirst<FileStore>>>,
    /// The last turn found nothing to do.
    is_idle: bool,
}

impl FileReceiver {
    /// Opens the session and the directory, which is made when it is not there.
    ///
    /// # Errors
    /// A directory that cannot be used, parameters that contradict each other, an interface that
    /// cannot be used, or what the system refused.
    pub fn open(
        session: &SessionBuilder,
        directory: &Path,
        overwrite: bool,
    ) -> Result<Self, Error> {
        let store = FileStore::open(directory, overwrite)?;
        let (opened, receiver) = session.open_receiver(Mode::Arrival)?;
        let config = PlanReceiverConfig::new(session.name.clone(), random_u64()?);
        let endpoint = ObjectReceiver::single(receiver, config, store);
        let end = opened.end(endpoint);
        Ok(Self {
            end,
            is_idle: false,
        })
    }

    /// Does what is due, without waiting. False when all is over and the sender was told.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.is_idle = self.end.turn(&mut ())?.is_idle();
        let endpoint = &self.end.driver.endpoint;
        Ok(!(endpoint.is_over() && endpoint.is_idle() && self.end.is_told()))
    }

    /// Waits until something is due, at most until `until`. Returns at once when there is work.
    pub fn wait(&mut self, until: Option<Instant>) {
        if self.is_idle {
            let soon = self.store_due();
            self.end.wait(base::earliest(until, Some(soon)));
        }
    }

    /// When the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.end.next_timeout(), Some(self.store_due()))
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        let soon = match self.is_idle {
            true => self.store_due(),
            false => self.end.driver.now(),
        };
        self.end.arm(Some(soon));
    }

    /// The store's own thread has no way to end a wait.
    fn store_due(&self) -> Instant {
        self.end.driver.now() + STORE_POLL
    }

    /// What happened.
    pub fn pop_event(&mut self) -> Option<PlanReceiverEvent> {
        let mut events = std::iter::from_fn(|| self.end.driver.endpoint.pop_event());
        events.find_map(|event| match event {
            ObjectReceiverEvent::Plan { event, .. } => Some(event),
            _ => None,
        })
    }

    /// How far the transfer is.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        self.end.driver.endpoint.progress()
    }

    /// Gives the transfer up; the sender is told why.
    pub fn cancel(&mut self, text: &str) {
        let now = self.now();
        self.end.driver.endpoint.cancel(now, text);
    }
}

face!(FileReceiver, ObjectReceiver<TakeFirst<FileStore>>);

impl Transfer for FileReceiver {
    type Event = PlanReceiverEvent;
    type State = ReceiverProgress;

    fn turn(&mut self) -> Result<bool, Error> {
        Self::turn(self)
    }

    fn wait(&mut self) {
        Self::wait(self, None);
    }

    fn pop_event(&mut self) -> Option<Self::Event> {
        Self::pop_event(self)
    }

    fn state(&self) -> Self::State {
        self.progress()
    }

    fn cancel(&mut self, text: &str) {
        Self::cancel(self, text);
    }

    fn waker(&self) -> Result<net::Waker, Error> {
        Self::waker(self)
    }
}

impl Count for ObjectReceiver<TakeFirst<FileStore>> {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.receiver().counters());
        snapshot.add(self.drops());
        snapshot.add(&self.plan_counters());
        snapshot.add(self.counters());
    }
}

/// How often a receiver looks whether its store has finished something.
const STORE_POLL: Duration = Duration::from_millis(10);
