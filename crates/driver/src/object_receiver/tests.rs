use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use base::Socket;
use delivery::{
    Decline, Entry, Offer, Sender, TransferReceiverConfig,
    memory::{MemoryContent, MemoryStore},
};
use pgm::Config;
use wire::{
    object::{BlockHeader, ErrorCode, Message, ObjectId, VERSION, Welcome},
    pgm::{Addressing, Body, Data, Gsi, Mark, PgmOption, Profile, Spm, Sqn, emit},
};

use super::*;

const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 1, 1)), 7);

/// Takes whatever it is offered.
#[derive(Debug)]
struct TakeAll;

impl Intake for TakeAll {
    type Store = MemoryStore;

    fn admit(&mut self, _sender: &Sender) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, _sender: &Sender, _offer: &Offer) -> Result<MemoryStore, Decline> {
        Ok(MemoryStore::default())
    }
}

/// Takes what it is offered from all hosts except 10.0.0.3.
#[derive(Debug)]
struct NotFromThree;

impl Intake for NotFromThree {
    type Store = MemoryStore;

    fn admit(&mut self, sender: &Sender) -> Result<(), String> {
        self.admit_host(sender.address.ip())
    }

    fn admit_host(&self, host: IpAddr) -> Result<(), String> {
        let is_taken = host != IpAddr::from([10, 0, 0, 3]);
        is_taken
            .then_some(())
            .ok_or_else(|| format!("{host} is not allowed"))
    }

    fn accept(&mut self, _sender: &Sender, _offer: &Offer) -> Result<MemoryStore, Decline> {
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
        instance: 1,
        combine: pgm::fec::combine,
    }
}

fn serving() -> ObjectReceiver<TakeAll> {
    let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    ObjectReceiver::open(&receiving(), config, TakeAll, at(0))
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

/// Gives the receiver one SPM of the host 10.0.0.`host`. The session has the number `id`, and its
/// packets have the source port `port`.
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
        control_port: 4000,
        // Each mark has another time, as a source's marks do: the receiver tells only changed
        // marks.
        tx_time_us: sqn.into(),
        ..Mark::new(Profile::Objects, id)
    };
    marked(receiver, now, (host, port), spm, mark);
}

/// Gives the receiver an SPM with this mark.
fn marked<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    now: Instant,
    (host, port): (u8, u16),
    spm: Spm,
    mark: Mark,
) {
    let source = IpAddr::from([10, 0, 0, host]);
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

/// Gives the receiver one data packet of a host's session.
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

/// Gives the receiver one data packet of the host's session that has this source port.
fn packet_of<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    now: Instant,
    host: u8,
    (port, sqn): (u16, u32),
) {
    let body = Body::Odata(Data {
        sqn: Sqn(sqn),
        trail: Sqn(1),
    });
    let mut tpdu = Vec::new();
    emit(&mut tpdu, &addressing(host, port), &body, &[], b"data");
    let source = SocketAddr::from(([10, 0, 0, host], 7));
    receiver.handle(now, &Arrival::from(source, Socket::Group), &tpdu, &mut ());
    receiver.drain(now, &mut ());
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

fn say<I: Intake>(
    receiver: &mut ObjectReceiver<I>,
    now: Instant,
    link: u32,
    message: &Message<'_>,
) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    receiver.handle_link(now, LinkId(link), LinkEvent::Data, &bytes);
}

fn welcome(session_id: u64, manifest: &delivery::Manifest) -> Message<'static> {
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

fn tree(name: &str) -> (Arc<delivery::Manifest>, MemoryContent) {
    MemoryContent::generate(vec![Entry::file(name, 9)], [0; 16], 1).unwrap()
}

#[test]
fn two_senders_trees_arrive_side_by_side_and_unmixed() {
    let mut receiver = serving();
    let trees = BTreeMap::from([(1_u8, tree("a")), (2, tree("b"))]);
    for &host in trees.keys() {
        spm(&mut receiver, at(0), host, (1, 1), host.into());
    }
    assert_eq!(open(&mut receiver, at(0), 1).len(), 2);
    for (&host, (manifest, _)) in &trees {
        say(
            &mut receiver,
            at(1),
            host.into(),
            &welcome(host.into(), manifest),
        );
    }
    for (&host, (manifest, _)) in &trees {
        data(
            &mut receiver,
            host,
            1,
            BlockHeader::data(ObjectId::MANIFEST, 0),
            manifest.bytes(),
        );
    }
    // The blocks of all senders, interleaved: they have the same offsets in the same objects.
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
        .iter()
        .map(|(_, _, manifest)| manifest.store().unwrap().staged().to_vec())
        .collect();
    let content = trees[&1].1.bytes();
    assert_eq!(written[0], content);
    assert!(written[1].iter().zip(content).all(|(a, b)| *a == !b));
}

#[test]
fn a_session_without_a_mark_of_a_host_that_is_not_admitted_is_forgotten_when_it_is_found() {
    let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    let mut receiver = ObjectReceiver::open(&receiving(), config, NotFromThree, at(0));
    for session in 0..64 {
        for sqn in 1..30 {
            packet_of(&mut receiver, at(0), 3, (session, sqn));
        }
    }
    let alive = |receiver: &ObjectReceiver<_>| receiver.receiver().unwrap().sessions().count();
    assert_eq!(alive(&receiver), 0);
    packet_of(&mut receiver, at(0), 2, (1, 1));
    assert_eq!(alive(&receiver), 1, "it may become one that is admitted");
    // The owner hears of the host once; a session with a mark is judged by the mark.
    spm(&mut receiver, at(0), 3, (99, 1), 5);
    spm(&mut receiver, at(0), 1, (1, 1), 6);
    let events = std::iter::from_fn(|| receiver.transfers_mut().pop_event());
    let refused = events.filter_map(|event| match event {
        delivery::ObjectReceiverEvent::Refused { sender, .. } => Some(sender.address.port()),
        _ => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), [0, 4000]);
    let asked = open(&mut receiver, at(0), 1);
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[test]
fn no_mark_keeps_a_session_of_a_host_that_is_not_admitted() {
    let objects = Mark::new(Profile::Objects, 5);
    let with_port = Mark {
        control_port: 4000,
        ..objects
    };
    let marks = [
        (Mark::new(Profile::Messages, 5), 3),
        (objects, 3),
        // The SPM names an address for NAKs that is not the sender's own.
        (with_port, 8),
    ];
    for (mark, nla) in marks {
        let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
        let mut receiver = ObjectReceiver::open(&receiving(), config, NotFromThree, at(0));
        let spm = Spm {
            sqn: Sqn(1),
            trail: Sqn(1),
            lead: Sqn(0),
            path_nla: IpAddr::from([10, 0, 0, nla]),
        };
        marked(&mut receiver, at(0), (3, 9), spm, mark);
        for sqn in 1..30 {
            packet_of(&mut receiver, at(0), 3, (9, sqn));
        }
        let alive = receiver.receiver().unwrap().sessions().count();
        assert_eq!(alive, 0, "{mark:?}");
    }
}

/// A receiver whose only transfer, `a` of host 1, was given up by its sender.
fn given_up() -> (ObjectReceiver<TakeAll>, Arc<delivery::Manifest>) {
    let config = ObjectReceiverConfig::single(TransferReceiverConfig::new("r", 1));
    let mut receiver = ObjectReceiver::open(&receiving(), config, TakeAll, at(0));
    let (manifest, _) = tree("a");
    spm(&mut receiver, at(0), 1, (1, 1), 5);
    open(&mut receiver, at(0), 1);
    say(&mut receiver, at(1), 1, &welcome(5, &manifest));
    let header = BlockHeader::data(ObjectId::MANIFEST, 0);
    data(&mut receiver, 1, 1, header, manifest.bytes());
    let (code, text) = (ErrorCode::TimedOut, "no progress for 3 s");
    say(&mut receiver, at(1), 1, &Message::Error { code, text });
    receiver.drain(at(1), &mut ());
    assert!(!receiver.transfers().is_over());
    (receiver, manifest)
}

/// Returns for each transfer: the packets lost, whether repairs were asked for, and the repairs
/// that came.
fn suffered(receiver: &ObjectReceiver<TakeAll>) -> Vec<(u64, bool, u64)> {
    let all = receiver
        .transfers()
        .iter()
        .map(|(_, _, manifest)| manifest.progress());
    all.map(|at| {
        let numbers = at.numbers;
        (numbers.lost, numbers.repairs_asked > 0, numbers.repairs_got)
    })
    .collect()
}

/// Gives the receiver data packets 1, 4 and 5 of a host, lets it ask for the missing packets, and
/// gives it the repair of packet 2.
fn with_loss(receiver: &mut ObjectReceiver<TakeAll>, host: u8) {
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
fn begin(receiver: &mut ObjectReceiver<TakeAll>, now: Instant, host: u8, name: &str) {
    spm(receiver, now, host, (1, 1), host.into());
    open(receiver, now, host.into());
    say(
        receiver,
        now,
        host.into(),
        &welcome(host.into(), &tree(name).0),
    );
}

/// Returns the last position report on each connection within 100 ms from `now`, by the
/// connection's number.
fn told(receiver: &mut ObjectReceiver<TakeAll>, now: Instant) -> BTreeMap<u32, wire::object::Pos> {
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
    let mut receiver = serving();
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
    let mut receiver = serving();
    begin(&mut receiver, at(0), 1, "a");
    receiver.set_host_drops(7);
    with_loss(&mut receiver, 1);
    let first = told(&mut receiver, at(3));
    assert_eq!((first[&1].lost, first[&1].host_drops), (2, 7));
    receiver.transfers_mut().cancel_one(at(4), 0, "enough");
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
    let (mut receiver, manifest) = given_up();
    with_loss(&mut receiver, 1);
    assert_eq!(suffered(&receiver), [(2, true, 1)]);
    spm(&mut receiver, at(3), 1, (2, 1), 7);
    open(&mut receiver, at(3), 3);
    say(&mut receiver, at(3), 3, &welcome(7, &manifest));
    receiver.drain(at(3), &mut ());
    assert_eq!(receiver.transfers().counters().transfers_continued, 1);
    assert_eq!(suffered(&receiver), [(2, true, 1)]);
}

#[test]
fn a_session_that_is_found_again_is_followed_again() {
    let mut receiver = serving();
    begin(&mut receiver, at(0), 1, "a");
    // No more packets come, and the connection stays: it is not what is tested.
    let mut now = at(0);
    while receiver.receiver().unwrap().sessions().next().is_some() && now < at(100_000) {
        now += Duration::from_secs(1);
        receiver.receiver.as_mut().unwrap().handle_timeout(now);
        receiver.pop_ready(now);
    }
    assert!(now < at(100_000));
    spm(&mut receiver, now, 1, (1, 2), 1);
    let (manifest, _) = tree("a");
    let header = BlockHeader::data(ObjectId::MANIFEST, 0);
    data_at(&mut receiver, now, 1, (2, header, manifest.bytes()));
    let taken = receiver.transfers().first().and_then(|of| of.manifest());
    assert_eq!(taken.map(|manifest| manifest.id()), Some(manifest.id()));
}
