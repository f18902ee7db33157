//! A subscriber on its own thread.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

use pgm::Status;

use super::{Posted, finish, reason, spawn};
use crate::{Batch, Error, Received, SessionInfo, Snapshot, Subscriber, subscriber::Sessions};

/// A subscriber with a thread of its own. [`SubscriberThread::recv`] blocks. Asynchronous programs
/// of any runtime await [`SubscriberThread::ready`], and then call [`SubscriberThread::pop`].
pub struct SubscriberThread {
    batches: Receiver<Batch>,
    spare: SyncSender<Batch>,
    current: Batch,
    sessions: Sessions,
    shared: Arc<Shared>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    task: Mutex<Option<Waker>>,
    board: Mutex<Board>,
}

/// The state of the session, which the thread updates at most 20 times a second.
#[derive(Debug)]
struct Board {
    snapshot: Snapshot,
    status: Status,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            snapshot: Snapshot::default(),
            status: Status::NoSender,
        }
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the task that waits for the thread, if one does.
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_task(&self) {
        let task = self.task().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl fmt::Debug for SubscriberThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriberThread").finish_non_exhaustive()
    }
}

impl SubscriberThread {
    /// Moves `subscriber` to its own thread. The thread takes data only from the senders that the
    /// caller gave to [`Subscriber::take_only`]. Without that call it takes data from all senders.
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
            sessions: Sessions::default(),
            shared,
            waker,
            thread: Some(thread),
        })
    }

    /// Waits for the next message or event. After `timeout`, returns `None`. Without a `timeout`,
    /// waits until something comes or the session ends.
    ///
    /// # Errors
    /// The error that ended the session.
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
                Err(RecvTimeoutError::Disconnected) => return Err(reason(&mut self.thread)),
            }
        }
        Ok(self.pop())
    }

    /// Waits, as a future, until [`SubscriberThread::pop`] has something to give.
    ///
    /// # Errors
    /// The error that ended the session.
    pub async fn ready(&mut self) -> Result<(), Error> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Returns the next message or event that [`SubscriberThread::ready`] waited for; `None` when
    /// the caller must await `ready` again.
    pub fn pop(&mut self) -> Option<Received<'_>> {
        let received = self.current.pop();
        if let Some(Received::Event(event)) = received {
            self.sessions.note(&event);
        }
        received
    }

    /// Returns the sender of the session that a message or event names; `None` when that sender is
    /// gone.
    #[must_use]
    pub fn session(&self, session: u32) -> Option<SessionInfo> {
        self.sessions.of(session)
    }

    /// Returns the status of a moment ago, which says why nothing could be received.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.board().status
    }

    /// Adds every counter of the session to `snapshot`, with the values of a moment ago.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.append(&self.shared.board().snapshot);
    }

    /// Leaves all sessions and tells their senders, so that these no longer wait for this receiver.
    ///
    /// **Blocks** until the senders have taken the last reports, for at most 1 s.
    ///
    /// # Errors
    /// The error of the thread.
    pub fn close(mut self) -> Result<(), Error> {
        self.begin_close();
        self.finish()
    }

    /// Tells the thread to leave, without waiting for it.
    pub(crate) fn begin_close(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.wake_thread();
    }

    /// Waits until the thread has ended.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        finish(&mut self.thread)
    }

    /// Detaches the thread: nobody waits for its end.
    pub(crate) fn detach(&mut self) {
        self.thread = None;
    }

    /// Polls for the thread's end; ready when the thread is about to end.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(is_on) = self.poll_batch(cx) {
            if !is_on {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Does for hand-written futures what [`SubscriberThread::ready`] does when it is awaited. If
    /// nothing is there, the task is woken when something comes.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match self.poll_batch(cx) {
            Poll::Ready(true) => Poll::Ready(Ok(())),
            Poll::Ready(false) => Poll::Ready(Err(reason(&mut self.thread))),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Polls for a batch; ready with true when there is one, with false when the thread has ended.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        *self.shared.task() = Some(cx.waker().clone());
        match self.batches.try_recv() {
            Ok(batch) => {
                self.replace(batch);
                Poll::Ready(true)
            }
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(false),
        }
    }

    fn replace(&mut self, batch: Batch) {
        let mut emptied = std::mem::replace(&mut self.current, batch);
        emptied.clear();
        // A failure is ignored: a thread that has ended needs no spare batch.
        drop(self.spare.try_send(emptied));
        self.wake_thread();
    }

    fn wake_thread(&self) {
        self.waker.wake();
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for SubscriberThread {
    fn drop(&mut self) {
        self.begin_close();
        // The error is dropped: a caller that wants to know how the session ends calls `close`.
        drop(self.finish());
    }
}

/// The subscriber's thread.
struct Worker {
    subscriber: Subscriber,
    line: Line,
    from_app: Receiver<Batch>,
}

/// The queue to the application. When the thread ends, even by a panic, the queue must close before
/// the waiting task is woken, or the task would find the queue open and sleep for ever.
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
        // The error that ended the session matters more than one from closing it.
        let closed = self.subscriber.close();
        result.and(closed)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut batch = Batch::default();
        let mut posted = Posted::default();
        while !self.line.is_stopped() {
            let turn = self.subscriber.turn(&mut batch)?;
            if posted.is_due(&turn) {
                self.post();
            }
            if !batch.is_empty() {
                match self.line.send(batch) {
                    Ok(()) => batch = self.from_app.try_recv().unwrap_or_default(),
                    Err(TrySendError::Full(unsent)) => batch = unsent,
                    Err(TrySendError::Disconnected(_)) => return Ok(()),
                }
            }
            if driver::MessageSink::is_full(&batch) {
                // A full batch takes no data, so the socket may stay readable, and a wait for it
                // would end at once. So the thread waits for the application instead.
                let due = self.subscriber.next_timeout();
                let now = self.subscriber.now();
                thread::park_timeout(due.map_or(FULL_WAIT, |due| due.since(now)).min(FULL_WAIT));
            } else if turn.is_idle() {
                let until = posted
                    .due_after()
                    .map(|after| self.subscriber.now() + after);
                self.subscriber.wait(until);
            }
        }
        Ok(())
    }

    /// Shows the application the state of the session.
    fn post(&self) {
        let mut board = self.line.shared.board();
        board.snapshot.clear();
        self.subscriber.snapshot(&mut board.snapshot);
        board.status = self.subscriber.status();
    }
}

/// How many filled batches may wait for the application.
const QUEUE_BATCHES: usize = 4;
/// The longest single sleep of a subscriber's thread while the application takes no batch.
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
}
