//! The packet socket and its options; it sends and receives one frame a call.

use std::{
    array, io,
    mem::offset_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use libc::{c_int, tpacket_auxdata};
use rustix::{
    event::PollFlags,
    io::Errno,
    net::{
        AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with,
        sockopt::{self, socket_error},
    },
};

use super::{
    Checksum, Direction, FilterOp, Offload, RawPacket, StampSource,
    filter::keep_all,
    frame::{OFFLOAD_LEN, RESERVE},
};
use crate::{
    RawAddress,
    call::{int_option, int_options, set_option},
    datagram, message,
    stamp::{self, control_messages},
};

/// A raw packet socket. It sees nothing until it is bound, so set options, filter and ring first.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    pub(super) has_offload: bool,
}

/// The packets that a bound socket sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Everything that passes the interface, both ways.
    All,
    /// Nothing: a socket that only sends would otherwise receive its own traffic.
    None,
}

/// The place where time stamps are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// The kernel makes the stamp, as the packet enters the kernel.
    #[default]
    Software,
    /// The adapter makes the stamp, where it can; [`StampSource`] tells which clock made a stamp.
    Hardware,
}

/// The rule by which the sockets of a group share packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// The packet's flow determines which socket gets the packet.
    Hash,
    /// The processor that received the packet determines which socket gets the packet.
    Cpu,
    /// The adapter's receive queue determines which socket gets the packet.
    Queue,
}

impl Fanout {
    const fn kind(self) -> u32 {
        match self {
            Self::Hash => libc::PACKET_FANOUT_HASH,
            Self::Cpu => libc::PACKET_FANOUT_CPU,
            Self::Queue => libc::PACKET_FANOUT_QM,
        }
    }
}

/// The kernel's counts since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketDrops {
    /// Packets that passed the filter; those that were dropped afterwards are among them.
    pub seen: u32,
    /// Packets, among those of `seen`, for which the kernel had no room.
    pub dropped: u32,
    /// Number of times that a ring of blocks was full.
    pub freezes: u32,
}

impl PacketSocket {
    /// Opens a socket that receives nothing yet.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self {
            fd: socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?,
            has_offload: false,
        })
    }

    /// Makes the kernel add to each packet a description of the work that it left for an adapter
    /// (GSO, checksum). Packets can then be sent with such a description, too. Call it before
    /// making a ring.
    ///
    /// # Errors
    /// When the kernel does not know the option.
    pub fn set_offload(&mut self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_VNET_HDR, c_int::from(on))?;
        self.has_offload = on;
        Ok(())
    }

    /// Leaves out packets that this machine sends. This halves the load when only arriving packets
    /// matter.
    ///
    /// # Errors
    /// Before Linux 4.20.
    pub fn set_ignore_outgoing(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_IGNORE_OUTGOING, c_int::from(on))
    }

    /// Makes sent frames bypass the queueing discipline: they wait in no queue, and other taps of
    /// the device do not see them.
    ///
    /// # Errors
    /// When the kernel does not know the option.
    pub fn set_queue_bypass(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_QDISC_BYPASS, c_int::from(on))
    }

    /// Chooses the clock of the stamps. Packets are then stamped as they enter the kernel, not when
    /// they are copied.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_stamping(&self, stamping: Stamping) -> io::Result<()> {
        let on: c_int = 1;
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        if stamping == Stamping::Hardware {
            let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE.cast_signed();
            self.option(libc::PACKET_TIMESTAMP, source)?;
        }
        Ok(())
    }

    /// Makes the kernel keep only the first `bytes` bytes of each packet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_snap_len(&self, bytes: u32) -> io::Result<()> {
        self.attach_filter(&keep_all(bytes))
    }

    /// Makes the kernel keep only packets for which `program` returns a length, cut to that length.
    /// The kernel does not count rejected packets.
    ///
    /// # Errors
    /// EINVAL for a program that the kernel does not accept.
    pub fn attach_filter(&self, program: &[FilterOp]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog {
            len,
            filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
        };
        // The kernel copies the instructions during the call, for which they are borrowed.
        set_option(
            self.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &program,
        )
    }

    /// Binds the socket to an interface; packets arrive from now on.
    ///
    /// # Errors
    /// ENODEV when there is no such interface, but never ENETDOWN: a socket may wait for the
    /// interface to come up.
    pub fn bind(&self, interface: u32, packets: Packets) -> io::Result<()> {
        let protocol = match packets {
            Packets::All => (libc::ETH_P_ALL as u16).to_be(),
            Packets::None => 0,
        };
        Ok(bind(&self.fd, &RawAddress::of_link(interface, protocol))?)
    }

    /// Makes the interface also receive frames for other machines, until the socket is closed.
    ///
    /// # Errors
    /// When the interface does not exist.
    pub fn set_promiscuous(&self, interface: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: interface.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(
            self.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &request,
        )
    }

    /// Removes the filter: the kernel then keeps every packet, whole.
    ///
    /// # Errors
    /// ENOENT when there was no filter.
    pub fn detach_filter(&self) -> io::Result<()> {
        let unused: c_int = 0;
        set_option(
            self.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            &unused,
        )
    }

    /// Begins a group of sockets that share the interface's packets. Returns the group's number,
    /// which no other group of the network namespace has. Call it after [`PacketSocket::bind`].
    ///
    /// # Errors
    /// Before Linux 4.12.
    pub fn begin_fanout(&self, fanout: Fanout) -> io::Result<u16> {
        let value = (fanout.kind() | UNIQUE_GROUP) << 16;
        self.option(libc::PACKET_FANOUT, value.cast_signed())?;
        let group = int_option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        // The upper 16 bits are the kind of group, the lower 16 bits the group's number.
        Ok(group as u16)
    }

    /// Shares the interface's packets with the other sockets of group `id`. Call it after
    /// [`PacketSocket::bind`].
    ///
    /// # Errors
    /// When the group exists with other settings.
    pub fn join_fanout(&self, id: u16, fanout: Fanout) -> io::Result<()> {
        let value = u32::from(id) | fanout.kind() << 16;
        self.option(libc::PACKET_FANOUT, value.cast_signed())
    }

    /// Returns the kernel's counts since the last call, and sets its counters to zero. Only one
    /// reader may call it, often enough that 32 bits do not overflow.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_drops(&self) -> io::Result<SocketDrops> {
        // The last count is that of freezes, which only a ring of blocks reports.
        let counts = int_options(self.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        let [seen, dropped, freezes] = counts.map(c_int::cast_unsigned);
        Ok(SocketDrops {
            seen,
            dropped,
            freezes,
        })
    }

    /// Returns the error that the kernel has noted for the socket, such as ENETDOWN, and clears it.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(socket_error(&self.fd)?.err().map(io::Error::from))
    }

    /// Sets how many bytes may wait in the kernel when there is no ring. Returns the number that
    /// the kernel grants.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        let wanted = bytes.min(c_int::MAX as usize);
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, wanted).is_err() {
            sockopt::set_socket_recv_buffer_size(&self.fd, wanted)?;
        }
        // The kernel doubles the number, to allow for its own overhead.
        Ok(sockopt::socket_recv_buffer_size(&self.fd)? / 2)
    }

    /// Makes the kernel report each received packet's VLAN tag and checksum state.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_auxiliary_data(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_AUXDATA, c_int::from(on))
    }

    /// Receives one packet into `buffer`; `None` when no packet has come. Only for a socket without
    /// a ring.
    ///
    /// # Errors
    /// ENETDOWN when the interface went down; receiving goes on once it is up again.
    ///
    /// **Cost**: one system call and one copy a packet.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<RawPacket<'a>>> {
        let head = ROOM_FOR_TAG + if self.has_offload { OFFLOAD_LEN } else { 0 };
        // The buffer's first bytes stay free for a VLAN tag. Behind them comes the virtio header,
        // if there is one, and then the frame.
        let start = ROOM_FOR_TAG;
        let (mut from, mut control) = (RawAddress::empty(), [0; CONTROL_BYTES]);
        let room = &mut buffer[start..];
        let received = message::receive_one(self.as_fd(), room, Some(&mut from), &mut control, 0);
        let (len, control_len) = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let control = Auxiliary::read(&control[..control_len]);
        let captured = len.saturating_sub(head - ROOM_FOR_TAG);
        Ok(Some(control.packet(
            buffer,
            head,
            captured,
            from.link(),
            self.has_offload,
        )))
    }

    /// Sends one frame. Returns false when there is no room at the moment.
    ///
    /// # Errors
    /// EMSGSIZE for a frame longer than the interface takes, ENETDOWN, ENXIO.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match send(&self.fd, frame, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for at most `limit` until there is room to send. Returns false when the limit has
    /// passed or a signal came. Between calls nothing waits on the socket (a poll set would), so
    /// the kernel wakes no thread for each frame that leaves.
    ///
    /// # Errors
    /// When the kernel refuses the wait; a signal is no error.
    pub fn wait_writable(&self, limit: Duration) -> io::Result<bool> {
        datagram::wait(self.as_fd(), PollFlags::OUT, limit)
    }

    /// Sets the options that every receiving ring needs: the ring's version, and room for a VLAN
    /// tag in front of each frame.
    pub(super) fn prepare_ring(&self, version: c_int) -> io::Result<()> {
        self.option(libc::PACKET_VERSION, version)?;
        self.option(libc::PACKET_RESERVE, RESERVE.cast_signed())
    }

    pub(super) fn option(&self, name: c_int, value: c_int) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_PACKET, name, &value)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The kernel's report about a received packet.
#[derive(Clone, Copy, Debug, Default)]
struct Auxiliary {
    status: u32,
    wire_len: Option<u32>,
    tag_control: u16,
    tag_protocol: u16,
    stamp_ns: u64,
}

impl Auxiliary {
    fn read(control: &[u8]) -> Self {
        let mut found = Self::default();
        for (level, kind, data) in control_messages(control) {
            match (level, kind) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) if data.len() >= AUXILIARY_BYTES => {
                    let word = |at: usize| u32::from_ne_bytes(array::from_fn(|i| data[at + i]));
                    let half = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
                    found.status = word(offset_of!(tpacket_auxdata, tp_status));
                    found.wire_len = Some(word(offset_of!(tpacket_auxdata, tp_len)));
                    found.tag_control = half(offset_of!(tpacket_auxdata, tp_vlan_tci));
                    found.tag_protocol = half(offset_of!(tpacket_auxdata, tp_vlan_tpid));
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    found.stamp_ns = stamp::parse_time(data).unwrap_or(0);
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the packet of `captured` bytes that begins at `head`. Puts its VLAN tag back, if the
    /// kernel took one out.
    fn packet<'a>(
        &self,
        buffer: &'a mut [u8],
        head: usize,
        captured: usize,
        (interface, kind): (u32, u8),
        has_offload: bool,
    ) -> RawPacket<'a> {
        let offload = has_offload.then(|| {
            let header = buffer[head - OFFLOAD_LEN..].first_chunk();
            Offload::parse(*header.expect("the buffer begins with it"))
        });
        let has_tag = self.status & libc::TP_STATUS_VLAN_VALID != 0 && captured >= 12;
        let begin = if has_tag {
            buffer.copy_within(head..head + 12, head - 4);
            let protocol = if self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                self.tag_protocol
            } else {
                0x8100
            };
            buffer[head + 8..head + 10].copy_from_slice(&protocol.to_be_bytes());
            buffer[head + 10..head + 12].copy_from_slice(&self.tag_control.to_be_bytes());
            head - 4
        } else {
            head
        };
        let tag_bytes = (head - begin) as u32;
        let offload = offload.map(|offload| offload.moved_by(tag_bytes as u16));
        RawPacket {
            data: &buffer[begin..head + captured],
            wire_len: self.wire_len.unwrap_or(captured as u32) + tag_bytes,
            stamp_ns: self.stamp_ns,
            stamp_source: StampSource::Software,
            interface,
            direction: Direction::from_kernel(kind),
            checksum: Checksum::from_status(self.status),
            offload,
            is_tag_restored: has_tag,
        }
    }
}

/// Length of the control messages with auxiliary data and a stamp, in bytes, with room to spare.
const CONTROL_BYTES: usize = 128;
const AUXILIARY_BYTES: usize = size_of::<tpacket_auxdata>();
/// `PACKET_FANOUT_FLAG_UNIQUEID`.
const UNIQUE_GROUP: u32 = 0x2000;
/// Bytes kept free in front of a received frame, for a VLAN tag and for alignment.
const ROOM_FOR_TAG: usize = 16;
