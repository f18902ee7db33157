//! TCP connections that never block, not even while they are being set up.
//!
//! The streams and listeners are the standard library's; only what it cannot do is here: a connect
//! that returns at once, a backlog for a thousand receivers dialling together, and the options that
//! find out that a peer's host is gone.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use libc::c_int;

use crate::{
    Family, RawAddress,
    call::{check, set_option},
};

/// Starts to connect. The stream becomes writable when that has succeeded or failed;
/// [`TcpStream::take_error`] tells which.
///
/// # Errors
/// Those known at once: no route, no descriptors.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let fd = socket(Family::of(&to))?;
    let raw = RawAddress::from(to);
    // SAFETY: `raw` is live for the call and as long as `len` says; it is only read.
    match check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _connected_or_in_progress => Ok(TcpStream::from(fd)),
    }
}

/// Listens on `address` (port 0: any free one) with room for `backlog` connections not yet
/// accepted. Accepted streams block until told otherwise.
///
/// # Errors
/// `AddrInUse`, `AddrNotAvailable`, or `PermissionDenied` for ports below 1024.
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let fd = socket(Family::of(&address))?;
    let on: c_int = 1;
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &on)?;
    if address.is_ipv6() {
        set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &on)?;
    }
    let raw = RawAddress::from(address);
    // SAFETY: `raw` is live for the call and as long as `len` says; it is only read.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) })?;
    // SAFETY: takes two integers by value; the descriptor is owned here, hence open.
    check(unsafe { libc::listen(fd.as_raw_fd(), c_int::from(backlog)) })?;
    Ok(TcpListener::from(fd))
}

/// Gives a connection up when the peer's host has been silent for about `limit`, whether or not
/// anything is on the way to it.
///
/// # Errors
/// Never in practice.
pub fn set_silence_limit(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let seconds = c_int::try_from(limit.as_secs())
        .unwrap_or(c_int::MAX)
        .max(3);
    let interval = seconds / PROBES;
    let fd = stream.as_fd();
    let on: c_int = 1;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &on)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &interval)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, &interval)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &(PROBES - 1))?;
    let limit_ms = seconds.saturating_mul(1000);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &limit_ms)
}

/// Bounds how long a lost segment goes unnoticed when nothing follows it: it is sent again after
/// the round-trip time and about `resend_min` (20 ms), where the kernel's own least is 200 ms. What
/// arrives is acknowledged within `ack_max`, which has to be shorter at the other end, or segments
/// that are only acknowledged late are sent twice. Both in steps of the kernel's tick.
///
/// `TCP_RTO_MIN_US` and `TCP_DELACK_MAX_US` of include/uapi/linux/tcp.h.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.15: the connection works as it is, only slower after a loss.
pub fn set_prompt_repair(
    stream: &TcpStream,
    resend_min: Duration,
    ack_max: Duration,
) -> io::Result<()> {
    let us = |span: Duration| c_int::try_from(span.as_micros()).unwrap_or(c_int::MAX);
    let fd = stream.as_fd();
    set_option(fd, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, &us(ack_max))?;
    set_option(fd, libc::IPPROTO_TCP, TCP_RTO_MIN_US, &us(resend_min))
}

fn socket(family: Family) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes three integers by value.
    let raw = check(unsafe { libc::socket(family.domain(), kind, 0) })?;
    // SAFETY: `raw` was just returned open by socket and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

const TCP_RTO_MIN_US: c_int = 45;
const TCP_DELACK_MAX_US: c_int = 46;
/// A silence limit is one idle time and this many probes less one.
const PROBES: c_int = 3;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::{Epoll, Interest, call::int_option};

    #[test]
    fn connects_without_blocking() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
        let mut stream = connect(listener.local_addr().unwrap()).unwrap();
        set_silence_limit(&stream, Duration::from_secs(30)).unwrap();
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(stream.as_fd(), 1, Interest::BOTH).unwrap();
        assert!(epoll.wait(None).unwrap().any(|ready| ready.writable));
        assert!(stream.take_error().unwrap().is_none());
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        drop(peer);
        epoll.modify(stream.as_fd(), 1, Interest::READ).unwrap();
        assert_eq!(epoll.wait(None).unwrap().len(), 1);
        let mut text = String::new();
        stream.set_nonblocking(false).unwrap();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn prompt_repair_is_set_where_the_kernel_knows_it() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
        let stream = connect(listener.local_addr().unwrap()).unwrap();
        let [resend, ack] = [20, 5].map(Duration::from_millis);
        if let Err(error) = set_prompt_repair(&stream, resend, ack) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
            return;
        }
        let us = int_option(stream.as_fd(), libc::IPPROTO_TCP, TCP_RTO_MIN_US).unwrap();
        assert_eq!(us, 20_000);
    }

    #[test]
    fn a_refused_connection_is_told_by_take_error() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let stream = connect(address).unwrap();
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(stream.as_fd(), 1, Interest::BOTH).unwrap();
        assert_eq!(epoll.wait(None).unwrap().len(), 1);
        let error = stream.take_error().unwrap().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
