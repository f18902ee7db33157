//! Datagrams in and out: gathered sends, many messages a call, and their control messages.
//!
//! Control messages are read and written as plain bytes at the field offsets of `cmsghdr`. So the
//! code does not depend on their alignment, and each access is bounds-checked.

use std::{
    io::{self, IoSlice},
    mem::{MaybeUninit, offset_of, size_of},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd as _, BorrowedFd},
};

use libc::{c_int, c_uint, cmsghdr, iovec, mmsghdr, msghdr};

use crate::{
    RawAddress, address,
    call::{check, check_len},
};

/// The control messages of a send: segment size, hop limit and router alert, as bytes for the
/// kernel.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    bytes: [u8; CONTROL_SEND_BYTES],
    len: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Makes an empty list of control messages.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; CONTROL_SEND_BYTES],
            len: 0,
        }
    }

    /// Adds the segment size: the kernel cuts the message into datagrams of `bytes` each (UDP GSO).
    #[must_use]
    pub fn segment(self, bytes: u16) -> Self {
        self.with(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())
    }

    /// Adds a time to live or hop limit, which replaces the socket's own.
    #[must_use]
    pub fn hops(self, hops: u8, is_ipv6: bool) -> Self {
        let value = c_int::from(hops).to_ne_bytes();
        if is_ipv6 {
            self.with(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &value)
        } else {
            self.with(libc::IPPROTO_IP, libc::IP_TTL, &value)
        }
    }

    /// Adds the Router Alert option to the IPv4 header: routers on the way look at the packet.
    ///
    /// **Spec**: RFC 2113.
    #[must_use]
    pub fn router_alert(self) -> Self {
        self.with(libc::IPPROTO_IP, libc::IP_RETOPTS, &ROUTER_ALERT)
    }

    /// Returns the bytes to hand to a send call.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn with(mut self, level: c_int, kind: c_int, value: &[u8]) -> Self {
        let at = self.len;
        let data_len = HEADER_BYTES + value.len();
        self.bytes[at..at + size_of::<usize>()].copy_from_slice(&data_len.to_ne_bytes());
        let level_at = at + LEVEL_OFFSET;
        self.bytes[level_at..level_at + 4].copy_from_slice(&level.to_ne_bytes());
        let kind_at = at + KIND_OFFSET;
        self.bytes[kind_at..kind_at + 4].copy_from_slice(&kind.to_ne_bytes());
        let data_at = at + HEADER_BYTES;
        self.bytes[data_at..data_at + value.len()].copy_from_slice(value);
        self.len = at + aligned(data_len);
        self
    }
}

/// Sends the concatenation of `pieces` as one message, or as several datagrams when `control` asks
/// for segmentation. Returns the number of bytes sent; a datagram socket sends all or nothing.
///
/// # Errors
/// The errno of `sendmsg`.
///
/// **Cost**: one system call, no allocation.
pub fn send(
    fd: BorrowedFd<'_>,
    to: &RawAddress,
    pieces: &[IoSlice<'_>],
    control: &Control,
) -> io::Result<usize> {
    send_one(fd, Some(to), pieces, control.as_bytes(), libc::MSG_NOSIGNAL)
}

/// Sends as [`send`] does, with any control messages and flags. Without `to`, sends to the peer of
/// a connected socket.
#[inline]
pub(crate) fn send_one(
    fd: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    pieces: &[IoSlice<'_>],
    control: &[u8],
    flags: c_int,
) -> io::Result<usize> {
    let header = outgoing(to, pieces, control);
    // SAFETY: the header points at `to`, `pieces` and `control`, all borrowed for longer than the
    // call (see `outgoing`); sending only reads through these pointers and keeps none of them.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })
}

/// Sends each of `datagrams` as a message of its own, up to [`MANY_MAX`] of them, in one call.
/// Returns the number of messages that left.
///
/// # Errors
/// The errno of `sendmmsg`, when even the first datagram did not leave.
///
/// **Cost**: one system call, no allocation.
pub fn send_many(
    fd: BorrowedFd<'_>,
    to: &RawAddress,
    datagrams: &[IoSlice<'_>],
    control: &Control,
) -> io::Result<usize> {
    let control = control.as_bytes();
    send_each(fd, Some(to), datagrams, control, libc::MSG_NOSIGNAL)
}

/// Sends as [`send_many`] does, with any flags. Without `to`, sends to the peer of a connected
/// socket.
#[inline]
pub(crate) fn send_each(
    fd: BorrowedFd<'_>,
    to: Option<&RawAddress>,
    datagrams: &[IoSlice<'_>],
    control: &[u8],
    flags: c_int,
) -> io::Result<usize> {
    let count = datagrams.len().min(MANY_MAX);
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; MANY_MAX];
    for (header, datagram) in headers.iter_mut().zip(&datagrams[..count]) {
        header.write(mmsghdr {
            msg_hdr: outgoing(to, std::slice::from_ref(datagram), control),
            msg_len: 0,
        });
    }
    let vlen = c_uint::try_from(count).expect("at most MANY_MAX messages");
    // SAFETY: the first `vlen` headers were written in the loop and point at `to`, `datagrams` and
    // `control`, all borrowed for longer than the call; the kernel writes only `msg_len` fields.
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

/// Takes up to `reports_max` reports out of a socket's error queue, and returns their number. While
/// a report waits in the queue, a poll set reports the socket as ready.
pub fn discard_errors(fd: BorrowedFd<'_>, reports_max: usize) -> usize {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let take = |_: &usize| receive_one(fd, &mut [], None, &mut [], flags).is_ok();
    (0..reports_max).take_while(take).count()
}

/// Receives one message: its bytes into `bytes`, its sender into `from`, and its control messages
/// into `control`. Returns the lengths of bytes and control messages.
#[inline]
pub(crate) fn receive_one(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    from: Option<&mut RawAddress>,
    control: &mut [u8],
    flags: c_int,
) -> io::Result<(usize, usize)> {
    let mut vector = iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut header = empty_header();
    if let Some(from) = from {
        header.msg_name = from.as_mut_ptr().cast();
        header.msg_namelen = address::LEN_MAX;
    }
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: the header points at `bytes`, `from`, `control` and `vector`, exclusively borrowed or
    // local, with their true lengths; the kernel writes no more than these and keeps no pointer.
    let len = check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) })?;
    #[allow(
        clippy::unnecessary_cast,
        reason = "the field is narrower in other C libraries"
    )]
    let control_len = header.msg_controllen as usize;
    Ok((len, control_len.min(control.len())))
}

/// Makes a message header that points at the given address, pieces and control bytes. While these
/// three are borrowed, the header is valid for sending, which only reads through its pointers.
fn outgoing(to: Option<&RawAddress>, pieces: &[IoSlice<'_>], control: &[u8]) -> msghdr {
    let mut header = empty_header();
    if let Some(to) = to {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
    }
    // The layout of `IoSlice` is guaranteed to be that of `iovec` on Unix.
    header.msg_iov = pieces.as_ptr().cast_mut().cast::<iovec>();
    header.msg_iovlen = pieces.len() as _;
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    header
}

pub(crate) fn empty_header() -> msghdr {
    // SAFETY: `msghdr` is a C structure of integers and raw pointers; all zero is a valid value.
    unsafe { std::mem::zeroed() }
}

/// Room for the addresses and control messages of up to [`MANY_MAX`] received messages. Each call
/// brings its own buffers for the payload.
pub struct Inbox {
    addresses: Box<[RawAddress]>,
    control: Box<[[u8; CONTROL_RECEIVE_BYTES]]>,
    outcomes: Box<[Outcome]>,
}

/// The fields that the kernel wrote into one message header.
#[derive(Clone, Copy, Default)]
struct Outcome {
    len: usize,
    control_len: usize,
    flags: c_int,
}

impl Inbox {
    /// Makes room for `messages` messages a call, at most [`MANY_MAX`].
    #[must_use]
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, MANY_MAX);
        Self {
            addresses: vec![RawAddress::empty(); messages].into(),
            control: vec![[0; CONTROL_RECEIVE_BYTES]; messages].into(),
            outcomes: vec![Outcome::default(); messages].into(),
        }
    }

    /// Receives one message into each buffer, and returns how many came. Until the next call,
    /// [`Inbox::message`] has the details of each.
    ///
    /// With `blocking` it waits for the first message, for at most the limit of
    /// [`crate::datagram::set_blocking`]. The thread then sleeps in the receive call itself: waking
    /// it costs the kernel less than waking a thread that waits for a set of descriptors (epoll).
    ///
    /// # Errors
    /// The errno of `recvmmsg`; `WouldBlock` when nothing is there, `Interrupted` when a signal
    /// ended the wait.
    ///
    /// **Cost**: one system call, no allocation.
    pub fn receive<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
        blocking: bool,
    ) -> io::Result<usize> {
        let flags = if blocking {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; MANY_MAX];
        let mut vectors = [const { MaybeUninit::<iovec>::uninit() }; MANY_MAX];
        let mut count = 0;
        let rooms = self.addresses.iter_mut().zip(&mut self.control);
        let slots = headers.iter_mut().zip(&mut vectors);
        for ((buffer, (address, control)), (header, vector)) in buffers.zip(rooms).zip(slots) {
            let vector = vector.write(iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            });
            let mut message = empty_header();
            message.msg_name = address.as_mut_ptr().cast();
            message.msg_namelen = address::LEN_MAX;
            message.msg_iov = vector;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = CONTROL_RECEIVE_BYTES as _;
            header.write(mmsghdr {
                msg_hdr: message,
                msg_len: 0,
            });
            count += 1;
        }
        let vlen = c_uint::try_from(count).expect("at most MANY_MAX messages");
        // SAFETY: the first `vlen` headers were written in the loop. Each points at a buffer, an
        // address, a control array and an iovec of its own, with their true lengths. All are
        // exclusively borrowed (or local) until this function returns; the kernel writes no more
        // than these lengths and keeps no pointer. The timeout is null, which means none.
        let received = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                vlen,
                flags as _,
                std::ptr::null_mut(),
            )
        })?;
        let received = usize::try_from(received).unwrap_or(0).min(count);
        for (outcome, header) in self.outcomes.iter_mut().zip(&headers[..received]) {
            // SAFETY: this header is among the first `count`, which the loop above initialised.
            let header = unsafe { header.assume_init_ref() };
            #[allow(
                clippy::unnecessary_cast,
                reason = "the field is narrower in other C libraries"
            )]
            let control_len = header.msg_hdr.msg_controllen as usize;
            *outcome = Outcome {
                len: usize::try_from(header.msg_len).unwrap_or(0),
                control_len,
                flags: header.msg_hdr.msg_flags,
            };
        }
        Ok(received)
    }

    /// Returns the details of message `index` of the last [`Inbox::receive`].
    ///
    /// **Panics** (bug): when `index` is past the inbox's size.
    #[must_use]
    pub fn message(&self, index: usize) -> Received {
        let outcome = self.outcomes[index];
        let mut received = Received {
            len: outcome.len,
            segment: None,
            source: self.addresses[index].to_socket_addr(),
            destination: None,
            interface: None,
            overflow: None,
            is_truncated: outcome.flags & libc::MSG_TRUNC != 0,
        };
        let control_len = outcome.control_len.min(CONTROL_RECEIVE_BYTES);
        received.read_control(&self.control[index][..control_len]);
        received
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("messages", &self.outcomes.len())
            .finish_non_exhaustive()
    }
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes written to the buffer.
    pub len: usize,
    /// Length of each datagram except the last, when the kernel coalesced several (UDP GRO).
    pub segment: Option<usize>,
    /// The address of the message's sender.
    pub source: Option<SocketAddr>,
    /// The address that the message was sent to, when packet information was asked for.
    pub destination: Option<IpAddr>,
    /// Index of the interface that the message arrived by, when packet information was asked for.
    pub interface: Option<u32>,
    /// Number of packets that the kernel has dropped at the socket since it was made. `None` when
    /// that report was not asked for, or the count is zero.
    pub overflow: Option<u32>,
    /// True when the message was longer than the buffer; the rest is lost.
    pub is_truncated: bool,
}

impl Received {
    fn read_control(&mut self, mut bytes: &[u8]) {
        while bytes.len() >= HEADER_BYTES {
            let len = usize_at(bytes, 0);
            if len < HEADER_BYTES || len > bytes.len() {
                return;
            }
            let level = int_at(bytes, LEVEL_OFFSET);
            let kind = int_at(bytes, KIND_OFFSET);
            self.read_one(level, kind, &bytes[HEADER_BYTES..len]);
            bytes = &bytes[aligned(len).min(bytes.len())..];
        }
    }

    fn read_one(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) if data.len() >= 4 => {
                self.segment = usize::try_from(int_at(data, 0)).ok().filter(|&n| n > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if data.len() >= 4 => {
                self.overflow = Some(int_at(data, 0).cast_unsigned());
            }
            // struct in_pktinfo: interface index, local address, destination address.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() >= 12 => {
                self.interface = u32::try_from(int_at(data, 0)).ok();
                let octets: [u8; 4] = data[8..12].try_into().expect("four bytes were sliced");
                self.destination = Some(Ipv4Addr::from(octets).into());
            }
            // struct in6_pktinfo: destination address, interface index.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if data.len() >= 20 => {
                self.interface = u32::try_from(int_at(data, 16)).ok();
                let octets: [u8; 16] = data[..16].try_into().expect("16 bytes were sliced");
                self.destination = Some(Ipv6Addr::from(octets).into());
            }
            _ => {}
        }
    }
}

/// The most messages that one call sends or receives.
pub const MANY_MAX: usize = 64;

/// Bytes of three control messages (segment size, hop limit, router alert): each is a header and up
/// to eight bytes.
const CONTROL_SEND_BYTES: usize = 3 * (aligned(HEADER_BYTES) + 8);
/// The Router Alert option: its type (copied into fragments, control class, number 20), its length,
/// and the value 0, which asks every router to look at the packet.
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
/// Bytes enough for the control messages of one received message: GRO size, drop count and IPv6
/// packet information.
const CONTROL_RECEIVE_BYTES: usize = 128;

const HEADER_BYTES: usize = aligned(size_of::<cmsghdr>());
const LEVEL_OFFSET: usize = offset_of!(cmsghdr, cmsg_level);
const KIND_OFFSET: usize = offset_of!(cmsghdr, cmsg_type);

// `cmsg_len` comes first. Padding follows it where a C library makes it shorter than a word.
const _: () = assert!(offset_of!(cmsghdr, cmsg_len) == 0);
const _: () = assert!(LEVEL_OFFSET == size_of::<usize>() && KIND_OFFSET == LEVEL_OFFSET + 4);
const _: () = assert!(offset_of!(libc::in_pktinfo, ipi_ifindex) == 0);
const _: () = assert!(offset_of!(libc::in_pktinfo, ipi_addr) == 8);
const _: () = assert!(offset_of!(libc::in6_pktinfo, ipi6_addr) == 0);
const _: () = assert!(offset_of!(libc::in6_pktinfo, ipi6_ifindex) == 16);

/// Rounds up to a multiple of the word size, where control messages start.
const fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

fn int_at(bytes: &[u8], at: usize) -> c_int {
    let bytes = bytes[at..at + 4]
        .try_into()
        .expect("four bytes were sliced");
    c_int::from_ne_bytes(bytes)
}

fn usize_at(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + size_of::<usize>()]
        .try_into()
        .expect("a word was sliced");
    usize::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_have_the_layout_of_c() {
        let control = Control::new().segment(1424).hops(1, false);
        let bytes = control.as_bytes();
        // SAFETY: CMSG_SPACE is arithmetic on its argument.
        let space = unsafe { libc::CMSG_SPACE(2) } as usize;
        // SAFETY: as above.
        let both = space + unsafe { libc::CMSG_SPACE(4) } as usize;
        assert_eq!(bytes.len(), both);
        // SAFETY: CMSG_LEN is arithmetic on its argument.
        assert_eq!(usize_at(bytes, 0), unsafe { libc::CMSG_LEN(2) } as usize);
        assert_eq!(int_at(bytes, space + KIND_OFFSET), libc::IP_TTL);
    }

    #[test]
    fn hostile_control_bytes_do_no_harm() {
        let good = Control::new()
            .with(libc::SOL_UDP, libc::UDP_GRO, &1424_i32.to_ne_bytes())
            .with(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let empty = Received {
            len: 0,
            segment: None,
            source: None,
            destination: None,
            interface: None,
            overflow: None,
            is_truncated: false,
        };
        let mut received = empty;
        received.read_control(good.as_bytes());
        assert_eq!((received.segment, received.overflow), (Some(1424), Some(7)));
        for cut in 0..good.as_bytes().len() {
            let mut received = empty;
            received.read_control(&good.as_bytes()[..cut]);
        }
        for byte in 0..=255 {
            let mut bytes = good.as_bytes().to_vec();
            bytes[0] = byte;
            let mut received = empty;
            received.read_control(&bytes);
        }
    }
}
