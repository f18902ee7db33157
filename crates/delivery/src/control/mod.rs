//! The conversation over a control connection: which end dials, which receivers are admitted, and
//! which messages are believed.
//!
//! This module does not know packets, files, or what is said once a receiver was admitted. Sessions
//! of messages and transfers of files both use it. With a packet stream, the receiver dials, and
//! the sender listens. Without one, receivers would not hear of the sender. So the sender dials and
//! first sends INVITE. From then on, the messages are the same in both cases.
//!
//! ```text
//!   Caller, one Call a sender                          Listener
//!     Waiting -> Dialling -> Connecting    accept -> greeting deadline
//!     Greeting   HELLO --------------------------->  version, session, key
//!                <------- CHALLENGE, HELLO again --  (only with a key)
//!     Open       <-------------------- WELCOME ----  receiver is admitted
//!     Silent     <-------------------- REFUSED ----  receiver is refused
//!        '- link lost: Waiting, for a random time
//! ```
//!
//! Invariants:
//! - A call has at most one connection, open or being opened. Only while its connection is open may
//!   the call have a second one, which may replace the first.
//! - Before a receiver is admitted, only INVITE, WAIT, HELLO, REFUSED, ERROR and BYE are handed on
//!   from the connection.
//! - With a key, only INVITE, WAIT and REFUSED are handed on before the other end has shown that it
//!   has the same key.
//!
//! **Spec**: `docs/src/protocol.md` sections 2, 5 and 9.

use std::net::SocketAddr;

use base::{Instant, LinkEvent, LinkId};
use wire::object::{Decoder, Hello, Message, Refusal};

mod crowd;
pub(crate) use crowd::Crowd;

mod dials;
pub(crate) use dials::{Dials, Seat, seat};

mod dial;
pub(crate) use dial::{Answer, Call, Caller, Identity, NameTaken, back_off, features};

mod invite;
pub(crate) use invite::{GivenUp, Invitations};

mod link;
pub use link::LinkCommand;
pub(crate) use link::{Link, Links};

mod listen;
pub(crate) use listen::{Listener, Word};

mod protect;
#[cfg(test)]
pub(crate) use protect::{LinkProtection, Role};

/// A state machine for one end of control connections.
pub(crate) trait Talks {
    /// Returns the machine's connections.
    fn links(&mut self) -> &mut Links;

    /// Handles the next message of a connection; returns false when no message is complete.
    fn step(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool;

    /// Handles what arrived on a connection, message by message, while it is open.
    fn read(&mut self, now: Instant, link: LinkId, data: &[u8]) {
        let Some(mut decoder) = self.links().take_decoder(link) else {
            return;
        };
        decoder.push(data);
        while self.step(now, link, &mut decoder) && self.links().is_open(link) {}
        self.links().put_decoder(link, decoder);
    }
}

/// A state machine for the sender's end of control connections: it decides what follows from the
/// peers' messages.
pub(crate) trait Hosts: Talks {
    /// Returns the machine's listener.
    fn listener(&mut self) -> &mut Listener;

    /// Notes that a peer was asked to show that it has the key.
    fn challenged(&mut self);

    /// Admits or refuses a peer that says who it is.
    fn greet(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &Hello<'_>);

    /// Notes that the peer on this connection was refused.
    fn refused(&mut self, now: Instant, link: LinkId, peer: SocketAddr, reason: Refusal);

    /// Notes that a connection which this end dialled is open.
    fn opened(&mut self, _now: Instant, _link: LinkId) {}

    /// Notes that an invited receiver makes this end wait.
    fn waits(&mut self, _now: Instant, _link: LinkId) {}

    /// Notes that an invited receiver refuses.
    fn declined(&mut self, _now: Instant, _link: LinkId, _reason: Refusal, _text: &str) {}

    /// Handles a message of an admitted peer.
    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>);

    /// Handles a link whose peer broke the protocol.
    fn violation(&mut self, now: Instant, link: LinkId, text: &str);

    /// Counts a message that came on an admitted peer's link but was not made with the key: another
    /// host sent it. The link is lost.
    fn forged(&mut self);

    /// Handles the loss of a link. An admitted peer that has not said good-bye may connect again.
    fn lost(&mut self, now: Instant, link: LinkId);

    /// Returns true when the session is over, so that no further peer is admitted.
    fn is_over(&self) -> bool;

    /// Handles what happened on a link; `data` holds the bytes of [`LinkEvent::Data`].
    fn link_event(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        match event {
            LinkEvent::Accepted { peer } => {
                let is_over = self.is_over();
                if let Err(reason) = self.listener().accept(now, link, peer, is_over) {
                    self.refused(now, link, peer, reason);
                }
            }
            LinkEvent::Data => self.read(now, link, data),
            LinkEvent::Writable => self.listener().links.writable(link),
            LinkEvent::Closed => {
                self.listener().forget(link);
                self.lost(now, link);
            }
            LinkEvent::Opened => self.opened(now, link),
        }
    }
}

impl<T: Hosts> Talks for T {
    fn links(&mut self) -> &mut Links {
        &mut self.listener().links
    }

    fn step(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool {
        match self.listener().next(now, link, decoder) {
            Word::Nothing => return false,
            Word::Skipped => {}
            Word::Challenged => self.challenged(),
            Word::Waits => self.waits(now, link),
            Word::Hello { peer, hello } => self.greet(now, link, peer, &hello),
            Word::Refused { peer, reason } => self.refused(now, link, peer, reason),
            Word::Declined { reason, text } => self.declined(now, link, reason, text),
            Word::Said(message) => self.message(now, link, &message),
            Word::Violation(text) => self.violation(now, link, &text),
            Word::Forged => {
                self.forged();
                self.lost(now, link);
            }
        }
        true
    }
}
