//! The sending half of a trial: datagrams as fast as possible, or on a schedule.

use std::{
    io::{self, IoSlice},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use base::RunLimit;
use measure::{
    Schedule,
    sweep::{Header, Load},
};
use sys::{UdpSocket, datagram, errno, message::MANY_MAX};

use super::protocol::{Dispatch, Mode};

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendPlan {
    pub(super) token: u64,
    pub(super) size_bytes: usize,
    pub(super) mode: Mode,
    pub(super) load: Load,
    pub(super) duration: Duration,
}

/// Sends for as long as the plan says, or until `stop`, and keeps the count in `sent`.
///
/// # Errors
/// When the system refuses to send: a datagram is too long, or a segment does not fit.
pub(super) fn send(
    socket: &UdpSocket,
    plan: &SendPlan,
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> io::Result<Dispatch> {
    let mut sender = Sender::new(socket, plan);
    let cpu = sys::clock::thread_cpu();
    let result = sender.run(stop, sent);
    sender.dispatch.cpu_ns = nanos(sys::clock::thread_cpu().saturating_sub(cpu));
    result.map(|()| sender.dispatch)
}

struct Sender<'a> {
    socket: &'a UdpSocket,
    plan: &'a SendPlan,
    schedule: Option<Schedule>,
    /// Datagrams back to back, complete except for their sequence numbers.
    bytes: Vec<u8>,
    /// How many datagrams leave in one call.
    batch: u64,
    start_ns: u64,
    /// How many slots of the schedule are over.
    slot: u64,
    dispatch: Dispatch,
}

impl<'a> Sender<'a> {
    fn new(socket: &'a UdpSocket, plan: &'a SendPlan) -> Self {
        let schedule = match plan.load {
            Load::Flood => None,
            Load::Rate(rate) => Schedule::new(rate.clamp(1, Schedule::RATE_MAX)).ok(),
        };
        let most = match plan.mode {
            Mode::One => 1,
            Mode::Batch => MANY_MAX as u64,
            Mode::Gso => ((RunLimit::BYTES_MAX / plan.size_bytes) as u64).clamp(1, MANY_MAX as u64),
        };
        // On a schedule, a batch holds the datagrams that are due within [`SPAN_NS`].
        let batch = schedule.map_or(most, |it| it.slots_within(SPAN_NS).clamp(1, most));
        let mut bytes = vec![0; plan.size_bytes * batch as usize];
        for datagram in bytes.chunks_mut(plan.size_bytes) {
            let (token, sequence) = (plan.token, 0);
            Header { token, sequence }.emit(datagram);
        }
        Self {
            socket,
            plan,
            schedule,
            bytes,
            batch,
            start_ns: now_ns(),
            slot: 0,
            dispatch: Dispatch::default(),
        }
    }

    fn run(&mut self, stop: &AtomicBool, sent: &AtomicU64) -> io::Result<()> {
        let duration_ns = nanos(self.plan.duration);
        loop {
            let elapsed_ns = now_ns() - self.start_ns;
            if elapsed_ns >= duration_ns || stop.load(Ordering::Relaxed) {
                break;
            }
            match self.due(elapsed_ns) {
                0 => self.rest(duration_ns),
                due => {
                    self.push(due)?;
                    sent.store(self.dispatch.sent, Ordering::Relaxed);
                }
            }
        }
        self.dispatch.lasted_ns = now_ns() - self.start_ns;
        Ok(())
    }

    /// Returns how many datagrams to send now; 0 when none is due.
    fn due(&mut self, elapsed_ns: u64) -> u64 {
        let Some(schedule) = self.schedule else {
            return self.batch;
        };
        let due = schedule.slots_due(elapsed_ns);
        let behind = due.saturating_sub(self.slot);
        // After a pause, only the newest 3 ms (or two batches) are sent: no path has to carry a
        // longer burst.
        let burst = schedule.slots_within(BURST_NS).max(2 * self.batch);
        if behind > burst {
            self.slot = due - burst;
        }
        if behind < self.batch { 0 } else { self.batch }
    }

    /// Waits until the next batch is due.
    fn rest(&self, duration_ns: u64) {
        let Some(schedule) = self.schedule else {
            return;
        };
        let due = schedule.due_ns(self.slot + self.batch - 1).min(duration_ns);
        let left = (self.start_ns + due).saturating_sub(now_ns());
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        }
    }

    fn push(&mut self, due: u64) -> io::Result<()> {
        let size_bytes = self.plan.size_bytes;
        let first = self.dispatch.sent;
        let bytes = &mut self.bytes[..size_bytes * due as usize];
        for (datagram, sequence) in bytes.chunks_mut(size_bytes).zip(first..) {
            Header::set_sequence(datagram, sequence);
        }
        let fd = self.socket.as_fd();
        let sent = match self.plan.mode {
            Mode::One => datagram::send(fd, bytes).map(|_len| 1),
            Mode::Batch => {
                let mut pieces = [IoSlice::new(&[]); MANY_MAX];
                for (piece, datagram) in pieces.iter_mut().zip(bytes.chunks(size_bytes)) {
                    *piece = IoSlice::new(datagram);
                }
                datagram::send_many(fd, &pieces[..due as usize]).map(|sent| sent as u64)
            }
            Mode::Gso => match u16::try_from(size_bytes) {
                Ok(segment) => datagram::send_segments(fd, bytes, segment).map(|_len| due),
                Err(_) => Err(io::Error::from_raw_os_error(errno::EMSGSIZE)),
            },
        };
        match sent {
            Ok(sent) => {
                self.dispatch.sent += sent;
                self.slot += sent;
            }
            Err(error) => self.fault(error)?,
        }
        Ok(())
    }

    fn fault(&mut self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(errno::ENOBUFS) => {
                let refused = if self.plan.mode == Mode::Gso {
                    self.batch
                } else {
                    1
                };
                self.dispatch.refused += refused;
                self.slot += refused;
                Ok(())
            }
            Some(errno::EAGAIN) => {
                self.dispatch.waits += 1;
                datagram::wait_writable(self.socket.as_fd(), WAIT).map(|_ready| ())
            }
            // The error is that of an earlier datagram; this one was not sent.
            Some(errno::ECONNREFUSED | errno::EHOSTUNREACH | errno::ENETUNREACH) => {
                let _reports = sys::message::discard_errors(self.socket.as_fd(), MANY_MAX);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

fn now_ns() -> u64 {
    sys::clock::monotonic().as_nanos()
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Datagrams that are due within this many nanoseconds leave in one call, in the modes that can do
/// so.
pub(super) const SPAN_NS: u64 = 500_000;
/// The longest burst after a pause, in nanoseconds of the schedule.
const BURST_NS: u64 = 3_000_000;
/// The nanoseconds by which a sleep may end late; the sender spins for that time.
const SPIN_NS: u64 = 80_000;
const WAIT: Duration = Duration::from_millis(5);
