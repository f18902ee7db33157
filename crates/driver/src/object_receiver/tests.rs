use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base::Socket;
use delivery::{
    Entry, PlanReceiverConfig,
    memory::{MemoryContent, MemoryStore},
};
use pgm::Config;
use wire::{
    object::{BlockHeader, Message, ObjectId, Refusal, VERSION, Welcome},
    pgm::{Addressing, Body, Data, Gsi, PgmOption, Spm, Sqn, emit},
};

use super::*;

const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 1, 1)), 7);

/// Admits all hosts but one, and accepts every plan but one.
#[derive(Debug, Default)]
struct Choosy {
    barred: Option<IpAddr>,
    unwanted: Option<delivery::PlanId>,
    asked: Vec<Sender>,
    accepted: u32,
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
        if self.unwanted == Some(offer.plan) {
            let (code, text) = (ErrorCode::Exists, "it was received before".to_owned());
            return Err(Decline { code, text });
        }
        self.accepted += 1;
        Ok(MemoryStore::default())
    }
}

fn receiving() -> Receiving {
    Receiving {
        config: Config::default(),
        group: GROUP,
        destination_port: 7,
        own: IpAddr::from([10, 0, 0, 9]),
        seed: 1,
        combine: pgm::fec::combine,
    }
}

fn single() -> ObjectReceiver<TakeFirst<MemoryStore>> {
    let config = PlanReceiverConfig::new("r", 1);
    ObjectReceiver::single(&receiving(), config, MemoryStore::default(), at(0))
}

fn serving(intake: Choosy) -> ObjectReceiver<Choosy> {
    let config = ObjectReceiverConfig::serving(PlanReceiverConfig::new("r", 1));
    ObjectReceiver::open(&receiving(), config, intake, at(0))
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos((seconds + 1) * 1_000_000_000)
}

fn addressing(host: u8, port: u16) -> Addressing {
    Addressing {
        source_port: port,
        destination_port: 7,
        gsi: Gsi([host; 6]),
    }
}

/// One SPM of host 10.0.0.`host`, whose session has this id, and its packets this source port.
fn spm<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    now: Instant,
    host: u8,
    (port, sqn): (u16, u32),
    id: u64,
) {
    let source = IpAddr::from([10, 0, 0, host]);
    let spm = Spm {
        sqn: Sqn(sqn),
        trail: Sqn(1),
        lead: Sqn(0),
        path_nla: source,
    };
    let mark = Mark {
        version: Mark::VERSION,
        profile: Profile::Objects,
        required: 0,
        optional: 0,
        control_port: 4000,
        receiver_count: 0,
        session_id: id,
        // As a source does: a mark is told only when it is another one.
        tx_time_us: sqn.into(),
        announced_rate: 0,
        limiting_receiver: Mark::NO_RECEIVER,
    };
    let mut tpdu = Vec::new();
    let options = [PgmOption::Mark(mark)];
    emit(
        &mut tpdu,
        &addressing(host, port),
        &Body::Spm(spm),
        &options,
        &[],
    );
    let arrival = Arrival::from(SocketAddr::new(source, 7), Socket::Group);
    receiver.handle(now, &arrival, &tpdu, &mut ());
    receiver.drain(now, &mut ());
}

/// One data packet of a host's session.
fn data<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    host: u8,
    sqn: u32,
    header: BlockHeader,
    bytes: &[u8],
) {
    data_at(receiver, at(1), host, (sqn, header, bytes));
}

fn data_at<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    now: Instant,
    host: u8,
    (sqn, header, bytes): (u32, BlockHeader, &[u8]),
) {
    let body = Body::Odata(Data {
        sqn: Sqn(sqn),
        trail: Sqn(1),
    });
    let payload = [&header.to_bytes()[..], bytes].concat();
    let mut tpdu = Vec::new();
    emit(&mut tpdu, &addressing(host, 1), &body, &[], &payload);
    let source = SocketAddr::from(([10, 0, 0, host], 7));
    receiver.handle(now, &Arrival::from(source, Socket::Group), &tpdu, &mut ());
}

fn sender(host: u8, id: u64) -> Sender {
    Sender {
        address: SocketAddr::from(([10, 0, 0, host], 4000)),
        session: id,
    }
}

/// Lets the receiver dial: every connection that it asks for is opened, and numbered from `first`.
fn open<I: Intake>(receiver: &mut ObjectReceiver<I>, now: Instant, first: u32) -> Vec<SocketAddr> {
    receiver.handle_timeout(now, &mut ());
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

fn say<I: Intake>(receiver: &mut ObjectReceiver<I>, link: u32, message: &Message<'_>) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    receiver.handle_link(at(1), LinkId(link), LinkEvent::Data, &bytes);
}

fn welcome(session: u64, plan: &delivery::Plan) -> Message<'static> {
    Message::Welcome(Welcome {
        version: VERSION,
        slot: 0,
        plan: plan.id().0,
        session,
        receiver_count: 1,
        report_interval_us: 1000,
        report_sqns: 0,
        manifest_bytes: plan.manifest().len() as u64,
        is_late: false,
    })
}

fn tree(name: &str) -> (Arc<delivery::Plan>, MemoryContent) {
    MemoryContent::generate(vec![Entry::file(name, 9)], [0; 16], 1).unwrap()
}

fn refusals<I: Intake>(receiver: &mut ObjectReceiver<I>) -> Vec<(Sender, String)> {
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
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    spm(&mut receiver, at(0), 2, (1, 1), 6);
    assert_eq!(
        open(&mut receiver, at(0), 1),
        [sender(1, 5).address],
        "one at a time"
    );
    let reason = Refusal::Over;
    say(&mut receiver, 1, &Message::Refused { reason, text: "" });
    receiver.drain(at(0), &mut ());

    spm(&mut receiver, at(0), 1, (1, 2), 5);
    assert_eq!(open(&mut receiver, at(0), 2), [], "it has refused");
    spm(&mut receiver, at(0), 2, (1, 2), 6);
    assert_eq!(open(&mut receiver, at(0), 3), [sender(2, 6).address]);
    assert!(!receiver.is_over());
}

#[test]
fn senders_turned_away_are_remembered_up_to_a_bound() {
    let mut receiver = serving(Choosy {
        barred: Some(IpAddr::from([10, 0, 0, 1])),
        ..Choosy::default()
    });
    for id in 0..=KNOWN_MAX as u64 {
        spm(&mut receiver, at(0), 1, (id as u16 + 1, 1), id);
    }
    assert_eq!(receiver.known.len(), KNOWN_MAX);
    assert!(receiver.is_barred(&sender(1, 1)) && !receiver.is_barred(&sender(1, 0)));
}

#[test]
fn a_session_that_is_found_again_is_followed_again() {
    let mut receiver = single();
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    // The greeting is not what is tested: the connection never opens, nor is it given up.
    let mut now = at(0);
    while receiver.transfers[0].session.is_some() && now < at(100_000) {
        now += Duration::from_secs(1);
        receiver.receiver.handle_timeout(now);
        receiver.pop_ready(now);
    }
    assert_eq!(receiver.transfers[0].session, None);
    spm(&mut receiver, now, 2, (1, 2), 6);
    assert_eq!(receiver.transfers[0].session, None);
    spm(&mut receiver, now, 1, (1, 2), 5);
    assert!(receiver.transfers[0].session.is_some());
    assert_eq!(receiver.transfers[0].sender, sender(1, 5));
}

#[test]
fn a_sender_that_is_not_admitted_is_neither_dialled_nor_kept() {
    let mut receiver = serving(Choosy {
        barred: Some(IpAddr::from([10, 0, 0, 1])),
        ..Choosy::default()
    });
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    spm(&mut receiver, at(0), 2, (1, 1), 6);
    spm(&mut receiver, at(0), 1, (1, 2), 5);
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
fn two_senders_trees_arrive_side_by_side_and_unmixed() {
    let mut receiver = serving(Choosy::default());
    let trees = BTreeMap::from([(1_u8, tree("a")), (2, tree("b"))]);
    for &host in trees.keys() {
        spm(&mut receiver, at(0), host, (1, 1), host.into());
    }
    assert_eq!(open(&mut receiver, at(0), 1).len(), 2);
    for (&host, (plan, _)) in &trees {
        say(&mut receiver, host.into(), &welcome(host.into(), plan));
    }
    for (&host, (plan, _)) in &trees {
        data(
            &mut receiver,
            host,
            1,
            BlockHeader::data(ObjectId::MANIFEST, 0),
            plan.manifest(),
        );
    }
    // Interleaved, at the same offsets of the same objects.
    for (sqn, piece) in [(2_u32, 0..4_usize), (3, 4..9)] {
        for (&host, (_, content)) in &trees {
            let header = BlockHeader::data(ObjectId::CONTENT, piece.start as u64);
            let bytes = if host == 1 {
                content.bytes()[piece.clone()].to_vec()
            } else {
                content.bytes()[piece.clone()]
                    .iter()
                    .map(|byte| !byte)
                    .collect()
            };
            data(&mut receiver, host, sqn, header, &bytes);
        }
    }
    let written: Vec<Vec<u8>> = receiver
        .transfers()
        .map(|(_, _, plan)| plan.store().unwrap().staged().to_vec())
        .collect();
    let content = trees[&1].1.bytes();
    assert_eq!(written[0], content);
    assert!(written[1].iter().zip(content).all(|(a, b)| *a == !b));
}

#[test]
fn a_restarted_senders_plan_goes_on_with_what_is_held() {
    let mut receiver = serving(Choosy::default());
    let (plan, content) = tree("a");
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &plan));
    data(
        &mut receiver,
        1,
        1,
        BlockHeader::data(ObjectId::MANIFEST, 0),
        plan.manifest(),
    );
    data(
        &mut receiver,
        1,
        2,
        BlockHeader::data(ObjectId::CONTENT, 0),
        &content.bytes()[..4],
    );
    receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);

    // The restart: another port, another session. It is asked what it has, then taken over.
    spm(&mut receiver, at(1), 1, (2, 1), 6);
    assert!(!open(&mut receiver, at(1), 10).is_empty());
    let mut all = receiver.transfers.iter();
    let asked = all.find(|t| t.sender == sender(1, 6)).unwrap();
    let mut links = (10..20).filter(|&link| asked.plan.has_link(LinkId(link)));
    let link = links.next().unwrap();
    say(&mut receiver, link, &welcome(6, &plan));
    receiver.drain(at(1), &mut ());
    assert_eq!(receiver.counters.plans_continued, 1);
    assert_eq!(receiver.transfers().count(), 1);
    assert_eq!(open(&mut receiver, at(1), 20), [sender(1, 6).address]);
    say(&mut receiver, 20, &welcome(6, &plan));
    receiver.drain(at(1), &mut ());
    assert_eq!(receiver.intake.accepted, 1, "no second store");
    let (_, whose, goes_on) = receiver.transfers().next().unwrap();
    assert_eq!((*whose, goes_on.is_connected()), (sender(1, 6), true));
    assert_eq!(goes_on.progress().numbers.held, 4);
    assert_eq!(receiver.transfers.len(), 1, "the one that asked is gone");
}

#[test]
fn a_plan_that_is_under_way_is_not_taken_from_another_host() {
    let mut receiver = serving(Choosy::default());
    let (plan, _) = tree("a");
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &plan));
    spm(&mut receiver, at(0), 2, (1, 1), 6);
    open(&mut receiver, at(0), 2);
    say(&mut receiver, 2, &welcome(6, &plan));
    let told = refusals(&mut receiver);
    assert_eq!((told.len(), told[0].0), (1, sender(2, 6)));
    assert!(
        told[0].1.contains("received from 10.0.0.1:4000"),
        "{}",
        told[0].1
    );
}

#[test]
fn bounds_of_transfers_and_manifests_are_kept_and_told() {
    let mut receiver = serving(Choosy::default());
    receiver.config.plans_max = 1;
    for host in [1, 2, 3] {
        spm(&mut receiver, at(0), host, (1, 1), host.into());
    }
    assert_eq!(
        open(&mut receiver, at(0), 1).len(),
        3,
        "asked at the same time"
    );
    say(&mut receiver, 1, &welcome(1, &tree("a").0));
    say(&mut receiver, 2, &welcome(2, &tree("b").0));
    receiver.config.plans_max = 9;
    receiver.config.manifest_bytes_max = 100;
    say(&mut receiver, 3, &welcome(3, &tree("c").0));
    spm(&mut receiver, at(0), 4, (1, 1), 4);
    receiver.config.plans_max = 1;
    spm(&mut receiver, at(0), 5, (1, 1), 5);
    let told = refusals(&mut receiver);
    let texts: Vec<_> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(told.len(), 3, "{texts:?}");
    assert!(texts[0].contains("1 transfers are under way"), "{texts:?}");
    assert!(texts[1].contains("manifests of"), "{texts:?}");
    assert_eq!(told[2].0, sender(5, 5));
    assert_eq!(receiver.transfers().count(), 1);
}

#[test]
fn an_unwanted_plan_is_declined_with_the_owners_reason() {
    let (plan, _) = tree("a");
    let mut receiver = serving(Choosy {
        unwanted: Some(plan.id()),
        ..Choosy::default()
    });
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &plan));
    assert_eq!(refusals(&mut receiver)[0].1, "it was received before");
    open(&mut receiver, at(1), 2);
    receiver.drain(at(1), &mut ());
    assert!(receiver.transfers.is_empty());
    spm(&mut receiver, at(1), 1, (1, 2), 5);
    assert!(receiver.transfers.is_empty(), "not asked again");
}

/// A receiver whose only transfer, `a` of host 1, was given up by its sender.
fn given_up() -> (ObjectReceiver<Choosy>, Arc<delivery::Plan>) {
    let config = ObjectReceiverConfig::single(PlanReceiverConfig::new("r", 1));
    let mut receiver = ObjectReceiver::open(&receiving(), config, Choosy::default(), at(0));
    let (plan, _) = tree("a");
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, 1, &welcome(5, &plan));
    let header = BlockHeader::data(ObjectId::MANIFEST, 0);
    data(&mut receiver, 1, 1, header, plan.manifest());
    let (code, text) = (ErrorCode::TimedOut, "no progress for 3 s");
    say(&mut receiver, 1, &Message::Error { code, text });
    receiver.drain(at(1), &mut ());
    assert!(!receiver.is_over());
    (receiver, plan)
}

#[test]
fn a_single_transfer_goes_on_when_the_sender_that_gave_it_up_sends_again() {
    let (mut receiver, plan) = given_up();
    // Somebody else's offer is not waited for.
    spm(&mut receiver, at(1), 2, (1, 1), 6);
    assert_eq!(open(&mut receiver, at(1), 2), []);
    spm(&mut receiver, at(1), 1, (2, 1), 7);
    open(&mut receiver, at(1), 3);
    say(&mut receiver, 3, &welcome(7, &plan));
    receiver.drain(at(1), &mut ());
    assert_eq!(receiver.counters.plans_continued, 1);
    assert_eq!(receiver.intake.accepted, 1);
    let transfers: Vec<_> = receiver.transfers().collect();
    assert_eq!((transfers.len(), *transfers[0].1), (1, sender(1, 7)));
    assert!(!transfers[0].2.is_given_up());
}

#[test]
fn a_single_transfer_gives_way_to_what_its_sender_sends_instead() {
    let (mut receiver, _) = given_up();
    let (other, _) = tree("b");
    spm(&mut receiver, at(1), 1, (2, 1), 7);
    open(&mut receiver, at(1), 3);
    say(&mut receiver, 3, &welcome(7, &other));
    receiver.drain(at(1), &mut ());
    assert_eq!(receiver.intake.accepted, 2);
    assert!(!receiver.is_over());
    let plans = receiver
        .transfers()
        .map(|(number, _, plan)| (number, plan.plan_id()));
    assert_eq!(plans.collect::<Vec<_>>(), [(1, Some(other.id()))]);
    let events = std::iter::from_fn(|| receiver.pop_event());
    let failed = events.filter(|event| {
        matches!(
            event,
            ObjectReceiverEvent::Plan {
                transfer: 0,
                event: PlanReceiverEvent::Failed { .. },
            }
        )
    });
    assert_eq!(failed.count(), 1);
}

#[test]
fn one_transfer_of_a_service_can_be_cancelled() {
    let mut receiver = serving(Choosy::default());
    for host in [1, 2] {
        spm(&mut receiver, at(0), host, (1, 1), host.into());
    }
    open(&mut receiver, at(0), 1);
    for (host, name) in [(1, "a"), (2, "b")] {
        let (plan, _) = tree(name);
        say(&mut receiver, host, &welcome(host.into(), &plan));
    }
    let numbers = |receiver: &ObjectReceiver<Choosy>| -> Vec<u32> {
        receiver.transfers().map(|(number, ..)| number).collect()
    };
    assert_eq!(numbers(&receiver), [0, 1]);
    receiver.cancel_transfer(at(1), 0, "nothing moved");
    // What is to be said goes out first.
    open(&mut receiver, at(1), 3);
    receiver.drain(at(1), &mut ());
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
        Some(ObjectReceiverEvent::Plan {
            event: PlanReceiverEvent::Failed { .. },
            ..
        })
    ));
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    assert!(receiver.transfers.is_empty());
}

/// The numbers of each transfer: lost, asked for and repaired.
fn suffered(receiver: &ObjectReceiver<Choosy>) -> Vec<(u64, bool, u64)> {
    let all = receiver.transfers().map(|(_, _, plan)| plan.progress());
    all.map(|at| {
        let numbers = at.numbers;
        (numbers.lost, numbers.repairs_asked > 0, numbers.repairs_got)
    })
    .collect()
}

/// Data packets 1, 4 and 5 of a host, a NAK for what is missing, and the repair of packet 2.
fn with_loss(receiver: &mut ObjectReceiver<Choosy>, host: u8) {
    let header = BlockHeader::data(ObjectId::CONTENT, 0);
    for sqn in [1, 4, 5] {
        data(receiver, host, sqn, header, b"x");
    }
    for ms in 0..1_000 {
        receiver.handle_timeout(at(1) + Duration::from_millis(ms), &mut ());
    }
    let body = Body::Rdata(Data {
        sqn: Sqn(2),
        trail: Sqn(1),
    });
    let payload = [&header.to_bytes()[..], b"x"].concat();
    let mut tpdu = Vec::new();
    emit(&mut tpdu, &addressing(host, 1), &body, &[], &payload);
    let source = SocketAddr::from(([10, 0, 0, host], 7));
    receiver.handle(at(2), &Arrival::from(source, Socket::Group), &tpdu, &mut ());
    receiver.drain(at(2), &mut ());
}

/// Lets a sender be heard, asked and accepted over connection number `host`.
fn begin(receiver: &mut ObjectReceiver<Choosy>, now: Instant, host: u8, name: &str) {
    spm(receiver, now, host, (1, 1), host.into());
    open(receiver, now, host.into());
    say(receiver, host.into(), &welcome(host.into(), &tree(name).0));
}

/// The last report of position that leaves now, by the number of the connection.
fn told(receiver: &mut ObjectReceiver<Choosy>, now: Instant) -> BTreeMap<u32, wire::object::Pos> {
    for ms in 0..100 {
        receiver.handle_timeout(now + Duration::from_millis(ms), &mut ());
    }
    let mut said: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    while let Some(command) = receiver.poll_link() {
        if let LinkCommand::Send { link, bytes } = command {
            said.entry(link.0).or_default().extend(bytes);
            let taken = bytes.len();
            receiver.link_sent(link, taken);
        }
    }
    let mut told = BTreeMap::new();
    for (link, bytes) in said {
        let mut decoder = wire::object::Decoder::new(1 << 20);
        decoder.push(&bytes);
        while let Some(message) = decoder.next_message().unwrap() {
            if let Message::Pos(pos) = message {
                told.insert(link, pos);
            }
        }
    }
    told
}

#[test]
fn a_transfer_without_loss_reports_none_while_another_beside_it_suffers() {
    let mut receiver = serving(Choosy::default());
    begin(&mut receiver, at(0), 1, "a");
    begin(&mut receiver, at(0), 2, "b");
    with_loss(&mut receiver, 1);
    let header = BlockHeader::data(ObjectId::CONTENT, 0);
    data_at(&mut receiver, at(2), 2, (1, header, b"x"));
    receiver.drain(at(2), &mut ());
    assert_eq!(suffered(&receiver), [(2, true, 1), (0, false, 0)]);
}

#[test]
fn a_transfer_does_not_report_the_losses_of_the_one_before_it() {
    let mut receiver = serving(Choosy::default());
    begin(&mut receiver, at(0), 1, "a");
    receiver.set_host_drops(7);
    with_loss(&mut receiver, 1);
    let first = told(&mut receiver, at(3));
    assert_eq!((first[&1].lost, first[&1].host_drops), (2, 7));
    receiver.cancel_transfer(at(4), 0, "enough");
    open(&mut receiver, at(4), 50);
    receiver.drain(at(4), &mut ());

    begin(&mut receiver, at(4), 2, "b");
    let header = BlockHeader::data(ObjectId::CONTENT, 0);
    data_at(&mut receiver, at(5), 2, (1, header, b"x"));
    receiver.set_host_drops(8);
    receiver.drain(at(5), &mut ());
    assert_eq!(suffered(&receiver), [(0, false, 0)]);
    let second = told(&mut receiver, at(6));
    assert_eq!((second[&2].lost, second[&2].host_drops), (0, 1));
}

#[test]
fn a_transfer_that_goes_on_in_another_session_keeps_its_numbers() {
    let (mut receiver, plan) = given_up();
    with_loss(&mut receiver, 1);
    assert_eq!(suffered(&receiver), [(2, true, 1)]);
    spm(&mut receiver, at(3), 1, (2, 1), 7);
    open(&mut receiver, at(3), 3);
    say(&mut receiver, 3, &welcome(7, &plan));
    receiver.drain(at(3), &mut ());
    assert_eq!(receiver.counters.plans_continued, 1);
    assert_eq!(suffered(&receiver), [(2, true, 1)]);
}
