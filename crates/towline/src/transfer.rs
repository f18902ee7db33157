//! A transfer of files on its own thread. Its events come by a bounded queue, its state can be read
//! at any time, and asynchronous programs await [`TransferThread::ready`].
//!
//! ```text
//!   application <--events-- queue <-- thread: FileSender or FileReceiver <--> network, disk
//!               <--state, a copy of a moment ago--
//!               ---cancel--->
//! ```
//!
//! A full queue does not delay the transfer, because timers and peers must not wait for the
//! application. Further events wait in the transfer, which bounds their number.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{Error, thread::spawn};

/// Lets only this crate implement [`Transfer`], so that later releases can add methods to the
/// trait.
pub(crate) mod sealed {
    /// A trait that only this crate can name.
    #[expect(unnameable_types, reason = "who cannot name it cannot implement it")]
    pub trait Sealed {}
}

/// A transfer that a [`TransferThread`] can drive: a [`crate::FileSender`] or a
/// [`crate::FileReceiver`]. The trait is sealed: no type of another crate can implement it.
pub trait Transfer: sealed::Sealed + Send + 'static {
    /// The transfer's events.
    type Event: Send;
    /// The transfer's state.
    type State: Clone + Send;

    /// Does what is due, without waiting. Returns false when everything is over.
    ///
    /// # Errors
    /// The error that ended the session.
    fn turn(&mut self) -> Result<bool, Error>;

    /// Waits until something is due.
    fn wait(&mut self);

    /// Returns the next event.
    fn pop_event(&mut self) -> Option<Self::Event>;

    /// Returns the state at this moment.
    fn state(&self) -> Self::State;

    /// Gives the transfer up, and tells the peers why.
    fn cancel(&mut self, text: &str);

    /// Makes a handle with which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    fn waker(&self) -> Result<net::Waker, Error>;
}

/// Gives a type what all transfers have in common: the waiting methods and the trait [`Transfer`].
/// The waiting methods use the type's fields `end` and `is_idle`. The trait uses the type's methods
/// `turn`, `pop_event`, `cancel` and `$stands`, which returns the state.
macro_rules! transfer {
    ($transfer:ty, $event:ty, $state:ty, $stands:ident) => {
        impl $transfer {
            /// Waits until something is due, at most until `until`. Returns at once when there is
            /// work.
            pub fn wait(&mut self, until: Option<::base::Instant>) {
                if self.is_idle {
                    self.end.wait(until);
                }
            }

            /// Says when the next turn is due even if nothing arrives.
            #[must_use]
            pub fn next_timeout(&self) -> Option<::base::Instant> {
                self.end.next_timeout()
            }

            /// Prepares the descriptor for polling: it then also becomes readable when a timer is
            /// due.
            pub fn arm(&mut self) {
                let at_once = (!self.is_idle).then(|| self.end.driver.now());
                self.end.arm(at_once);
            }
        }

        impl $crate::transfer::sealed::Sealed for $transfer {}

        impl $crate::Transfer for $transfer {
            type Event = $event;
            type State = $state;

            fn turn(&mut self) -> Result<bool, $crate::Error> {
                Self::turn(self)
            }

            fn wait(&mut self) {
                Self::wait(self, None);
            }

            fn pop_event(&mut self) -> Option<Self::Event> {
                Self::pop_event(self)
            }

            fn state(&self) -> Self::State {
                Self::$stands(self)
            }

            fn cancel(&mut self, text: &str) {
                Self::cancel(self, text);
            }

            fn waker(&self) -> Result<::net::Waker, $crate::Error> {
                Self::waker(self)
            }
        }
    };
}
pub(crate) use transfer;

/// A transfer on its own thread. Dropping it cancels the transfer and waits for its end.
#[derive(Debug)]
pub struct TransferThread<T: Transfer> {
    shared: Arc<Shared<T>>,
    waker: net::Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl<T: Transfer> TransferThread<T> {
    /// Moves `transfer` to its own thread.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn spawn(transfer: T) -> Result<Self, Error> {
        let waker = transfer.waker()?;
        let shared = Arc::new(Shared {
            board: Mutex::new(Board::new(transfer.state())),
            changed: Condvar::new(),
        });
        let farewell = Farewell(Arc::clone(&shared));
        let thread = spawn("transfer", move || drive(transfer, &farewell.0))?;
        Ok(Self {
            shared,
            waker,
            thread: Some(thread),
        })
    }

    /// Waits for the next event, at most `timeout`. `None` after that, or when the transfer is over
    /// and no event is left.
    pub fn recv(&mut self, timeout: Option<Duration>) -> Option<T::Event> {
        let is_waiting = |board: &mut Board<T>| board.events.is_empty() && !board.is_over;
        let board = self.shared.lock();
        let mut board = match timeout {
            None => {
                let board = self.shared.changed.wait_while(board, is_waiting);
                board.unwrap_or_else(PoisonError::into_inner)
            }
            Some(timeout) => {
                let changed = &self.shared.changed;
                let board = changed.wait_timeout_while(board, timeout, is_waiting);
                board.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        board.events.pop_front()
    }

    /// Waits, as a future, until [`TransferThread::pop`] has an event, or until there will be no
    /// more events.
    pub async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await;
    }

    /// Does for hand-written futures what [`TransferThread::ready`] does when it is awaited. If no
    /// event waits, the task is woken when one comes or the transfer is over.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut board = self.shared.lock();
        if board.is_over || !board.events.is_empty() {
            return Poll::Ready(());
        }
        board.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns the next event, without waiting.
    pub fn pop(&mut self) -> Option<T::Event> {
        self.shared.lock().events.pop_front()
    }

    /// Returns a copy of the transfer's state. The copy is at most 50 ms old while packets come and
    /// go, and older while nothing happens. Once the transfer is over, the state is final.
    #[must_use]
    pub fn state(&self) -> T::State {
        self.shared.lock().state.clone()
    }

    /// Puts a question to the transfer, and waits for the answer. The thread answers between two
    /// turns. The question may read [`FileReceiver::entries`](crate::FileReceiver::entries) or the
    /// transfer's counters, for example. Once the transfer is over, the question reads the final
    /// state; the answer is `None` if the transfer ended with an error.
    ///
    /// The transfer stands still while the question runs, so the question should be quick. It must
    /// not call this `TransferThread`: the thread would wait for itself.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), towline::Error> {
    /// # let (thread, transfer): (towline::TransferThread<towline::FileReceiver>, u32) = todo!();
    /// let files = thread.ask(move |receiver| receiver.entries(transfer).map(Iterator::count));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&T) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = std::sync::mpsc::channel();
        let question = move |transfer: &T| {
            // The thread that asked is still waiting for the answer.
            let _told = answer.send(question(transfer));
        };
        let mut board = self.shared.lock();
        match &board.transfer {
            Some(transfer) => question(transfer),
            None if board.is_over => drop(question),
            None => board.questions.push(Box::new(question)),
        }
        drop(board);
        self.waker.wake();
        answered.recv().ok()
    }

    /// Returns true when the thread has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.lock().is_over
    }

    /// Gives the transfer up, and tells the peers why. The caller must still wait for the
    /// transfer's end.
    pub fn cancel(&self, text: &str) {
        self.shared.lock().cancel = Some(text.to_owned());
        self.waker.wake();
    }

    /// Waits for the transfer's end, and returns the transfer with its final state and counters.
    ///
    /// # Errors
    /// The error that ended the session, or [`Error::Panicked`].
    pub fn join(mut self) -> Result<T, Error> {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or(Err(Error::Panicked))?;
        }
        self.shared.lock().transfer.take().ok_or(Error::Closed)
    }
}

impl<T: Transfer> Drop for TransferThread<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.cancel("the program that ran the transfer has closed it");
            // A caller that wanted to know the error would have called `join`.
            drop(thread.join());
        }
    }
}

struct Shared<T: Transfer> {
    board: Mutex<Board<T>>,
    changed: Condvar,
}

/// A function that reads from a transfer what the application wants to know.
type Question<T> = Box<dyn FnOnce(&T) + Send>;

/// The state that the thread and the application share.
struct Board<T: Transfer> {
    events: VecDeque<T::Event>,
    state: T::State,
    task: Option<Waker>,
    cancel: Option<String>,
    questions: Vec<Question<T>>,
    is_over: bool,
    /// The transfer, once it has ended without an error.
    transfer: Option<T>,
}

impl<T: Transfer> Board<T> {
    const fn new(state: T::State) -> Self {
        Self {
            events: VecDeque::new(),
            state,
            task: None,
            cancel: None,
            questions: Vec::new(),
            is_over: false,
            transfer: None,
        }
    }
}

impl<T: Transfer> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<T: Transfer> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Board<T>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the waiting thread or task because something has changed.
    fn tell(&self, mut board: MutexGuard<'_, Board<T>>) {
        let task = board.task.take();
        drop(board);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// A guard that tells the application that the thread has ended, for whatever reason.
struct Farewell<T: Transfer>(Arc<Shared<T>>);

impl<T: Transfer> Drop for Farewell<T> {
    fn drop(&mut self) {
        let mut board = self.0.lock();
        board.is_over = true;
        // Threads that have asked meanwhile get no answer.
        board.questions.clear();
        self.0.tell(board);
    }
}

fn drive<T: Transfer>(mut transfer: T, shared: &Shared<T>) -> Result<(), Error> {
    let mut shown = Instant::now();
    loop {
        let is_on = transfer.turn()?;
        let mut board = shared.lock();
        let cancel = board.cancel.take();
        let questions = std::mem::take(&mut board.questions);
        let mut has_news = false;
        while board.events.len() < EVENTS_MAX
            && let Some(event) = transfer.pop_event()
        {
            board.events.push_back(event);
            has_news = true;
        }
        if has_news || !is_on || shown.elapsed() >= STATE_AGE_MAX {
            board.state = transfer.state();
            shown = Instant::now();
        }
        if !is_on {
            // Once the transfer has ended, events are kept even beyond the bound.
            board
                .events
                .extend(std::iter::from_fn(|| transfer.pop_event()));
            for question in questions {
                question(&transfer);
            }
            board.transfer = Some(transfer);
            return Ok(());
        }
        if has_news {
            shared.tell(board);
        } else {
            drop(board);
        }
        for question in questions {
            question(&transfer);
        }
        match cancel {
            Some(text) => transfer.cancel(&text),
            None => transfer.wait(),
        }
    }
}

/// The most events in the queue to the application; further events wait in the transfer.
const EVENTS_MAX: usize = 1024;
/// The greatest age of the application's copy of the state while packets come and go.
const STATE_AGE_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer whose first turn breaks an invariant.
    struct Broken;

    impl sealed::Sealed for Broken {}

    impl Transfer for Broken {
        type Event = ();
        type State = ();

        fn turn(&mut self) -> Result<bool, Error> {
            std::panic::resume_unwind(Box::new("as a broken invariant would"));
        }

        fn wait(&mut self) {}

        fn pop_event(&mut self) -> Option<()> {
            None
        }

        fn state(&self) {}

        fn cancel(&mut self, _text: &str) {}

        fn waker(&self) -> Result<net::Waker, Error> {
            Err(Error::Closed)
        }
    }

    #[test]
    fn who_asks_a_thread_that_ends_with_an_error_gets_no_answer() {
        let shared = Arc::new(Shared {
            board: Mutex::new(Board::<Broken>::new(())),
            changed: Condvar::new(),
        });
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let question = move |_: &Broken| answer.send(()).expect("the test waits");
        shared.lock().questions.push(Box::new(question));
        let farewell = Farewell(Arc::clone(&shared));
        let thread = std::thread::spawn(move || drive(Broken, &farewell.0));
        answered
            .recv()
            .expect_err("nobody is left who could answer");
        thread.join().expect_err("it panicked");
    }

    #[test]
    fn a_thread_that_panics_wakes_the_task_that_waits_for_it() {
        struct Woken(std::sync::mpsc::Sender<()>);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.send(()).expect("the test waits");
            }
        }
        let (woken, wakes) = std::sync::mpsc::channel();
        let shared = Arc::new(Shared {
            board: Mutex::new(Board::new(())),
            changed: Condvar::new(),
        });
        shared.lock().task = Some(Arc::new(Woken(woken)).into());
        let farewell = Farewell(Arc::clone(&shared));
        let thread = std::thread::spawn(move || drive(Broken, &farewell.0));
        wakes.recv().expect("it is woken");
        assert!(shared.lock().is_over);
        thread.join().expect_err("it panicked");
    }
}
