//! One datagram a call, for measurements of single round trips: sockets with one peer, answers to
//! whoever asked, and waits.
//!
//! [`message`](crate::message) moves many datagrams a call.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    os::fd::{AsRawFd as _, BorrowedFd},
    time::Duration,
};

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr};

use crate::{
    RawAddress,
    call::{check, check_len, int_option, set_option},
    clock::timespec,
    message::{Control, MANY_MAX},
    stamp,
};

/// Gives a datagram socket its only peer: what others send is not delivered, and an ICMP answer
/// "nobody listens there" becomes the next call's `ECONNREFUSED`.
///
/// # Errors
/// `ENETUNREACH`, `EHOSTUNREACH` without a route.
pub fn connect(fd: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from(peer);
    // SAFETY: `raw` is live for the call and as long as `len` says; it is only read.
    check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) })?;
    Ok(())
}

/// Sends to the peer without waiting for room.
///
/// # Errors
/// The errno of `send`: `EAGAIN` when the send buffer is full, `EMSGSIZE` beyond the path's MTU
/// where fragments are not wanted.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` is live and only read, within its length.
    check_len(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends to an address without waiting for room.
///
/// # Errors
/// As [`send`].
pub fn send_to(fd: BorrowedFd<'_>, to: &RawAddress, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` and `to` are live and only read, within their lengths.
    check_len(unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
            to.as_ptr(),
            to.len(),
        )
    })
}

/// Sends each of `datagrams`, up to [`MANY_MAX`] of them, to the peer in one call, without waiting
/// for room. Gives how many left.
///
/// # Errors
/// As [`send`], when already the first did not leave.
///
/// **Cost**: one system call, no allocation.
pub fn send_many(fd: BorrowedFd<'_>, datagrams: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = datagrams.len().min(MANY_MAX);
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; MANY_MAX];
    for (header, datagram) in headers.iter_mut().zip(&datagrams[..count]) {
        header.write(mmsghdr {
            msg_hdr: to_peer(datagram),
            msg_len: 0,
        });
    }
    let vlen = c_uint::try_from(count).expect("at most MANY_MAX messages");
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the first `vlen` headers were written in the loop and point at `datagrams`, which are
    // borrowed for longer than the call; the kernel writes only `msg_len` fields.
    let sent = check(unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            vlen,
            flags as _,
        )
    })?;
    Ok(usize::try_from(sent).unwrap_or(0))
}

/// Sends `bytes` to the peer as datagrams of `segment` bytes each (UDP GSO), the last one shorter
/// where they do not divide; all or none, without waiting for room.
///
/// # Errors
/// As [`send`]; `EINVAL` for a segment that does not fit the path's MTU or too many of them, `EIO`
/// where the interface computes no checksums.
///
/// **Cost**: one system call, no allocation.
pub fn send_segments(fd: BorrowedFd<'_>, bytes: &[u8], segment: u16) -> io::Result<usize> {
    let piece = IoSlice::new(bytes);
    let control = Control::new().segment(segment);
    let mut header = to_peer(&piece);
    header.msg_control = control.as_bytes().as_ptr().cast_mut().cast();
    header.msg_controllen = control.as_bytes().len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the header points at `bytes` and `control`, which outlive the call; sending only
    // reads through these pointers and keeps none of them.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })
}

/// A message header without address: valid for sending while `piece` is borrowed.
fn to_peer(piece: &IoSlice<'_>) -> msghdr {
    // SAFETY: `msghdr` is a C structure of integers and raw pointers; all zero is a valid value.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` is guaranteed to have the layout of `iovec` on Unix.
    header.msg_iov = std::ptr::from_ref(piece).cast_mut().cast::<iovec>();
    header.msg_iovlen = 1;
    header
}

/// Receives one datagram; what does not fit is lost. With `blocking` it waits as long as
/// [`set_blocking`] said, otherwise not at all.
///
/// # Errors
/// `EAGAIN` when nothing is there or came; `ECONNREFUSED` when an ICMP answer is.
pub fn receive(fd: BorrowedFd<'_>, bytes: &mut [u8], blocking: bool) -> io::Result<usize> {
    let flags = if blocking { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `bytes` is live and exclusively borrowed; no more than its length is written.
    check_len(unsafe {
        libc::recv(
            fd.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
        )
    })
}

/// Receives one datagram without waiting, with whether it came in fragments. That is known only
/// after [`crate::UdpSocket::set_fragment_report`].
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

/// As [`receive`], with who sent it.
///
/// # Errors
/// As [`receive`].
pub fn receive_from(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    from: &mut RawAddress,
    blocking: bool,
) -> io::Result<usize> {
    let flags = if blocking { 0 } else { libc::MSG_DONTWAIT };
    *from = RawAddress::empty();
    let (address, len) = (from.as_mut_ptr(), std::ptr::from_mut(from.len_mut()));
    // SAFETY: `bytes` and `from` are live and exclusively borrowed; `len` holds the room for the
    // address, and the kernel writes no more than these lengths.
    check_len(unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
            address,
            len,
        )
    })
}

/// Lets calls on the socket wait, each for at most `limit` (zero: for ever).
///
/// # Errors
/// Never in practice.
pub fn set_blocking(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    // SAFETY: reads the flags of a descriptor that is borrowed, hence open.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above; the flags are passed by value.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) })?;
    let limit = libc::timeval {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: limit.subsec_micros().into(),
    };
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit)
}

/// Waits until something is there to receive, an error to collect, or `limit` has passed; true
/// unless the time has passed or a signal came.
///
/// # Errors
/// Never in practice.
///
/// **Cost**: one system call.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    wait(fd, libc::POLLIN, limit)
}

/// As [`wait_readable`], until there is room to send.
///
/// # Errors
/// Never in practice.
///
/// **Cost**: one system call.
pub fn wait_writable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    wait(fd, libc::POLLOUT, limit)
}

fn wait(fd: BorrowedFd<'_>, events: libc::c_short, limit: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let limit = timespec(limit);
    // SAFETY: `poll` is one entry, live and exclusively borrowed; `limit` is live and only read; no
    // signal mask is given.
    let ready = check(unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) });
    match ready {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// The MTU that the kernel holds for the path to the peer of a connected socket, in bytes of an
/// IP packet.
///
/// # Errors
/// `ENOTCONN` without a peer.
pub fn path_mtu(fd: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<u32> {
    let (level, name): (c_int, c_int) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU)
    };
    Ok(int_option(fd, level, name)?.cast_unsigned())
}

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
