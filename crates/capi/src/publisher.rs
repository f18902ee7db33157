//! Messages out: a publisher with a thread of its own.

use std::{
    ffi::{c_char, c_void},
    mem::MaybeUninit,
    time::Duration,
};

use cabi::{give, guard};
use towline::{PublisherThread, SendStatus, Snapshot};

use crate::{
    counters::{self, Visit},
    outcome::{Failure, Outcome, attempt, time},
    session::Session,
};

/// A sender of messages, with a thread of its own.
#[derive(Debug)]
pub(crate) struct Publisher(PublisherThread);

/// How a publisher's session ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Closed {
    /// 1: every expected and every reporting receiver has everything.
    is_complete: u32,
    /// Receivers that have everything.
    confirmed: u32,
    /// Receivers that were expected and never came.
    missing: u32,
    /// Receivers that lack something.
    unconfirmed: u32,
    /// Packets that receivers lost for good.
    lost: u64,
}

const _: () = assert!(size_of::<Closed>() == 24 && std::mem::offset_of!(Closed, lost) == 16);

/// Opens a publisher. It sends nothing before this number of receivers has joined. Closing takes
/// at most close_ms.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_open(
    session: Option<&Session>,
    receivers: u32,
    close_ms: i64,
    publisher: Option<&mut MaybeUninit<*mut Publisher>>,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        let place = publisher.ok_or_else(|| Failure::null("the pointer for the publisher"))?;
        let builder = towline::Publisher::builder(session.builder()).expect_receivers(receivers);
        let publisher = builder.open()?;
        let close = time(close_ms).unwrap_or(CLOSE_MAX);
        let publisher = Publisher(PublisherThread::spawn(publisher, close)?);
        give(Some(place), Box::into_raw(Box::new(publisher)));
        Ok(Outcome::Ok)
    })
}

/// Takes a copy of a message, and waits for room at most timeout_ms. TOWLINE_AGAIN: the message
/// was not taken.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_send(
    publisher: Option<&mut Publisher>,
    message: *const c_void,
    len: usize,
    timeout_ms: i64,
) -> Outcome {
    attempt(|| {
        let publisher = publisher.ok_or_else(Failure::no_publisher)?;
        // SAFETY: the header says that `len` bytes are there.
        let bytes = unsafe { cabi::bytes(message, len) };
        let bytes = bytes.or((len == 0).then_some(&[]));
        let message = bytes.ok_or_else(|| Failure::no_room("the message", message))?;
        let status = match time(timeout_ms) {
            None => publisher.0.send(message).map(|()| SendStatus::Taken),
            Some(Duration::ZERO) => publisher.0.try_send(message),
            Some(timeout) => publisher.0.send_timeout(message, timeout),
        }?;
        match status {
            SendStatus::Taken => Ok(Outcome::Ok),
            _ => Ok(Outcome::Again),
        }
    })
}

/// Waits until every message has left.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_flush(publisher: Option<&mut Publisher>) -> Outcome {
    attempt(|| {
        let publisher = publisher.ok_or_else(Failure::no_publisher)?;
        publisher.0.flush()?;
        Ok(Outcome::Ok)
    })
}

fn snapshot(publisher: Option<&Publisher>) -> Result<Snapshot, Failure> {
    let publisher = publisher.ok_or_else(Failure::no_publisher)?;
    let mut snapshot = Snapshot::default();
    publisher.0.snapshot(&mut snapshot);
    Ok(snapshot)
}

/// Gives one counter, as it was at most 50 ms ago.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_counter(
    publisher: Option<&Publisher>,
    name: *const c_char,
    value: Option<&mut MaybeUninit<u64>>,
) -> Outcome {
    counters::one(|| snapshot(publisher), name, value)
}

/// Gives all counters, as they were at most 50 ms ago.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_counters(
    publisher: Option<&Publisher>,
    visit: Visit,
    closure: *mut c_void,
) -> Outcome {
    counters::all(|| snapshot(publisher), visit, closure)
}

/// Ends the session when the receivers have everything, or close_ms is over, and frees the
/// publisher. closed may be NULL.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_close(
    publisher: Option<Box<Publisher>>,
    closed: Option<&mut MaybeUninit<Closed>>,
) -> Outcome {
    attempt(|| {
        let publisher = publisher.ok_or_else(Failure::no_publisher)?;
        let end = publisher.0.close()?;
        give(
            closed,
            Closed {
                is_complete: end.is_complete().into(),
                confirmed: end.confirmed,
                missing: end.missing,
                unconfirmed: u32::try_from(end.unconfirmed.len()).unwrap_or(u32::MAX),
                lost: end.lost,
            },
        );
        Ok(Outcome::Ok)
    })
}

/// Breaks the session off, tells the receivers, and frees the publisher.
#[unsafe(no_mangle)]
extern "C" fn towline_publisher_free(publisher: Option<Box<Publisher>>) {
    guard((), || drop(publisher));
}

/// How long closing may take when the program sets no limit.
const CLOSE_MAX: Duration = Duration::from_secs(86_400);
