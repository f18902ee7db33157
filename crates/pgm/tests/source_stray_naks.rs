//! NAKs that ask for what exists and for what does not.

mod source_kit;

use base::Verdict;
use source_kit::Bench;
use wire::{
    Sqn,
    pgm::{Body, PacketType},
};

#[test]
fn s5_2_a_nak_in_part_for_data_never_sent_is_served_for_the_rest() {
    let mut bench = Bench::new();
    bench.send(5, 100);
    bench.ms(100);
    bench.forget();
    assert_eq!(bench.nak(&[2, 4, 5, 6]), Verdict::Control);
    bench.drain();
    assert_eq!(bench.sqns(PacketType::Rdata), [2, 4]);
    let Body::Ncf(ncf) = bench.seen[0].packet().body() else {
        panic!("no NCF");
    };
    assert_eq!(ncf.sqn, Sqn(2));
    assert_eq!(bench.source.counters().nak_beyond, 2);
    // The first of the list may be the one that does not exist.
    bench.ms(100);
    bench.forget();
    assert_eq!(bench.nak(&[6, 1]), Verdict::Control);
    bench.drain();
    assert_eq!(bench.sqns(PacketType::Rdata), [1]);
}
