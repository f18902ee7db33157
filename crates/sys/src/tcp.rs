//! TCP connections that never block, not even while they are being set up.
//!
//! The streams and listeners are the standard library's; only what it cannot do is here: a connect
//! that returns at once, a backlog for a thousand receivers dialling together, and the options that
//! find out that a peer's host is gone.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use libc::c_int;

use crate::{
    Family, RawAddress,
    call::{check, int_option, set_option},
};

/// Starts to connect, after `prepare` has set what shall hold from the first packet on. The stream
/// becomes writable when that has succeeded or failed: [`TcpStream::take_error`] tells of a
/// failure, once, and [`TcpStream::peer_addr`] of success.
///
/// # Errors
/// Those known at once: no route, no descriptors; and those of `prepare`.
pub fn connect(
    to: SocketAddr,
    prepare: impl FnOnce(&TcpStream) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let stream = TcpStream::from(socket(Family::of(&to))?);
    prepare(&stream)?;
    let raw = RawAddress::from(to);
    // SAFETY: `raw` is live for the call and as long as `len` says; it is only read.
    match check(unsafe { libc::connect(stream.as_raw_fd(), raw.as_ptr(), raw.len()) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _connected_or_in_progress => Ok(stream),
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

/// Bounds how long a lost segment goes unnoticed when nothing follows it: it is sent again
/// `resend_min` after a round trip, where the kernel's own least is 200 ms. What arrives is
/// acknowledged within `ack_max`, where the kernel's own bound is 40 ms and more. `resend_min` has
/// to exceed the `ack_max` of the other end, or segments are sent twice; nothing else goes wrong
/// then. Both are counted in ticks of the kernel, and each has to be two of them: 8 ms where it has
/// 250 a second. A listener's connections inherit both.
///
/// What the kernel does not take stays as it is: kernels before Linux 6.15 know neither.
///
/// `TCP_RTO_MIN_US` and `TCP_DELACK_MAX_US` of include/uapi/linux/tcp.h.
pub fn set_prompt_resend(socket: &impl AsFd, resend_min: Duration, ack_max: Duration) {
    let options = [(TCP_RTO_MIN_US, resend_min), (TCP_DELACK_MAX_US, ack_max)];
    for (name, span) in options {
        let us = c_int::try_from(span.as_micros()).unwrap_or(c_int::MAX);
        let _comfort = set_option(socket.as_fd(), libc::IPPROTO_TCP, name, &us);
    }
}

/// What the kernel has made of [`set_prompt_resend`]: `resend_min` and `ack_max`.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.15.
pub fn prompt_resend(socket: &impl AsFd) -> io::Result<[Duration; 2]> {
    let span = |name| -> io::Result<Duration> {
        let us = int_option(socket.as_fd(), libc::IPPROTO_TCP, name)?;
        Ok(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    };
    Ok([span(TCP_RTO_MIN_US)?, span(TCP_DELACK_MAX_US)?])
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
    use crate::{Epoll, Interest};

    #[test]
    fn connects_without_blocking() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
        let mut stream = connect(listener.local_addr().unwrap(), |_| Ok(())).unwrap();
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
    fn a_prompt_resend_is_inherited_where_the_kernel_knows_it() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 16).unwrap();
        let [resend, ack] = [100, 50].map(Duration::from_millis);
        set_prompt_resend(&listener, resend, ack);
        let stream = connect(listener.local_addr().unwrap(), |_| Ok(())).unwrap();
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(listener.as_fd(), 1, Interest::READ).unwrap();
        assert_eq!(epoll.wait(None).unwrap().len(), 1);
        let (accepted, _) = listener.accept().unwrap();
        match prompt_resend(&accepted) {
            // Every rate of ticks makes up to 10 ms more of it.
            Ok(set) => {
                let tick = Duration::from_millis(10);
                assert!((resend..=resend + tick).contains(&set[0]), "{set:?}");
                assert!((ack..=ack + tick).contains(&set[1]), "{set:?}");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT)),
        }
        drop(stream);
    }

    #[test]
    fn a_refused_connection_is_told_by_take_error() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let stream = connect(address, |_| Ok(())).unwrap();
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(stream.as_fd(), 1, Interest::BOTH).unwrap();
        assert_eq!(epoll.wait(None).unwrap().len(), 1);
        let error = stream.take_error().unwrap().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
