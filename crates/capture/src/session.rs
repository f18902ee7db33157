//! Moves packets from sources to a sink, and keeps the account.
//!
//! ```text
//! loop:  each source gives what it has -> filter, wait for its time, count -> shape -> sink
//!        nothing to give: wait for a descriptor
//!        each second: losses are read, the account is noted in the sink and shown
//! end:   sources take nothing new, are read to their end, and asked for their losses
//! ```

use std::{net::IpAddr, ops::ControlFlow, time::Duration};

use base::Instant;
use sys::{Epoll, Interest, clock};

use crate::{
    Account, CaptureError, Edits, Filter, GapErrors, Interface, InterfaceAccount, Losses, Pacer,
    Packet, RETIRE_MAX, ReplayTiming, Sink, Source, Unit, Unwritten, account::Totals, edit::Editor,
    generated::SequenceCheck, segment::Segmenter, source::Progress,
};

/// One capture, from its sources to its sink.
#[derive(Debug)]
pub struct Session {
    sources: Vec<Tapped>,
    path: Path,
    limits: Limits,
    started: Instant,
    seconds: u64,
    totals: Totals,
    remarks: Vec<String>,
}

/// When a capture ends without being stopped, and how its packets are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The capture ends after this many delivered packets.
    pub packets: Option<u64>,
    /// How long the capture lasts at most.
    pub duration: Option<Duration>,
    /// How many bytes of each packet are kept. The source's own limit costs less.
    pub snap_len: Option<u32>,
    /// When packets are passed on. The pieces of a super-packet leave together.
    pub pace: ReplayTiming,
    /// With a pace, how many packets are passed on together; 0 means 1.
    pub burst_packets: u64,
    /// True to cut super-packets into what the wire would carry, and to fill in checksums.
    pub segments: bool,
    /// True to look for generated frames and to count the missing ones.
    pub checks_sequence: bool,
}

/// Why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sources have no more packets.
    Source,
    /// A limit was reached.
    Limit,
    /// The caller stopped it.
    Stopped,
    /// The sink can keep no more packets; [`Session::take_failure`] gives the error.
    Sink,
}

/// A source, and what the session knows about it.
#[derive(Debug)]
struct Tapped {
    source: Box<dyn Source>,
    /// The numbers of the source's interfaces in the sink, in the order in which they were found.
    interfaces: Vec<u32>,
    is_over: bool,
}

/// The way of a packet: filter, pace, count, shape, exit.
#[derive(Debug)]
struct Path {
    /// The link type of each interface, by its number.
    link_types: Vec<u16>,
    filter: Option<Filter>,
    pacer: Option<Pacer>,
    shape: Shape,
    exit: Exit,
    packets_max: u64,
    /// True when packets pass unchanged, except that they may be cut.
    is_plain: bool,
    /// True when a stop ended the wait for a packet's time.
    is_stopped: bool,
}

/// The part that changes a packet into what the sink gets.
#[derive(Debug)]
struct Shape {
    segmenter: Option<Segmenter>,
    editor: Option<Editor>,
    snap_len: usize,
    sequence: Option<SequenceCheck>,
}

/// The sink, and the account of what it took.
#[derive(Debug)]
struct Exit {
    sink: Box<dyn Sink>,
    account: Account,
    failure: Option<CaptureError>,
}

impl Session {
    /// Makes a session that has not begun.
    ///
    /// # Errors
    /// When the sink cannot hold the sources' interfaces.
    pub fn new(
        sources: Vec<Box<dyn Source>>,
        sink: Box<dyn Sink>,
        limits: Limits,
    ) -> Result<Self, CaptureError> {
        let mut session = Self {
            sources: Vec::new(),
            path: Path {
                link_types: Vec::new(),
                filter: None,
                pacer: (limits.pace != ReplayTiming::TopSpeed)
                    .then(|| Pacer::new(limits.pace, limits.burst_packets)),
                shape: Shape {
                    segmenter: limits.segments.then(Segmenter::default),
                    editor: None,
                    snap_len: limits.snap_len.map_or(usize::MAX, |len| len as usize),
                    sequence: limits.checks_sequence.then(SequenceCheck::default),
                },
                exit: Exit {
                    sink,
                    account: Account {
                        unit: if limits.segments {
                            Unit::PacketOnTheWire
                        } else {
                            Unit::FrameAsCaptured
                        },
                        ..Account::default()
                    },
                    failure: None,
                },
                packets_max: limits.packets.unwrap_or(u64::MAX),
                is_plain: limits.pace == ReplayTiming::TopSpeed
                    && !limits.segments
                    && !limits.checks_sequence,
                is_stopped: false,
            },
            limits,
            started: clock::monotonic(),
            seconds: 0,
            totals: Totals::default(),
            remarks: Vec::new(),
        };
        for source in sources {
            let mut tapped = Tapped {
                source,
                interfaces: Vec::new(),
                is_over: false,
            };
            tapped.introduce(&mut session.path)?;
            session.sources.push(tapped);
        }
        Ok(session)
    }

    /// Keeps only packets that `filter` accepts, and counts the others.
    ///
    /// # Errors
    /// When the filter makes no sense for the packets of a source.
    pub fn set_filter(&mut self, mut filter: Filter) -> Result<(), CaptureError> {
        for link_type in &self.path.link_types {
            filter.add_link_type(*link_type)?;
        }
        self.path.filter = Some(filter);
        Ok(())
    }

    /// Changes packets that passed the filter, before the sink gets them.
    pub fn set_edits(&mut self, edits: Edits) {
        self.path.is_plain &= edits.is_empty();
        self.path.shape.editor = (!edits.is_empty()).then(|| Editor::new(edits));
    }

    /// Returns the addresses that [`Session::set_edits`] replaces and that no packet has had so
    /// far.
    pub fn addresses_unmet(&self) -> impl Iterator<Item = IpAddr> {
        self.path.shape.editor.iter().flat_map(Editor::unmet)
    }

    /// Captures until the sources end, a limit is reached, or `is_stopped` gives true. It asks
    /// `is_stopped` about every 10 ms while packets come, and at least every 100 ms while it waits.
    /// It passes the account to `tick` each second.
    ///
    /// # Errors
    /// When a source cannot be used any more. What was captured before is in the sink.
    pub fn run(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        tick: &mut dyn FnMut(&Account),
    ) -> Result<Ended, CaptureError> {
        self.started = clock::monotonic();
        let captured = self.capture(is_stopped, tick);
        let finished = self.finish();
        let ended = captured?;
        finished?;
        Ok(if self.path.exit.failure.is_some() {
            Ended::Sink
        } else {
            ended
        })
    }

    /// Returns the account so far.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.path.exit.account
    }

    /// Returns how exactly packets left; `None` without a pace.
    #[must_use]
    pub fn gap_errors(&self) -> Option<&GapErrors> {
        self.path.pacer.as_ref().map(Pacer::errors)
    }

    /// Returns the rate that was reached, as a share of the wanted rate. `None` without a pace, or
    /// when too little was sent to tell.
    #[must_use]
    pub fn attained(&self) -> Option<f64> {
        self.path.pacer.as_ref().and_then(Pacer::attained)
    }

    /// Returns the counts of generated frames, when the limits ask for them.
    #[must_use]
    pub const fn sequence(&self) -> Option<&SequenceCheck> {
        self.path.shape.sequence.as_ref()
    }

    /// Returns how many packets the sink's interface dropped after it had taken them.
    pub fn dropped_later(&mut self) -> u64 {
        self.path.exit.sink.dropped_later()
    }

    /// Returns how long the session has run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        clock::monotonic().since(self.started)
    }

    /// Takes the remarks for the user; each remark comes once.
    pub fn take_remarks(&mut self) -> Vec<String> {
        for tapped in &mut self.sources {
            self.remarks.append(&mut tapped.source.take_remarks());
        }
        self.remarks.append(&mut self.path.exit.sink.take_remarks());
        std::mem::take(&mut self.remarks)
    }

    /// Takes the error because of which the sink can keep no more packets.
    pub const fn take_failure(&mut self) -> Option<CaptureError> {
        self.path.exit.failure.take()
    }

    fn capture(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        tick: &mut dyn FnMut(&Account),
    ) -> Result<Ended, CaptureError> {
        let mut epoll = self.waiter()?;
        let mut stop_checked = self.started;
        // With a pace, the next packet may be due long after the time limit.
        let until = self.limits.duration.map(|limit| self.started + limit);
        let is_over = || is_stopped() || until.is_some_and(|until| clock::monotonic() >= until);
        loop {
            let now = clock::monotonic();
            if now >= self.next_second() {
                self.end_second(tick)?;
            }
            if now.since(stop_checked) >= STOP_CHECK {
                stop_checked = now;
                if is_stopped() {
                    return Ok(Ended::Stopped);
                }
            }
            let elapsed = now.since(self.started);
            if self.limits.duration.is_some_and(|limit| elapsed >= limit) {
                return Ok(Ended::Limit);
            }
            let mut is_idle = true;
            for tapped in self.sources.iter_mut().filter(|tapped| !tapped.is_over) {
                is_idle &= tapped.read(&mut self.path, &is_over)? == Progress::Idle;
            }
            if self.path.exit.failure.is_some() {
                return Ok(Ended::Sink);
            }
            if self.path.is_stopped {
                return Ok(if is_stopped() {
                    Ended::Stopped
                } else {
                    Ended::Limit
                });
            }
            if self.path.is_full() {
                return Ok(Ended::Limit);
            }
            if self.sources.iter().all(|tapped| tapped.is_over) {
                return Ok(Ended::Source);
            }
            if is_idle {
                self.wait(&mut epoll)?;
            }
        }
    }

    /// Waits until there are packets, or until the session has something to do.
    fn wait(&self, epoll: &mut Epoll) -> Result<(), CaptureError> {
        let now = clock::monotonic();
        let mut until = self.next_second().min(now + WAIT_LIMIT);
        if let Some(limit) = self.limits.duration {
            until = until.min(self.started + limit);
        }
        for tapped in self.sources.iter().filter(|tapped| !tapped.is_over) {
            if let Some(due) = tapped.source.due() {
                until = until.min(due);
            }
        }
        let timeout = until.since(now);
        let waited = epoll.wait(Some(timeout)).map(drop);
        waited.map_err(|cause| CaptureError::wait(self.interfaces(), cause))
    }

    fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        let sources = self.sources.iter();
        sources.flat_map(|tapped| tapped.source.interfaces())
    }

    fn waiter(&self) -> Result<Epoll, CaptureError> {
        let waiter = || {
            let epoll = Epoll::new(self.sources.len())?;
            for (token, tapped) in self.sources.iter().enumerate() {
                if let Some(fd) = tapped.source.descriptor() {
                    epoll.add(fd, token as u64, Interest::READ)?;
                }
            }
            Ok(epoll)
        };
        waiter().map_err(|cause| CaptureError::wait(self.interfaces(), cause))
    }

    fn next_second(&self) -> Instant {
        self.started + Duration::from_secs(self.seconds + 1)
    }

    fn end_second(&mut self, tick: &mut dyn FnMut(&Account)) -> Result<(), CaptureError> {
        self.seconds = clock::monotonic().since(self.started).as_secs();
        self.read_losses()?;
        self.close_second(self.seconds);
        tick(&self.path.exit.account);
        Ok(())
    }

    /// Notes the second that ends at second `at` of the capture, in the account and in the sink.
    fn close_second(&mut self, at: u64) {
        let exit = &mut self.path.exit;
        // Only the flush shows which of this second's packets the sink cannot keep.
        exit.flush();
        self.totals = exit.account.end_second(at, &self.totals);
        exit.note_account();
        self.totals = exit.account.amend_second(&self.totals);
    }

    fn read_losses(&mut self) -> Result<(), CaptureError> {
        let mut sum = Losses {
            seen: Some(0),
            ..Losses::default()
        };
        for tapped in &mut self.sources {
            let losses = tapped.source.losses()?;
            sum = sum.plus(&losses);
            let first = tapped.interfaces.first().map(|number| *number as usize);
            let interfaces = &mut self.path.exit.account.interfaces;
            if let Some(interface) = first.and_then(|first| interfaces.get_mut(first)) {
                interface.losses = losses;
            }
        }
        self.path.exit.account.losses = sum;
        Ok(())
    }

    /// Reads the rest from the sources, and closes the account.
    fn finish(&mut self) -> Result<(), CaptureError> {
        let mut is_waiting = false;
        let mut has_stopped = Vec::with_capacity(self.sources.len());
        for tapped in &mut self.sources {
            has_stopped.push(tapped.source.stop()?);
            is_waiting |= has_stopped.last() == Some(&true);
        }
        let begun = clock::monotonic();
        let is_late = || clock::monotonic().since(begun) >= DRAIN_LIMIT;
        while is_waiting {
            let sources = self.sources.iter_mut().zip(&has_stopped);
            for (tapped, has_stopped) in sources.filter(|(tapped, _)| !tapped.is_over) {
                // When a limit was reached, a source gives as little as one frame in each call.
                while tapped.read(&mut self.path, &|| false)? == Progress::Some
                    && *has_stopped
                    && !is_late()
                {}
            }
            self.read_losses()?;
            let is_closed = self
                .path
                .exit
                .account
                .residual()
                .is_none_or(|left| left <= 0);
            is_waiting = !is_closed && !is_late();
            if is_waiting {
                std::thread::sleep(DRAIN_PAUSE);
            }
        }
        self.read_losses()?;
        for tapped in &mut self.sources {
            let mut losses = tapped.source.named_losses();
            self.path.exit.account.named_losses.append(&mut losses);
        }
        self.close_second(self.seconds + 1);
        debug_assert_eq!(
            self.path.exit.account.sink_residual(),
            0,
            "a bug in the session"
        );
        Ok(())
    }
}

impl Tapped {
    fn read(
        &mut self,
        path: &mut Path,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Progress, CaptureError> {
        let interfaces = &self.interfaces;
        let progress = self
            .source
            .read(&mut |packet| path.take(packet, interfaces, is_stopped))?;
        self.is_over = progress == Progress::End;
        if self.source.interfaces().len() > self.interfaces.len() {
            self.introduce(path)?;
        }
        Ok(progress)
    }

    /// Describes to the sink the interfaces that are new to it.
    fn introduce(&mut self, path: &mut Path) -> Result<(), CaptureError> {
        for interface in &self.source.interfaces()[self.interfaces.len()..] {
            path.exit.sink.interface(interface)?;
            path.exit
                .account
                .interfaces
                .push(InterfaceAccount::default());
            if let Some(filter) = &mut path.filter {
                filter.add_link_type(interface.link_type)?;
            }
            self.interfaces.push(path.link_types.len() as u32);
            path.link_types.push(interface.link_type);
        }
        Ok(())
    }
}

impl Path {
    #[inline]
    fn take(
        &mut self,
        packet: &Packet<'_>,
        interfaces: &[u32],
        is_stopped: &dyn Fn() -> bool,
    ) -> ControlFlow<()> {
        if self.is_full() || self.exit.failure.is_some() || self.is_stopped {
            self.exit.account.unread += 1;
            return ControlFlow::Break(());
        }
        let interface = interfaces.get(packet.interface as usize);
        let interface = interface.copied().unwrap_or(0);
        if packet.is_rejected || !self.is_accepted(packet, interface) {
            self.exit.account.received += 1;
            self.exit.account.filtered += 1;
            return ControlFlow::Continue(());
        }
        let due = self.pacer.as_mut().and_then(|pacer| pacer.due(packet));
        // The wait comes before all counting: when a stop ends it, the packet counts as unread.
        if let Some((pacer, due)) = self.pacer.as_ref().zip(due)
            && !pacer.wait(due, is_stopped)
        {
            self.is_stopped = true;
            self.exit.account.unread += 1;
            return ControlFlow::Break(());
        }
        self.exit.account.pass(packet, interface);
        let is_as_it_is = self.is_plain && packet.data.len() <= self.shape.snap_len;
        if is_as_it_is && interface == packet.interface {
            self.exit.deliver(packet);
        } else {
            let packet = Packet {
                interface,
                ..*packet
            };
            self.deliver_shaped(&packet, due);
        }
        if self.is_full() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    #[inline]
    fn is_accepted(&self, packet: &Packet<'_>, interface: u32) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let link_type = self.link_types.get(interface as usize);
        link_type.is_some_and(|link_type| filter.accepts(packet, *link_type))
    }

    /// Delivers a packet in its final shape. Its time, `due`, has come.
    fn deliver_shaped(&mut self, packet: &Packet<'_>, due: Option<Instant>) {
        let exit = &mut self.exit;
        let (mut pieces, mut wire_bytes) = (0, 0);
        let is_cut_up = self.shape.apply(packet, |piece| {
            pieces += 1;
            wire_bytes += u64::from(piece.wire_len);
            exit.deliver(piece);
        });
        exit.account.pieces += pieces - 1;
        exit.account.uncut_super_frames += u64::from(packet.is_super_packet() && !is_cut_up);
        if let Some(pacer) = &mut self.pacer {
            if pacer.ends_burst() {
                exit.flush();
            }
            pacer.left(due, wire_bytes);
        }
    }

    const fn is_full(&self) -> bool {
        self.exit.account.delivered >= self.packets_max
    }
}

impl Shape {
    /// Passes to `emit` the packet, or the pieces that the wire would carry, in their final form.
    /// Returns false when the session has a segmenter and it did not cut the packet up; otherwise
    /// true.
    fn apply(&mut self, packet: &Packet<'_>, mut emit: impl FnMut(&Packet<'_>)) -> bool {
        let mut finish = |packet: &Packet<'_>| {
            let (edited, cut);
            let mut last = packet;
            if let Some(editor) = &mut self.editor {
                edited = editor.edit(last);
                last = &edited;
            }
            if last.data.len() > self.snap_len {
                cut = last.cut_to(self.snap_len);
                last = &cut;
            }
            if let Some(check) = &mut self.sequence {
                check.look(last.data);
            }
            emit(last);
        };
        if let Some(segmenter) = &mut self.segmenter {
            segmenter.segment(packet, &mut finish)
        } else {
            finish(packet);
            true
        }
    }
}

impl Exit {
    #[inline]
    fn deliver(&mut self, packet: &Packet<'_>) {
        self.account.delivered += 1;
        self.account.delivered_bytes += packet.data.len() as u64;
        self.account.cut += u64::from(packet.is_cut());
        if let Some(account) = self.account.interfaces.get_mut(packet.interface as usize) {
            account.delivered += 1;
            account.delivered_bytes += packet.data.len() as u64;
        }
        if self.failure.is_some() {
            // The sink failed on an earlier piece of the same packet.
            let unwritten = Unwritten::of(packet);
            self.account.take_out(packet.interface as usize, &unwritten);
        } else if let Err(failure) = self.sink.write(packet) {
            self.failure = Some(failure);
        }
    }

    /// Notes the account in the sink, and flushes the sink, so that readers of its file see the
    /// account.
    fn note_account(&mut self) {
        if self.failure.is_none() {
            let noted = self.sink.note(&self.account, clock::wall_nanos());
            self.failure = noted.err();
        }
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(failure) = self.sink.flush()
            && self.failure.is_none()
        {
            self.failure = Some(failure);
        }
        for (interface, unwritten) in self.sink.take_unwritten().iter().enumerate() {
            self.account.take_out(interface, unwritten);
        }
    }
}

/// Once this much time has passed since the last check for a stop, the session's loop checks again
/// at its next turn.
const STOP_CHECK: Duration = Duration::from_millis(10);
/// The longest wait. A signal ends a wait; a signal that comes just before a wait is seen after it.
const WAIT_LIMIT: Duration = Duration::from_millis(100);
/// A ring gives out its last block within its retire time. When this takes longer than the limit,
/// something is wrong.
const DRAIN_LIMIT: Duration = RETIRE_MAX.saturating_add(Duration::from_secs(1));
const DRAIN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
