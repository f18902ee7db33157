//! `xdp:IF`: XDP sockets (AF_XDP), one for each receive queue; **takes the frames away from the
//! host**.
//!
//! A program on the interface hands each frame to a socket before the kernel makes a packet of it.
//! The host does not get such a frame, because a program cannot both redirect a frame and pass it
//! on. So while this source is open, nothing else on the machine receives the frames of the
//! interface. `capture` never chooses this source by itself. It is for machines that only listen,
//! for example at the monitor port of a switch.
//!
//! ```text
//! queue 0 -> socket 0 --\                     look, then sleep for as long as the rings hold out;
//! queue 1 -> socket 1 ---> read -> visit      with few frames: wait for the first
//! ```
//! - The program stamps each frame, in software, when the driver passes it on. Where the driver
//!   leaves no room for a stamp, the frame is stamped when it is read.
//! - Frames that this machine sends are not seen, because such programs see only arriving frames.
//! - The program counts the frames that it redirects, and the sockets count those that they drop,
//!   so the account adds up.
//!
//! Limits: a virtual cable may leave checksums unfilled, and this source cannot know that. The
//! adapter's time stamps are not used.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    thread,
    time::Duration,
};

use base::Instant;
use sys::{
    Epoll, Interest, clock,
    errno::{
        EACCES, EAFNOSUPPORT, EBUSY, EEXIST, EINVAL, ENOBUFS, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM,
    },
    netlink::Ethtool,
    packet::{Checksum, Direction, PacketSocket},
    xdp::{XdpCopy, XdpDrops, XdpMode, XdpRedirect, XdpSocket, XdpSpec},
};

use wire::pcapng::Options;

use super::{LiveOptions, Progress, RING_BYTES_MAX, Source, Visit, live::Tap, memory::Memory};
use crate::{CaptureError, Interface, Losses, Packet};

/// The frames taken off one interface.
#[derive(Debug)]
pub struct XdpSource {
    // This field stands first, so that the program is removed before the sockets are.
    redirect: XdpRedirect,
    queues: Vec<XdpSocket>,
    tap: Tap,
    /// Makes the interface receive frames that are addressed to others.
    _promiscuous: Option<PacketSocket>,
    waiter: Waiter,
    snap_len: usize,
    /// The difference between the program's clock and the wall clock.
    clock_offset_ns: u64,
    drops: XdpDrops,
    /// True when the driver's count of drops includes those of our sockets.
    is_counted_twice: bool,
    /// How many frames had passed to the host when all sockets were open; `None` after a later
    /// frame has passed.
    passed_at_start: Option<u64>,
}

impl XdpSource {
    /// Puts the program on the interface, in the driver where the driver supports it, and opens a
    /// socket for each receive queue in use. The sockets share the memory of `options`. When the
    /// kernel has no room for it, half the size is tried, then a quarter, and so on, with a remark.
    ///
    /// Until the source is dropped or its process ends, **the host receives nothing that arrives at
    /// the interface**.
    ///
    /// # Errors
    /// When there is no such interface; when CAP_NET_ADMIN, CAP_BPF or CAP_NET_RAW is missing; when
    /// the interface has another program; when the kernel has no XDP sockets or is older than 5.9;
    /// when frames are longer than a chunk and the kernel is older than 6.6; when the limit of
    /// locked memory is reached.
    pub fn open(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let mut tap = Tap::find(name, "", options.snap_len)?;
        if tap.interface[0].link_type != wire::trace_file::ETHERNET {
            return Err(CaptureError::LinkType {
                name: name.to_owned(),
                hardware: tap.link.hardware,
            });
        }
        let count = queue_count(&tap);
        let (redirect, mode) = attach(&mut tap, count)?;
        let (queues, copy) = open_queues(&mut tap, options, mode, count)?;
        for (queue, socket) in (0..).zip(&queues) {
            let added = redirect.add(queue, socket);
            added.map_err(|cause| {
                refused(
                    format!("direct the packets of queue {queue} of {name} to this capture"),
                    cause,
                )
            })?;
        }
        let promiscuous = options.is_promiscuous.then(|| {
            let socket = PacketSocket::open()?;
            socket.set_promiscuous(tap.link.index)?;
            Ok(socket)
        });
        let promiscuous = promiscuous.transpose().map_err(|cause: io::Error| {
            CaptureError::os(format!("switch {name} to promiscuous mode"), cause)
        })?;
        note_tags(&mut tap);
        tap.interface[0].description = description(mode, copy, queues.len());
        let waiter = Waiter::new(&queues, options.retire);
        let waiter = waiter.map_err(|cause| CaptureError::wait(&tap.interface, cause))?;
        Ok(Self {
            passed_at_start: Some(redirect.passed()),
            redirect,
            waiter,
            snap_len: options.snap_len as usize,
            clock_offset_ns: clock_offset_ns(),
            drops: XdpDrops::default(),
            is_counted_twice: mode == XdpMode::Native && tap.link.kind.as_deref() == Some("veth"),
            queues,
            tap,
            _promiscuous: promiscuous,
        })
    }

    /// Reads how much all sockets together have dropped.
    fn read_drops(&mut self) -> Result<XdpDrops, CaptureError> {
        let mut sum = XdpDrops::default();
        for socket in &self.queues {
            let drops = socket.drops();
            let drops = drops.map_err(|cause| {
                let name = &self.tap.interface[0].name;
                CaptureError::os(format!("read the losses of the capture from {name}"), cause)
            })?;
            sum.dropped += drops.dropped;
            sum.ring_full += drops.ring_full;
            sum.fill_ring_empty += drops.fill_ring_empty;
        }
        self.drops = sum;
        Ok(sum)
    }

    /// Leaves a remark, once, when frames come by a queue that has no socket.
    fn note_passed(&mut self) {
        let passed = self.redirect.passed();
        if self.passed_at_start.is_some_and(|before| passed > before) {
            self.passed_at_start = None;
            let name = &self.tap.interface[0].name;
            self.tap.remarks.push(format!(
                "{name}: frames arrive on receive queues that were added after the start; they go \
                 to the host and are not captured"
            ));
        }
    }
}

impl Source for XdpSource {
    fn interfaces(&self) -> &[Interface] {
        &self.tap.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let (snap_len, offset_ns, address) =
            (self.snap_len, self.clock_offset_ns, self.tap.link.address);
        let (mut most, mut is_enough) = (0, false);
        for socket in &mut self.queues {
            let given = socket.read(FRAMES_A_SHARE, &mut |frame| {
                let stamp_ns = frame.stamp_ns.map(|stamp| stamp.wrapping_add(offset_ns));
                let flow = visit(&Packet {
                    data: &frame.data[..frame.data.len().min(snap_len)],
                    wire_len: frame.data.len() as u32,
                    stamp_ns: stamp_ns.unwrap_or_else(clock::wall_nanos),
                    interface: 0,
                    direction: Some(direction(frame.data, address)),
                    checksum: Checksum::Unknown,
                    offload: None,
                    notes: Options::empty(),
                    is_rejected: false,
                });
                is_enough = flow.is_break();
                flow
            });
            let name = &self.tap.interface[0].name;
            let given = given.map_err(|cause| {
                CaptureError::os(
                    format!("make the driver of {name} receive more packets"),
                    cause,
                )
            })?;
            most = most.max(given);
            if is_enough {
                return Ok(Progress::Some);
            }
        }
        if most >= FRAMES_A_SHARE {
            return Ok(Progress::Some);
        }
        let looked = self.waiter.looked(&self.queues, most);
        looked.map_err(|cause| CaptureError::wait(&self.tap.interface, cause))?;
        if most == 0 && self.waiter.due.is_none() {
            let errors = self.queues.iter().map(XdpSocket::take_error);
            return Ok(self.tap.idle_sockets(errors));
        }
        // The rings are empty now: reading them again at once would give a frame or two each time.
        Ok(Progress::Idle)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        self.clock_offset_ns = clock_offset_ns();
        self.note_passed();
        let drops = self.read_drops()?;
        let ring = drops.dropped + drops.ring_full;
        let before = self.tap.lost_before();
        Ok(Losses {
            seen: Some(self.redirect.redirected()),
            ring,
            freezes: self.queues.iter().map(XdpSocket::times_full).sum(),
            interface: if self.is_counted_twice {
                before.saturating_sub(ring)
            } else {
                before
            },
            ..Losses::default()
        })
    }

    fn named_losses(&mut self) -> Vec<(String, u64)> {
        let name = &self.tap.interface[0].name;
        let socket = [
            ("rx_dropped", self.drops.dropped),
            ("rx_ring_full", self.drops.ring_full),
            ("rx_fill_ring_empty_descs", self.drops.fill_ring_empty),
        ];
        let socket = socket.into_iter().filter(|(_, count)| *count > 0);
        let mut losses: Vec<_> = socket
            .map(|(what, count)| (format!("{name} socket {what}"), count))
            .collect();
        losses.append(&mut self.tap.named_losses());
        losses
    }

    fn stop(&mut self) -> Result<bool, CaptureError> {
        self.redirect.detach();
        // Another processor may still run the program for a frame, which then arrives a moment
        // later.
        thread::sleep(DETACH_PAUSE);
        Ok(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waiter.epoll.as_fd())
    }

    fn due(&self) -> Option<Instant> {
        self.waiter.due
    }

    fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tap.remarks)
    }
}

/// The part that decides whether to wait for the next frame or for a time.
///
/// When a thread waits for a socket, the kernel wakes it with every batch, which takes some
/// microseconds. Packets cost less when no thread waits and the rings are read before they are
/// full.
#[derive(Debug)]
struct Waiter {
    /// Watches all sockets; during a timed wait it watches none.
    epoll: Epoll,
    is_armed: bool,
    due: Option<Instant>,
    looked: Instant,
    chunks: u32,
    longest: Duration,
}

impl Waiter {
    fn new(queues: &[XdpSocket], longest: Duration) -> io::Result<Self> {
        let epoll = Epoll::new(1)?;
        for socket in queues {
            epoll.add(socket.as_fd(), 0, Interest::READ)?;
        }
        let chunks = queues.iter().map(|socket| socket.spec().chunks).min();
        let chunks = chunks.unwrap_or(1);
        // The longest pause: a load that starts suddenly fills half of the ring in this time.
        let of_half = Duration::from_secs(1) * (chunks / 2) / FRAMES_PER_S_MAX;
        Ok(Self {
            epoll,
            is_armed: true,
            due: None,
            looked: clock::monotonic(),
            chunks,
            longest: longest.min(of_half),
        })
    }

    /// Notes a look that has emptied the rings; the fullest ring had `frames`.
    fn looked(&mut self, queues: &[XdpSocket], frames: u32) -> io::Result<()> {
        let now = clock::monotonic();
        if frames == 0 && self.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let pause = pause(now.since(self.looked), frames, self.chunks, self.longest);
        self.looked = now;
        self.due = pause.map(|pause| now + pause);
        let is_armed = pause.is_none();
        if is_armed != self.is_armed {
            let interest = if is_armed {
                Interest::READ
            } else {
                Interest::default()
            };
            for socket in queues {
                self.epoll.modify(socket.as_fd(), 0, interest)?;
            }
            self.is_armed = is_armed;
        }
        Ok(())
    }
}

/// Returns how long to let frames gather in a ring of `chunks`, when `frames` came within
/// `elapsed`. That is until an eighth of the ring is full, and at most `longest`. `None` when it is
/// better to wait for the first frame, because frames are few or the ring is too small for a sleep.
fn pause(elapsed: Duration, frames: u32, chunks: u32, longest: Duration) -> Option<Duration> {
    if frames == 0 || elapsed / frames > APART_MAX {
        return None;
    }
    let pause = (elapsed * (chunks / 8) / frames).min(longest);
    (pause >= PAUSE_LEAST).then_some(pause)
}

/// Returns the number of receive queues in use.
fn queue_count(tap: &Tap) -> u32 {
    let counted = Ethtool::open().and_then(|mut ethtool| ethtool.receive_queues(tap.link.index));
    // When the driver does not tell, the interface uses all queues that it was made with.
    counted.ok().flatten().unwrap_or(tap.link.receive_queues)
}

/// Puts the program on the interface: in the driver, or after it when the driver cannot run a
/// program.
fn attach(tap: &mut Tap, queues: u32) -> Result<(XdpRedirect, XdpMode), CaptureError> {
    let name = &tap.interface[0].name;
    let loaded = XdpRedirect::load(queues);
    let mut redirect =
        loaded.map_err(|cause| refused(format!("load the XDP program for {name}"), cause))?;
    let operation = || format!("attach the XDP program to {name}");
    match redirect.attach(tap.link.index, XdpMode::Native) {
        Ok(()) => return Ok((redirect, XdpMode::Native)),
        Err(cause) if matches!(cause.raw_os_error(), Some(EPERM | EBUSY | EEXIST)) => {
            return Err(refused(operation(), cause));
        }
        Err(cause) => {
            let remark = format!(
                "{name}: its driver cannot run an XDP program ({cause}): the kernel runs it after \
                 the driver, at a higher cost"
            );
            let attached = redirect.attach(tap.link.index, XdpMode::Generic);
            attached.map_err(|cause| refused(operation(), cause))?;
            tap.remarks.push(remark);
        }
    }
    Ok((redirect, XdpMode::Generic))
}

/// Opens a socket for each queue, all of the best kind that kernel and driver support.
fn open_queues(
    tap: &mut Tap,
    options: &LiveOptions,
    mode: XdpMode,
    count: u32,
) -> Result<(Vec<XdpSocket>, XdpCopy), CaptureError> {
    let name = tap.interface[0].name.clone();
    let frame_bytes = tap.link.mtu_bytes.saturating_add(HEADER_BYTES);
    let memory = Memory::new(&name, options.ring_bytes, 1);
    let wanted = memory.wanted();
    let mut bytes = wanted;
    let (queues, copy) = loop {
        let spec = shape(bytes, count, frame_bytes);
        match open_equal(tap.link.index, &spec, mode, count) {
            Ok((_, XdpCopy::Whole)) if frame_bytes > spec.room() => {
                return Err(CaptureError::Refused {
                    operation: format!("take frames of {frame_bytes} bytes off {name}"),
                    cause: io::Error::from_raw_os_error(EOPNOTSUPP),
                    remedy: "before Linux 6.6, xdp: takes frames of at most 3840 bytes; set the \
                             interface's MTU to 3818 or less, or use ring:IFACE",
                });
            }
            Ok(opened) => break opened,
            Err(cause)
                if matches!(cause.raw_os_error(), Some(ENOBUFS | ENOMEM))
                    && spec.chunks > CHUNKS_LEAST =>
            {
                bytes /= 2;
            }
            Err(cause) => {
                let operation = format!("make XDP sockets with {bytes} bytes for {name}");
                return Err(refused(operation, cause));
            }
        }
    };
    let total: usize = queues.iter().map(|socket| socket.spec().bytes()).sum();
    if options.ring_bytes == RING_BYTES_MAX {
        tap.remarks.push(format!("{name}: a ring of {total} bytes"));
    } else if bytes < wanted {
        tap.remarks.push(format!(
            "{name}: {wanted} bytes are more than this process may lock in memory; the ring has \
             {total}; for more, raise `ulimit -l` or give CAP_IPC_LOCK"
        ));
    } else {
        tap.remarks.extend(memory.remark(wanted, wanted));
    }
    if copy == XdpCopy::Whole && mode == XdpMode::Generic {
        tap.remarks.push(format!(
            "{name}: super-packets longer than the MTU are dropped, and counted"
        ));
    }
    Ok((queues, copy))
}

/// Opens sockets of one kind for all queues.
fn open_equal(
    interface: u32,
    spec: &XdpSpec,
    mode: XdpMode,
    count: u32,
) -> io::Result<(Vec<XdpSocket>, XdpCopy)> {
    let ways: &[XdpCopy] = match mode {
        XdpMode::Native => &[XdpCopy::Zero, XdpCopy::InPieces, XdpCopy::Whole],
        XdpMode::Generic => &[XdpCopy::InPieces, XdpCopy::Whole],
    };
    let mut refusal = io::Error::from_raw_os_error(EOPNOTSUPP);
    for copy in ways {
        let queues = (0..count).map(|queue| open_queue(interface, queue, spec, *copy));
        match queues.collect::<io::Result<Vec<_>>>() {
            Ok(queues) => return Ok((queues, *copy)),
            Err(cause) if matches!(cause.raw_os_error(), Some(EOPNOTSUPP | EINVAL)) => {
                refusal = cause;
            }
            Err(cause) => return Err(cause),
        }
    }
    Err(refusal)
}

/// Opens the socket of a queue. It tries again for a moment, because a socket that has just been
/// closed keeps its queue for some milliseconds.
fn open_queue(interface: u32, queue: u32, spec: &XdpSpec, copy: XdpCopy) -> io::Result<XdpSocket> {
    let mut tries = BUSY_TRIES;
    loop {
        let socket = XdpSocket::new(spec)?;
        match socket.bind(interface, queue, copy) {
            Ok(()) => return Ok(socket),
            Err(cause) if cause.raw_os_error() == Some(EBUSY) && tries > 0 => {
                tries -= 1;
                drop(socket);
                thread::sleep(BUSY_PAUSE);
            }
            Err(cause) => return Err(cause),
        }
    }
}

/// Returns the size of chunks, and how many each queue has. Each chunk holds one frame, when the
/// longest frame fits into a page.
fn shape(bytes: usize, queues: u32, frame_bytes: u32) -> XdpSpec {
    let mut spec = XdpSpec {
        chunk_bytes: CHUNK_BYTES,
        chunks: 0,
    };
    if frame_bytes > spec.room() {
        spec.chunk_bytes = CHUNK_BYTES_MAX;
    }
    let chunks = bytes / spec.chunk_bytes as usize / queues.max(1) as usize;
    let chunks = u32::try_from(chunks).unwrap_or(CHUNKS_MAX);
    spec.chunks = chunks.clamp(CHUNKS_LEAST, CHUNKS_MAX);
    spec
}

/// Leaves a remark when an adapter removes VLAN tags from frames. The adapter reports a tag outside
/// the frame, and only packets that the kernel makes get this report.
fn note_tags(tap: &mut Tap) {
    let is_active = |mut ethtool: Ethtool| ethtool.is_active(tap.link.index, "rx-vlan-hw-parse");
    let is_adapter = tap.link.kind.is_none() && !tap.link.flags.is_loopback();
    if is_adapter && Ethtool::open().and_then(is_active).unwrap_or(false) {
        let name = &tap.interface[0].name;
        tap.remarks.push(format!(
            "{name}: its adapter removes VLAN tags from frames, so the capture does not have \
             them; `ethtool -K {name} rxvlan off` keeps them"
        ));
    }
}

/// Returns the description of the interface in a file.
fn description(mode: XdpMode, copy: XdpCopy, queues: usize) -> String {
    let mode = match mode {
        XdpMode::Native => "in the driver",
        XdpMode::Generic => "behind the driver",
    };
    let copy = match copy {
        XdpCopy::Zero => "zero-copy",
        XdpCopy::InPieces | XdpCopy::Whole => "copied",
    };
    format!(
        "XDP sockets {mode}, {copy}, {queues} queues; the capture took these frames away from the \
         host's own network stack"
    )
}

/// Returns the kind of receiver that a frame is addressed to; `own` is the interface's address.
fn direction(frame: &[u8], own: Option<[u8; 6]>) -> Direction {
    let Some(to) = frame.first_chunk::<6>() else {
        return Direction::Host;
    };
    match own {
        _ if *to == [0xff; 6] => Direction::Broadcast,
        _ if to[0] & 1 != 0 => Direction::Multicast,
        Some(own) if own != *to => Direction::OtherHost,
        _ => Direction::Host,
    }
}

/// Returns the wall clock minus CLOCK_MONOTONIC, in nanoseconds.
fn clock_offset_ns() -> u64 {
    clock::wall_nanos().wrapping_sub(clock::monotonic().as_nanos())
}

/// Makes the error of a refusal of the system, and says what the refusal means.
fn refused(operation: String, cause: io::Error) -> CaptureError {
    let remedy = match cause.raw_os_error() {
        Some(EPERM | EACCES) => return CaptureError::NotPermittedXdp { operation },
        Some(EAFNOSUPPORT | ENOSYS) => {
            "the kernel has no XDP sockets (CONFIG_XDP_SOCKETS): use ring:IFACE"
        }
        Some(EINVAL) => "if this kernel is older than Linux 5.9, update it; else use ring:IFACE",
        Some(EBUSY | EEXIST) => {
            "another XDP program or socket is there (`ip link show` names programs): end it, or \
             use ring:IFACE, which works beside them"
        }
        Some(EOPNOTSUPP) => {
            "neither the driver nor the kernel supports it on this interface; use \
                             ring:IFACE"
        }
        Some(ENOBUFS | ENOMEM) => {
            "this process may lock no more memory: raise `ulimit -l`, give CAP_IPC_LOCK, or use \
             ring:IFACE"
        }
        _ => return CaptureError::Os { operation, cause },
    };
    CaptureError::Refused {
        operation,
        cause,
        remedy,
    }
}

/// How many frames are read from a queue before the session looks at its clock.
const FRAMES_A_SHARE: u32 = 2048;
/// Bytes of the link-layer header and two VLAN tags.
const HEADER_BYTES: u32 = 14 + 8;
const CHUNK_BYTES: u32 = 2048;
/// A page: the kernel takes no larger chunks.
const CHUNK_BYTES_MAX: u32 = 4096;
const CHUNKS_LEAST: u32 = 8;
/// The most chunks of a socket: its rings take 16 bytes for each, so 16 MiB.
const CHUNKS_MAX: u32 = 1 << 20;
/// Frames a second that one processor can copy, about.
const FRAMES_PER_S_MAX: u32 = 2_000_000;
/// When frames come further apart than this, the thread waits for each of them.
const APART_MAX: Duration = Duration::from_millis(1);
/// A shorter sleep would end too late.
const PAUSE_LEAST: Duration = Duration::from_micros(100);
const DETACH_PAUSE: Duration = Duration::from_millis(1);
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_gather_while_there_is_room_and_a_few_are_waited_for() {
        let millis = Duration::from_millis;
        let longest = millis(4);
        // 300,000 frames a second fill an eighth of 4096 chunks in 1.7 ms.
        let gathered = pause(millis(1), 300, 4096, longest).unwrap();
        assert!((gathered.as_secs_f64() - 0.0017).abs() < 0.0001);
        assert_eq!(pause(millis(1), 10, 4096, longest), Some(longest));
        assert_eq!(pause(millis(100), 3, 4096, longest), None, "few");
        assert_eq!(pause(millis(1), 0, 4096, longest), None, "none");
        assert_eq!(pause(millis(1), 300, 8, longest), None, "a small ring");
    }

    #[test]
    fn a_frame_of_the_interface_fits_into_a_chunk_where_it_can() {
        let of = |bytes, queues, frame| {
            let spec = shape(bytes, queues, frame);
            (spec.chunk_bytes, spec.chunks)
        };
        assert_eq!(of(32 << 20, 1, 1522), (2048, 16_384));
        assert_eq!(of(32 << 20, 4, 1522), (2048, 4096));
        assert_eq!(of(32 << 20, 1, 1793), (4096, 8192));
        assert_eq!(of(32 << 20, 1, 9022), (4096, 8192));
        assert_eq!(of(16 << 10, 64, 1522), (2048, CHUNKS_LEAST));
    }

    #[test]
    fn whom_a_frame_is_for_is_seen_by_its_destination() {
        let own = [2, 0, 0, 0, 0, 1];
        let to = |first: [u8; 6]| direction(&first, Some(own));
        assert_eq!(to(own), Direction::Host);
        assert_eq!(to([0xff; 6]), Direction::Broadcast);
        assert_eq!(to([0x33, 0x33, 0, 0, 0, 1]), Direction::Multicast);
        assert_eq!(to([2, 0, 0, 0, 0, 2]), Direction::OtherHost);
        assert_eq!(direction(&[2, 0], Some(own)), Direction::Host);
    }

    #[test]
    fn a_refusal_says_what_it_means() {
        let text = |errno| {
            let cause = io::Error::from_raw_os_error(errno);
            refused("attach the XDP program to e0".to_owned(), cause).to_string()
        };
        assert!(text(EPERM).contains("CAP_NET_ADMIN, CAP_BPF or CAP_NET_RAW is missing"));
        assert!(text(EAFNOSUPPORT).contains("has no XDP sockets"));
        assert!(text(EINVAL).contains("Linux 5.9"));
        assert!(text(EBUSY).contains("another XDP program"));
        assert!(text(ENOBUFS).contains("ulimit -l"));
        for errno in [EPERM, EAFNOSUPPORT, EINVAL, EBUSY, EOPNOTSUPP, ENOBUFS] {
            let text = text(errno);
            assert!(text.contains("attach the XDP program to e0") && text.contains("ring:IFACE"));
        }
    }
}
