//! What happens to sessions, as [`tracing`] events. They are rare: none is for a packet or a
//! message, and a program without a subscriber pays one load and one comparison for each.
//!
//! | level | events |
//! |---|---|
//! | warn | packets lost, a session broken off, a receiver dropped or refused |
//! | info | session opened, closed; receivers and senders that come and go; transfers |
//! | debug | control connections (in `net`), passes |
//!
//! An event about a peer is told when the application takes it, so that both agree on the order.

use std::net::{IpAddr, SocketAddr};

use delivery::{ObjectReceiverEvent, PlanReceiverEvent, PlanSenderEvent, RegistryEvent};
use driver::{MessageSink, SessionEvent};
use tracing::{debug, info, warn};

/// A session while it is open.
#[derive(Debug)]
pub(crate) struct Open {
    group: SocketAddr,
}

impl Open {
    pub(crate) fn new(group: SocketAddr, interface: &str, local: IpAddr) -> Self {
        info!(%group, interface, %local, "session opened");
        Self { group }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        info!(group = %self.group, "session closed");
    }
}

/// A subscriber's sink that tells the events that pass.
#[derive(Debug)]
pub(crate) struct Traced<'a, S: ?Sized>(pub(crate) &'a mut S);

impl<S: MessageSink + ?Sized> MessageSink for Traced<'_, S> {
    #[inline]
    fn message(&mut self, session: u32, sqn: u64, data: &[u8]) {
        self.0.message(session, sqn, data);
    }

    fn event(&mut self, event: SessionEvent) {
        session(&event);
        self.0.event(event);
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.0.is_full()
    }
}

/// What a subscriber is told of a sender.
fn session(event: &SessionEvent) {
    match *event {
        SessionEvent::Found {
            session,
            tsi,
            source,
        } => info!(session, %tsi, %source, "sender found"),
        SessionEvent::Lost {
            session,
            first,
            count,
        } => warn!(session, first, count, "packets lost"),
        SessionEvent::NameTaken { session } => info!(session, "name taken at the sender"),
        SessionEvent::Refused { session, reason } => {
            warn!(session, %reason, "not taken in by the sender");
        }
        SessionEvent::Ended { session } => info!(session, "sender ended its session"),
        SessionEvent::Expired { session } => warn!(session, "sender not heard of any more"),
        SessionEvent::Reset { session } => warn!(session, "sender broke its session off"),
        SessionEvent::Dropped { session, code } => {
            warn!(session, ?code, "given up by the sender");
        }
    }
}

/// What a publisher is told of a receiver.
pub(crate) fn receiver(event: &RegistryEvent) {
    match event {
        RegistryEvent::Joined { name, peer, .. } => info!(name, %peer, "receiver joined"),
        RegistryEvent::Left {
            name,
            behind,
            reason,
            ..
        } => info!(name, behind, ?reason, "receiver left"),
        RegistryEvent::Stalled { name, behind, .. } => warn!(name, behind, "receiver stalled"),
        RegistryEvent::Resumed { name, .. } => info!(name, "receiver resumed"),
        RegistryEvent::Dropped { name, behind, .. } => warn!(name, behind, "receiver dropped"),
        RegistryEvent::Refused { peer, reason } => warn!(%peer, %reason, "receiver refused"),
    }
}

/// What a sender of files is told.
pub(crate) fn sending(event: &PlanSenderEvent) {
    match event {
        PlanSenderEvent::Joined { slot, name, peer } => {
            info!(slot, name, %peer, "receiver joined");
        }
        PlanSenderEvent::Disconnected { slot } => info!(slot, "receiver disconnected"),
        PlanSenderEvent::Reconnected { slot } => info!(slot, "receiver came back"),
        PlanSenderEvent::Refused { peer, reason } => warn!(%peer, %reason, "receiver refused"),
        PlanSenderEvent::PassStarted {
            pass,
            bytes,
            fill_bytes,
        } => debug!(pass, bytes, fill_bytes, "pass started"),
        PlanSenderEvent::Finished => info!("transfer done"),
        other => info!(event = ?other, "transfer"),
    }
}

/// What a receiver of files is told.
pub(crate) fn receiving(event: &ObjectReceiverEvent) {
    match event {
        ObjectReceiverEvent::Refused { sender, text } => warn!(?sender, text, "sender refused"),
        ObjectReceiverEvent::Accepted { transfer, offer } => {
            info!(transfer, ?offer, "transfer begun");
        }
        ObjectReceiverEvent::Continued { transfer, sender } => {
            info!(
                transfer,
                ?sender,
                "transfer continued by a restarted sender"
            );
        }
        ObjectReceiverEvent::Plan {
            transfer,
            event: PlanReceiverEvent::Delivered { .. },
        } => info!(transfer, "transfer delivered"),
        ObjectReceiverEvent::Plan { transfer, event } => debug!(transfer, ?event, "transfer"),
        ObjectReceiverEvent::Left { transfer, .. } => info!(transfer, "transfer over"),
    }
}
