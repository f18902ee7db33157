//! Senders that dial: who is greeted, who waits in line, and who is told what.

use wire::object::Invite;

use super::*;
use crate::parameters::HOST_DIALS_AT_ONCE;

/// Lets a host dial the receiver.
fn accept<I: Intake>(receiver: &mut Transfers<I>, now: Instant, (host, link): (usize, u32)) {
    let peer = Fabric::address(host);
    receiver.handle_link(now, LinkId(link), LinkEvent::Accepted { peer }, &[]);
}

fn invite(session_id: u64, required: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message::Invite(Invite {
        session_id,
        required,
        receiver_count: 1,
    })
    .emit(&mut bytes);
    bytes
}

/// Lets a host dial the receiver and name its session. Returns what the receiver answers.
fn knock<I: Intake>(
    receiver: &mut Transfers<I>,
    now: Instant,
    (host, link): (usize, u32),
    session_id: u64,
) -> &'static str {
    accept(receiver, now, (host, link));
    receiver.handle_link(now, LinkId(link), LinkEvent::Data, &invite(session_id, 0));
    let mut told = told_to(receiver).into_iter();
    told.rfind(|(whose, _)| whose.0 == link)
        .map_or("nothing", |(_, name)| name)
}

/// Returns what each connection is told from now on, in order.
fn told_to<I: Intake>(receiver: &mut Transfers<I>) -> Vec<(LinkId, &'static str)> {
    let mut told = Vec::new();
    while let Some(command) = receiver.poll_link() {
        if let LinkCommand::Send { link, bytes } = command {
            let mut decoder = wire::object::Decoder::new(wire::object::BODY_LEN_MAX);
            decoder.push(bytes);
            told.push((link, decoder.next_message().unwrap().unwrap().name()));
            let taken = bytes.len();
            receiver.link_sent(link, taken);
        }
    }
    told
}

#[test]
fn a_host_that_knocks_and_says_no_more_keeps_no_other_host_out() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = single().with_door();
        let mut asked = 0;
        for number in 0..100 {
            let said = knock(&mut receiver, at(1), (66, number), number.into());
            asked += u32::from(said == "HELLO");
        }
        assert_eq!(asked, 1, "one sender of a host is asked at a time");
        assert_eq!(knock(&mut receiver, at(1), (1, 500), 7), "HELLO");
    });
}

#[test]
fn a_host_is_asked_what_it_has_no_more_often_by_dialling_than_by_being_heard() {
    let mut receiver = serving(Choosy::default()).with_door();
    let mut asked = 0;
    for number in 0..1_000 {
        let said = knock(&mut receiver, at(1), (66, number), number.into());
        asked += u32::from(said == "HELLO");
        receiver.handle_link(at(1), LinkId(number), LinkEvent::Closed, &[]);
        receiver.observe(at(1), |_| None);
        receiver.handle_timeout(at(10));
    }
    assert!((2..=HOST_DIALS_AT_ONCE).contains(&asked), "{asked}");
    assert_eq!(knock(&mut receiver, at(10), (1, 5_000), 7), "HELLO");
}

#[test]
fn who_is_refused_at_the_door_is_told_to_the_owner_once() {
    let mut receiver = serving(Choosy::default()).with_door();
    let invite = invite(5, Mark::PROTECTED);
    for (link, host, said) in [
        (0, 1, &invite[..]),
        (1, 1, &invite),
        (2, 2, &[0; 64]),
        (3, 2, &[0; 64]),
    ] {
        accept(&mut receiver, at(1), (host, link));
        receiver.handle_link(at(1), LinkId(link), LinkEvent::Data, said);
    }
    let told = refusals(&mut receiver);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0].0.address.ip(), Fabric::address(1).ip());
    assert!(told[0].1.contains("key"), "{told:?}");
    assert!(told[1].1.contains("does not speak"), "{told:?}");
}

#[test]
fn a_host_has_half_of_the_line_and_every_host_its_turn() {
    let mut config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    config.waiting_max = 8;
    let mut receiver = Transfers::new(config, Choosy::default()).with_door();
    // All seats are taken by senders that are asked and do not answer.
    for link in 0..4 {
        let host = 10 + link as usize;
        let said = knock(&mut receiver, at(1), (host, link), link.into());
        assert_eq!(said, "HELLO");
    }
    let mut waits = 0;
    for link in 100..200 {
        let said = knock(&mut receiver, at(1), (66, link), link.into());
        waits += u32::from(said == "WAIT");
        assert!(["WAIT", "REFUSED"].contains(&said), "{said}");
    }
    assert_eq!(waits, 4, "half of the line");
    let honest = LinkId(500);
    assert_eq!(knock(&mut receiver, at(1), (1, 500), 7), "WAIT");
    assert_eq!(receiver.counters().callers_waited, 5);
    // Whoever waits is not late.
    receiver.handle_timeout(at(100));
    assert_eq!(receiver.counters().callers_late, 0);
    // Nobody is greeted before it has been told again that it waits.
    assert_eq!(told_to(&mut receiver).len(), 5);
    receiver.observe(at(100), |_| None);
    let greeted = told_to(&mut receiver);
    assert!(greeted.contains(&(honest, "HELLO")), "{greeted:?}");
    let of_host: Vec<_> = greeted.iter().filter(|(link, _)| link.0 < 200).collect();
    assert_eq!(of_host.len(), 2, "half of the seats: {greeted:?}");
    assert_eq!(of_host[0].0, LinkId(100), "the oldest first");
}

#[test]
fn a_store_that_still_works_keeps_its_transfers_place() {
    let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    let config = config.with_transfers(2);
    let mut receiver = Transfers::new(config, Choosy::default()).with_door();
    for (link, name) in [(1, "a"), (2, "b")] {
        assert_eq!(
            knock(&mut receiver, at(1), (link as usize, link), link.into()),
            "HELLO"
        );
        // The second sender was greeted before the store of a transfer began to end.
        receiver.intake.stores_ending = link as usize - 1;
        say(&mut receiver, link, &welcome(link.into(), &tree(name).0));
        receiver.observe(at(1), |_| None);
    }
    assert_eq!(receiver.intake.accepted, 1, "no more than there are places");
    // The connection of the second one is closed without a word, so that it dials again.
    assert_eq!(refusals(&mut receiver), []);
    assert!(!told_to(&mut receiver).iter().any(|(link, _)| link.0 == 2));
    let counters = receiver.counters();
    assert_eq!(
        (counters.offers_put_off, counters.transfers_declined),
        (1, 0)
    );
    let waits = LinkId(3);
    assert_eq!(knock(&mut receiver, at(1), (2, 3), 2), "WAIT");
    receiver.intake.stores_ending = 0;
    receiver.observe(at(1), |_| None);
    let told = told_to(&mut receiver);
    assert!(told.contains(&(waits, "HELLO")), "{told:?}");
}

/// Lets the sender that was greeted on a connection offer files of its own.
fn offer<I: Intake>(receiver: &mut Transfers<I>, now: Instant, link: LinkId) {
    let mut bytes = Vec::new();
    let manifest = tree(&link.0.to_string()).0;
    welcome(link.0.into(), &manifest).emit(&mut bytes);
    receiver.handle_link(now, link, LinkEvent::Data, &bytes);
}

/// Returns the connections that are greeted from now on.
fn greeted<I: Intake>(receiver: &mut Transfers<I>) -> Vec<LinkId> {
    let told = told_to(receiver).into_iter();
    let greeted = told.filter(|&(_, name)| name == "HELLO");
    greeted.map(|(link, _)| link).collect()
}

#[test]
fn three_times_as_many_senders_as_places_have_theirs_one_after_the_other() {
    for places in [1, 4] {
        let config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
        let config = config.with_transfers(places);
        let mut receiver = Transfers::new(config, Choosy::default()).with_door();
        let count = 3 * places as u32;
        let (mut now, mut to_answer) = (at(1), Vec::new());
        for link in 1..=count {
            match knock(&mut receiver, now, (link as usize, link), link.into()) {
                "HELLO" => to_answer.push(LinkId(link)),
                said => assert_eq!(said, "WAIT"),
            }
        }
        for _ in 0..100 {
            assert!(to_answer.len() <= places, "{to_answer:?}");
            for link in to_answer {
                offer(&mut receiver, now, link);
            }
            // Those that are under way end, and others have their places.
            let numbers: Vec<u32> = receiver.iter().map(|(number, ..)| number).collect();
            for number in numbers {
                receiver.cancel_one(now, number, "enough");
            }
            told_to(&mut receiver);
            now += TURN;
            receiver.handle_timeout(now);
            receiver.observe(now, |_| None);
            to_answer = greeted(&mut receiver);
        }
        assert_eq!(receiver.intake.accepted, count);
        let counters = receiver.counters();
        assert_eq!(
            (counters.offers_put_off, counters.transfers_declined),
            (0, 0)
        );
    }
}

#[test]
fn senders_on_a_slow_path_have_the_time_to_answer_although_others_wait() {
    const ROUND_TRIP: Duration = Duration::from_millis(700);
    let mut receiver = serving(Choosy::default()).with_door();
    let (mut now, mut answers) = (at(1), Vec::new());
    for link in 1..=8 {
        if knock(&mut receiver, now, (link as usize, link), link.into()) == "HELLO" {
            answers.push((now + ROUND_TRIP, LinkId(link)));
        }
    }
    assert_eq!(answers.len(), 4, "as many as are asked at a time");
    while now < at(10) {
        now += TURN;
        let (due, later): (Vec<_>, Vec<_>) = answers.into_iter().partition(|it| it.0 <= now);
        answers = later;
        for (_, link) in due {
            offer(&mut receiver, now, link);
        }
        receiver.handle_timeout(now);
        receiver.observe(now, |_| None);
        let greeted = greeted(&mut receiver);
        answers.extend(greeted.into_iter().map(|link| (now + ROUND_TRIP, link)));
    }
    assert_eq!(receiver.intake.accepted, 8);
    assert_eq!(receiver.counters().callers_greeted, 8, "each once");
}

#[test]
fn a_host_passes_others_by_only_as_often_as_it_has_lost_a_transfer() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = serving(Choosy::default()).with_door();
        receiver.config.transfers_max = 1;
        assert_eq!(knock(&mut receiver, at(1), (1, 1), 5), "HELLO");
        say(&mut receiver, 1, &welcome(5, &tree("a").0));
        assert_eq!(knock(&mut receiver, at(1), (2, 2), 2), "WAIT");
        receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);
        for link in 30..40 {
            let said = knock(&mut receiver, at(1), (1, link), link.into());
            assert_eq!(said, if link == 30 { "HELLO" } else { "WAIT" });
        }
        // What it offers is something else, for which there is no place: it has to wait, too.
        offer(&mut receiver, at(1), LinkId(30));
        let told = told_to(&mut receiver);
        assert!(!told.iter().any(|(link, _)| link.0 == 30), "{told:?}");
        assert_eq!(knock(&mut receiver, at(1), (1, 50), 30), "WAIT");
        // The transfer's own sender passes all of them by.
        assert_eq!(knock(&mut receiver, at(1), (1, 60), 6), "HELLO");
        say(&mut receiver, 60, &welcome(6, &tree("a").0));
        let counters = receiver.counters();
        assert_eq!(
            (counters.offers_put_off, counters.transfers_declined),
            (1, 0)
        );
        assert_eq!(counters.transfers_continued, 1);
    });
}

#[test]
fn a_sender_with_the_key_continues_at_another_address_when_it_passes_nobody_by() {
    for others_wait in [false, true] {
        let mut receiver = serving(Choosy::default()).with_door();
        receiver.config.transfers_max = 1;
        assert_eq!(knock(&mut receiver, at(1), (1, 1), 5), "HELLO");
        say(&mut receiver, 1, &welcome(5, &tree("a").0));
        if others_wait {
            assert_eq!(knock(&mut receiver, at(1), (3, 3), 3), "WAIT");
        }
        receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);
        // The handshake of a key is not what this is about: the key only counts once it is known.
        assert_eq!(knock(&mut receiver, at(1), (2, 2), 2), "WAIT");
        receiver.handle_link(at(1), LinkId(2), LinkEvent::Closed, &[]);
        receiver.config.receiver.key = Some(crate::Key::derive(b"secret", protection::portable));
        let said = knock(&mut receiver, at(1), (2, 4), 6);
        assert_eq!(said, if others_wait { "WAIT" } else { "HELLO" });
    }
}

#[test]
fn who_waits_is_told_so_again_and_again() {
    let mut receiver = busy(8);
    for link in [1_u32, 2] {
        let now = at(link.into());
        let said = knock(&mut receiver, now, (link as usize, link), link.into());
        assert_eq!(said, "WAIT");
    }
    for (seconds, told) in [
        (10, vec![]),
        (11, vec![(LinkId(1), "WAIT")]),
        (12, vec![(LinkId(2), "WAIT")]),
        (13, vec![]),
        (100, vec![(LinkId(1), "WAIT"), (LinkId(2), "WAIT")]),
    ] {
        receiver.handle_timeout(at(seconds));
        assert_eq!(told_to(&mut receiver), told, "{seconds} s");
    }
    receiver.handle_link(at(100), LinkId(1), LinkEvent::Closed, &[]);
    receiver.handle_timeout(at(110));
    assert_eq!(told_to(&mut receiver), [(LinkId(2), "WAIT")]);
}

#[test]
fn who_waits_leaves_the_line_with_its_connection_and_is_told_the_end() {
    let mut receiver = serving(Choosy::default()).with_door();
    for link in 0..4 {
        knock(
            &mut receiver,
            at(1),
            (10 + link as usize, link),
            link.into(),
        );
    }
    for link in 4..7 {
        let said = knock(&mut receiver, at(1), (1, link), link.into());
        assert_eq!(said, "WAIT");
    }
    receiver.handle_link(at(1), LinkId(4), LinkEvent::Closed, &[]);
    // Who waits has nothing to say.
    receiver.handle_link(at(1), LinkId(5), LinkEvent::Data, &[0; 8]);
    assert_eq!(told_to(&mut receiver), [(LinkId(5), "REFUSED")]);
    receiver.cancel(at(1), "enough");
    let told = told_to(&mut receiver);
    assert!(told.contains(&(LinkId(6), "REFUSED")), "{told:?}");
    assert!(!told.iter().any(|(link, _)| link.0 == 4), "{told:?}");
}

/// Makes a receiver with a line of `waiting_max` places that asks nobody at present.
fn busy(waiting_max: usize) -> Transfers<Choosy> {
    let mut config = ObjectReceiverConfig::serving(TransferReceiverConfig::new("r", 1));
    (config.waiting_max, config.prospects_max) = (waiting_max, 0);
    Transfers::new(config, Choosy::default()).with_door()
}

#[test]
fn two_hosts_that_fill_the_line_make_room_for_a_third() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = busy(8);
        for link in 100..140 {
            let host = 66 + link as usize % 2;
            knock(&mut receiver, at(1), (host, link), link.into());
        }
        let door = receiver.door.as_ref().unwrap();
        let in_line = door.line.links().count();
        assert!(in_line >= 6, "a network's share at least: {in_line}");
        // The attack goes on while three senders of another host come.
        for link in 500..503 {
            let said = knock(&mut receiver, at(1), (1, link), link.into());
            let attack = knock(&mut receiver, at(1), (66, link + 100), link.into());
            assert_eq!(attack, "REFUSED");
            assert_eq!(said, if link < 502 { "WAIT" } else { "REFUSED" });
        }
        let door = receiver.door.as_ref().unwrap();
        assert_eq!(door.line.links().count(), in_line);
        receiver.config.prospects_max = 4;
        receiver.observe(at(100), |_| None);
        let greeted = told_to(&mut receiver);
        assert!(greeted.contains(&(LinkId(500), "HELLO")), "{greeted:?}");
    });
}

#[test]
fn a_sender_stands_in_line_once_and_with_its_newest_connection() {
    let mut receiver = busy(8);
    for link in 100..200 {
        assert_eq!(knock(&mut receiver, at(1), (66, link), 7), "WAIT");
    }
    let door = receiver.door.as_ref().unwrap();
    assert_eq!(door.line.links().collect::<Vec<_>>(), [LinkId(199)]);
    assert_eq!(door.listener.links.len(), 1, "the others are closed");
}

#[test]
fn what_comes_behind_an_invitation_is_refused_and_nothing_of_who_waits_is_kept() {
    let mut receiver = busy(8);
    let invite = invite(7, 0);
    for (link, more, said) in [
        (100, 0, "WAIT"),
        (101, 1, "REFUSED"),
        (102, 30_000, "REFUSED"),
    ] {
        let (peer, link) = (Fabric::address(1), LinkId(link));
        receiver.handle_link(at(1), link, LinkEvent::Accepted { peer }, &[]);
        let bytes = [&invite[..], &vec![0; more]].concat();
        receiver.handle_link(at(1), link, LinkEvent::Data, &bytes);
        assert_eq!(told_to(&mut receiver), [(link, said)]);
    }
}

#[test]
fn a_receiver_that_was_cancelled_lets_nobody_in_that_had_dialled_before() {
    for has_closed_door in [false, true] {
        let mut receiver = serving(Choosy::default()).with_door();
        let (link, peer) = (LinkId(100), Fabric::address(1));
        receiver.handle_link(at(1), link, LinkEvent::Accepted { peer }, &[]);
        match has_closed_door {
            true => receiver.cancel(at(1), "enough"),
            false => receiver.is_cancelled = true,
        }
        let invite = invite(7, 0);
        receiver.handle_link(at(1), link, LinkEvent::Data, &invite);
        let told = told_to(&mut receiver);
        match has_closed_door {
            true => assert_eq!(told, [], "its connection was closed"),
            false => assert_eq!(told, [(link, "REFUSED")]),
        }
        assert!(receiver.all.is_empty());
    }
}

#[test]
fn the_door_serves_so_many_of_the_line_at_a_time_and_goes_on_at_once() {
    let mut receiver = busy(1_000);
    for link in 100..400 {
        let host = 1 + link as usize % 200;
        let said = knock(&mut receiver, at(1), (host, link), link.into());
        assert_eq!(said, "WAIT");
    }
    // Nobody who waits will ever have a place.
    (receiver.config.is_single, receiver.is_cancelled) = (true, true);
    for rest in [236, 172] {
        receiver.observe(at(1), |_| None);
        let door = receiver.door.as_ref().unwrap();
        assert_eq!(door.line.links().count(), rest);
        assert_eq!(door.next_deadline(), Some(at(1)));
    }
}

#[test]
fn a_restarted_sender_of_a_transfer_under_way_does_not_wait_behind_others() {
    over_ipv4_and_ipv6(|| {
        let mut receiver = serving(Choosy::default()).with_door();
        receiver.config.transfers_max = 1;
        assert_eq!(knock(&mut receiver, at(1), (1, 1), 5), "HELLO");
        say(&mut receiver, 1, &welcome(5, &tree("a").0));
        assert_eq!(receiver.iter().count(), 1);
        for link in 10..20 {
            let said = knock(&mut receiver, at(1), (link as usize, link), link.into());
            assert_eq!(said, "WAIT");
        }
        receiver.handle_link(at(1), LinkId(1), LinkEvent::Closed, &[]);
        assert_eq!(knock(&mut receiver, at(1), (1, 30), 6), "HELLO");
        assert_eq!(knock(&mut receiver, at(1), (2, 31), 6), "WAIT");
    });
}

#[test]
fn each_connection_is_counted_once_by_what_became_of_it() {
    let mut receiver = busy(4);
    let counted = |receiver: &Transfers<Choosy>| {
        let it = receiver.counters();
        let all = [
            it.callers_greeted,
            it.callers_refused,
            it.callers_cut,
            it.callers_late,
            it.callers_gone,
        ];
        (all, all.iter().sum::<u64>())
    };
    // The first are cut, for more of their host than the door has room for.
    let silent = 1_000;
    for link in 0..silent {
        accept(&mut receiver, at(1), (66, link));
    }
    let ([.., cut, _, _], sum) = counted(&receiver);
    assert_eq!((cut > 0, sum), (true, cut));
    // One goes without a word; one says nonsense, and then goes, too.
    receiver.handle_link(at(1), LinkId(silent - 1), LinkEvent::Closed, &[]);
    receiver.handle_link(at(1), LinkId(silent - 2), LinkEvent::Data, &[9; 64]);
    receiver.handle_link(at(1), LinkId(silent - 2), LinkEvent::Closed, &[]);
    assert_eq!(counted(&receiver), ([0, 1, cut, 0, 1], cut + 2));
    // Three wait. One of them dials again, and one goes.
    for (link, session) in [(2_000, 1), (2_001, 1), (2_002, 2), (2_003, 3)] {
        let said = knock(&mut receiver, at(1), (session as usize, link), session);
        assert_eq!(said, "WAIT");
    }
    receiver.handle_link(at(1), LinkId(2_002), LinkEvent::Closed, &[]);
    let more_cut = receiver.counters().callers_cut;
    assert_eq!(counted(&receiver), ([0, 1, more_cut, 0, 3], more_cut + 4));
    // One is greeted, and one told that it is over; the others are late.
    (receiver.config.prospects_max, receiver.config.transfers_max) = (1, 1);
    receiver.observe(at(1), |_| None);
    receiver.handle_timeout(at(1_000));
    receiver.cancel(at(1_000), "enough");
    let (all, sum) = counted(&receiver);
    assert_eq!(sum, u64::from(silent) + 4, "{all:?}");
    assert!(all[0] == 1 && all[3] > 0, "{all:?}");
}
