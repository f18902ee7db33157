//! The sockets of one trial.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use measure::sweep::{HEADER_BYTES, Header};
use sys::{Family, PathMtu, RawAddress, UdpSocket, datagram};

use super::{Mode, Profile, counters::Port, protocol::TrialSpec};

/// The sockets by which one end sends and receives.
#[derive(Debug)]
pub(super) struct DataPath {
    /// The socket that is connected to the other end, or to the group.
    socket: UdpSocket,
    /// The socket that receives the group.
    group: Option<UdpSocket>,
}

impl DataPath {
    /// Opens the client's sockets, towards the server's port.
    pub(super) fn client(
        spec: &TrialSpec,
        server: SocketAddr,
        (port, local): (&Port, IpAddr),
        is_same_host: bool,
    ) -> io::Result<Self> {
        if let Some(group) = spec.group {
            return Self::group(spec, group, port, local, is_same_host);
        }
        let socket = UdpSocket::new(Family::of(&server))?;
        datagram::connect(socket.as_fd(), server)?;
        set_up(&socket, spec)?;
        Ok(Self {
            socket,
            group: None,
        })
    }

    /// Opens the server's sockets. For unicast, [`DataPath::meet`] must find the client before they
    /// are used.
    pub(super) fn server(
        spec: &TrialSpec,
        local: SocketAddr,
        port: &Port,
        peer: IpAddr,
    ) -> io::Result<Self> {
        if let Some(group) = spec.group {
            return Self::group(spec, group, port, local.ip(), peer == local.ip());
        }
        let socket = UdpSocket::new(Family::of(&local))?;
        socket.bind(local)?;
        set_up(&socket, spec)?;
        Ok(Self {
            socket,
            group: None,
        })
    }

    fn group(
        spec: &TrialSpec,
        group: SocketAddr,
        port: &Port,
        local: IpAddr,
        is_same_host: bool,
    ) -> io::Result<Self> {
        let socket = UdpSocket::new(Family::of(&group))?;
        socket.bind(SocketAddr::new(local, 0))?;
        socket.set_multicast_interface(port.index, local)?;
        socket.set_multicast_hops(spec.hops)?;
        socket.set_multicast_loop(is_same_host)?;
        datagram::connect(socket.as_fd(), group)?;
        let inbound = UdpSocket::new(Family::of(&group))?;
        inbound.set_reuse_address(true)?;
        inbound.bind(group)?;
        inbound.join(group.ip(), port.index, None)?;
        inbound.set_multicast_all(false)?;
        set_up(&socket, spec)?;
        set_up(&inbound, spec)?;
        Ok(Self {
            socket,
            group: Some(inbound),
        })
    }

    /// Waits at most `limit` for a datagram with the trial's token from `peer`, and from then on
    /// talks only to its sender. Returns false when none came. A group needs no such meeting.
    pub(super) fn meet(&self, token: u64, peer: IpAddr, limit: Duration) -> io::Result<bool> {
        if self.group.is_some() {
            return Ok(true);
        }
        let end = sys::clock::monotonic() + limit;
        let mut room = [0; HEADER_BYTES];
        loop {
            let left = end.since(sys::clock::monotonic());
            if left.is_zero() {
                return Ok(false);
            }
            if !datagram::wait_readable(self.socket.as_fd(), left)? {
                continue;
            }
            let mut from = RawAddress::empty();
            let len = match datagram::receive_from(self.socket.as_fd(), &mut room, &mut from, false)
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            let is_ours = Header::parse(&room[..len]).is_some_and(|it| it.token == token);
            let Some(from) = from
                .to_socket_addr()
                .filter(|from| is_ours && from.ip() == peer)
            else {
                continue;
            };
            datagram::connect(self.socket.as_fd(), from)?;
            return Ok(true);
        }
    }

    /// Sends a datagram that shows this end's address to the server.
    pub(super) fn greet(&self, token: u64) {
        if self.group.is_none() {
            let mut hello = [0; HEADER_BYTES];
            let sequence = GREETING;
            Header { token, sequence }.emit(&mut hello);
            // The client repeats greetings until the server has heard one, so this one may be lost.
            let _sent = datagram::send(self.socket.as_fd(), &hello);
        }
    }

    pub(super) const fn outbound(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn inbound(&self) -> &UdpSocket {
        self.group.as_ref().unwrap_or(&self.socket)
    }
}

fn set_up(socket: &UdpSocket, spec: &TrialSpec) -> io::Result<()> {
    // With this, the kernel reports datagrams that the interface's queue drops, and fragments
    // datagrams that are too long.
    socket.set_error_report(true)?;
    socket.set_path_mtu(PathMtu::Fragment)?;
    if spec.profile == Profile::Tuned {
        let _granted = socket.set_receive_buffer(TUNED_BYTES)?;
        let _granted = socket.set_send_buffer(TUNED_BYTES)?;
    }
    if spec.mode == Mode::Gso {
        socket.set_gro(true)?;
    }
    Ok(())
}

/// The sequence number of greetings, which only show the address of an end.
pub(super) const GREETING: u64 = u64::MAX;
const TUNED_BYTES: usize = 8 << 20;
