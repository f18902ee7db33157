//! What ZeroMQ puts into PGM packets: a stream of frames, and in front of each packet where its
//! first new message begins.
//!
//! ```text
//!   packet   u16 offset of the first frame that begins here, or 0xFFFF | bytes of the stream
//!   frame    length (u8, or 0xFF and u64) of what follows | flags | message
//! ```

use super::{
    cell::{Cell, Scale, Story},
    peer::Outcome,
};

/// The packets of `count` numbered messages of `size` bytes.
pub(super) fn packets(count: u32, size: usize) -> Vec<Vec<u8>> {
    let (mut stream, mut begins) = (Vec::new(), Vec::new());
    for number in 0..u64::from(count) {
        begins.push(stream.len());
        let len = size + 1;
        match u8::try_from(len) {
            Ok(len @ ..=0xFE) => stream.push(len),
            _ => {
                stream.push(0xFF);
                stream.extend((len as u64).to_be_bytes());
            }
        }
        stream.push(0);
        stream.extend(number.to_le_bytes());
        stream.resize(stream.len() + size - 8, 0);
    }
    let mut begins = begins.into_iter().peekable();
    let mut packets = Vec::new();
    for (number, piece) in stream.chunks(PIECE_BYTES).enumerate() {
        let start = number * PIECE_BYTES;
        let first = begins.peek().filter(|&&begin| begin < start + piece.len());
        let offset = first.map_or(NONE, |begin| (begin - start) as u16);
        while begins
            .next_if(|&begin| begin < start + piece.len())
            .is_some()
        {}
        packets.push([&offset.to_be_bytes(), piece].concat());
    }
    packets
}

/// Reads what `sub --framing length` printed of a publisher's packets.
pub(super) fn judge(mut bytes: &[u8], cell: Cell, scale: Scale) -> Outcome {
    let mut stream = Vec::new();
    let mut is_begun = false;
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let (packet, behind) = rest.split_at(u32::from_be_bytes(*len) as usize);
        let (offset, piece) = packet.split_first_chunk::<2>().unwrap();
        let offset = u16::from_be_bytes(*offset);
        match offset {
            _ if is_begun => stream.extend(piece),
            NONE => {}
            // A late one begins with the first message that begins.
            offset => stream.extend(&piece[usize::from(offset)..]),
        }
        is_begun |= offset != NONE;
        bytes = behind;
    }
    let numbers = numbers(&stream);
    let first = numbers.first().copied().unwrap_or(0);
    let count = u64::from(scale.count);
    let expected: Vec<u64> = match cell.story {
        Story::Plain => (0..count).collect(),
        Story::LateJoin => (first..count).collect(),
        Story::Restart => (0..count).chain(0..count).collect(),
    };
    let fault = (numbers != expected).then(|| {
        let same = numbers.iter().zip(&expected).take_while(|(a, b)| a == b);
        let at = same.count();
        let (got, due) = (numbers.get(at), expected.get(at));
        format!("numbers from {first}: at place {at} {got:?} instead of {due:?}")
    });
    Outcome {
        bytes_per_s: 0.0,
        received: numbers.len() as u32,
        fault,
    }
}

/// The numbers of the messages in a stream, without the messages that say that it ends.
fn numbers(mut stream: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some((&short, rest)) = stream.split_first() {
        let (len, rest) = match (short, rest.split_first_chunk::<8>()) {
            (0xFF, Some((len, rest))) => (u64::from_be_bytes(*len) as usize, rest),
            _ => (usize::from(short), rest),
        };
        let Some((frame, behind)) = rest.split_at_checked(len) else {
            break;
        };
        if let Some((number, _)) = frame[1..].split_first_chunk::<8>() {
            numbers.push(u64::from_le_bytes(*number));
        }
        stream = behind;
    }
    numbers
}

/// No message begins in this packet.
const NONE: u16 = 0xFFFF;
const PIECE_BYTES: usize = 1_380;
