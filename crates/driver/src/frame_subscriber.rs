//! The receiving end of frames: a subscriber that takes packets as they come, and the receiver that
//! puts their payloads together into frames.
//!
//! The receiver asks for a missing packet only while the packet's frame can still be completed in
//! time. It gives up the packets of settled frames.

use std::net::IpAddr;

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run};
use delivery::{
    LinkCommand, Reporter, ReporterConfig,
    frames::{Feed, FrameEvent, FrameReceiver, FrameReceiverConfig},
};
use pgm::{Mode, Receiver};
use wire::pgm::Profile;

use crate::{Admission, Endpoint, Handle, Left, MessageSink, Receiving, SessionEvent, Subscriber};

/// A sink for what a [`FrameSubscriber`] receives. Frames of one session come in order.
pub trait FrameSink {
    /// Takes a whole frame, a report that frames were lost, or the end of a stream. `event` is
    /// valid during the call only. The stream in `event` is the session's number.
    fn frame(&mut self, event: &FrameEvent<'_>);

    /// Takes the events of all settled frames, in order. The default passes each event on to
    /// [`FrameSink::frame`]. Only the sink that joins two feeds overrides it.
    fn settled(&mut self, now: Instant, frames: &mut FrameReceiver) {
        let _ignored = now;
        while let Some(event) = frames.pop() {
            self.frame(&event);
        }
    }

    /// Takes an event of a session. Lost packets are reported as lost frames, not here. With two
    /// feeds, a sender is found when its first feed comes, and is over when its last feed has gone.
    /// When two sessions turn out to be the feeds of one sender, the session with the higher number
    /// ends.
    fn event(&mut self, event: SessionEvent);

    /// Takes an event of one of two feeds: the feed's session was found, or is over. The session
    /// number in `event` is the number that stands for the sender in all other calls.
    fn feed_event(&mut self, feed: Feed, event: SessionEvent) {
        let _ignored = (feed, event);
    }

    /// Takes the name that a sender has given itself, as [`MessageSink::sender_name`] does.
    fn sender_name(&mut self, session: u32, name: &str) {
        let _ignored = (session, name);
    }

    /// Takes the address from which a sender's other feed comes, as [`MessageSink::partner`] does.
    /// Only the sink that joins two feeds uses it.
    fn partner(&mut self, session: u32, source: IpAddr) {
        let _ignored = (session, source);
    }

    /// Returns true while the application takes nothing more.
    fn is_full(&self) -> bool {
        false
    }
}

/// A receiver of frames.
#[derive(Debug)]
pub struct FrameSubscriber {
    subscriber: Subscriber,
    frames: FrameReceiver,
}

impl FrameSubscriber {
    /// Opens a session. With `reporter`, this end reports to senders that ask for reports.
    #[must_use]
    pub fn open(
        receiving: &Receiving,
        config: FrameReceiverConfig,
        mut reporter: Option<ReporterConfig>,
        now: Instant,
    ) -> Self {
        if let Some(reporter) = &mut reporter {
            reporter.profile = Profile::Frames;
        }
        Self {
            subscriber: Subscriber::open(receiving, Mode::Arrival, reporter, now),
            frames: FrameReceiver::new(config),
        }
    }

    /// Returns the frames that are being received.
    pub const fn frames(&self) -> &FrameReceiver {
        &self.frames
    }

    /// Returns the PGM receiver.
    pub const fn receiver(&self) -> &Receiver {
        self.subscriber.receiver()
    }

    /// Returns the part that reports to senders; `None` when this end does not report.
    pub const fn reporter(&self) -> Option<&Reporter> {
        self.subscriber.reporter()
    }

    /// Returns the counts of packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.subscriber.drops()
    }

    /// Sets how many packets the kernel has dropped so far because a socket buffer was full; the
    /// owner supplies this count.
    pub const fn set_host_drops(&mut self, packets: u64) {
        self.subscriber.set_host_drops(packets);
        self.frames.set_host_drops(packets);
    }

    /// Follows only senders that `admission` takes.
    pub fn admit_only(&mut self, admission: Admission) {
        self.subscriber.admit_only(admission);
    }

    /// Begins to leave, as [`Subscriber::close`] does, and gives the sink all whole frames. Gives
    /// up frames that could still be completed in time; the subscriber takes nothing more.
    pub fn close<S: FrameSink + ?Sized>(&mut self, now: Instant, deadline: Instant, sink: &mut S) {
        self.frames.leave(now);
        sink.settled(now, &mut self.frames);
        self.subscriber.close(now, deadline);
    }

    /// Says how this end has left; `None` until it has left.
    #[must_use]
    pub const fn left(&self) -> Option<Left> {
        self.subscriber.left()
    }

    /// Tells the frame receiver at which position each new session begins.
    fn begin_fresh(&mut self) {
        while let Some(session) = self.frames.pop_fresh() {
            if let Some(at) = self.subscriber.receiver().position(session) {
                self.frames.begin(session, at.contiguous);
            }
        }
    }

    /// Settles the frames that are due, gives the sink the outcome, and gives up packets of settled
    /// frames.
    fn follow<S: FrameSink + ?Sized>(&mut self, now: Instant, sink: &mut S) {
        self.begin_fresh();
        self.frames.settle(now);
        sink.settled(now, &mut self.frames);
        for (session, before) in self.frames.give_up_before() {
            self.subscriber.give_up(session, before);
        }
    }
}

/// A sink that hands a subscriber's messages to the frame receiver as payloads.
struct Payloads<'a, S: ?Sized> {
    now: Instant,
    frames: &'a mut FrameReceiver,
    sink: &'a mut S,
}

impl<S: FrameSink + ?Sized> MessageSink for Payloads<'_, S> {
    #[inline]
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        self.frames.take(self.now, session, position, data);
    }

    fn event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Lost { .. } => return,
            SessionEvent::Ended { session }
            | SessionEvent::Expired { session }
            | SessionEvent::Reset { session }
            | SessionEvent::Dropped { session, .. } => {
                self.frames.close(self.now, session);
                self.sink.settled(self.now, self.frames);
            }
            _ => {}
        }
        self.sink.event(event);
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        self.sink.sender_name(session, name);
    }

    fn partner(&mut self, session: u32, source: IpAddr) {
        self.sink.partner(session, source);
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }
}

impl<S: FrameSink + ?Sized> Handle<S> for FrameSubscriber {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], sink: &mut S) {
        let mut payloads = Payloads {
            now,
            frames: &mut self.frames,
            sink,
        };
        self.subscriber.handle(now, arrival, tpdu, &mut payloads);
        // The frame receiver must learn where a session begins before the next packet moves the
        // position.
        self.begin_fresh();
    }

    fn drain(&mut self, now: Instant, sink: &mut S) {
        let mut payloads = Payloads {
            now,
            frames: &mut self.frames,
            sink,
        };
        self.subscriber.drain(now, &mut payloads);
        self.follow(now, sink);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut S) {
        self.follow(now, sink);
        let mut payloads = Payloads {
            now,
            frames: &mut self.frames,
            sink,
        };
        self.subscriber.handle_timeout(now, &mut payloads);
    }

    fn is_full(&self, sink: &S) -> bool {
        sink.is_full()
    }
}

impl Endpoint for FrameSubscriber {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.subscriber.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.subscriber.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.subscriber.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.subscriber.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.subscriber.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.subscriber.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.subscriber.next_timeout(), self.frames.next_timeout())
    }
}
