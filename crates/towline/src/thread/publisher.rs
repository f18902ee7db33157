//! A publisher on its own thread.

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

/// A publisher with a thread of its own.
pub struct PublisherThread {
    queue: Arc<Queue>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<Closed, Error>>>,
    /// The most bytes that a message may have, and the name of the parameter that sets this limit.
    limit: (usize, &'static str),
}

/// A queue that gathers the application's messages until the thread takes all of them at once.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Signals that the thread has taken the messages, finished a flush, passed on an event, or
    /// ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Outgoing,
    /// How the application ends the session; `None` while it may send more.
    end: Option<End>,
    /// True when the publisher's thread has ended.
    is_gone: bool,
    /// How often the application asked for a flush; `flushes_done` is how many of these are done.
    flushes_asked: u64,
    flushes_done: u64,
    events: VecDeque<AudienceEvent>,
    /// The publisher's counters, as its thread last showed them.
    snapshot: Snapshot,
    receivers: Vec<ReceiverStatus>,
    /// The task that waits for a change of this state.
    task: Option<Waker>,
}

/// How the application ends a session.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The session ends in good order, after all messages were sent.
    Close,
    /// The messages taken so far are sent. Then receivers are told that the session is broken off.
    BreakOff,
    /// The session ends at once: messages that have not left are not sent.
    Drop,
}

/// The result of adding a message to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushed {
    /// The message is the only one in the queue, so the thread may be asleep.
    First,
    /// Other messages are before it, so the thread is awake or was woken.
    Behind,
    /// There was no room for the message.
    Full,
    /// The publisher's thread has ended, so the message was not taken.
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

    /// Returns true when there is no room. Empty messages take room, too.
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

    /// Adds a message, after waiting for room if there is none.
    fn push(&self, message: &[u8]) -> Pushed {
        let is_full = |state: &mut QueueState| state.waiting.is_full() && !state.is_gone;
        let state = self.changed.wait_while(self.lock(), is_full);
        state.unwrap_or_else(PoisonError::into_inner).push(message)
    }

    /// Adds a message, after waiting at most `timeout` for room.
    fn push_timeout(&self, message: &[u8], timeout: Duration) -> Pushed {
        let is_full = |state: &mut QueueState| state.waiting.is_full() && !state.is_gone;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.push(message)
    }

    /// Adds a message if there is room.
    fn try_push(&self, message: &[u8]) -> Pushed {
        self.lock().push(message)
    }

    /// Wakes the application's thread or task that waits for a change.
    fn tell(&self, mut state: MutexGuard<'_, QueueState>) {
        let task = state.task.take();
        drop(state);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Returns the number of the newest flush that is asked for and not done; `None` when there is
    /// none, or messages still wait in the queue. The flush is done once all messages have left.
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

    /// Passes events about receivers to the application.
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

    /// Makes the session's state visible to the application.
    fn post(&self, publisher: &Publisher) {
        let mut state = self.lock();
        state.snapshot.clear();
        publisher.snapshot(&mut state.snapshot);
        state.receivers = publisher.receivers().collect();
    }

    /// Swaps the gathered messages with `emptied`, in which the queue then gathers the next ones.
    fn take(&self, emptied: &mut Outgoing) {
        let mut state = self.lock();
        std::mem::swap(&mut state.waiting, emptied);
        if !emptied.is_empty() {
            self.tell(state);
        }
    }

    /// Says how the application wants the session to end; `None` while the session is to go on.
    fn end(&self) -> Option<End> {
        self.lock().end
    }

    fn set_end(&self, end: End) {
        self.lock().end.get_or_insert(end);
    }
}

/// A guard that tells the application that the thread has ended, for whatever reason.
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
    /// Moves `publisher` to its own thread. [`PublisherThread::close`] waits at most
    /// `close_timeout`. Dropping the handle without closing breaks the session off and tells
    /// receivers at once.
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

    /// Takes a message, after waiting for room if the queue is full. While the thread keeps up, a
    /// message leaves at once, or with those that come within the time of the parameter `cork`.
    /// When the thread does not keep up, many messages leave together.
    ///
    /// # Errors
    /// [`Error::TooLong`], after which the session goes on, or the error that ended the session.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.check_len(message)?;
        let pushed = self.queue.push(message);
        self.handed_over(pushed).map(|_| ())
    }

    /// Takes a message if there is room for it.
    ///
    /// # Errors
    /// As [`PublisherThread::send`].
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        self.check_len(message)?;
        let pushed = self.queue.try_push(message);
        self.handed_over(pushed)
    }

    /// Takes a message as [`PublisherThread::send`] does, but waits at most `timeout` for room, and
    /// says whether the message was taken.
    ///
    /// # Errors
    /// As [`PublisherThread::send`].
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<SendStatus, Error> {
        self.check_len(message)?;
        let pushed = self.queue.push_timeout(message, timeout);
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

    /// Waits until every message has left. This may take for ever while expected receivers do not
    /// come.
    ///
    /// # Errors
    /// The error that ended the session.
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

    /// Returns the next event about a receiver, if there is one.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.queue.lock().events.pop_front()
    }

    /// Adds every counter of the session to `snapshot`, with the values of a moment ago.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.append(&self.queue.lock().snapshot);
    }

    /// Returns the status of each receiver that sends reports, as it was a moment ago.
    #[must_use]
    pub fn receivers(&self) -> Vec<ReceiverStatus> {
        self.queue.lock().receivers.clone()
    }

    /// Sends everything and ends the session in good order. Blocks as [`Publisher::close`] does,
    /// with the timeout that [`PublisherThread::spawn`] was given.
    ///
    /// # Errors
    /// The error of the thread.
    pub fn close(mut self) -> Result<Closed, Error> {
        self.begin_close();
        self.finish()
    }

    /// Ends the session early, although the application should have sent more. The messages taken
    /// so far are delivered as by [`PublisherThread::close`]; then receivers are told that the
    /// session is broken off.
    ///
    /// # Errors
    /// The error of the thread.
    pub fn break_off(mut self) -> Result<Closed, Error> {
        self.begin_break_off();
        self.finish()
    }

    /// Tells the thread to end the session, without waiting for it.
    pub(crate) fn begin_close(&mut self) {
        self.end(End::Close);
    }

    /// Tells the thread to end the session as [`PublisherThread::break_off`] does, without waiting
    /// for it.
    pub(crate) fn begin_break_off(&mut self) {
        self.end(End::BreakOff);
    }

    /// Tells the thread to break the session off at once, and does not wait for its end.
    pub(crate) fn abandon(&mut self) {
        self.end(End::Drop);
        self.thread = None;
    }

    fn end(&self, end: End) {
        self.queue.set_end(end);
        self.waker.wake();
    }

    /// Waits for the end of the thread, which was told to end.
    pub(crate) fn finish(&mut self) -> Result<Closed, Error> {
        finish(&mut self.thread)
    }

    /// Asks for a flush, and returns its number.
    pub(crate) fn ask_flush(&mut self) -> u64 {
        let mut state = self.queue.lock();
        state.flushes_asked += 1;
        let asked = state.flushes_asked;
        drop(state);
        self.waker.wake();
        asked
    }

    /// Polls for room; ready when the queue has room for a message.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(cx, |state| match state.is_gone {
            true => Some(false),
            false => (!state.waiting.is_full()).then_some(true),
        })
    }

    /// Polls for the end of a flush; ready when all messages before flush number `asked` have left.
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

    /// Polls for an event; ready with `None` when there will be no more.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AudienceEvent>> {
        let event = |state: &mut QueueState| match state.events.pop_front() {
            None if state.is_gone => Some(None),
            None => None,
            event => Some(event),
        };
        self.poll_state(cx, event)
    }

    /// Polls for the thread's end; ready when the thread is about to end.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_state(cx, |state| state.is_gone.then_some(()))
    }

    /// Asks `look` for an answer. `None`: keep waiting. `Some(true)`: the wait is over.
    /// `Some(false)`: what the caller waits for will never come; the result is the error that ended
    /// the session.
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
        // The error is dropped: a caller that wants to know how the session ends calls `close`.
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
        // Read the end before the queue. The application adds no message after it has set the end,
        // so if the end is set here, the queue holds the last messages.
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

/// Ends the session as the application wants; `None` while a message still waits for room and
/// `deadline` has not passed.
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

/// A queue to a publisher's thread is full when it holds this many bytes, or this many messages.
const OUTGOING_BYTES_MAX: usize = 1 << 20;
const OUTGOING_MESSAGES_MAX: usize = 1 << 16;
/// The most events that the queue holds for the application; further events wait in the session.
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

    #[test]
    fn a_full_queue_gives_the_application_back_after_its_time() {
        let queue = Queue::default();
        let moment = Duration::from_millis(1);
        assert_eq!(queue.push_timeout(b"one", moment), Pushed::First);
        queue.push(&vec![0; OUTGOING_BYTES_MAX]);
        assert_eq!(queue.push_timeout(b"two", moment), Pushed::Full);
        queue.take(&mut Outgoing::default());
        assert_eq!(queue.push_timeout(b"two", moment), Pushed::First);
    }
}
