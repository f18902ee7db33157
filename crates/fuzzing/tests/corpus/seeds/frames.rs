//! Frames of one to three pieces: whole, with a piece missing, out of order, and the end.

use std::time::Duration;

use delivery::frames::{FrameSender, FrameSenderConfig};

use super::write;

/// Bytes of a packet, so that a piece has 256 bytes at least; a length of the input has 8 bits.
const PACKET_BYTES: usize = 296;

pub(super) fn write_all() {
    let mut sender = FrameSender::new(FrameSenderConfig {
        interval: Duration::from_millis(20),
        deadline: Duration::from_millis(40),
        format: b"2x2".to_vec(),
    });
    let small = |sender: &FrameSender, time| packets(sender, time, 100);
    let first = small(&sender, 0);
    sender.taken(100);
    let second = small(&sender, 20_000_000);
    sender.taken(100);
    sender.overrun();
    let fourth = small(&sender, 60_000_000);
    sender.taken(100);
    let end = sender.end().to_vec();
    let seed = |steps: &[(u8, u8, &[u8])]| {
        let packets = steps.iter().map(|&(step, time, payload)| {
            let head = [payload.len() as u8, 0, step, time];
            [&head[..], payload].concat()
        });
        packets.collect::<Vec<_>>().concat()
    };
    write(
        "delivery_frames",
        "whole",
        &seed(&[
            (0, 0, &first),
            (1, 20, &second),
            (1, 40, &fourth),
            (1, 1, &end),
        ]),
    );
    write(
        "delivery_frames",
        "lost",
        &seed(&[
            (0, 0, &first),
            (2, 60, &fourth),
            (1, 40, &end),
            (0x80, 1, &end),
        ]),
    );
    write(
        "delivery_frames",
        "late",
        &seed(&[(0, 0, &first), (1, 90, &second), (1, 0, &fourth)]),
    );
}

/// The only piece of a frame of `len` bytes.
fn packets(sender: &FrameSender, timestamp_ns: u64, len: usize) -> Vec<u8> {
    let pieces = sender
        .next(timestamp_ns, len, PACKET_BYTES)
        .expect("it can be cut");
    let mut payload = vec![0; pieces.last_len()];
    pieces.fill(0, &mut payload, |_, room| room.fill(7));
    payload
}
