use super::*;

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const START: u64 = (1 << 32) + 10;

/// Three messages at START: 1, 3 and 1 packets.
fn ledger() -> SharedLedger {
    let mut ledger = Ledger::new(1);
    let publication = ledger.open("a".into(), None, HOST, START, 40);
    for (number, first, count) in [(0, START, 1), (1, START + 1, 3), (2, START + 4, 1)] {
        ledger.publish(publication, number, 100, first, count);
    }
    ledger.waited(publication);
    ledger.close(publication);
    Rc::new(RefCell::new(ledger))
}

fn message(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    payload::fill(1, number, &mut bytes);
    bytes
}

fn judge(is_in_order: bool, run: impl FnOnce(&mut Witness)) -> Vec<String> {
    let ledger = ledger();
    ledger.borrow_mut().begin("r", None, true);
    let mut witness = Witness::new("r".into(), ledger.clone(), is_in_order);
    witness.found(0, "a", HOST);
    run(&mut witness);

    ledger.borrow().failures().to_vec()
}

#[test]
fn whole_delivery_and_exact_losses_pass() {
    let good = judge(true, |w| {
        w.message(0, 10, &message(0));
        w.message(0, 11, &message(1));
        w.message(0, 14, &message(2));
        w.ended(0);
    });
    assert_eq!(good, [""; 0]);
    let with_loss = judge(true, |w| {
        w.lost(0, START, 4);
        w.message(0, START + 4, &message(2));
        w.ended(0);
    });
    assert_eq!(with_loss, [""; 0]);
}

#[test]
fn every_kind_of_wrong_delivery_is_seen() {
    type Run = fn(&mut Witness);
    let wrong: [Run; 7] = [
        // Twice.
        |w| (0..2).for_each(|_| w.message(0, START, &message(0))),
        // Out of order.
        |w| {
            [1, 0]
                .into_iter()
                .for_each(|n| w.message(0, START + n, &message(n)));
        },
        // Silent hole.
        |w| {
            [0, 2]
                .into_iter()
                .for_each(|n| w.message(0, START + n * 2, &message(n)));
        },
        // A loss of the wrong size.
        |w| {
            w.lost(0, START, 3);
            w.message(0, START + 4, &message(2));
        },
        // A loss beyond what was published.
        |w| w.lost(0, START, 6),
        // An end before everything was delivered.
        |w| {
            w.message(0, START, &message(0));
            w.ended(0);
        },
        // Fragments put together wrongly.
        |w| {
            w.message(0, START, &message(0));
            w.message(0, START + 1, &message(1)[..60]);
        },
    ];
    for (i, run) in wrong.into_iter().enumerate() {
        assert!(!judge(true, run).is_empty(), "case {i} passed");
    }
}

#[test]
fn positions_map_over_the_wrap() {
    assert_eq!(near(3, (1 << 32) - 2), (1 << 32) + 3);
    assert_eq!(near(u64::from(u32::MAX), 1 << 32), (1 << 32) - 1);
    assert_eq!(near(START, START), START);
}

#[test]
fn scattered_packets_pass_once_each() {
    let piece = |number: u64, at: usize| message(number)[at..(at + 40).min(100)].to_vec();
    let good = judge(false, |w| {
        w.message(0, 14, &message(2));
        w.message(0, 12, &piece(1, 40));
        w.lost(0, START + 3, 1);
        w.message(0, 10, &message(0));
        w.message(0, 11, &piece(1, 0));
        w.ended(0);
    });
    assert_eq!(good, [""; 0]);
    let twice = judge(false, |w| {
        (0..2).for_each(|_| w.message(0, 10, &message(0)));
    });
    assert!(twice[0].contains("after it was Delivered"), "{twice:?}");
    let hole = judge(false, |w| {
        w.message(0, 10, &message(0));
        w.ended(0);
    });
    assert!(hole[0].contains("4 packets unaccounted for"), "{hole:?}");
}

#[test]
fn who_has_not_a_senders_key_is_owed_nothing_and_may_not_report() {
    let ledger = ledger();
    let own = Some(Key::derive(b"own", protection::portable));
    ledger.borrow_mut().begin("r", own, true);
    let mut witness = Witness::new("r".into(), ledger.clone(), true);
    witness.found(0, "a", HOST);
    witness.message(0, START + 4, &message(2));
    witness.ended(0);
    assert_eq!(ledger.borrow().failures(), [""; 0], "it may begin late");
    let totals = witness.final_totals();
    assert_eq!((totals.messages, totals.unowed, totals.owed), (1, 1, 0));

    ledger.borrow_mut().begin("s", None, true);
    ledger.borrow_mut().admit(0, "s");
    assert_eq!(
        ledger.borrow().failures(),
        [""; 0],
        "as its sender, it has none"
    );
    ledger.borrow_mut().admit(0, "r");
    witness.found(1, "a", HOST);
    witness.reports(1);
    assert_eq!(ledger.borrow().failures().len(), 2);
}
