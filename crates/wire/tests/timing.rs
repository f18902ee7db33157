//! How long the hot paths take.
//!
//! `cargo test --release -p towline-wire --test timing -- --nocapture`
//!
//! Prints figures and asserts nothing but results: machines differ. A debug build makes few rounds,
//! which show that the program still runs.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a timing test reads the real clock and prints what it found"
)]

use std::{hint::black_box, time::Instant};

use towline_wire::{
    Sqn, checksum,
    pgm::{Addressing, Body, Data, Flags, Fragment, Gsi, Packet, PgmOption, emit, emit_head},
};

const ADDRESSING: Addressing = Addressing {
    source_port: 4321,
    destination_port: 7500,
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
};

const FRAGMENT: PgmOption<'static> = PgmOption::Fragment(Fragment {
    first: Sqn(7),
    offset: 0,
    apdu_len: 5000,
});

#[test]
fn hot_paths() {
    let body = Body::Odata(Data {
        sqn: Sqn(7),
        trail: Sqn(1),
    });
    let (mut plain, mut fragment) = (Vec::new(), Vec::new());
    emit(&mut plain, &ADDRESSING, &body, &[], &[0x5A; 1400]);
    emit(
        &mut fragment,
        &ADDRESSING,
        &body,
        &[FRAGMENT],
        &[0x5A; 1400],
    );

    measure("parse ODATA", || data_len(black_box(&plain)));
    measure("parse ODATA with OPT_FRAGMENT", || {
        data_len(black_box(&fragment))
    });
    for len in [24, 64, 256, 1400, 8192] {
        let bytes = vec![0xA5; len];
        let mut copy = vec![0; len];
        measure(&format!("checksum {len} B"), || {
            checksum::sum(black_box(&bytes))
        });
        measure(&format!("copy {len} B"), || {
            copy.copy_from_slice(black_box(&bytes));
            black_box(&copy)[0]
        });
        measure(&format!("copy and checksum {len} B"), || {
            checksum::copy_and_sum(black_box(&mut copy), black_box(&bytes))
        });
    }
    let mut head = [0; 64];
    measure("emit ODATA head", || {
        let tsdu = black_box((1400, 12_345));
        emit_head(
            black_box(&mut head),
            &ADDRESSING,
            Flags::NONE,
            black_box(&body),
            &[],
            tsdu,
        );
        head[6]
    });
    measure("emit ODATA head with OPT_FRAGMENT", || {
        let tsdu = black_box((1400, 12_345));
        let options = black_box(&[FRAGMENT]);
        emit_head(
            black_box(&mut head),
            &ADDRESSING,
            Flags::NONE,
            &body,
            options,
            tsdu,
        );
        head[6]
    });
}

fn data_len(bytes: &[u8]) -> usize {
    let packet = Packet::parse(bytes).expect("a valid packet");
    let fragments = packet.options().count();
    match packet.body() {
        Body::Odata(data) => data.sqn.0 as usize + packet.tsdu_range().start + fragments,
        _ => 0,
    }
}

fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    const ROUNDS: u32 = if cfg!(debug_assertions) { 20 } else { 200_000 };
    let mut best_ns = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(work());
        }
        best_ns = best_ns.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
    }
    println!("{name:40} {best_ns:8.1} ns");
}
