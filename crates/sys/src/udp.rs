//! UDP and raw IP sockets, and the options that multicast transports need, one typed function for
//! each.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use libc::c_int;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use crate::{
    RawAddress,
    address::AddressBytes,
    call::{int_option, set_option},
};

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6; a [`UdpSocket`] of it never carries IPv4.
    V6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub const fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    /// Makes a socket that never blocks.
    pub(crate) fn socket(self, kind: SocketType) -> io::Result<OwnedFd> {
        self.socket_of(kind, None)
    }

    fn socket_of(self, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
        let domain = match self {
            Self::V4 => AddressFamily::INET,
            Self::V6 => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(socket_with(domain, kind, flags, protocol)?)
    }

    const fn level(self) -> c_int {
        match self {
            Self::V4 => libc::IPPROTO_IP,
            Self::V6 => libc::IPPROTO_IPV6,
        }
    }
}

/// The treatment of a datagram that is longer than the path allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// The kernel refuses the datagram (`EMSGSIZE`) when it is longer than the interface's MTU; a
    /// router drops it when it is longer than the path's MTU. The kernel ignores ICMP messages
    /// about the path's MTU.
    Probe,
    /// The kernel cuts the datagram into fragments.
    Fragment,
}

/// A non-blocking UDP socket; or a raw IP socket, which has the same options, but no ports, no
/// segmentation and no coalescing.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    family: Family,
}

impl UdpSocket {
    /// Makes an unbound socket.
    ///
    /// # Errors
    /// When the family is not available or the process is out of descriptors.
    pub fn new(family: Family) -> io::Result<Self> {
        let fd = family.socket(SocketType::DGRAM)?;
        if family == Family::V6 {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        Ok(Self { fd, family })
    }

    /// Makes an unbound raw socket for packets of an IP protocol. The kernel makes the IP header of
    /// what the socket sends. The socket receives packets with their IP header over IPv4, and
    /// without it over IPv6. Every raw socket for the protocol receives all packets to the address
    /// that it is bound to. When sending, give the destination address port 0.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; another error when the family is not available.
    ///
    /// **Spec**: [`raw`](https://man7.org/linux/man-pages/man7/raw.7.html).
    pub fn raw(family: Family, protocol: NonZeroU8) -> io::Result<Self> {
        let protocol = Protocol::from_raw(protocol.into());
        let fd = family.socket_of(SocketType::RAW, Some(protocol))?;
        Ok(Self { fd, family })
    }

    /// Makes the kernel pass nothing on to the socket, for a socket that only sends.
    ///
    /// # Errors
    /// Never in practice.
    pub fn receive_nothing(&self) -> io::Result<()> {
        let mut keep_nothing = [libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        }];
        let program = libc::sock_fprog {
            len: 1,
            filter: keep_nothing.as_mut_ptr(),
        };
        // The kernel copies the instruction during the call.
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Binds to a local address and port (port 0: any free one). When the address is a group's, the
    /// kernel passes on only packets to that group.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`, or `PermissionDenied` for ports below 1024.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        Ok(bind(&self.fd, &address)?)
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// Never in practice.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.fd)?.try_into()?)
    }

    /// Lets several sockets bind the same group and port; each receives every datagram. On a
    /// unicast address only the socket bound last would receive, so do not set the option there.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseaddr(&self.fd, on)?)
    }

    /// Lets sockets that have only this option bind the same group and port, if they are of the
    /// same user: OpenPGM sets no other. On a unicast address each would receive only a part, so do
    /// not set the option there.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_reuse_port(&self, on: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseport(&self.fd, on)?)
    }

    /// Receives `group` on one interface, from any source or from one only.
    ///
    /// # Errors
    /// `ENODEV` for an unknown interface, `EADDRINUSE` when joined already, `ENOBUFS` beyond
    /// `net.ipv4.igmp_max_memberships`.
    pub fn join(&self, group: IpAddr, interface: u32, source: Option<IpAddr>) -> io::Result<()> {
        let level = self.family.level();
        let group = GroupRequest::new(interface, group);
        match source {
            None => self.set(level, libc::MCAST_JOIN_GROUP, &group),
            Some(source) => {
                let request = group.with_source(source);
                self.set(level, libc::MCAST_JOIN_SOURCE_GROUP, &request)
            }
        }
    }

    /// Blocks `source` in a group that the socket has joined. When `source` is an address of this
    /// host and no other socket here is in the group, the kernel does not loop the packets
    /// of `source` back at all.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` when the group was not joined; `ENOBUFS` beyond `net.ipv4.igmp_max_msf`.
    pub fn block_source(&self, group: IpAddr, interface: u32, source: IpAddr) -> io::Result<()> {
        let request = GroupRequest::new(interface, group).with_source(source);
        self.set(self.family.level(), libc::MCAST_BLOCK_SOURCE, &request)
    }

    /// Sets whether the socket also receives packets of groups that only *other* sockets of this
    /// host joined. The kernel's default is yes.
    ///
    /// # Errors
    /// For IPv6 on kernels before 4.20.
    pub fn set_multicast_all(&self, on: bool) -> io::Result<()> {
        let on = c_int::from(on);
        match self.family {
            Family::V4 => self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &on),
            Family::V6 => self.set(libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, &on),
        }
    }

    /// Receives only what arrives by this interface.
    ///
    /// # Errors
    /// When there is no such interface, on kernels before 5.0, and without CAP_NET_RAW before 5.7.
    pub fn receive_only_by(&self, interface: u32) -> io::Result<()> {
        let index = c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.set(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &index)
    }

    /// Sets the interface that multicast leaves by and, for IPv4, its source address.
    ///
    /// # Errors
    /// When there is no such interface or address.
    pub fn set_multicast_interface(&self, interface: u32, local: IpAddr) -> io::Result<()> {
        let index = c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        match local {
            IpAddr::V4(local) => {
                let request = libc::ip_mreqn {
                    imr_multiaddr: in_addr(Ipv4Addr::UNSPECIFIED),
                    imr_address: in_addr(local),
                    imr_ifindex: index,
                };
                self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
            }
            IpAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index),
        }
    }

    /// Sets the hop limit of multicast.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_multicast_hops(&self, hops: u8) -> io::Result<()> {
        self.set_by_family(
            libc::IP_MULTICAST_TTL,
            libc::IPV6_MULTICAST_HOPS,
            hops.into(),
        )
    }

    /// Sets the hop limit of unicast.
    ///
    /// # Errors
    /// When `hops` is zero, for IPv4.
    pub fn set_unicast_hops(&self, hops: u8) -> io::Result<()> {
        self.set_by_family(libc::IP_TTL, libc::IPV6_UNICAST_HOPS, hops.into())
    }

    /// Sets whether members on this host receive what this socket sends to a group.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.set_by_family(
            libc::IP_MULTICAST_LOOP,
            libc::IPV6_MULTICAST_LOOP,
            on.into(),
        )
    }

    /// Sets the byte that holds DSCP (upper six bits) and ECN (lower two bits).
    ///
    /// # Errors
    /// `PermissionDenied` when the priority in `class` needs CAP_NET_ADMIN.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.set_by_family(libc::IP_TOS, libc::IPV6_TCLASS, class.into())
    }

    /// Sets the treatment of datagrams that are longer than the path allows.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_path_mtu(&self, policy: PathMtu) -> io::Result<()> {
        let value = match (policy, self.family) {
            (PathMtu::Probe, Family::V4) => libc::IP_PMTUDISC_PROBE,
            (PathMtu::Probe, Family::V6) => libc::IPV6_PMTUDISC_PROBE,
            (PathMtu::Fragment, Family::V4) => libc::IP_PMTUDISC_DONT,
            (PathMtu::Fragment, Family::V6) => libc::IPV6_PMTUDISC_DONT,
        };
        self.set_by_family(libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER, value)
    }

    /// Asks for a receive buffer of `bytes` bytes, beyond `net.core.rmem_max` when privileged.
    /// Returns the size that the kernel granted, before the kernel doubles it.
    ///
    /// # Errors
    /// Never in practice; a clipped buffer is a smaller grant, not an error.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
    }

    /// Returns the size of the receive buffer, as [`UdpSocket::set_receive_buffer`] returns it.
    ///
    /// # Errors
    /// Never in practice.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.buffer(libc::SO_RCVBUF)
    }

    /// Asks for a send buffer of `bytes` bytes, beyond `net.core.wmem_max` when privileged. Returns
    /// the size that the kernel granted, before the kernel doubles it.
    ///
    /// # Errors
    /// Never in practice; a clipped buffer is a smaller grant, not an error.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
    }

    /// Sets whether received messages report how many packets the kernel has dropped at the socket,
    /// mostly because it was full.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_overflow_report(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &c_int::from(on))
    }

    /// Sets whether a send fails with `ENOBUFS` when the interface's own queue drops the datagram;
    /// without this option the kernel reports the datagram as sent. With the option, ICMP errors
    /// wait in the socket's error queue, which [`crate::message::discard_errors`] empties.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_error_report(&self, on: bool) -> io::Result<()> {
        self.set_by_family(libc::IP_RECVERR, libc::IPV6_RECVERR, on.into())
    }

    /// Sets whether received messages report destination address and interface.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_packet_info(&self, on: bool) -> io::Result<()> {
        self.set_by_family(libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO, on.into())
    }

    /// Sets whether [`crate::datagram::receive_pieces`] learns that a datagram came in fragments.
    ///
    /// # Errors
    /// On kernels before 4.10.
    pub fn set_fragment_report(&self, on: bool) -> io::Result<()> {
        self.set_by_family(libc::IP_RECVFRAGSIZE, libc::IPV6_RECVFRAGSIZE, on.into())
    }

    /// Sets whether the kernel may hand over several datagrams of one flow as one message (UDP
    /// GRO).
    ///
    /// # Errors
    /// On kernels before 5.0.
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_UDP, libc::UDP_GRO, &c_int::from(on))
    }

    /// Returns true when the kernel knows UDP segmentation (Linux 4.18). A route may still refuse
    /// it.
    #[must_use]
    pub fn has_gso(&self) -> bool {
        int_option(self.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// Returns the number of packets that the kernel has dropped at the socket since it was made,
    /// mostly because it was full. Received messages report the same count; this call needs no
    /// message.
    ///
    /// # Errors
    /// On kernels before 4.12.
    pub fn drops(&self) -> io::Result<u32> {
        crate::datagram::drops(self.as_fd())
    }

    /// Returns the address family.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Sets a buffer, trying the privileged option first. The kernel doubles the value that it is
    /// given, so the value read back is halved.
    fn set_buffer(&self, force: c_int, plain: c_int, bytes: usize) -> io::Result<usize> {
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
        if self.set(libc::SOL_SOCKET, force, &value).is_err() {
            self.set(libc::SOL_SOCKET, plain, &value)?;
        }
        self.buffer(plain)
    }

    fn buffer(&self, name: c_int) -> io::Result<usize> {
        let doubled = int_option(self.as_fd(), libc::SOL_SOCKET, name)?;
        Ok(usize::try_from(doubled / 2).unwrap_or(0))
    }

    fn set_by_family(&self, v4: c_int, v6: c_int, value: c_int) -> io::Result<()> {
        match self.family {
            Family::V4 => self.set(libc::IPPROTO_IP, v4, &value),
            Family::V6 => self.set(libc::IPPROTO_IPV6, v6, &value),
        }
    }

    fn set<T: Copy>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        set_option(self.as_fd(), level, name, value)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The C structure `struct group_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupRequest {
    interface: u32,
    group: AddressBytes,
}

/// The C structure `struct group_source_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupSourceRequest {
    group: GroupRequest,
    source: AddressBytes,
}

impl GroupRequest {
    fn new(interface: u32, group: IpAddr) -> Self {
        let group = RawAddress::from(SocketAddr::new(group, 0)).bytes();
        Self { interface, group }
    }

    fn with_source(self, source: IpAddr) -> GroupSourceRequest {
        GroupSourceRequest {
            group: self,
            source: RawAddress::from(SocketAddr::new(source, 0)).bytes(),
        }
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<GroupRequest>() == size_of::<libc::group_req>());
    assert!(size_of::<GroupSourceRequest>() == size_of::<libc::group_source_req>());
    assert!(offset_of!(GroupRequest, group) == offset_of!(libc::group_req, gr_group));
    let source = offset_of!(GroupSourceRequest, source);
    assert!(source == offset_of!(libc::group_source_req, gsr_source));
};

fn in_addr(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from(address).to_be(),
    }
}

/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/in6.h>
const IPV6_MULTICAST_ALL: c_int = 29;
