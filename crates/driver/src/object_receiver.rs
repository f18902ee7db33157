//! The receiving end of an object session: a PGM receiver in arrival order, feeding a plan's store.

use std::net::{IpAddr, SocketAddr};

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{LinkCommand, PlanReceiver, Store, TransportStats};
use pgm::{Ready, Receiver};
use wire::pgm::{Mark, Profile};

use crate::{Endpoint, Handle};

/// Receives one plan from the first sender of objects that is heard.
///
/// Blocks of other sessions are not looked at. When the followed session ends or vanishes, what is
/// lacking comes by the control connection.
#[derive(Debug)]
pub struct ObjectReceiver<S> {
    receiver: Receiver,
    plan: PlanReceiver<S>,
    followed: Followed,
    stats: TransportStats,
}

/// Which session the blocks are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// None was heard of yet.
    Nobody,
    /// The packet stream and the control connection of one sender.
    Session {
        /// Its number.
        session: u32,
        /// Its id, which is another one after a restart.
        id: u64,
    },
    /// The packet stream is over.
    Gone,
}

impl<S: Store> ObjectReceiver<S> {
    /// Joins a receiver in arrival mode and the plan it feeds.
    #[must_use]
    pub fn new(receiver: Receiver, plan: PlanReceiver<S>) -> Self {
        let stats = TransportStats::default();
        Self {
            receiver,
            plan,
            followed: Followed::Nobody,
            stats,
        }
    }

    /// The PGM receiver.
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The plan being received.
    pub const fn plan(&self) -> &PlanReceiver<S> {
        &self.plan
    }

    /// The plan, to take events from or to cancel.
    pub const fn plan_mut(&mut self) -> &mut PlanReceiver<S> {
        &mut self.plan
    }

    /// Packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.receiver.drops()
    }

    fn is_followed(&self, session: u32) -> bool {
        matches!(self.followed, Followed::Session { session: followed, .. } if followed == session)
    }

    fn pop_ready(&mut self, now: Instant) {
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                // What came before its session was found: the payload is whole all the same.
                Ready::Message { session, data, .. } => {
                    if matches!(self.followed, Followed::Session { session: s, .. } if s == session)
                    {
                        self.plan.handle_block(now, data);
                    }
                }
                Ready::Mark {
                    session,
                    mark,
                    source,
                } => self.mark(now, session, &mark, source),
                Ready::Ended { session }
                | Ready::Expired { session }
                | Ready::Reset { session } => {
                    if self.is_followed(session) {
                        self.followed = Followed::Gone;
                        self.plan.session_over(now);
                    }
                }
                // Found says nothing a mark does not; what is lost is asked for after the pass.
                Ready::Found { .. } | Ready::Lost { .. } => {}
            }
        }
    }

    /// Follows the first session of objects that can be followed, and dials its control port.
    fn mark(&mut self, now: Instant, session: u32, mark: &Mark, source: IpAddr) {
        // Reports go to the host that the packets and the NAKs belong to, and to no third one.
        let nla = self.receiver.position(session).and_then(|at| at.path_nla);
        let is_wanted = mark.check(FEATURES).is_ok()
            && nla == Some(source)
            && mark.profile == Profile::Objects
            && mark.control_port != 0;
        let is_known =
            matches!(self.followed, Followed::Session { id, .. } if id == mark.session_id);
        if is_wanted && (is_known || self.followed == Followed::Nobody) {
            self.followed = Followed::Session {
                session,
                id: mark.session_id,
            };
            let peer = SocketAddr::new(source, mark.control_port);
            self.plan
                .dial(now, peer, mark.session_id, mark.receiver_count);
        }
    }

    fn follow_stream(&mut self, now: Instant) {
        let Followed::Session { session, .. } = self.followed else {
            return;
        };
        if let Some(at) = self.receiver.position(session) {
            self.plan.position(now, at.contiguous, at.lead);
        }
        let counters = self.receiver.counters();
        self.stats.lost = counters.missed_sqns;
        self.stats.repairs_asked = counters.nak_sqns;
        self.stats.repairs_got = counters.rdata_packets;
        self.plan.transport_stats(&self.stats);
    }
}

impl<S: Store> Handle<()> for ObjectReceiver<S> {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        if let Verdict::Payload { session, range, .. } = self.receiver.handle(now, arrival, tpdu)
            && self.is_followed(session)
        {
            self.plan.handle_block(now, &tpdu[range]);
        }
        if self.receiver.has_ready() {
            self.pop_ready(now);
        }
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.pop_ready(now);
        self.plan.poll_store(now);
        self.follow_stream(now);
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.receiver.handle_timeout(now);
        self.plan.handle_timeout(now);
    }
}

impl<S: Store> Endpoint for ObjectReceiver<S> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.plan.handle_link(now, link, event, data);
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.plan.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.plan.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.plan.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.receiver.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.receiver.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        base::earliest(self.receiver.next_timeout(), self.plan.next_timeout())
    }
}

/// Optional features of the object profile that this end knows: none exist yet.
const FEATURES: u16 = 0;
