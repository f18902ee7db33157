//! The packet socket and its options; sending and receiving one frame a call.

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    time::Duration,
};

use libc::{c_int, c_void, socklen_t};

use super::{
    Checksum, Direction, FilterOp, Offload, RawPacket, StampSource,
    filter::keep_all,
    frame::{OFFLOAD_LEN, RESERVE},
};
use crate::call::{check, check_len, int_option, set_option};

/// A raw packet socket. It sees nothing until it is bound, so options, filter and ring come first.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    pub(super) has_offload: bool,
}

/// Which packets a socket is bound for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Everything that passes the interface, both ways.
    All,
    /// Nothing: a socket that only sends would otherwise be handed its own traffic.
    None,
}

/// Where time stamps are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// By the kernel, as the packet enters it.
    #[default]
    Software,
    /// By the adapter where it does; [`StampSource`] tells for each packet.
    Hardware,
}

/// How packets are shared out among the sockets of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By flow.
    Hash,
    /// By the processor that received the packet.
    Cpu,
    /// By the adapter's receive queue.
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

/// What the kernel has counted since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketDrops {
    /// Packets that passed the filter, dropped ones included.
    pub seen: u32,
    /// Of these, packets for which there was no room.
    pub dropped: u32,
    /// How often a ring of blocks was full.
    pub freezes: u32,
}

impl PacketSocket {
    /// Opens a socket that receives nothing yet.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) takes three integers and touches no memory of ours.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: `raw` was just returned open and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self {
            fd,
            has_offload: false,
        })
    }

    /// Has the kernel describe with each packet what an adapter was to do to it (GSO, checksum),
    /// and lets packets be sent that way. To be called before a ring is made.
    ///
    /// # Errors
    /// When the kernel does not know it.
    pub fn set_offload(&mut self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_VNET_HDR, c_int::from(on))?;
        self.has_offload = on;
        Ok(())
    }

    /// Leaves out what this machine sends. Halves the load where only arrivals matter.
    ///
    /// # Errors
    /// Before Linux 4.20.
    pub fn set_ignore_outgoing(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_IGNORE_OUTGOING, c_int::from(on))
    }

    /// Sends around the queueing discipline: no queue, and hidden from other taps of the device.
    ///
    /// # Errors
    /// When the kernel does not know it.
    pub fn set_queue_bypass(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_QDISC_BYPASS, c_int::from(on))
    }

    /// Chooses the clock of the stamps and has packets stamped as they enter the kernel, not as
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

    /// Has the kernel keep only the first `bytes` of each packet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_snap_len(&self, bytes: u32) -> io::Result<()> {
        self.attach_filter(&keep_all(bytes))
    }

    /// Has the kernel keep only packets that `program` returns a length for, cut to that length.
    /// Those it rejects are counted nowhere.
    ///
    /// # Errors
    /// EINVAL for a program that the kernel does not accept.
    pub fn attach_filter(&self, program: &[FilterOp]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog {
            len,
            filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
        };
        // The kernel copies the instructions during the call, which borrows them.
        set_option(
            self.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &program,
        )
    }

    /// Binds to an interface; packets flow from here on.
    ///
    /// # Errors
    /// ENODEV when there is no such interface, ENETDOWN never: a socket may wait for it.
    pub fn bind(&self, interface: u32, packets: Packets) -> io::Result<()> {
        let protocol = match packets {
            Packets::All => (libc::ETH_P_ALL as u16).to_be(),
            Packets::None => 0,
        };
        let address = link_address(interface, protocol);
        // SAFETY: `address` is live and only read, and as long as announced.
        check(unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                LINK_ADDRESS_LEN,
            )
        })?;
        Ok(())
    }

    /// Has the interface receive what is addressed to others, until the socket is closed.
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

    /// Has the kernel keep every packet, whole.
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

    /// Begins a group of sockets that share the interface's packets; gives its number, which no
    /// other group of the network namespace has. To be called after [`PacketSocket::bind`].
    ///
    /// # Errors
    /// Before Linux 4.12.
    pub fn begin_fanout(&self, fanout: Fanout) -> io::Result<u16> {
        let value = (fanout.kind() | UNIQUE_GROUP) << 16;
        self.option(libc::PACKET_FANOUT, value.cast_signed())?;
        let group = int_option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        // The upper half tells the kind.
        Ok(group as u16)
    }

    /// Shares the interface's packets with the other sockets of group `id`. To be called after
    /// [`PacketSocket::bind`].
    ///
    /// # Errors
    /// When the group exists with other settings.
    pub fn join_fanout(&self, id: u16, fanout: Fanout) -> io::Result<()> {
        let value = u32::from(id) | fanout.kind() << 16;
        self.option(libc::PACKET_FANOUT, value.cast_signed())
    }

    /// What the kernel counted since the last call, which sets its counters to zero: one reader
    /// only, often enough for 32 bits.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_drops(&self) -> io::Result<SocketDrops> {
        // SAFETY: three integers, for which zero is a value.
        let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats_v3>() as socklen_t;
        // SAFETY: `stats` and `len` are live and exclusively borrowed; the kernel writes at most
        // `len` bytes: all of it for a ring of blocks, the first two integers otherwise.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut stats).cast::<c_void>(),
                &raw mut len,
            )
        })?;
        Ok(SocketDrops {
            seen: stats.tp_packets,
            dropped: stats.tp_drops,
            freezes: stats.tp_freeze_q_cnt,
        })
    }

    /// The error that the kernel has noted for the socket, such as ENETDOWN, and clears.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno = int_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
    }

    /// Sets the bytes that wait in the kernel without a ring; gives what the kernel grants.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        let fd = self.as_fd();
        if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted).is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted)?;
        }
        let granted = int_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        // The kernel counts its own overhead as much again.
        Ok(usize::try_from(granted / 2).unwrap_or(0))
    }

    /// Has each received packet come with its VLAN tag and checksum state.
    ///
    /// # Errors
    /// Never in practice.
    pub fn set_auxiliary_data(&self, on: bool) -> io::Result<()> {
        self.option(libc::PACKET_AUXDATA, c_int::from(on))
    }

    /// Receives one packet into `buffer`; `None` when there is none. Without a ring only.
    ///
    /// # Errors
    /// ENETDOWN when the interface went down; receiving goes on once it is up again.
    ///
    /// **Cost**: one system call and one copy a packet.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<RawPacket<'a>>> {
        let head = ROOM_FOR_TAG + if self.has_offload { OFFLOAD_LEN } else { 0 };
        // The frame goes behind room for a tag; the virtio header arrives in front of the frame.
        let start = ROOM_FOR_TAG;
        let mut control = ControlBuffer([0; 128]);
        // SAFETY: an address of integers, for which zero is a value.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        let into = &mut buffer[start..];
        let mut part = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = std::ptr::from_mut(&mut from).cast();
        message.msg_namelen = LINK_ADDRESS_LEN;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: `message` points at the address, the part and the control buffer above, all live
        // and exclusively borrowed until the call returns, with their lengths.
        let received =
            check_len(unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) });
        let len = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            len => len?,
        };
        let control = Auxiliary::read(&message);
        let captured = len.saturating_sub(head - ROOM_FOR_TAG);
        Ok(Some(control.packet(
            buffer,
            head,
            captured,
            &from,
            self.has_offload,
        )))
    }

    /// Sends one frame; false when there is no room at the moment.
    ///
    /// # Errors
    /// EMSGSIZE for a frame longer than the interface takes, ENETDOWN, ENXIO.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: `frame` is live and only read, and as long as announced.
        let sent = check_len(unsafe {
            libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0)
        });
        match sent {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until there is room to send, at most `limit`; false when that has passed. Nobody
    /// waits between calls, so that the kernel has nobody to wake for each frame that has left.
    ///
    /// # Errors
    /// When the wait is refused; a signal is no error.
    pub fn wait_writable(&self, limit: Duration) -> io::Result<bool> {
        let mut wanted = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: `wanted` is one live entry, exclusively borrowed until the call returns.
        let ready = check(unsafe { libc::poll(&raw mut wanted, 1, limit_ms) });
        match ready {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Options that every receiving ring has: room in front for a tag.
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

/// What came beside a received packet.
#[derive(Clone, Copy, Debug, Default)]
struct Auxiliary {
    status: u32,
    wire_len: Option<u32>,
    tag_control: u16,
    tag_protocol: u16,
    stamp_ns: u64,
}

impl Auxiliary {
    fn read(message: &libc::msghdr) -> Self {
        let mut found = Self::default();
        // SAFETY: `message` was filled by recvmsg and its control buffer is live.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !next.is_null() {
            // SAFETY: the macros give null or a header inside the control buffer.
            let header = unsafe { next.read_unaligned() };
            // SAFETY: the data of a header that is inside; read below only as far as it goes.
            let data = unsafe { libc::CMSG_DATA(next) };
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    // SAFETY: the kernel puts this structure behind such a header.
                    let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    found.status = aux.tp_status;
                    found.wire_len = Some(aux.tp_len);
                    found.tag_control = aux.tp_vlan_tci;
                    found.tag_protocol = aux.tp_vlan_tpid;
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: the kernel puts this structure behind such a header.
                    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                    found.stamp_ns =
                        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
                }
                _ => {}
            }
            // SAFETY: `next` is a header inside the control buffer of `message`.
            next = unsafe { libc::CMSG_NXTHDR(message, next) };
        }
        found
    }

    /// The packet of `captured` bytes that begins at `head`, its tag put back.
    fn packet<'a>(
        &self,
        buffer: &'a mut [u8],
        head: usize,
        captured: usize,
        from: &libc::sockaddr_ll,
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
            interface: from.sll_ifindex.cast_unsigned(),
            direction: Direction::from_kernel(from.sll_pkttype),
            checksum: Checksum::from_status(self.status),
            offload,
            is_tag_restored: has_tag,
        }
    }
}

/// Control messages begin with a machine word.
#[repr(align(8))]
struct ControlBuffer([u8; 128]);

fn link_address(interface: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: an address of integers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = interface.cast_signed();
    address
}

const LINK_ADDRESS_LEN: socklen_t = size_of::<libc::sockaddr_ll>() as socklen_t;
/// `PACKET_FANOUT_FLAG_UNIQUEID`.
const UNIQUE_GROUP: u32 = 0x2000;
/// In front of a received frame: a tag, and alignment.
const ROOM_FOR_TAG: usize = 16;
