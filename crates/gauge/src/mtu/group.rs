//! The MTU of the path to each receiver of a group, by that receiver's answers.
//!
//! ```text
//!   probe(size) to the group --> each reflector that it reaches answers at that size, by unicast
//! ```
//! One probe narrows the range of every receiver. The next size is the middle of the range of the
//! first receiver whose MTU is not known yet.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use measure::{PROBE_BYTES_MIN, Probe, ProbeKind};
use net::{Interfaces, SystemError, interface::Selector};
use sys::{Family, PathMtu, RawAddress, UdpSocket, datagram, errno};

use super::{PACKET_BYTES_MAX, UDP_HEADER};
use crate::Error;

/// The paths to a group's receivers. Sizes are those of whole IP packets, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMtuReport {
    /// The interface by which packets leave for the group.
    pub interface: String,
    /// The MTU of that interface.
    pub interface_mtu_bytes: u32,
    /// Each receiver that answered, with the largest packet that it answered; ordered by address.
    pub receivers: Vec<(IpAddr, u32)>,
    /// Number of answers from receivers that are not listed, because the list holds 4,096.
    pub unlisted: u64,
    /// Number of packets sent.
    pub probes: u64,
}

impl GroupMtuReport {
    /// Returns the largest packet that reaches all receivers.
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        let mtus = self.receivers.iter().map(|(_, mtu)| *mtu);
        mtus.min().unwrap_or(self.interface_mtu_bytes)
    }
}

/// Finds the MTU of the path to each reflector (`towline rtt reflect --listen GROUP`) that answers.
/// Packets leave by the `wanted` interface; with `None`, by that of the kernel's route.
///
/// # Errors
/// When nobody answers even a small packet, or when the system refuses.
///
/// **Cost**: some 12 packets for each different MTU; each answer may take as long as `timeout`.
pub fn group_mtu(
    group: SocketAddr,
    wanted: Option<&Selector>,
    hops: u8,
    timeout: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<GroupMtuReport, Error> {
    let choice = Interfaces::read()?.choose(wanted, group.ip())?;
    let refused = |error: io::Error| SystemError::system("probe the paths to", group, &error);
    let socket = UdpSocket::new(Family::of(&group)).map_err(refused)?;
    let ready = || {
        socket.bind(SocketAddr::new(choice.local, 0))?;
        socket.set_multicast_interface(choice.interface.index, choice.local)?;
        socket.set_multicast_hops(hops)?;
        socket.set_path_mtu(PathMtu::Probe)
    };
    ready().map_err(refused)?;
    let mut search = Search {
        socket,
        group,
        timeout,
        receivers: Vec::new(),
        unlisted: 0,
        probes: 0,
    };
    let (floor, most) = (
        if group.is_ipv6() { 1_280 } else { 68 },
        choice.interface.mtu_bytes.min(PACKET_BYTES_MAX),
    );
    search.probe(floor, most).map_err(refused)?;
    if search.receivers.is_empty() {
        return Err(Error::Measurement(format!(
            "no receiver of {group} answers: run `towline rtt reflect --listen {group}` on the \
             receivers, and give --hops when routers lie between"
        )));
    }
    let mut next = most;
    while !is_stopped() {
        search.probe(next, most).map_err(refused)?;
        let open = search.receivers.iter().find(|it| it.good + 1 < it.bad);
        let Some(open) = open else {
            break;
        };
        next = open.good + (open.bad - open.good) / 2;
    }
    search.receivers.sort_by_key(|it| it.address);
    let receivers = search.receivers.iter().map(|it| (it.address, it.good));
    Ok(GroupMtuReport {
        interface: choice.interface.name,
        interface_mtu_bytes: choice.interface.mtu_bytes,
        receivers: receivers.collect(),
        unlisted: search.unlisted,
        probes: search.probes,
    })
}

struct Search {
    socket: UdpSocket,
    group: SocketAddr,
    timeout: Duration,
    receivers: Vec<Receiver>,
    unlisted: u64,
    probes: u64,
}

/// One receiver: the largest size that it answered, and the smallest that it did not.
struct Receiver {
    address: IpAddr,
    good: u32,
    bad: u32,
}

impl Search {
    /// Sends a packet of `size` bytes until all have answered, at most three times.
    fn probe(&mut self, size: u32, most: u32) -> io::Result<()> {
        let headers = UDP_HEADER + if self.group.is_ipv6() { 40 } else { 20 };
        let mut message = vec![0; (size.saturating_sub(headers) as usize).max(PROBE_BYTES_MIN)];
        let to = RawAddress::from(self.group);
        for _ in 0..super::TRIES {
            self.probes += 1;
            let (kind, token, sequence) = (ProbeKind::Hello, super::TOKEN, u64::from(size));
            Probe {
                kind,
                token,
                sequence,
            }
            .emit(&mut message);
            match datagram::send_to(self.socket.as_fd(), &to, &message) {
                Ok(_) => {}
                // The interface, or the far end of a virtual cable, does not take so large a
                // packet.
                Err(error) if error.raw_os_error() == Some(errno::EMSGSIZE) => break,
                Err(error) if error.raw_os_error() == Some(errno::ENOBUFS) => continue,
                Err(error) => return Err(error),
            }
            if self.listen(size, message.len(), most)? {
                return Ok(());
            }
        }
        for receiver in &mut self.receivers {
            if receiver.good < size {
                receiver.bad = receiver.bad.min(size);
            }
        }
        Ok(())
    }

    /// Notes each receiver that answers; returns true when all known receivers have answered.
    fn listen(&mut self, size: u32, len: usize, most: u32) -> io::Result<bool> {
        let end = sys::clock::monotonic() + self.timeout;
        let mut room = vec![0; PACKET_BYTES_MAX as usize];
        loop {
            let left = end.since(sys::clock::monotonic());
            // At the first probe the number of receivers is unknown.
            let is_known = !self.receivers.is_empty() && self.probes > u64::from(super::TRIES);
            if is_known && self.receivers.iter().all(|it| it.good >= size) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            if !datagram::wait_readable(self.socket.as_fd(), left)? {
                continue;
            }
            let mut from = RawAddress::empty();
            let fd = self.socket.as_fd();
            let Ok(got) = datagram::receive_from(fd, &mut room, &mut from, false) else {
                continue;
            };
            let is_ours = Probe::parse(&room[..got]).is_ok_and(|it| {
                it.kind == ProbeKind::Welcome
                    && it.token == super::TOKEN
                    && it.sequence == u64::from(size)
                    && got == len
            });
            let Some(address) = from.to_socket_addr().filter(|_| is_ours) else {
                continue;
            };
            let address = address.ip();
            let known = self.receivers.iter_mut().find(|it| it.address == address);
            if let Some(known) = known {
                known.good = known.good.max(size);
            } else if self.receivers.len() < RECEIVERS_MAX {
                let (good, bad) = (size, most + 1);
                self.receivers.push(Receiver { address, good, bad });
            } else {
                self.unlisted += 1;
            }
        }
    }
}

const RECEIVERS_MAX: usize = 4_096;
