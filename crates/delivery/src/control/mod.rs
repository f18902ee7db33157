//! The conversation over a control connection: which end dials, which receivers are admitted, and
//! which messages are believed.
//!
//! It does not know packets, files or what is said once a receiver was taken in: a session of
//! messages and a transfer of files both stand on it. The end that dials is the receiver's, the end
//! that listens the sender's.
//!
//! ```text
//!   Caller, one Call a sender                          Listener
//!     Waiting -> Dialling -> Connecting    accept -> greeting deadline
//!     Greeting   HELLO --------------------------->  version, session, key
//!                <------- CHALLENGE, HELLO again --  (where there is a key)
//!     Open       <-------------------- WELCOME ----  the owner admits
//!     Silent     <-------------------- REFUSED ----  or not
//!        '- link lost: Waiting, after a while of its own
//! ```
//!
//! Invariants: a call has at most one connection or request; nothing but a greeting is handed on of
//! a link that was not welcomed; where there is a key, nothing is handed on of a link whose other
//! end has not shown that it has the same.

use std::net::SocketAddr;

use base::{Instant, LinkEvent, LinkId};
use wire::object::{Decoder, Hello, Message, Refusal};

mod dial;
pub(crate) use dial::{Answer, Call, Caller, Identity, NameTaken, features};

mod link;
pub use link::LinkCommand;
pub(crate) use link::Links;

mod listen;
pub(crate) use listen::{Listener, Word};

mod protect;
#[cfg(test)]
pub(crate) use protect::{LinkProtection, Role};

/// A machine at one end of control connections.
pub(crate) trait Talks {
    /// Its connections.
    fn links(&mut self) -> &mut Links;

    /// Handles the next message of a connection; false when none is whole.
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

/// A machine at the listening end: what it makes of what is said there.
pub(crate) trait Hosts: Talks {
    /// Its end of the conversation.
    fn listener(&mut self) -> &mut Listener;

    /// A peer was asked to show that it has the key.
    fn challenged(&mut self);

    /// A peer says who it is: it is taken in or refused.
    fn greet(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &Hello<'_>);

    /// A peer was refused.
    fn refused(&mut self, peer: SocketAddr, reason: Refusal);

    /// One that was taken in says something.
    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>);

    /// What is said on a link cannot be followed further.
    fn violation(&mut self, now: Instant, link: LinkId, text: &str);

    /// What came on the link of one that was taken in was not made with the key: another host
    /// said it. To be counted; the link is lost.
    fn forged(&mut self);

    /// The link of one that was taken in is gone, without a word. It may come back.
    fn lost(&mut self, now: Instant, link: LinkId);

    /// True when nobody is taken in any more.
    fn is_over(&self) -> bool;

    /// Handles what happened on a link; `data` holds the bytes of [`LinkEvent::Data`].
    fn link_event(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        match event {
            LinkEvent::Accepted { peer } => {
                let is_over = self.is_over();
                if let Err(reason) = self.listener().accept(now, link, peer, is_over) {
                    self.refused(peer, reason);
                }
            }
            LinkEvent::Data => self.read(now, link, data),
            LinkEvent::Writable => self.listener().links.writable(link),
            LinkEvent::Closed => {
                self.listener().forget(link);
                self.lost(now, link);
            }
            LinkEvent::Opened => {}
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
            Word::Challenged => self.challenged(),
            Word::Hello { peer, hello } => self.greet(now, link, peer, &hello),
            Word::Refused { peer, reason } => self.refused(peer, reason),
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
