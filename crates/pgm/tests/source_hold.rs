//! A source whose transmit window is smaller than its flow window: who waits for whom.

mod source_kit;

use source_kit::Bench;
use towline_pgm::Full;

#[test]
fn a_full_window_waits_for_receivers_though_all_of_it_was_sent() {
    let mut bench = Bench::set(&[("tx_window_sqns", "64")]);
    let first = bench.source.lead();
    bench.source.set_hold(Some(first + 3));
    while bench.source.offer(&[1; 10]).is_ok() {
        bench.drain();
    }
    assert_eq!(bench.source.unsent(), bench.source.lead());
    assert!(bench.source.is_held());
    bench.source.set_hold(Some(first + 4));
    assert!(!bench.source.is_held());
    assert!(bench.source.offer(&[1; 10]).is_ok());
    bench.drain();
    assert!(!bench.source.is_held(), "nothing was refused since");
    assert_eq!(bench.source.offer(&[1; 10]), Err(Full::Window));
    assert!(bench.source.is_held());
    bench.source.set_hold(None);
    assert!(!bench.source.is_held());
}
