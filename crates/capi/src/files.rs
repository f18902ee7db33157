//! Files: one transfer, sent or received, in one call that blocks until its end.

use std::{ffi::c_char, mem::MaybeUninit, path::PathBuf, time::Duration};

use cabi::give;
use towline::{
    Existing, Expectation, FileReceiver, FileSender, FileSet, FileSetBuilder, Instant,
    ObjectReceiverEvent, ReceiverState, Target, TransferReceiverEvent,
};

use crate::{
    outcome::{Failure, Outcome, attempt, text, time},
    session::Session,
};

/// What became of a transfer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Sent {
    /// 1: every expected receiver has every byte, on its disk and checked.
    is_proven: u32,
    /// Receivers that joined.
    receivers: u32,
    /// Receivers that were expected and never came.
    missing: u32,
    /// Files that could not be sent.
    unsent: u32,
    /// Of the files that were sent.
    bytes: u64,
}

const _: () = assert!(size_of::<Sent>() == 24 && std::mem::offset_of!(Sent, bytes) == 16);

/// When to give a transfer up, and when to stop telling the other end about it.
struct Deadline {
    at: Option<Instant>,
    /// The transfer was given up.
    is_over: bool,
}

/// What is to be done about a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    GiveUp,
    Leave,
}

impl Deadline {
    fn new(now: Instant, timeout: Option<Duration>) -> Self {
        Self {
            at: timeout.map(|timeout| now + timeout),
            is_over: false,
        }
    }

    fn due(&mut self, now: Instant) -> Due {
        if self.at.is_none_or(|at| now < at) {
            return Due::Nothing;
        }
        if self.is_over {
            return Due::Leave;
        }
        *self = Self {
            at: Some(now + FAREWELL_MAX),
            is_over: true,
        };
        Due::GiveUp
    }
}

/// Sends files and directories to this number of receivers, the first that join (0: all that
/// join), and waits for their proof, at most timeout_ms. TOWLINE_NOT_PROVEN: sent says how many
/// receivers are missing, and towline_error_text gives the reason. sent may be NULL.
#[unsafe(no_mangle)]
extern "C" fn towline_send_files(
    session: Option<&Session>,
    paths: *const *const c_char,
    count: usize,
    receivers: u32,
    timeout_ms: i64,
    sent: Option<&mut MaybeUninit<Sent>>,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        // SAFETY: the header says that `count` texts are there.
        let list = unsafe { cabi::slice(paths, count) };
        let list = list.ok_or_else(|| Failure::no_room("the array of paths", paths))?;
        let paths = list.iter().enumerate();
        let paths = paths.map(|(index, &path)| text(path, &format!("paths[{index}]")));
        let paths: Vec<&str> = paths.collect::<Result<_, _>>()?;
        let files = paths
            .into_iter()
            .fold(FileSet::builder(), FileSetBuilder::path);
        let expectation = Expectation::default().receivers(receivers);
        let mut sender = FileSender::open(&session.builder(), files.read()?, &expectation)?;
        let mut deadline = Deadline::new(sender.now(), time(timeout_ms));
        while sender.turn()? {
            while sender.pop_event().is_some() {}
            match deadline.due(sender.now()) {
                Due::Nothing => {}
                Due::GiveUp => sender.cancel("the sending program's time is over"),
                Due::Leave => break,
            }
            sender.wait(deadline.at);
        }
        let outcome = sender.outcome();
        let report = Sent {
            is_proven: outcome.is_proven().into(),
            receivers: outcome.receivers.len() as u32,
            missing: outcome.missing,
            unsent: outcome.unsent.len() as u32,
            bytes: outcome.content_bytes,
        };
        give(sent, report);
        if outcome.is_proven() {
            return Ok(Outcome::Ok);
        }
        let mut expected = outcome.receivers.iter().filter(|it| it.is_expected);
        let failed = expected.find_map(|it| match &it.state {
            ReceiverState::Failed { text, .. } => Some(format!("receiver {}: {text}", it.name)),
            _ => None,
        });
        let text = outcome.failure.map(|(_, text)| text).or(failed);
        let text = text.unwrap_or_else(|| match outcome.unreached.first() {
            Some((address, text)) => format!("no receiver joined at {address}: {text}"),
            None if report.receivers == 0 => "no receiver joined: start receivers first".to_owned(),
            None if report.missing == 0 => "not every receiver proved delivery".to_owned(),
            None => format!(
                "{} of {receivers} expected receivers never joined",
                report.missing
            ),
        });
        Err(Failure::new(Outcome::NotProven, text))
    })
}

/// Receives one transfer into a directory, which must exist, and waits for its end at most
/// timeout_ms. Where other hosts can reach the interface, the setting from or key-file says whom to
/// take files from.
#[unsafe(no_mangle)]
extern "C" fn towline_receive_files(
    session: Option<&Session>,
    directory: *const c_char,
    timeout_ms: i64,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        let directory = PathBuf::from(text(directory, "the directory")?);
        let target = Target::Directory {
            path: directory,
            existing: Existing::Refuse,
        };
        let builder = FileReceiver::builder(session.builder(), target);
        let mut receiver = builder.allow(session.allowed().iter().copied()).open()?;
        let mut deadline = Deadline::new(receiver.now(), time(timeout_ms));
        let mut seen = Seen::default();
        while receiver.turn()? {
            seen.look(&mut receiver);
            match deadline.due(receiver.now()) {
                Due::Nothing => {}
                Due::GiveUp if seen.has_begun => {
                    receiver.cancel("the receiving program's time is over");
                }
                Due::GiveUp | Due::Leave => break,
            }
            receiver.wait(deadline.at);
        }
        seen.look(&mut receiver);
        match (seen.is_delivered, deadline.is_over) {
            (true, _) => Ok(Outcome::Ok),
            (false, true) => Err(Failure::new(Outcome::TimedOut, seen.late())),
            (false, false) => {
                let text = seen.failure;
                let text = text.unwrap_or_else(|| "the transfer was broken off".to_owned());
                Err(Failure::new(Outcome::NotProven, text))
            }
        }
    })
}

/// What a receiver's events say.
#[derive(Clone, Debug, Default)]
struct Seen {
    has_begun: bool,
    is_delivered: bool,
    failure: Option<String>,
    /// Why nothing was taken from the sender that was refused last.
    refusal: Option<String>,
}

impl Seen {
    fn look(&mut self, receiver: &mut FileReceiver) {
        while let Some(event) = receiver.pop_event() {
            match event {
                ObjectReceiverEvent::Accepted { .. } => self.has_begun = true,
                ObjectReceiverEvent::Refused { sender, text } => {
                    self.refusal = Some(format!("{}: {text}", sender.address));
                }
                ObjectReceiverEvent::Transfer { event, .. } => match event {
                    TransferReceiverEvent::Delivered { .. } => self.is_delivered = true,
                    TransferReceiverEvent::Failed { text, .. } => self.failure = Some(text),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Says what did not happen in time.
    fn late(self) -> String {
        match self.refusal {
            _ if self.has_begun => "the transfer did not end in time".to_owned(),
            Some(refusal) => format!("no transfer began in time; nothing was taken from {refusal}"),
            None => "no transfer began in time".to_owned(),
        }
    }
}

/// How long this end goes on after it has given a transfer up, so that the other end learns of
/// that.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
