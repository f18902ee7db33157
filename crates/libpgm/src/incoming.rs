//! Messages on their way from the groups' threads to the program.
//!
//! ```text
//!   thread: Subscriber --items of one turn--> queue --all of it--> Inbox --one call's--> program
//!                      <--emptied buffers---- spare <---------------------- lent before
//! ```
//!
//! The descriptor `recv` is readable while the queue or the inbox holds something, and for good
//! once no more will come. The descriptor `pending` is readable while a receive call has left
//! something. When the queue is full, packets stay in the kernel's buffer.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use rustix::event::{PollFd, PollFlags, poll};
use towline::{MessageSink, SessionEvent, Subscriber, Waker};

use crate::{
    abi::{APDU_BYTES_MAX, Tsi},
    counters::{Board, MessageCounters},
    event::Event,
    packet::{About, Packet},
    socket::spawn,
};

/// What a program receives.
#[derive(Debug)]
pub(crate) enum Item {
    Message(Packet),
    /// Packets of a session are lost for good: `count` of them.
    Lost {
        tsi: Tsi,
        count: u64,
    },
}

/// The threads of a socket's groups, and what they have received.
#[derive(Debug)]
pub(crate) struct Incoming {
    shared: Arc<Shared>,
    threads: Mutex<Vec<(Waker, JoinHandle<()>)>>,
}

/// What the program's side and the threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    /// Signals that the queue was emptied, or that the threads are to end.
    room: Condvar,
    queued_bytes: AtomicUsize,
    limit_bytes: usize,
    /// How many senders are known.
    peers: AtomicU32,
    is_stopped: AtomicBool,
    recv: Event,
    pending: Event,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    spare: Vec<Packet>,
    /// `recv` is readable.
    is_raised: bool,
    /// Why no more will come.
    failure: Option<String>,
}

/// The program's side: what it was lent, and what it gets next. One receive call at a time has it.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    lent: Vec<Packet>,
    /// `pending` is readable.
    is_pending: bool,
    /// The loss after which the program wants nothing more.
    pub(crate) reset: Option<(Tsi, u64)>,
}

impl Inbox {
    /// Takes back what was lent by the call before this one.
    pub(crate) fn reclaim(&mut self) -> Vec<Packet> {
        let mut lent = std::mem::take(&mut self.lent);
        // What the program keeps is the program's to free.
        lent.retain(Packet::is_ours);
        lent
    }

    /// Lends the program a buffer until the next call.
    pub(crate) fn lend(&mut self, packet: Packet) {
        self.lent.push(packet);
    }
}

impl Incoming {
    pub(crate) fn new(limit_bytes: usize) -> io::Result<Self> {
        let shared = Shared {
            queue: Mutex::default(),
            room: Condvar::new(),
            queued_bytes: AtomicUsize::new(0),
            limit_bytes,
            peers: AtomicU32::new(0),
            is_stopped: AtomicBool::new(false),
            recv: Event::new()?,
            pending: Event::new()?,
        };
        Ok(Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
        })
    }

    /// Moves a group's subscriber to a thread of its own. `port` is the data-destination port, and
    /// `mtu` the size of packets.
    pub(crate) fn add(
        &self,
        mut subscriber: Subscriber,
        port: u16,
        mtu: usize,
        board: Board,
    ) -> Result<(), towline::Error> {
        subscriber.coalesce(COALESCE_MAX);
        let waker = subscriber.waker()?;
        let sink = Sink::new(Arc::clone(&self.shared), port, mtu);
        let thread = spawn("libpgm recv", move || serve(subscriber, sink, board))?;
        self.threads().push((waker, thread));
        Ok(())
    }

    /// Ends the threads, and forgets what they have received, so that groups can be added anew.
    pub(crate) fn halt(&self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // While this has the lock, no thread is between its look at `is_stopped` and its wait.
        drop(self.shared.queue());
        self.shared.room.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for (waker, _) in &threads {
            waker.wake();
        }
        for (_, thread) in threads {
            // A thread that panicked has ended, too.
            drop(thread.join());
        }
        let mut queue = self.shared.queue();
        if queue.is_raised {
            self.shared.recv.clear();
        }
        *queue = Queue::default();
        self.shared.queued_bytes.store(0, Ordering::Relaxed);
        self.shared.peers.store(0, Ordering::Relaxed);
        self.shared.is_stopped.store(false, Ordering::Release);
    }

    /// Ends the waits of receive calls: the socket is being closed.
    pub(crate) fn end_waits(&self) {
        self.shared.fail("the socket is being closed".to_owned());
    }

    fn threads(&self) -> MutexGuard<'_, Vec<(Waker, JoinHandle<()>)>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recv(&self) -> &Event {
        &self.shared.recv
    }

    pub(crate) fn pending(&self) -> &Event {
        &self.shared.pending
    }

    pub(crate) fn has_peers(&self) -> bool {
        self.shared.peers.load(Ordering::Relaxed) > 0
    }

    /// Gives the program the next item; `None` when there is none.
    ///
    /// # Errors
    /// Why none will come any more.
    pub(crate) fn next(&self, inbox: &mut Inbox) -> Result<Option<Item>, String> {
        if inbox.items.is_empty() {
            self.refill(inbox)?;
        }
        Ok(inbox.items.pop_front())
    }

    /// Waits until there is an item, or none will come any more.
    ///
    /// # Errors
    /// When a handler of the program has taken a signal meanwhile.
    pub(crate) fn wait(&self) -> io::Result<()> {
        poll(&mut [PollFd::new(self.recv(), PollFlags::IN)], None)?;
        Ok(())
    }

    /// Returns true when the next item is there and is a message.
    pub(crate) fn has_message(&self, inbox: &mut Inbox) -> bool {
        if inbox.items.is_empty() && self.refill(inbox).is_err() {
            return false;
        }
        matches!(inbox.items.front(), Some(Item::Message(_)))
    }

    /// Gives emptied buffers back, and shows by the descriptors whether something is left.
    pub(crate) fn settle(&self, inbox: &mut Inbox, emptied: Vec<Packet>) {
        if !emptied.is_empty() || inbox.items.is_empty() {
            let mut queue = self.shared.queue();
            let places = SPARE_MAX.saturating_sub(queue.spare.len());
            queue.spare.extend(emptied.into_iter().take(places));
            let is_empty = inbox.items.is_empty() && queue.items.is_empty();
            // The program learns of a failure by its next call, and a descriptor that is not
            // readable would keep it from that call for ever.
            if is_empty && queue.failure.is_none() && queue.is_raised {
                queue.is_raised = false;
                self.shared.recv.clear();
            }
            inbox.is_pending = set(&self.shared.pending, inbox.is_pending, queue.is_raised);
        } else {
            inbox.is_pending = set(&self.shared.pending, inbox.is_pending, true);
        }
    }

    fn refill(&self, inbox: &mut Inbox) -> Result<(), String> {
        let mut queue = self.shared.queue();
        std::mem::swap(&mut queue.items, &mut inbox.items);
        if inbox.items.is_empty() {
            return queue.failure.clone().map_or(Ok(()), Err);
        }
        let was_full = self.shared.is_full();
        self.shared.queued_bytes.store(0, Ordering::Relaxed);
        drop(queue);
        if was_full {
            self.shared.room.notify_all();
        }
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) >= self.limit_bytes
    }

    /// Appends what a turn brought, and takes emptied buffers for the next turns.
    fn push(&self, items: &mut VecDeque<Item>, spare: &mut Vec<Packet>) {
        if items.is_empty() {
            return;
        }
        let bytes: usize = items.iter().map(Item::bytes).sum();
        let mut queue = self.queue();
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        for item in items.drain(..) {
            queue.append(item);
        }
        // Each group's thread takes what it can use and leaves the rest to the others.
        let wanted = SPARE_MAX.saturating_sub(spare.len());
        let from = queue.spare.len().saturating_sub(wanted);
        spare.extend(queue.spare.drain(from..));
        if !queue.is_raised {
            queue.is_raised = true;
            self.recv.raise();
        }
    }

    fn fail(&self, reason: String) {
        let mut queue = self.queue();
        queue.failure.get_or_insert(reason);
        queue.is_raised = true;
        self.recv.raise();
    }

    /// Waits until the program has taken something, at most `time`.
    fn wait_for_room(&self, time: Duration) {
        let is_full = |_: &mut Queue| self.is_full() && !self.is_stopped.load(Ordering::Acquire);
        let waited = self.room.wait_timeout_while(self.queue(), time, is_full);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Queue {
    fn append(&mut self, item: Item) {
        if let (
            Some(Item::Lost { tsi, count }),
            Item::Lost {
                tsi: of,
                count: more,
            },
        ) = (self.items.back_mut(), &item)
            && *tsi == *of
        {
            *count += more;
            return;
        }
        self.items.push_back(item);
    }
}

impl Item {
    /// Returns how many bytes the item counts for in the queue: the memory that it takes, however
    /// short its message.
    fn bytes(&self) -> usize {
        match self {
            Self::Message(packet) => packet.memory_bytes(),
            Self::Lost { .. } => size_of::<Self>(),
        }
    }
}

/// Raises or clears a descriptor as `wanted` says; returns whether it is raised then.
fn set(event: &Event, is_raised: bool, wanted: bool) -> bool {
    match (is_raised, wanted) {
        (false, true) => event.raise(),
        (true, false) => event.clear(),
        _ => {}
    }
    wanted
}

/// A guard that is dropped when a group's thread ends. Unless the thread was told to end, the guard
/// tells the program that no more messages will come.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.0.is_stopped.load(Ordering::Acquire) {
            let text = "the thread that receives for this socket has panicked, which is a fault \
                        of Towline; close the socket, and send the authors of Towline what \
                        standard error says";
            self.0.fail(text.to_owned());
        }
    }
}

/// Runs a group's thread.
fn serve(mut subscriber: Subscriber, mut sink: Sink, mut board: Board) {
    // This tells the program however the thread ends, also by a panic. A reason that the thread
    // gives itself comes first and stays.
    let _ending = Ending(Arc::clone(&sink.shared));
    while !sink.shared.is_stopped.load(Ordering::Acquire) {
        sink.micros = 0;
        let turn = match subscriber.turn(&mut sink) {
            Ok(turn) => turn,
            Err(error) => return sink.shared.fail(error.to_string()),
        };
        let shared = Arc::clone(&sink.shared);
        shared.push(&mut sink.items, &mut sink.spare);
        let showing = board.show(|snapshot| {
            subscriber.snapshot(snapshot);
            snapshot.add(&sink.counters);
        });
        if shared.is_full() {
            // The socket stays readable here, so the thread waits for the program, not for the
            // socket.
            let now = subscriber.now();
            let due = subscriber.next_timeout().map(|due| due.since(now));
            shared.wait_for_room(due.unwrap_or(FULL_WAIT).min(FULL_WAIT));
        } else if turn.is_idle() {
            let until = showing.early().map(|time| subscriber.now() + time);
            subscriber.wait(until);
        }
    }
}

/// The sink of a group's thread: it puts what one turn brings into buffers.
struct Sink {
    shared: Arc<Shared>,
    port: u16,
    mtu: usize,
    sessions: BTreeMap<u32, Tsi>,
    /// The session of the last message: mostly that of the next, too.
    last: Option<(u32, Tsi)>,
    /// The time of this turn in microseconds since 1970; 0 until the first message needs it.
    micros: u64,
    items: VecDeque<Item>,
    spare: Vec<Packet>,
    counters: MessageCounters,
}

impl Sink {
    fn new(shared: Arc<Shared>, port: u16, mtu: usize) -> Self {
        Self {
            shared,
            port,
            mtu,
            sessions: BTreeMap::new(),
            last: None,
            micros: 0,
            items: VecDeque::new(),
            spare: Vec::new(),
            counters: MessageCounters::default(),
        }
    }

    fn tsi(&mut self, session: u32) -> Tsi {
        if let Some((last, tsi)) = self.last
            && last == session
        {
            return tsi;
        }
        let tsi = self.sessions.get(&session).copied().unwrap_or_default();
        self.last = Some((session, tsi));
        tsi
    }

    fn forget(&mut self, session: u32) {
        self.last = None;
        if self.sessions.remove(&session).is_some() {
            self.shared.peers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl MessageSink for Sink {
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        // An empty message would come as 0 bytes. To programs that means that nothing came,
        // although the descriptor was readable.
        if data.is_empty() || data.len() > APDU_BYTES_MAX {
            self.counters.unfit_messages += 1;
            return;
        }
        if self.micros == 0 {
            self.micros = micros();
        }
        let about = About {
            tsi: self.tsi(session),
            port: self.port,
            sequence: position as u32,
            micros: self.micros,
        };
        let mut packet = match self.spare.pop() {
            Some(packet) if packet.has_room(data.len()) => packet,
            _ => Packet::new(data.len().max(self.mtu)),
        };
        packet.fill(&about, data);
        self.items.push_back(Item::Message(packet));
    }

    fn event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Found { session, tsi, .. } => {
                self.last = None;
                if self.sessions.insert(session, Tsi::of(tsi)).is_none() {
                    self.shared.peers.fetch_add(1, Ordering::Relaxed);
                }
            }
            SessionEvent::Lost { session, count, .. } => {
                let tsi = self.tsi(session);
                self.items.push_back(Item::Lost { tsi, count });
            }
            SessionEvent::Ended { session }
            | SessionEvent::Expired { session }
            | SessionEvent::Reset { session }
            | SessionEvent::Dropped { session, .. } => self.forget(session),
            _ => {}
        }
    }

    fn is_full(&self) -> bool {
        self.shared.is_full()
    }
}

/// Reads the time in microseconds since 1970.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// The most emptied buffers that are kept.
const SPARE_MAX: usize = 4096;
/// The longest sleep of a group's thread while packets stream in. Otherwise each burst of a stream
/// would wake this thread twice, and the program's threads with it.
const COALESCE_MAX: Duration = Duration::from_millis(1);
/// The longest sleep of a thread whose program takes nothing.
const FULL_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::Timespec;

    fn sink(incoming: &Incoming) -> Sink {
        Sink::new(Arc::clone(&incoming.shared), 7500, 1500)
    }

    fn is_readable(event: &Event) -> bool {
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn messages_that_no_program_is_given_are_counted() {
        let incoming = Incoming::new(1 << 20).unwrap();
        let mut sink = sink(&incoming);
        for len in [0, 1, APDU_BYTES_MAX, APDU_BYTES_MAX + 1] {
            sink.message(0, 0, &vec![0; len]);
        }
        assert_eq!((sink.items.len(), sink.counters.unfit_messages), (2, 2));
    }

    #[test]
    fn a_program_that_polls_learns_of_a_failure_behind_messages() {
        let incoming = Incoming::new(1 << 20).unwrap();
        let (mut sink, mut inbox) = (sink(&incoming), Inbox::default());
        sink.message(0, 0, b"the last one");
        incoming.shared.push(&mut sink.items, &mut sink.spare);
        incoming.shared.fail("the network is gone".to_owned());
        let item = incoming.next(&mut inbox);
        assert!(matches!(item, Ok(Some(Item::Message(_)))));
        incoming.settle(&mut inbox, Vec::new());
        for _ in 0..2 {
            assert!(is_readable(incoming.recv()));
            assert_eq!(
                incoming.next(&mut inbox).unwrap_err(),
                "the network is gone"
            );
            incoming.settle(&mut inbox, Vec::new());
        }
        incoming.halt();
        assert!(!is_readable(incoming.recv()));
    }
}
