//! Messages on their way out: a publisher under a lock. The program's send calls write into the
//! publisher. A thread calls [`Publisher::turn`] when NAKs arrive or a timer is due, so that
//! repairs wait for no call of the program.
//!
//! The descriptor `room` is writable unless a send call found no room. OpenPGM raises the
//! descriptor `repair` when the program must call for repairs to go on. Here it is never raised.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cabi::guard;
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};
use towline::{Error, Publisher, SendStatus, Waker};

use crate::{
    counters::{Board, Showing},
    event::Event,
    log,
    socket::spawn,
};

/// A socket's publisher, and the thread that calls its `turn`.
#[derive(Debug)]
pub(crate) struct Outgoing {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    packet_limit: usize,
    /// How long a program waits at least when the rate allows no message.
    rate_wait: Duration,
}

#[derive(Debug)]
struct Shared {
    publisher: Mutex<Publisher>,
    events: Arc<Events>,
    /// When the rate allows the next message.
    retry_at: Mutex<Option<Instant>>,
    is_ended: AtomicBool,
    /// The counters were shown at the thread's last turn. The thread may sleep then, and does not
    /// know of messages that leave meanwhile, so the next send call wakes it.
    is_shown: AtomicBool,
}

/// The descriptors of a sending socket, which are there before it is connected.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) room: Event,
    pub(crate) repair: Event,
    is_full: AtomicBool,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            room: Event::new()?,
            repair: Event::new()?,
            is_full: AtomicBool::new(false),
        })
    }

    /// Notes whether the window takes another message. Call it while the publisher is locked. Two
    /// callers at a time could leave a descriptor that does not agree with `is_full`. A program
    /// could then wait for this descriptor for ever.
    fn set_full(&self, _publisher: &MutexGuard<'_, Publisher>, is_full: bool) {
        if self.is_full.swap(is_full, Ordering::AcqRel) != is_full {
            if is_full {
                self.room.fill();
            } else {
                self.room.clear();
            }
        }
    }
}

impl Outgoing {
    pub(crate) fn start(
        publisher: Publisher,
        events: Arc<Events>,
        board: Board,
        rate_wait: Duration,
    ) -> Result<Self, Error> {
        let waker = publisher.waker()?;
        let packet_limit = publisher.packet_limit();
        let descriptor = publisher.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| {
            net::SystemError::system("copy", "the descriptor of a session", &error)
        })?;
        let shared = Arc::new(Shared {
            publisher: Mutex::new(publisher),
            events,
            retry_at: Mutex::new(None),
            is_ended: AtomicBool::new(false),
            is_shown: AtomicBool::new(false),
        });
        remember(&shared);
        let of_thread = Arc::clone(&shared);
        let thread = spawn("libpgm send", move || of_thread.serve(&descriptor, board))?;
        Ok(Self {
            shared,
            waker,
            thread: Some(thread),
            packet_limit,
            rate_wait,
        })
    }

    /// Offers a message that lies in `parts`, of `len` bytes in all.
    pub(crate) fn offer(&self, parts: &[&[u8]], len: usize) -> Result<SendStatus, Error> {
        if self.shared.is_ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let mut publisher = self.shared.publisher();
        let status = match parts {
            _ if len <= self.packet_limit => publisher.try_send_with(len, |room| {
                let mut rest = room;
                for part in parts {
                    let (place, behind) = rest.split_at_mut(part.len());
                    place.copy_from_slice(part);
                    rest = behind;
                }
            }),
            [whole] => publisher.try_send(whole),
            parts => publisher.try_send(&parts.concat()),
        }?;
        publisher.arm();
        let wait = match status {
            SendStatus::RateLimited { until } => {
                Some(until.since(publisher.now()).max(self.rate_wait))
            }
            _ => None,
        };
        let is_full = matches!(status, SendStatus::WouldBlock);
        self.shared.events.set_full(&publisher, is_full);
        drop(publisher);
        if self.shared.is_shown.load(Ordering::Relaxed)
            && self.shared.is_shown.swap(false, Ordering::Relaxed)
        {
            self.waker.wake();
        }
        if wait.is_some() {
            let until = wait.map(|wait| Instant::now() + wait);
            *self.shared.retry_at() = until;
        }
        Ok(status)
    }

    /// Returns how long it is until the rate allows a message.
    pub(crate) fn rate_remains(&self) -> Duration {
        let at = *self.shared.retry_at();
        at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }

    /// Waits a moment for room or for the rate.
    pub(crate) fn wait(&self) {
        thread::sleep(self.rate_remains().clamp(WAIT_MIN, WAIT_MAX));
    }
}

impl Drop for Outgoing {
    /// Sends what was taken, announces the end, and answers NAKs meanwhile.
    fn drop(&mut self) {
        self.shared.publisher().begin_close(CLOSE_MAX);
        self.shared.is_ended.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        self.publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn retry_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.retry_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, descriptor: &OwnedFd, mut board: Board) {
        // However the thread ends, also by a panic, a program learns it from its next call.
        let _ending = Ending(self);
        loop {
            let mut publisher = self.publisher();
            let turn = match publisher.turn() {
                Ok(turn) => turn,
                Err(error) => {
                    drop(publisher);
                    return log::warn(&format!(
                        "the session cannot go on, close its socket: {error}"
                    ));
                }
            };
            if publisher.is_closed() {
                return;
            }
            publisher.arm();
            self.events.set_full(&publisher, false);
            let showing = board.show(|snapshot| publisher.snapshot(snapshot));
            let is_shown = showing == Showing::Shown;
            self.is_shown.store(is_shown, Ordering::Relaxed);
            drop(publisher);
            if turn.is_idle() {
                // The next turn sees whatever ended the wait.
                let early = showing.early();
                let time = early.and_then(|time| Timespec::try_from(time).ok());
                let _ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], time.as_ref());
            }
        }
    }
}

/// A guard that is dropped when the thread ends. It ends a program's wait for room; the program's
/// next call then fails.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_ended.store(true, Ordering::Release);
        self.0.events.set_full(&self.0.publisher(), false);
    }
}

/// Remembers a publisher for the end of a program that does not close its sockets.
fn remember(shared: &Arc<Shared>) {
    static IS_ASKED: Once = Once::new();
    IS_ASKED.call_once(|| {
        // SAFETY: the handler may run at any time, and unwinds nowhere.
        let _no_room_for_another = unsafe { libc::atexit(send_rest) };
    });
    let mut all = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| one.strong_count() > 0);
    all.push(Arc::downgrade(shared));
}

/// Sends the last messages of a program that ends now: those that still wait to leave.
extern "C" fn send_rest() {
    guard((), || {
        let all = std::mem::take(&mut *LIVE.lock().unwrap_or_else(PoisonError::into_inner));
        for shared in all.iter().filter_map(Weak::upgrade) {
            for _ in 0..REST_TRIES_MAX {
                // A thread may have locked the publisher, and goes on meanwhile.
                if let Ok(mut publisher) = shared.publisher.try_lock() {
                    publisher.send_ready();
                    if publisher.is_drained() {
                        break;
                    }
                }
                thread::sleep(WAIT_MIN);
            }
            // If the publisher were dropped, receivers would be told that the session was broken
            // off.
            std::mem::forget(shared);
        }
    });
}

/// The publishers of sockets that are open.
static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// How often the end of a program tries to send the rest, 50 us apart: 0.1 s in all.
const REST_TRIES_MAX: u32 = 2000;
/// How long a send call that may wait sleeps at a time.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_millis(10);
/// How long the end may take.
const CLOSE_MAX: Duration = Duration::from_secs(5);
