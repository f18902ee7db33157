//! Datagrams for measuring round trips. Most calls move a single datagram. A socket talks to a
//! single peer, or answers any peer. The module also waits for a socket to become ready.
//!
//! [`crate::message`] moves the datagrams of sessions, many in each call.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::BorrowedFd,
    time::Duration,
};

use libc::c_int;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    net::{
        RecvFlags, SendFlags, recv, recvfrom, sendto,
        sockopt::{self, Timeout},
    },
};

use crate::{
    RawAddress, SocketBuffers,
    clock::timespec,
    message::{self, Control},
    stamp,
};

/// Gives a datagram socket its only peer. The kernel then delivers nothing from other senders. When
/// an ICMP message says that nobody listens at the peer, the next call fails with `ECONNREFUSED`.
///
/// # Errors
/// `ENETUNREACH`, `EHOSTUNREACH` without a route.
pub fn connect(fd: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::connect(fd, &peer)?)
}

/// Sends to the peer without waiting for room.
///
/// # Errors
/// The errno of `send`: `EAGAIN` when the send buffer is full, `EMSGSIZE` for a datagram that would
/// need fragments when the socket does not fragment.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, bytes, AT_ONCE)?)
}

/// Sends to an address without waiting for room.
///
/// # Errors
/// As [`send`].
pub fn send_to(fd: BorrowedFd<'_>, to: &RawAddress, bytes: &[u8]) -> io::Result<usize> {
    Ok(sendto(fd, bytes, AT_ONCE, to)?)
}

/// Sends each of `datagrams`, up to [`message::MANY_MAX`] of them, to the peer in one call, without
/// waiting for room. Returns the number of datagrams that left.
///
/// # Errors
/// As [`send`], when even the first did not leave.
///
/// **Cost**: one system call, no allocation.
pub fn send_many(fd: BorrowedFd<'_>, datagrams: &[IoSlice<'_>]) -> io::Result<usize> {
    message::send_each(fd, None, datagrams, &[], AT_ONCE.bits().cast_signed())
}

/// Sends `bytes` to the peer as datagrams of `segment` bytes each (UDP GSO); the last is shorter
/// where `segment` does not divide the length. The call sends all or none, and does not wait for
/// room.
///
/// # Errors
/// As [`send`]; `EINVAL` for a segment that does not fit the path's MTU or for too many segments,
/// `EIO` where the interface computes no checksums.
///
/// **Cost**: one system call, no allocation.
pub fn send_segments(fd: BorrowedFd<'_>, bytes: &[u8], segment: u16) -> io::Result<usize> {
    let (piece, control) = (IoSlice::new(bytes), Control::new().segment(segment));
    let flags = AT_ONCE.bits().cast_signed();
    message::send_one(fd, None, &[piece], control.as_bytes(), flags)
}

/// Receives one datagram; bytes that do not fit are lost. With `blocking` it waits for at most the
/// limit of [`set_blocking`], otherwise not at all.
///
/// # Errors
/// `EAGAIN` when no datagram has come; `ECONNREFUSED` when an ICMP message says that nobody listens
/// at the peer.
pub fn receive(fd: BorrowedFd<'_>, bytes: &mut [u8], blocking: bool) -> io::Result<usize> {
    let (len, _) = recv(fd, bytes, receive_flags(blocking))?;
    Ok(len)
}

fn receive_flags(blocking: bool) -> RecvFlags {
    if blocking {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    }
}

/// Receives one datagram without waiting. Returns its length, and whether it came in fragments. The
/// kernel reports fragments only after [`crate::UdpSocket::set_fragment_report`].
///
/// # Errors
/// As [`receive`].
pub fn receive_pieces(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
    let (len, control) = stamp::receive_with_control(fd, bytes)?;
    let is_report = |(level, kind, _): (c_int, c_int, &[u8])| {
        matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVFRAGSIZE)
                | (libc::IPPROTO_IPV6, libc::IPV6_RECVFRAGSIZE)
        )
    };
    let is_in_pieces = stamp::control_messages(&control).any(is_report);
    Ok((len, is_in_pieces))
}

/// Returns how many datagrams the kernel has dropped at this socket since it was opened, mostly
/// because its receive buffer was full; wraps after 2^32.
///
/// # Errors
/// On kernels before 4.12.
///
/// **Spec**: [`SO_MEMINFO`](https://man7.org/linux/man-pages/man7/socket.7.html), `SK_MEMINFO_DROPS`.
pub fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(SocketBuffers::of(&fd)?.drops)
}

/// Receives one datagram as [`receive`] does, and writes its sender into `from`.
///
/// # Errors
/// As [`receive`].
pub fn receive_from(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    from: &mut RawAddress,
    blocking: bool,
) -> io::Result<usize> {
    *from = RawAddress::empty();
    let (len, _, source) = recvfrom(fd, bytes, receive_flags(blocking))?;
    if let Some(source) = source.and_then(|source| SocketAddr::try_from(source).ok()) {
        *from = source.into();
    }
    Ok(len)
}

/// Lets calls on the socket wait. A call to receive then waits at most `limit` (zero: for ever).
///
/// # Errors
/// Never in practice.
pub fn set_blocking(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::NONBLOCK)?;
    let limit = (!limit.is_zero()).then_some(limit);
    Ok(sockopt::set_socket_timeout(fd, Timeout::Recv, limit)?)
}

/// Waits for at most `limit` until there is a datagram to receive or an error to collect. Returns
/// false when the limit has passed or a signal came.
///
/// # Errors
/// Never in practice.
///
/// **Cost**: one system call.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    wait(fd, PollFlags::IN, limit)
}

/// Waits, as [`wait_readable`] does, until there is room to send.
///
/// # Errors
/// Never in practice.
///
/// **Cost**: one system call.
pub fn wait_writable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    wait(fd, PollFlags::OUT, limit)
}

pub(crate) fn wait(fd: BorrowedFd<'_>, wanted: PollFlags, limit: Duration) -> io::Result<bool> {
    Ok(!events(fd, wanted, limit)?.is_empty())
}

/// Waits until at least one of the `wanted` events happens, or the descriptor hangs up or fails.
/// Returns the events that happened: none after `limit`, or when a signal ended the wait.
pub(crate) fn events(
    fd: BorrowedFd<'_>,
    wanted: PollFlags,
    limit: Duration,
) -> io::Result<PollFlags> {
    let mut polled = [PollFd::from_borrowed_fd(fd, wanted)];
    match poll(&mut polled, Some(&timespec(limit))) {
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        ready => {
            ready?;
            Ok(polled[0].revents())
        }
    }
}

/// Returns the kernel's MTU for the path to the peer of a connected socket: the length of a whole
/// IP packet, in bytes.
///
/// # Errors
/// `ENOTCONN` without a peer.
pub fn path_mtu(fd: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<u32> {
    let mtu = if is_ipv6 {
        sockopt::ipv6_mtu(fd)
    } else {
        sockopt::ip_mtu(fd)
    };
    Ok(mtu?)
}

/// The flags of a send that never waits for room and raises no signal.
const AT_ONCE: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

#[cfg(test)]
mod tests {
    use std::{iter, net::Ipv4Addr, os::fd::AsFd as _};

    use super::*;
    use crate::{Family, Inbox, UdpSocket};

    fn bound() -> UdpSocket {
        let socket = UdpSocket::new(Family::V4).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        socket
    }

    #[test]
    fn many_a_call_and_segments_arrive_as_single_datagrams() {
        let (one, other) = (bound(), bound());
        connect(one.as_fd(), other.local_addr().unwrap()).unwrap();
        assert!(wait_writable(one.as_fd(), Duration::from_secs(5)).unwrap());
        let pieces = [IoSlice::new(b"a"), IoSlice::new(b"bb")];
        assert_eq!(send_many(one.as_fd(), &pieces).unwrap(), 2);
        assert_eq!(send_segments(one.as_fd(), b"cccdddee", 3).unwrap(), 8);
        set_blocking(other.as_fd(), Duration::from_secs(5)).unwrap();
        let mut bytes = [0; 16];
        for expected in [&b"a"[..], b"bb", b"ccc", b"ddd", b"ee"] {
            let len = receive(other.as_fd(), &mut bytes, true).unwrap();
            assert_eq!(&bytes[..len], expected);
        }
    }

    #[test]
    fn datagrams_for_a_full_socket_are_counted_as_drops() {
        let (one, other) = (bound(), bound());
        connect(one.as_fd(), other.local_addr().unwrap()).unwrap();
        assert_eq!(drops(other.as_fd()).unwrap(), 0);
        let _granted = other.set_receive_buffer(4_096).unwrap();
        for _ in 0..1_000 {
            send(one.as_fd(), &[0; 1_000]).unwrap();
        }
        let (mut bytes, mut received) = ([0; 1_000], 0);
        while receive(other.as_fd(), &mut bytes, false).is_ok() {
            received += 1;
        }
        assert!(received > 0);
        assert_eq!(drops(other.as_fd()).unwrap() + received, 1_000);
    }

    #[test]
    fn there_and_back_and_nobody_there() {
        let (one, other) = (bound(), bound());
        connect(one.as_fd(), other.local_addr().unwrap()).unwrap();
        send(one.as_fd(), b"ping").unwrap();
        let (mut bytes, mut from) = ([0; 16], RawAddress::empty());
        assert!(wait_readable(other.as_fd(), Duration::from_secs(5)).unwrap());
        let len = receive_from(other.as_fd(), &mut bytes, &mut from, false).unwrap();
        assert_eq!(&bytes[..len], b"ping");
        assert_eq!(from.to_socket_addr(), Some(one.local_addr().unwrap()));
        set_blocking(one.as_fd(), Duration::from_millis(1)).unwrap();
        let mut inbox = Inbox::new(2);
        let mut wait = |room: &mut [u8]| inbox.receive(one.as_fd(), iter::once(room), true);
        let nothing = wait(&mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        send_to(other.as_fd(), &from, b"pong!").unwrap();
        set_blocking(one.as_fd(), Duration::from_secs(5)).unwrap();
        assert_eq!(wait(&mut bytes).unwrap(), 1);
        assert_eq!((&bytes[..5], inbox.message(0).len), (&b"pong!"[..], 5));
        let nothing = receive(one.as_fd(), &mut bytes, false).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert!(path_mtu(one.as_fd(), false).unwrap() >= 1_280);
        drop(other);
        send(one.as_fd(), b"ping").unwrap();
        let refused = receive(one.as_fd(), &mut bytes, true).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
