//! Messages of measurements.

use measure::{Beacon, CLOCK_BYTES, ClockWord, Probe, ProbeKind};

/// Reads any bytes as a message of a measurement. An answer must be as long as its question, and
/// must not be answered itself. A clock report that can be read must be the same when it is written
/// again.
///
/// **Panics**: when one of these conditions fails.
pub fn message(bytes: &[u8]) {
    let mut answer = bytes.to_vec();
    if let Some(asked) = Probe::answer(&mut answer) {
        assert_eq!(
            answer.len(),
            bytes.len(),
            "an answer has its question's size"
        );
        assert_eq!(Probe::answer(&mut answer.clone()), None, "answers end here");
        if asked.kind == ProbeKind::Clock {
            let word = ClockWord {
                is_synchronised: true,
                received_ns: asked.token >> 1 & NS_MASK,
                sent_ns: asked.token >> 1 & NS_MASK,
                ..ClockWord::default()
            };
            word.put(&mut answer);
            let told = ClockWord::parse(&answer).expect("what was put is read");
            assert_eq!(told.1, word, "as it was put");
        }
    } else {
        assert_eq!(answer, bytes, "what asks for nothing is left alone");
    }
    if let Some((_, word)) = ClockWord::parse(bytes) {
        let mut again = bytes.to_vec();
        word.put(&mut again);
        assert_eq!(again[32..CLOCK_BYTES], bytes[32..CLOCK_BYTES]);
        assert!(word.sent_ns >= word.received_ns, "it is sound");
    }
}

/// Reads any bytes as a beacon. What is read is bounded, has no control characters, and is the same
/// when it is written again.
///
/// **Panics**: when one of these conditions fails.
pub fn beacon(bytes: &[u8]) {
    let Some(beacon) = Beacon::parse(bytes) else {
        return;
    };
    assert!(beacon.heard.len() <= Beacon::HEARD_MAX);
    let refusal = beacon.refusal.as_deref().unwrap_or_default();
    for text in [&beacon.name, &beacon.interface, refusal] {
        assert!(text.len() <= 512, "a line of a report");
        assert!(text.chars().all(base::text::is_plain), "no commands");
    }
    let is_named = beacon.heard.contains(&beacon.token);
    let is_known = is_named || !beacon.is_cut;
    assert_eq!(beacon.hears(beacon.token), is_known.then_some(is_named));
    assert_eq!(Beacon::parse(&beacon.emit()).as_ref(), Some(&beacon));
}

/// Cuts arbitrary times down to times that a clock report may hold.
const NS_MASK: u64 = (1 << 61) - 1;
