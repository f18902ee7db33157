//! The receiving end of object sessions, in one of two forms: a PGM receiver that delivers in
//! arrival order, with the transfers of its packets; or only transfers, whose senders dial this
//! end.
//!
//! **Spec**: `docs/src/protocol.md` sections 2, 3 and 7.

use std::fmt::Debug;

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{
    Heard, Intake, LinkCommand, ObjectReceiverConfig, Store, StreamVerdict, TakeFirst,
    TransferReceiverConfig, Transfers,
};
use pgm::{Mode, Ready, Receiver};

use crate::{Endpoint, Handle, Receiving, endpoint::stream_of};

/// A receiver of the manifests that its owner wants, from all senders of a group or from all
/// senders that dial this end. It may also take one manifest only.
#[derive(Debug)]
pub struct ObjectReceiver<I: Intake> {
    /// `None` when senders dial this end: everything then comes over their connections.
    receiver: Option<Receiver>,
    transfers: Transfers<I>,
    /// Number of packets that the kernel has dropped, as the owner last set it.
    host_drops: u64,
    /// How many packets had come when the last turn ended.
    seen_packets: u64,
}

impl<S: Store + Debug> ObjectReceiver<TakeFirst<S>> {
    /// Receives one manifest into `store`: the manifest of the first sender that admits this
    /// receiver.
    #[must_use]
    pub fn single(
        receiving: &Receiving,
        manifest: TransferReceiverConfig,
        store: S,
        now: Instant,
    ) -> Self {
        let config = ObjectReceiverConfig::single(manifest);
        Self::open(receiving, config, TakeFirst::new(store), now)
    }
}

impl<I: Intake> ObjectReceiver<I> {
    /// Opens a session that receives what `intake` wants.
    #[must_use]
    pub fn open(
        receiving: &Receiving,
        config: ObjectReceiverConfig,
        intake: I,
        now: Instant,
    ) -> Self {
        let is_protected = config.receiver.key.is_some();
        let mut receiver = receiving.receiver(Mode::Arrival, is_protected, now);
        // Any host may claim to be a sender. This end asks a sender for nothing until the transfers
        // have found that sender genuine.
        receiver.ask_known_only();
        Self {
            receiver: Some(receiver),
            transfers: Transfers::new(config, intake),
            host_drops: 0,
            seen_packets: 0,
        }
    }

    /// Opens a session that receives what `intake` wants from senders that dial this end.
    #[must_use]
    pub fn listen(config: ObjectReceiverConfig, intake: I) -> Self {
        Self {
            receiver: None,
            transfers: Transfers::new(config, intake).with_door(),
            host_drops: 0,
            seen_packets: 0,
        }
    }

    /// Sets how many packets the kernel has dropped so far because a socket buffer was full; the
    /// owner supplies this count.
    pub const fn set_host_drops(&mut self, packets: u64) {
        self.host_drops = packets;
    }

    /// Returns the PGM receiver; `None` where senders dial.
    pub const fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// Returns the transfers that are being received.
    pub const fn transfers(&self) -> &Transfers<I> {
        &self.transfers
    }

    /// Returns the transfers that are being received, for callers that take events or cancel.
    pub const fn transfers_mut(&mut self) -> &mut Transfers<I> {
        &mut self.transfers
    }

    /// Returns the counts of packets thrown away, by reason; `None` where there are no packets.
    pub fn drops(&self) -> Option<&DropCounters> {
        self.receiver.as_ref().map(Receiver::drops)
    }

    fn pop_ready(&mut self, now: Instant) {
        while let Some(receiver) = &mut self.receiver
            && let Some(ready) = receiver.pop_ready()
        {
            match ready {
                // Parity recovered this data, or it waited until the receiver knew the data's
                // session. In both cases `data` is a whole block.
                Ready::Message { session, data, .. } => {
                    self.transfers.handle_block(now, session, data);
                }
                Ready::Mark {
                    session,
                    mark,
                    source,
                } => {
                    let path_nla = receiver.position(session).and_then(|at| at.path_nla);
                    let heard = Heard {
                        stream: session,
                        mark: &mark,
                        source,
                        path_nla,
                    };
                    self.transfers.mark(now, &heard);
                    self.follow_verdicts();
                }
                // Another session may already have this number. So `position` could return that
                // session's position, and is not called.
                Ready::Expired { session } => self.transfers.session_over(now, session, None),
                Ready::Ended { session } | Ready::Reset { session } => {
                    let last = receiver.position(session);
                    let last = last.map(|at| stream_of(&at, self.host_drops, false));
                    self.transfers.session_over(now, session, last);
                }
                Ready::Found {
                    session, source, ..
                } => {
                    // `found` checks only the sender's host. If the session has sent a mark,
                    // `Ready::Mark` has it checked in full instead.
                    let at = receiver.position(session);
                    if at.is_none_or(|at| at.mark.is_none()) {
                        self.transfers.found(session, source);
                        self.follow_verdicts();
                    }
                }
                // Nothing to do: after the pass, the transfer asks the sender for lost blocks.
                Ready::Lost { .. } => {}
            }
        }
    }

    fn follow_verdicts(&mut self) {
        while let Some(verdict) = self.transfers.pop_verdict() {
            let Some(receiver) = &mut self.receiver else {
                continue;
            };
            match verdict {
                StreamVerdict::Genuine(session) => receiver.vouch(session),
                StreamVerdict::Unwanted(session) => receiver.forget(session),
            }
        }
    }
}

impl<I: Intake> Handle<()> for ObjectReceiver<I> {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        let Some(receiver) = &mut self.receiver else {
            return;
        };
        if let Verdict::Payload { session, range, .. } = receiver.handle(now, arrival, tpdu) {
            self.transfers.handle_block(now, session, &tpdu[range]);
        }
        if receiver.has_ready() {
            self.pop_ready(now);
        }
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.pop_ready(now);
        let (receiver, host_drops) = (&self.receiver, self.host_drops);
        let seen = receiver.as_ref().map_or(0, |it| it.counters().seen_packets);
        let is_caught_up = std::mem::replace(&mut self.seen_packets, seen) == seen;
        self.transfers.observe(now, |session| {
            let at = receiver.as_ref()?.position(session)?;
            Some(stream_of(&at, host_drops, is_caught_up))
        });
        self.follow_verdicts();
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        if let Some(receiver) = &mut self.receiver {
            receiver.handle_timeout(now);
        }
        self.transfers.handle_timeout(now);
        self.follow_verdicts();
    }
}

impl<I: Intake> Endpoint for ObjectReceiver<I> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.transfers.handle_link(now, link, event, data);
        self.follow_verdicts();
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.transfers.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.transfers.link_sent(link, taken);
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        self.transfers.link_opened(key, link);
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.receiver.as_mut()?.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        if let Some(receiver) = &mut self.receiver {
            receiver.run_done(now, outcome);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let receiver = self.receiver.as_ref().and_then(Receiver::next_timeout);
        base::earliest(receiver, self.transfers.next_timeout())
    }
}

#[cfg(test)]
mod tests;
