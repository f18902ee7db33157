//! The polls by which the neighbour upstream counts its receivers: to it, the element is one.
//!
//! A reply goes to that neighbour alone, and only for a poll that came from it and names it. So a
//! forged poll cannot direct the replies of elements at a third host.
//!
//! **Spec**: RFC 3208 section 14.5.

use std::net::SocketAddr;

use base::{DropReason, Instant};
use wire::pgm::{Body, Flags, Poll, Tsi};

use super::{Element, Session};

impl Element {
    pub(super) fn take_poll(
        &mut self,
        now: Instant,
        (way, source): (usize, SocketAddr),
        tsi: Tsi,
        poll: &Poll,
    ) -> Result<(), DropReason> {
        let is_known = matches!(poll.sub_type, Poll::GENERAL | Poll::DLR);
        if poll.path_nla != source.ip() || !is_known {
            return Err(DropReason::Unexpected);
        }
        self.hear(now, way, source, tsi)?;
        self.counters.polls_heard += 1;
        if let Some(session) = self.sessions.get_mut(&tsi) {
            session
                .polls
                .heard(now, poll, self.node_bits, &mut self.rng);
        }
        Ok(())
    }

    /// Sends the replies to polls that are due.
    pub(super) fn reply_to_polls(&mut self, now: Instant) {
        let due = |(&tsi, session): (&Tsi, &mut Session)| {
            let reply = session.polls.expire(now)?;
            Some((tsi, *session, reply.polr))
        };
        let due: Vec<_> = self.sessions.iter_mut().filter_map(due).collect();
        for (tsi, session, polr) in due {
            let is_sent = self.send_up(&session, tsi, Flags::NONE, &Body::Polr(polr), &[]);
            self.counters.poll_replies += u64::from(is_sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::Verdict;
    use wire::{
        Sqn,
        pgm::{Packet, Polr},
    };

    use super::*;
    use crate::element::tests::{Bench, SOURCE, down, ip};

    const BACK_OFF: Duration = Duration::from_millis(200);

    /// Makes a poll of the source that every receiver answers.
    fn poll(sqn: u32, round: u16) -> Poll {
        Poll {
            sqn: Sqn(sqn),
            round,
            sub_type: Poll::GENERAL,
            path_nla: SOURCE,
            back_off_us: BACK_OFF.as_micros() as u32,
            random: 0,
            mask: 0,
        }
    }

    fn hear(bench: &mut Bench, poll: Poll) -> Verdict {
        bench.hand(0, SOURCE, &down(&Body::Poll(poll), &[], &[]))
    }

    /// Returns the replies since the last look: way, host and contents.
    fn replies(bench: &mut Bench) -> Vec<(usize, std::net::IpAddr, Polr)> {
        let sent = bench.take();
        let polr = |bytes: &[u8]| match Packet::parse(bytes).unwrap().body() {
            Body::Polr(polr) => polr,
            other => panic!("{other:?}"),
        };
        let told = sent
            .iter()
            .map(|(way, to, bytes)| (*way, to.ip(), polr(bytes)));
        told.collect()
    }

    const fn polr(sqn: u32, round: u16) -> Polr {
        Polr {
            sqn: Sqn(sqn),
            round,
        }
    }

    #[test]
    fn s14_5_a_poll_is_answered_once_upstream_after_a_random_wait() {
        let mut waits = std::collections::BTreeSet::new();
        let mut bench = Bench::joined();
        for number in 0..50 {
            assert_eq!(hear(&mut bench, poll(number, 0)), Verdict::Control);
            assert!(bench.take().is_empty(), "nothing goes on at once");
            let due = bench.element.next_timeout().unwrap();
            let wait = bench.until(due);
            assert!(wait <= BACK_OFF, "{wait:?}");
            waits.insert(wait);
            assert_eq!(hear(&mut bench, poll(number, 0)), Verdict::Control);
            bench.pass(BACK_OFF);
            assert_eq!(replies(&mut bench), [(0, SOURCE, polr(number, 0))]);
        }
        assert!(waits.len() > 40, "{waits:?}");
        assert_eq!(bench.element.counters().poll_replies, 50);
    }

    #[test]
    fn s14_5_random_bits_decide_whether_the_element_answers() {
        let mut bench = Bench::joined();
        let bits = bench.element.node_bits;
        for (number, random, is_drawn) in [(1, bits, true), (2, !bits, false)] {
            let mask = u32::MAX;
            let drawn = Poll {
                random,
                mask,
                ..poll(number, 0)
            };
            assert_eq!(hear(&mut bench, drawn), Verdict::Control);
            bench.pass(BACK_OFF);
            assert_eq!(replies(&mut bench).len(), usize::from(is_drawn));
        }
    }

    #[test]
    fn s14_5_a_newer_poll_cancels_the_elements_reply_and_a_later_round_needs_the_first() {
        let mut bench = Bench::joined();
        hear(&mut bench, poll(1, 0));
        hear(&mut bench, poll(2, 1));
        bench.pass(BACK_OFF);
        assert!(replies(&mut bench).is_empty());
        hear(&mut bench, poll(3, 0));
        hear(&mut bench, poll(3, 1));
        bench.pass(BACK_OFF);
        assert_eq!(replies(&mut bench), [(0, SOURCE, polr(3, 1))]);
    }

    #[test]
    fn s14_5_polls_of_other_kinds_and_hosts_are_not_answered() {
        let mut bench = Bench::joined();
        let unknown = Poll {
            sub_type: 77,
            ..poll(1, 0)
        };
        let elsewhere = Poll {
            path_nla: ip(0, 9),
            ..poll(2, 0)
        };
        for other in [unknown, elsewhere] {
            let verdict = hear(&mut bench, other);
            assert_eq!(verdict, Verdict::Drop(DropReason::Unexpected));
        }
        let forged = Poll {
            path_nla: ip(0, 9),
            ..poll(3, 0)
        };
        let verdict = bench.hand(0, ip(0, 9), &down(&Body::Poll(forged), &[], &[]));
        assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
        hear(
            &mut bench,
            Poll {
                sub_type: Poll::DLR,
                ..poll(4, 0)
            },
        );
        bench.pass(BACK_OFF);
        assert!(replies(&mut bench).is_empty());
    }
}
