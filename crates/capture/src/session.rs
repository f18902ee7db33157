//! Moves packets from sources to a sink, and keeps the account.
//!
//! ```text
//! loop:  each source gives what it has -> filter, cut -> sink
//!        nothing to give: wait for a descriptor
//!        each second: losses are read, the account is noted in the sink and shown
//! end:   sources take nothing new, are read to their end, and asked for their losses
//! ```

use std::{net::IpAddr, ops::ControlFlow, time::Duration};

use base::Instant;
use sys::{Epoll, Interest, clock};

use crate::{
    Account, CaptureError, Edits, Filter, GapErrors, InterfaceAccount, Losses, Pace, Pacer, Packet,
    RETIRE_MAX, Sink, Source, Unit, Unwritten, account::Totals, edit::Editor,
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

/// When a capture ends by itself, and what is kept of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Delivered packets.
    pub packets: Option<u64>,
    /// Time.
    pub duration: Option<Duration>,
    /// Bytes of each packet; the source's own limit costs less.
    pub snap_len: Option<u32>,
    /// When packets are passed on.
    pub pace: Pace,
    /// Packets that are passed on together when there is a pace; 0 is as 1.
    pub burst: u64,
    /// Cut super-packets into what the wire would carry, and fill in checksums.
    pub segments: bool,
    /// Look for generated frames, and for what is missing of them.
    pub checks_sequence: bool,
}

/// Why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its sources have nothing more.
    Source,
    /// A limit was reached.
    Limit,
    /// It was told to stop.
    Stopped,
    /// Its sink can keep nothing more; the error is [`Session::take_failure`].
    Sink,
}

/// A source with what the session needs to know of it.
#[derive(Debug)]
struct Tapped {
    source: Box<dyn Source>,
    /// Its interfaces' numbers in the sink; they are given in the order of discovery.
    interfaces: Vec<u32>,
    is_over: bool,
}

/// The way of one packet.
#[derive(Debug)]
struct Path {
    sink: Box<dyn Sink>,
    account: Account,
    snap_len: usize,
    packets_max: u64,
    failure: Option<CaptureError>,
    /// Of each interface, by its number.
    link_types: Vec<u16>,
    pacer: Option<Pacer>,
    sequence: Option<SequenceCheck>,
    segmenter: Option<Segmenter>,
    filter: Option<Filter>,
    editor: Option<Editor>,
    /// Packets pass as they are: nothing but the filter looks at them.
    is_plain: bool,
    is_stopped: bool,
}

impl Session {
    /// A session that has not begun.
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
                sink,
                account: Account {
                    unit: if limits.segments {
                        Unit::PacketOnTheWire
                    } else {
                        Unit::FrameAsCaptured
                    },
                    ..Account::default()
                },
                snap_len: limits.snap_len.map_or(usize::MAX, |len| len as usize),
                packets_max: limits.packets.unwrap_or(u64::MAX),
                failure: None,
                link_types: Vec::new(),
                pacer: (limits.pace != Pace::TopSpeed)
                    .then(|| Pacer::new(limits.pace, limits.burst)),
                segmenter: limits.segments.then(Segmenter::default),
                sequence: limits.checks_sequence.then(SequenceCheck::default),
                filter: None,
                editor: None,
                is_plain: limits.pace == Pace::TopSpeed
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

    /// Keeps only what `filter` accepts, and counts the rest.
    ///
    /// # Errors
    /// When it makes no sense for the packets of a source.
    pub fn set_filter(&mut self, mut filter: Filter) -> Result<(), CaptureError> {
        for link_type in &self.path.link_types {
            filter.add_link_type(*link_type)?;
        }
        self.path.filter = Some(filter);
        Ok(())
    }

    /// Changes what passed the filter, before it is passed on.
    pub fn set_edits(&mut self, edits: Edits) {
        self.path.is_plain &= edits.is_empty();
        self.path.editor = (!edits.is_empty()).then(|| Editor::new(edits));
    }

    /// Addresses that [`Session::set_edits`] was to change, and that no packet has had so far.
    pub fn addresses_unmet(&self) -> impl Iterator<Item = IpAddr> {
        self.path.editor.iter().flat_map(Editor::unmet)
    }

    /// Captures until its sources end, a limit is reached or `is_stopped` says so, which is asked
    /// a hundred times a second; `tick` is shown the account each second.
    ///
    /// # Errors
    /// When a source is beyond use. What was captured before is in the sink.
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
        Ok(if self.path.failure.is_some() {
            Ended::Sink
        } else {
            ended
        })
    }

    /// The account so far.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.path.account
    }

    /// How exactly packets left, with a pace.
    #[must_use]
    pub fn gap_errors(&self) -> Option<&GapErrors> {
        self.path.pacer.as_ref().map(Pacer::errors)
    }

    /// The rate that was attained as a share of what was asked for, with a pace.
    #[must_use]
    pub fn attained(&self) -> Option<f64> {
        self.path.pacer.as_ref().and_then(Pacer::attained)
    }

    /// What came of generated frames, when that was asked for.
    #[must_use]
    pub const fn sequence(&self) -> Option<&SequenceCheck> {
        self.path.sequence.as_ref()
    }

    /// Packets that the sink's interface dropped after it had taken them.
    pub fn dropped_later(&mut self) -> u64 {
        self.path.sink.dropped_later()
    }

    /// How long it has run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        clock::monotonic().since(self.started)
    }

    /// What its user should know, each once.
    pub fn take_remarks(&mut self) -> Vec<String> {
        for tapped in &mut self.sources {
            self.remarks.append(&mut tapped.source.take_remarks());
        }
        self.remarks.append(&mut self.path.sink.take_remarks());
        std::mem::take(&mut self.remarks)
    }

    /// Why the sink can keep nothing more.
    pub const fn take_failure(&mut self) -> Option<CaptureError> {
        self.path.failure.take()
    }

    fn capture(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        tick: &mut dyn FnMut(&Account),
    ) -> Result<Ended, CaptureError> {
        let mut epoll = self.waiter()?;
        let mut stop_checked = self.started;
        // A packet that is waited for with a pace may be due long after the limit.
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
            if self.path.failure.is_some() {
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

    /// Waits for packets or the next thing to do.
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
        waited.map_err(|cause| CaptureError::os("wait for packets", cause))
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
        waiter().map_err(|cause| CaptureError::os("wait for packets", cause))
    }

    fn next_second(&self) -> Instant {
        self.started + Duration::from_secs(self.seconds + 1)
    }

    fn end_second(&mut self, tick: &mut dyn FnMut(&Account)) -> Result<(), CaptureError> {
        self.seconds = clock::monotonic().since(self.started).as_secs();
        self.read_losses()?;
        self.close_second(self.seconds);
        tick(&self.path.account);
        Ok(())
    }

    /// Notes the second that ends `at`, in the account and in the sink.
    fn close_second(&mut self, at: u64) {
        let path = &mut self.path;
        // What cannot be kept is known only now, and was given in this second.
        path.flush();
        self.totals = path.account.end_second(at, &self.totals);
        path.note_account();
        self.totals = path.account.amend_second(&self.totals);
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
            let interfaces = &mut self.path.account.interfaces;
            if let Some(interface) = first.and_then(|first| interfaces.get_mut(first)) {
                interface.losses = losses;
            }
        }
        self.path.account.losses = sum;
        Ok(())
    }

    /// Reads the sources out and closes the account.
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
                // A source may give one frame at a time, now that nothing more is kept.
                while tapped.read(&mut self.path, &|| false)? == Progress::Some
                    && *has_stopped
                    && !is_late()
                {}
            }
            self.read_losses()?;
            let is_closed = self.path.account.residual().is_none_or(|left| left <= 0);
            is_waiting = !is_closed && !is_late();
            if is_waiting {
                std::thread::sleep(DRAIN_PAUSE);
            }
        }
        self.read_losses()?;
        for tapped in &mut self.sources {
            let mut losses = tapped.source.named_losses();
            self.path.account.named_losses.append(&mut losses);
        }
        self.close_second(self.seconds + 1);
        debug_assert_eq!(self.path.account.sink_residual(), 0, "a bug in the session");
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

    /// Describes the interfaces that are new to the sink.
    fn introduce(&mut self, path: &mut Path) -> Result<(), CaptureError> {
        for interface in &self.source.interfaces()[self.interfaces.len()..] {
            path.sink.interface(interface)?;
            path.account.interfaces.push(InterfaceAccount::default());
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
        if self.is_full() || self.failure.is_some() || self.is_stopped {
            self.account.unread += 1;
            return ControlFlow::Break(());
        }
        self.account.received += 1;
        let interface = interfaces.get(packet.interface as usize);
        let interface = interface.copied().unwrap_or(0);
        if packet.is_rejected || !self.is_accepted(packet, interface) {
            self.account.filtered += 1;
            return ControlFlow::Continue(());
        }
        self.account.passed += 1;
        self.account.super_frames += u64::from(packet.is_super_packet());
        if let Some(account) = self.account.interfaces.get_mut(interface as usize) {
            account.passed += 1;
        }
        let is_as_it_is = self.is_plain && packet.data.len() <= self.snap_len;
        if is_as_it_is && interface == packet.interface {
            self.deliver(packet);
        } else {
            let packet = Packet {
                interface,
                ..*packet
            };
            self.cut_up(&packet, is_stopped);
        }
        if self.is_full() || self.is_stopped {
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

    /// What passed the filter, whole or as the wire would carry it.
    fn cut_up(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        let given = |account: &Account| account.delivered + account.unwritten;
        let before = given(&self.account);
        self.make_pieces(packet, is_stopped);
        match given(&self.account) - before {
            // Its time had not come when the capture was stopped.
            0 => self.put_back(packet),
            pieces => self.account.pieces += pieces - 1,
        }
    }

    /// Counts a packet that has passed as one that was not read after all.
    fn put_back(&mut self, packet: &Packet<'_>) {
        self.account.received -= 1;
        self.account.passed -= 1;
        self.account.super_frames -= u64::from(packet.is_super_packet());
        if let Some(account) = self.account.interfaces.get_mut(packet.interface as usize) {
            account.passed -= 1;
        }
        self.account.unread += 1;
    }

    fn make_pieces(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        if let Some(mut segmenter) = self.segmenter.take() {
            let is_cut_up = segmenter.segment(packet, &mut |packet| self.pass(packet, is_stopped));
            self.account.uncut_super_frames += u64::from(packet.is_super_packet() && !is_cut_up);
            self.segmenter = Some(segmenter);
        } else {
            self.pass(packet, is_stopped);
        }
    }

    /// What passed the filter is brought into its final form, which goes to the sink.
    fn pass(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        if let Some(mut editor) = self.editor.take() {
            self.pass_final(&editor.edit(packet), is_stopped);
            self.editor = Some(editor);
        } else {
            self.pass_final(packet, is_stopped);
        }
    }

    fn pass_final(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        if packet.data.len() > self.snap_len {
            self.pass_cut(&packet.cut_to(self.snap_len), is_stopped);
        } else {
            self.pass_cut(packet, is_stopped);
        }
    }

    fn pass_cut(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        if let Some(check) = &mut self.sequence {
            check.look(packet.data);
        }
        if self.pacer.is_some() {
            self.deliver_in_time(packet, is_stopped);
        } else {
            self.deliver(packet);
        }
    }

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
            // A piece of a packet whose first pieces the sink failed on.
            let unwritten = Unwritten::of(packet);
            self.account.take_out(packet.interface as usize, &unwritten);
        } else if let Err(failure) = self.sink.write(packet) {
            self.failure = Some(failure);
        }
    }

    /// Waits until the packet is due; when the wait is ended, the packet is not delivered.
    fn deliver_in_time(&mut self, packet: &Packet<'_>, is_stopped: &dyn Fn() -> bool) {
        let pacer = self.pacer.as_mut().expect("only called with a pacer");
        let due = pacer.due(packet);
        if due.is_some_and(|due| !pacer.wait(due, is_stopped)) {
            self.is_stopped = true;
            return;
        }
        let ends_burst = pacer.ends_burst();
        self.deliver(packet);
        if ends_burst {
            self.flush();
        }
        if let Some((pacer, due)) = self.pacer.as_mut().zip(due) {
            pacer.left(due);
        }
    }

    const fn is_full(&self) -> bool {
        self.account.delivered >= self.packets_max
    }

    /// Notes the account in the sink, and lets the reader of the file see it.
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

/// Whether to stop is asked this often: between packets, and while there are none.
const STOP_CHECK: Duration = Duration::from_millis(10);
/// A signal ends a wait; one that comes just before it is seen after this.
const WAIT_LIMIT: Duration = Duration::from_millis(100);
/// A ring gives its last block out within its retire time; beyond this something is wrong.
const DRAIN_LIMIT: Duration = RETIRE_MAX.saturating_add(Duration::from_secs(1));
const DRAIN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, Unwritten, packet::tests::packet, source::Visit};

    /// Gives a packet at a time, of two interfaces in turn, for more than a second.
    #[derive(Debug)]
    struct Slow {
        interfaces: [Interface; 2],
        packets: u32,
    }

    impl Source for Slow {
        fn interfaces(&self) -> &[Interface] {
            &self.interfaces
        }

        fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
            std::thread::sleep(Duration::from_millis(10));
            self.packets += 1;
            let one = Packet {
                interface: self.packets % 2,
                wire_len: 100,
                ..packet(&[0; 60], 1)
            };
            let _goes_on = visit(&one);
            Ok(Progress::Some)
        }

        fn losses(&mut self) -> Result<Losses, CaptureError> {
            Ok(Losses::default())
        }
    }

    /// Keeps everything back until it is told not to, and then cannot keep it.
    #[derive(Debug, Default)]
    struct Full {
        held: Vec<Unwritten>,
        is_full: bool,
    }

    impl Sink for Full {
        fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
            self.held.push(Unwritten::default());
            Ok(())
        }

        fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
            let held = &mut self.held[packet.interface as usize];
            held.packets += 1;
            held.bytes += packet.data.len() as u64;
            held.cut += u64::from(packet.is_cut());
            Ok(())
        }

        fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), CaptureError> {
            if self.is_full {
                return Ok(());
            }
            self.is_full = true;
            let full = std::io::ErrorKind::StorageFull.into();
            Err(CaptureError::os("write", full))
        }

        fn take_unwritten(&mut self) -> Vec<Unwritten> {
            if self.is_full {
                std::mem::take(&mut self.held)
            } else {
                Vec::new()
            }
        }
    }

    /// A time limit ends the wait for a packet that is due later.
    #[test]
    fn a_pace_does_not_outlast_a_limit() {
        let source = Slow {
            interfaces: [Interface::default(), Interface::default()],
            packets: 0,
        };
        let limits = Limits {
            pace: Pace::Packets(1),
            duration: Some(Duration::from_millis(200)),
            ..Limits::default()
        };
        let sink = Box::new(crate::sink::NullSink);
        let mut session = Session::new(vec![Box::new(source)], sink, limits).unwrap();
        let ended = session.run(&|| false, &mut |_| {}).unwrap();
        let account = session.account();
        assert_eq!((ended, account.delivered), (Ended::Limit, 1), "{account:?}");
        assert!(session.elapsed() < Duration::from_millis(900));
        assert_eq!((account.passed, account.unread), (1, 1));
    }

    /// What is lost when a second ends is taken out of that second, of its interfaces and of the
    /// bytes.
    #[test]
    fn a_flush_that_fails_at_the_end_of_a_second_is_in_the_account() {
        let source = Slow {
            interfaces: [Interface::default(), Interface::default()],
            packets: 0,
        };
        let sink = Box::<Full>::default();
        let limits = Limits::default();
        let mut session = Session::new(vec![Box::new(source)], sink, limits).unwrap();
        let ended = session.run(&|| false, &mut |_| {}).unwrap();
        let account = session.account();
        assert_eq!((ended, account.delivered), (Ended::Sink, 0), "{account:?}");
        assert!(account.unwritten > 10, "{account:?}");
        assert_eq!(account.unwritten, account.passed);
        assert_eq!(account.unwritten_bytes, account.unwritten * 60);
        assert_eq!((account.delivered_bytes, account.cut), (0, 0));
        assert!(account.closes());
        for interface in &account.interfaces {
            assert_eq!((interface.delivered, interface.delivered_bytes), (0, 0));
            assert_eq!(interface.unwritten, interface.passed);
        }
        let sum = |field: fn(&crate::Second) -> u64| account.seconds.iter().map(field).sum::<u64>();
        assert_eq!(sum(|second| second.delivered), 0, "{:?}", account.seconds);
        assert_eq!(sum(|second| second.delivered_bytes + second.cut), 0);
        assert_eq!(sum(|second| second.unwritten), account.unwritten);
    }
}
