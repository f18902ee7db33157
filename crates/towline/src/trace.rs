//! Emits `tracing` events about sessions. These events are rare: single packets and messages emit
//! none. A program without a `tracing` subscriber pays one load and one comparison for each event.
//!
//! | level | events |
//! |---|---|
//! | warn | packets lost; a session broken off; a peer stalled, dropped or refused |
//! | info | session opened, closed; receivers and senders that come and go; transfers |
//! | debug | control connections (in `net`); passes; steps of a receiver's transfer |
//!
//! The `tracing` event about a peer is emitted when the library's own event leaves the session for
//! the application. So both kinds of events come in the same order.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "what events tell is said to nobody")
)]

use std::net::{IpAddr, SocketAddr};

use delivery::AudienceEvent;
#[cfg(feature = "files")]
use delivery::{ObjectReceiverEvent, TransferReceiverEvent, TransferSenderEvent};
use driver::{MessageSink, SessionEvent};
#[cfg(all(feature = "files", feature = "tracing"))]
use tracing::debug;
#[cfg(feature = "tracing")]
use tracing::{info, warn};

#[cfg(not(feature = "tracing"))]
mod silent {
    //! The macros of `tracing`, without effect.
    macro_rules! silent {
        ($($words:tt)*) => {
            ()
        };
    }
    #[cfg(feature = "files")]
    pub(super) use silent as debug;
    pub(super) use {silent as info, silent as warn};
}
#[cfg(all(feature = "files", not(feature = "tracing")))]
use silent::debug;
#[cfg(not(feature = "tracing"))]
use silent::{info, warn};

/// An open session. Making one emits the event that the session is opened; dropping it emits the
/// event that the session is closed.
#[derive(Debug)]
pub(crate) struct Open {
    group: SocketAddr,
}

impl Open {
    pub(crate) fn new(group: SocketAddr, interface: &str, local: IpAddr) -> Self {
        info!(%group, interface, %local, "session opened");
        Self { group }
    }

    pub(crate) const fn group(&self) -> SocketAddr {
        self.group
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        info!(group = %self.group, "session closed");
    }
}

/// A sink that emits a subscriber's events and passes them on.
#[derive(Debug)]
pub(crate) struct Traced<'a, S: ?Sized>(pub(crate) &'a mut S);

impl<S: MessageSink + ?Sized> MessageSink for Traced<'_, S> {
    #[inline]
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        self.0.message(session, position, data);
    }

    fn event(&mut self, event: SessionEvent) {
        session(&event);
        self.0.event(event);
    }

    fn sender_name(&mut self, session: u32, name: &str) {
        info!(session, name, "sender named itself");
        self.0.sender_name(session, name);
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.0.is_full()
    }
}

/// Emits an event of a subscriber about a sender.
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
        other => info!(event = ?other, "session"),
    }
}

/// Emits an event of a publisher about a receiver.
pub(crate) fn receiver(event: &AudienceEvent) {
    match event {
        AudienceEvent::Joined { name, peer, .. } => info!(name, %peer, "receiver joined"),
        AudienceEvent::Left {
            name,
            behind,
            reason,
            ..
        } => info!(name, behind, ?reason, "receiver left"),
        AudienceEvent::Stalled { name, behind, .. } => warn!(name, behind, "receiver stalled"),
        AudienceEvent::Resumed { name, .. } => info!(name, "receiver resumed"),
        AudienceEvent::Lost { name, lost, .. } => warn!(name, lost, "receiver lost packets"),
        AudienceEvent::Astray { name, .. } => {
            warn!(name, "receiver reports packets that were never sent");
        }
        AudienceEvent::PassedOver { name, .. } => warn!(name, "receiver not waited for any longer"),
        AudienceEvent::Dropped { name, behind, .. } => warn!(name, behind, "receiver dropped"),
        AudienceEvent::Refused { peer, reason } => warn!(%peer, %reason, "receiver refused"),
        other => info!(event = ?other, "receiver"),
    }
}

/// Emits an event of a sender of files.
#[cfg(feature = "files")]
pub(crate) fn sending(event: &TransferSenderEvent) {
    match event {
        TransferSenderEvent::Joined { slot, name, peer } => {
            info!(slot, name, %peer, "receiver joined");
        }
        TransferSenderEvent::Disconnected { slot } => info!(slot, "receiver disconnected"),
        TransferSenderEvent::Reconnected { slot } => info!(slot, "receiver came back"),
        TransferSenderEvent::Refused { peer, reason } => warn!(%peer, %reason, "receiver refused"),
        TransferSenderEvent::PassStarted {
            pass,
            bytes,
            fill_bytes,
        } => debug!(pass, bytes, fill_bytes, "pass started"),
        TransferSenderEvent::Finished => info!("transfer done"),
        other => info!(event = ?other, "transfer"),
    }
}

/// Emits an event of a receiver of files.
#[cfg(feature = "files")]
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
        ObjectReceiverEvent::Transfer {
            transfer,
            event: TransferReceiverEvent::Delivered { .. },
        } => info!(transfer, "transfer delivered"),
        ObjectReceiverEvent::Transfer { transfer, event } => debug!(transfer, ?event, "transfer"),
        ObjectReceiverEvent::Left { transfer, .. } => info!(transfer, "transfer over"),
        other => info!(event = ?other, "transfer"),
    }
}
