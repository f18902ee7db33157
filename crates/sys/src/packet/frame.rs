//! One packet as the kernel hands it over: its bytes, and what is known about them.

use crate::mapping::Mapping;

/// A packet that borrows the ring (or buffer) into which it was received.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// The frame from its first link-layer byte on, as far as it was captured. A VLAN tag that the
    /// kernel had taken out is back in its place.
    pub data: &'a [u8],
    /// Length of the whole frame in bytes, tag included; more than `data` when the packet was cut.
    pub wire_len: u32,
    /// The time of reception in nanoseconds, by the clock that `stamp_source` names. The kernel's
    /// clock counts from 1970.
    pub stamp_ns: u64,
    /// The clock that made the stamp.
    pub stamp_source: StampSource,
    /// Number of the interface that received or sent the packet.
    pub interface: u32,
    /// Where the packet came from or went to.
    pub direction: Direction,
    /// What is known of the packet's transport checksum.
    pub checksum: Checksum,
    /// The work that the kernel left for an adapter. Known only if the socket asks for the virtio
    /// header.
    pub offload: Option<Offload>,
    /// True when a VLAN tag was put back.
    pub is_tag_restored: bool,
}

/// The clock that makes a packet's time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampSource {
    /// The kernel's CLOCK_REALTIME.
    #[default]
    Software,
    /// The adapter's clock, in its own time scale.
    Hardware,
}

/// The origin or destination of a packet, as seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// For this machine.
    Host,
    /// For all stations of the link.
    Broadcast,
    /// For a group.
    Multicast,
    /// For another machine; seen because of promiscuous mode.
    OtherHost,
    /// Sent by this machine.
    Outgoing,
}

impl Direction {
    pub(super) const fn from_kernel(kind: u8) -> Self {
        match kind {
            libc::PACKET_BROADCAST => Self::Broadcast,
            libc::PACKET_MULTICAST => Self::Multicast,
            libc::PACKET_OTHERHOST => Self::OtherHost,
            libc::PACKET_OUTGOING => Self::Outgoing,
            _ => Self::Host,
        }
    }
}

/// What is known of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The checksum was not filled in: the packet never left the machine, or the adapter was to
    /// fill it in.
    Missing,
    /// The kernel or the adapter has found the checksum right.
    Valid,
}

impl Checksum {
    pub(super) const fn from_status(status: u32) -> Self {
        if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
            Self::Missing
        } else if status & libc::TP_STATUS_CSUM_VALID != 0 {
            Self::Valid
        } else {
            Self::Unknown
        }
    }
}

/// Work that an adapter was to do on the packet before it goes on the wire: `struct
/// virtio_net_hdr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// How the frame is to be cut into packets; `None` when it is not to be cut.
    pub gso: Option<GsoKind>,
    /// Length of the payload in each packet except the last, in bytes.
    pub segment_bytes: u16,
    /// Length of all headers in bytes, without a tag that was put back; 0 when the kernel does not
    /// say.
    pub header_bytes: u16,
    /// The checksum that is to be filled in, if any: the offset in `data` where the sum begins, and
    /// the offset from there to the checksum.
    pub checksum: Option<(u16, u16)>,
}

/// The kind of packets into which a frame is to be cut. The frame as a whole has never crossed a
/// wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP in IPv4.
    TcpV4,
    /// TCP in IPv6.
    TcpV6,
    /// One UDP datagram that becomes IP fragments.
    UdpFragments,
    /// Many UDP datagrams.
    Udp,
    /// A kind that is newer than this program.
    Other(u8),
}

impl Offload {
    /// Reads the ten bytes of a virtio header, in the machine's own byte order.
    #[inline]
    #[must_use]
    pub fn parse(bytes: [u8; OFFLOAD_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let gso = match bytes[1] & !GSO_ECN {
            0 => None,
            1 => Some(GsoKind::TcpV4),
            3 => Some(GsoKind::UdpFragments),
            4 => Some(GsoKind::TcpV6),
            5 => Some(GsoKind::Udp),
            other => Some(GsoKind::Other(other)),
        };
        let checksum = if bytes[0] & NEEDS_CHECKSUM != 0 {
            Some((word(6), word(8)))
        } else {
            None
        };
        Self {
            gso,
            segment_bytes: word(4),
            header_bytes: word(2),
            checksum,
        }
    }
}

impl Offload {
    /// Adjusts the offsets for a frame into which a tag of `bytes` bytes was put back.
    pub(super) fn moved_by(mut self, bytes: u16) -> Self {
        self.checksum = self
            .checksum
            .map(|(start, offset)| (start.saturating_add(bytes), offset));
        self
    }
}

/// The header of one packet in a ring; the packet's bytes are in the mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingHeader {
    pub(super) status: u32,
    pub(super) captured: u32,
    pub(super) wire_len: u32,
    pub(super) mac: usize,
    pub(super) seconds: u32,
    pub(super) nanos: u32,
    pub(super) tag_control: u16,
    pub(super) tag_protocol: u16,
    pub(super) direction: u8,
    pub(super) interface: u32,
}

impl RingHeader {
    /// Returns the packet whose header begins at byte `start` of the mapping and whose room ends at
    /// byte `end`. When the kernel has taken a VLAN tag out, this moves the hardware addresses and
    /// puts the tag back. Returns `None` when the header points outside the room.
    ///
    /// # Safety
    /// The kernel has released the bytes from `start` to `end` and does not touch them during `'a`,
    /// and nothing else borrows the bytes of this packet.
    #[inline]
    pub(super) unsafe fn packet<'a>(
        &self,
        mapping: &'a Mapping,
        start: usize,
        end: usize,
        has_offload: bool,
    ) -> Option<RawPacket<'a>> {
        let captured = self.captured as usize;
        let mac = start.checked_add(self.mac)?;
        if self.mac < ROOM_BEFORE_MAC || mac > end || end - mac < captured {
            return None;
        }
        // SAFETY: the bytes are inside the room (checked above), for which the caller vouches.
        let room = unsafe { mapping.bytes_mut(mac - ROOM_BEFORE_MAC, ROOM_BEFORE_MAC + captured) };
        let offload = has_offload.then(|| {
            let header = room[ROOM_BEFORE_MAC - OFFLOAD_LEN..].first_chunk();
            Offload::parse(*header.expect("there is room for it in front"))
        });
        let has_tag = self.status & libc::TP_STATUS_VLAN_VALID != 0 && captured >= MACS_LEN;
        if has_tag {
            let first = ROOM_BEFORE_MAC;
            room.copy_within(first..first + MACS_LEN, first - TAG_LEN);
            let protocol = if self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                self.tag_protocol
            } else {
                VLAN_8021Q
            };
            let tag = first - TAG_LEN + MACS_LEN;
            room[tag..tag + 2].copy_from_slice(&protocol.to_be_bytes());
            room[tag + 2..tag + 4].copy_from_slice(&self.tag_control.to_be_bytes());
        }
        let room: &'a [u8] = room;
        let tag_bytes = if has_tag { TAG_LEN } else { 0 };
        let offload = offload.map(|offload| offload.moved_by(tag_bytes as u16));
        let stamp_source = if self.status & libc::TP_STATUS_TS_RAW_HARDWARE != 0 {
            StampSource::Hardware
        } else {
            StampSource::Software
        };
        Some(RawPacket {
            data: &room[ROOM_BEFORE_MAC - tag_bytes..],
            wire_len: self.wire_len + tag_bytes as u32,
            stamp_ns: u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanos),
            stamp_source,
            interface: self.interface,
            direction: Direction::from_kernel(self.direction),
            checksum: Checksum::from_status(self.status),
            offload,
            is_tag_restored: has_tag,
        })
    }
}

/// Length of `struct virtio_net_hdr` in bytes.
pub(super) const OFFLOAD_LEN: usize = 10;
/// Room in bytes that the kernel leaves in front of every packet (`PACKET_RESERVE`), so that a VLAN
/// tag can be put back.
pub(super) const RESERVE: u32 = 4;
/// Number of bytes set aside in front of each packet, for the virtio header or for a tag.
const ROOM_BEFORE_MAC: usize = 16;
/// Length of both hardware addresses together, in bytes.
const MACS_LEN: usize = 12;
const TAG_LEN: usize = 4;
const VLAN_8021Q: u16 = 0x8100;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`.
const GSO_ECN: u8 = 0x80;
