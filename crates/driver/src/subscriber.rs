//! The receiving end of message sessions: a PGM receiver, and its reports to senders that ask for
//! them.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{LinkCommand, Reporter, ReporterConfig, ReporterEvent};
use pgm::{Mode, Ready, Receiver, Told};
use wire::{
    Sqn,
    object::{ErrorCode, Refusal},
    pgm::{Mark, Packed, Tsi},
};

use crate::parameters::LEAVE_TIME_MAX;
use crate::{
    Admission, Endpoint, Handle, Receiving,
    endpoint::stream_of,
    trust::{Judgement, Trust},
};

/// A sink for what a [`Subscriber`] receives. Messages of one session come in the order of the
/// subscriber's [`Mode`].
pub trait MessageSink {
    /// Takes one whole message; `data` is valid during the call only. Messages that shared a packet
    /// have the same position.
    fn message(&mut self, session: u32, position: u64, data: &[u8]);

    /// Takes an event other than data, in its place between the messages.
    fn event(&mut self, event: SessionEvent);

    /// Takes the name that a sender has given itself. It comes some time after
    /// [`SessionEvent::Found`], and only from a sender that takes reports. Without a key, any host
    /// can have sent the name. The default ignores it.
    fn sender_name(&mut self, session: u32, name: &str) {
        let _ignored = (session, name);
    }

    /// Takes the address of a second sender, which sends the same frames in another session. The
    /// first sender names it in the mark (Towline's option in SPMs) of `session`; the unspecified
    /// address means that there is no second sender. Only frame sessions without a key name an
    /// address. The default ignores it.
    fn partner(&mut self, session: u32, source: IpAddr) {
        let _ignored = (session, source);
    }

    /// Returns true while the application takes nothing more. The messages of one more receive
    /// batch may still come.
    fn is_full(&self) -> bool {
        false
    }
}

/// An event that a receiver's application gets besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A sender was heard for the first time.
    Found {
        /// The index by which all later events name the sender's session.
        session: u32,
        /// The sender's transport session identifier.
        tsi: Tsi,
        /// The sender's network address.
        source: IpAddr,
    },
    /// Packets that cannot be repaired any more.
    Lost {
        /// The session whose packets were lost.
        session: u32,
        /// Position of the first lost packet.
        first: u64,
        /// How many packets in a row were lost.
        count: u64,
    },
    /// The sender already has a receiver of this name, perhaps one that died silently. This
    /// receiver keeps trying for a while; then the sender admits or refuses it.
    NameTaken {
        /// The session of the sender that has the name already.
        session: u32,
    },
    /// The sender refuses this receiver and does not wait for it. Messages are still received,
    /// unless the sender protects them and this end has no key.
    Refused {
        /// The session of the sender that refuses.
        session: u32,
        /// Why the sender refuses.
        reason: Refusal,
    },
    /// The sender closed its session, and everything before the end was delivered or reported lost.
    Ended {
        /// The session that ended.
        session: u32,
    },
    /// Nothing was heard from the sender for the expiry time, so the session is forgotten.
    Expired {
        /// The session that expired.
        session: u32,
    },
    /// The sender aborted its session.
    Reset {
        /// The session that was aborted.
        session: u32,
    },
    /// The sender gave up on this receiver, and the receiver takes nothing more of its session.
    /// Packets that were missing by then were reported as lost. Packets that the sender sent later
    /// are not reported. A new subscriber may join again.
    Dropped {
        /// The session that dropped this receiver.
        session: u32,
        /// Why the sender gave up on this receiver.
        code: ErrorCode,
    },
}

/// A receiver of messages. It reports its position to each sender that announces a control port.
#[derive(Debug)]
pub struct Subscriber {
    receiver: Receiver,
    reporter: Option<Reporter>,
    /// Sessions whose senders gave up on this receiver, and why.
    dropped: BTreeMap<u32, ErrorCode>,
    messages: u64,
    /// How many packets had come when the last turn ended.
    seen_packets: u64,
    /// Number of packets that the kernel has dropped, as the owner last set it.
    host_drops: u64,
    leaving: Leaving,
    trust: Trust,
}

/// How a closed subscriber left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Every connection has accepted the last report to its sender, as far as this end knows.
    Told,
    /// The deadline came before every connection had accepted the last report to its sender.
    TimedOut,
}

#[derive(Clone, Copy, Debug)]
enum Leaving {
    No,
    /// This end is telling the senders that it leaves, until this time at the latest.
    Telling(Instant),
    Done(Left),
}

impl Subscriber {
    /// The usual limit on how long a subscriber goes on telling its senders that it leaves; see
    /// [`Subscriber::close`].
    pub const LEAVE_TIME_MAX: Duration = LEAVE_TIME_MAX;

    /// Opens a session. With `reporter`, it reports to senders that ask for reports, unless the
    /// protocol parameters allow plain PGM only.
    #[must_use]
    pub fn open(
        receiving: &Receiving,
        mode: Mode,
        reporter: Option<ReporterConfig>,
        now: Instant,
    ) -> Self {
        let is_protected = reporter
            .as_ref()
            .is_some_and(|reporter| reporter.key.is_some());
        let receiver = receiving.receiver(mode, is_protected, now);
        let reporter = reporter.filter(|_| !receiving.config.strict_pgm());
        Self {
            reporter: reporter.map(Reporter::new),
            receiver,
            dropped: BTreeMap::new(),
            messages: 0,
            seen_packets: 0,
            host_drops: 0,
            leaving: Leaving::No,
            trust: Trust::new(is_protected),
        }
    }

    /// Returns the name that the sender of a session has given itself; `None` until it comes.
    #[must_use]
    pub fn sender_name(&self, session: u32) -> Option<&str> {
        self.reporter.as_ref()?.sender_name(session)
    }

    /// Returns the PGM receiver.
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Returns the part that reports to senders; `None` when this end does not report.
    pub const fn reporter(&self) -> Option<&Reporter> {
        self.reporter.as_ref()
    }

    /// Sets how many packets the kernel has dropped so far because a socket buffer was full; the
    /// owner supplies this count.
    pub const fn set_host_drops(&mut self, packets: u64) {
        self.host_drops = packets;
    }

    /// Returns the counts of packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.receiver.drops()
    }

    /// Returns the number of messages handed to the sink.
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Follows only senders that `admission` takes, and ignores all packets of others. Call this
    /// before the first turn: a sender that was found earlier may stay.
    pub fn admit_only(&mut self, admission: Admission) {
        self.trust.admit_only(admission);
    }

    /// Begins to leave: over the next turns, this end tells every sender not to wait for it any
    /// longer. [`Subscriber::left`] says when and how it has left. A second call changes nothing.
    pub fn close(&mut self, now: Instant, deadline: Instant) {
        if !matches!(self.leaving, Leaving::No) {
            return;
        }
        self.leaving = Leaving::Telling(deadline);
        if let Some(reporter) = &mut self.reporter {
            reporter.leave(now);
        }
    }

    /// Says how this end has left; `None` until it has left.
    #[must_use]
    pub const fn left(&self) -> Option<Left> {
        match self.leaving {
            Leaving::Done(left) => Some(left),
            Leaving::No | Leaving::Telling(_) => None,
        }
    }

    /// Gives up all packets of a session that are missing before the position `before`.
    pub(crate) fn give_up(&mut self, session: u32, before: u64) {
        self.receiver.give_up(session, before);
    }

    fn has_told(&self) -> bool {
        self.reporter.as_ref().is_none_or(Reporter::is_idle)
    }

    fn check_leaving(&mut self, now: Instant) {
        let Leaving::Telling(deadline) = self.leaving else {
            return;
        };
        if self.has_told() {
            self.leaving = Leaving::Done(Left::Told);
        } else if now >= deadline {
            self.leaving = Leaving::Done(Left::TimedOut);
        }
    }

    fn pop_ready<S: MessageSink + ?Sized>(&mut self, now: Instant, sink: &mut S) {
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                Ready::Message {
                    session,
                    position,
                    data,
                    is_row,
                } => self.messages += give(session, position, data, is_row, sink),
                Ready::Mark {
                    session,
                    mark,
                    source,
                } => self.marked(now, session, source, &mark, sink),
                Ready::Found {
                    session,
                    tsi,
                    source,
                } => {
                    if !self.trust.admits(source) {
                        self.receiver.ignore(session);
                        continue;
                    }
                    sink.event(SessionEvent::Found {
                        session,
                        tsi,
                        source,
                    });
                }
                Ready::Lost {
                    session,
                    first,
                    count,
                } => {
                    sink.event(SessionEvent::Lost {
                        session,
                        first,
                        count,
                    });
                }
                Ready::Ended { session } => {
                    self.end(now, session, SessionEvent::Ended { session }, sink);
                }
                Ready::Expired { session } => {
                    self.end(now, session, SessionEvent::Expired { session }, sink);
                }
                Ready::Reset { session } => {
                    let event = match self.dropped.get(&session) {
                        Some(&code) => SessionEvent::Dropped { session, code },
                        None => SessionEvent::Reset { session },
                    };
                    self.end(now, session, event, sink);
                }
            }
        }
    }

    /// Handles the mark (Towline's PGM option) in an SPM of the sender at `source`.
    fn marked<S: MessageSink + ?Sized>(
        &mut self,
        now: Instant,
        session: u32,
        source: IpAddr,
        mark: &Mark,
        sink: &mut S,
    ) {
        let at = self.receiver.position(session);
        if let Some(partner) = mark.partner {
            sink.partner(session, partner);
        }
        match self.trust.judge(source, mark, at.as_ref()) {
            Judgement::Ignore => self.receiver.ignore(session),
            Judgement::Refuse => {
                let reason = Refusal::KeyRequired;
                sink.event(SessionEvent::Refused { session, reason });
                self.receiver.forget(session);
            }
            Judgement::Receive => {}
            Judgement::Report => {
                if let Some(reporter) = &mut self.reporter {
                    reporter.mark(now, session, source, mark);
                }
            }
        }
    }

    /// Acts on what senders said over their control connections.
    fn pop_said<S: MessageSink + ?Sized>(&mut self, now: Instant, sink: &mut S) {
        while let Some(event) = self.reporter.as_mut().and_then(Reporter::pop_event) {
            match event {
                ReporterEvent::Dropped { session, code, .. } => {
                    if self.receiver.abort(session) {
                        self.dropped.insert(session, code);
                    }
                }
                ReporterEvent::NameTaken { session } => {
                    self.believe(now, session, sink);
                    sink.event(SessionEvent::NameTaken { session });
                }
                ReporterEvent::Refused {
                    session,
                    reason,
                    is_proven,
                    ..
                } => {
                    if is_proven {
                        self.believe(now, session, sink);
                    }
                    sink.event(SessionEvent::Refused { session, reason });
                }
                // A sender is real when it answers a connection to the address that its packets
                // come from.
                ReporterEvent::Joined { session, .. } => self.believe(now, session, sink),
                ReporterEvent::Named { session, name } => sink.sender_name(session, &name),
                ReporterEvent::Closed { session } => self.receiver.conclude(session),
                ReporterEvent::Window { session, window } => {
                    let told = Told {
                        trail: Sqn::of(window.trail),
                        end: Sqn::of(window.end),
                        phase: window.phase,
                    };
                    self.receiver.told(session, &told);
                }
            }
        }
    }

    /// Believes a sender that has answered on its connection: it is there now, and its packets are
    /// not old.
    fn believe<S: MessageSink + ?Sized>(&mut self, now: Instant, session: u32, sink: &mut S) {
        self.receiver.vouch(session);
        // The sink hears who the sender is before it hears more about that sender.
        self.pop_ready(now, sink);
    }

    fn end<S: MessageSink + ?Sized>(
        &mut self,
        now: Instant,
        session: u32,
        event: SessionEvent,
        sink: &mut S,
    ) {
        self.dropped.remove(&session);
        if let Some(reporter) = &mut self.reporter {
            // `drain` has not run yet, so the last report must also count the messages of this
            // turn. After an expiry, another session may already have this session's number:
            // `position` could then return the other session's position.
            let is_expired = matches!(event, SessionEvent::Expired { .. });
            if let Some(at) = self.receiver.position(session).filter(|_| !is_expired) {
                reporter.observe(now, session, &stream_of(&at, self.host_drops, false));
            }
            reporter.session_over(now, session);
        }
        sink.event(event);
    }
}

/// Hands over one message, or each message of a packed packet, and returns how many. A packet that
/// cannot be unpacked to its end counts as lost. No Towline sender makes such a packet.
#[inline]
fn give<S: MessageSink + ?Sized>(
    session: u32,
    position: u64,
    data: &[u8],
    is_row: bool,
    sink: &mut S,
) -> u64 {
    if !is_row {
        sink.message(session, position, data);
        return 1;
    }
    let (mut rest, mut count) = (data, 0);
    while let Some((message, behind)) = Packed::split(rest) {
        sink.message(session, position, message);
        count += 1;
        rest = behind;
    }
    if !Packed::is_end(rest) {
        sink.event(SessionEvent::Lost {
            session,
            first: position,
            count: 1,
        });
    }
    count
}

impl<S: MessageSink + ?Sized> Handle<S> for Subscriber {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], sink: &mut S) {
        if let Verdict::Payload {
            session,
            position,
            range,
        } = self.receiver.handle(now, arrival, tpdu)
        {
            let is_row = self.receiver.is_packed(session);
            self.messages += give(session, position, &tpdu[range], is_row, sink);
        }
        if self.receiver.has_ready() {
            self.pop_ready(now, sink);
        }
    }

    fn drain(&mut self, now: Instant, sink: &mut S) {
        self.pop_said(now, sink);
        if let Some(reporter) = &mut self.reporter {
            self.trust.ask_senders(now, &mut self.receiver, reporter);
        }
        self.pop_ready(now, sink);
        let seen = self.receiver.counters().seen_packets;
        let is_empty = std::mem::replace(&mut self.seen_packets, seen) == seen;
        if let Some(reporter) = &mut self.reporter {
            for session in self.receiver.sessions() {
                let Some(at) = self.receiver.position(session) else {
                    continue;
                };
                if at.mark.is_some() {
                    let stream = stream_of(&at, self.host_drops, is_empty);
                    reporter.observe(now, session, &stream);
                }
            }
        }
        self.check_leaving(now);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut S) {
        if let Some(reporter) = &mut self.reporter {
            reporter.handle_timeout(now);
        }
        self.receiver.handle_timeout(now);
        self.pop_ready(now, sink);
    }

    fn is_full(&self, sink: &S) -> bool {
        sink.is_full()
    }
}

impl Endpoint for Subscriber {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        if let Some(reporter) = &mut self.reporter {
            reporter.handle_link(now, link, event, data);
        }
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.reporter.as_mut()?.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        if let Some(reporter) = &mut self.reporter {
            reporter.link_sent(link, taken);
        }
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        if let Some(reporter) = &mut self.reporter {
            reporter.link_opened(key, link);
        }
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.receiver.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.receiver.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let reports = self.reporter.as_ref().and_then(Reporter::next_timeout);
        let leaving = match self.leaving {
            Leaving::Telling(_) if self.has_told() => Some(Instant::ZERO),
            Leaving::Telling(deadline) => Some(deadline),
            Leaving::No | Leaving::Done(_) => None,
        };
        base::earliest(
            leaving,
            base::earliest(self.receiver.next_timeout(), reports),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard {
        messages: Vec<Vec<u8>>,
        lost: u64,
    }

    impl MessageSink for Heard {
        fn message(&mut self, _session: u32, position: u64, data: &[u8]) {
            assert_eq!(position, 7);
            self.messages.push(data.to_vec());
        }

        fn event(&mut self, event: SessionEvent) {
            if let SessionEvent::Lost {
                first: 7, count, ..
            } = event
            {
                self.lost += count;
            }
        }
    }

    fn given(row: &[u8]) -> (u64, Heard) {
        let mut heard = Heard::default();
        let count = give(1, 7, row, true, &mut heard);
        (count, heard)
    }

    #[test]
    fn a_row_gives_its_messages_and_no_padding() {
        let row = [
            [2, b'a', b'b', 0, 0, 0, 0, 0],
            [0; 8],
            [1, b'c', 0, 0, 0, 0, 0, 0],
            [Packed::PADDING, 9, 9, 9, 9, 9, 9, 9],
        ];
        let (count, heard) = given(&row.concat());
        assert_eq!((count, heard.lost), (3, 0));
        assert_eq!(heard.messages, [&b"ab"[..], b"", b"c"]);
    }

    #[test]
    fn a_row_that_is_cut_off_is_told_as_a_loss() {
        let whole = [2, b'a', b'b', 0, 0, 0, 0, 0];
        let cut: [&[u8]; 4] = [&[9, b'c'], &[1, b'c'], &[0x80, 1], &[0xC0, 0, 0, 0]];
        for end in cut {
            let (count, heard) = given(&[&whole[..], end].concat());
            assert_eq!((count, heard.lost), (1, 1), "{end:?}");
        }
    }
}
