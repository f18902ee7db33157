//! The receiving end of an object session: a PGM receiver in arrival order, feeding a plan's store.

use std::net::{IpAddr, SocketAddr};

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{LinkCommand, PlanReceiver, Store, TransportStats};
use pgm::{Ready, Receiver};
use wire::pgm::{Mark, Profile};

use crate::{Endpoint, Handle};

/// Receives one plan from the first sender of objects that takes this receiver in.
///
/// Blocks of other sessions are not looked at. When the followed session ends or vanishes, what is
/// lacking comes by the control connection, until the session is found again.
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
    /// The packet stream of the sender that the plan comes from.
    Session {
        /// Its number.
        session: u32,
        /// Whose it is.
        sender: Sender,
    },
    /// The packet stream is over; the sender may be heard again.
    Gone {
        /// Whose it was.
        sender: Sender,
    },
}

/// Where the control connection leads, and the session's id, which is another one after a restart.
type Sender = (SocketAddr, u64);

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
                    if let Followed::Session { session: s, sender } = self.followed
                        && s == session
                    {
                        self.followed = Followed::Gone { sender };
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
        if !is_wanted {
            return;
        }
        let sender = (SocketAddr::new(source, mark.control_port), mark.session_id);
        self.plan.dial(now, sender.0, sender.1, mark.receiver_count);
        // Somebody else is dialled, or this one did not take us in.
        if self.plan.session() != Some(sender) {
            return;
        }
        if matches!(self.followed, Followed::Gone { sender: gone } if gone == sender) {
            self.plan.session_back();
        }
        self.followed = Followed::Session { session, sender };
    }

    /// Follows nobody once the plan has turned away from the sender that was followed.
    fn check_followed(&mut self) {
        if self.plan.session().is_none() {
            self.followed = Followed::Nobody;
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
        self.check_followed();
    }
}

impl<S: Store> Endpoint for ObjectReceiver<S> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.plan.handle_link(now, link, event, data);
        self.check_followed();
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::{PathId, Socket};
    use delivery::{PlanReceiverConfig, memory::MemoryStore};
    use pgm::{Config, Mode, ReceiverSetup};
    use wire::{
        object::{Message, Refusal},
        pgm::{Addressing, Body, Gsi, PgmOption, Spm, Sqn, emit},
    };

    use super::*;

    const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 1, 1)), 7);
    const LINK: LinkId = LinkId(1);

    fn receiver() -> ObjectReceiver<MemoryStore> {
        let setup = ReceiverSetup {
            mode: Mode::Arrival,
            destination_port: 7,
            group: GROUP,
            path: PathId(0),
            seed: 1,
            own_nla: IpAddr::from([10, 0, 0, 9]),
        };
        let config = PlanReceiverConfig::new("r", 1);
        let plan = PlanReceiver::new(config, MemoryStore::default(), at(0));
        ObjectReceiver::new(Receiver::new(Config::default(), setup, at(0)), plan)
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos((seconds + 1) * 1_000_000_000)
    }

    /// One SPM of host 10.0.0.`host`, whose session has this id.
    fn spm(receiver: &mut ObjectReceiver<MemoryStore>, now: Instant, host: u8, sqn: u32, id: u64) {
        let source = IpAddr::from([10, 0, 0, host]);
        let addressing = Addressing {
            source_port: 1,
            destination_port: 7,
            gsi: Gsi([host; 6]),
        };
        let spm = Spm {
            sqn: Sqn(sqn),
            trail: Sqn(1),
            lead: Sqn(0),
            path_nla: source,
        };
        let mark = Mark {
            version: Mark::VERSION,
            profile: Profile::Objects,
            required: 0,
            optional: 0,
            control_port: 4000,
            receiver_count: 0,
            session_id: id,
            // As a source does: a mark is told only when it is another one.
            tx_time_us: sqn.into(),
            announced_rate: 0,
            limiting_receiver: Mark::NO_RECEIVER,
        };
        let mut tpdu = Vec::new();
        let options = [PgmOption::Mark(mark)];
        emit(&mut tpdu, &addressing, &Body::Spm(spm), &options, &[]);
        let arrival = Arrival::from(SocketAddr::new(source, 7), Socket::Group);
        receiver.handle(now, &arrival, &tpdu, &mut ());
        receiver.drain(now, &mut ());
    }

    fn sender(host: u8, id: u64) -> Sender {
        (SocketAddr::from(([10, 0, 0, host], 4000)), id)
    }

    #[test]
    fn a_sender_that_refuses_is_left_for_the_next_that_is_heard() {
        let mut receiver = receiver();
        spm(&mut receiver, at(0), 1, 1, 5);
        spm(&mut receiver, at(0), 2, 1, 6);
        assert_eq!(receiver.plan.session(), Some(sender(1, 5)));
        receiver.plan.handle_timeout(at(0));
        let Some(LinkCommand::Open { key, .. }) = receiver.poll_link() else {
            panic!("it does not dial");
        };
        receiver.link_opened(key, LINK);
        let mut refused = Vec::new();
        let reason = Refusal::Over;
        Message::Refused { reason, text: "" }.emit(&mut refused);
        receiver.handle_link(at(0), LINK, LinkEvent::Data, &refused);
        assert_eq!(receiver.followed, Followed::Nobody);

        spm(&mut receiver, at(0), 1, 2, 5);
        assert_eq!(receiver.followed, Followed::Nobody, "it has refused");
        spm(&mut receiver, at(0), 2, 2, 6);

        assert_eq!(receiver.plan.session(), Some(sender(2, 6)));
        let Followed::Session { sender: now, .. } = receiver.followed else {
            panic!("it follows nobody");
        };
        assert_eq!(now, sender(2, 6));
        assert!(!receiver.plan.is_over());
    }

    #[test]
    fn a_session_that_is_found_again_is_followed_again() {
        let mut receiver = receiver();
        spm(&mut receiver, at(0), 1, 1, 5);
        let Followed::Session { session, .. } = receiver.followed else {
            panic!("it follows nobody");
        };
        // The greeting is not what is tested: the connection never opens, nor is it given up.
        let mut now = at(0);
        while receiver.is_followed(session) && now < at(100_000) {
            now += Duration::from_secs(1);
            receiver.receiver.handle_timeout(now);
            receiver.drain(now, &mut ());
        }
        assert_eq!(
            receiver.followed,
            Followed::Gone {
                sender: sender(1, 5)
            }
        );

        spm(&mut receiver, now, 2, 2, 6);
        assert_eq!(
            receiver.followed,
            Followed::Gone {
                sender: sender(1, 5)
            }
        );
        spm(&mut receiver, now, 1, 2, 5);

        let Followed::Session {
            session: again,
            sender: whose,
        } = receiver.followed
        else {
            panic!("it is not followed again");
        };
        assert!(again != session && whose == sender(1, 5));
    }
}
