//! TCP connections whose set-up does not block.
//!
//! The streams and listeners are the standard library's. This module adds three things that the
//! standard library lacks: a connect that returns at once, a choice of the backlog (a thousand
//! receivers may dial together), and options of a connection, such as the limit of a peer's
//! silence.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use libc::c_int;
use rustix::{
    io::{Errno, retry_on_intr},
    net::{SocketType, bind, sockopt},
};

use crate::{
    Family,
    call::{int_option, set_option},
};

/// Starts to connect, after `prepare` has set options that must hold from the first packet on. The
/// stream becomes writable when the connect has succeeded or failed. After a failure,
/// [`TcpStream::take_error`] returns the error once; after a success, [`TcpStream::peer_addr`]
/// returns the peer.
///
/// # Errors
/// Errors that are known at once (no route, no descriptors), and those of `prepare`.
pub fn connect(
    to: SocketAddr,
    prepare: impl FnOnce(&TcpStream) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let stream = TcpStream::from(Family::of(&to).socket(SocketType::STREAM)?);
    prepare(&stream)?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Listens on `address` (port 0: any free one) with room for `backlog` connections that are not
/// accepted yet. Accepted streams block until they are set otherwise. The unspecified IPv6 address
/// takes connections by IPv4, too.
///
/// # Errors
/// `AddrInUse`, `AddrNotAvailable`, or `PermissionDenied` for ports below 1024.
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let fd = Family::of(&address).socket(SocketType::STREAM)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, !address.ip().is_unspecified())?;
    }
    bind(&fd, &address)?;
    rustix::net::listen(&fd, backlog.into())?;
    Ok(TcpListener::from(fd))
}

/// Reads from the stream as many bytes as `into` has room for, and appends them; `into` first grows
/// to have room for at least `room` more bytes. Returns how many bytes came; 0 at the end of the
/// stream.
///
/// # Errors
/// `WouldBlock` when nothing has arrived, and the error that has ended the connection.
///
/// **Cost**: one system call; `into` grows at most once, and the new room is not filled with zeros
/// first.
pub fn read_into(stream: &TcpStream, into: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    into.reserve_exact(room);
    let read = || rustix::io::read(stream, rustix::buffer::spare_capacity(into));
    Ok(retry_on_intr(read)?)
}

/// Makes the kernel give a connection up when the peer's host has been silent for about `limit` (at
/// least 3 s). It does so whether or not data is on the way to the peer.
///
/// # Errors
/// Never in practice.
pub fn set_silence_limit(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    // The keepalive options count whole seconds. The user timeout counts milliseconds, in 31 bits.
    let seconds = limit.as_secs().clamp(3, SILENCE_SECONDS_MAX);
    let interval = Duration::from_secs(seconds / u64::from(SILENCE_PARTS));
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, interval)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, SILENCE_PARTS - 1)?;
    Ok(sockopt::set_tcp_user_timeout(
        stream,
        seconds as u32 * 1_000,
    )?)
}

/// If `is_corked`, holds back segments that are not full, for 200 ms at most. Otherwise sends what
/// was held back.
///
/// # Errors
/// Never in practice.
pub fn set_cork(stream: &TcpStream, is_corked: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(stream, is_corked)?)
}

/// Asks the kernel for a send buffer of `bytes` bytes. Returns the size that the kernel granted,
/// including room for its bookkeeping. From then on, the kernel no longer adapts the size itself.
///
/// # Errors
/// When `bytes` is above `i32::MAX`.
pub fn set_send_buffer(stream: &TcpStream, bytes: usize) -> io::Result<usize> {
    sockopt::set_socket_send_buffer_size(stream, bytes)?;
    Ok(sockopt::socket_send_buffer_size(stream)?)
}

/// Bounds how long a lost segment goes unnoticed when no further segment follows it. The kernel
/// waits for an acknowledgement for a round trip plus at least `resend_min` (by default 200 ms)
/// before it sends the segment again. It delays its own acknowledgements by at most `ack_max` (by
/// default 40 ms or more). If `resend_min` is not above the peer's `ack_max`, segments are sent
/// twice, which does no other harm. Each time must be at least two ticks of the kernel: 8 ms at 250
/// ticks a second. The connections of a listener inherit both times.
///
/// Linux before 6.15 has neither option; there, the call changes nothing.
///
/// **Source**: `TCP_RTO_MIN_US` and `TCP_DELACK_MAX_US` of include/uapi/linux/tcp.h.
pub fn set_prompt_resend(socket: &impl AsFd, resend_min: Duration, ack_max: Duration) {
    let options = [(TCP_RTO_MIN_US, resend_min), (TCP_DELACK_MAX_US, ack_max)];
    for (name, span) in options {
        let us = c_int::try_from(span.as_micros()).unwrap_or(c_int::MAX);
        let _comfort = set_option(socket.as_fd(), libc::IPPROTO_TCP, name, &us);
    }
}

/// Returns the `resend_min` and `ack_max` that the kernel granted to [`set_prompt_resend`].
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

const TCP_RTO_MIN_US: c_int = 45;
const TCP_DELACK_MAX_US: c_int = 46;
/// Number of equal parts of a silence limit: one idle time, then one interval after each probe. So
/// the number of probes is one less.
const SILENCE_PARTS: u32 = 3;
const SILENCE_SECONDS_MAX: u64 = i32::MAX as u64 / 1_000;

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
    fn what_has_arrived_is_appended_by_one_call_up_to_the_room() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.write_all(b"0123456789").unwrap();
        let mut into = Vec::new();
        while into.len() < 10 {
            let before = into.len();
            let room = if before == 0 { 4 } else { 64 };
            let count = read_into(&peer, &mut into, room).unwrap();
            assert_eq!(into.len(), before + count);
        }
        assert_eq!(into, b"0123456789");
        peer.set_nonblocking(true).unwrap();
        let nothing = read_into(&peer, &mut into, 64).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(stream);
        peer.set_nonblocking(false).unwrap();
        assert_eq!(read_into(&peer, &mut into, 64).unwrap(), 0);
        assert_eq!(into, b"0123456789");
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
            // The kernel rounds each time up to whole ticks, and a tick is at most 10 ms.
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
