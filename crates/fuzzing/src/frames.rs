//! Frames whose pieces come from anybody.

use base::Instant;
use delivery::frames::{FrameEvent, FrameReceiver, FrameReceiverConfig};
use wire::object::FrameHeader;

/// Gives a receiver of frames arbitrary payloads, at arbitrary positions and times. Input: packets,
/// each a length, a stream, a step of the position, a step of time in milliseconds, and a payload.
///
/// **Panics**: when a header that was read gives other bytes when it is written again, when
/// something that was due is not done, when a number comes twice or out of order, or when memory
/// grows beyond its bound.
pub fn receiver(data: &[u8]) {
    let mut receiver = FrameReceiver::new(FrameReceiverConfig {
        frame_bytes_max: BYTES_MAX / 4,
        memory_bytes_max: BYTES_MAX,
        streams_max: 2,
    });
    let (mut now, mut position, mut rest) = (Instant::from_nanos(1 << 40), START, data);
    let mut next = [0; STREAMS];
    while let [len, stream, step, time, behind @ ..] = rest {
        let len = usize::from(*len).min(behind.len());
        let (payload, behind) = behind.split_at(len);
        rest = behind;
        if let Ok((header, piece)) = FrameHeader::parse(payload) {
            assert_eq!([&header.to_bytes()[..], piece].concat(), payload);
        }
        position = position.wrapping_add_signed(i64::from(step.cast_signed()));
        now += std::time::Duration::from_millis((*time).into());
        let stream = u32::from(*stream) % STREAMS as u32;
        if *step == 0x80 {
            receiver.close(now, stream);
            take_all(&mut receiver, &mut next);
        }
        receiver.take(now, stream, position, payload);
        while let Some(stream) = receiver.pop_fresh() {
            receiver.begin(stream, START);
        }
        receiver.settle(now);
        take_all(&mut receiver, &mut next);
        assert!(receiver.memory_bytes() <= BYTES_MAX, "memory is bounded");
        let due = receiver.next_timeout();
        assert!(due.is_none_or(|due| due > now), "what was due is done");
        assert!(
            receiver.pop_fresh().is_none(),
            "a stream begins with a packet"
        );
    }
}

/// Takes what is ready, and checks that each number comes once and in order.
fn take_all(receiver: &mut FrameReceiver, next: &mut [u64; STREAMS]) {
    while let Some(event) = receiver.pop() {
        let (stream, first, count) = match event {
            FrameEvent::Whole(frame) => {
                assert!(!frame.data.is_empty() || !frame.format.is_empty());
                (frame.stream, frame.id, 1)
            }
            FrameEvent::Lost {
                stream,
                first,
                count,
                ..
            } => (stream, first, count),
            FrameEvent::Ended { stream, counts } => {
                assert_eq!(counts.whole + counts.lost_all(), counts.frames);
                next[stream as usize] = 0;
                continue;
            }
        };
        let next = &mut next[stream as usize];
        assert!(first >= *next, "numbers come in order, each once");
        *next = first + count;
    }
}

const STREAMS: usize = 3;
const START: u64 = 1 << 32;
const BYTES_MAX: usize = 1 << 16;
