//! Opens the sockets of a session, binds them, and sets their options.
//!
//! ```text
//!            group socket                      upstream socket
//! source     group:port, all but own address   local:port   data leaves, NAKs and SPMRs arrive
//! receiver   group:port  (unicast: own:port)   local:any    NAKs and SPMRs leave
//! ```
//!
//! When several sources are to have the same address and port, the first gets the port. A further
//! source whose setup says `shares_port` takes any other port, and tells its receivers which.
//!
//! In a session with a group, a receiver does not bind the session's port at its own address. So a
//! source on the same host can bind that port there and gets the NAKs. The kernel filters groups: a
//! socket bound to a group gets nothing that was sent elsewhere.
//!
//! Over raw IP there are no ports: each socket gets all PGM packets to its address, and the state
//! machines drop those of other sessions. A receiver's upstream socket is set to receive nothing.
//!
//! A source blocks its own address in the group: otherwise its own data would loop back to it,
//! which costs a fifth of the speed. Receivers on its host therefore send each multicast packet
//! once more, to their own address at the session's port, so that the source hears them.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    num::NonZeroU8,
};

use base::{PathId, Socket};
use sys::{Family, Interest, PathMtu, UdpSocket, errno};

use crate::{
    Missing, Remedy, SystemError,
    socket::{Encapsulation, SocketOptions, tally::Tally},
};

/// Which end of a session the sockets serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends data; takes upstream packets on the session's port, or on the one that
    /// [`UdpSetup::shares_port`] allows instead.
    Source,
    /// Takes data; sends upstream packets from any port.
    Receiver,
}

/// The addresses and options with which the sockets of a session are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSetup {
    /// Which end this is.
    pub role: Role,
    /// The group and port. For a unicast session: the receiver's address and port, at both ends.
    pub destination: SocketAddr,
    /// The only source to receive from, for source-specific multicast.
    pub source: Option<IpAddr>,
    /// Index of the interface to use.
    pub interface: u32,
    /// This end's address on `interface`, of the same IP version as `destination`.
    pub local: IpAddr,
    /// The number by which the state machines know this interface.
    pub path: PathId,
    /// Whether a source takes upstream packets on any free port when another program has the
    /// session's port. Only for sources that tell their receivers which port that is. Default
    /// false.
    pub shares_port: bool,
    /// The socket options.
    pub options: SocketOptions,
}

impl UdpSetup {
    /// Makes the setup for the end `role` of a session at `destination`. `interface` is the index
    /// of the interface, and `local` is this end's address on it.
    #[must_use]
    pub fn new(role: Role, destination: SocketAddr, interface: u32, local: IpAddr) -> Self {
        Self {
            role,
            destination,
            source: None,
            interface,
            local,
            path: PathId::default(),
            shares_port: false,
            options: SocketOptions::default(),
        }
    }

    /// Receives from `source` only, or from all sources when it is `None`.
    #[must_use]
    pub fn source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// Sets whether a source takes upstream packets on another port when another program has the
    /// session's port.
    #[must_use]
    pub const fn shares_port(mut self, shares_port: bool) -> Self {
        self.shares_port = shares_port;
        self
    }

    /// Uses these options.
    #[must_use]
    pub fn options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns `address` in the form for sending or binding: with the interface as its scope if
    /// IPv6 needs a scope.
    pub(crate) fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V6(v6) if v6.scope_id() == 0 && needs_scope(*v6.ip()) => {
                SocketAddrV6::new(*v6.ip(), v6.port(), 0, self.interface).into()
            }
            other => other,
        }
    }

    /// Returns the address for sending packets to `address`: over raw IP without the port.
    pub(super) fn packets_to(&self, address: SocketAddr) -> SocketAddr {
        let mut to = self.scoped(address);
        if self.is_raw() {
            to.set_port(0);
        }
        to
    }

    pub(super) fn is_raw(&self) -> bool {
        self.options.encapsulation == Encapsulation::Raw
    }

    /// Returns the address at which a source on this host would take a copy of each packet that
    /// this receiver multicasts; `None` when no copies are needed.
    pub(super) fn own_source(&self) -> Option<SocketAddr> {
        let is_needed = self.role == Role::Receiver && self.destination.ip().is_multicast();
        is_needed.then(|| self.packets_to(self.local_at(self.destination.port())))
    }

    fn local_at(&self, port: u16) -> SocketAddr {
        self.scoped(SocketAddr::new(self.local, port))
    }
}

/// One socket, with what the receive path needs to know about it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: UdpSocket,
    pub(super) kind: Socket,
    /// The address that the socket is bound to. It counts as a received datagram's destination when
    /// the kernel does not tell the destination.
    pub(super) bound: SocketAddr,
    /// Which events the kernel is asked to report.
    pub(super) interest: Interest,
    /// True when a datagram may be there to receive.
    pub(super) is_ready: bool,
    /// The highest drop count that the kernel has reported for this socket.
    drops: u32,
    /// True when something was received since the kernel was last asked for this socket's drop
    /// count.
    pub(super) owes_drops: bool,
}

impl Port {
    fn new(socket: UdpSocket, kind: Socket, bound: SocketAddr) -> Result<Self, SystemError> {
        if bound.ip().is_unspecified() {
            set(
                "ask for the destinations of packets on",
                bound,
                socket.set_packet_info(true),
            )?;
        }
        Ok(Self {
            socket,
            kind,
            bound,
            interest: Interest::READ,
            is_ready: true,
            drops: 0,
            owes_drops: false,
        })
    }

    /// Notes that the kernel's drop count has come to `drops`. Lower counts may come later: a
    /// message carries the count of the moment when it was queued.
    pub(super) fn note_drops(&mut self, drops: u32, tally: &mut Tally) {
        let more = drops.wrapping_sub(self.drops);
        if more.cast_signed() > 0 {
            tally.counters.kernel_drops += u64::from(more);
            self.drops = drops;
        }
    }

    /// Asks the kernel for the drop count if something was received since it was last asked. Called
    /// before a wait: only the next datagram, perhaps much later, would report the latest drops.
    pub(super) fn settle_drops(&mut self, tally: &mut Tally) {
        if std::mem::take(&mut self.owes_drops)
            && let Ok(drops) = self.socket.drops()
        {
            self.note_drops(drops, tally);
        }
    }
}

/// The sockets of a session.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) upstream: Port,
    pub(super) group: Option<Port>,
    /// Whether the last receive asked the group's socket first; the two sockets take turns.
    pub(super) is_group_first: bool,
}

impl Ports {
    /// Opens what `setup` asks for. Warns of options that the system granted only in part.
    pub(super) fn open(setup: &UdpSetup, tally: &mut Tally) -> Result<Self, SystemError> {
        setup.check()?;
        let upstream = setup.open_upstream(tally)?;
        let is_multicast = setup.destination.ip().is_multicast();
        let group = if is_multicast || setup.role == Role::Receiver {
            Some(setup.open_group(tally)?)
        } else {
            None
        };
        Ok(Self {
            upstream,
            group,
            is_group_first: true,
        })
    }
}

impl UdpSetup {
    fn check(&self) -> Result<(), SystemError> {
        let destination = self.destination.ip();
        if self.destination.port() == 0 {
            return Err(
                SystemError::refused("use", self.destination, "its port is 0")
                    .advise("name a port from 1 to 65535"),
            );
        }
        if destination.is_ipv4() != self.local.is_ipv4() {
            let (own, other) = ip_versions(destination);
            let cause = format!(
                "it is an {own} address, and the interface's address {} is {other}",
                self.local
            );
            return Err(SystemError::refused("use", self.destination, cause)
                .advise(format!("choose an interface that has an {own} address")));
        }
        if destination.is_unspecified() {
            let cause = "it names no group and no host";
            return Err(SystemError::refused("use", self.destination, cause)
                .advise("name a multicast group or a host's address"));
        }
        if self.local.is_multicast() {
            let cause = "it is a group's address, and packets leave from a host's address";
            return Err(SystemError::refused("send from", self.local, cause)
                .advise("choose an address of this host (`ip address`)"));
        }
        self.check_source()
    }

    fn check_source(&self) -> Result<(), SystemError> {
        let destination = self.destination.ip();
        let Some(source) = self.source else {
            return Ok(());
        };
        if source.is_ipv4() == destination.is_ipv4() {
            return Ok(());
        }
        let target = format!("{source} in {}", self.destination);
        let cause = "one of these addresses is IPv4, and the other IPv6";
        let (own, _) = ip_versions(destination);
        Err(SystemError::refused("receive from", target, cause)
            .advise(format!("name a source with an {own} address")))
    }

    /// Opens the socket that sends; a source also takes upstream packets on it.
    fn open_upstream(&self, tally: &mut Tally) -> Result<Port, SystemError> {
        let port = match self.role {
            Role::Source => self.destination.port(),
            Role::Receiver => 0,
        };
        let socket = self.socket(Socket::Upstream, tally)?;
        let bound = self.local_at(port);
        let fault = |error: &std::io::Error| bind_fault(self.role, bound, error);
        match socket.bind(bound) {
            Err(error) if self.shares_port && error.kind() == std::io::ErrorKind::AddrInUse => {
                socket.bind(self.local_at(0))
            }
            bound => bound,
        }
        .map_err(|error| fault(&error))?;
        let bound = if self.is_raw() {
            if self.role == Role::Receiver {
                set("stop receiving on", bound, socket.receive_nothing())?;
            }
            bound
        } else {
            socket.local_addr().map_err(|error| fault(&error))?
        };
        let options = &self.options;
        if self.destination.ip().is_multicast() {
            socket
                .set_multicast_interface(self.interface, self.local)
                .map_err(|e| {
                    let target = format!("from {} (interface {})", self.local, self.interface);
                    SystemError::system("send multicast", target, &e).advise(
                        Remedy::ListInterfaces {
                            missing: Missing::UsableInterface,
                        },
                    )
                })?;
            set(
                "set the hop limit of",
                bound,
                socket.set_multicast_hops(options.hops),
            )?;
            let looped = socket.set_multicast_loop(options.multicast_loop);
            set("set multicast loop on", bound, looped)?;
        } else if self.role == Role::Source {
            let hops = socket.set_unicast_hops(options.hops.max(1));
            set("set the hop limit of", bound, hops)?;
        }
        set(
            "set the DSCP of",
            bound,
            socket.set_traffic_class(options.dscp << 2),
        )?;
        if self.role == Role::Source {
            set(
                "ask for reports of queue drops on",
                bound,
                socket.set_error_report(true),
            )?;
        }
        set(
            "set don't-fragment on",
            bound,
            socket.set_path_mtu(PathMtu::Probe),
        )?;
        let granted = socket
            .set_send_buffer(options.send_buffer_bytes)
            .map_err(|e| SystemError::system("set the send buffer of", bound, &e))?;
        note_clipped("send", options.send_buffer_bytes, granted, tally);
        Port::new(socket, Socket::Upstream, bound)
    }

    /// Opens the socket that takes what is sent to the group, or to a unicast session's receiver.
    fn open_group(&self, tally: &mut Tally) -> Result<Port, SystemError> {
        let socket = self.socket(Socket::Group, tally)?;
        let is_multicast = self.destination.ip().is_multicast();
        let bound = self.scoped(self.destination);
        if is_multicast {
            set("share the port of", bound, socket.set_reuse_address(true))?;
            // OpenPGM shares its port by this option alone. Of IPv4 sockets that have it, the
            // kernel gives a packet to any one, whichever interface each has joined on, unless
            // each is bound to its own.
            if socket.receive_only_by(self.interface).is_ok() {
                set("share the port of", bound, socket.set_reuse_port(true))?;
            }
        }
        socket
            .bind(bound)
            .map_err(|error| bind_fault(Role::Receiver, bound, &error))?;
        if is_multicast {
            if self.is_raw() && bound.is_ipv6() {
                // The kernel gives a raw socket that is bound to a group of IPv6 the group's
                // packets of every interface, joined there or not. A relay would hear a source of
                // one network on all of them.
                set(
                    "receive only by one interface on",
                    bound,
                    socket.receive_only_by(self.interface),
                )?;
            }
            let source = self.source.filter(|_| self.role == Role::Receiver);
            socket
                .join(bound.ip(), self.interface, source)
                .map_err(|error| join_fault(self, source, &error))?;
            if self.role == Role::Source {
                let blocked = socket.block_source(bound.ip(), self.interface, self.local);
                set("refuse this host's own packets to", bound, blocked)?;
            }
        }
        Port::new(socket, Socket::Group, bound)
    }

    /// Opens a socket and sets everything that does not depend on the role.
    fn socket(&self, kind: Socket, tally: &mut Tally) -> Result<UdpSocket, SystemError> {
        let target = self.destination;
        let family = Family::of(&target);
        let socket = match self.options.encapsulation {
            Encapsulation::Udp => {
                UdpSocket::new(family).map_err(|error| udp_fault(target, &error))?
            }
            Encapsulation::Raw => UdpSocket::raw(family, IP_PROTOCOL_PGM)
                .map_err(|error| raw_fault(target, &error))?,
        };
        // Otherwise a raw IPv6 socket takes the packets of every group that a socket of this host
        // has joined, whatever address it is bound to. For IPv6, old kernels cannot switch this
        // option off. They still check membership by address, and the state machines drop packets
        // that are not for them.
        let _kernel_too_old = socket.set_multicast_all(false);
        set("count drops on", target, socket.set_overflow_report(true))?;
        let asked = self.options.receive_buffer_bytes;
        let granted = socket
            .set_receive_buffer(asked)
            .map_err(|e| SystemError::system("set the receive buffer of", target, &e))?;
        // Of a session's sockets, only one receives much: only a small buffer there needs a
        // warning.
        let takes_much = match self.role {
            Role::Source => Socket::Upstream,
            Role::Receiver => Socket::Group,
        };
        if kind == takes_much {
            note_clipped("receive", asked, granted, tally);
        }
        Ok(socket)
    }
}

fn set(
    operation: &'static str,
    target: SocketAddr,
    result: std::io::Result<()>,
) -> Result<(), SystemError> {
    result.map_err(|error| SystemError::system(operation, target, &error))
}

fn udp_fault(target: SocketAddr, error: &std::io::Error) -> SystemError {
    let fault = SystemError::system("open a UDP socket for", target, error);
    match error.raw_os_error() {
        Some(errno::EAFNOSUPPORT) => fault.advise(switched_off(target)),
        _ => fault,
    }
}

fn raw_fault(target: SocketAddr, error: &std::io::Error) -> SystemError {
    let fault = SystemError::system("open a raw IP socket for", target, error);
    if error.raw_os_error() == Some(errno::EAFNOSUPPORT) {
        return fault.advise(switched_off(target));
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => fault.advise(Remedy::AllowRawIp),
        _ => fault,
    }
}

/// Returns the advice for a host that lacks the IP version of `target`.
fn switched_off(target: SocketAddr) -> String {
    let (own, other) = ip_versions(target.ip());
    format!("this host has {own} switched off: use an {other} address")
}

/// Returns the name of an address's IP version, and the name of the other version.
const fn ip_versions(address: IpAddr) -> (&'static str, &'static str) {
    match address {
        IpAddr::V4(_) => ("IPv4", "IPv6"),
        IpAddr::V6(_) => ("IPv6", "IPv4"),
    }
}

fn bind_fault(role: Role, bound: SocketAddr, error: &std::io::Error) -> SystemError {
    let fault = SystemError::system("bind", bound, error);
    if error.raw_os_error() == Some(errno::ENODEV) {
        return fault.advise(Remedy::ListInterfaces {
            missing: Missing::Interface,
        });
    }
    match (error.kind(), role) {
        (std::io::ErrorKind::AddrInUse, Role::Source) => fault.advise(Remedy::StopOtherSender),
        (std::io::ErrorKind::AddrInUse, Role::Receiver) => fault.advise(
            "a program on this host has the port for itself (`ss -lunp` shows which): stop it, or \
             choose another port",
        ),
        (std::io::ErrorKind::AddrNotAvailable, _) => fault.advise(Remedy::ListInterfaces {
            missing: Missing::Address,
        }),
        (std::io::ErrorKind::PermissionDenied, _) => {
            fault.advise("ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one")
        }
        _ => fault,
    }
}

fn join_fault(setup: &UdpSetup, source: Option<IpAddr>, error: &std::io::Error) -> SystemError {
    let group = setup.destination.ip();
    let target = match source {
        Some(source) => format!("{source}@{group} on interface {}", setup.interface),
        None => format!("{group} on interface {}", setup.interface),
    };
    let fault = SystemError::system("join", target, error);
    match error.raw_os_error() {
        Some(errno::ENOBUFS) => fault.advise(match (group.is_ipv4(), source) {
            (true, None) => {
                "raise the kernel's limits for groups (`sysctl net.ipv4.igmp_max_memberships`, \
                 `net.core.optmem_max`)"
            }
            (true, Some(_)) => {
                "raise the kernel's limits for groups with sources (`sysctl \
                 net.ipv4.igmp_max_memberships`, `net.ipv4.igmp_max_msf`, `net.core.optmem_max`)"
            }
            (false, _) => {
                "raise the kernel's limits for groups (`sysctl net.ipv6.mld_max_msf`, \
                 `net.core.optmem_max`)"
            }
        }),
        Some(errno::ENODEV) => fault.advise(Remedy::ListInterfaces {
            missing: Missing::Interface,
        }),
        _ => fault,
    }
}

fn note_clipped(which: &str, asked: usize, granted: usize, tally: &mut Tally) {
    if granted >= asked {
        return;
    }
    tally.counters.clipped_buffers += 1;
    let letter = if which == "send" { 'w' } else { 'r' };
    tally.warn(format!(
        "the {which} buffer is {granted} bytes instead of {asked}: \
         run `sysctl -w net.core.{letter}mem_max={asked}`, or give this program CAP_NET_ADMIN"
    ));
}

/// The number of PGM among the protocols over IP.
const IP_PROTOCOL_PGM: NonZeroU8 = NonZeroU8::new(113).expect("not zero");

/// Returns true for addresses that mean nothing without an interface: link-local unicast, and
/// multicast of interface or link scope.
fn needs_scope(ip: Ipv6Addr) -> bool {
    let [first, ..] = ip.segments();
    first & 0xffc0 == 0xfe80 || (first & 0xff00 == 0xff00 && matches!(first & 0xf, 1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scoped_addresses_need_an_interface() {
        for (text, expected) in [
            ("fe80::1", true),
            ("ff02::1", true),
            ("ff15::1", false),
            ("ff01::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(needs_scope(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let at = |group: &str, local: &str| {
            UdpSetup::new(
                Role::Source,
                group.parse().unwrap(),
                1,
                local.parse().unwrap(),
            )
            .check()
        };
        assert!(at("239.1.1.1:7500", "10.0.0.1").is_ok());
        assert!(at("239.1.1.1:0", "10.0.0.1").is_err());
        assert!(at("239.1.1.1:7500", "::1").is_err());
        assert!(at("0.0.0.0:7500", "10.0.0.1").is_err());
    }
}
