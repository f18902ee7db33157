//! What all live sources share: the interface, the options of the socket, and the counters.

use std::{io, time::Duration};

use base::Instant;
use sys::{
    clock,
    netlink::Link,
    packet::{Fanout, FilterOp, PacketSocket, Packets, STUB_LEN, SocketDrops, Stamping, keep_all},
};

use crate::{
    CaptureError, Filter, Interface, Losses, account::SocketTotals, link::LinkCounters,
    source::Progress,
};

/// How a live source is opened.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// A filter that also runs in the kernel. A packet that it rejects comes as a stub of a few
    /// bytes ([`Packet::is_rejected`](crate::Packet::is_rejected)), so that it can be counted. The
    /// reader must still apply the filter to the other packets. Default: none.
    pub filter: Option<Filter>,
    /// Bytes of memory shared with the kernel, or of the socket's buffer. Default: 32 MiB.
    pub ring_bytes: usize,
    /// How long the kernel may fill a block before it gives the block out. At low rates this is the
    /// delay of packets. At most [`RETIRE_MAX`]. Default: 20 ms.
    pub retire: Duration,
    /// Bytes kept of each packet. Default: 262,144, which is all of them.
    pub snap_len: u32,
    /// Also receive frames that are addressed to others. Default: true.
    pub is_promiscuous: bool,
    /// Leave out packets that this machine sends. Default: false.
    pub ignores_outgoing: bool,
    /// Ask the kernel to describe super-packets and unfilled checksums. Default: true.
    pub has_offload: bool,
    /// Super-packets must be captured whole, because they will be cut up: `ring2:` makes its slots
    /// large enough for them. Default: false.
    pub has_room_for_super_packets: bool,
    /// Take the adapter's time stamps, where it makes some. Default: false.
    pub wants_hardware_stamps: bool,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            filter: None,
            ring_bytes: 32 << 20,
            retire: Duration::from_millis(20),
            snap_len: SNAP_LEN,
            is_promiscuous: true,
            ignores_outgoing: false,
            has_offload: true,
            has_room_for_super_packets: false,
            wants_hardware_stamps: false,
        }
    }
}

impl LiveOptions {
    /// Returns the program that the kernel runs for each packet of `link_type`; `None` when it is
    /// to keep everything.
    fn program(&self, link_type: u16) -> Result<Option<Vec<FilterOp>>, CaptureError> {
        let mut filter = self.filter.clone();
        if let Some(filter) = &mut filter {
            filter.add_link_type(link_type)?;
        }
        let program = filter.and_then(|filter| filter.for_kernel(link_type, self.snap_len));
        Ok(program.or_else(|| {
            // One byte more than a rejected packet keeps, so that the two can be told apart.
            let len = self.snap_len.max(STUB_LEN + 1);
            (self.snap_len < SNAP_LEN).then(|| keep_all(len).to_vec())
        }))
    }
}

/// An interface with its counters.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) link: Link,
    pub(super) interface: [Interface; 1],
    pub(super) remarks: Vec<String>,
    totals: SocketTotals,
    counters: LinkCounters,
    interface_drops: u64,
    /// True when another tap of the same interface reports the interface's losses.
    is_second: bool,
    /// How long packets may still come after the interface has gone.
    pub(super) late_packets: Duration,
    /// When this tap noticed that the interface has gone.
    gone_at: Option<Instant>,
}

impl Tap {
    /// Finds the interface.
    pub(super) fn find(name: &str, how: &str, snap_len: u32) -> Result<Self, CaptureError> {
        let (counters, link) = LinkCounters::find(name, true)?;
        let interface = Interface {
            name: name.to_owned(),
            link_type: link_type(&link)?,
            snap_len,
            description: how.to_owned(),
        };
        let mut remarks = Vec::new();
        if !link.flags.is_up() {
            remarks.push(format!("{name} is down: it receives packets once it is up"));
        }
        Ok(Self {
            link,
            interface: [interface],
            remarks,
            totals: SocketTotals::default(),
            counters,
            interface_drops: 0,
            is_second: false,
            late_packets: LATE_PACKETS,
            gone_at: None,
        })
    }

    /// Opens a socket with these options, for a ring to take over; it is not bound.
    pub(super) fn socket(&self, options: &LiveOptions) -> Result<PacketSocket, CaptureError> {
        let name = &self.interface[0].name;
        let program = options.program(self.interface[0].link_type)?;
        let open = || -> io::Result<PacketSocket> {
            let mut socket = PacketSocket::open()?;
            if options.has_offload {
                socket.set_offload(true)?;
            }
            if options.ignores_outgoing {
                socket.set_ignore_outgoing(true)?;
            }
            socket.set_stamping(if options.wants_hardware_stamps {
                Stamping::Hardware
            } else {
                Stamping::Software
            })?;
            if let Some(program) = &program {
                socket.attach_filter(program)?;
            }
            Ok(socket)
        };
        open().map_err(|cause| CaptureError::os(format!("open a packet socket for {name}"), cause))
    }

    /// Binds the socket, so that packets come.
    pub(super) fn start(
        &self,
        socket: &PacketSocket,
        options: &LiveOptions,
    ) -> Result<(), CaptureError> {
        let name = &self.interface[0].name;
        let start = || -> io::Result<()> {
            if options.is_promiscuous {
                socket.set_promiscuous(self.link.index)?;
            }
            socket.bind(self.link.index, Packets::All)
        };
        start().map_err(|cause| CaptureError::os(format!("capture from {name}"), cause))
    }

    /// Binds to the interface and shares its packets with the sockets of `group`, or begins a
    /// group. No packet comes before [`Tap::open_shared`].
    pub(super) fn join(
        &mut self,
        socket: &PacketSocket,
        options: &LiveOptions,
        group: Option<u16>,
    ) -> Result<u16, CaptureError> {
        shut(socket)?;
        self.start(socket, options)?;
        self.is_second = group.is_some();
        let joined = match group {
            Some(id) => socket.join_fanout(id, Fanout::Hash).map(|()| id),
            None => socket.begin_fanout(Fanout::Hash),
        };
        let name = &self.interface[0].name;
        joined.map_err(|cause| {
            CaptureError::os(
                format!("share the packets of {name} among the threads of this capture"),
                cause,
            )
        })
    }

    /// Lets packets come, when all sources that share them are open.
    pub(super) fn open_shared(
        &self,
        socket: &PacketSocket,
        options: &LiveOptions,
    ) -> Result<(), CaptureError> {
        let opened = match options.program(self.interface[0].link_type)? {
            Some(program) => socket.attach_filter(&program),
            None => socket.detach_filter(),
        };
        let name = &self.interface[0].name;
        opened.map_err(|cause| CaptureError::os(format!("capture from {name}"), cause))
    }

    /// Returns the losses so far.
    pub(super) fn losses(
        &mut self,
        drops: io::Result<SocketDrops>,
    ) -> Result<Losses, CaptureError> {
        let name = &self.interface[0].name;
        let drops = drops.map_err(|cause| {
            CaptureError::os(format!("read the losses of the capture from {name}"), cause)
        })?;
        self.totals.add(drops);
        Ok(Losses {
            seen: Some(self.totals.seen),
            ring: self.totals.dropped,
            freezes: self.totals.freezes,
            interface: self.lost_before(),
            ..Losses::default()
        })
    }

    /// Returns how many packets the interface has lost so far, before any socket saw them.
    pub(super) fn lost_before(&mut self) -> u64 {
        // When an interface is removed its counters no longer change.
        if !self.is_second
            && let Ok(since) = self.counters.since_start()
        {
            self.interface_drops = since.rx_lost();
        }
        self.interface_drops
    }

    /// Returns the losses of the interface and its driver so far, by name.
    pub(super) fn named_losses(&mut self) -> Vec<(String, u64)> {
        if self.is_second {
            return Vec::new();
        }
        let name = &self.interface[0].name;
        let losses = self.counters.named_losses().into_iter();
        losses
            .map(|(what, count)| (format!("{name} {what}"), count))
            .collect()
    }

    /// Finds out why there is no packet. When a socket is readable without a packet, its interface
    /// went down or was removed, which leaves a remark. After a removal only the packets in the
    /// ring still come.
    pub(super) fn idle(&mut self, socket: &PacketSocket) -> Progress {
        self.idle_sockets([socket.take_error()])
    }

    /// Does what [`Tap::idle`] does, for the `errors` of several sockets.
    pub(super) fn idle_sockets(
        &mut self,
        errors: impl IntoIterator<Item = io::Result<Option<io::Error>>>,
    ) -> Progress {
        if let Some(error) = errors.into_iter().find_map(|error| error.ok().flatten()) {
            self.note_error(&error);
        }
        let is_over = |gone_at| clock::monotonic().since(gone_at) >= self.late_packets;
        if self.gone_at.is_some_and(is_over) {
            Progress::End
        } else {
            Progress::Idle
        }
    }

    /// Decides what an error of the socket means for the capture.
    pub(super) fn note_error(&mut self, error: &io::Error) {
        let name = &self.interface[0].name;
        if self.gone_at.is_some() {
            return;
        }
        if self.counters.state().is_none() {
            self.remarks
                .push(format!("{name} was removed: no more packets come from it"));
            self.gone_at = Some(clock::monotonic());
        } else {
            self.remarks.push(format!(
                "{name}: {}; waiting for packets",
                sys::with_usual_remedy(error)
            ));
        }
    }
}

/// Keeps all packets out of a socket from now on.
pub(super) fn shut(socket: &PacketSocket) -> Result<(), CaptureError> {
    let shut = socket.attach_filter(&keep_all(0));
    shut.map_err(|cause| CaptureError::os("keep packets out of the capture's socket", cause))
}

fn link_type(link: &Link) -> Result<u16, CaptureError> {
    match link.hardware {
        HARDWARE_ETHERNET | HARDWARE_LOOPBACK => Ok(wire::trace_file::ETHERNET),
        HARDWARE_NONE => Ok(LINK_TYPE_RAW),
        hardware => Err(CaptureError::LinkType {
            name: link.name.clone(),
            hardware,
        }),
    }
}

/// How long packets may still be under way when the interface is removed.
const LATE_PACKETS: Duration = Duration::from_millis(200);
/// The longest [`LiveOptions::retire`]. The kernel has 16 bits for the milliseconds, and the end of
/// a capture may wait as long as that.
pub const RETIRE_MAX: Duration = Duration::from_secs(2);
/// More bytes than any frame has, super-packets included.
pub(crate) const SNAP_LEN: u32 = 262_144;
const HARDWARE_ETHERNET: u16 = 1;
const HARDWARE_LOOPBACK: u16 = 772;
/// `ARPHRD_NONE`: packets begin with their IP header.
const HARDWARE_NONE: u16 = 0xFFFE;
const LINK_TYPE_RAW: u16 = 101;
