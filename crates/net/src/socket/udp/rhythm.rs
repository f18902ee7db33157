//! Remembers from the last calls how the owner works and when its packets come, so that the next
//! calls need fewer system calls.
//!
//! It is always right to ask the poll set before every receive, and to wait in it. But that costs a
//! call and several microseconds for each packet. Three states tell when something cheaper is
//! enough:
//!
//! ```text
//! Wake:   Otherwise ──a wait ends with packets of the group──> ByGroup ─┐ a sleep in the
//!             ^                                                   │  ^  │ group's socket
//!             └──a wait or sleep ends otherwise; arm──────────────┘  └──┘ ends with packets
//!
//! Owner:  Waits { 0 } ──empty receive──> Waits { 1 } ──empty receive──> Spins
//!             ^                               │                           │
//!             └──────────wait; arm────────────┴───────────────────────────┘
//!
//! Poll:   each poll sets `receives_since_poll` to 0, and brings events of the control
//!         connections; the news is fresh until `link_event` has returned all of them
//!
//! recv        Spins:    receives from the group's socket without asking the poll set
//!             ByGroup:  does not ask the poll set: the owner's next wait finds packets
//!             else:     asks the poll set, unless packets are known to be there
//! link_event  fresh, Spins or ByGroup:  does not ask the poll set
//! wait        ByGroup:  sleeps in the group's socket, if nothing else can end the wait
//!             else:     waits in the poll set
//! ```
//!
//! After [`RECEIVES_PER_POLL`] receives, `recv` asks the poll set in every state. Receives never
//! change `Wake`: they do not show what will end the next wait.
//!
//! No system call is made here.

/// The three states in the drawing at the top of this module.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvRhythm {
    wake: Wake,
    owner: Owner,
    /// Number of receives since the poll set was last asked.
    receives_since_poll: u32,
    /// True when the owner has not yet taken all control-connection events of the last poll.
    has_link_news: bool,
}

/// What ended the last wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// Packets of the group: packets of the group will probably end the next wait, too.
    ByGroup,
    /// Anything else, or an unknown cause.
    Otherwise,
}

/// What the owner does when no packet is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The owner waits.
    Waits {
        /// How many receives have found nothing since the owner's last wait.
        idle_receives: u32,
    },
    /// The owner receives again and again.
    Spins,
}

impl RecvRhythm {
    pub(super) const fn new() -> Self {
        Self {
            wake: Wake::Otherwise,
            owner: Owner::Waits { idle_receives: 0 },
            receives_since_poll: 0,
            has_link_news: false,
        }
    }

    /// Notes that the poll set was asked.
    pub(super) const fn note_poll(&mut self) {
        self.receives_since_poll = 0;
        self.has_link_news = true;
    }

    /// Notes that the owner receives.
    pub(super) const fn begin_receive(&mut self) {
        self.receives_since_poll += 1;
    }

    /// Notes the end of a receive, which has filled `filled` buffers.
    pub(super) const fn end_receive(&mut self, filled: usize) {
        if let (Owner::Waits { idle_receives }, 0) = (self.owner, filled) {
            let idle_receives = idle_receives + 1;
            self.owner = if idle_receives < IDLE_RECEIVES_SPINNING {
                Owner::Waits { idle_receives }
            } else {
                Owner::Spins
            };
        }
    }

    /// Notes that the owner took an event of a control connection, or learned
    /// that none is left (`is_last`).
    pub(super) const fn note_link_event(&mut self, is_last: bool) {
        self.has_link_news &= !is_last;
    }

    /// Notes that the owner waits.
    pub(super) const fn begin_wait(&mut self) {
        self.owner = Owner::Waits { idle_receives: 0 };
    }

    /// Notes that the owner's wait ended, with packets of the group or otherwise.
    pub(super) const fn end_wait(&mut self, has_group_packets: bool) {
        self.wake = if has_group_packets {
            Wake::ByGroup
        } else {
            Wake::Otherwise
        };
    }

    /// Notes that the owner waits by its own means. What ends that wait is not known here.
    pub(super) const fn note_own_wait(&mut self) {
        self.begin_wait();
        self.wake = Wake::Otherwise;
    }

    /// Returns true when the last wait ended with packets of the group.
    pub(super) const fn is_woken_by_group(&self) -> bool {
        matches!(self.wake, Wake::ByGroup)
    }

    /// Returns true when the owner does not wait, and the poll set was asked not long ago.
    pub(super) const fn is_spinning(&self) -> bool {
        matches!(self.owner, Owner::Spins) && !self.is_poll_old()
    }

    /// Returns true when the poll set must be asked, whatever else is known.
    pub(super) const fn is_poll_old(&self) -> bool {
        self.receives_since_poll > RECEIVES_PER_POLL
    }

    /// Returns true when the owner has not yet taken all control-connection events of the last
    /// poll.
    pub(super) const fn has_link_news(&self) -> bool {
        self.has_link_news
    }
}

/// The most receives between two polls: under a flood, one socket is never empty, and the other
/// sockets need their turn, too.
pub(super) const RECEIVES_PER_POLL: u32 = 8;
/// An owner spins when it receives nothing this many times without a wait in between.
pub(super) const IDLE_RECEIVES_SPINNING: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(rhythm: &mut RecvRhythm, filled: usize) {
        rhythm.begin_receive();
        rhythm.end_receive(filled);
    }

    #[test]
    fn who_receives_nothing_twice_without_a_wait_spins_until_the_next() {
        let mut rhythm = RecvRhythm::new();
        receive(&mut rhythm, 0);
        receive(&mut rhythm, 3);
        assert!(!rhythm.is_spinning());
        receive(&mut rhythm, 0);
        assert!(rhythm.is_spinning());
        receive(&mut rhythm, 3);
        assert!(rhythm.is_spinning(), "packets do not make it wait");
        rhythm.begin_wait();
        assert!(!rhythm.is_spinning());
        receive(&mut rhythm, 0);
        assert!(!rhythm.is_spinning(), "counted from the wait on");
    }

    #[test]
    fn who_spins_asks_the_poll_set_after_some_receives_all_the_same() {
        let mut rhythm = RecvRhythm::new();
        for _ in 0..RECEIVES_PER_POLL {
            receive(&mut rhythm, 0);
        }
        assert!(rhythm.is_spinning() && !rhythm.is_poll_old());
        rhythm.begin_receive();
        assert!(!rhythm.is_spinning() && rhythm.is_poll_old());
        rhythm.note_poll();
        assert!(rhythm.is_spinning() && !rhythm.is_poll_old());
    }

    #[test]
    fn what_ended_the_last_wait_is_remembered_while_the_owner_spins() {
        let mut rhythm = RecvRhythm::new();
        rhythm.end_wait(true);
        receive(&mut rhythm, 0);
        receive(&mut rhythm, 0);
        assert!(rhythm.is_spinning() && rhythm.is_woken_by_group());
        rhythm.begin_wait();
        assert!(rhythm.is_woken_by_group());
        rhythm.note_own_wait();
        assert!(!rhythm.is_woken_by_group(), "nobody knows what ended it");
        rhythm.end_wait(true);
        rhythm.end_wait(false);
        assert!(!rhythm.is_woken_by_group());
    }

    #[test]
    fn news_of_control_connections_is_fresh_until_all_is_told() {
        let mut rhythm = RecvRhythm::new();
        assert!(!rhythm.has_link_news());
        rhythm.note_poll();
        rhythm.note_link_event(false);
        assert!(rhythm.has_link_news());
        rhythm.note_link_event(true);
        assert!(!rhythm.has_link_news());
        rhythm.note_link_event(false);
        assert!(!rhythm.has_link_news(), "only a poll brings news");
    }
}
