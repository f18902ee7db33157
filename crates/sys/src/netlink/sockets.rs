//! The TCP sockets of a network namespace, all at once: sock_diag(7).
//!
//! Each socket comes with the data that `ss -tinm` shows: addresses, queues, buffers, drops, the
//! congestion control, and all of [`TcpInfo`]. Sockets of other users are among them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{
    Attributes, Malformed, NetlinkError, NetlinkSocket, Protocol, Request,
    message::{fixed, u32_at},
};
use crate::{SocketBuffers, TcpInfo};

/// One connection, at the time of the dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// The address of this end.
    pub local: SocketAddr,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// A number that no other socket has had since the host was started.
    pub cookie: u64,
    /// The socket's inode, by which `/proc/PID/fd` names it; 0 when no process has it any more.
    pub inode: u32,
    /// Number of the user who owns the socket.
    pub user: u32,
    /// Bytes that arrived and that the application has not read.
    pub unread_bytes: u32,
    /// Bytes that the application wrote and that the peer has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// The socket's buffers.
    pub buffers: SocketBuffers,
    /// The name of the socket's congestion control; empty when the kernel does not tell.
    pub congestion: String,
    /// The kernel's other data about the connection.
    pub info: TcpInfo,
}

impl TcpSocket {
    /// Returns the connections that can carry data, by IPv4 and IPv6, in the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// When the kernel has no sock_diag, or its tables change faster than they can be read.
    ///
    /// **Cost**: a few system calls, and about a microsecond for each socket.
    pub fn all() -> Result<Vec<Self>, NetlinkError> {
        let mut socket = NetlinkSocket::open(Protocol::Sockets)?;
        let mut all: Vec<Self> = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut found = Vec::new();
            let of_family = std::cell::RefCell::new(&mut found);
            socket.dump(
                &Self::request(family),
                &mut || of_family.borrow_mut().clear(),
                &mut |reply| {
                    of_family.borrow_mut().push(Self::parse(reply.payload)?);
                    Ok(())
                },
            )?;
            all.append(&mut found);
        }
        Ok(all)
    }

    fn request(family: i32) -> Request {
        let mut header = [0; REQUEST_LEN];
        header[0] = family as u8;
        header[1] = libc::IPPROTO_TCP as u8;
        header[2] = (1 << (INFO - 1)) | (1 << (CONGESTION - 1)) | (1 << (MEMORY - 1));
        header[4..8].copy_from_slice(&WITH_DATA.to_ne_bytes());
        let mut request = Request::new(SOCK_DIAG_BY_FAMILY, 0);
        request.fixed(&header);
        request
    }

    /// Reads the payload of one answer.
    ///
    /// # Errors
    /// When the payload ends early.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = fixed::<ANSWER_LEN>(payload, "socket header")?;
        let is_ipv6 = i32::from(header[0]) == libc::AF_INET6;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let mut socket = Self {
            local: SocketAddr::new(ip(header, 8, is_ipv6), port(4)),
            remote: SocketAddr::new(ip(header, 24, is_ipv6), port(6)),
            cookie: u64::from(u32_at(header, 44)) | u64::from(u32_at(header, 48)) << 32,
            unread_bytes: u32_at(header, 56),
            unacknowledged_bytes: u32_at(header, 60),
            user: u32_at(header, 64),
            inode: u32_at(header, 68),
            buffers: SocketBuffers::default(),
            congestion: String::new(),
            info: TcpInfo::from_bytes(&[]),
        };
        for attribute in Attributes::parse(rest)? {
            match attribute.kind {
                INFO => socket.info = TcpInfo::from_bytes(attribute.payload),
                CONGESTION => socket.congestion = attribute.text(),
                MEMORY => socket.buffers = SocketBuffers::parse(attribute.payload),
                _ => {}
            }
        }
        Ok(socket)
    }
}

fn ip(header: &[u8; ANSWER_LEN], at: usize, is_ipv6: bool) -> IpAddr {
    let bytes = |len: usize| &header[at..at + len];
    if is_ipv6 {
        let octets: [u8; 16] = bytes(16).try_into().expect("16 bytes of a fixed header");
        return Ipv6Addr::from(octets).to_canonical();
    }
    let octets: [u8; 4] = bytes(4).try_into().expect("4 bytes of a fixed header");
    octets.into()
}

/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;
/// Bytes of `struct inet_diag_msg`.
const ANSWER_LEN: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Number of the attribute `INET_DIAG_INFO`: the connection's `tcp_info`.
const INFO: u16 = 2;
/// Number of the attribute `INET_DIAG_CONG`: the name of the congestion control.
const CONGESTION: u16 = 4;
/// Number of the attribute `INET_DIAG_SKMEMINFO`: the use of the socket's buffers.
const MEMORY: u16 = 7;
/// A bit for each state in which data may be under way: ESTABLISHED (1), FIN_WAIT1 (4), FIN_WAIT2
/// (5), CLOSE_WAIT (8), LAST_ACK (9), CLOSING (11).
const WITH_DATA: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
        os::fd::AsFd as _,
    };

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_found_with_what_waits_in_them() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else {
                println!("skipped: this host has no {host}");
                continue;
            };
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (peer, _) = listener.accept().unwrap();
            stream.write_all(&[1; 3_000]).unwrap();
            let (here, there) = (stream.local_addr().unwrap(), peer.local_addr().unwrap());
            let unread = |socket: &TcpSocket| (socket.local, socket.remote) == (there, here);
            // Loopback usually delivers within the write call. The loop allows for a later
            // delivery.
            let taker = (0..1_000)
                .find_map(|_| {
                    let all = TcpSocket::all().unwrap();
                    let found = all.into_iter().find(unread);
                    found.filter(|socket| socket.unread_bytes == 3_000)
                })
                .unwrap();
            assert_eq!(taker.info.bytes_received(), Some(3_000));
            assert!(taker.buffers.receive_used_bytes >= 3_000);
            assert!(taker.buffers.send_bytes > 0 && !taker.congestion.is_empty());
            let status = rustix::fs::fstat(peer.as_fd()).unwrap();
            assert_eq!(u64::from(taker.inode), status.st_ino);
            let all = TcpSocket::all().unwrap();
            let maker = all.iter().find(|socket| socket.local == here).unwrap();
            assert_eq!(maker.info.bytes_sent(), Some(3_000));
            assert_ne!(maker.cookie, taker.cookie);
        }
    }

    #[test]
    fn an_answer_that_is_cut_short_is_an_error() {
        assert!(TcpSocket::parse(&[0; ANSWER_LEN - 1]).is_err());
        assert!(TcpSocket::parse(&[0; ANSWER_LEN]).is_ok());
        let mut long = vec![0; ANSWER_LEN];
        long.extend_from_slice(&[9, 0, 2, 0]);
        assert!(TcpSocket::parse(&long).is_err());
    }
}
