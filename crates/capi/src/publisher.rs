//! Messages out: a publisher with a thread of its own.

use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

use cabi::{Out, give, guard};
use towline::{PublisherThread, SendStatus, Snapshot};

use crate::{
    counters::{self, Visit},
    outcome::{Failure, Outcome, attempt, time},
    session::Session,
};

/// `towline_publisher`.
#[derive(Debug)]
pub(crate) struct Publisher(PublisherThread);

/// `towline_closed`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Closed {
    is_complete: u32,
    confirmed: u32,
    missing: u32,
    unconfirmed: u32,
    lost: u64,
}

const _: () = assert!(size_of::<Closed>() == 24 && std::mem::offset_of!(Closed, lost) == 16);

#[unsafe(no_mangle)]
extern "C" fn towline_publisher_open(
    session: Option<&Session>,
    receivers: u32,
    close_ms: i64,
    place: Out<'_, *mut Publisher>,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        let place = place.ok_or_else(|| Failure::null("the pointer for the publisher"))?;
        let builder = towline::Publisher::builder(session.builder()).expect_receivers(receivers);
        let publisher = builder.open()?;
        let close = time(close_ms).unwrap_or(CLOSE_MAX);
        let publisher = Publisher(PublisherThread::spawn(publisher, close)?);
        give(Some(place), Box::into_raw(Box::new(publisher)));
        Ok(Outcome::Ok)
    })
}

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

#[unsafe(no_mangle)]
extern "C" fn towline_publisher_counter(
    publisher: Option<&Publisher>,
    name: *const c_char,
    value: Out<'_, u64>,
) -> Outcome {
    counters::one(|| snapshot(publisher), name, value)
}

#[unsafe(no_mangle)]
extern "C" fn towline_publisher_counters(
    publisher: Option<&Publisher>,
    visit: Option<Visit>,
    closure: *mut c_void,
) -> Outcome {
    counters::all(|| snapshot(publisher), visit, closure)
}

#[unsafe(no_mangle)]
extern "C" fn towline_publisher_close(
    publisher: Option<Box<Publisher>>,
    place: Out<'_, Closed>,
) -> Outcome {
    attempt(|| {
        let publisher = publisher.ok_or_else(Failure::no_publisher)?;
        let closed = publisher.0.close()?;
        give(
            place,
            Closed {
                is_complete: closed.is_complete().into(),
                confirmed: closed.confirmed,
                missing: closed.missing,
                unconfirmed: u32::try_from(closed.unconfirmed.len()).unwrap_or(u32::MAX),
                lost: closed.lost,
            },
        );
        Ok(Outcome::Ok)
    })
}

#[unsafe(no_mangle)]
extern "C" fn towline_publisher_free(publisher: Option<Box<Publisher>>) {
    guard((), || drop(publisher));
}

/// How long closing may take when the program sets no limit.
const CLOSE_MAX: Duration = Duration::from_secs(86_400);
