//! Keys, and the protection of packets with them: data is encrypted, and everything is
//! authenticated.
//!
//! [`PacketProtection`] stands between the state machines and the network. On the way out it
//! encrypts data and parity and tags everything else. On the way in it hands on what another holder
//! of the key sent, and nothing else. So the machines see plain PGM packets and know nothing of
//! keys.
//!
//! ```text
//!   pgm::Source --run--> protect() --run--> network
//!   network --packet--> unprotect() --packet--> pgm::Receiver
//!                            '--> dropped: counted by reason
//! ```
//!
//! The owner passes the cipher in ([`Suite`]): a fast cipher needs special machine instructions,
//! which a pure crate does not call.
//!
//! Protection has limits. It does not hide who talks to whom, how much and when. It does not hide
//! the headers of packets, which name sequence numbers. It does not protect against members of the
//! group, who all hold the same key. Packets of old sessions are genuine, too: a receiver therefore
//! takes data only after the sender has shown, on the control connection, that it has the key now.
#![forbid(unsafe_code)]

mod aead;
#[cfg(feature = "portable")]
pub use aead::portable;
pub use aead::{Aead, NONCE_LEN, Suite, TAG_LEN};

mod key;
pub use key::Key;

mod packets;
pub mod parameters;
pub use packets::{Notice, NoticeKind, PacketProtection, ProtectionCounters};
