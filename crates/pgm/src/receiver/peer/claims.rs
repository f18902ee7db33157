//! Claims that packets make: that packets can no longer be repaired, that the session has ended, or
//! that it is broken off. When such a claim is forged, believing it costs data.
//!
//! If the receiver's owner can ask the sender by other means than packets, a claim waits for the
//! sender's word ([`Told`]). If the owner cannot ask, or gives up asking, packets are believed.
//!
//! ```text
//!   trail, FIN, RST of a packet --> claim --told--> what the sender says
//!                                     '---the owner cannot ask--> what the packet said
//! ```

use wire::{Sqn, object::StreamPhase};

use super::{Farewell, Peer, Shared};

/// What the sender itself says about its packet stream by other means than packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The sequence number before which the sender can repair nothing any more.
    pub trail: Sqn,
    /// One past the sequence number of the last packet that the sender has sent.
    pub end: Sqn,
    /// Whether more packets will follow in the stream.
    pub phase: StreamPhase,
}

/// The claims of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// True when the owner can ask the sender whether claims of packets are true.
    is_checked: bool,
    /// The highest trail that the sender has told by other means than packets ([`Told`]).
    told_trail: u64,
    /// The highest trail that a packet announced and that is not believed yet. It is beyond
    /// `told_trail`, and believing it would lose data. 0 for none.
    trail: u64,
    /// The position where the data ends, as a packet claims; `None` without a claim.
    end: Option<u64>,
    /// True when a packet claims that the session is broken off.
    is_reset: bool,
}

impl Claims {
    const fn is_any(&self) -> bool {
        self.trail != 0 || self.end.is_some() || self.is_reset
    }

    /// Returns the packets' claims and forgets them. Keeps `is_checked` and `told_trail`.
    const fn take(&mut self) -> Self {
        let claims = *self;
        (self.trail, self.end, self.is_reset) = (0, None, false);
        claims
    }
}

impl Peer {
    /// Takes a packet's trail. `certain` is one past the last packet that was known to exist before
    /// (see `Window::see_trail`).
    pub(super) fn see_trail(&mut self, trail: u64, certain: u64) {
        // A trail up to here loses nothing: nothing before it is missing, or the sender told it.
        let harmless = self.window.contiguous().max(self.claims.told_trail);
        let trail = if self.claims.is_checked && trail > harmless {
            self.claims.trail = self.claims.trail.max(trail);
            harmless
        } else {
            trail
        };
        self.window.see_trail(trail, certain);
    }

    /// Notes a packet's claim that the data ends before `end`. Believes it at once when the owner
    /// cannot ask the sender.
    pub(super) fn claim_end(&mut self, end: u64) {
        if self.claims.is_checked {
            self.claims.end = Some(end);
        } else {
            self.finish(end);
        }
    }

    /// Notes a packet's claim that the session is broken off. Believes it at once when the owner
    /// cannot ask the sender.
    pub(super) fn claim_reset(&mut self) {
        if self.claims.is_checked {
            self.claims.is_reset = true;
        } else {
            self.leave(Farewell::Reset);
        }
    }

    /// Notes whether the owner can ask the sender. If not, the receiver believes what packets have
    /// claimed.
    pub(in crate::receiver) fn check_claims(&mut self, is_checked: bool) {
        self.claims.is_checked = is_checked;
        if !is_checked && self.is_doubtful() {
            self.believe_claims();
        }
    }

    pub(in crate::receiver) const fn is_checked(&self) -> bool {
        self.claims.is_checked
    }

    pub(in crate::receiver) fn is_doubtful(&self) -> bool {
        self.claims.is_any() && !self.is_over()
    }

    /// Believes the claims that packets have made so far, and acts on them.
    pub(in crate::receiver) fn believe_claims(&mut self) {
        let claims = self.claims.take();
        if claims.trail > 0 {
            let certain = self.window.confirmed();
            self.window.see_trail(claims.trail, certain);
        }
        if let Some(end) = claims.end {
            self.finish(end);
        }
        if claims.is_reset {
            self.leave(Farewell::Reset);
        }
    }

    /// Takes the sender's own word. Packets at or beyond `told.end` that have not arrived do not
    /// exist, even if they were announced.
    pub(in crate::receiver) fn told(&mut self, told: &Told, shared: &mut Shared) {
        if !self.is_established || self.is_over() {
            return;
        }
        let end = told.end.extend(self.window.next);
        shared.counters.withdrawn_sqns += self.window.retract(end);
        let claims = self.claims.take();
        let trail = told.trail.extend(self.window.next).min(end);
        self.claims.told_trail = self.claims.told_trail.max(trail);
        if claims.trail > 0 {
            self.window.see_trail(trail.min(claims.trail), u64::MAX);
        }
        match told.phase {
            StreamPhase::Ended => self.finish(end.max(self.window.confirmed())),
            StreamPhase::BrokenOff => self.leave(Farewell::Reset),
            _ => {}
        }
        self.look_again(&shared.store);
    }
}
