use std::time::Duration;

use base::Rng;

use super::*;
use crate::{
    Config,
    receiver::{gaps::Request, setup::Limits},
};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const DUE: Instant = Instant::from_nanos(1_001_000_000);

/// A window that waits for 100 and tracks 1000 positions.
fn window() -> Window {
    Window::new(true, 100, 1000, 50)
}

fn take(window: &mut Window, position: u64) {
    let place = window.place(position);
    window.take(position, place, NOW, DUE);
}

/// Lets a packet announce its trail, and nothing else that is new.
fn tell(window: &mut Window, trail: u64) -> u64 {
    let certain = window.confirmed();
    window.see_trail(trail, certain)
}

/// Lets everything that is missing be given up for want of an answer.
fn exhaust(window: &mut Window) {
    let config = Config::builder()
        .nak_ncf_retries(1)
        .repair_time_max(Duration::from_millis(1))
        .build()
        .unwrap();
    let timing = Limits::new(&config).timing;
    let (mut rng, mut now, mut ranges) = (Rng::new(1), DUE, Vec::new());
    for _ in 0..10 {
        let mut request = Request {
            ranges: &mut ranges,
            budget_sqns: u64::MAX,
            end: u64::MAX,
            next: 0,
            fresh: None,
            is_starved: false,
            rest: Duration::ZERO,
        };
        window.gaps.expire(now, &timing, &mut rng, &mut request);
        now += Duration::from_secs(1);
    }
}

#[test]
fn data_has_one_place() {
    let mut window = window();
    assert_eq!(window.place(100), Place::Next);
    assert_eq!(window.place(1099), Place::Ahead);
    assert_eq!(window.place(1100), Place::Nowhere(DropReason::BeyondWindow));
    take(&mut window, 103);
    assert_eq!(window.place(103), Place::Nowhere(DropReason::Duplicate));
    assert_eq!(window.place(101), Place::Gap(0));
    assert_eq!(window.place(99), Place::Nowhere(DropReason::Duplicate));
    tell(&mut window, 100);
    assert_eq!(window.place(99), Place::Nowhere(DropReason::BehindWindow));
}

#[test]
fn an_announcement_opens_a_gap_within_the_window_only() {
    let mut window = window();
    assert!(window.announce(105, false, NOW, DUE));
    assert_eq!((window.next, window.gaps.missing()), (105, 5));
    assert!(
        !window.announce(104, false, NOW, DUE),
        "an older one changes nothing"
    );
    assert!(window.announce(1 << 31, false, NOW, DUE));
    assert_eq!((window.next, window.gaps.missing()), (1100, 1000));
}

#[test]
fn what_was_announced_once_and_never_answered_is_withdrawn() {
    let mut window = window();
    take(&mut window, 100);
    take(&mut window, 102);
    window.announce(1 << 31, false, NOW, DUE);
    exhaust(&mut window);
    assert_eq!(window.withdraw(), 1100 - 103);
    assert_eq!(window.next, 103);
    assert!(
        window
            .gaps
            .take_lost()
            .is_some_and(|gap| (gap.first, gap.end) == (101, 102))
    );
    assert_eq!(
        window.place(103),
        Place::Next,
        "the sender goes on as if nothing had been"
    );
}

#[test]
fn what_two_announcements_agree_on_is_lost_when_never_answered() {
    let mut window = window();
    take(&mut window, 100);
    window.announce(110, false, NOW, DUE);
    window.announce(120, false, NOW, DUE);
    exhaust(&mut window);
    assert_eq!(window.withdraw(), 10);
    assert_eq!(window.next, 110);
    assert!(
        window
            .gaps
            .take_lost()
            .is_some_and(|gap| (gap.first, gap.end) == (101, 110))
    );
}

#[test]
fn data_confirms_what_was_announced_before_it() {
    let mut window = window();
    window.announce(110, false, NOW, DUE);
    take(&mut window, 105);
    exhaust(&mut window);
    assert_eq!(window.withdraw(), 4);
    assert_eq!(window.next, 106);
}

#[test]
fn a_trail_within_the_window_counts_at_once() {
    let mut window = window();
    take(&mut window, 105);
    assert_eq!(tell(&mut window, 103), 3);
    assert_eq!(tell(&mut window, 106), 2);
    assert!(window.gaps.is_lost_at(100));
}

#[test]
fn a_trail_beyond_all_that_is_known_needs_a_second_packet() {
    let mut window = window();
    take(&mut window, 105);
    assert_eq!(tell(&mut window, 1 << 30), 0);
    assert_eq!(window.trail, 0);
    assert_eq!(tell(&mut window, 5000), 5000 - 106 + 5);
    assert_eq!((window.next, window.trail), (5000, 5000));
    let mut other = Window::new(true, 100, 1000, 50);
    assert_eq!(tell(&mut other, 1 << 30), 0);
    assert_eq!(tell(&mut other, 50), 0, "the sender goes on where it was");
    assert_eq!(tell(&mut other, 1 << 30), 0);
}

#[test]
fn one_announcement_does_not_make_its_own_trail_certain() {
    let mut window = window();
    take(&mut window, 100);
    window.announce(1000, false, NOW, DUE);
    assert_eq!(tell(&mut window, 900), 0);
    window.announce(1001, false, NOW, DUE);
    assert_eq!(tell(&mut window, 901), 800);
    assert_eq!(window.gaps.missing(), 900);
}

#[test]
fn what_lies_beyond_the_window_is_taken_up_as_it_moves() {
    let mut window = window();
    window.announce(5000, true, NOW, DUE);
    assert_eq!((window.next, window.confirmed), (1100, 1100));
    assert_eq!(tell(&mut window, 1100), 1000);
    assert!(window.gaps.take_lost_at(100).is_some());
    window.base = 1100;
    assert!(window.extend_to_noted(NOW, DUE));
    assert_eq!(window.next, 2100);
    assert_eq!(window.lose_all(), 5000 - 1100);
}

#[test]
fn the_end_cuts_hints_off_but_not_data() {
    let mut window = window();
    take(&mut window, 103);
    assert!(window.hint(110, NOW, DUE));
    assert!(!window.cut(103));
    assert!(window.cut(105));
    assert_eq!((window.next, window.gaps.missing()), (105, 4));
}

#[test]
fn a_window_on_arrival_begins_at_its_first_gap() {
    let mut window = Window::new(false, 100, 1000, 50);
    window.take_next(true);
    assert_eq!(window.contiguous(), 101);
    take(&mut window, 105);
    assert_eq!(window.contiguous(), 101);
    take(&mut window, 101);
    assert_eq!(window.contiguous(), 102);
}
