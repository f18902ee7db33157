//! How far a stream's bytes got, and the proof that the peer's application has taken all of them.

use std::fmt;

/// How far the bytes of an application are known to have got. Each count includes the counts below
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveredProgress {
    /// Bytes that `write` has taken.
    pub written_bytes: u64,
    /// Bytes that this end's kernel has sent at least once.
    pub sent_bytes: u64,
    /// Bytes that the peer's kernel has acknowledged; the true number may be a little higher.
    pub acknowledged_bytes: u64,
    /// Bytes that the peer's application has taken.
    pub confirmed_bytes: u64,
}

/// The proof that the peer's application has taken everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveredProof {
    /// The number of bytes in the stream.
    pub bytes: u64,
    /// The BLAKE3 hash of all bytes, as both ends have computed it.
    pub hash: [u8; 32],
}

/// Why there is no proof that the peer's application has taken everything, and how far the bytes
/// are known to have got.
#[derive(Clone, Debug)]
pub struct Undelivered {
    /// How far the bytes are known to have got.
    pub progress: DeliveredProgress,
    /// The reason why there is no proof.
    pub cause: String,
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeliveredProgress {
            written_bytes,
            sent_bytes,
            acknowledged_bytes,
            confirmed_bytes,
        } = self.progress;
        write!(
            f,
            "not proven: of {written_bytes} bytes written, {sent_bytes} were sent, \
             {acknowledged_bytes} acknowledged by the peer's kernel and {confirmed_bytes} taken by \
             its application: {}",
            self.cause
        )
    }
}

impl std::error::Error for Undelivered {}
