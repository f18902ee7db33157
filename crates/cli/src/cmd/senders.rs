//! The senders of a group: which are present, what was lost of each, and which remarks are due.
//!
//! Nothing here prints. There is at most one remark a second about each sender's losses: the total
//! since the last such remark. One more comes when the sender ends. For all senders together there
//! are at most 32 remarks a second, because forged senders could cause a flood of them. One more
//! remark says how many were left out.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use towline::{Feed, Refusal, SessionEvent, text::printable};

use crate::report::{SenderEnds, count};

/// The senders that a receiver has heard.
#[derive(Debug, Default)]
pub(super) struct Senders {
    pub(super) ends: SenderEnds,
    pub(super) lost_packets: u64,
    known: BTreeMap<u32, Known>,
    /// The user was told that two hosts send as one sender; once is enough.
    is_sharing_told: bool,
    /// The user was told that a sender does not frame messages as ZeroMQ does; once is enough.
    is_misframing_told: bool,
    /// Some sender has losses to report.
    has_loss: bool,
    untold: Vec<String>,
    /// How many remarks were left out because [`REMARKS_MAX`] was reached.
    unsaid: u64,
    /// When the current second began, and how many remarks were made since then.
    second: Option<(Instant, usize)>,
}

/// A sender that was heard. Once it is forgotten, another sender may get its session number.
#[derive(Debug)]
struct Known {
    name: String,
    /// The name that the sender gives itself, fit for a terminal.
    called: Option<String>,
    address: IpAddr,
    is_over: bool,
    loss: Loss,
}

impl Known {
    fn label(&self) -> String {
        match &self.called {
            Some(called) => format!("{called} ({})", self.name),
            None => self.name.clone(),
        }
    }
}

/// A sender's losses that no remark has mentioned yet.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    packets: u64,
    times: u64,
    told: Option<Instant>,
}

impl Senders {
    pub(super) fn take(&mut self, event: &SessionEvent) {
        let (session, text) = match *event {
            SessionEvent::Found {
                session,
                tsi,
                source,
            } => {
                self.find(session, tsi.to_string(), source);
                (session, format!("at {source}"))
            }
            SessionEvent::Lost { session, count, .. } => {
                self.lost_packets += count;
                self.has_loss = true;
                if let Some(known) = self.known.get_mut(&session) {
                    known.loss.packets += count;
                    known.loss.times += 1;
                }
                return;
            }
            SessionEvent::NameTaken { session } => {
                let name = self.label(session);
                self.say(format!(
                    "warning: sender {name} has a receiver of this name already; if that one is \
                     dead, the sender lets go of it within 7 s; if it lives, give this one \
                     another --name"
                ));
                return;
            }
            SessionEvent::Refused { session, reason } => {
                let name = self.label(session);
                self.say(match reason {
                    Refusal::KeyRequired => format!(
                        "sender {name} encrypts its packets with a key: this receiver can read \
                         none of them; give it the same --key-file"
                    ),
                    reason => format!("sender {name} does not wait for this receiver: {reason}"),
                });
                return;
            }
            SessionEvent::Ended { session } => {
                self.ends.ended += 1;
                (session, "has ended its session".to_owned())
            }
            SessionEvent::Expired { session } => {
                self.ends.expired += 1;
                (session, "has vanished".to_owned())
            }
            SessionEvent::Reset { session } => {
                self.ends.reset += 1;
                (session, "broke its session off".to_owned())
            }
            SessionEvent::Dropped { session, code } => {
                self.ends.dropped += 1;
                let text = format!("dropped this receiver: {code}; start again to rejoin");
                (session, text)
            }
            other => return self.say(format!("{other:?}")),
        };
        if !matches!(event, SessionEvent::Found { .. }) {
            self.end(session);
        }
        let text = format!("sender {} {text}", self.label(session));
        self.say(text);
    }

    /// Adds the remark about an event of one of a sender's two feeds, if there is one.
    pub(super) fn take_feed(&mut self, feed: Feed, event: &SessionEvent) {
        let (session, text) = match *event {
            SessionEvent::Found {
                session, source, ..
            } => (session, format!("comes from {source}")),
            SessionEvent::Expired { session } => (session, "has vanished".to_owned()),
            SessionEvent::Reset { session } => (session, "was broken off".to_owned()),
            SessionEvent::Dropped { session, code } => {
                (session, format!("dropped this receiver: {code}"))
            }
            // `take` reports the sender's end, once for both feeds.
            _ => return,
        };
        let number = feed.index() + 1;
        let text = format!("feed {number} of sender {} {text}", self.label(session));
        self.say(text);
    }

    /// Takes the name that a sender gives itself. Another host wrote this text, so it is made fit
    /// for a terminal.
    pub(super) fn named(&mut self, session: u32, name: &str) {
        let called = printable(name, NAME_BYTES_MAX).into_owned();
        let text = format!("sender {} is {called}", self.name(session));
        let is_news = |known: &&mut Known| known.called.as_ref() != Some(&called);
        // A sender with two feeds says its name on each, so a name may come again: no remark then.
        if let Some(known) = self.known.get_mut(&session).filter(is_news) {
            known.called = Some(called);
            self.say(text);
        }
    }

    /// Notes that a packet of a sender did not hold ZeroMQ's frames.
    pub(super) fn misframed(&mut self, session: u32) {
        if !std::mem::replace(&mut self.is_misframing_told, true) {
            let name = self.label(session);
            self.say(format!(
                "warning: sender {name} sends what is not in ZeroMQ's frames, and it is left out; \
                 for messages of Towline or OpenPGM give --framing lines"
            ));
        }
    }

    /// Returns what the sender calls itself, once it has said so.
    pub(super) fn called(&self, session: u32) -> Option<&str> {
        self.known.get(&session)?.called.as_deref()
    }

    /// Returns a sender's name in remarks: the name that it has given itself, if any, and its
    /// identifier. Only the identifier tells it from all others.
    fn label(&self, session: u32) -> String {
        self.known
            .get(&session)
            .map_or_else(|| "unknown".to_owned(), Known::label)
    }

    pub(super) fn name(&self, session: u32) -> &str {
        let known = self.known.get(&session);
        known.map_or("unknown", |known| known.name.as_str())
    }

    /// Takes out the remarks to print now, each as one line.
    pub(super) fn remarks(&mut self, now: Instant) -> impl Iterator<Item = String> {
        let is_over = |&(since, _): &(Instant, usize)| now - since >= PAUSE;
        if self.second.is_none_or(|second| is_over(&second)) {
            self.second = Some((now, 0));
            if self.unsaid > 0 {
                let remarks = count(self.unsaid, "more remark");
                let text = format!("and {remarks} about senders");
                self.unsaid = 0;
                self.untold.push(text);
            }
        }
        if self.has_loss {
            self.has_loss = false;
            let sessions: Vec<u32> = self.known.keys().copied().collect();
            for session in sessions {
                self.tell_loss(session, Some(now));
            }
        }
        self.untold.drain(..)
    }

    /// Takes out all remaining remarks, when the command ends.
    pub(super) fn last_remarks(&mut self) -> impl Iterator<Item = String> {
        self.second = None;
        let sessions: Vec<u32> = self.known.keys().copied().collect();
        for session in sessions {
            self.tell_loss(session, None);
        }
        self.remarks(Instant::now())
    }

    pub(super) fn address(&self, session: u32) -> Option<IpAddr> {
        self.known.get(&session).map(|known| known.address)
    }

    fn find(&mut self, session: u32, name: String, address: IpAddr) {
        self.ends.found += 1;
        let mut known = self.known.values();
        let other =
            known.find(|known| !known.is_over && known.name == name && known.address != address);
        if let Some(other) = other.map(|known| known.address)
            && !std::mem::replace(&mut self.is_sharing_told, true)
        {
            self.say(format!(
                "warning: {other} and {address} both send as {name}, and one of them does so to \
                 mislead; take messages only from the host that you trust: --from ADDRESS"
            ));
        }
        let known = Known {
            name,
            called: None,
            address,
            is_over: false,
            loss: Loss::default(),
        };
        let before = self.known.insert(session, known);
        // If the session number had an earlier sender, the library forgot that sender to make room.
        self.ends.expired += u64::from(before.is_some_and(|before| !before.is_over));
    }

    fn end(&mut self, session: u32) {
        self.tell_loss(session, None);
        if let Some(known) = self.known.get_mut(&session) {
            known.is_over = true;
        }
    }

    /// Remarks on a sender's losses, unless the last such remark was less than 1 s before `now`.
    /// Without `now`, it always remarks on them.
    fn tell_loss(&mut self, session: u32, now: Option<Instant>) {
        let Some(known) = self.known.get_mut(&session) else {
            return;
        };
        let Loss {
            packets,
            times,
            told,
        } = known.loss;
        if packets == 0 {
            return;
        }
        if now.is_some_and(|now| told.is_some_and(|told| now - told < PAUSE)) {
            self.has_loss = true;
            return;
        }
        known.loss = Loss {
            told: now,
            ..Loss::default()
        };
        let places = if times == 1 {
            String::new()
        } else {
            format!(" in {times} places")
        };
        let packets = count(packets, "packet");
        let text = format!("lost {packets} of sender {}{places}", known.label());
        self.say(text);
    }

    fn say(&mut self, text: String) {
        let said = self.second.map_or(self.untold.len(), |(_, said)| said);
        if said < REMARKS_MAX {
            self.second = self.second.map(|(since, said)| (since, said + 1));
            self.untold.push(text);
        } else {
            self.unsaid += 1;
        }
    }
}

/// The shortest time between two remarks about losses of one sender.
const PAUSE: Duration = Duration::from_secs(1);
/// The most remarks in one second. One more may say how many were left out.
const REMARKS_MAX: usize = 32;
/// The most bytes that are shown of the name that a sender gives itself.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use towline::{Gsi, Tsi};

    use super::*;

    fn found(session: u32) -> SessionEvent {
        let gsi = Gsi([1, 2, 3, 4, 5, 6]);
        let port = u16::try_from(session).unwrap();
        SessionEvent::Found {
            session,
            tsi: Tsi { gsi, port },
            source: [10, 0, 0, 1].into(),
        }
    }

    const fn lost(session: u32, count: u64) -> SessionEvent {
        SessionEvent::Lost {
            session,
            first: 0,
            count,
        }
    }

    #[test]
    fn two_hosts_that_send_as_one_are_told_of_once() {
        let mut senders = Senders::default();
        senders.take(&found(7));
        for (session, host) in [(8, 66), (9, 67)] {
            let SessionEvent::Found { tsi, .. } = found(7) else {
                panic!("made above")
            };
            senders.take(&SessionEvent::Found {
                session,
                tsi,
                source: [10, 0, 0, host].into(),
            });
        }
        let said: Vec<_> = senders.remarks(Instant::now()).collect();
        let told: Vec<_> = said
            .iter()
            .filter(|text| text.contains("both send as"))
            .collect();
        assert_eq!(told.len(), 1, "{said:?}");
        assert!(told[0].contains("10.0.0.1 and 10.0.0.66"), "{told:?}");
    }

    #[test]
    fn losses_are_added_up_for_a_second() {
        let now = Instant::now();
        let mut senders = Senders::default();
        senders.take(&found(7));
        senders.take(&lost(7, 3));
        let said: Vec<_> = senders.remarks(now).collect();
        assert_eq!(
            said,
            [
                "sender 1.2.3.4.5.6.7 at 10.0.0.1",
                "lost 3 packets of sender 1.2.3.4.5.6.7"
            ]
        );
        for _ in 0..1_000 {
            senders.take(&lost(7, 2));
            assert_eq!(senders.remarks(now + PAUSE / 2).count(), 0);
        }
        let said: Vec<_> = senders.remarks(now + PAUSE).collect();
        assert_eq!(
            said,
            ["lost 2000 packets of sender 1.2.3.4.5.6.7 in 1000 places"]
        );
        assert_eq!(senders.lost_packets, 2_003);
    }

    #[test]
    fn what_was_lost_is_said_before_the_end() {
        let now = Instant::now();
        let mut senders = Senders::default();
        senders.take(&found(7));
        senders.take(&lost(7, 3));
        drop(senders.remarks(now));
        senders.take(&lost(7, 1));
        senders.named(7, "host-a:12");
        senders.take(&SessionEvent::Ended { session: 7 });
        let said: Vec<_> = senders.remarks(now).collect();
        assert_eq!(
            said,
            [
                "sender 1.2.3.4.5.6.7 is host-a:12",
                "lost 1 packet of sender host-a:12 (1.2.3.4.5.6.7)",
                "sender host-a:12 (1.2.3.4.5.6.7) has ended its session",
            ]
        );
        assert!(senders.ends.is_over());
    }

    #[test]
    fn the_feeds_of_a_sender_are_told_apart() {
        let mut senders = Senders::default();
        senders.take(&found(7));
        senders.take_feed(Feed::First, &found(7));
        senders.take_feed(Feed::Second, &SessionEvent::Expired { session: 7 });
        senders.take_feed(Feed::First, &SessionEvent::Ended { session: 7 });
        let said: Vec<_> = senders.remarks(Instant::now()).collect();
        assert_eq!(
            said[1..],
            [
                "feed 1 of sender 1.2.3.4.5.6.7 comes from 10.0.0.1",
                "feed 2 of sender 1.2.3.4.5.6.7 has vanished",
            ]
        );
        assert_eq!((senders.ends.found, senders.ends.ended), (1, 0));
    }

    #[test]
    fn a_flood_of_senders_is_a_few_lines() {
        let now = Instant::now();
        let mut senders = Senders::default();
        for turn in 0..1_000 {
            (0..10).for_each(|session| senders.take(&found(session)));
            let said = senders.remarks(now).count();
            assert!(turn < 5 || said == 0, "{said} in turn {turn}");
        }
        let said: Vec<_> = senders.remarks(now + PAUSE).collect();
        assert!(said[0].ends_with("more remarks about senders"), "{said:?}");
        // The last ten senders were never forgotten.
        assert_eq!((senders.ends.found, senders.ends.expired), (10_000, 9_990));
    }
}
