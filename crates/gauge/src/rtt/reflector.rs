//! The end that answers: sends every message back from the application.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use measure::{ClockWord, Probe, ProbeKind};
use net::{Interfaces, SystemError};
use sys::{
    Control, DatagramRing, Epoll, Family, Inbox, Interest, RawAddress, UdpSocket, datagram, message,
};

use super::{Engine, Wait};
use crate::Error;

/// How a reflector works.
#[derive(Clone, Copy, Debug)]
pub struct ReflectSpec {
    /// Where it listens: an address of this host, or a group, which it joins on the interface of
    /// the kernel's route.
    pub listen: SocketAddr,
    /// Which calls move the packets.
    pub engine: Engine,
    /// How it waits.
    pub wait: Wait,
}

/// Answers whoever asks, any number at a time.
#[derive(Debug)]
pub struct Reflector {
    socket: UdpSocket,
    epoll: Epoll,
    inbox: Inbox,
    /// What moves the datagrams with [`Engine::IoUring`].
    ring: Option<DatagramRing>,
    rooms: Vec<u8>,
    spec: ReflectSpec,
    counts: ReflectCounts,
    remark: Option<String>,
}

/// What a reflector did. Counts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectCounts {
    /// Greetings answered: measurements that began.
    pub greeted: u64,
    /// Messages sent back.
    pub answered: u64,
    /// What was no message of a measurement; left alone.
    pub foreign: u64,
    /// Answers that the kernel refused to send.
    pub refused: u64,
}

impl Reflector {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the address or port cannot be had.
    pub fn open(mut spec: ReflectSpec) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            move |error: io::Error| Error::from(SystemError::system(operation, spec.listen, &error))
        };
        let socket =
            UdpSocket::new(Family::of(&spec.listen)).map_err(refused("open a socket at"))?;
        if spec.listen.ip().is_multicast() {
            let index = route(spec.listen.ip())?;
            join(&socket, spec.listen, index).map_err(refused("join"))?;
        } else {
            socket.bind(spec.listen).map_err(refused("listen at"))?;
        }
        let _granted = socket
            .set_receive_buffer(BUFFER_BYTES)
            .map_err(refused("enlarge the receive buffer at"))?;
        if (spec.wait == Wait::Block && spec.engine == Engine::Recv)
            || spec.engine == Engine::IoUring
        {
            datagram::set_blocking(socket.as_fd(), LOOK).map_err(refused("wait at"))?;
        }
        let (mut ring, mut remark) = (None, None);
        if spec.engine == Engine::IoUring {
            match DatagramRing::new(socket.as_fd(), socket.as_fd(), ROOM_BYTES) {
                Ok(made) => ring = Some(made),
                Err(error) => {
                    remark = Some(Engine::refusal(&error));
                    spec.engine = Engine::Recv;
                }
            }
        }
        let epoll = Epoll::new(1).map_err(refused("make a poll set at"))?;
        epoll
            .add(socket.as_fd(), 0, Interest::READ)
            .map_err(refused("wait at"))?;
        Ok(Self {
            socket,
            epoll,
            inbox: Inbox::new(BATCH),
            ring,
            rooms: vec![0; BATCH * ROOM_BYTES],
            spec,
            counts: ReflectCounts::default(),
            remark,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Never in practice.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        let refused = |error: io::Error| SystemError::system("name", self.spec.listen, &error);
        Ok(self.socket.local_addr().map_err(refused)?)
    }

    /// What could not be had, and what is done instead.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Answers until the caller says stop, which is looked at 50 times a second at least.
    ///
    /// # Errors
    /// When the socket is beyond use.
    pub fn run(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<ReflectCounts, Error> {
        while !is_stopped() {
            let result = match self.spec.engine {
                Engine::Recv | Engine::Epoll | Engine::IoUring => self.one(),
                Engine::Mmsg => self.many(),
            };
            let result = match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.rest(),
                other => other,
            };
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that has left: its own affair.
                Err(error) if is_passing(&error) => self.counts.refused += 1,
                Err(error) => {
                    let listen = self.spec.listen;
                    return Err(SystemError::system("reflect at", listen, &error).into());
                }
            }
        }
        Ok(self.counts)
    }

    /// What it did so far.
    #[must_use]
    pub const fn counts(&self) -> ReflectCounts {
        self.counts
    }

    fn one(&mut self) -> io::Result<()> {
        let blocking = self.spec.wait == Wait::Block && self.spec.engine == Engine::Recv;
        let mut from = RawAddress::empty();
        let fd = self.socket.as_fd();
        let len = match &mut self.ring {
            Some(ring) => ring.receive(&mut self.rooms, &mut from)?,
            None => datagram::receive_from(fd, &mut self.rooms, &mut from, blocking)?,
        };
        if !self.counts.answer(&mut self.rooms[..len]) {
            return Ok(());
        }
        let answer = &self.rooms[..len];
        let sent = match &mut self.ring {
            Some(ring) => ring.send(Some(&from), answer),
            None => datagram::send_to(fd, &from, answer).map(|_len| ()),
        };
        match sent {
            Err(error) if is_passing(&error) => {
                self.counts.refused += 1;
                Ok(())
            }
            sent => sent,
        }
    }

    /// Answers a batch; neighbours from one client leave in one call.
    fn many(&mut self) -> io::Result<()> {
        let fd = self.socket.as_fd();
        let rooms = self.rooms.chunks_mut(ROOM_BYTES);
        let count = self.inbox.receive(fd, rooms, false)?;
        let mut lens = [0; BATCH];
        let mut sources = [None; BATCH];
        for (index, room) in self.rooms.chunks_mut(ROOM_BYTES).take(count).enumerate() {
            let received = self.inbox.message(index);
            if self.counts.answer(&mut room[..received.len]) {
                (lens[index], sources[index]) = (received.len, received.source);
            }
        }
        let mut index = 0;
        while index < count {
            let Some(source) = sources[index] else {
                index += 1;
                continue;
            };
            let same = sources[index..count]
                .iter()
                .take_while(|it| **it == Some(source));
            let end = index + same.count();
            let mut answers: [IoSlice<'_>; BATCH] = std::array::from_fn(|_| IoSlice::new(&[]));
            for (answer, at) in answers.iter_mut().zip(index..end) {
                *answer = IoSlice::new(&self.rooms[at * ROOM_BYTES..][..lens[at]]);
            }
            let to = RawAddress::from(source);
            let sent = message::send_many(fd, &to, &answers[..end - index], &Control::new());
            match sent {
                // What did not leave has no room: lost, and counted.
                Ok(sent) => self.counts.refused += (end - index - sent) as u64,
                Err(error) if is_passing(&error) => {
                    self.counts.refused += (end - index) as u64;
                }
                Err(error) => return Err(error),
            }
            index = end;
        }
        Ok(())
    }

    fn rest(&mut self) -> io::Result<()> {
        match (self.spec.wait, self.spec.engine) {
            // The receiving call itself has waited.
            (Wait::Spin, _) | (Wait::Block, Engine::Recv) => {}
            (Wait::Busy, _) => {
                let end = sys::clock::monotonic() + BUSY;
                while sys::clock::monotonic() < end {
                    let is_there = match &mut self.ring {
                        Some(ring) => ring.has_received(),
                        None => datagram::wait_readable(self.socket.as_fd(), Duration::ZERO)?,
                    };
                    if is_there {
                        return Ok(());
                    }
                }
                self.sleep()?;
            }
            (Wait::Block, Engine::Epoll) => {
                let ready = self.epoll.wait(Some(LOOK))?.len();
                debug_assert!(ready <= 1, "one socket is in the set");
            }
            (Wait::Block, Engine::Mmsg | Engine::IoUring) => self.sleep()?,
        }
        Ok(())
    }

    /// Until something is there, or it is time to look whether to stop.
    fn sleep(&mut self) -> io::Result<()> {
        match &mut self.ring {
            Some(ring) => ring.wait(LOOK),
            None => datagram::wait_readable(self.socket.as_fd(), LOOK).map(|_ready| ()),
        }
    }
}

impl ReflectCounts {
    /// Adds those of another client.
    pub(super) const fn add(&mut self, other: &Self) {
        self.greeted += other.greeted;
        self.answered += other.answered;
        self.foreign += other.foreign;
        self.refused += other.refused;
    }

    /// Makes an answer of a message in place; false when it deserves none.
    pub(super) fn answer(&mut self, message: &mut [u8]) -> bool {
        match Probe::answer(message).map(|asked| asked.kind) {
            Some(ProbeKind::Hello) => self.greeted += 1,
            Some(ProbeKind::Clock) => {
                tell_clock(message);
                self.answered += 1;
            }
            Some(_) => self.answered += 1,
            None => {
                self.foreign += 1;
                return false;
            }
        }
        true
    }
}

/// Puts into an answer what this host's wall clock is good for, and when that was said.
fn tell_clock(message: &mut [u8]) {
    let received_ns = sys::clock::wall_nanos();
    // A kernel that does not tell has a clock that nobody vouches for.
    let found = sys::discipline::read().ok();
    let mut word = ClockWord {
        is_synchronised: found.is_some_and(|it| it.is_synchronised),
        error_ns_max: found.map_or(u64::MAX, |it| it.error_ns_max),
        error_ns_estimated: found.map_or(u64::MAX, |it| it.error_ns_estimated),
        received_ns,
        sent_ns: received_ns,
    };
    // The wall clock may be set between two readings.
    word.sent_ns = sys::clock::wall_nanos().max(received_ns);
    word.put(message);
}

/// The interface by which a group leaves, and should come.
fn route(group: IpAddr) -> Result<u32, Error> {
    Ok(Interfaces::read()?.choose(None, group)?.interface.index)
}

/// Answers to what comes through the group leave from this host's own address.
fn join(socket: &UdpSocket, group: SocketAddr, interface: u32) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    socket.bind(group)?;
    socket.set_multicast_all(false)?;
    socket.join(group.ip(), interface, None)
}

/// Errors that concern one client, or one moment.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::Interrupted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::PermissionDenied
            | Kind::WouldBlock
    ) || error.raw_os_error() == Some(sys::errno::ENOBUFS)
}

/// How often a waiting reflector looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long a busy reflector looks for the next message before it sleeps.
const BUSY: Duration = Duration::from_micros(200);
const BATCH: usize = 32;
const ROOM_BYTES: usize = 65_536;
const BUFFER_BYTES: usize = 4 << 20;
