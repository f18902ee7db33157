//! Serial arithmetic against 64-bit and 128-bit arithmetic that cannot wrap.

use proptest::prelude::*;
use towline_wire::Sqn;

/// Positions of interest are near the edges of 32 and 64 bits and anywhere else.
fn positions() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1 << 31,
        1 << 32,
        (1 << 32) + (1 << 31),
        1 << 48,
        u64::MAX,
    ];
    let near_an_edge = (prop::sample::select(edges.to_vec()), -9_i64..9)
        .prop_map(|(edge, step)| edge.checked_add_signed(step).unwrap_or(edge));
    prop_oneof![any::<u64>(), near_an_edge, any::<u32>().prop_map(u64::from)]
}

/// Tries the three positions with these low 32 bits around `near` and takes the nearest one.
fn naive_extend(sqn: Sqn, near: u64) -> u64 {
    let turn = 1_i128 << 32;
    let base = i128::from(near) / turn * turn + i128::from(sqn.0);
    let exists = |position: &i128| u64::try_from(*position).is_ok();
    // The lower position comes first, so that it wins where two are equally near.
    let nearest = [base - turn, base, base + turn]
        .into_iter()
        .filter(exists)
        .min_by_key(|position| (position - i128::from(near)).abs());
    nearest
        .and_then(|position| u64::try_from(position).ok())
        .expect("one of three neighbours exists")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn extension_is_the_nearest_position(low in positions(), near in positions()) {
        let sqn = Sqn::of(low);
        let position = sqn.extend(near);
        prop_assert_eq!(position, naive_extend(sqn, near));
        prop_assert_eq!(Sqn::of(position), sqn);
    }

    #[test]
    fn a_position_within_reach_is_found_again(near in positions(), step in any::<i32>()) {
        if let Some(position) = near.checked_add_signed(i64::from(step)) {
            prop_assert_eq!(Sqn::from(position).extend(near), position);
        }
    }

    #[test]
    fn order_is_that_of_positions(at in positions(), step in 1_u32..1 << 31) {
        let (early, late) = (Sqn::of(at), Sqn::of(at) + step);
        prop_assert!(early.is_before(late) && late.is_after(early));
        prop_assert!(!early.is_after(late) && !late.is_before(early));
        prop_assert_eq!(late.distance_from(early), i32::try_from(step).unwrap());
        prop_assert_eq!(early.distance_from(late), -i32::try_from(step).unwrap());
        prop_assert_eq!(late - step, early);
    }

    #[test]
    fn at_most_one_of_before_equal_after(a in any::<u32>(), b in any::<u32>()) {
        let (a, b) = (Sqn(a), Sqn(b));
        let holds = [a.is_before(b), a == b, a.is_after(b)];
        let count = holds.iter().filter(|&&is_true| is_true).count();
        let is_opposite = a.0.wrapping_sub(b.0) == 1 << 31;
        prop_assert_eq!(count, usize::from(!is_opposite));
        prop_assert_eq!(a.is_before(b), b.is_after(a));
    }

    #[test]
    fn steps_add_up(at in any::<u32>(), a in any::<u32>(), b in any::<u32>()) {
        prop_assert_eq!(Sqn(at) + a + b, Sqn(at) + a.wrapping_add(b));
        prop_assert_eq!(Sqn(at).next(), Sqn(at) + 1);
        prop_assert_eq!(Sqn(at).next().previous(), Sqn(at));
    }
}
