//! What a state machine did with one packet, and why it dropped a packet.

use std::ops::Range;

/// The result of handling one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New data to hand to the application at once: `range` is the payload within the packet.
    Payload {
        /// The index of the session (sender) that the data belongs to.
        session: u32,
        /// 64-bit position of the packet in its session; the low 32 bits were on the wire.
        position: u64,
        /// Where the payload lies within the packet that was handled.
        range: Range<usize>,
    },
    /// New data that the machine copied and keeps until its turn comes; `pop_ready` then gives it.
    Held,
    /// A control packet that was understood; it carries no data for the application.
    Control,
    /// Thrown away, for a counted reason.
    Drop(DropReason),
}

macro_rules! drop_reasons {
    ($($variant:ident $field:ident $help:literal;)+) => {
        /// The reason why a packet was thrown away. [`DropCounters`] has one counter for each
        /// reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DropReason { $(#[doc = $help] $variant,)+ }

        crate::counters! {
            /// One counter for each [`DropReason`], in packets after GRO split.
            pub struct DropCounters: "drop" { $($field: Packets, $help;)+ }
        }

        impl DropReason {
            /// Returns the name of this reason's counter.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($field),)+ }
            }
        }

        impl DropCounters {
            /// Counts one packet thrown away for `reason`.
            pub const fn count(&mut self, reason: DropReason) {
                match reason { $(DropReason::$variant => self.$field += 1,)+ }
            }

            /// Returns the number of packets thrown away for any reason.
            #[must_use]
            pub const fn total(&self) -> u64 {
                0 $(+ self.$field)+
            }
        }
    };
}

drop_reasons! {
    Truncated truncated "shorter than its own header or body says";
    Malformed malformed "a header or option field holds what the format forbids";
    BadChecksum bad_checksum "the checksum does not match";
    NoChecksum no_checksum "data without the mandatory checksum";
    UnknownType unknown_type "a packet type or version that this end does not know";
    NotForUs not_for_us "another data-destination port, group or session";
    Looped looped "our own packet came back";
    WrongSource wrong_source "the session's packets come from another network address";
    UnknownSession unknown_session "control for a session that this end does not know";
    PeerLimit peer_limit "a new session beyond the number that is allowed";
    Duplicate duplicate "data that was already received";
    BehindWindow behind_window "data or control for sequence numbers already left behind";
    BeyondWindow beyond_window "data or control too far ahead of the window";
    NoRoom no_room "in the window, but the memory bound for held data is reached";
    Stale stale "control older than what was already processed";
    Unexpected unexpected "well-formed but meaningless for this role";
    Ended ended "the session was over";
    Unprotected unprotected "of a session without a key, at an end that has one";
    Forged forged "its tag is wrong: altered, forged, or made with another key";
    Replayed replayed "protected with the key, and taken before or too old to tell";
    Unproven unproven "data of a sender that has not yet shown that it has the key now";
    Incompatible incompatible "a session profile or required feature this end cannot serve";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CounterSet as _;

    #[test]
    fn every_reason_has_its_counter() {
        let mut counters = DropCounters::default();
        counters.count(DropReason::Duplicate);
        counters.count(DropReason::Incompatible);
        assert_eq!(counters.total(), 2);
        assert_eq!(counters.value_of(DropReason::Duplicate.name()), Some(1));
    }
}
