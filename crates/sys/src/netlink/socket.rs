//! A blocking netlink socket: one request, its replies, its acknowledgement.
//!
//! The socket knows no message family; the neighbouring modules do. It belongs to the network
//! namespace of the thread that opened it, and any other thread may use it.

use std::{
    fmt, io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with,
    },
};

use super::message::{Malformed, Replies, Reply, Request, fixed, u32_at};
use super::{Attributes, message};
use crate::call::set_option;

/// The kernel subsystem that a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes (rtnetlink).
    Route,
    /// Families that register by name (ethtool).
    Generic,
    /// Packet filtering (nftables).
    Netfilter,
    /// Sockets (sock_diag).
    Sockets,
}

/// A connected netlink socket.
#[derive(Debug)]
pub struct NetlinkSocket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel has no such netlink protocol or the process has no descriptor left.
    pub fn open(protocol: Protocol) -> Result<Self, NetlinkError> {
        let number = match protocol {
            // `None` stands for protocol number 0, which is rtnetlink.
            Protocol::Route => None,
            Protocol::Generic => Some(netlink::GENERIC),
            Protocol::Netfilter => Some(netlink::NETFILTER),
            Protocol::Sockets => Some(netlink::SOCK_DIAG),
        };
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = socket_with(AddressFamily::NETLINK, kind, flags, number)
            .map_err(|errno| NetlinkError::os("open a netlink socket", errno))?;
        // Asks the kernel to say in words why a request failed, and to send its answers without a
        // copy of the request. Only newer kernels have these options, and the code works without
        // them, so a refusal is ignored.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let on: libc::c_int = 1;
            let _refused = set_option(fd.as_fd(), libc::SOL_NETLINK, option, &on);
        }
        Ok(Self {
            fd,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Sends one request and waits for its acknowledgement. `visit` gets each reply that comes
    /// before the acknowledgement.
    ///
    /// # Errors
    /// The kernel's answer, with its reason when it gives one.
    pub fn request(
        &mut self,
        request: Request,
        visit: &mut dyn FnMut(Reply<'_>) -> Result<(), Malformed>,
    ) -> Result<(), NetlinkError> {
        let sequence = self.send(request, flag(libc::NLM_F_ACK))?;
        while !self.receive(sequence, visit)?.ended {}
        Ok(())
    }

    /// Asks for all objects of a kind; `visit` gets each of them. When a change interrupts the
    /// dump, the dump begins again; `restart` is called before each attempt.
    ///
    /// # Errors
    /// The kernel's answer, or that the tables changed faster than they could be read.
    pub fn dump(
        &mut self,
        request: &Request,
        restart: &mut dyn FnMut(),
        visit: &mut dyn FnMut(Reply<'_>) -> Result<(), Malformed>,
    ) -> Result<(), NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            restart();
            let sequence = self.send(request.clone(), flag(libc::NLM_F_DUMP))?;
            let mut interrupted = false;
            loop {
                let progress = self.receive(sequence, visit)?;
                interrupted |= progress.interrupted;
                if progress.ended {
                    break;
                }
            }
            if !interrupted {
                return Ok(());
            }
        }
        Err(NetlinkError {
            operation: "read a kernel table".to_owned(),
            cause: Cause::Unstable,
        })
    }

    /// Sends several requests as one datagram, as nftables demands for its transactions. Waits for
    /// the first acknowledgement or refusal. At least one of the requests must ask for an
    /// acknowledgement.
    pub(super) fn transaction(&mut self, requests: Vec<Request>) -> Result<(), NetlinkError> {
        let mut bytes = Vec::new();
        let before = self.sequence;
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(request.finish(flag(libc::NLM_F_REQUEST), self.sequence));
        }
        let count = self.sequence.wrapping_sub(before);
        self.send_bytes(&bytes)?;
        loop {
            let len = self.read()?;
            for reply in Replies::new(&self.buffer[..len]) {
                let reply = reply?;
                let is_ours = (1..=count).contains(&reply.sequence.wrapping_sub(before));
                if is_ours && i32::from(reply.kind) == libc::NLMSG_ERROR {
                    return check_error(&reply);
                }
            }
        }
    }

    fn send(&mut self, request: Request, flags: u16) -> Result<u32, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(flag(libc::NLM_F_REQUEST) | flags, self.sequence);
        self.send_bytes(&bytes)?;
        Ok(self.sequence)
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        // Netlink takes a datagram whole or not at all.
        let sent = retry_on_intr(|| send(&self.fd, bytes, SendFlags::empty()));
        let sent = sent.map_err(|errno| NetlinkError::os("send a netlink request", errno))?;
        debug_assert_eq!(sent, bytes.len());
        Ok(())
    }

    fn receive(
        &mut self,
        sequence: u32,
        visit: &mut dyn FnMut(Reply<'_>) -> Result<(), Malformed>,
    ) -> Result<Progress, NetlinkError> {
        let len = self.read()?;
        let mut progress = Progress::default();
        for reply in Replies::new(&self.buffer[..len]) {
            let reply = reply?;
            if reply.sequence != sequence {
                // This reply is left over from a request that ended early.
                continue;
            }
            progress.interrupted |= reply.flags & flag(libc::NLM_F_DUMP_INTR) != 0;
            match i32::from(reply.kind) {
                libc::NLMSG_ERROR => {
                    check_error(&reply)?;
                    progress.ended = true;
                }
                libc::NLMSG_DONE => progress.ended = true,
                libc::NLMSG_NOOP => {}
                _ => visit(reply)?,
            }
        }
        Ok(progress)
    }

    fn read(&mut self) -> Result<usize, NetlinkError> {
        let received = retry_on_intr(|| recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC));
        let (_filled, len) =
            received.map_err(|errno| NetlinkError::os("receive a netlink reply", errno))?;
        if len > self.buffer.len() {
            return Err(NetlinkError {
                operation: "receive a netlink reply".to_owned(),
                cause: Cause::TooLong {
                    len,
                    room: self.buffer.len(),
                },
            });
        }
        Ok(len)
    }
}

/// The failure of a netlink operation: the operation that was attempted, and the cause.
#[derive(Debug)]
pub struct NetlinkError {
    operation: String,
    cause: Cause,
}

impl NetlinkError {
    fn os(operation: &str, errno: Errno) -> Self {
        Self {
            operation: operation.to_owned(),
            cause: Cause::Os(errno.into()),
        }
    }

    /// Makes the error of an operation that found nothing to act on.
    pub(super) fn missing(operation: impl Into<String>) -> Self {
        Self {
            operation: operation.into(),
            cause: Cause::Missing,
        }
    }

    /// Returns the same failure, reported as the failure of `operation`.
    #[must_use]
    pub fn during(mut self, operation: impl Into<String>) -> Self {
        self.operation = operation.into();
        self
    }

    /// Returns the error number that the kernel or a system call gave, or `ENODEV` when the
    /// operation found nothing to act on; `None` for other errors.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match &self.cause {
            Cause::Os(error) => error.raw_os_error(),
            Cause::Kernel { errno, .. } => Some(*errno),
            Cause::Missing => Some(libc::ENODEV),
            Cause::Malformed(_) | Cause::TooLong { .. } | Cause::Unstable => None,
        }
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: ", self.operation)?;
        match &self.cause {
            Cause::Os(error) => f.write_str(&crate::with_usual_remedy(error)),
            Cause::Kernel { errno, reason } => {
                write!(f, "{}", io::Error::from_raw_os_error(*errno))?;
                reason
                    .as_ref()
                    .map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            Cause::Malformed(malformed) => write!(f, "malformed netlink reply: {malformed}"),
            Cause::TooLong { len, room } => {
                write!(f, "it has {len} bytes, and there is room for {room}")
            }
            Cause::Missing => f.write_str("it does not exist"),
            Cause::Unstable => {
                f.write_str("the kernel's list changes faster than it can be read; try again later")
            }
        }
    }
}

impl std::error::Error for NetlinkError {}

impl From<Malformed> for NetlinkError {
    fn from(malformed: Malformed) -> Self {
        Self {
            operation: "read a netlink reply".to_owned(),
            cause: Cause::Malformed(malformed),
        }
    }
}

#[derive(Debug)]
enum Cause {
    Os(io::Error),
    Kernel { errno: i32, reason: Option<String> },
    Malformed(Malformed),
    TooLong { len: usize, room: usize },
    Missing,
    Unstable,
}

#[derive(Default)]
struct Progress {
    ended: bool,
    interrupted: bool,
}

/// Checks an `NLMSG_ERROR`: a negated error number (0 is an acknowledgement), the request's header,
/// and, with `NLM_F_ACK_TLVS`, attributes that say why.
pub(super) fn check_error(reply: &Reply<'_>) -> Result<(), NetlinkError> {
    let (header, rest) = fixed::<20>(reply.payload, "netlink error")?;
    let errno = u32_at(header, 0).cast_signed().wrapping_neg();
    if errno == 0 {
        return Ok(());
    }
    let has_reason = reply.flags & ACK_TLVS != 0;
    // With NLM_F_CAPPED, the reply repeats only the request's header, and attributes follow it.
    let behind = if reply.flags & CAPPED != 0 {
        0
    } else {
        (u32_at(header, 4) as usize).saturating_sub(message::HEADER_LEN)
    };
    let reason = rest
        .get(behind.next_multiple_of(4)..)
        .filter(|_| has_reason)
        .and_then(|bytes| Attributes::parse(bytes).ok())
        .and_then(|mut attributes| attributes.find(|attribute| attribute.kind == ERROR_TEXT))
        .map(|attribute| attribute.text());
    Err(NetlinkError {
        operation: "carry out a netlink request".to_owned(),
        cause: Cause::Kernel { errno, reason },
    })
}

/// Converts netlink flags from libc's `c_int` to the 16 bits that they have on the wire.
pub(super) const fn flag(flags: libc::c_int) -> u16 {
    (flags & 0xFFFF) as u16
}

/// Length of the receive buffer in bytes: the kernel fills dump buffers up to 32 KiB, and a single
/// object may need more.
const BUFFER_BYTES: usize = 65_536;
const DUMP_ATTEMPTS: u32 = 10;
/// `NLM_F_CAPPED`.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`.
const ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`.
const ERROR_TEXT: u16 = 1;
