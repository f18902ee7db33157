//! TCP for programs that have connections of their own. The programs learn how far their bytes have
//! got.
//!
//! | to send | the peer | bytes count once |
//! |---|---|---|
//! | [`transmit_file`] | any | the socket has taken them |
//! | [`PlainSender`] | any program that reads to the end | the peer's kernel has them |
//! | [`DeliveredStream`], [`AsyncDeliveredStream`] | one of these | its program took them |

mod delivered;
pub use delivered::{
    AsyncDeliveredStream, DeliveredProgress, DeliveredProof, DeliveredStream, Undelivered,
};

mod plain;
pub use plain::{PlainEnd, PlainSender, PlainSource};

mod transmit;
pub use transmit::{TransmitError, transmit_file};
