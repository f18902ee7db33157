//! How a session ends: whether it is closed or aborted, and how far the end has come.

use base::Instant;
use wire::pgm::Rst;

/// How the session ends.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) closing: Closing,
    /// The OPT_RST that SPMs carry after an abort; `None` without an abort.
    pub(super) reset: Option<Rst>,
}

/// The phases of a session's end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closing {
    /// The source takes data.
    Open,
    /// The source takes no more data; some data is unsent.
    Sending {
        /// The source answers NAKs at least until this time, however short `linger` is.
        at_least: Instant,
    },
    /// Everything was sent, and SPMs carry OPT_FIN; the source still answers NAKs. After an abort,
    /// SPMs carry OPT_RST instead, and the owner has chosen whether the source answers NAKs.
    Finished {
        /// When the source falls silent.
        until: Instant,
    },
    /// The source is silent.
    Over,
}

impl Closing {
    pub(super) const SENDING: Self = Self::Sending {
        at_least: Instant::ZERO,
    };
}
