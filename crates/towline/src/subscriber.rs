//! The receiving face of the library: messages of everyone who sends to a group.

use std::time::Duration;

use base::{Instant, Io as _};
use delivery::ReporterConfig;
use driver::{MessageSink, Turn};
use pgm::{Mode, Status};

use crate::{
    Batch, Error, Received, Snapshot,
    session::{Count, End, SessionBuilder, default_name, face, random_u64},
    trace::Traced,
};

/// Receives messages, in order from each sender.
///
/// **Cost**: [`Subscriber::recv`] copies a message once; [`Subscriber::turn`] with a sink of the
/// caller's own copies none that arrive in order.
#[derive(Debug)]
pub struct Subscriber {
    end: End<driver::Subscriber>,
    batch: Batch,
}

impl Subscriber {
    /// Opens a receiving session.
    ///
    /// # Errors
    /// Parameters that contradict each other, an interface that cannot be used, or what the system
    /// refused.
    pub fn open(session: &SessionBuilder) -> Result<Self, Error> {
        let (mut opened, receiving) = session.open_receiving()?;
        let reporter = if session.reports {
            let own = || default_name(&std::process::id().to_string());
            let name = session.name.clone().unwrap_or_else(own);
            let mut config = ReporterConfig::new(name, random_u64()?);
            config.key.clone_from(&session.key);
            Some(config)
        } else {
            None
        };
        let now = opened.io.now();
        let endpoint = driver::Subscriber::open(&receiving, Mode::Sequence, reporter, now);
        Ok(Self {
            end: opened.end(endpoint),
            batch: Batch::default(),
        })
    }

    /// The next message or event if there is one, without waiting; else why there is none.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn try_recv(&mut self) -> Result<Result<Received<'_>, Status>, Error> {
        if self.batch.is_empty() {
            self.batch.clear();
            turn(&mut self.end, &mut self.batch)?;
        }
        if self.batch.is_empty() {
            return Ok(Err(self.status()));
        }
        Ok(self.batch.pop().ok_or(Status::NoSender))
    }

    /// The next message or event, waiting at most `timeout`; `None` when that passed.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn recv(&mut self, timeout: Option<Duration>) -> Result<Option<Received<'_>>, Error> {
        let mut until = None;
        while self.batch.is_empty() {
            self.batch.clear();
            let turn = turn(&mut self.end, &mut self.batch)?;
            if !self.batch.is_empty() {
                break;
            }
            let now = self.end.driver.now();
            let end = *until.get_or_insert(timeout.map(|timeout| now + timeout));
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            if turn.is_idle() {
                self.end.wait(end);
            }
        }
        Ok(self.batch.pop())
    }

    /// Does what is due and hands everything to `sink`, without waiting.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn turn<S: MessageSink + ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error> {
        turn(&mut self.end, sink)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.end.wait(until);
    }

    /// Why nothing can be received just now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.end.driver.endpoint.receiver().status()
    }

    /// Leaves every sender in good order: they are told, and no longer wait for this receiver.
    ///
    /// # Errors
    /// Sockets beyond use.
    pub fn close(&mut self) -> Result<(), Error> {
        let now = self.now();
        let until = now + driver::Subscriber::LEAVE_TIME_MAX;
        self.end.driver.endpoint.close(now, until);
        let mut ignored = Batch::default();
        loop {
            ignored.clear();
            turn(&mut self.end, &mut ignored)?;
            let now = self.end.driver.now();
            let has_left = self.end.driver.endpoint.left().is_some() && self.end.is_told();
            if has_left || now >= until {
                return Ok(());
            }
            self.end.wait(Some((now + LEAVE_POLL).min(until)));
        }
    }

    /// When the next turn is due even if nothing arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.end.next_timeout()
    }

    /// Prepares the descriptor for an owner that polls it: it then becomes readable for timers too.
    pub fn arm(&mut self) {
        self.end.arm(None);
    }
}

/// One turn; what the kernel drops is reported, as the sender is to follow it.
fn turn<S: MessageSink + ?Sized>(
    end: &mut End<driver::Subscriber>,
    sink: &mut S,
) -> Result<Turn, Error> {
    let drops = end.driver.io.inner().counters().kernel_drops;
    end.driver.endpoint.set_host_drops(drops);
    end.turn(&mut Traced(sink))
}

face!(Subscriber);

impl Count for driver::Subscriber {
    fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.receiver().counters());
        snapshot.add(self.drops());
        if let Some(reporter) = self.reporter() {
            snapshot.add(reporter.counters());
        }
    }
}

/// Between two looks at whether the sockets have taken the last words.
const LEAVE_POLL: Duration = Duration::from_millis(5);
