//! The conversation over a control connection: who dials, who is taken in, and who is believed.
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

use base::{Instant, LinkId};
use wire::object::Decoder;

mod dial;
#[cfg(test)]
pub(crate) use dial::REDIAL_MIN;
pub(crate) use dial::{Answer, Call, Caller, Identity, NameTaken};

mod link;
pub use link::LinkCommand;
pub(crate) use link::Links;

mod listen;
pub(crate) use listen::{Listener, SILENCE_MAX, Word};

mod tag;
pub use tag::Key;
#[cfg(test)]
pub(crate) use tag::{Role, Tags};

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
