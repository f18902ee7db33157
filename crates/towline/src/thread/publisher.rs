//! A publisher on a thread of its own.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread::JoinHandle,
    time::Duration,
};

use base::Instant;
use delivery::AudienceEvent;

use super::{Posted, finish, reason, spawn};
use crate::{Closed, Error, Publisher, ReceiverStatus, SendStatus, Snapshot};

/// A publisher on its own thread.
pub struct PublisherThread {
    queue: Arc<Queue>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<Closed, Error>>>,
    /// The longest message, and the parameter that says so.
    limit: (usize, &'static str),
}

/// Where the application's messages gather until the thread takes all of them at once.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// The thread has taken what was there, has sent it, or has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Outgoing,
    /// The application sends no more.
    end: Option<End>,
    /// The thread has ended.
    is_gone: bool,
    /// How often the application asked for everything to be sent, and how many of these are done.
    flushes_asked: u64,
    flushes_done: u64,
    events: VecDeque<AudienceEvent>,
    /// How the session stood a moment ago.
    snapshot: Snapshot,
    receivers: Vec<ReceiverStatus>,
    /// Who waits for any of this to change.
    task: Option<Waker>,
}

/// How the application ends a session.
#[derive(Clone, Copy, Debug)]
enum End {
    /// In good order.
    Close,
    /// What was handed over is delivered, then receivers are told that there was more.
    BreakOff,
    /// At once: nobody waits for it.
    Drop,
}

/// What came of handing over a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushed {
    /// It is the only one there: the thread may be asleep.
    First,
    /// It stands behind others.
    Behind,
    /// There is no room for it.
    Full,
    /// There is no thread any more.
    Gone,
}

/// Messages on their way to the publisher's thread.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    next: usize,
}

impl Outgoing {
    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    fn peek(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.next)?;
        let start = if self.next == 0 {
            0
        } else {
            self.ends[self.next - 1]
        };
        Some(&self.bytes[start..end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.next = 0;
    }

    const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Empty messages take room too.
    const fn is_full(&self) -> bool {
        self.bytes.len() >= OUTGOING_BYTES_MAX || self.ends.len() >= OUTGOING_MESSAGES_MAX
    }
}

impl QueueState {
    fn push(&mut self, message: &[u8]) -> Pushed {
        if self.is_gone {
            return Pushed::Gone;
        }
        if self.waiting.is_full() {
            return Pushed::Full;
        }
        let was_empty = self.waiting.is_empty();
        self.waiting.push(message);
        if was_empty {
            Pushed::First
        } else {
            Pushed::Behind
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, waiting while there is no room.
    fn push(&self, message: &[u8]) -> Pushed {
        let is_full = |state: &mut QueueState| state.waiting.is_full() && !state.is_gone;
        let state = self.changed.wait_while(self.lock(), is_full);
        state.unwrap_or_else(PoisonError::into_inner).push(message)
    }

    /// Adds a message if there is room.
    fn try_push(&self, message: &[u8]) -> Pushed {
        self.lock().push(message)
    }

    /// Tells whoever waits that something has changed.
    fn tell(&self, mut state: MutexGuard<'_, QueueState>) {
        let task = state.task.take();
        drop(state);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// The flush that is due once nothing is on its way any more.
    fn flush_asked(&self) -> Option<u64> {
        let state = self.lock();
        let is_asked = state.flushes_asked > state.flushes_done && state.waiting.is_empty();
        is_asked.then_some(state.flushes_asked)
    }

    fn flushed(&self, asked: u64) {
        let mut state = self.lock();
        state.flushes_done = asked;
        self.tell(state);
    }

    /// Hands the application what has happened to receivers.
    fn post_events(&self, publisher: &mut Publisher) {
        let mut state = self.lock();
        let before = state.events.len();
        while state.events.len() < EVENTS_MAX
            && let Some(event) = publisher.pop_event()
        {
            state.events.push_back(event);
        }
        if state.events.len() > before {
            self.tell(state);
        }
    }

    /// Shows how the session stands.
    fn post(&self, publisher: &Publisher) {
        let mut state = self.lock();
        state.snapshot.clear();
        publisher.snapshot(&mut state.snapshot);
        state.receivers = publisher.receivers().collect();
    }

    /// Exchanges `emptied` for what has gathered.
    fn take(&self, emptied: &mut Outgoing) {
        let mut state = self.lock();
        std::mem::swap(&mut state.waiting, emptied);
        if !emptied.is_empty() {
            self.tell(state);
        }
    }

    /// How the application has ended the session.
    fn end(&self) -> Option<End> {
        self.lock().end
    }

    fn set_end(&self, end: End) {
        self.lock().end.get_or_insert(end);
    }
}

/// Tells the application that the thread has ended, however it did.
struct Farewell(Arc<Queue>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_gone = true;
        self.0.tell(state);
    }
}

impl fmt::Debug for PublisherThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublisherThread").finish_non_exhaustive()
    }
}

impl PublisherThread {
    /// Moves `publisher` to a thread of its own. [`PublisherThread::close`] waits at most
    /// `close_timeout`. Dropped without it, the session is broken off, and receivers are told at
    /// once.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn spawn(publisher: Publisher, close_timeout: Duration) -> Result<Self, Error> {
        let waker = publisher.waker()?;
        let limit = publisher.message_limit();
        let queue = Arc::new(Queue::default());
        let farewell = Farewell(Arc::clone(&queue));
        let thread = spawn("publisher", move || {
            publish(publisher, &farewell.0, close_timeout)
        })?;
        Ok(Self {
            queue,
            waker,
            thread: Some(thread),
            limit,
        })
    }

    /// Hands a message over, waiting while the queue is full. While the thread keeps up a
    /// message travels at once, or with those of the next moments (the parameter `cork`); while
    /// it does not, they travel together.
    ///
    /// # Errors
    /// [`Error::TooLong`], after which the session goes on; or what ended the session.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.check_len(message)?;
        let pushed = self.queue.push(message);
        self.handed_over(pushed).map(|_| ())
    }

    /// Hands a message over when there is room for it.
    ///
    /// # Errors
    /// As [`PublisherThread::send`].
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        self.check_len(message)?;
        let pushed = self.queue.try_push(message);
        self.handed_over(pushed)
    }

    fn handed_over(&mut self, pushed: Pushed) -> Result<SendStatus, Error> {
        match pushed {
            Pushed::First => self.waker.wake(),
            Pushed::Behind => {}
            Pushed::Full => return Ok(SendStatus::WouldBlock),
            Pushed::Gone => return Err(reason(&mut self.thread)),
        }
        Ok(SendStatus::Taken)
    }

    fn check_len(&self, message: &[u8]) -> Result<(), Error> {
        let (max, parameter) = self.limit;
        if message.len() > max {
            return Err(Error::TooLong { max, parameter });
        }
        Ok(())
    }

    /// Waits until every message that was handed over has left: as long as it takes, which may be
    /// for ever while receivers that are expected do not come.
    ///
    /// # Errors
    /// What ended the session.
    pub fn flush(&mut self) -> Result<(), Error> {
        let asked = self.ask_flush();
        let is_waiting = |state: &mut QueueState| state.flushes_done < asked && !state.is_gone;
        let waited = self.queue.changed.wait_while(self.queue.lock(), is_waiting);
        let is_done = waited.unwrap_or_else(PoisonError::into_inner).flushes_done >= asked;
        if is_done {
            Ok(())
        } else {
            Err(reason(&mut self.thread))
        }
    }

    /// The next event about a receiver, if there is one.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.queue.lock().events.pop_front()
    }

    /// Adds every counter of the session, as it was a moment ago.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.append(&self.queue.lock().snapshot);
    }

    /// The receivers that report, as they were a moment ago.
    #[must_use]
    pub fn receivers(&self) -> Vec<ReceiverStatus> {
        self.queue.lock().receivers.clone()
    }

    /// Sends everything and ends the session in good order, waiting at most as long as
    /// [`PublisherThread::spawn`] was told.
    ///
    /// # Errors
    /// What went wrong on the thread.
    pub fn close(mut self) -> Result<Closed, Error> {
        self.begin_close();
        self.finish()
    }

    /// Ends a session that had more to say: what was handed over is delivered as by
    /// [`PublisherThread::close`], and then receivers are told that the session is broken off.
    ///
    /// # Errors
    /// What went wrong on the thread.
    pub fn break_off(mut self) -> Result<Closed, Error> {
        self.begin_break_off();
        self.finish()
    }

    /// Tells the thread to end the session, without waiting for it.
    pub(crate) fn begin_close(&mut self) {
        self.end(End::Close);
    }

    /// As [`PublisherThread::break_off`], without waiting for it.
    pub(crate) fn begin_break_off(&mut self) {
        self.end(End::BreakOff);
    }

    /// Tells the thread to break the session off at once, and lets it end by itself.
    pub(crate) fn abandon(&mut self) {
        self.end(End::Drop);
        self.thread = None;
    }

    fn end(&self, end: End) {
        self.queue.set_end(end);
        self.waker.wake();
    }

    /// Waits for the thread, which was told to end.
    pub(crate) fn finish(&mut self) -> Result<Closed, Error> {
        finish(&mut self.thread)
    }

    /// Asks for everything to be sent; gives the number of the request.
    pub(crate) fn ask_flush(&mut self) -> u64 {
        let mut state = self.queue.lock();
        state.flushes_asked += 1;
        let asked = state.flushes_asked;
        drop(state);
        self.waker.wake();
        asked
    }

    /// Ready when there is room for a message.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(cx, |state| match state.is_gone {
            true => Some(false),
            false => (!state.waiting.is_full()).then_some(true),
        })
    }

    /// Ready when everything has left that was there at request number `asked`.
    pub(crate) fn poll_flushed(
        &mut self,
        cx: &mut Context<'_>,
        asked: u64,
    ) -> Poll<Result<(), Error>> {
        self.poll(cx, |state| match state.flushes_done >= asked {
            true => Some(true),
            false => state.is_gone.then_some(false),
        })
    }

    /// Ready with an event, or when there will be none.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AudienceEvent>> {
        let event = |state: &mut QueueState| match state.events.pop_front() {
            None if state.is_gone => Some(None),
            None => None,
            event => Some(event),
        };
        self.poll_state(cx, event)
    }

    /// Ready when the thread has nothing left to do but to end.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_state(cx, |state| state.is_gone.then_some(()))
    }

    /// `Ok` when `look` gives true: what it waits for is there. When it gives false, that will
    /// never come: then the error that ended the session.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut QueueState) -> Option<bool>,
    ) -> Poll<Result<(), Error>> {
        match self.poll_state(cx, look) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(true) => Poll::Ready(Ok(())),
            Poll::Ready(false) => Poll::Ready(Err(reason(&mut self.thread))),
        }
    }

    fn poll_state<T>(
        &self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut QueueState) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.queue.lock();
        match look(&mut state) {
            Some(found) => Poll::Ready(found),
            None => {
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for PublisherThread {
    fn drop(&mut self) {
        self.end(End::Drop);
        // Who wants to know how it ends calls `close`.
        drop(self.finish());
    }
}

fn publish(
    mut publisher: Publisher,
    queue: &Queue,
    close_timeout: Duration,
) -> Result<Closed, Error> {
    let mut current = Outgoing::default();
    let mut posted = Posted::default();
    let mut deadline = None;
    let closed = loop {
        while let Some(message) = current.peek() {
            if publisher.try_send(message)? != SendStatus::Taken {
                break;
            }
            current.next += 1;
        }
        // Before the queue is looked at: nothing comes after an end.
        let end = queue.end();
        if end.is_some() && deadline.is_none() {
            deadline = Some(publisher.now() + close_timeout);
        }
        if current.peek().is_none() {
            current.clear();
            queue.take(&mut current);
            if !current.is_empty() {
                continue;
            }
            if let Some(asked) = queue.flush_asked() {
                publisher.send_ready();
                if publisher.is_drained() {
                    queue.flushed(asked);
                }
            }
        }
        if let (Some(end), Some(by)) = (end, deadline)
            && let Some(closed) = end_session(&mut publisher, end, by, current.is_empty())
        {
            break closed;
        }
        let turn = publisher.turn()?;
        queue.post_events(&mut publisher);
        if posted.is_due(&turn) {
            queue.post(&publisher);
        }
        if turn.is_idle() {
            let until = posted.due_after().map(|after| publisher.now() + after);
            publisher.wait(base::earliest(until, deadline));
        }
    };
    queue.post_events(&mut publisher);
    queue.post(&publisher);
    closed
}

/// Ends the session as the application has asked; `None` while something that it handed over has
/// found no room yet and may still do so.
fn end_session(
    publisher: &mut Publisher,
    end: End,
    deadline: Instant,
    has_all: bool,
) -> Option<Result<Closed, Error>> {
    let left = deadline.since(publisher.now());
    match end {
        End::Close if has_all => Some(publisher.close(left)),
        End::BreakOff if has_all => Some(publisher.break_off(left)),
        End::Drop => Some(publisher.cut_short()),
        End::Close | End::BreakOff if left.is_zero() => Some(publisher.cut_short()),
        End::Close | End::BreakOff => None,
    }
}

/// Bytes, and messages, that may wait for a publisher's thread.
const OUTGOING_BYTES_MAX: usize = 1 << 20;
const OUTGOING_MESSAGES_MAX: usize = 1 << 16;
/// Events that wait for the application; more wait in the session.
const EVENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nothing_stays_behind_in_a_queue_that_was_closed_or_left() {
        let queue = Arc::new(Queue::default());
        assert_eq!(
            [&b"one"[..], b""].map(|message| queue.push(message)),
            [Pushed::First, Pushed::Behind]
        );
        let mut taken = Outgoing::default();
        queue.take(&mut taken);
        assert_eq!(taken.ends, [3, 3]);
        taken.clear();
        queue.take(&mut taken);
        assert!(taken.is_empty());
        drop(Farewell(Arc::clone(&queue)));
        assert_eq!(queue.push(b"two"), Pushed::Gone);
    }

    #[test]
    fn a_full_queue_holds_the_application_until_the_thread_has_taken() {
        let queue = Arc::new(Queue::default());
        queue.push(&vec![0; OUTGOING_BYTES_MAX]);
        let pushing = Arc::clone(&queue);
        let application = thread::spawn(move || pushing.push(b"next"));
        let mut taken = Outgoing::default();
        queue.take(&mut taken);
        assert_eq!(taken.ends, [OUTGOING_BYTES_MAX]);
        assert_eq!(application.join().expect("no panic"), Pushed::First);
    }
}
