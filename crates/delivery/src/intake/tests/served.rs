//! Real senders that dial a receiver: in the end, each gets the receiver's proof.

use super::*;
use crate::{Carriage, TransferSender, TransferSenderConfig, TransferSenderEvent, fabric::linked};

linked!(Transfers<Choosy>);

/// A receiver, node 0 of a fabric, and senders that dial it, the other nodes.
struct Served {
    fabric: Fabric,
    receiver: Transfers<Choosy>,
    senders: Vec<TransferSender<MemoryContent>>,
    now: Instant,
}

impl Served {
    fn new(places: usize, senders: usize) -> Self {
        let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
        let config = config.with_transfers(places);
        let sender = |number: usize| {
            let (manifest, content) = tree(&number.to_string());
            let mut config = TransferSenderConfig::new(number as u64, 1, 1);
            config.carriage = Carriage::Links(vec![Fabric::address(0)]);
            TransferSender::new(config, manifest, content, at(0))
        };
        Self {
            fabric: Fabric::new(1),
            receiver: Transfers::new(config, Choosy::default()).with_door(),
            senders: (1..=senders).map(sender).collect(),
            now: at(0),
        }
    }

    /// Lets every sender and the receiver take a turn.
    fn turn(&mut self) {
        self.now += TURN;
        let now = self.now;
        for (index, sender) in self.senders.iter_mut().enumerate() {
            let node = 1 + index;
            self.fabric.deliver(now, node, sender, EVENTS_MAX);
            sender.handle_timeout(now);
            if sender.is_draining() {
                sender.pass_drained(now);
            }
            self.fabric.pump(node, sender);
            while let Some(event) = sender.pop_event() {
                let has_failed = matches!(event, TransferSenderEvent::Failed { .. });
                assert!(!has_failed, "sender {node}: {event:?}");
            }
        }
        let receiver = &mut self.receiver;
        self.fabric.deliver(now, 0, receiver, EVENTS_MAX);
        receiver.handle_timeout(now);
        receiver.observe(now, |_| None);
        self.fabric.pump(0, receiver);
        while receiver.pop_event().is_some() {}
    }

    /// Takes turns until all senders are done, and checks that each has the receiver's proof.
    fn all_are_proven(&mut self) {
        while !self.senders.iter().all(TransferSender::is_finished) {
            self.turn();
            assert!(self.now < at(600), "{:?}", self.receiver.counters());
        }
        for sender in &self.senders {
            let outcome = sender.outcome();
            let is_proven = outcome.receivers.iter().any(|it| it.took.is_some());
            assert!(is_proven, "{outcome:?}");
        }
    }
}

/// The most events that a node is given in a turn.
const EVENTS_MAX: usize = 1_000;

#[test]
fn three_times_as_many_senders_as_places_are_all_proven() {
    for places in [1, 4] {
        let mut served = Served::new(places, 3 * places);
        served.all_are_proven();
        let counters = served.receiver.counters();
        assert_eq!(counters.transfers_accepted, 3 * places as u64);
        assert_eq!(
            (counters.transfers_declined, counters.offers_put_off),
            (0, 0)
        );
    }
}

#[test]
fn a_sender_that_loses_its_place_after_it_was_greeted_waits_and_is_proven() {
    let mut served = Served::new(1, 1);
    while served.receiver.counters().callers_greeted == 0 {
        served.turn();
        assert!(served.now < at(10), "nobody is greeted");
    }
    // Its offer comes when another transfer's store has the place, for longer than a receiver may
    // be away.
    served.receiver.intake.stores_ending = 1;
    while served.now < at(60) {
        served.turn();
        assert!(!served.senders[0].is_finished(), "it waits");
    }
    served.receiver.intake.stores_ending = 0;
    served.all_are_proven();
    let counters = served.receiver.counters();
    assert_eq!(
        (counters.transfers_declined, counters.offers_put_off),
        (0, 1)
    );
}

#[test]
fn a_restarted_sender_continues_however_its_address_is_written() {
    let mut receiver = serving(Choosy::default());
    let (manifest, _) = tree("a");
    hear(&mut receiver, at(0), 1, 1, 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);
    // A socket for both IP versions names an IPv4 host by an IPv6 address.
    let source = match Fabric::address(1).ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        other @ IpAddr::V6(_) => other,
    };
    let heard = Heard {
        stream: stream(1, 2),
        mark: &objects(6),
        source,
        path_nla: Some(source),
    };
    receiver.mark(at(1), &heard);
    receiver.observe(at(1), |_| None);
    open(&mut receiver, at(1), 10);
    let mut links = (10..20).map(LinkId);
    let asked = links.find(|&link| receiver.all.iter().any(|it| it.receiver.has_link(link)));
    say(&mut receiver, asked.unwrap().0, &welcome(6, &manifest));
    receiver.observe(at(1), |_| None);
    let counters = receiver.counters();
    assert_eq!(
        (counters.transfers_continued, counters.transfers_accepted),
        (1, 1)
    );
}
