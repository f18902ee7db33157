//! Transfers where both ends have a key, where only one end has one, or where another host
//! interferes.

use base::LinkEvent;
use wire::object::{Decoder, HELLO_LEN_MAX, Hello, Message, Refusal};

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

#[test]
fn a_greeting_that_was_heard_and_is_played_again_gets_no_place() {
    let mut world = world(Some("secret"), Some("secret"), 1);
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
    // An attacker replays a greeting that it recorded: the tag is that of another connection.
    let link = world.fabric.dial(7, 0);
    world.fabric.send(7, link, bytes.clone(), false);
    world.run_until(Duration::from_millis(10), |_| false);
    let answer: Vec<u8> = world
        .fabric
        .take(7)
        .into_iter()
        .flat_map(|(_, data)| data)
        .collect();
    let mut decoder = Decoder::new(HELLO_LEN_MAX);
    decoder.push(&answer);
    let challenge = decoder.next_message().unwrap();
    assert!(matches!(challenge, Some(Message::Challenge(_))));
    wire::object::protect_frame(&mut bytes, 0, |_, _| [3; 16]);
    world.fabric.send(7, link, bytes, false);
    world.run_until(Duration::from_millis(20), |_| false);
    // What it gets depends on no key, so no guess can be held against it.
    let answer: Vec<u8> = world
        .fabric
        .take(7)
        .into_iter()
        .flat_map(|(_, data)| data)
        .collect();
    let (mut expected, reason) = (Vec::new(), Refusal::WrongKey);
    let text = reason.to_string();
    let text = text.as_str();
    Message::Refused { reason, text }.emit(&mut expected);
    wire::object::protect_frame(&mut expected, 0, |_, _| [0; 16]);
    assert_eq!(answer, expected);
    let outcome = world.run(MINUTE);
    assert!(outcome.is_proven(), "{outcome:#?}");
    assert_eq!(refusals(&world), [Refusal::WrongKey]);
    assert_eq!(outcome.receivers.len(), 1);
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
