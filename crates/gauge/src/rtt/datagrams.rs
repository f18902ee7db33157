//! Messages as datagrams, and the four ways to call the kernel for them.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use net::{Interfaces, SystemError, interface::Selector};
use sys::{
    Control, DatagramRing, Epoll, Family, Inbox, Interest, RawAddress, UdpSocket, datagram, errno,
    message,
    stamp::{self, Stamps},
};

use super::{
    Engine,
    carrier::{BATCH, Carrier, LOOK, ROOM_BYTES, Rooms, is_passing},
};
use crate::Error;

/// The sockets of one end.
#[derive(Debug)]
pub(super) struct Sockets {
    /// The socket that sends; a client's is connected to the reflector, or to a group of
    /// reflectors.
    socket: UdpSocket,
    /// The socket that receives the answers of a group's reflectors.
    inbound: Option<UdpSocket>,
}

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The end sends to its peer.
    Asks,
    /// The end sends to the sender of the last message.
    Answers,
}

impl Sockets {
    /// Opens the sockets of a client of `peer`: a reflector, or a group of reflectors. A group is
    /// reached by the `wanted` interface; with `None`, by that of the kernel's route.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn towards(peer: SocketAddr, wanted: Option<&Selector>) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            move |error: io::Error| Error::from(SystemError::system(operation, peer, &error))
        };
        let socket = UdpSocket::new(Family::of(&peer)).map_err(refused("open a socket to"))?;
        let mut sockets = Self {
            socket,
            inbound: None,
        };
        if peer.ip().is_multicast() {
            let choice = Interfaces::read()?.choose(wanted, peer.ip())?;
            let (index, local) = (choice.interface.index, choice.local);
            let answers = towards_group(&sockets.socket, peer, index, local);
            sockets.inbound = Some(answers.map_err(refused("send to the group"))?);
        } else {
            datagram::connect(sockets.sending(), peer).map_err(|error| no_way(peer, &error))?;
        }
        // An echo must not be lost because this end's receive buffer is full.
        let receiving = sockets.inbound.as_ref().unwrap_or(&sockets.socket);
        let _granted = receiving
            .set_receive_buffer(BUFFER_BYTES)
            .map_err(refused("enlarge the receive buffer for"))?;
        sockets
            .set_waits()
            .map_err(refused("limit the wait for answers from"))?;
        Ok(sockets)
    }

    /// Opens the socket of a reflector at `listen`: an address of this host, or a group. The
    /// reflector joins a group on the `wanted` interface; with `None`, on that of the kernel's
    /// route.
    ///
    /// # Errors
    /// When the address or port cannot be had.
    pub(super) fn at(listen: SocketAddr, wanted: Option<&Selector>) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            move |error: io::Error| Error::from(SystemError::system(operation, listen, &error))
        };
        let socket = UdpSocket::new(Family::of(&listen)).map_err(refused("open a socket at"))?;
        if listen.ip().is_multicast() {
            let choice = Interfaces::read()?.choose(wanted, listen.ip())?;
            join(&socket, listen, choice.interface.index).map_err(refused("join"))?;
        } else {
            socket
                .bind(listen)
                .map_err(|error| crate::error::cannot_listen(listen, &error))?;
        }
        let _granted = socket
            .set_receive_buffer(BUFFER_BYTES)
            .map_err(refused("enlarge the receive buffer at"))?;
        let sockets = Self {
            socket,
            inbound: None,
        };
        sockets
            .set_waits()
            .map_err(refused("limit the wait for messages at"))?;
        Ok(sockets)
    }

    /// Limits how long a receive call may wait. Calls that must not wait say so each time.
    fn set_waits(&self) -> io::Result<()> {
        datagram::set_blocking(self.receiving(), LOOK)
    }

    /// Returns the address of this end.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the socket by which messages leave.
    pub(super) fn sending(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the socket by which messages arrive.
    pub(super) fn receiving(&self) -> BorrowedFd<'_> {
        self.inbound.as_ref().unwrap_or(&self.socket).as_fd()
    }

    /// Switches the kernel's stamps on or off, for received messages and for messages sent with a
    /// stamp.
    ///
    /// # Errors
    /// When the kernel cannot do this.
    pub(super) fn set_stamping(&self, is_on: bool) -> io::Result<()> {
        let set = if is_on { stamp::enable } else { stamp::disable };
        set(self.sending()).and_then(|()| set(self.receiving()))
    }

    /// Returns how many datagrams the kernel has dropped at these sockets; `None` where it does not
    /// tell.
    fn drops(&self) -> Option<u64> {
        let inbound = self.inbound.as_ref().map(|socket| socket.as_fd());
        let all = [Some(self.socket.as_fd()), inbound].into_iter().flatten();
        all.map(|fd| datagram::drops(fd).ok().map(u64::from)).sum()
    }

    /// Makes the carrier that uses the system calls of `engine`.
    ///
    /// # Errors
    /// When the kernel does not have them.
    pub(super) fn carrier(
        self: &Arc<Self>,
        engine: Engine,
        side: Side,
    ) -> io::Result<Box<dyn Carrier>> {
        let sockets = Arc::clone(self);
        Ok(match engine {
            Engine::Recv => Box::new(Single::new(sockets, side)),
            Engine::Epoll => Box::new(Single::new(sockets, side).polled()?),
            Engine::Mmsg => Box::new(Batch {
                sockets,
                inbox: Inbox::new(BATCH),
            }),
            Engine::IoUring => Box::new(Ring {
                ring: DatagramRing::new(self.receiving(), self.sending(), ROOM_BYTES)?,
                sockets,
                source: RawAddress::empty(),
                side,
            }),
        })
    }

    fn wait(&self, limit: Duration) -> io::Result<bool> {
        datagram::wait_readable(self.receiving(), limit)
    }
}

/// The engines [`Engine::Recv`] and [`Engine::Epoll`]: one system call for each datagram.
#[derive(Debug)]
struct Single {
    sockets: Arc<Sockets>,
    /// The sender of the last datagram; an end with a peer does not need it.
    source: Option<RawAddress>,
    /// The poll set that waits for datagrams; with `None` the socket's own calls wait.
    epoll: Option<Epoll>,
}

impl Single {
    fn new(sockets: Arc<Sockets>, side: Side) -> Self {
        Self {
            sockets,
            source: (side == Side::Answers).then(RawAddress::empty),
            epoll: None,
        }
    }

    fn polled(mut self) -> io::Result<Self> {
        let epoll = Epoll::new(1)?;
        epoll.add(self.sockets.receiving(), 0, Interest::READ)?;
        self.epoll = Some(epoll);
        Ok(self)
    }

    fn take(&mut self, rooms: &mut Rooms, waits: bool) -> io::Result<usize> {
        let fd = self.sockets.receiving();
        let len = match &mut self.source {
            None => datagram::receive(fd, rooms.first(), waits)?,
            Some(source) => datagram::receive_from(fd, rooms.first(), source, waits)?,
        };
        rooms.set_len(0, len);
        Ok(1)
    }
}

impl Carrier for Single {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let fd = self.sockets.sending();
        let sent = match &self.source {
            None => datagram::send(fd, message),
            Some(source) => datagram::send_to(fd, source, message),
        };
        sent.map(|_len| ())
    }

    fn send_stamped(&mut self, message: &[u8]) -> io::Result<()> {
        stamp::send_stamped(self.sockets.sending(), message).map(|_len| ())
    }

    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        self.take(rooms, false)
    }

    fn receive_waiting(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        self.take(rooms, true)
    }

    fn receive_stamped(&mut self, rooms: &mut Rooms) -> io::Result<Stamps> {
        let (len, stamps) = stamp::receive_stamped(self.sockets.receiving(), rooms.first())?;
        rooms.set_len(0, len);
        Ok(stamps)
    }

    fn waits_itself(&self) -> bool {
        self.epoll.is_none()
    }

    fn is_ready(&mut self) -> io::Result<Option<bool>> {
        self.sockets.wait(Duration::ZERO).map(Some)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        match &mut self.epoll {
            Some(epoll) => epoll.wait(Some(limit)).map(|_ready| ()),
            None => self.sockets.wait(limit).map(|_ready| ()),
        }
    }

    fn socket_drops(&self) -> Option<u64> {
        self.sockets.drops()
    }
}

/// The engine [`Engine::Mmsg`]: many datagrams in a call. Datagrams of a schedule still leave one
/// by one.
#[derive(Debug)]
struct Batch {
    sockets: Arc<Sockets>,
    inbox: Inbox,
}

impl Carrier for Batch {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        datagram::send(self.sockets.sending(), message).map(|_len| ())
    }

    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        let fd = self.sockets.receiving();
        let count = self.inbox.receive(fd, rooms.all(), false)?;
        for index in 0..count {
            rooms.set_len(index, self.inbox.message(index).len);
        }
        Ok(count)
    }

    /// Sends consecutive answers to one client in one call.
    fn reply(&mut self, rooms: &Rooms, count: usize) -> io::Result<u64> {
        let mut sources = [None; BATCH];
        for (index, source) in sources.iter_mut().enumerate().take(count) {
            if !rooms.message(index).is_empty() {
                *source = self.inbox.message(index).source;
            }
        }
        let (mut index, mut refused) = (0, 0);
        while index < count {
            let Some(source) = sources[index] else {
                index += 1;
                continue;
            };
            let is_same = |it: &&Option<SocketAddr>| **it == Some(source);
            let same = sources[index..count].iter().take_while(is_same).count();
            let mut answers: [IoSlice<'_>; BATCH] = std::array::from_fn(|_| IoSlice::new(&[]));
            for (at, answer) in answers.iter_mut().enumerate().take(same) {
                *answer = IoSlice::new(rooms.message(index + at));
            }
            let (fd, to) = (self.sockets.sending(), RawAddress::from(source));
            refused += match message::send_many(fd, &to, &answers[..same], &Control::new()) {
                // The socket had no room for the other answers: they are lost, and counted.
                Ok(sent) => same - sent,
                Err(error) if is_passing(&error) => same,
                Err(error) => return Err(error),
            } as u64;
            index += same;
        }
        Ok(refused)
    }

    fn is_ready(&mut self) -> io::Result<Option<bool>> {
        self.sockets.wait(Duration::ZERO).map(Some)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.sockets.wait(limit).map(|_ready| ())
    }

    fn socket_drops(&self) -> Option<u64> {
        self.sockets.drops()
    }
}

/// The engine [`Engine::IoUring`]: a receive request is always in the kernel. Shared memory shows
/// when a datagram has come.
#[derive(Debug)]
struct Ring {
    /// The ring comes before the sockets, so that it is dropped first: it uses their descriptors.
    ring: DatagramRing,
    sockets: Arc<Sockets>,
    source: RawAddress,
    side: Side,
}

impl Carrier for Ring {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let to = (self.side == Side::Answers).then_some(&self.source);
        self.ring.send(to, message)
    }

    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        let len = self.ring.receive(rooms.first(), &mut self.source)?;
        rooms.set_len(0, len);
        Ok(1)
    }

    fn is_ready(&mut self) -> io::Result<Option<bool>> {
        Ok(Some(self.ring.has_received()))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.ring.wait(limit)
    }

    fn socket_drops(&self) -> Option<u64> {
        self.sockets.drops()
    }
}

/// Connects a socket to a group. Answers come to a second socket with the same address, which
/// accepts any sender.
fn towards_group(
    socket: &UdpSocket,
    group: SocketAddr,
    interface: u32,
    local: IpAddr,
) -> io::Result<UdpSocket> {
    socket.set_reuse_address(true)?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.set_multicast_interface(interface, local)?;
    let inbound = UdpSocket::new(Family::of(&group))?;
    inbound.set_reuse_address(true)?;
    inbound.bind(socket.local_addr()?)?;
    datagram::connect(socket.as_fd(), group)?;
    Ok(inbound)
}

/// Makes the error of a host to which no route leads. The usual remedies would speak of a choice of
/// the interface, which only groups have, and of an address of this host.
pub(crate) fn no_way(peer: SocketAddr, error: &io::Error) -> SystemError {
    let refused = SystemError::system("find a way to", peer, error);
    match error.raw_os_error() {
        Some(errno::ENETUNREACH) => refused.advise("add a route there (`ip route`)"),
        Some(errno::EADDRNOTAVAIL) => refused.advise(
            "this host has no address from which packets could go there: name an address of the \
             other IP version, or give this host an address (`ip address`)",
        ),
        _ => refused,
    }
}

/// Joins a group. Answers to its messages then leave from this host's own address.
fn join(socket: &UdpSocket, group: SocketAddr, interface: u32) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    socket.bind(group)?;
    socket.set_multicast_all(false)?;
    socket.join(group.ip(), interface, None)
}

const BUFFER_BYTES: usize = 4 << 20;
