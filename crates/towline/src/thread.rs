//! Sessions on threads of their own: the application hands messages over and takes them from
//! bounded queues, and the protocol's timers never wait for it.
//!
//! ```text
//!   application --message--> Outgoing --> thread: Publisher  --> network
//!   application <--Batch----- queue <-- thread: Subscriber <-- network
//!                --emptied batches return by a second queue-->
//! ```
//!
//! A full queue is the back-pressure: a publisher's `send` waits; a subscriber's thread leaves
//! packets in the socket, and reports to the sender that it stands still.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{Batch, Error, Publisher, Received, SendStatus, Subscriber};

/// A subscriber on its own thread. [`SubscriberThread::recv`] blocks; asynchronous programs of
/// any runtime await [`SubscriberThread::ready`] and then [`SubscriberThread::pop`].
#[derive(Debug)]
pub struct SubscriberThread {
    batches: Receiver<Batch>,
    spare: SyncSender<Batch>,
    current: Batch,
    shared: Arc<Shared>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Shared {
    fn wake_task(&self) {
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl SubscriberThread {
    /// Moves `subscriber` to a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn spawn(subscriber: Subscriber) -> Result<Self, Error> {
        let waker = subscriber.waker()?;
        let (to_app, batches) = mpsc::sync_channel(QUEUE_BATCHES);
        let (spare, from_app) = mpsc::sync_channel(QUEUE_BATCHES + 1);
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            subscriber,
            line: Line {
                to_app: Some(to_app),
                shared: Arc::clone(&shared),
            },
            from_app,
        };
        let thread = spawn("subscriber", move || worker.run())?;
        let current = Batch::default();
        Ok(Self {
            batches,
            spare,
            current,
            shared,
            waker,
            thread: Some(thread),
        })
    }

    /// The next message or event, waiting at most `timeout`; `None` when that passed.
    ///
    /// # Errors
    /// What ended the session.
    pub fn recv(&mut self, timeout: Option<Duration>) -> Result<Option<Received<'_>>, Error> {
        if self.current.is_empty() {
            let next = match timeout {
                Some(timeout) => self.batches.recv_timeout(timeout),
                None => self
                    .batches
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(batch) => self.replace(batch),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.join()),
            }
        }
        Ok(self.current.pop())
    }

    /// Waits, as a future, until [`SubscriberThread::pop`] has something to give.
    ///
    /// # Errors
    /// What ended the session.
    pub async fn ready(&mut self) -> Result<(), Error> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// What [`SubscriberThread::ready`] waited for; `None` when it must be awaited again.
    pub fn pop(&mut self) -> Option<Received<'_>> {
        self.current.pop()
    }

    /// As [`SubscriberThread::ready`], for hand-written futures: registers the task to be woken.
    ///
    /// # Errors
    /// What ended the session.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let task = cx.waker().clone();
        *self
            .shared
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(task);
        match self.batches.try_recv() {
            Ok(batch) => {
                self.replace(batch);
                Poll::Ready(Ok(()))
            }
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(Err(self.join())),
        }
    }

    fn replace(&mut self, batch: Batch) {
        let mut emptied = std::mem::replace(&mut self.current, batch);
        emptied.clear();
        // A thread that is gone needs no spare batch.
        drop(self.spare.try_send(emptied));
        self.wake_thread();
    }

    fn wake_thread(&self) {
        self.waker.wake();
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn join(&mut self) -> Error {
        join(&mut self.thread)
    }
}

impl Drop for SubscriberThread {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.wake_thread();
        if let Some(thread) = self.thread.take() {
            // What went wrong was the caller's to ask for before.
            drop(thread.join());
        }
    }
}

/// The subscriber's thread.
struct Worker {
    subscriber: Subscriber,
    line: Line,
    from_app: Receiver<Batch>,
}

/// The way to the application. However the thread ends, by a panic too, the queue closes first and
/// the waiting task is woken then: it would sleep for ever otherwise.
struct Line {
    to_app: Option<SyncSender<Batch>>,
    shared: Arc<Shared>,
}

impl Line {
    fn send(&self, batch: Batch) -> Result<(), TrySendError<Batch>> {
        let Some(to_app) = &self.to_app else {
            return Err(TrySendError::Disconnected(batch));
        };
        to_app.try_send(batch)?;
        self.shared.wake_task();
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.to_app = None;
        self.shared.wake_task();
    }
}

impl Worker {
    fn run(mut self) -> Result<(), Error> {
        let result = self.serve();
        // The reason the session ends for is worth more than trouble on the way out.
        let closed = self.subscriber.close();
        result.and(closed)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut batch = Batch::default();
        while !self.line.is_stopped() {
            let turn = self.subscriber.turn(&mut batch)?;
            if !batch.is_empty() {
                match self.line.send(batch) {
                    Ok(()) => batch = self.from_app.try_recv().unwrap_or_default(),
                    Err(TrySendError::Full(unsent)) => batch = unsent,
                    Err(TrySendError::Disconnected(_)) => return Ok(()),
                }
            }
            if driver::MessageSink::is_full(&batch) {
                // The socket stays readable: wait for the application instead.
                let due = self.subscriber.next_timeout();
                let now = self.subscriber.now();
                thread::park_timeout(due.map_or(FULL_WAIT, |due| due.since(now)).min(FULL_WAIT));
            } else if turn.is_idle() {
                self.subscriber.wait(None);
            }
        }
        Ok(())
    }
}

/// A publisher on its own thread.
#[derive(Debug)]
pub struct PublisherThread {
    queue: Arc<Queue>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// The longest message, and the parameter that says so.
    limit: (usize, &'static str),
}

/// Where the application's messages gather until the thread takes all of them at once.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// The thread has taken what was there, or has ended.
    has_room: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Outgoing,
    /// The application sends no more.
    is_closed: bool,
    /// The thread has ended.
    is_gone: bool,
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, waiting while there is no room. True when the queue was empty, so that the
    /// thread may be asleep; `None` when there is no thread any more.
    fn push(&self, message: &[u8]) -> Option<bool> {
        let is_full = |state: &mut QueueState| state.waiting.is_full() && !state.is_gone;
        let mut state = self
            .has_room
            .wait_while(self.lock(), is_full)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_gone {
            return None;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.push(message);
        Some(was_empty)
    }

    /// Exchanges `emptied` for what has gathered. False when nothing will come any more.
    fn take(&self, emptied: &mut Outgoing) -> bool {
        let mut state = self.lock();
        std::mem::swap(&mut state.waiting, emptied);
        let is_open = !state.is_closed;
        drop(state);
        self.has_room.notify_all();
        is_open || !emptied.is_empty()
    }
}

/// Tells the application that the thread has ended, however it did.
struct Farewell(Arc<Queue>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.lock().is_gone = true;
        self.0.has_room.notify_all();
    }
}

impl PublisherThread {
    /// Moves `publisher` to a thread of its own. It is closed, waiting at most `close_timeout`,
    /// when this value is dropped or [`PublisherThread::close`] is called.
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
        let (max, parameter) = self.limit;
        if message.len() > max {
            return Err(Error::TooLong { max, parameter });
        }
        match self.queue.push(message) {
            Some(true) => self.waker.wake(),
            Some(false) => {}
            None => return Err(join(&mut self.thread)),
        }
        Ok(())
    }

    /// Sends everything and ends the session in good order.
    ///
    /// # Errors
    /// What went wrong on the thread, [`Error::TimedOut`] when receivers did not confirm in time.
    pub fn close(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.queue.lock().is_closed = true;
        self.waker.wake();
        thread.join().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for PublisherThread {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        drop(self.finish());
    }
}

fn publish(mut publisher: Publisher, queue: &Queue, close_timeout: Duration) -> Result<(), Error> {
    let mut current = Outgoing::default();
    loop {
        while let Some(message) = current.peek() {
            if publisher.try_send(message)? != SendStatus::Taken {
                break;
            }
            current.next += 1;
        }
        if current.peek().is_none() {
            current.clear();
            if !queue.take(&mut current) {
                break;
            }
            if !current.is_empty() {
                continue;
            }
        }
        let turn = publisher.turn()?;
        if turn.is_idle() {
            publisher.wait(None);
        }
    }
    if publisher.close(close_timeout)? {
        Ok(())
    } else {
        Err(Error::TimedOut(
            "not every receiver confirmed the last messages".to_owned(),
        ))
    }
}

pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<JoinHandle<Result<(), Error>>, Error> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| net::SystemError::system("start", "a thread", &error).into())
}

fn join(thread: &mut Option<JoinHandle<Result<(), Error>>>) -> Error {
    match thread.take().map(JoinHandle::join) {
        Some(Ok(Err(error))) => error,
        _ => Error::Closed,
    }
}

/// Batches that wait for the other side at most.
const QUEUE_BATCHES: usize = 4;
/// Bytes, and messages, that may wait for a publisher's thread.
const OUTGOING_BYTES_MAX: usize = 1 << 20;
const OUTGOING_MESSAGES_MAX: usize = 1 << 16;
/// How long a thread whose application takes nothing sleeps at most.
const FULL_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_wakes_the_task_that_waits_for_it() {
        struct Woken(mpsc::Sender<()>);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.send(()).expect("the test waits");
            }
        }
        let (to_app, batches) = mpsc::sync_channel(1);
        let (woken, wakes) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        *shared.task.lock().expect("nobody panicked") = Some(Arc::new(Woken(woken)).into());
        let line = Line {
            to_app: Some(to_app),
            shared,
        };
        let thread = thread::spawn(move || {
            let _line = line;
            std::panic::resume_unwind(Box::new("as a broken invariant would"));
        });
        wakes.recv().expect("it is woken");
        let closed = batches.try_recv().expect_err("nothing was sent");
        assert_eq!(closed, TryRecvError::Disconnected);
        thread.join().expect_err("it panicked");
    }

    #[test]
    fn nothing_stays_behind_in_a_queue_that_was_closed_or_left() {
        let queue = Arc::new(Queue::default());
        assert_eq!(
            [&b"one"[..], b""].map(|message| queue.push(message)),
            [Some(true), Some(false)]
        );
        queue.lock().is_closed = true;
        let mut taken = Outgoing::default();
        assert!(queue.take(&mut taken));
        assert_eq!(taken.ends, [3, 3]);
        taken.clear();
        assert!(!queue.take(&mut taken));
        drop(Farewell(Arc::clone(&queue)));
        assert_eq!(queue.push(b"two"), None);
    }

    #[test]
    fn a_full_queue_holds_the_application_until_the_thread_has_taken() {
        let queue = Arc::new(Queue::default());
        queue.push(&vec![0; OUTGOING_BYTES_MAX]);
        let pushing = Arc::clone(&queue);
        let application = thread::spawn(move || pushing.push(b"next"));
        let mut taken = Outgoing::default();
        assert!(queue.take(&mut taken));
        assert_eq!(taken.ends, [OUTGOING_BYTES_MAX]);
        assert_eq!(application.join().expect("no panic"), Some(true));
    }
}
