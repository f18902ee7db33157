//! `parse(emit(x)) == x` and `emit(parse(b)) == b`.

use proptest::prelude::*;
use towline_wire::{
    checksum,
    pgm::{ChecksumState, Flags, Packet, emit_head, head_len, verify_checksum},
};

use crate::packets::packets;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn what_is_emitted_parses_to_the_same(parts in packets()) {
        let bytes = parts.emit();
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(verify_checksum(&bytes), ChecksumState::Good);
        prop_assert_eq!(packet.body(), parts.body);
        prop_assert_eq!(packet.tsdu(), &parts.tsdu[..]);
        prop_assert_eq!(packet.options().collect::<Vec<_>>(), parts.options());
        let header = packet.header();
        prop_assert_eq!(header.source_port, parts.addressing.source_port);
        prop_assert_eq!(header.destination_port, parts.addressing.destination_port);
        prop_assert_eq!(header.gsi, parts.addressing.gsi);
        prop_assert_eq!(usize::from(header.tsdu_len), parts.tsdu.len());
        prop_assert!(header.flags.contains(parts.flags));
        prop_assert_eq!(header.flags.contains(Flags::PRESENT), !parts.options.is_empty());
    }

    #[test]
    fn what_was_parsed_is_emitted_the_same(parts in packets()) {
        let bytes = parts.emit();
        let mut again = Vec::new();
        Packet::parse(&bytes).unwrap().emit(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn a_head_before_data_in_place_makes_the_same_packet(parts in packets()) {
        let options = parts.options();
        let len = head_len(&parts.body, &options);
        let mut bytes = vec![0xEE; len];
        bytes.extend(&parts.tsdu);
        let tsdu = (u16::try_from(parts.tsdu.len()).unwrap(), checksum::sum(&parts.tsdu));
        let (to, flags) = (&parts.addressing, parts.flags);
        emit_head(&mut bytes, to, flags, &parts.body, &options, tsdu);
        prop_assert_eq!(bytes, parts.emit());
    }
}
