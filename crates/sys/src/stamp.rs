//! The kernel's own times of a packet, and the reports in a socket's error queue.
//!
//! ```text
//!   send_stamped() --> SCHED (packet scheduler) --> SND (device) --> wire --> RX (kernel)
//!                        |                            |                       |
//!                        +------ error queue ---------+          receive_stamped()
//! ```
//! Software stamps are times of CLOCK_REALTIME, which may be set at any time; hardware stamps are
//! times of the network device's own clock. Stamps of sent packets carry a number that counts the
//! stamped packets of the socket from 0. Control messages are parsed as plain bytes,
//! bounds-checked; messages that make no sense are skipped.
//!
//! Source: Documentation/networking/timestamping.rst of the kernel.

use std::{
    io::{self, IoSlice},
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::BorrowedFd,
};

use libc::{c_int, c_uint};

use crate::{call::set_option, message};

/// The times of a packet in nanoseconds, one by each clock that stamped it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The kernel's time, by CLOCK_REALTIME.
    pub software_ns: Option<u64>,
    /// The network device's time, by the device's own clock.
    pub hardware_ns: Option<u64>,
}

/// The stage at which a sent packet was stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On entry to the packet scheduler.
    Scheduled,
    /// When the kernel handed the packet to the device, or when the device sent it.
    Sent,
    /// A stage that this module does not ask for.
    Other(u32),
}

/// A report that waited in the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The stamp of a packet that was sent.
    Stamp {
        /// The packet's number among the stamped packets of this socket, from 0.
        number: u32,
        /// The stage at which the packet was stamped.
        stage: Stage,
        /// The times of the stamp.
        stamps: Stamps,
    },
    /// An error about a packet that was sent.
    Failure {
        /// The errno that the error stands for.
        errno: i32,
        /// The origin of the error.
        origin: Origin,
        /// Type and code of the ICMP message.
        icmp: (u8, u8),
        /// The next hop's MTU in bytes, when `errno` is `EMSGSIZE`.
        info: u32,
        /// The sender of the ICMP message.
        offender: Option<IpAddr>,
    },
}

/// The origin of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine.
    Local,
    /// Another machine, by ICMP.
    Icmp,
    /// An origin that this release does not know.
    Other(u8),
}

/// Turns stamping on for a socket: the kernel then stamps every packet that the socket receives,
/// and those that [`send_stamped`] sends. Hardware stamps come only from devices that were told to
/// make them.
///
/// # Errors
/// On kernels before 4.0, and for sockets whose packets cannot be stamped.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = RX_HARDWARE | RX_SOFTWARE | SOFTWARE | RAW_HARDWARE | OPT_ID | OPT_TSONLY;
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Turns stamping off.
///
/// # Errors
/// Never in practice.
pub fn disable(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &0_u32)
}

/// Sends to the peer of a connected socket and makes the kernel stamp this packet on its way.
///
/// # Errors
/// The errno of `sendmsg`.
///
/// **Cost**: one system call; two reports in the error queue.
pub fn send_stamped(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mut control = [0; HEADER_BYTES + 8];
    put_header(&mut control, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 4);
    let flags: u32 = TX_SCHED | TX_SOFTWARE | TX_HARDWARE;
    control[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&flags.to_ne_bytes());
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    message::send_one(fd, None, &[IoSlice::new(bytes)], &control, flags)
}

/// Receives one datagram without waiting, and returns its length and its times of arrival.
///
/// # Errors
/// `WouldBlock` when nothing is there; `ECONNREFUSED` and the like for ICMP errors.
pub fn receive_stamped(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Stamps)> {
    let (len, control) = receive_with_control(fd, bytes)?;
    Ok((len, parse_arrival(&control)))
}

/// Receives one datagram without waiting. Returns its length and its control messages; zeros fill
/// the rest of the array.
pub(crate) fn receive_with_control(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, [u8; CONTROL_BYTES])> {
    let mut control = [0; CONTROL_BYTES];
    let (len, _) = message::receive_one(fd, bytes, None, &mut control, libc::MSG_DONTWAIT)?;
    Ok((len, control))
}

/// Reads a datagram's times of arrival from the control messages that came with it.
#[must_use]
pub fn parse_arrival(control: &[u8]) -> Stamps {
    let is_stamp = |&(level, kind, _): &(c_int, c_int, &[u8])| {
        (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)
    };
    let stamps = control_messages(control).filter(is_stamp).last();
    stamps.map_or_else(Stamps::default, |(_, _, data)| parse_stamps(data))
}

/// Takes the next report out of the error queue; `None` when the queue is empty. Skips messages
/// that are neither stamps of this socket's packets nor errors.
///
/// # Errors
/// Never in practice.
pub fn receive_report(fd: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    loop {
        let mut control = [0; CONTROL_BYTES];
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let received = message::receive_one(fd, &mut [], None, &mut control, flags);
        let (_, control_len) = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        if let Some(report) = parse_report(&control[..control_len]) {
            return Ok(Some(report));
        }
    }
}

/// Reads the control messages of one message of an error queue; `None` when they hold no report.
#[must_use]
pub fn parse_report(control: &[u8]) -> Option<Report> {
    let (mut stamps, mut failure) = (Stamps::default(), None);
    for (level, kind, data) in control_messages(control) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamps = parse_stamps(data),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                failure = data.get(..EXTENDED_BYTES).map(|error| (error, data));
            }
            _ => {}
        }
    }
    let (error, data) = failure?;
    let number = |at: usize| u32_at(error, at);
    if error[4] == ORIGIN_TIMESTAMPING {
        let stage = match number(8) {
            STAGE_SENT => Stage::Sent,
            STAGE_SCHEDULED => Stage::Scheduled,
            other => Stage::Other(other),
        };
        return Some(Report::Stamp {
            number: number(12),
            stage,
            stamps,
        });
    }
    Some(Report::Failure {
        errno: number(0).cast_signed(),
        origin: match error[4] {
            1 => Origin::Local,
            2 | 3 => Origin::Icmp,
            other => Origin::Other(other),
        },
        icmp: (error[5], error[6]),
        info: number(8),
        offender: parse_offender(&data[EXTENDED_BYTES..]),
    })
}

/// Reads a `struct scm_timestamping`: software, a field no longer used, hardware.
fn parse_stamps(data: &[u8]) -> Stamps {
    let at = |index: usize| parse_time(data.get(index * 16..)?);
    Stamps {
        software_ns: at(0),
        hardware_ns: at(2),
    }
}

/// Reads the `struct timespec` that `data` begins with, in nanoseconds; `None` for zero, which
/// means no time.
pub(crate) fn parse_time(data: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u64::from_ne_bytes(*data.get(at..)?.first_chunk()?));
    let ns = number(0)?
        .checked_mul(1_000_000_000)?
        .checked_add(number(8)?)?;
    (ns != 0).then_some(ns)
}

/// Reads the `sockaddr` behind an extended error.
fn parse_offender(data: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
    match c_int::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = data.get(4..8)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = data.get(8..24)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// Returns level, kind and content of each control message, up to the first that is not whole.
pub(crate) fn control_messages(mut bytes: &[u8]) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER_BYTES)?;
        let word = header[..size_of::<usize>()].try_into().expect("a word");
        let len = usize::from_ne_bytes(word);
        let data = bytes.get(HEADER_BYTES..len)?;
        let int = |at: usize| u32_at(header, at).cast_signed();
        let (level, kind) = (int(size_of::<usize>()), int(size_of::<usize>() + 4));
        let next = len.next_multiple_of(size_of::<usize>()).min(bytes.len());
        bytes = &bytes[next..];
        Some((level, kind, data))
    })
}

fn put_header(bytes: &mut [u8], level: c_int, kind: c_int, data_len: usize) {
    let word = size_of::<usize>();
    bytes[..word].copy_from_slice(&(HEADER_BYTES + data_len).to_ne_bytes());
    bytes[word..word + 4].copy_from_slice(&level.to_ne_bytes());
    bytes[word + 4..word + 8].copy_from_slice(&kind.to_ne_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(
        bytes[at..at + 4]
            .try_into()
            .expect("four bytes were sliced"),
    )
}

/// Room for the control messages of one datagram or report, in bytes: more than either needs.
const CONTROL_BYTES: usize = 256;
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
/// Length of `struct sock_extended_err` in bytes.
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/errqueue.h>
const EXTENDED_BYTES: usize = 16;
const ORIGIN_TIMESTAMPING: u8 = 4;
const STAGE_SENT: u32 = 0;
const STAGE_SCHEDULED: u32 = 1;

const RX_HARDWARE: c_uint = libc::SOF_TIMESTAMPING_RX_HARDWARE;
const RX_SOFTWARE: c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE;
const SOFTWARE: c_uint = libc::SOF_TIMESTAMPING_SOFTWARE;
const RAW_HARDWARE: c_uint = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
const TX_HARDWARE: c_uint = libc::SOF_TIMESTAMPING_TX_HARDWARE;
const TX_SOFTWARE: c_uint = libc::SOF_TIMESTAMPING_TX_SOFTWARE;
const TX_SCHED: c_uint = libc::SOF_TIMESTAMPING_TX_SCHED;
const OPT_ID: c_uint = libc::SOF_TIMESTAMPING_OPT_ID;
const OPT_TSONLY: c_uint = libc::SOF_TIMESTAMPING_OPT_TSONLY;

const _: () = assert!(HEADER_BYTES == size_of::<usize>() + 8);

#[cfg(test)]
mod tests;
