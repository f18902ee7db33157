//! A long path to one host: a thread for each direction takes the frames that pass the host's
//! cable, and passes each on when its time has come.
//!
//! ```text
//! host N  e0 ---- pN  | taken, kept, sent |  dN ---- qN  br0
//! ```
//! The kernel's own emulator (netem) is not in every kernel. Runs of segments that were not cut yet
//! pass whole, as they do without a delay.

use std::{
    collections::VecDeque,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sys::{
    datagram,
    packet::{PacketSocket, Packets},
};

use crate::LabError;

/// A long path to a host of a lab. When it is dropped, nothing passes the host's cable any more.
#[derive(Debug)]
pub struct LongPath {
    is_over: Arc<AtomicBool>,
    overflows: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl LongPath {
    /// Joins two interfaces of the calling thread's namespace, given by their numbers. Each frame
    /// takes `delay` from one to the other.
    pub(crate) fn between(one: u32, other: u32, delay: Duration) -> Result<Self, LabError> {
        let open = |interface| tap(interface).map_err(|e| LabError::os("open a long path", e));
        let (one, other) = (Arc::new(open(one)?), Arc::new(open(other)?));
        let mut path = Self {
            is_over: Arc::default(),
            overflows: Arc::default(),
            threads: Vec::new(),
        };
        for (from, to) in [(&one, &other), (&other, &one)] {
            let way = Way {
                from: Arc::clone(from),
                to: Arc::clone(to),
                delay,
                kept: VecDeque::new(),
                kept_bytes: 0,
                is_over: Arc::clone(&path.is_over),
                overflows: Arc::clone(&path.overflows),
            };
            let thread = thread::Builder::new().name("path".into());
            let thread = thread.spawn(move || way.run());
            path.threads
                .push(thread.map_err(|e| LabError::os("start a thread of a long path", e))?);
        }
        Ok(path)
    }

    /// Returns how many frames were lost because too many bytes were under way, or because an
    /// interface did not take them.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }
}

impl Drop for LongPath {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread was printed already.
            drop(thread.join());
        }
    }
}

/// Opens a socket that gets every frame of an interface, with the offload work (checksums, cutting)
/// that the kernel left to an adapter.
fn tap(interface: u32) -> std::io::Result<PacketSocket> {
    let mut socket = PacketSocket::open()?;
    socket.set_offload(true)?;
    socket.set_ignore_outgoing(true)?;
    socket.set_receive_buffer(SOCKET_BYTES)?;
    socket.bind(interface, Packets::All)?;
    socket.set_promiscuous(interface)?;
    Ok(socket)
}

/// One direction.
struct Way {
    from: Arc<PacketSocket>,
    to: Arc<PacketSocket>,
    delay: Duration,
    /// Frames under way, each with the time when it is due.
    kept: VecDeque<(Instant, Vec<u8>)>,
    kept_bytes: usize,
    is_over: Arc<AtomicBool>,
    overflows: Arc<AtomicU64>,
}

impl Way {
    fn run(mut self) {
        let mut room = vec![0; FRAME_BYTES_MAX];
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.pass_on(now);
            self.take(now, &mut room);
            let next = self.kept.front();
            let limit = next.map_or(LOOK, |(due, _)| {
                due.saturating_duration_since(Instant::now()).min(LOOK)
            });
            // If the wait fails, the loop just looks again.
            let _ready = datagram::wait_readable(self.from.as_fd(), limit);
        }
    }

    /// Takes what has arrived, up to [`FRAMES_AT_ONCE`] frames.
    fn take(&mut self, now: Instant, room: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            // An error means that nothing has arrived, or that the interface is down.
            let Ok(len) = datagram::receive(self.from.as_fd(), room, false) else {
                return;
            };
            if self.kept_bytes + len > PATH_BYTES_MAX {
                self.overflows.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.kept_bytes += len;
            self.kept
                .push_back((now + self.delay, room[..len].to_vec()));
        }
    }

    /// Sends what is due.
    fn pass_on(&mut self, now: Instant) {
        while self.kept.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, frame)) = self.kept.pop_front() else {
                return;
            };
            self.kept_bytes -= frame.len();
            // A frame that the interface does not take is lost, as on any path.
            if !self.to.send(&frame).unwrap_or(false) {
                self.overflows.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The longest frame: a run of segments, its headers, and the kernel's offload header.
const FRAME_BYTES_MAX: usize = 68 << 10;
/// Bytes under way in one direction: 10 Gbit/s for 100 ms.
const PATH_BYTES_MAX: usize = 128 << 20;
/// Bytes that may arrive while the thread does something else.
const SOCKET_BYTES: usize = 32 << 20;
/// Frames taken before the thread looks for frames that are due.
const FRAMES_AT_ONCE: u32 = 64;
/// How often a thread looks whether the path has ended.
const LOOK: Duration = Duration::from_millis(50);
