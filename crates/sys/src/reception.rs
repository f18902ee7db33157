//! Datagrams with their source and destination, the hops left, and the interface that they came
//! through.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
};

use libc::c_int;

use crate::{Family, RawAddress, call::set_option, message, stamp::control_messages};

/// One received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Number of bytes written to the buffer; bytes of the datagram that did not fit are lost.
    pub len: usize,
    /// The address of the datagram's sender.
    pub source: Option<SocketAddr>,
    /// The address that the datagram was sent to.
    pub destination: Option<IpAddr>,
    /// Number of the interface that the datagram came through.
    pub interface: Option<u32>,
    /// The datagram's remaining time to live (IPv4) or hop limit (IPv6).
    pub hops: Option<u8>,
}

/// Makes the kernel report, with each datagram, its destination, the interface that it came
/// through, and its remaining hops.
///
/// # Errors
/// Never in practice.
pub fn enable(fd: BorrowedFd<'_>, family: Family) -> io::Result<()> {
    let on: c_int = 1;
    match family {
        Family::V4 => {
            set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, &on)?;
            set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, &on)
        }
        Family::V6 => {
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &on)?;
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &on)
        }
    }
}

/// Receives one datagram without waiting.
///
/// # Errors
/// `WouldBlock` when nothing is there; `ECONNREFUSED` and the like for ICMP errors.
///
/// **Cost**: one system call, no allocation.
pub fn receive(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Reception> {
    let mut address = RawAddress::empty();
    let mut control = [0_u8; CONTROL_BYTES];
    let from = Some(&mut address);
    let flags = libc::MSG_DONTWAIT;
    let (len, control_len) = message::receive_one(fd, bytes, from, &mut control, flags)?;
    let mut reception = Reception {
        len,
        source: address.to_socket_addr(),
        destination: None,
        interface: None,
        hops: None,
    };
    reception.read(&control[..control_len]);
    Ok(reception)
}

impl Reception {
    fn read(&mut self, control: &[u8]) {
        for (level, kind, data) in control_messages(control) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    self.hops = int(data, 0).and_then(|hops| u8::try_from(hops).ok());
                }
                // struct in_pktinfo: interface index, local address, destination address.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    self.interface = int(data, 0).and_then(|index| u32::try_from(index).ok());
                    let octets = data.get(8..12).and_then(|it| <[u8; 4]>::try_from(it).ok());
                    self.destination = octets.map(IpAddr::from);
                }
                // struct in6_pktinfo: destination address, interface index.
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    self.interface = int(data, 16).and_then(|index| u32::try_from(index).ok());
                    let octets = data.get(..16).and_then(|it| <[u8; 16]>::try_from(it).ok());
                    self.destination = octets.map(IpAddr::from);
                }
                _ => {}
            }
        }
    }
}

fn int(data: &[u8], at: usize) -> Option<c_int> {
    let bytes = data.get(at..at + 4)?.try_into().ok()?;
    Some(c_int::from_ne_bytes(bytes))
}

/// Size in bytes of the buffer for a datagram's control messages. The messages for hop limit and
/// packet information fit with room to spare.
const CONTROL_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, os::fd::AsFd as _, time::Duration};

    use super::*;
    use crate::{UdpSocket, datagram};

    #[test]
    fn hops_address_and_interface_come_along() {
        let (one, other) = (
            UdpSocket::new(Family::V4).unwrap(),
            UdpSocket::new(Family::V4).unwrap(),
        );
        other.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        enable(other.as_fd(), Family::V4).unwrap();
        datagram::connect(one.as_fd(), other.local_addr().unwrap()).unwrap();
        one.set_unicast_hops(7).unwrap();
        datagram::send(one.as_fd(), b"hello").unwrap();
        assert!(datagram::wait_readable(other.as_fd(), Duration::from_secs(5)).unwrap());
        let mut bytes = [0; 16];
        let found = receive(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((found.len, found.hops), (5, Some(7)));
        assert_eq!(found.destination, Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(found.source, Some(one.local_addr().unwrap()));
        assert!(found.interface.is_some_and(|index| index > 0));
        let nothing = receive(other.as_fd(), &mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
