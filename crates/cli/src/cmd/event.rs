//! Events about receivers, in words.

use std::{
    cmp::Ordering,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use towline::{AudienceEvent, LeaveReason, Refusal};

use crate::report::count;

/// Returns the line to print about an event; `None` for a refusal that was printed already or is
/// only counted, and for events that are not printed.
pub(super) fn receiver(event: &AudienceEvent, refusals: &mut Refusals) -> Option<String> {
    let text = match event {
        AudienceEvent::Joined { name, peer, .. } => format!("receiver {name} joined from {peer}"),
        AudienceEvent::Left {
            name,
            reason: LeaveReason::Bye,
            ..
        } => {
            format!("receiver {name} left")
        }
        AudienceEvent::Left {
            name,
            behind,
            reason,
            ..
        } => {
            let reason = match reason {
                LeaveReason::Error { text, .. } => text,
                _ => "connection closed",
            };
            let behind = count(*behind, "packet");
            format!("receiver {name} is gone ({reason}), {behind} behind")
        }
        AudienceEvent::Stalled { name, behind, .. } => {
            let behind = count(*behind, "packet");
            format!("receiver {name} has stopped, {behind} behind")
        }
        AudienceEvent::Resumed { name, .. } => format!("receiver {name} continues"),
        AudienceEvent::Lost { name, lost, .. } => {
            format!("receiver {name} has lost {}", count(*lost, "packet"))
        }
        AudienceEvent::Astray { name, .. } => format!(
            "receiver {name} reports packets that were never sent: somebody may be forging \
             packets of this session; --key-file keeps forgers out"
        ),
        AudienceEvent::Dropped { name, behind, .. } => {
            let behind = count(*behind, "packet");
            format!("receiver {name} was dropped as too slow, {behind} behind")
        }
        AudienceEvent::PassedOver { name, .. } => format!(
            "receiver {name} holds others back and is not waited for any longer: it may lose \
             messages; to have it waited for, give --receivers N, or --key-file at all ends"
        ),
        AudienceEvent::Refused { peer, reason } => return refusals.note(*peer, *reason),
        _ => return None,
    };
    Some(text)
}

/// A limit on the lines about receivers, because anybody can join and leave a thousand times a
/// second. Guests are receivers that are not expected, in a session without a key. They have an
/// allowance of their own, so their lines cannot use up the allowance of the other receivers.
#[derive(Debug)]
pub(super) struct Lines {
    /// Receivers with this number or a higher one are guests.
    guests_from: u32,
    of_guests: Allowance,
    of_others: Allowance,
}

impl Lines {
    pub(super) const fn new(now: Instant, guests_from: u32) -> Self {
        Self {
            guests_from,
            of_guests: Allowance::new(now),
            of_others: Allowance::new(now),
        }
    }

    /// Returns the line to show: `text`, plus the number of lines hidden just before it. Returns
    /// `None` when this line is hidden, too.
    pub(super) fn shown(
        &mut self,
        now: Instant,
        event: &AudienceEvent,
        text: String,
    ) -> Option<String> {
        let is_guest = event.slot().is_none_or(|slot| slot >= self.guests_from);
        let allowance = match is_guest {
            true => &mut self.of_guests,
            false => &mut self.of_others,
        };
        allowance.shown(now, text)
    }
}

/// An allowance of lines: [`LINES_AT_ONCE`] at once, then one a second.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
    hidden: u64,
}

impl Allowance {
    const fn new(now: Instant) -> Self {
        Self {
            left: LINES_AT_ONCE,
            since: now,
            hidden: 0,
        }
    }

    fn shown(&mut self, now: Instant, text: String) -> Option<String> {
        let earned = (now - self.since).as_secs();
        self.since += Duration::from_secs(earned);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(earned).min(LINES_AT_ONCE);
        let Some(left) = self.left.checked_sub(1) else {
            self.hidden += 1;
            return None;
        };
        self.left = left;
        Some(match std::mem::take(&mut self.hidden) {
            0 => text,
            hidden => format!("{text} ({} before it not shown)", count(hidden, "line")),
        })
    }
}

/// The most lines printed at once; a person can still read that many. After them, one line a second
/// is printed.
const LINES_AT_ONCE: u32 = 64;

fn refusal(host: IpAddr, reason: Refusal) -> String {
    format!("refused {host}: {reason}")
}

/// The connections that a sender refused. A refused receiver tries again, each time from another
/// port, so repeats are only counted, and the counts are printed at the end.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Each pair of host and reason with the number of its refusals, in the order of the first
    /// refusals.
    known: Vec<(IpAddr, Refusal, u64)>,
    /// Number of refusals that are not in `known`, because it already had [`REFUSALS_MAX`] other
    /// pairs.
    others: u64,
}

impl Refusals {
    /// Counts a refusal. Returns the line to print when it is the first for its host and reason,
    /// otherwise `None`; `None` also when `known` is full.
    pub(super) fn note(&mut self, peer: SocketAddr, reason: Refusal) -> Option<String> {
        let host = peer.ip();
        let mut known = self.known.iter_mut();
        if let Some((_, _, times)) = known.find(|known| (known.0, known.1) == (host, reason)) {
            *times += 1;
            return None;
        }
        if self.known.len() >= REFUSALS_MAX {
            self.others += 1;
            return None;
        }
        self.known.push((host, reason, 1));
        Some(refusal(host, reason))
    }

    /// Returns the text of the last refusal that was printed.
    pub(super) fn last(&self) -> Option<String> {
        let last = self.known.last();
        last.map(|(host, reason, _)| refusal(*host, *reason))
    }

    /// Returns lines for the end of the report: how often each repeated refusal occurred, and the
    /// number of refusals in `others`.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let again = self.known.iter().filter(|(_, _, times)| *times > 1);
        let again = again.map(|(host, reason, times)| {
            format!("{}, {times} times in all", refusal(*host, *reason))
        });
        let others = (self.others > 0).then(|| {
            let refusals = count(self.others, "more refusal");
            format!("and {refusals}, of other hosts or for other reasons")
        });
        again.chain(others)
    }
}

/// The most pairs of host and reason of which the first refusal is printed.
const REFUSALS_MAX: usize = 64;

/// A count of the receivers that left before they had everything. It is known only at the end of
/// the session: a receiver that had all messages when it left lacks those that are sent later.
#[derive(Debug, Default)]
pub(super) struct Departed {
    short: u64,
    /// The highest position up to which any receiver had everything when it left, and how many
    /// receivers left at this position.
    farthest: (u64, u64),
}

impl Departed {
    pub(super) fn note(&mut self, event: &AudienceEvent) {
        match event {
            AudienceEvent::Dropped { .. } => self.short += 1,
            AudienceEvent::Left { contiguous, .. } => self.note_at(*contiguous),
            _ => {}
        }
    }

    fn note_at(&mut self, contiguous: u64) {
        match contiguous.cmp(&self.farthest.0) {
            Ordering::Less => self.short += 1,
            Ordering::Equal => self.farthest.1 += 1,
            Ordering::Greater => {
                self.short += self.farthest.1;
                self.farthest = (contiguous, 1);
            }
        }
    }

    /// Returns how many receivers left before they had everything, if the session's next position
    /// is `end`.
    pub(super) const fn short_of(&self, end: u64) -> u64 {
        let (at, whole) = self.farthest;
        if at < end {
            self.short + whole
        } else {
            self.short
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_comes_again_from_another_port_is_counted() {
        let mut refusals = Refusals::default();
        let peer = |host: u8, port| SocketAddr::from(([10, 0, 0, host], port));
        let told = [
            refusals.note(peer(1, 4000), Refusal::DuplicateName),
            refusals.note(peer(1, 4001), Refusal::DuplicateName),
            refusals.note(peer(1, 4002), Refusal::Full),
            refusals.note(peer(2, 4000), Refusal::DuplicateName),
            refusals.note(peer(1, 4003), Refusal::DuplicateName),
        ];
        let told = told.map(|text| text.is_some());
        assert_eq!(told, [true, false, true, true, false]);
        let text = "refused 10.0.0.1: another live receiver has this name, 3 times in all";
        assert_eq!(refusals.lines().collect::<Vec<_>>(), [text]);
        for host in 3..100 {
            refusals.note(peer(host, 1), Refusal::Full);
        }
        let last = refusals.lines().last();
        assert_eq!(
            last.as_deref(),
            Some("and 36 more refusals, of other hosts or for other reasons")
        );
    }

    #[test]
    fn who_comes_and_goes_a_thousand_times_a_second_fills_no_terminal() {
        let now = Instant::now();
        let mut lines = Lines::new(now, 1);
        let mut shown = |ms: u64, slot: u32| {
            let event = AudienceEvent::Resumed {
                slot,
                name: "x".to_owned(),
            };
            let now = now + Duration::from_millis(ms);
            lines.shown(now, &event, "x continues".to_owned())
        };
        let guests = (0..60_000).filter_map(|ms| shown(ms, 1 + ms as u32));
        let bytes: usize = guests.map(|text| text.len()).sum();
        assert!((500..5_000).contains(&bytes), "{bytes} bytes in a minute");
        assert_eq!(shown(59_999, 9), None);
        let expected = shown(59_999, 0).unwrap_or_default();
        assert_eq!(expected, "x continues");
        let last = shown(70_000, 9).unwrap_or_default();
        assert!(last.contains("before it not shown"), "{last}");
    }

    #[test]
    fn who_left_with_everything_so_far_lacks_what_came_later() {
        let mut departed = Departed::default();
        for at in [70, 0, 100, 100] {
            departed.note_at(at);
        }
        assert_eq!(departed.short_of(100), 2);
        assert_eq!(departed.short_of(101), 4);
        departed.note_at(101);
        assert_eq!(departed.short_of(101), 4);
    }
}
