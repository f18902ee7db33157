//! TCP for programs that have connections of their own. The programs learn how far the bytes that
//! they send have got.
//!
//! | what | the peer | what it shows |
//! |---|---|---|
//! | [`transmit_file`] | any | what the socket took |
//! | [`PlainSender`] | any program that reads to the end | what the peer's kernel acknowledged |
//! | [`DeliveredStream`], [`AsyncDeliveredStream`] | either type | what its application has taken |

mod delivered;
pub use delivered::{
    AsyncDeliveredStream, DeliveredProgress, DeliveredProof, DeliveredStream, Undelivered,
};

mod plain;
pub use plain::{PlainEnd, PlainSender, PlainSource};

mod transmit;
pub use transmit::{TransmitError, transmit_file};
