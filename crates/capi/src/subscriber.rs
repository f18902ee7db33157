//! Messages in: a subscriber with a thread of its own.

use std::{
    ffi::{c_char, c_void},
    mem::MaybeUninit,
    ptr::null,
};

use cabi::give;
use towline::{Received, SessionEvent, Snapshot, SubscriberThread};

use crate::{
    counters::{self, Visit},
    outcome::{Failure, Outcome, attempt, time},
    session::Session,
};

/// A receiver of messages, with a thread of its own.
#[derive(Debug)]
pub(crate) struct Subscriber(SubscriberThread);

/// What a receiver of messages was given.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) enum Kind {
    /// The message is in data and len.
    Message = 1,
    /// A sender was heard for the first time.
    Found = 2,
    /// This many packets (lost) cannot be had any more.
    Lost = 3,
    /// The sender closed its session; all was received or told as lost.
    Ended = 4,
    /// Nothing was heard of the sender for long.
    Expired = 5,
    /// The sender broke its session off, or gave up on this receiver.
    BrokenOff = 6,
    /// The sender does not count this receiver, which still receives.
    Refused = 7,
}

/// A message or an event, in its place between the messages of its session.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Incoming {
    kind: Kind,
    /// The number of the sender's session.
    session: u32,
    /// Of a message or a loss, in the session.
    position: u64,
    /// Stays until the next call with the same subscriber.
    data: *const c_void,
    len: usize,
    lost: u64,
}

const _: () = assert!(size_of::<Incoming>() == 40 && std::mem::offset_of!(Incoming, data) == 16);

impl Incoming {
    fn new(received: &Received<'_>) -> Self {
        let event = |kind, session| Self {
            kind,
            session,
            position: 0,
            data: null(),
            len: 0,
            lost: 0,
        };
        match *received {
            Received::Message {
                session,
                position,
                data,
            } => Self {
                position,
                data: data.as_ptr().cast(),
                len: data.len(),
                ..event(Kind::Message, session)
            },
            Received::Event(SessionEvent::Found { session, .. }) => event(Kind::Found, session),
            Received::Event(SessionEvent::Lost {
                session,
                first,
                count,
            }) => Self {
                position: first,
                lost: count,
                ..event(Kind::Lost, session)
            },
            Received::Event(SessionEvent::Ended { session }) => event(Kind::Ended, session),
            Received::Event(SessionEvent::Expired { session }) => event(Kind::Expired, session),
            Received::Event(
                SessionEvent::Reset { session } | SessionEvent::Dropped { session, .. },
            ) => event(Kind::BrokenOff, session),
            Received::Event(
                SessionEvent::NameTaken { session } | SessionEvent::Refused { session, .. },
            ) => event(Kind::Refused, session),
            Received::Event(_) => event(Kind::Refused, 0),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_open(
    session: Option<&Session>,
    subscriber: Option<&mut MaybeUninit<*mut Subscriber>>,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        let place = subscriber.ok_or_else(|| Failure::null("the pointer for the subscriber"))?;
        let mut subscriber = towline::Subscriber::open(&session.builder())?;
        subscriber.take_only(session.allowed().iter().copied());
        let subscriber = Subscriber(SubscriberThread::spawn(subscriber)?);
        give(Some(place), Box::into_raw(Box::new(subscriber)));
        Ok(Outcome::Ok)
    })
}

/// Waits for the next message or event at most timeout_ms. TOWLINE_AGAIN: none came.
#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_recv(
    subscriber: Option<&mut Subscriber>,
    timeout_ms: i64,
    received: Option<&mut MaybeUninit<Incoming>>,
) -> Outcome {
    attempt(|| {
        let subscriber = subscriber.ok_or_else(Failure::no_subscriber)?;
        let place = received.ok_or_else(|| Failure::null("the pointer for the message"))?;
        let received = subscriber.0.recv(time(timeout_ms))?;
        let Some(received) = received else {
            return Ok(Outcome::Again);
        };
        give(Some(place), Incoming::new(&received));
        Ok(Outcome::Ok)
    })
}

/// Writes the address of a session's sender as text; 46 bytes are enough.
#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_sender(
    subscriber: Option<&Subscriber>,
    session: u32,
    buffer: *mut c_char,
    len: usize,
) -> Outcome {
    attempt(|| {
        let subscriber = subscriber.ok_or_else(Failure::no_subscriber)?;
        // SAFETY: the header says that there is room for `len` bytes.
        let room = unsafe { cabi::room(buffer, len) };
        let room = room.ok_or_else(|| Failure::no_room("the buffer for the address", buffer))?;
        let gone = || {
            let text = format!(
                "no session has the number {session} at present; ask for the sender while the \
                 session lasts"
            );
            Failure::new(Outcome::NotFound, text)
        };
        let info = subscriber.0.session(session).ok_or_else(gone)?;
        cabi::print(&info.source.to_string(), room);
        Ok(Outcome::Ok)
    })
}

fn snapshot(subscriber: Option<&Subscriber>) -> Result<Snapshot, Failure> {
    let subscriber = subscriber.ok_or_else(Failure::no_subscriber)?;
    let mut snapshot = Snapshot::default();
    subscriber.0.snapshot(&mut snapshot);
    Ok(snapshot)
}

/// Gives one counter, as it was at most 50 ms ago.
#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_counter(
    subscriber: Option<&Subscriber>,
    name: *const c_char,
    value: Option<&mut MaybeUninit<u64>>,
) -> Outcome {
    counters::one(|| snapshot(subscriber), name, value)
}

/// Gives all counters, as they were at most 50 ms ago.
#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_counters(
    subscriber: Option<&Subscriber>,
    visit: Visit,
    closure: *mut c_void,
) -> Outcome {
    counters::all(|| snapshot(subscriber), visit, closure)
}

/// Leaves all sessions, tells their senders, and frees the subscriber.
#[unsafe(no_mangle)]
extern "C" fn towline_subscriber_close(subscriber: Option<Box<Subscriber>>) -> Outcome {
    attempt(|| {
        let subscriber = subscriber.ok_or_else(Failure::no_subscriber)?;
        subscriber.0.close()?;
        Ok(Outcome::Ok)
    })
}
