//! Transfers where both ends have a key, where only one end has one, or where another host
//! interferes.

use base::LinkEvent;
use wire::object::{Challenge, Decoder, HELLO_LEN_MAX, Hello, Message, Refusal};

use super::*;
use crate::Key;

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a world whose ends have these keys.
fn world(sender: Option<&str>, receiver: Option<&str>, receivers: usize) -> World {
    let key = |secret: Option<&str>| {
        secret.map(|secret| Key::derive(secret.as_bytes(), protection::portable))
    };
    let mut config = TransferSenderConfig::new(SESSION, u32::try_from(receivers).unwrap(), SEED);
    config.join_timeout = Duration::from_secs(3);
    config.key = key(sender);
    let mut world = World::with(60, receivers, tree(), config);
    for (index, node) in world.nodes.iter_mut().enumerate() {
        let mut config = TransferReceiverConfig::new(format!("r{}", index + 1), index as u64 + 1);
        config.key = key(receiver);
        *node = Node::with(world.now, config, MemoryStore::default());
    }
    world
}

fn refusals(world: &World) -> Vec<Refusal> {
    let events = world.events.iter();
    let reasons = events.filter_map(|event| match event {
        TransferSenderEvent::Refused { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

fn passed_over(node: &Node) -> Vec<&str> {
    let texts = node.events.iter().filter_map(|event| match event {
        TransferReceiverEvent::PassedOver { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn with_one_key_at_both_ends_the_tree_arrives() {
    let mut world = world(Some("secret"), Some("secret"), 3).lossy(Loss {
        per_mille: 50,
        ..Loss::default()
    });
    let at = world.now + Duration::from_millis(20);
    world.run_until(MINUTE, |world| world.now >= at);
    world.fabric.cut(2);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    world.assert_whole();
    assert!(
        world.sender.counters().challenged >= 4,
        "the one that came back too"
    );
}

#[test]
fn without_the_right_key_a_receiver_is_refused_with_the_reason_and_nothing_is_kept_of_it() {
    for (sender, receiver, reason) in [
        (Some("secret"), Some("other"), Refusal::WrongKey),
        (Some("secret"), None, Refusal::KeyRequired),
        (None, Some("secret"), Refusal::NoKey),
    ] {
        let mut world = world(sender, receiver, 1);
        let outcome = world.run(Duration::from_secs(10));
        assert!(!outcome.is_proven());
        assert_eq!(
            (outcome.receivers.len(), outcome.missing),
            (0, 1),
            "{reason:?}"
        );
        assert_eq!(refusals(&world).first(), Some(&reason));
        let node = &world.nodes[0];
        assert_eq!(
            node.receiver.manifest_id(),
            None,
            "no word of the sender is believed"
        );
        assert!(node.store().manifest().is_none());
        assert!(
            !node.receiver.is_over(),
            "it waits for a sender with its key, or with none"
        );
        let text = passed_over(node)[0];
        let reasons = ["another key", "has no key", "requires a key"];
        let is_told = reasons.iter().any(|reason| text.contains(reason));
        assert!(is_told, "{text}");
    }
}

/// What a sender answers to who greets with a nonce, and then sends what `forge` makes of the
/// greeting.
fn answers(world: &mut World, forge: impl FnOnce(&mut Vec<u8>)) -> ([u8; 16], Vec<u8>) {
    let take = |world: &mut World, time: Duration| -> Vec<u8> {
        world.run_until(time, |_| false);
        let answers = world.fabric.take(7).into_iter();
        answers.flat_map(|(_, data)| data).collect()
    };
    let mut bytes = Vec::new();
    Message::Hello(Hello {
        version_min: 1,
        version_max: 1,
        instance: 1,
        session_id: SESSION,
        name: "r1",
        nonce: Some([9; 16]),
    })
    .emit(&mut bytes);
    let link = world.fabric.dial(7, 0);
    world.fabric.send(7, link, bytes.clone(), false);
    let answer = take(world, Duration::from_millis(10));
    let mut decoder = Decoder::new(HELLO_LEN_MAX);
    decoder.push(&answer);
    let Some(Message::Challenge(Challenge { nonce })) = decoder.next_message().unwrap() else {
        panic!("it asks nobody to show the key");
    };
    forge(&mut bytes);
    world.fabric.send(7, link, bytes, false);
    (nonce, take(world, Duration::from_millis(20)))
}

#[test]
fn a_greeting_that_was_heard_and_is_played_again_gets_no_place() {
    let mut world = world(Some("secret"), Some("secret"), 1);
    // An attacker replays a greeting that it recorded: the tag is that of another connection.
    answers(&mut world, |bytes| {
        wire::object::protect_frame(bytes, 0, |_, _| [3; 16]);
    });
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(refusals(&world), [Refusal::WrongKey]);
    assert_eq!(outcome.receivers.len(), 1);
}

#[test]
fn who_has_not_shown_the_key_gets_nothing_to_test_guesses_of_it_with() {
    let (mut expected, reason) = (Vec::new(), Refusal::WrongKey);
    let text = reason.to_string();
    let text = text.as_str();
    Message::Refused { reason, text }.emit(&mut expected);
    wire::object::protect_frame(&mut expected, 0, |_, _| [0; 16]);
    // A wrong tag, a frame that is too long, one without a tag, and no protocol at all.
    let forgeries: [fn(&mut Vec<u8>); 4] = [
        |bytes| wire::object::protect_frame(bytes, 0, |_, _| [3; 16]),
        |bytes| bytes[..4].copy_from_slice(&513_u32.to_be_bytes()),
        |_| (),
        |bytes| bytes.fill(0xff),
    ];
    for (number, forge) in forgeries.into_iter().enumerate() {
        let mut world = world(Some("secret"), Some("secret"), 1);
        let (_, answer) = answers(&mut world, forge);
        assert_eq!(answer, expected, "{number}");
        assert_eq!(refusals(&world), [reason], "{number}");
    }
    // The nonce shows nothing to who does not know the session's seed.
    let nonces = [1, 2].map(|seed| {
        let mut config = TransferSenderConfig::new(SESSION, 1, seed);
        config.key = Some(Key::derive(b"secret", protection::portable));
        let mut world = World::with(60, 1, tree(), config);
        answers(&mut world, |_| ()).0
    });
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn words_put_into_a_connection_end_it_and_are_not_believed() {
    let mut world = world(Some("secret"), Some("secret"), 2);
    assert!(world.run_until(MINUTE, |world| world.sender.may_send_content()));
    // A message without a tag comes on each protected connection.
    let mut bye = Vec::new();
    Message::Bye.emit(&mut bye);
    let now = world.now;
    for link in (1..12).map(base::LinkId) {
        world.sender.handle_link(now, link, LinkEvent::Data, &bye);
    }
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "they come back: {outcome:#?}");
    world.assert_whole();
    assert!(world.sender.counters().violations > 0);
}
