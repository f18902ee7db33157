//! The receiving half of a trial: counts every datagram once.

use std::{
    io,
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use measure::sweep::{Header, Tally};
use sys::{Inbox, UdpSocket, datagram, message::MANY_MAX};

use super::{
    path::GREETING,
    protocol::{Mode, Receipt},
    sender::nanos,
};

/// What a receiver and the control thread share: how many datagrams were sent, when to stop, and
/// how many have come. This struct has cache lines of its own, because the sending thread writes
/// its own count beside the struct.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Expectation {
    /// How many datagrams were sent; [`Expectation::UNKNOWN`] until the sender has ended.
    pub(super) sent: AtomicU64,
    pub(super) stop: AtomicBool,
    /// How many datagrams have come so far.
    pub(super) received: AtomicU64,
}

impl Expectation {
    pub(super) const UNKNOWN: u64 = u64::MAX;

    pub(super) const fn new() -> Self {
        Self {
            sent: AtomicU64::new(Self::UNKNOWN),
            stop: AtomicBool::new(false),
            received: AtomicU64::new(0),
        }
    }

    /// Notes that all datagrams were sent. The receiver ends when it has them, or when nothing more
    /// comes.
    pub(super) fn set_sent(&self, sent: u64) {
        self.sent.store(sent, Ordering::Release);
    }
}

/// Receives until all datagrams are there, until all were sent and nothing more comes, or until
/// `expectation` says to stop.
///
/// # Errors
/// When the system refuses to receive.
pub(super) fn receive(
    socket: &UdpSocket,
    (token, size_bytes, mode): (u64, usize, Mode),
    expectation: &Expectation,
) -> io::Result<Receipt> {
    let cpu = sys::clock::thread_cpu();
    let mut receiver = Receiver::new(socket, token, size_bytes, mode)?;
    receiver.run(expectation)?;
    let mut receipt = receiver.receipt;
    receipt.received = receiver.tally.received();
    receipt.duplicates = receiver.tally.duplicates();
    receipt.out_of_order = receiver.tally.out_of_order();
    receipt.socket_drops = socket.drops().map_or(0, u64::from);
    receipt.cpu_ns = nanos(sys::clock::thread_cpu().saturating_sub(cpu));
    Ok(receipt)
}

struct Receiver<'a> {
    socket: &'a UdpSocket,
    token: u64,
    mode: Mode,
    room: usize,
    rooms: Vec<u8>,
    inbox: Inbox,
    tally: Tally,
    receipt: Receipt,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl<'a> Receiver<'a> {
    fn new(socket: &'a UdpSocket, token: u64, size_bytes: usize, mode: Mode) -> io::Result<Self> {
        let (room, messages) = match mode {
            Mode::One => (size_bytes, 1),
            Mode::Batch => (size_bytes, MANY_MAX),
            Mode::Gso => (GRO_BYTES_MAX, GRO_MESSAGES),
        };
        datagram::set_blocking(socket.as_fd(), LOOK)?;
        Ok(Self {
            socket,
            token,
            mode,
            room,
            rooms: vec![0; room * messages],
            inbox: Inbox::new(messages),
            tally: Tally::new(),
            receipt: Receipt::default(),
            first_ns: None,
            last_ns: now_ns(),
        })
    }

    fn run(&mut self, expectation: &Expectation) -> io::Result<()> {
        let mut known_since = None;
        loop {
            let before = self.tally.received();
            match self.take() {
                Ok(()) => {
                    self.note(before);
                    let received = self.tally.received();
                    expectation.received.store(received, Ordering::Relaxed);
                }
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
            }
            if expectation.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let sent = expectation.sent.load(Ordering::Acquire);
            if sent == Expectation::UNKNOWN {
                continue;
            }
            let now = now_ns();
            let since = *known_since.get_or_insert(now);
            let quiet_ns = now.saturating_sub(self.last_ns.max(since));
            if self.tally.received() >= sent || quiet_ns > QUIET_NS {
                return Ok(());
            }
        }
    }

    fn note(&mut self, before: u64) {
        let came = self.tally.received() - before;
        if came == 0 {
            return;
        }
        self.last_ns = now_ns();
        let first = *self.first_ns.get_or_insert_with(|| {
            self.receipt.received_first = came;
            self.last_ns
        });
        self.receipt.lasted_ns = self.last_ns - first;
    }

    /// Receives the datagrams that are there; waits a moment when there are none.
    fn take(&mut self) -> io::Result<()> {
        let fd = self.socket.as_fd();
        if self.mode == Mode::One {
            let len = datagram::receive(fd, &mut self.rooms, true)?;
            self.count(0, len);
            return Ok(());
        }
        let count = match self
            .inbox
            .receive(fd, self.rooms.chunks_mut(self.room), false)
        {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                datagram::wait_readable(fd, LOOK)?;
                return Ok(());
            }
            received => received?,
        };
        for index in 0..count {
            let message = self.inbox.message(index);
            let segment = message.segment.unwrap_or(message.len).max(1);
            let (mut at, end) = (index * self.room, index * self.room + message.len);
            while at < end {
                let len = segment.min(end - at);
                self.count(at, len);
                at += len;
            }
        }
        Ok(())
    }

    fn count(&mut self, at: usize, len: usize) {
        match Header::parse(&self.rooms[at..at + len]) {
            Some(header) if header.sequence == GREETING => {}
            Some(header) if header.token == self.token => {
                self.tally.take(header.sequence);
            }
            _ => self.receipt.foreign += 1,
        }
    }
}

/// Returns true for errors which mean that nothing came, or that an earlier datagram of this end
/// caused an ICMP message.
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::WouldBlock
            | Kind::Interrupted
            | Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
    )
}

fn now_ns() -> u64 {
    sys::clock::monotonic().as_nanos()
}

/// The longest wait for a datagram before the receiver checks whether to end.
const LOOK: Duration = Duration::from_millis(5);
/// If no datagram comes for this many nanoseconds after the last was sent, none is under way.
const QUIET_NS: u64 = 150_000_000;
const GRO_BYTES_MAX: usize = 65_535;
const GRO_MESSAGES: usize = 16;
