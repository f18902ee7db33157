use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// Makes a report at `ms` that repeats a mark of 5 ms before, when `lead` packets were sent.
fn report(ms: u64, lead: u64) -> RateReport {
    RateReport {
        echo: at(ms - 5),
        round_trip: Duration::from_millis(1),
        delivery_bytes_per_s: 50_000_000,
        lead,
        ..RateReport::default()
    }
}

/// Makes a control of one receiver in Start. It stays at 100 MB/s, because no later report raises
/// the limit.
fn starting() -> RateControl {
    let mut control = RateControl::new(RateConfig::default(), at(0));
    for ms in [10, 25] {
        control.report(at(ms), 0, &report(ms, 10 * ms));
        control.steer(at(ms + 1), true);
    }
    assert_eq!(control.steer(at(1000), true), Pace::of(100_000_000));
    control
}

/// Makes a control that needs no limit.
fn running() -> RateControl {
    let mut control = starting();
    control.steer(at(1001), true);
    control.report(at(1002), 0, &report(1002, 10_000));
    assert_eq!(control.steer(at(1003), true), Pace::Unlimited);
    control
}

/// Makes a control that measured a queue and 50 MB/s at receiver 0, and sends less since 1,020 ms.
fn cruising() -> RateControl {
    let mut control = starting();
    for ms in [1010, 1020] {
        let queue_delay = Duration::from_millis(4);
        control.report(
            at(ms),
            0,
            &RateReport {
                queue_delay,
                ..report(ms, 10 * ms)
            },
        );
    }
    assert_eq!(control.steer(at(1021), true), Pace::of(42_500_000));
    control
}

#[test]
fn one_queue_is_chance_and_two_end_the_start() {
    let control = cruising();
    let cause = RateCause::Network;
    assert_eq!(control.limit(), Some(RateLimit { slot: 0, cause }));
}

#[test]
fn a_guest_beside_others_brings_the_rate_to_the_floor_and_no_further() {
    for (guests_from, least) in [(1, GUEST_BYTES_PER_S_MIN), (u32::MAX, 100_000)] {
        let config = RateConfig {
            guests_from,
            ..RateConfig::default()
        };
        let mut control = RateControl::new(config, at(0));
        let mut pace = Pace::Unlimited;
        for ms in (10..8_000).step_by(10) {
            let well = report(ms, 10 * ms);
            control.report(at(ms), 0, &well);
            let liar = RateReport {
                delivery_bytes_per_s: 1_000,
                queue_delay: Duration::from_millis(400),
                missed: 5 * ms,
                ..well
            };
            control.report(at(ms), 1, &liar);
            pace = control.steer(at(ms), true);
        }
        assert_eq!(pace.bytes_per_s(), Some(least), "guests from {guests_from}");
    }
}

#[test]
fn what_a_guest_said_brings_the_rate_no_further_down_when_it_has_left() {
    let mut control = cruising();
    control.config.guests_from = 1;
    // The guest has brought the rate to its floor before.
    control.pace = Pace::of(GUEST_BYTES_PER_S_MIN);
    control.carried_bytes_per_s = GUEST_BYTES_PER_S_MIN;
    control.carried_bytes_per_s_max = GUEST_BYTES_PER_S_MIN;
    let (mut is_drained, mut lowest) = (false, u64::MAX);
    for ms in (1_500..4_000).step_by(10) {
        let well = report(ms, 10 * ms);
        control.report(at(ms), 0, &well);
        let is_guests = control.limit.is_some_and(|limit| limit.slot == 1);
        is_drained |= matches!(control.phase, Phase::Drain { .. }) && is_guests;
        if is_drained {
            control.forget(1);
        } else {
            let liar = RateReport {
                delivery_bytes_per_s: 1_000,
                queue_delay: Duration::from_millis(400),
                ..well
            };
            control.report(at(ms), 1, &liar);
        }
        let pace = control.steer(at(ms), true).bytes_per_s();
        lowest = lowest.min(pace.unwrap_or(u64::MAX));
    }
    assert!(is_drained);
    assert!(lowest >= part(GUEST_BYTES_PER_S_MIN, 97), "{lowest}");
}

#[test]
fn loss_without_a_queue_is_not_congestion_below_ten_per_cent() {
    let mut control = running();
    for n in 0..100 {
        let (ms, lead) = (1010 + 10 * n, 1000 * n);
        control.report(
            at(ms),
            0,
            &RateReport {
                missed: lead / 20,
                ..report(ms, lead)
            },
        );
        assert_eq!(control.steer(at(ms), true), Pace::Unlimited);
    }
    let mut lose_half = |n: u64| {
        let (ms, lead) = (1010 + 10 * n, 1000 * n);
        let missed = lead / 2;
        let half = report(ms, lead);
        control.report(at(ms), 0, &RateReport { missed, ..half });
        control.steer(at(ms), true).bytes_per_s()
    };
    assert_eq!(
        [100, 101, 102].map(&mut lose_half),
        [None, Some(42_500_000), Some(42_500_000)]
    );
    assert_eq!([103, 104].map(&mut lose_half), [Some(18_062_500); 2]);
    assert_eq!(lose_half(105), None, "as much with less: not ours");
}

/// What is lost entirely leaves no rate to go by: the least one, not none at all.
#[test]
fn a_receiver_that_loses_everything_lifts_no_limit() {
    let mut control = cruising();
    for n in 1..6 {
        let (ms, lead) = (1040 + 10 * n, 10_000 + 1000 * n);
        let nothing = RateReport {
            delivery_bytes_per_s: 0,
            missed: lead,
            ..report(ms, lead)
        };
        control.report(at(ms), 0, &nothing);
        let pace = control.steer(at(ms + 1), true);
        assert!(pace.bytes_per_s() >= Some(100_000), "{n}: {pace:?}");
    }
}

#[test]
fn it_grows_while_it_is_in_use_and_starts_anew_when_it_was_not() {
    let mut control = cruising();
    control.report(at(1040), 0, &report(1040, 20_000));
    assert_eq!(control.steer(at(1100), true), Pace::of(48_500_000));
    control.report(at(1140), 0, &report(1140, 30_000));
    assert_eq!(control.steer(at(1200), true), Pace::of(48_985_000));
    for ms in (1250..3000).step_by(50) {
        control.report(at(ms), 0, &report(ms, 10 * ms));
        control.steer(at(ms), false);
    }
    assert_eq!(control.steer(at(3000), true), Pace::of(48_985_000));
    assert_eq!(control.limit(), None);
    control.steer(at(3001), true);
    control.report(at(3010), 0, &report(3010, 40_000));
    assert_eq!(
        control.steer(at(3011), true),
        Pace::of(195_940_000),
        "it looks anew"
    );
}

#[test]
fn what_left_before_a_change_tells_nothing_of_it() {
    let mut control = cruising();
    let queue_delay = Duration::from_millis(9);
    let stale = RateReport {
        echo: at(1019),
        queue_delay,
        ..report(1030, 20_000)
    };
    control.report(at(1030), 0, &stale);
    assert_eq!(control.steer(at(1031), true), Pace::of(42_500_000));
    // By then the queue should be gone.
    let late = RateReport {
        queue_delay,
        ..report(1080, 20_000)
    };
    control.report(at(1080), 0, &late);
    assert_eq!(control.steer(at(1081), true), Pace::of(36_125_000));
}

#[test]
fn a_host_that_drops_sets_the_limit_and_is_named() {
    let mut control = starting();
    for n in 0..3 {
        let (ms, host_drops) = (1010 + 10 * n, 50 * n);
        let missed = host_drops;
        let dropping = RateReport {
            host_drops,
            missed,
            ..report(ms, 5000 + 1000 * n)
        };
        control.report(at(ms), 3, &dropping);
    }
    assert_eq!(control.steer(at(1031), true), Pace::of(45_000_000));
    let cause = RateCause::Host;
    assert_eq!(control.limit(), Some(RateLimit { slot: 3, cause }));
    control.forget(3);
    assert_eq!(control.limit(), None);
}

#[test]
fn without_reports_there_is_no_limit_and_with_the_first_it_starts() {
    let mut control = RateControl::new(RateConfig::default(), at(0));
    assert_eq!(control.steer(at(10), true), Pace::Unlimited);
    let mut rates = Vec::new();
    for n in 1..6 {
        let ms = 20 + 15 * n;
        control.report(at(ms), 0, &report(ms, 100 * n));
        rates.push(control.steer(at(ms + 1), n > 2).to_number() / 1_000_000);
    }
    assert_eq!(rates, [25, 25, 25, 100, 0], "only what is used grows");
    control.forget(0);
    assert_eq!(control.steer(at(100), true), Pace::Unlimited);
    control.report(at(110), 1, &report(110, 1000));
    assert_eq!(control.steer(at(111), true), Pace::of(25_000_000));
}

#[test]
fn what_begins_with_much_at_once_is_limited_before_the_first_report() {
    let mut control = RateControl::new(RateConfig::default(), at(0));
    control.start(at(10), [0, 1]);
    control.forget(7);
    assert_eq!(control.steer(at(11), true), Pace::of(25_000_000));
    // A mark that left before the limit was filled for a while has met nothing.
    control.report(at(15), 0, &report(15, 40));
    assert_eq!(control.steer(at(16), true), Pace::of(25_000_000));
    // A few packets are lost: it goes no further.
    let lossy = RateReport {
        missed: 20,
        ..report(22, 100)
    };
    control.report(at(22), 0, &lossy);
    assert_eq!(control.steer(at(23), true), Pace::of(25_000_000));
    control.report(at(25), 0, &report(25, 400));
    assert_eq!(
        control.steer(at(26), true),
        Pace::of(25_000_000),
        "one is far away"
    );
    control.report(at(27), 1, &report(27, 400));
    assert_eq!(control.steer(at(28), true), Pace::of(100_000_000));
    control.start(at(30), [5]);
    assert_eq!(
        control.steer(at(31), true),
        Pace::of(100_000_000),
        "known by then"
    );
}

#[test]
fn a_queue_that_a_slow_application_sees_has_to_stay() {
    let mut control = starting();
    let mut rates = Vec::new();
    for n in 0..10 {
        let queue_delay = Duration::from_millis(9);
        let late = RateReport {
            queue_delay,
            ..report(1200 + 10 * n, 20 * n)
        };
        control.report(at(1200 + 10 * n), 0, &late);
        rates.push(control.steer(at(1201 + 10 * n), false));
    }
    assert_eq!(rates[8..], [100_000_000, 42_500_000].map(Pace::of));
}

#[test]
fn what_a_busy_host_takes_at_once_is_not_what_the_way_carries() {
    let mut control = starting();
    for n in 0..3 {
        let (ms, lead) = (1010 + 10 * n, 10_000 + 1000 * n);
        let flooded = RateReport {
            delivery_bytes_per_s: 90_000_000,
            missed: 940 * n,
            ..report(ms, lead)
        };
        control.report(at(ms), 0, &flooded);
    }
    // 6 % of 100 MB/s arrive, whatever is said of 10 ms.
    assert_eq!(control.steer(at(1031), true).to_number() / 1000, 5_100);
}

/// Makes a control that competes, because another sender keeps a queue to receiver 0. Returns it
/// with the time in ms at which it began to compete.
fn competing(delivery: u64) -> (RateControl, u64) {
    let mut control = starting();
    for ms in (1010..20_000).step_by(10) {
        let reported = RateReport {
            queue_delay: Duration::from_millis(40),
            answer: Duration::from_millis(41),
            delivery_bytes_per_s: delivery,
            ..report(ms, 30 * ms)
        };
        control.report(at(ms), 0, &reported);
        control.report(at(ms), 1, &report(ms, 30 * ms));
        control.steer(at(ms + 1), true);
        if control.phase.is_shared() {
            return (control, ms);
        }
    }
    panic!("{:?}", control.phase);
}

#[test]
fn whatever_a_receiver_claims_there_is_a_limit_while_somebody_else_has_the_queue() {
    for delivery in [0, 1, u64::MAX] {
        let (mut control, ms) = competing(delivery);
        let pace = control.steer(at(ms + 100), true);
        let is_limited = pace.bytes_per_s().is_some_and(|it| it <= 400_000_000);
        assert!(is_limited, "{delivery}: {pace:?}");
    }
}

#[test]
fn another_receiver_that_loses_much_sets_the_limit_meanwhile() {
    let (mut control, start) = competing(20_000_000);
    assert_eq!(control.limit().map(|limit| limit.slot), Some(0));
    let before = control.steer(at(start + 2), true).bytes_per_s();
    for passed in [10, 20] {
        let ms = start + passed;
        let lossy = RateReport {
            delivery_bytes_per_s: 5_000_000,
            missed: passed * 10,
            ..report(ms, 30 * ms)
        };
        control.report(at(ms), 1, &lossy);
    }
    assert_eq!(control.limit().map(|limit| limit.slot), Some(1));
    let after = control.steer(at(start + 21), true).bytes_per_s();
    assert!(after.is_some() && after < before);
}
