//! One thread that wakes the tasks whose streams wait for the network, in asynchronous programs of
//! any runtime.
//!
//! ```text
//!   task ---- arm: descriptor, what for, until when ----> epoll, timer
//!   task <--------------- wake, once -------------------- thread, which waits for both
//! ```
//!
//! The thread starts with the first stream of the process and ends with the last. It only wakes
//! tasks, which read and write by themselves. When a stream waits again, its task makes at most two
//! system calls: one for the epoll set, one for the timer.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Waker,
    thread,
    time::Duration,
};

use base::Instant;
use sys::{Epoll, Interest, TimerFd, WakeFd, clock};

/// The state that tasks and the thread share.
#[derive(Debug)]
pub(super) struct Reactor {
    board: Mutex<Board>,
    /// Tells the thread that the last stream is gone.
    leave: WakeFd,
}

#[derive(Debug)]
struct Board {
    epoll: Epoll,
    timer: TimerFd,
    /// When the timer goes off.
    timer_at: Option<Instant>,
    /// The wait of each waiting stream, by the stream's number.
    waits: BTreeMap<u64, Wait>,
    next: u64,
}

#[derive(Debug)]
struct Wait {
    wish: Interest,
    until: Option<Instant>,
    waker: Waker,
}

impl Reactor {
    /// Returns the running reactor; starts one when none runs.
    pub(super) fn running() -> io::Result<Arc<Self>> {
        static RUNNING: Mutex<Weak<Reactor>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reactor) = running.upgrade() {
            return Ok(reactor);
        }
        let (epoll, timer) = (Epoll::new(EVENTS_MAX)?, TimerFd::new()?);
        epoll.add(timer.as_fd(), TIMER, Interest::READ)?;
        let leave = WakeFd::new()?;
        // `epoll` is going to be behind the board's lock. The thread waits for `outer`, which
        // contains `epoll`, without that lock, so streams can join meanwhile.
        let outer = Epoll::new(2)?;
        outer.add(epoll.as_fd(), 0, Interest::READ)?;
        outer.add(leave.as_fd(), 1, Interest::READ)?;
        let kept = leave.try_clone()?;
        let board = Board {
            epoll,
            timer,
            timer_at: None,
            waits: BTreeMap::new(),
            next: 0,
        };
        let reactor = Arc::new(Self {
            board: Mutex::new(board),
            leave,
        });
        *running = Arc::downgrade(&reactor);
        let own = Arc::downgrade(&reactor);
        let thread = thread::Builder::new().name("streams".to_owned());
        thread.spawn(move || run(outer, &kept, &own))?;
        Ok(reactor)
    }

    /// Returns a number that no stream has had yet, for a new stream.
    pub(super) fn seat(&self) -> u64 {
        let mut board = self.lock();
        board.next += 1;
        board.next
    }

    /// Has a task woken once: when its stream can be read or written, as `wish` says, or at
    /// `until`. Wishes of the stream that have not come true yet still hold.
    pub(super) fn arm(
        &self,
        seat: u64,
        stream: BorrowedFd<'_>,
        wish: Interest,
        until: Option<Instant>,
        waker: &Waker,
    ) -> io::Result<()> {
        // This is dropped after the lock: dropping a waker may drop a task and its stream, and
        // dropping the stream takes the lock.
        let before;
        let mut board = self.lock();
        before = board.waits.remove(&seat);
        let (mut wish, mut until) = (wish, until);
        if let Some(before) = &before {
            wish.readable |= before.wish.readable;
            wish.writable |= before.wish.writable;
            until = [until, before.until].into_iter().flatten().min();
        }
        if until.is_some_and(|at| board.timer_at.is_none_or(|next| at < next)) {
            board.timer.set(until)?;
            board.timer_at = until;
        }
        board.epoll.watch_once(stream, seat, wish)?;
        let wait = Wait {
            wish,
            until,
            waker: waker.clone(),
        };
        board.waits.insert(seat, wait);
        Ok(())
    }

    /// Forgets a stream that is about to close.
    pub(super) fn forget(&self, seat: u64, stream: BorrowedFd<'_>) {
        // The wait is dropped after the lock: its waker may drop a stream, which takes the lock.
        let _wait;
        let mut board = self.lock();
        _wait = board.waits.remove(&seat);
        // This fails when the stream has never waited, because it is not in the epoll set then.
        let _gone = board.epoll.remove(stream);
    }

    /// Wakes the tasks whose streams are ready or whose time has come.
    fn wake(&self) {
        let mut board = self.lock();
        let Board { epoll, waits, .. } = &mut *board;
        let mut due = Vec::new();
        // This wait does not fail. If it did, the next call of `wake` would find the ready streams.
        if let Ok(ready) = epoll.wait(Some(Duration::ZERO)) {
            due.extend(ready.filter_map(|ready| waits.remove(&ready.token)));
        }
        if board.timer.take() {
            let now = clock::monotonic();
            let is_due = |wait: &Wait| wait.until.is_some_and(|until| until <= now);
            due.extend(
                board
                    .waits
                    .extract_if(.., |_, wait| is_due(wait))
                    .map(|(_, wait)| wait),
            );
            let next = board.waits.values().filter_map(|wait| wait.until).min();
            board.timer_at = next.filter(|_| board.timer.set(next).is_ok());
        }
        drop(board);
        // Wakers are called without the lock, because a waker may poll its task at once, and the
        // task may take the lock. A panic in one waker does not keep the others from being called.
        for wait in due {
            let _panic = catch_unwind(AssertUnwindSafe(|| wait.waker.wake()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.leave.raise();
    }
}

/// Runs the thread. `_leave` stays open as long as `outer` waits for it.
fn run(mut outer: Epoll, _leave: &WakeFd, reactor: &Weak<Reactor>) {
    while outer.wait(None).is_ok() {
        let Some(reactor) = reactor.upgrade() else {
            return;
        };
        reactor.wake();
    }
}

const TIMER: u64 = u64::MAX;
/// How many ready streams one wait for the epoll set returns at most; the next wait returns more.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
        sync::mpsc::{Sender, channel},
        task::Wake,
    };

    use super::*;

    struct Bell(Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            let _heard = self.0.send(());
        }
    }

    #[test]
    fn a_wait_ends_once_by_what_it_wished_for_or_by_its_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let reactor = Reactor::running().unwrap();
        let (bell, rung) = channel();
        let waker = Waker::from(Arc::new(Bell(bell)));
        let (seat, long) = (reactor.seat(), Duration::from_secs(20));
        let arm = |wish, until| {
            reactor
                .arm(seat, stream.as_fd(), wish, until, &waker)
                .unwrap();
        };
        let soon = || Some(clock::monotonic() + Duration::from_millis(20));
        arm(Interest::READ, soon());
        rung.recv_timeout(long).unwrap();
        // The wait has ended by its time, so bytes that come now wake nobody.
        peer.write_all(b"!").unwrap();
        assert!(rung.recv_timeout(Duration::from_millis(30)).is_err());
        arm(Interest::READ, None);
        rung.recv_timeout(long).unwrap();
        assert!(rung.recv_timeout(Duration::from_millis(30)).is_err());
        // Two wishes before the first has come true: both hold.
        let both = reactor.seat();
        let other = peer.as_fd();
        let room = Interest {
            readable: false,
            writable: true,
        };
        reactor
            .arm(both, other, Interest::default(), None, &waker)
            .unwrap();
        assert!(rung.recv_timeout(Duration::from_millis(30)).is_err());
        reactor.arm(both, other, room, None, &waker).unwrap();
        rung.recv_timeout(long).unwrap();
        reactor.forget(seat, stream.as_fd());
        reactor.forget(both, other);
        let waits = &reactor.lock().waits;
        assert!(!waits.contains_key(&seat) && !waits.contains_key(&both));
    }

    /// A task that owns a stream, and that only its waker keeps alive.
    struct Last {
        reactor: Arc<Reactor>,
        seat: u64,
        stream: TcpStream,
    }

    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            panic!("a waker that fails");
        }
    }

    impl Drop for Last {
        fn drop(&mut self) {
            self.reactor.forget(self.seat, self.stream.as_fd());
        }
    }

    #[test]
    fn a_waker_may_own_a_stream_or_panic_and_others_are_still_woken() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connected = || {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, peer)
        };
        let (stream, mut peer) = connected();
        let reactor = Reactor::running().unwrap();
        let last = || {
            let task = Last {
                reactor: Arc::clone(&reactor),
                seat: reactor.seat(),
                stream: connected().0,
            };
            Waker::from(Arc::new(task))
        };
        let (bell, rung) = channel();
        let heard = Waker::from(Arc::new(Bell(bell)));
        let seat = reactor.seat();
        let arm = |until, waker: &Waker| {
            reactor
                .arm(seat, stream.as_fd(), Interest::READ, until, waker)
                .unwrap();
        };
        // A new waker replaces one that owns a stream; then `forget` removes the new waker.
        arm(None, &last());
        arm(None, &last());
        reactor.forget(seat, stream.as_fd());
        // A waker panics; the next waker is called all the same.
        arm(Some(clock::monotonic()), &last());
        while reactor.lock().waits.contains_key(&seat) {
            thread::yield_now();
        }
        arm(None, &heard);
        peer.write_all(b"!").unwrap();
        rung.recv_timeout(Duration::from_secs(20)).unwrap();
        reactor.forget(seat, stream.as_fd());
    }
}
