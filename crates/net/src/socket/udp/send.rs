//! Sends runs: the kernel segments them when it can; else many datagrams go in one call.
//!
//! ```text
//! run ──> one datagram? ──> sendmsg
//!     ──> GSO ──> sendmsg with a segment size; refused? ──> fewer segments, then without GSO
//!     ──> sendmmsg, 64 datagrams a call
//! ```
//!
//! Over raw IPv4, one call sends either packets with the Router Alert option or packets without it.
//!
//! Invariants: datagrams leave in the order of the run. What is reported as sent was taken by the
//! kernel. The bytes of a run are never copied here.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::AsFd as _,
};

use base::{Outcome, Run, RunLimit};
use sys::{
    Control, PathMtu, RawAddress, UdpSocket, errno,
    message::{self, MANY_MAX},
};

use wire::pgm::PacketType;

use crate::{
    SystemError,
    socket::{Encapsulation, SocketOptions, UdpCounters, intercept::Edge, tally::Tally},
};

/// What the sending side remembers between runs.
#[derive(Debug)]
pub(super) struct Sender {
    limit: RunLimit,
    has_gso: bool,
    is_ipv6: bool,
    /// True when packets for network elements get the Router Alert option.
    has_alerts: bool,
    /// Whether the last run, or a part of it, must wait. The next wait of the loop resets this.
    pub(super) blocked: Blocked,
    warned: [bool; Refusal::COUNT],
    /// The errno of the last call that failed.
    errno: i32,
    edge: Option<Edge>,
}

/// Whether the last run, or a part of it, must wait, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// No part of the run waits: it was sent, or refused.
    No,
    /// The socket buffer is full: the kernel tells when there is room.
    Socket,
    /// A queue beyond the socket is full, memory ran out, or signals interrupted every try: nothing
    /// tells when to try again.
    Beyond,
}

impl Sender {
    pub(super) fn new(socket: &UdpSocket, options: &SocketOptions) -> Self {
        let is_ipv6 = socket.family() == sys::Family::V6;
        let headers = LINK_HEADER_BYTES + if is_ipv6 { 40 } else { 20 } + UDP_HEADER_BYTES;
        let whole = options.gso_bytes_max.saturating_sub(headers);
        let has_gso =
            options.gso && !options.faults.nogso && socket.has_gso() && whole >= RUN_BYTES_LEAST;
        let limit = if has_gso {
            RunLimit {
                bytes: whole.min(RunLimit::BYTES_MAX),
                datagrams: SEGMENTS_MAX,
            }
        } else {
            LIMIT_WITHOUT_GSO
        };
        Self {
            limit,
            has_gso,
            is_ipv6,
            has_alerts: options.encapsulation == Encapsulation::Raw && !is_ipv6,
            blocked: Blocked::No,
            warned: [false; Refusal::COUNT],
            errno: 0,
            edge: Edge::new(&options.faults, 1),
        }
    }

    pub(super) const fn limit(&self) -> RunLimit {
        self.limit
    }

    /// Sends as much of the run as the socket takes.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        to: &RawAddress,
        run: &Run<'_>,
        tally: &mut Tally,
    ) -> Outcome {
        tally.counters.runs += 1;
        self.blocked = Blocked::No;
        let dispatch = Dispatch {
            socket,
            to,
            run,
            control: run.hops.map_or(Control::new(), |hops| {
                Control::new().hops(hops, self.is_ipv6)
            }),
            has_alerts: self.has_alerts,
        };
        let count = run.datagram_count();
        let mut sent = 0;
        let mut tries = 0;
        while sent < count {
            match self.step(&dispatch, sent, tally) {
                Ok(progress) => {
                    let counters = &mut tally.counters;
                    counters.gso_runs += u64::from(progress.is_segmented);
                    counters.sent_datagrams += progress.datagrams as u64;
                    counters.sent_bytes += progress.bytes as u64;
                    sent += progress.datagrams;
                    tries = 0;
                }
                Err(refusal) if refusal.is_passing() && tries < TRIES_MAX => {
                    refusal.count(&mut tally.counters);
                    tries += 1;
                }
                Err(refusal) => return self.conclude(refusal, sent, &dispatch, tally),
            }
        }
        Outcome::Sent { datagrams: count }
    }

    /// Sends the next part of a run, and falls back to simpler calls where the kernel refuses one.
    fn step(
        &mut self,
        dispatch: &Dispatch<'_>,
        sent: usize,
        tally: &mut Tally,
    ) -> Result<Progress, Refusal> {
        let left = dispatch.run.datagram_count() - sent;
        let whole_segments = self.limit.bytes / dispatch.run.segment.max(1);
        if left == 1 || (self.has_gso && whole_segments < 2) {
            return self.step_single(dispatch, sent, tally);
        }
        tally.counters.send_calls += 1;
        if !self.has_gso {
            return match self.send_many(dispatch, sent) {
                Err(error) if Refusal::of(&error) == Refusal::TooBig => {
                    self.step_single(dispatch, sent, tally)
                }
                result => result.map_err(|error| self.refused(&error)),
            };
        }
        let error = match self.send_segmented(dispatch, sent) {
            Ok(progress) => return Ok(progress),
            Err(error) => error,
        };
        let refusal = self.refused(&error);
        if !matches!(
            refusal,
            Refusal::TooBig | Refusal::Invalid | Refusal::Unsupported
        ) {
            return Err(refusal);
        }
        // Sending one datagram alone shows what the kernel refused: segmentation, or the datagram's
        // length.
        let progress = self.step_single(dispatch, sent, tally)?;
        if !progress.is_fragmented {
            self.reduce_gso(left, &error, tally);
        }
        Ok(progress)
    }

    /// Sends one datagram, in fragments when the path no longer takes its length.
    fn step_single(
        &mut self,
        dispatch: &Dispatch<'_>,
        sent: usize,
        tally: &mut Tally,
    ) -> Result<Progress, Refusal> {
        tally.counters.send_calls += 1;
        match self.send_single(dispatch, sent) {
            Ok(progress) => return Ok(progress),
            Err(error) => match self.refused(&error) {
                Refusal::TooBig => {}
                refusal => return Err(refusal),
            },
        }
        let in_fragments = dispatch.socket.set_path_mtu(PathMtu::Fragment);
        let result = in_fragments.and_then(|()| dispatch.single(sent));
        let whole_again = dispatch.socket.set_path_mtu(PathMtu::Probe);
        debug_assert!(whole_again.is_ok(), "an option that was set before");
        let mut progress = result.map_err(|error| self.refused(&error))?;
        progress.is_fragmented = true;
        tally.counters.fragmented_datagrams += 1;
        self.warn_once(Refusal::TooBig, tally, || {
            format!(
                "datagrams of {} bytes to {} are longer than the interface's MTU takes and leave \
                 in fragments: lower the session's MTU",
                progress.bytes, dispatch.run.to
            )
        });
        Ok(progress)
    }

    fn send_single(&mut self, dispatch: &Dispatch<'_>, sent: usize) -> io::Result<Progress> {
        if let Some(edge) = &mut self.edge {
            edge.before_send(false)?;
        }
        dispatch.single(sent)
    }

    fn send_many(&mut self, dispatch: &Dispatch<'_>, sent: usize) -> io::Result<Progress> {
        let mut most = MANY_MAX.min(dispatch.run.datagram_count() - sent);
        if let Some(edge) = &mut self.edge {
            edge.before_send(false)?;
            most = edge.shorten(most);
        }
        dispatch.many(sent, most)
    }

    fn send_segmented(&mut self, dispatch: &Dispatch<'_>, sent: usize) -> io::Result<Progress> {
        let mut limit = self.limit;
        if let Some(edge) = &mut self.edge {
            edge.before_send(true)?;
            let left = dispatch.run.datagram_count() - sent;
            limit.datagrams = edge.shorten(limit.datagrams.min(left));
        }
        dispatch.segmented(sent, limit)
    }

    /// Makes the next calls smaller, or gives segmentation up, because the kernel refused several
    /// datagrams at once but took the first of them alone.
    fn reduce_gso(&mut self, left: usize, error: &io::Error, tally: &mut Tally) {
        tally.counters.gso_fallbacks += 1;
        if self.limit.datagrams > SEGMENTS_OLD && left > SEGMENTS_OLD {
            // Kernels before 6.9 segment 64 datagrams at most.
            self.limit.datagrams = SEGMENTS_OLD;
            return;
        }
        self.has_gso = false;
        self.limit = LIMIT_WITHOUT_GSO;
        tally.warn(format!(
            "kernel segmentation (UDP GSO) does not work here ({error}): sending goes on with one \
             datagram a buffer, at about a third of the speed"
        ));
    }

    /// Notes why the kernel refused a call.
    fn refused(&mut self, error: &io::Error) -> Refusal {
        self.errno = error.raw_os_error().unwrap_or(0);
        Refusal::of(error)
    }

    /// Returns the outcome of a run of which only the first `sent` datagrams have left.
    fn conclude(
        &mut self,
        refusal: Refusal,
        sent: usize,
        dispatch: &Dispatch<'_>,
        tally: &mut Tally,
    ) -> Outcome {
        refusal.count(&mut tally.counters);
        self.blocked = match refusal {
            Refusal::Full => Blocked::Socket,
            Refusal::NoBuffers | Refusal::Interrupted => Blocked::Beyond,
            _ => Blocked::No,
        };
        if sent > 0 {
            tally.counters.short_runs += 1;
            return Outcome::Sent { datagrams: sent };
        }
        if self.blocked != Blocked::No {
            tally.counters.blocked += 1;
            return Outcome::Blocked;
        }
        let (to, errno) = (dispatch.run.to, self.errno);
        tally.refused = Some((to, errno));
        self.warn_once(refusal, tally, || self::refusal(to, errno).to_string());
        match refusal {
            Refusal::TooBig => Outcome::TooBig,
            _ => Outcome::Failed,
        }
    }

    fn warn_once(&mut self, refusal: Refusal, tally: &mut Tally, text: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.warned[refusal as usize], true) {
            tally.warn(text());
        }
    }
}

/// Makes the error of a datagram that the kernel refused.
pub(super) fn refusal(to: SocketAddr, errno: i32) -> SystemError {
    let error = io::Error::from_raw_os_error(errno);
    SystemError::system("send to", to, &error).advise(Refusal::of(&error).advice(to))
}

/// Sends to one more address those datagrams of a run that the kernel has taken. Perhaps nobody
/// listens there, so failures are ignored.
pub(super) fn copy_to(
    socket: &UdpSocket,
    to: &RawAddress,
    run: &Run<'_>,
    outcome: Outcome,
    tally: &mut Tally,
) {
    let Outcome::Sent { datagrams } = outcome else {
        return;
    };
    for datagram in run.datagrams().take(datagrams) {
        let pieces = [IoSlice::new(datagram)];
        let sent = message::send(socket.as_fd(), to, &pieces, &Control::new());
        tally.counters.own_host_copies += u64::from(sent.is_ok());
    }
}

/// One run on its way to one destination.
struct Dispatch<'a> {
    socket: &'a UdpSocket,
    to: &'a RawAddress,
    run: &'a Run<'a>,
    control: Control,
    has_alerts: bool,
}

/// What one call sent.
#[derive(Clone, Copy, Default)]
struct Progress {
    datagrams: usize,
    bytes: usize,
    is_segmented: bool,
    is_fragmented: bool,
}

impl Dispatch<'_> {
    /// Sends by itself the one datagram that follows the first `sent` datagrams.
    fn single(&self, sent: usize) -> io::Result<Progress> {
        let datagram = self.run.datagrams().nth(sent).unwrap_or(&[]);
        let pieces = [IoSlice::new(datagram)];
        let control = self.control_of(self.is_alert(datagram));
        let bytes = message::send(self.socket.as_fd(), self.to, &pieces, &control)?;
        Ok(Progress {
            datagrams: 1,
            bytes,
            ..Progress::default()
        })
    }

    /// Sends up to `most` datagrams, each as one message, by one sendmmsg call.
    fn many(&self, sent: usize, most: usize) -> io::Result<Progress> {
        let mut datagrams = [IoSlice::new(&[]); MANY_MAX];
        let mut count = 0;
        let mut rest = self.run.datagrams().skip(sent).take(most).peekable();
        let has_alert = rest.peek().is_some_and(|first| self.is_alert(first));
        let rest = rest.take_while(|datagram| self.is_alert(datagram) == has_alert);
        for (slot, datagram) in datagrams.iter_mut().zip(rest) {
            *slot = IoSlice::new(datagram);
            count += 1;
        }
        let datagrams = &datagrams[..count];
        let control = self.control_of(has_alert);
        let left = message::send_many(self.socket.as_fd(), self.to, datagrams, &control)?;
        Ok(Progress {
            datagrams: left,
            bytes: datagrams[..left]
                .iter()
                .map(|datagram| datagram.len())
                .sum(),
            ..Progress::default()
        })
    }

    /// Returns true for a packet that gets the Router Alert option, so that network elements on the
    /// way look at it.
    fn is_alert(&self, datagram: &[u8]) -> bool {
        self.has_alerts && PacketType::of_packet(datagram).is_some_and(PacketType::has_router_alert)
    }

    fn control_of(&self, has_alert: bool) -> Control {
        if has_alert {
            self.control.router_alert()
        } else {
            self.control
        }
    }

    /// Sends as many datagrams as `limit` allows; the kernel segments them.
    fn segmented(&self, sent: usize, limit: RunLimit) -> io::Result<Progress> {
        // Datagrams that lie back to back are one range. Then one piece is enough.
        if let [_one] = self.run.ranges {
            self.segmented_in(&mut [IoSlice::new(&[])], sent, limit)
        } else {
            self.segmented_in(&mut [IoSlice::new(&[]); SEGMENTS_MAX], sent, limit)
        }
    }

    fn segmented_in<'a>(
        &'a self,
        pieces: &mut [IoSlice<'a>],
        sent: usize,
        limit: RunLimit,
    ) -> io::Result<Progress> {
        let segment = self.run.segment.max(1);
        let mut skip = sent * segment;
        let mut room = limit.datagrams.min(limit.bytes / segment) * segment;
        let mut bytes = 0;
        let mut count = 0;
        for piece in self.run.pieces() {
            let rest = piece.get(skip..).unwrap_or(&[]);
            skip = skip.saturating_sub(piece.len());
            let taken = &rest[..rest.len().min(room)];
            if taken.is_empty() {
                continue;
            }
            if count == pieces.len() {
                break;
            }
            pieces[count] = IoSlice::new(taken);
            count += 1;
            bytes += taken.len();
            room -= taken.len();
        }
        let segment_field = u16::try_from(segment).map_err(|_| io::ErrorKind::InvalidInput)?;
        let control = self.control.segment(segment_field);
        message::send(self.socket.as_fd(), self.to, &pieces[..count], &control)?;
        Ok(Progress {
            datagrams: bytes.div_ceil(segment),
            bytes,
            is_segmented: true,
            is_fragmented: false,
        })
    }
}

/// What a failed send call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Full,
    NoBuffers,
    Interrupted,
    Icmp,
    TooBig,
    Invalid,
    Unsupported,
    Denied,
    Unreachable,
    Other,
}

impl Refusal {
    const COUNT: usize = 10;

    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            errno::EAGAIN => Self::Full,
            errno::ENOBUFS | errno::ENOMEM => Self::NoBuffers,
            errno::EINTR => Self::Interrupted,
            errno::ECONNREFUSED | errno::EHOSTUNREACH | errno::EPROTO => Self::Icmp,
            errno::EMSGSIZE => Self::TooBig,
            errno::EINVAL => Self::Invalid,
            errno::EIO | errno::EOPNOTSUPP => Self::Unsupported,
            errno::EPERM | errno::EACCES => Self::Denied,
            errno::ENETUNREACH | errno::ENETDOWN | errno::EHOSTDOWN => Self::Unreachable,
            _ => Self::Other,
        }
    }

    /// Returns true when repeating the call at once may help: a signal interrupted it, or it
    /// reported an ICMP error that an earlier datagram may have caused.
    const fn is_passing(self) -> bool {
        matches!(self, Self::Interrupted | Self::Icmp)
    }

    const fn count(self, counters: &mut UdpCounters) {
        let counter = match self {
            Self::Full => &mut counters.send_full,
            Self::NoBuffers => &mut counters.send_no_buffers,
            Self::Interrupted => &mut counters.send_interrupted,
            Self::Icmp => &mut counters.send_icmp,
            Self::TooBig => &mut counters.send_too_big,
            Self::Denied => &mut counters.send_denied,
            Self::Unreachable => &mut counters.send_unreachable,
            Self::Invalid | Self::Unsupported | Self::Other => &mut counters.send_failed,
        };
        *counter += 1;
    }

    fn advice(self, to: SocketAddr) -> String {
        let to = to.ip();
        match self {
            Self::Full | Self::NoBuffers | Self::Interrupted => {
                "wait until there is room".to_owned()
            }
            Self::Icmp => {
                "nothing there takes packets: check that the host is up, and that its sender or \
                 receiver runs"
                    .to_owned()
            }
            Self::TooBig => {
                "a datagram is longer than an IP packet can be: lower the session's MTU".to_owned()
            }
            Self::Denied => format!(
                "this host's packet filter or routes forbid it: look at `nft list ruleset` and \
                 `ip route get {to}`"
            ),
            Self::Unreachable => {
                format!("there is no route, or the interface is down: look at `ip route get {to}`")
            }
            Self::Invalid | Self::Unsupported | Self::Other => format!(
                "the kernel does not send there from this interface and its address: choose \
                 another interface, or look at `ip route get {to}`"
            ),
        }
    }
}

/// The limit of a run without segmentation: the datagrams that one sendmmsg call takes.
const LIMIT_WITHOUT_GSO: RunLimit = RunLimit {
    bytes: 64_000,
    datagrams: MANY_MAX,
};
/// Segmentation is used only if runs may have this many bytes or more: with shorter runs, it saves
/// nothing.
const RUN_BYTES_LEAST: usize = 2 * 1500;
/// The most segments in one call, on Linux 6.9 and later.
const SEGMENTS_MAX: usize = 128;
/// The most segments in one call, on older kernels.
const SEGMENTS_OLD: usize = 64;
/// Bytes of an Ethernet header.
const LINK_HEADER_BYTES: usize = 14;
const UDP_HEADER_BYTES: usize = 8;
/// How many times in a row a send call is repeated after it failed for a temporary reason.
const TRIES_MAX: u32 = 8;
