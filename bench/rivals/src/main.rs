//! The erasure code beside two crates that people use: 64 packets of 1400 bytes, 8 of them lost.
//!
//! A workspace of its own, which `make bench` alone builds: whoever works on Towline compiles no
//! rival. In: how many pairs. Out: a line for each run, which `crates/bench` makes tables of: what
//! was done, by whom, bytes of payload, seconds.
//!
//! One thread, the same group again and again, in the caches as a group that was just sent or
//! received is. The group's 64 packets count once, whatever the work, and the seconds are the
//! thread's CPU time, so that other programs on the machine count little. Results are checked as
//! they come.
#![forbid(unsafe_code)]

use std::{fs, process::ExitCode};

use pgm::fec::{Code, Combine, Decoder, Encoder};
use reed_solomon_erasure::galois_8::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

fn main() -> ExitCode {
    let pairs = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(pairs) = pairs else {
        eprintln!("usage: rivals PAIRS");
        return ExitCode::from(2);
    };
    match run(pairs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("rivals: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Everybody's encoding and decoding in turn, `pairs` times.
fn run(pairs: usize) -> Result<(), String> {
    let group = Group::new();
    print_runs("encode", encoders(&group)?, pairs)?;
    print_runs("decode", decoders(&group)?, pairs)
}

/// A peer's name, and what it does to the group once: true when the result was right.
type Row<'a> = (String, Box<dyn FnMut() -> bool + 'a>);

fn encoders(group: &Group) -> Result<Vec<Row<'_>>, String> {
    let (fastest, again, level) = ours();
    Ok(vec![
        (fastest, ours_encode(group, level.combine())),
        (ERASURE.to_owned(), erasure_encode(group)?),
        (SIMD.to_owned(), simd_encode(group)?),
        (PORTABLE.to_owned(), ours_encode(group, pgm::fec::combine)),
        (again, ours_encode(group, level.combine())),
    ])
}

fn decoders(group: &Group) -> Result<Vec<Row<'_>>, String> {
    let (fastest, again, level) = ours();
    Ok(vec![
        (fastest, ours_decode(group, level.combine())),
        (ERASURE.to_owned(), erasure_decode(group)?),
        (SIMD.to_owned(), simd_decode(group)?),
        (PORTABLE.to_owned(), ours_decode(group, pgm::fec::combine)),
        (again, ours_decode(group, level.combine())),
    ])
}

/// The names of our fastest kernels' first and second row, and these kernels.
fn ours() -> (String, String, simd::gf256::Level) {
    let level = simd::gf256::Level::best();
    let name = format!("towline ({})", level.name());
    (name.clone(), format!("{name} (again)"), level)
}

fn print_runs(work: &str, mut rows: Vec<Row<'_>>, pairs: usize) -> Result<(), String> {
    for _ in 0..pairs {
        for (name, once) in &mut rows {
            let (start, mut groups, mut seconds) = (cpu_seconds()?, 0, 0.0);
            while seconds < RUN_SECONDS {
                for _ in 0..GROUPS_BETWEEN_CLOCKS {
                    if !once() {
                        return Err(format!("{name}: wrong bytes"));
                    }
                }
                groups += GROUPS_BETWEEN_CLOCKS;
                seconds = cpu_seconds()? - start;
            }
            let bytes = groups * PACKETS * PACKET_BYTES;
            println!("{work}\t{name}\t{bytes}\t{seconds}");
        }
    }
    Ok(())
}

/// What this thread has had of a processor; the kernel brings it up to date every few milliseconds.
fn cpu_seconds() -> Result<f64, String> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds
        .map(|nanoseconds| nanoseconds / 1e9)
        .ok_or(format!("{path}: no number"))
}

fn ours_encode(group: &Group, combine: Combine) -> Box<dyn FnMut() -> bool + '_> {
    let code = group.code.clone();
    let mut encoder = Encoder::new(combine, LOST, PACKET_BYTES);
    let indexes: Vec<usize> = (0..LOST).collect();
    let packets = group.packets();
    Box::new(move || {
        let parities = encoder.encode(&code, &packets, &indexes);
        group.is_sampled(parities.payloads().next(), &group.parities[0])
    })
}

fn ours_decode(group: &Group, combine: Combine) -> Box<dyn FnMut() -> bool + '_> {
    let code = group.code.clone();
    let mut decoder = Decoder::new(combine, LOST, PACKET_BYTES);
    let parities: Vec<(usize, &[u8])> = group
        .parities
        .iter()
        .map(Vec::as_slice)
        .enumerate()
        .collect();
    let packets = group.packets();
    let mut turn = 0;
    Box::new(move || {
        turn += 1;
        let mut there: Vec<Option<&[u8]>> = packets.iter().map(|&packet| Some(packet)).collect();
        for lost in lost(turn) {
            there[lost] = None;
        }
        let Ok(recovered) = decoder.decode(&code, &there, &parities, false) else {
            return false;
        };
        let mut members = recovered.members();
        let first = members.next();
        first.is_some_and(|(at, payload)| group.is_sampled(Some(payload), packets[at]))
    })
}

fn erasure_encode(group: &Group) -> Result<Box<dyn FnMut() -> bool + '_>, String> {
    let code = ReedSolomon::new(PACKETS, LOST).map_err(|error| error.to_string())?;
    let packets = group.packets();
    let mut parities = vec![vec![0; PACKET_BYTES]; LOST];
    code.encode_sep(&packets, &mut parities)
        .map_err(|error| error.to_string())?;
    let expected = parities[0].clone();
    Ok(Box::new(move || {
        let is_done = code.encode_sep(&packets, &mut parities).is_ok();
        is_done && group.is_sampled(Some(&parities[0]), &expected)
    }))
}

fn erasure_decode(group: &Group) -> Result<Box<dyn FnMut() -> bool + '_>, String> {
    let code = ReedSolomon::new(PACKETS, LOST).map_err(|error| error.to_string())?;
    let packets = group.packets();
    let mut parities = vec![vec![0; PACKET_BYTES]; LOST];
    code.encode_sep(&packets, &mut parities)
        .map_err(|error| error.to_string())?;
    let all = packets.iter().map(|packet| packet.to_vec()).chain(parities);
    let mut shards: Vec<(Vec<u8>, bool)> = all.map(|shard| (shard, true)).collect();
    let mut turn = 0;
    Ok(Box::new(move || {
        turn += 1;
        for (_, is_there) in &mut shards {
            *is_there = true;
        }
        for at in lost(turn) {
            shards[at] = (std::mem::take(&mut shards[at].0), false);
            shards[at].0[0] ^= 0xFF;
        }
        let first = lost(turn)[0];
        code.reconstruct_data(&mut shards).is_ok()
            && group.is_sampled(Some(&shards[first].0), packets[first])
    }))
}

fn simd_encode(group: &Group) -> Result<Box<dyn FnMut() -> bool + '_>, String> {
    let mut encoder =
        ReedSolomonEncoder::new(PACKETS, LOST, PACKET_BYTES).map_err(|error| error.to_string())?;
    let expected = simd_parities(group)?;
    let packets = group.packets();
    Ok(Box::new(move || {
        let are_taken = packets
            .iter()
            .all(|packet| encoder.add_original_shard(packet).is_ok());
        let Ok(result) = encoder.encode() else {
            return false;
        };
        are_taken && group.is_sampled(result.recovery(0), &expected[0])
    }))
}

fn simd_parities(group: &Group) -> Result<Vec<Vec<u8>>, String> {
    let mut encoder =
        ReedSolomonEncoder::new(PACKETS, LOST, PACKET_BYTES).map_err(|error| error.to_string())?;
    for packet in group.packets() {
        encoder
            .add_original_shard(packet)
            .map_err(|error| error.to_string())?;
    }
    let result = encoder.encode().map_err(|error| error.to_string())?;
    Ok(result.recovery_iter().map(<[u8]>::to_vec).collect())
}

fn simd_decode(group: &Group) -> Result<Box<dyn FnMut() -> bool + '_>, String> {
    let mut decoder =
        ReedSolomonDecoder::new(PACKETS, LOST, PACKET_BYTES).map_err(|error| error.to_string())?;
    let parities = simd_parities(group)?;
    let packets = group.packets();
    let mut turn = 0;
    Ok(Box::new(move || {
        turn += 1;
        let lost = lost(turn);
        let mut are_taken = true;
        for (at, packet) in packets.iter().enumerate() {
            if !lost.contains(&at) {
                are_taken &= decoder.add_original_shard(at, packet).is_ok();
            }
        }
        for (at, parity) in parities.iter().enumerate() {
            are_taken &= decoder.add_recovery_shard(at, parity).is_ok();
        }
        let Ok(result) = decoder.decode() else {
            return false;
        };
        are_taken && group.is_sampled(result.restored_original(lost[0]), packets[lost[0]])
    }))
}

/// A group of packets of one length, laid out as in the transmit log, and our parity packets.
struct Group {
    code: Code,
    log: Vec<u8>,
    parities: Vec<Vec<u8>>,
}

impl Group {
    fn new() -> Self {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let log = (0..PACKETS * RECORD_BYTES).map(|_| next()).collect();
        let code = Code::new(PACKETS).expect("64 is a power of two");
        let mut group = Self {
            code,
            log,
            parities: Vec::new(),
        };
        let mut encoder = Encoder::new(pgm::fec::combine, LOST, PACKET_BYTES);
        let indexes: Vec<usize> = (0..LOST).collect();
        let parities = encoder.encode(&group.code, &group.packets(), &indexes);
        let parities = parities.payloads().map(<[u8]>::to_vec).collect();
        group.parities = parities;
        group
    }

    fn packets(&self) -> Vec<&[u8]> {
        self.log
            .chunks(RECORD_BYTES)
            .map(|record| &record[RECORD_BYTES - PACKET_BYTES..])
            .collect()
    }

    /// Whether a result is what it should be, by its ends: comparing all would be timed with it.
    #[expect(clippy::unused_self, reason = "reads as a question to the group")]
    fn is_sampled(&self, result: Option<&[u8]>, expected: &[u8]) -> bool {
        result.is_some_and(|result| {
            result.len() == expected.len()
                && result.first_chunk::<16>() == expected.first_chunk()
                && result.last_chunk::<16>() == expected.last_chunk()
        })
    }
}

/// Which packets are lost: another pattern in every turn.
fn lost(turn: usize) -> [usize; LOST] {
    std::array::from_fn(|at| {
        at * (PACKETS / LOST) + (turn * (at + 3) + turn / 8) % (PACKETS / LOST)
    })
}

const ERASURE: &str = "reed-solomon-erasure (simd-accel)";
const SIMD: &str = "reed-solomon-simd";
const PORTABLE: &str = "towline (portable)";
const PACKETS: usize = 64;
const LOST: usize = 8;
const PACKET_BYTES: usize = 1400;
const RECORD_BYTES: usize = 24 + PACKET_BYTES;
/// Long beside the kernel's accounting, which lags by a tick.
const RUN_SECONDS: f64 = 0.2;
const GROUPS_BETWEEN_CLOCKS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_encodes_and_recovers_the_right_bytes() {
        let group = Group::new();
        let all = [encoders(&group), decoders(&group)];
        for (name, mut once) in all.into_iter().flat_map(Result::unwrap) {
            for turn in 0..10 {
                assert!(once(), "{name}, turn {turn}");
            }
        }
    }
}
