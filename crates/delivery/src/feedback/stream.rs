//! The state of a packet stream, which the loop that receives its packets passes on in each turn.

use wire::object::Pos;

/// The state of the packet stream of one session, with totals since the session was found.
/// `contiguous` and `lead` are [positions](wire::Sqn#positions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The next position that the application has not been given: everything before it was
    /// delivered, or is lost for good.
    pub contiguous: u64,
    /// The highest position known to exist.
    pub lead: u64,
    /// How many packets beyond the first gap were received.
    pub held: u64,
    /// Totals of what has arrived and what was missing.
    pub counts: StreamCounts,
    /// Packets that the kernel dropped because a socket buffer was full.
    pub host_drops: u64,
    /// True when the receive socket is empty, so this host does not delay the next packet.
    pub is_caught_up: bool,
}

/// Totals of one packet stream since it was found: what has arrived, and what was missing at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Bytes of the packets that arrived, headers included.
    pub bytes: u64,
    /// Positions noticed as missing, each once.
    pub missed: u64,
    /// Repairs asked for, repeats included.
    pub repairs_asked: u64,
    /// Repairs received.
    pub repairs_got: u64,
    /// Positions that were given up and told to the application as lost.
    pub lost: u64,
}

impl std::ops::AddAssign for StreamCounts {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.missed += other.missed;
        self.repairs_asked += other.repairs_asked;
        self.repairs_got += other.repairs_got;
        self.lost += other.lost;
    }
}

impl StreamState {
    /// Makes the state of a stream that is at `contiguous`, with all totals 0.
    #[must_use]
    pub fn at(contiguous: u64, lead: u64) -> Self {
        Self {
            contiguous,
            lead,
            ..Self::default()
        }
    }

    /// Writes into the report `pos` what it holds of this state, except `contiguous`.
    pub(super) const fn apply(&self, pos: &mut Pos) {
        pos.lead = self.lead;
        pos.held = self.held;
        pos.host_drops = self.host_drops;
        pos.naks = self.counts.missed;
        pos.lost = self.counts.lost;
    }
}
