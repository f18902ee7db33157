use std::time::Duration;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn timing() -> Timing {
    let mut timing = Timing::new(&crate::Config::default());
    (timing.back_off_min, timing.back_off_max) = (MS, 2 * MS);
    (timing.wait_ncf, timing.wait_data) = (10 * MS, 20 * MS);
    (timing.ncf_tries_max, timing.data_tries_max) = (3, 2);
    timing.repair_time_max = MS;
    timing.scan_interval = Duration::from_micros(50);
    timing
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn ranges(gaps: &Gaps) -> Vec<(u64, u64, NakState)> {
    let list = gaps.list.iter();
    list.map(|gap| (gap.first, gap.end, gap.state)).collect()
}

/// Makes the gaps in `list` (each `first..end`), all found at 0 ms and due at 2 ms.
fn gaps(list: &[(u64, u64)]) -> Gaps {
    let mut gaps = Gaps::new(100);
    for &(first, end) in list {
        assert!(gaps.open(first, end, at(0), at(2)));
    }
    gaps
}

fn expire_within(gaps: &mut Gaps, now: Instant, budget: u64, limit: u64) -> (Vec<(u64, u64)>, u64) {
    let mut asked = Vec::new();
    let mut request = Request {
        ranges: &mut asked,
        budget_sqns: budget,
        end: limit,
        next: 0,
        fresh: None,
        is_starved: false,
        rest: Duration::ZERO,
    };
    let lost = gaps.expire(now, &timing(), &mut Rng::new(1), &mut request);
    (asked, lost)
}

fn expire(gaps: &mut Gaps, now: Instant) -> (Vec<(u64, u64)>, u64) {
    expire_within(gaps, now, 1000, u64::MAX)
}

#[test]
fn filling_shrinks_splits_and_removes() {
    use NakState::BackOff;
    let mut gaps = gaps(&[(10, 15), (20, 21)]);
    assert_eq!(gaps.locate(9), None);
    assert_eq!(gaps.locate(15), None);
    for position in [10, 14, 12, 20] {
        let index = gaps.locate(position).unwrap();
        gaps.fill(index, position);
        assert_eq!(gaps.locate(position), None);
    }
    assert_eq!(ranges(&gaps), [(11, 12, BackOff), (13, 14, BackOff)]);
    assert_eq!(gaps.missing(), 2);
}

#[test]
fn on_a_long_way_the_last_few_before_a_pause_are_asked_for_more_often() {
    let mut timing = timing();
    timing.wait_ncf = 200 * MS;
    let due = |end, next| {
        let mut gaps = gaps(&[(10, end)]);
        let mut request = Request {
            ranges: &mut Vec::new(),
            budget_sqns: 1000,
            end: u64::MAX,
            next,
            fresh: None,
            is_starved: false,
            rest: Duration::ZERO,
        };
        gaps.expire(at(2), &timing, &mut Rng::new(1), &mut request);
        gaps.list[0].due
    };
    assert_eq!(due(11, 11), at(62));
    assert_eq!(due(11, 12), at(202), "others came after it");
    assert_eq!(due(18, 18), at(62));
    assert_eq!(due(19, 19), at(202), "too many to be repaired twice");
}

#[test]
fn a_gap_of_half_the_number_space_costs_one_range() {
    let mut gaps = gaps(&[(10, 1 << 31)]);
    assert_eq!(gaps.list.len(), 1);
    let (asked, _) = expire_within(&mut gaps, at(3), 100, u64::MAX);
    assert_eq!(asked, [(10, 110)]);
    assert_eq!(gaps.list.len(), 2);
    assert_eq!(gaps.lose_before(1 << 30), (1 << 30) - 10);
    assert!(gaps.list.len() <= 2);
}

#[test]
fn a_gap_that_grows_shares_its_timer_until_it_was_asked_for() {
    let mut gaps = gaps(&[(10, 12), (12, 15)]);
    assert_eq!(gaps.list.len(), 1);
    expire(&mut gaps, at(3));
    assert!(gaps.open(15, 16, at(3), at(4)));
    assert_eq!(gaps.list.len(), 2);
}

#[test]
fn at_the_bound_only_the_edges_of_gaps_can_be_filled() {
    let mut gaps = Gaps::new(2);
    assert!(gaps.open(10, 15, at(0), at(2)));
    assert!(gaps.open(20, 25, at(0), at(2)));
    assert!(!gaps.can_open(30));
    assert!(gaps.can_open(25), "the last gap can grow");
    assert!(!gaps.can_fill(0, 12));
    assert!(gaps.can_fill(0, 10) && gaps.can_fill(0, 14));
    gaps.confirm(22, 23, at(9));
    assert_eq!(
        gaps.list.len(),
        2,
        "an NCF finds no room to split and is ignored"
    );
}

#[test]
fn gaps_found_together_are_asked_for_together_oldest_first() {
    let mut gaps = gaps(&[(10, 12), (20, 21)]);
    let mut rng = Rng::new(3);
    let due = gaps.draw(at(5), &timing(), &mut rng);
    assert_eq!(gaps.draw(at(5), &timing(), &mut rng), due);
    gaps.open(30, 31, at(5), due);
    assert_eq!(expire(&mut gaps, at(8)).0, [(10, 12), (20, 21), (30, 31)]);
    assert_eq!(gaps.wake(), at(18));
}

#[test]
fn the_budget_and_the_limit_leave_the_rest_for_later() {
    use NakState::{BackOff, WaitNcf};
    let mut one = gaps(&[(10, 20), (30, 40)]);
    assert_eq!(
        expire_within(&mut one, at(3), 12, u64::MAX).0,
        [(10, 20), (30, 32)]
    );
    assert_eq!(
        ranges(&one),
        [(10, 20, WaitNcf), (30, 32, WaitNcf), (32, 40, BackOff)]
    );
    assert!(one.wake() <= at(5), "the rest is due after another draw");
    let mut other = gaps(&[(10, 20), (30, 40)]);
    assert_eq!(expire_within(&mut other, at(3), 100, 15).0, [(10, 15)]);
    assert_eq!(expire(&mut other, at(6)).0, [(15, 20), (30, 40)]);
}

#[test]
fn an_unconfirmed_request_is_repeated_and_then_given_up() {
    let mut gaps = gaps(&[(10, 12)]);
    let (mut asked, mut lost) = (0, 0);
    for ms in 0..100 {
        let (ranges, given_up) = expire(&mut gaps, at(ms));
        asked += ranges.len();
        lost += given_up;
    }
    assert_eq!((asked, lost), (3, 2));
    assert!(gaps.is_lost_at(10) && gaps.has_lost());
    assert_eq!(
        gaps.take_lost().map(|gap| (gap.first, gap.end)),
        Some((10, 12))
    );
    assert_eq!(gaps.take_lost(), None);
}

#[test]
fn a_confirmed_request_waits_for_data_and_counts_apart() {
    let mut gaps = gaps(&[(10, 12)]);
    gaps.confirm(10, 12, at(20));
    assert_eq!(expire(&mut gaps, at(19)).0, []);
    assert_eq!(expire(&mut gaps, at(20)).1, 0);
    assert_eq!(expire(&mut gaps, at(23)).0, [(10, 12)]);
    gaps.confirm(0, 100, at(43));
    assert_eq!(expire(&mut gaps, at(43)).1, 2);
}

#[test]
fn restating_splits_at_its_edges_and_merges_what_became_alike() {
    use NakState::{BackOff, WaitData};
    let mut gaps = gaps(&[(10, 20)]);
    gaps.confirm(12, 14, at(30));
    assert_eq!(
        ranges(&gaps),
        [(10, 12, BackOff), (12, 14, WaitData), (14, 20, BackOff)]
    );
    gaps.confirm(14, 16, at(30));
    assert_eq!(
        ranges(&gaps),
        [(10, 12, BackOff), (12, 16, WaitData), (16, 20, BackOff)]
    );
    gaps.confirm(0, 30, at(40));
    assert_eq!(ranges(&gaps), [(10, 20, WaitData)]);
}

#[test]
fn heard_naks_silence_a_few_times_in_a_row_only() {
    let mut gaps = gaps(&[(10, 11)]);
    for ms in 3..10 {
        gaps.silence(10, 11, at(ms + 50));
    }
    assert_eq!(gaps.list[0].due, at(3 + 50 + 3));
    gaps.confirm(10, 11, at(60));
    gaps.silence(10, 11, at(99));
    assert_eq!(
        gaps.list[0].due,
        at(99),
        "the source's confirmation begins a new row"
    );
}

#[test]
fn the_trail_gives_up_what_it_passes() {
    use NakState::{BackOff, Lost};
    let mut gaps = gaps(&[(10, 20), (30, 40)]);
    assert_eq!(gaps.lose_before(15), 5);
    assert_eq!(gaps.lose_before(15), 0);
    assert_eq!(gaps.lose_before(17), 2);
    assert_eq!(
        ranges(&gaps),
        [(10, 17, Lost), (17, 20, BackOff), (30, 40, BackOff)]
    );
    assert_eq!(gaps.take_lost_at(9), None);
    assert_eq!(gaps.take_lost_at(10).map(|gap| gap.len()), Some(7));
    gaps.confirm(17, 20, at(50));
    assert_eq!(gaps.lose_before(100), 13);
    assert_eq!(
        expire(&mut gaps, at(60)).0,
        [],
        "what is lost is not asked for"
    );
}

#[test]
fn scans_keep_their_distance() {
    let mut gaps = gaps(&[(10, 11)]);
    expire(&mut gaps, at(2));
    gaps.open(20, 21, at(2), at(2));
    assert_eq!(gaps.wake(), at(2) + timing().scan_interval);
}
