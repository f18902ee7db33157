//! The program on hosts of its own: real sockets, real loss, peers that stop and die.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod ends;
mod messages;
mod openpgm;
