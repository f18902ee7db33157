//! A source against the naive model, with lists of operations that are likelier than any bytes.

use proptest::prelude::*;
use towline_fuzzing::pgm::{SourceOp, SourcePlan, source_ops};

fn op() -> impl Strategy<Value = SourceOp> {
    prop_oneof![
        4 => (0_u16..2100).prop_map(SourceOp::Offer),
        4 => (0_u16..120).prop_map(SourceOp::Offer),
        2 => (0_u16..600, any::<bool>()).prop_map(|(len, commit)| SourceOp::Reserve(len, commit)),
        2 => (0_u16..300, 0_u8..12, 0_u8..14).prop_map(|(len, n, k)| SourceOp::Burst(len, n, k)),
        8 => (0_u8..20, any::<u16>(), any::<u8>())
            .prop_map(|(datagrams, bytes, taken)| SourceOp::Send(datagrams, bytes, taken)),
        1 => any::<u8>().prop_map(SourceOp::Refuse),
        5 => (0_u16..60, proptest::collection::vec(any::<u8>(), 0..62))
            .prop_map(|(behind, steps)| SourceOp::Nak(behind, steps)),
        5 => (1_u16..20, proptest::collection::vec(0_u8..1, 0..6))
            .prop_map(|(behind, steps)| SourceOp::Nak(behind, steps)),
        1 => Just(SourceOp::Spmr),
        4 => (0_u16..9000).prop_map(SourceOp::Wait),
        4 => Just(SourceOp::WaitDue),
        1 => (0_u16..40).prop_map(SourceOp::Hold),
        1 => (0_u16..2000).prop_map(SourceOp::Rate),
        1 => proptest::collection::vec(any::<u8>(), 0..80).prop_map(SourceOp::Noise),
    ]
}

fn plan() -> impl Strategy<Value = SourcePlan> {
    let first = prop_oneof![
        Just(0_u32),
        (0_u32..40).prop_map(|back| u32::MAX - back),
        (0_u32..40).prop_map(|back| (1 << 31) - back),
        any::<u32>(),
    ];
    let config = (
        any::<u8>(),
        any::<u8>(),
        prop_oneof![Just(0_u16), any::<u16>()],
    )
        .prop_map(|(size, flags, rate)| SourcePlan::config(size, flags, rate));
    let close = prop_oneof![3 => Just(false), 1 => Just(true)];
    let ops = proptest::collection::vec(op(), 0..250);
    (first, config, ops, close).prop_map(|(first_sqn, config, mut ops, close)| {
        if close {
            let at = ops.len() / 2;
            ops.insert(at, SourceOp::Close);
        }
        SourcePlan {
            first_sqn,
            config,
            ops,
        }
    })
}

proptest! {
    #[test]
    fn a_source_agrees_with_the_naive_model(plan in plan()) {
        plan.play();
    }

    #[test]
    fn arbitrary_bytes_make_a_plan(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        source_ops(&data);
    }
}
