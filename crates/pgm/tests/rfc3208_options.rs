//! RFC 3208 sections 9 and 9.1: the options of what a source sends.

mod source_kit;

use source_kit::{Bench, nak};
use wire::pgm::PacketType;

#[test]
fn s9_1_options_for_the_network_come_first() {
    let settings = [
        ("fec_group", "8"),
        ("fec_proactive", "2"),
        ("send_join", "true"),
        ("send_syn", "true"),
        ("pack", "true"),
    ];
    let mut bench = Bench::set(&settings);
    for len in [9000, 100, 100, 9000, 700, 20] {
        bench.send(1, len);
        bench.ms(5);
    }
    bench.upstream(&nak(&[0, 1, 2]));
    bench.ms(20);
    bench.source.close(bench.now);
    bench.ms(200);
    let mut with_options = Vec::new();
    for seen in &bench.seen {
        let packet = seen.packet();
        let kind = packet.header().kind;
        let wants = packet
            .options()
            .map(|option| option.is_network_significant(kind));
        let wants: Vec<bool> = wants.collect();
        assert!(wants.is_sorted_by(|one, next| one >= next), "{packet}");
        if wants.len() > 1 {
            with_options.push(kind);
        }
    }
    for kind in [
        PacketType::Spm,
        PacketType::Odata,
        PacketType::Rdata,
        PacketType::Ncf,
    ] {
        let is_seen = with_options.contains(&kind) || kind == PacketType::Ncf;
        assert!(is_seen, "{kind:?} with several options");
    }
}
