use std::{sync::Arc, time::Duration};

use base::LinkEvent;
use wire::object::{BlockHeader, Message, ObjectId, Refusal, VERSION, Welcome};

use super::*;
use crate::{
    Entry, LinkCommand, Manifest, ManifestId, TransferReceiverConfig,
    fabric::{Fabric, over_ipv4_and_ipv6, over_ipv6},
    memory::{MemoryContent, MemoryStore},
};

mod door;
mod served;

/// The time between two turns of a receiver.
const TURN: Duration = Duration::from_millis(50);

/// Admits all hosts but one, and accepts every manifest but one.
#[derive(Debug, Default)]
struct Choosy {
    barred: Option<IpAddr>,
    unwanted: Option<ManifestId>,
    asked: Vec<Sender>,
    accepted: u32,
    stores_ending: usize,
}

impl Intake for Choosy {
    type Store = MemoryStore;

    fn admit(&mut self, sender: &Sender) -> Result<(), String> {
        self.asked.push(*sender);
        match self.barred {
            Some(host) if host == sender.address.ip() => Err(format!("{host} is not allowed")),
            _ => Ok(()),
        }
    }

    fn accept(&mut self, _sender: &Sender, offer: &Offer) -> Result<MemoryStore, Decline> {
        if self.unwanted == Some(offer.manifest) {
            let (code, text) = (ErrorCode::Exists, "it was received before".to_owned());
            return Err(Decline { code, text });
        }
        self.accepted += 1;
        Ok(MemoryStore::default())
    }

    fn stores_ending(&self) -> usize {
        self.stores_ending
    }
}

fn single() -> Transfers<TakeFirst<MemoryStore>> {
    let config = ObjectReceiverConfig::single(TransferReceiverConfig::new("r", 1));
    Transfers::new(config, TakeFirst::new(MemoryStore::default()))
}

fn serving(intake: Choosy) -> Transfers<Choosy> {
    let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    Transfers::new(config, intake)
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos((seconds + 1) * 1_000_000_000)
}

/// Returns the number of the packet stream that a host sends from this port.
fn stream(host: u8, port: u32) -> u32 {
    u32::from(host) * 1000 + port
}

fn objects(session_id: u64) -> Mark {
    let mut mark = Mark::new(Profile::Objects, session_id);
    mark.control_port = 4000;
    mark
}

/// Lets the receiver hear a session with this id, whose packets have this source port.
fn hear<I: Intake>(receiver: &mut Transfers<I>, now: Instant, host: u8, port: u32, id: u64) {
    let source = Fabric::address(host.into()).ip();
    let heard = Heard {
        stream: stream(host, port),
        mark: &objects(id),
        source,
        path_nla: Some(source),
    };
    receiver.mark(now, &heard);
    receiver.observe(now, |_| None);
}

/// Gives the receiver one block of host 1's first stream.
fn block<I: Intake>(receiver: &mut Transfers<I>, header: BlockHeader, bytes: &[u8]) {
    let payload = [&header.to_bytes()[..], bytes].concat();
    receiver.handle_block(at(1), stream(1, 1), &payload);
}

fn sender(host: u8, id: u64) -> Sender {
    Sender {
        address: Fabric::address(host.into()),
        session_id: id,
    }
}

/// Lets the receiver dial: every connection that it asks for is opened, and numbered from `first`.
fn open<I: Intake>(receiver: &mut Transfers<I>, now: Instant, first: u32) -> Vec<SocketAddr> {
    receiver.handle_timeout(now);
    let mut peers = Vec::new();
    while let Some(command) = receiver.poll_link() {
        match command {
            LinkCommand::Open { peer, key } => {
                let link = LinkId(first + peers.len() as u32);
                peers.push(peer);
                receiver.link_opened(key, link);
                receiver.handle_link(now, link, LinkEvent::Opened, &[]);
            }
            LinkCommand::Send { link, bytes } => {
                let taken = bytes.len();
                receiver.link_sent(link, taken);
            }
            LinkCommand::Close { .. } | LinkCommand::Pause { .. } => {}
        }
    }
    peers
}

fn say<I: Intake>(receiver: &mut Transfers<I>, link: u32, message: &Message<'_>) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    receiver.handle_link(at(1), LinkId(link), LinkEvent::Data, &bytes);
}

fn welcome(session_id: u64, manifest: &Manifest) -> Message<'static> {
    Message::Welcome(Welcome {
        version: VERSION,
        slot: 0,
        manifest: manifest.id().0,
        session_id,
        receiver_count: 1,
        report_interval_us: 1000,
        report_sqns: 0,
        manifest_bytes: manifest.bytes().len() as u64,
        is_late: false,
        nonce: [0; 16],
    })
}

fn tree(name: &str) -> (Arc<Manifest>, MemoryContent) {
    MemoryContent::generate(vec![Entry::file(name, 9)], [0; 16], 1).unwrap()
}

fn refusals<I: Intake>(receiver: &mut Transfers<I>) -> Vec<(Sender, String)> {
    let events = std::iter::from_fn(|| receiver.pop_event());
    let refused = events.filter_map(|event| match event {
        ObjectReceiverEvent::Refused { sender, text } => Some((sender, text)),
        _ => None,
    });
    refused.collect()
}

#[test]
fn a_sender_that_refuses_is_left_for_the_next_that_is_heard() {
    let mut receiver = single();
    hear(&mut receiver, at(0), 1, 1, 5);
    hear(&mut receiver, at(0), 2, 1, 6);
    assert_eq!(
        open(&mut receiver, at(0), 1),
        [sender(1, 5).address],
        "one at a time"
    );
    let reason = Refusal::Over;
    say(&mut receiver, 1, &Message::Refused { reason, text: "" });
    receiver.observe(at(1), |_| None);

    hear(&mut receiver, at(1), 1, 1, 5);
    assert_eq!(open(&mut receiver, at(1), 2), [], "it has refused");
    hear(&mut receiver, at(1), 2, 1, 6);
    assert_eq!(open(&mut receiver, at(1), 3), [sender(2, 6).address]);
    assert!(!receiver.is_over());
}

#[test]
fn a_sender_that_is_not_admitted_is_neither_dialled_nor_kept() {
    let mut receiver = serving(Choosy {
        barred: Some(IpAddr::from([10, 0, 0, 1])),
        ..Choosy::default()
    });
    hear(&mut receiver, at(0), 1, 1, 5);
    hear(&mut receiver, at(0), 2, 1, 6);
    hear(&mut receiver, at(0), 1, 1, 5);
    assert_eq!(open(&mut receiver, at(0), 1), [sender(2, 6).address]);
    assert_eq!(
        receiver.intake.asked,
        [sender(1, 5), sender(2, 6)],
        "once each"
    );
    let text = "10.0.0.1 is not allowed".to_owned();
    assert_eq!(refusals(&mut receiver), [(sender(1, 5), text)]);
    assert_eq!(receiver.counters.senders_refused, 1);
}

#[test]
fn a_restarted_senders_plan_goes_on_with_what_is_held() {
    let mut receiver = serving(Choosy::default());
    let (manifest, content) = tree("a");
    hear(&mut receiver, at(0), 1, 1, 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    block(
        &mut receiver,
        BlockHeader::data(ObjectId::MANIFEST, 0),
        manifest.bytes(),
    );
    block(
        &mut receiver,
        BlockHeader::data(ObjectId::CONTENT, 0),
        &content.bytes()[..4],
    );
    receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);

    // The restart: another port, another session. It is asked what it has, then taken over.
    hear(&mut receiver, at(1), 1, 2, 6);
    assert!(!open(&mut receiver, at(1), 10).is_empty());
    let mut all = receiver.all.iter();
    let asked = all.find(|t| t.sender == sender(1, 6)).unwrap();
    let mut links = (10..20).filter(|&link| asked.receiver.has_link(LinkId(link)));
    let link = links.next().unwrap();
    say(&mut receiver, link, &welcome(6, &manifest));
    receiver.observe(at(1), |_| None);
    assert_eq!(receiver.counters.transfers_continued, 1);
    assert_eq!(receiver.iter().count(), 1);
    assert_eq!(open(&mut receiver, at(1), 20), [sender(1, 6).address]);
    say(&mut receiver, 20, &welcome(6, &manifest));
    receiver.observe(at(1), |_| None);
    assert_eq!(receiver.intake.accepted, 1, "no second store");
    let (_, whose, goes_on) = receiver.iter().next().unwrap();
    assert_eq!((*whose, goes_on.is_connected()), (sender(1, 6), true));
    assert_eq!(goes_on.progress().numbers.held, 4);
    assert_eq!(receiver.all.len(), 1, "the one that asked is gone");
}

#[test]
fn a_plan_that_is_under_way_is_not_taken_from_another_host() {
    let mut receiver = serving(Choosy::default());
    let (manifest, _) = tree("a");
    hear(&mut receiver, at(0), 1, 1, 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    hear(&mut receiver, at(1), 2, 1, 6);
    open(&mut receiver, at(1), 2);
    say(&mut receiver, 2, &welcome(6, &manifest));
    let told = refusals(&mut receiver);
    assert_eq!((told.len(), told[0].0), (1, sender(2, 6)));
    assert!(
        told[0].1.contains("received from another sender"),
        "{}",
        told[0].1
    );
}

#[test]
fn what_is_said_right_behind_an_offer_is_kept() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = serving(Choosy::default());
        let (manifest, _) = tree("a");
        hear(&mut receiver, at(0), 1, 1, 5);
        open(&mut receiver, at(0), 1);
        let mut bytes = Vec::new();
        welcome(5, &manifest).emit(&mut bytes);
        let (object, offset, data) = (ObjectId::MANIFEST, 0, manifest.bytes());
        let block = wire::object::Block {
            object,
            offset,
            data,
        };
        Message::Block(block).emit(&mut bytes);
        receiver.handle_link(at(1), LinkId(1), LinkEvent::Data, &bytes);
        let (_, _, transfer) = receiver.iter().next().unwrap();
        assert_eq!(transfer.counters().fill_bytes, data.len() as u64);
        assert!(transfer.manifest().is_some());
    });
}

#[test]
fn a_host_leaves_half_of_the_places_to_others() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = serving(Choosy::default());
        let mut link = 1;
        for (port, host) in (0..12).map(|port| (port, 1)).chain([(0, 2)]) {
            let id = u64::from(port) + u64::from(host) * 100;
            hear(&mut receiver, at(1), host, port, id);
            if open(&mut receiver, at(1), link).is_empty() {
                continue;
            }
            // The attack: a transfer is accepted, and nothing comes of it.
            say(&mut receiver, link, &welcome(id, &tree(&format!("{id}")).0));
            link += 1;
        }
        let of = |host| {
            receiver
                .iter()
                .filter(|(_, s, _)| s.address == sender(host, 0).address)
                .count()
        };
        assert_eq!((of(1), of(2)), (8, 1));
        assert_eq!(receiver.counters.senders_full, 4);
        let told = refusals(&mut receiver);
        let text = format!("8 transfers from {}", Fabric::address(1).ip());
        assert!(told[0].1.contains(&text), "{told:?}");
    });
}

#[test]
fn a_sender_that_comes_back_at_another_address_shows_a_key_or_begins_anew() {
    over_ipv4_and_ipv6(|| {
        let key = crate::Key::derive(b"secret", protection::portable);
        for (key, continued) in [(None, 0), (Some(key), 1)] {
            let mut receiver = serving(Choosy::default());
            let (manifest, _) = tree("a");
            hear(&mut receiver, at(0), 1, 1, 5);
            open(&mut receiver, at(0), 1);
            say(&mut receiver, 1, &welcome(5, &manifest));
            receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);
            // The attack: another admitted host has learned the manifest, and offers it.
            hear(&mut receiver, at(1), 2, 1, 6);
            open(&mut receiver, at(1), 10);
            let mut links = (10..20).filter(|&link| {
                let mut all = receiver.all.iter();
                let asked = all.find(|t| t.sender == sender(2, 6)).unwrap();
                asked.receiver.has_link(LinkId(link))
            });
            let link = links.next().unwrap();
            // The handshake of a key is not what this is about.
            receiver.config.receiver.key = key;
            say(&mut receiver, link, &welcome(6, &manifest));
            receiver.observe(at(1), |_| None);
            assert_eq!(receiver.counters.transfers_continued, continued);
            assert_eq!(receiver.intake.accepted, 1);
        }
    });
}

#[test]
fn a_keyed_sender_continues_at_another_address_of_a_network_that_has_its_share() {
    let test = || {
        let key = crate::Key::derive(b"secret", protection::portable);
        let mut receiver = serving(Choosy::default());
        (
            receiver.config.transfers_max,
            receiver.config.transfers_per_host_max,
        ) = (4, 2);
        for (link, host) in [(1, 1), (2, 1), (3, 2)] {
            hear(&mut receiver, at(1), host, link, link.into());
            open(&mut receiver, at(1), link);
            let manifest = tree(&link.to_string()).0;
            say(&mut receiver, link, &welcome(link.into(), &manifest));
        }
        hear(&mut receiver, at(1), 3, 1, 9);
        let told = refusals(&mut receiver);
        let text = "this receiver takes 3 transfers from the network fd00::/64 at once, and all \
                    are under way; a place must become free first";
        assert_eq!(told, [(sender(3, 9), text.to_owned())]);
        receiver.config.receiver.key = Some(key);
        hear(&mut receiver, at(1), 4, 1, 9);
        assert_eq!(refusals(&mut receiver).len(), 1, "nothing to continue");
        receiver.handle_link(at(1), LinkId(3), LinkEvent::Closed, &[]);
        hear(&mut receiver, at(1), 5, 1, 10);
        assert_eq!(refusals(&mut receiver), []);
        assert!(receiver.all.iter().any(|t| t.sender == sender(5, 10)));
    };
    over_ipv6(test);
}

#[test]
fn bounds_of_transfers_and_manifests_are_kept_and_told() {
    let mut receiver = serving(Choosy::default());
    receiver.config.transfers_max = 1;
    for host in [1, 2, 3] {
        hear(&mut receiver, at(0), host, 1, host.into());
    }
    assert_eq!(
        open(&mut receiver, at(0), 1).len(),
        3,
        "asked at the same time"
    );
    say(&mut receiver, 1, &welcome(1, &tree("a").0));
    say(&mut receiver, 2, &welcome(2, &tree("b").0));
    receiver.config.transfers_max = 9;
    receiver.config.manifest_bytes_max = 100;
    say(&mut receiver, 3, &welcome(3, &tree("c").0));
    hear(&mut receiver, at(0), 4, 1, 4);
    receiver.config.transfers_max = 1;
    hear(&mut receiver, at(0), 5, 1, 5);
    let told = refusals(&mut receiver);
    let texts: Vec<_> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(told.len(), 3, "{texts:?}");
    assert!(texts[0].contains("takes 1 transfer at once"), "{texts:?}");
    assert!(
        texts[1].contains("the lists of files of all transfers"),
        "{texts:?}"
    );
    assert_eq!(told[2].0, sender(5, 5));
    assert_eq!(receiver.iter().count(), 1);
}

#[test]
fn an_unwanted_plan_is_declined_with_the_owners_reason() {
    let (manifest, _) = tree("a");
    let mut receiver = serving(Choosy {
        unwanted: Some(manifest.id()),
        ..Choosy::default()
    });
    hear(&mut receiver, at(0), 1, 1, 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    assert_eq!(refusals(&mut receiver)[0].1, "it was received before");
    open(&mut receiver, at(1), 2);
    receiver.observe(at(1), |_| None);
    assert!(receiver.all.is_empty());
    hear(&mut receiver, at(1), 1, 1, 5);
    assert!(receiver.all.is_empty(), "not asked again");
}

/// Makes a receiver whose only transfer, `a` of host 1, was given up by its sender.
fn given_up() -> (Transfers<Choosy>, Arc<Manifest>) {
    let config = ObjectReceiverConfig::single(TransferReceiverConfig::new("r", 1));
    let mut receiver = Transfers::new(config, Choosy::default());
    let (manifest, _) = tree("a");
    hear(&mut receiver, at(0), 1, 1, 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    let header = BlockHeader::data(ObjectId::MANIFEST, 0);
    block(&mut receiver, header, manifest.bytes());
    let (code, text) = (ErrorCode::TimedOut, "no progress for 3 s");
    say(&mut receiver, 1, &Message::Error { code, text });
    receiver.observe(at(1), |_| None);
    assert!(!receiver.is_over());
    (receiver, manifest)
}

#[test]
fn a_single_transfer_goes_on_when_the_sender_that_gave_it_up_sends_again() {
    let (mut receiver, manifest) = given_up();
    // Somebody else's offer is not waited for.
    hear(&mut receiver, at(1), 2, 1, 6);
    assert_eq!(open(&mut receiver, at(1), 2), []);
    hear(&mut receiver, at(1), 1, 2, 7);
    open(&mut receiver, at(1), 3);
    say(&mut receiver, 3, &welcome(7, &manifest));
    receiver.observe(at(1), |_| None);
    assert_eq!(receiver.counters.transfers_continued, 1);
    assert_eq!(receiver.intake.accepted, 1);
    let transfers: Vec<_> = receiver.iter().collect();
    assert_eq!((transfers.len(), *transfers[0].1), (1, sender(1, 7)));
    assert!(!transfers[0].2.is_given_up());
}

#[test]
fn a_single_transfer_gives_way_to_what_its_sender_sends_instead() {
    let (mut receiver, _) = given_up();
    let (other, _) = tree("b");
    hear(&mut receiver, at(1), 1, 2, 7);
    open(&mut receiver, at(1), 3);
    say(&mut receiver, 3, &welcome(7, &other));
    receiver.observe(at(1), |_| None);
    assert_eq!(receiver.intake.accepted, 2);
    assert!(!receiver.is_over());
    let manifests = receiver
        .iter()
        .map(|(number, _, receiver)| (number, receiver.manifest_id()));
    assert_eq!(manifests.collect::<Vec<_>>(), [(1, Some(other.id()))]);
    let events = std::iter::from_fn(|| receiver.pop_event());
    let failed = events.filter(|event| {
        matches!(
            event,
            ObjectReceiverEvent::Transfer {
                transfer: 0,
                event: TransferReceiverEvent::Failed { .. },
            }
        )
    });
    assert_eq!(failed.count(), 1);
}

#[test]
fn one_transfer_of_a_service_can_be_cancelled() {
    let mut receiver = serving(Choosy::default());
    for host in [1, 2] {
        hear(&mut receiver, at(0), host, 1, host.into());
    }
    open(&mut receiver, at(0), 1);
    for (host, name) in [(1, "a"), (2, "b")] {
        let (manifest, _) = tree(name);
        say(&mut receiver, host, &welcome(host.into(), &manifest));
    }
    let numbers = |receiver: &Transfers<Choosy>| -> Vec<u32> {
        receiver.iter().map(|(number, ..)| number).collect()
    };
    assert_eq!(numbers(&receiver), [0, 1]);
    receiver.cancel_one(at(1), 0, "nothing moved");
    // What is to be said goes out first.
    open(&mut receiver, at(1), 3);
    receiver.observe(at(1), |_| None);
    assert_eq!(numbers(&receiver), [1]);
    assert!(!receiver.is_over());
}

#[test]
fn a_receiver_that_waits_can_be_cancelled() {
    let mut receiver = single();
    receiver.cancel(at(0), "interrupted");
    assert!(receiver.is_over() && receiver.is_idle());
    let event = receiver.pop_event();
    assert!(matches!(
        event,
        Some(ObjectReceiverEvent::Transfer {
            event: TransferReceiverEvent::Failed { .. },
            ..
        })
    ));
    hear(&mut receiver, at(0), 1, 1, 5);
    assert!(receiver.all.is_empty());
}

#[test]
fn a_stream_that_is_found_again_is_followed_again() {
    let mut receiver = single();
    hear(&mut receiver, at(0), 1, 1, 5);
    receiver.session_over(at(1), stream(1, 1), None);
    assert_eq!(receiver.all[0].stream, None);
    hear(&mut receiver, at(1), 2, 2, 6);
    assert_eq!(receiver.all[0].stream, None);
    hear(&mut receiver, at(1), 1, 2, 5);
    assert_eq!(receiver.all[0].stream, Some(stream(1, 2)));
    assert_eq!(receiver.all[0].sender, sender(1, 5));
}

#[test]
fn a_mark_that_names_another_host_or_another_profile_is_not_followed() {
    let mut receiver = single();
    let source = IpAddr::from([10, 0, 0, 1]);
    let right = Heard {
        stream: 1,
        mark: &objects(5),
        source,
        path_nla: Some(source),
    };
    let (mut messages, mut unreachable) = (objects(5), objects(5));
    messages.profile = Profile::Messages;
    unreachable.control_port = 0;
    let wrong = [
        Heard {
            path_nla: Some(IpAddr::from([10, 0, 0, 2])),
            ..right
        },
        Heard {
            path_nla: None,
            ..right
        },
        Heard {
            mark: &messages,
            ..right
        },
        Heard {
            mark: &unreachable,
            ..right
        },
    ];
    for heard in &wrong {
        receiver.mark(at(0), heard);
        assert!(receiver.all.is_empty(), "{heard:?}");
    }
    receiver.mark(at(0), &right);
    assert_eq!(receiver.all.len(), 1);
}

#[test]
fn what_is_found_out_about_a_stream_is_told() {
    let (manifest, _) = tree("a");
    let mut receiver = serving(Choosy {
        barred: Some(IpAddr::from([10, 0, 0, 2])),
        ..Choosy::default()
    });
    hear(&mut receiver, at(0), 2, 1, 6);
    hear(&mut receiver, at(0), 1, 1, 5);
    assert_eq!(
        receiver.pop_verdict(),
        Some(StreamVerdict::Unwanted(stream(2, 1)))
    );
    assert_eq!(receiver.pop_verdict(), None, "not while it is asked");
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &manifest));
    let genuine = Some(StreamVerdict::Genuine(stream(1, 1)));
    assert_eq!(receiver.pop_verdict(), genuine);
    hear(&mut receiver, at(0), 1, 1, 5);
    assert_eq!(
        receiver.pop_verdict(),
        genuine,
        "it may have been forgotten"
    );
    receiver.cancel_one(at(1), 0, "enough");
    open(&mut receiver, at(1), 2);
    receiver.observe(at(1), |_| None);
    assert_eq!(
        receiver.pop_verdict(),
        Some(StreamVerdict::Unwanted(stream(1, 1)))
    );
}

fn at_ms(ms: u64) -> Instant {
    at(0) + Duration::from_millis(ms)
}

/// Announces a session of `host` with this id and control port.
fn announce<I: Intake>(
    receiver: &mut Transfers<I>,
    now: Instant,
    host: IpAddr,
    id: u64,
    port: u16,
) {
    let mut mark = objects(id);
    mark.control_port = port;
    let heard = Heard {
        stream: id as u32,
        mark: &mark,
        source: host,
        path_nla: Some(host),
    };
    receiver.mark(now, &heard);
    receiver.observe(now, |_| None);
    receiver.handle_timeout(now);
}

/// Takes all commands; `dialled` says of each connection whether it opens.
fn answer<I: Intake>(
    receiver: &mut Transfers<I>,
    now: Instant,
    mut dialled: impl FnMut(SocketAddr) -> bool,
) {
    while let Some(command) = receiver.poll_link() {
        match command {
            LinkCommand::Open { peer, key } => {
                let link = LinkId(1000 + key);
                receiver.link_opened(key, link);
                let event = match dialled(peer) {
                    true => LinkEvent::Opened,
                    false => LinkEvent::Closed,
                };
                receiver.handle_link(now, link, event, &[]);
            }
            LinkCommand::Send { link, bytes } => {
                let taken = bytes.len();
                receiver.link_sent(link, taken);
            }
            LinkCommand::Close { .. } | LinkCommand::Pause { .. } => {}
        }
    }
}

/// Lets the receiver hear 16 silent sessions of one host and, from 10 s on, another host every 50
/// ms. Returns after how many more milliseconds it dials the other host.
fn asked_beside_silence<I: Intake>(mut receiver: Transfers<I>, hosts: [IpAddr; 2]) -> u64 {
    for ms in (0..60_000).step_by(50) {
        for id in 1..=16 {
            announce(&mut receiver, at_ms(ms), hosts[0], id, 4000);
        }
        if ms >= 10_000 {
            announce(&mut receiver, at_ms(ms), hosts[1], 77, 4000);
        }
        let mut is_asked = false;
        answer(&mut receiver, at_ms(ms), |peer| {
            is_asked |= peer.ip() == hosts[1];
            true
        });
        if is_asked {
            return ms - 10_000;
        }
    }
    panic!("never asked")
}

#[test]
fn a_host_with_silent_sessions_keeps_no_other_host_out() {
    // Dialling sees addresses of TCP and no group: the two families are all kinds.
    let v4 = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    let v6 = ["fd00::1", "fd00::2"].map(|host| host.parse().unwrap());
    for hosts in [v4, v6] {
        let waits = asked_beside_silence(serving(Choosy::default()), hosts);
        assert_eq!(waits, 0, "half of the places are left");
        let waits = asked_beside_silence(single(), hosts);
        assert!(waits <= 600, "{waits} ms");
    }
}

/// Lets the receiver hear eight new sessions a second with closed ports, at a sender's address.
/// From 20 s on, it also hears the sender every 30 ms. Returns after how many more milliseconds it
/// dials the sender, and how often it dialled in the first 20 s.
fn asked_beside_closed_ports<I: Intake>(mut receiver: Transfers<I>, host: IpAddr) -> (u64, u32) {
    let (mut before, mut is_asked) = (0, false);
    for ms in (0..60_000).step_by(5) {
        if ms % 125 == 0 {
            announce(
                &mut receiver,
                at_ms(ms),
                host,
                1000 + ms,
                5000 + (ms / 125) as u16,
            );
        }
        if ms >= 20_000 && ms % 30 == 0 {
            announce(&mut receiver, at_ms(ms), host, 77, 4000);
        }
        answer(&mut receiver, at_ms(ms), |peer| {
            is_asked |= peer.port() == 4000;
            before += u32::from(ms < 20_000);
            is_asked
        });
        if is_asked {
            return (ms - 20_000, before);
        }
    }
    panic!("never asked")
}

#[test]
fn forged_marks_that_name_closed_ports_keep_no_sender_out_and_are_dialled_at_a_rate() {
    // Dialling sees addresses of TCP and no group: the two families are all kinds.
    for host in [IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap()] {
        let serving = asked_beside_closed_ports(serving(Choosy::default()), host);
        let single = asked_beside_closed_ports(single(), host);
        for (waits, before) in [serving, single] {
            assert!(waits <= 1_000, "{waits} ms");
            assert!((20..=16 + 4 * 20).contains(&before), "{before} dials");
        }
    }
}

#[test]
fn a_sender_that_did_not_answer_is_asked_again_later() {
    let mut receiver = serving(Choosy::default());
    let (mut times, mut key) = (Vec::new(), 0);
    for ms in (0..20_000).step_by(50) {
        hear(&mut receiver, at_ms(ms), 1, 1, 5);
        receiver.handle_timeout(at_ms(ms));
        answer(&mut receiver, at_ms(ms), |_| {
            times.push(ms);
            true
        });
        if times.len() == 5 && receiver.iter().count() == 0 {
            let mut bytes = Vec::new();
            welcome(5, &tree("a").0).emit(&mut bytes);
            key = times.len() as u32 - 1;
            let link = LinkId(1000 + key);
            receiver.handle_link(at_ms(ms), link, LinkEvent::Data, &bytes);
        }
    }
    assert!(times[1] - times[0] >= 3_000, "{times:?}");
    assert_eq!((times.len(), key), (5, 4), "{times:?}");
    assert_eq!(refusals(&mut receiver).len(), 1, "told once");
    assert_eq!(receiver.iter().count(), 1);
}

#[test]
fn a_mark_of_another_session_takes_no_stream_from_a_transfer() {
    over_ipv4_and_ipv6(|| {
        let refused = Message::Refused {
            reason: Refusal::Over,
            text: "",
        };
        for is_refused in [false, true] {
            let mut receiver = serving(Choosy::default());
            let (manifest, content) = tree("a");
            hear(&mut receiver, at(0), 1, 1, 5);
            open(&mut receiver, at(0), 1);
            say(&mut receiver, 1, &welcome(5, &manifest));
            while receiver.pop_verdict().is_some() {}
            // The sender's stream, with another session.
            hear(&mut receiver, at(1), 1, 1, 6);
            open(&mut receiver, at(1), 10);
            match is_refused {
                true => say(&mut receiver, 10, &refused),
                false => receiver.handle_timeout(at(5)),
            }
            receiver.observe(at(5), |_| None);
            hear(&mut receiver, at(5), 1, 1, 6);
            let lost = std::iter::from_fn(|| receiver.pop_verdict())
                .any(|verdict| verdict == StreamVerdict::Unwanted(stream(1, 1)));
            assert!(!lost, "the transfer's stream");
            let header = BlockHeader::data(ObjectId::MANIFEST, 0);
            block(&mut receiver, header, manifest.bytes());
            let header = BlockHeader::data(ObjectId::CONTENT, 0);
            block(&mut receiver, header, content.bytes());
            assert_eq!(receiver.iter().next().unwrap().2.progress().numbers.held, 9);
        }
    });
}
