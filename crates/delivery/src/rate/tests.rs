use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// A report at `ms` of what left 5 ms before, with `lead` packets sent.
fn report(ms: u64, lead: u64) -> RateReport {
    RateReport {
        echo: at(ms - 5),
        round_trip: Duration::from_millis(1),
        delivery: 10_000_000,
        lead,
        ..RateReport::default()
    }
}

const HELD: Sending = Sending {
    packets: 0,
    asked: 0,
    is_limited: true,
    is_held: true,
};

/// A control of one receiver, past its start without a limit at 1,000 ms.
fn running() -> RateControl {
    let mut control = RateControl::new(RateConfig::default(), at(0));
    control.report(at(10), 0, &report(10, 100));
    assert_eq!(control.steer(at(1000), &HELD), 0);
    control
}

/// A control that found 10 MB/s of receiver 0 at 1,020 ms.
fn cruising() -> RateControl {
    let mut control = running();
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
    assert_eq!(control.steer(at(1021), &HELD), 8_500_000);
    control
}

#[test]
fn one_queue_is_chance_and_two_end_the_start() {
    let control = cruising();
    let cause = RateCause::Network;
    assert_eq!(
        control.limit(),
        Some(RateLimit {
            slot: Some(0),
            cause
        })
    );
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
        assert_eq!(control.steer(at(ms), &HELD), 0);
    }
    let mut lose_half = |n: u64| {
        let (ms, lead) = (1010 + 10 * n, 1000 * n);
        let missed = lead / 2;
        let half = report(ms, lead);
        control.report(at(ms), 0, &RateReport { missed, ..half });
        control.steer(at(ms), &HELD)
    };
    assert_eq!(
        [100, 101, 102].map(&mut lose_half),
        [0, 8_500_000, 8_500_000]
    );
    assert_eq!(lose_half(103), 0, "as much with less: not ours");
}

#[test]
fn it_grows_while_it_is_in_use_and_is_lifted_when_it_is_not() {
    let mut control = cruising();
    control.report(at(1040), 0, &report(1040, 20_000));
    assert_eq!(control.steer(at(1100), &HELD), 9_700_000);
    control.report(at(1140), 0, &report(1140, 30_000));
    assert_eq!(control.steer(at(1200), &HELD), 9_797_000);
    let unused = Sending {
        is_limited: false,
        ..HELD
    };
    for ms in (1250..3000).step_by(50) {
        control.report(at(ms), 0, &report(ms, 10 * ms));
        control.steer(at(ms), &unused);
    }
    assert_eq!(control.steer(at(3000), &unused), 0);
    assert_eq!(control.limit(), None);
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
    assert_eq!(control.steer(at(1031), &HELD), 8_500_000);
    // By then the queue should be gone.
    let late = RateReport {
        queue_delay,
        ..report(1080, 20_000)
    };
    control.report(at(1080), 0, &late);
    assert_eq!(control.steer(at(1081), &HELD), 7_225_000);
}

#[test]
fn a_host_that_drops_sets_the_limit_and_is_named() {
    let mut control = running();
    control.report(at(1010), 3, &report(1010, 5000));
    control.report(
        at(1020),
        3,
        &RateReport {
            host_drops: 7,
            ..report(1020, 6000)
        },
    );
    assert_eq!(control.steer(at(1021), &HELD), 9_000_000);
    let cause = RateCause::Host;
    assert_eq!(
        control.limit(),
        Some(RateLimit {
            slot: Some(3),
            cause
        })
    );
    control.forget(3);
    assert_eq!(control.limit(), None);
}

#[test]
fn without_reports_requests_tell() {
    let mut control = RateControl::new(RateConfig::default(), at(0));
    let mut sending = Sending {
        is_held: false,
        ..HELD
    };
    let mut rates = Vec::new();
    for n in 1..6 {
        sending.packets += 10_000;
        sending.asked += if n == 4 { 1000 } else { 0 };
        rates.push(control.steer(at(100 * n), &sending) / 1_000_000);
    }
    assert_eq!(rates, [250, 500, 1000, 850, 892]);
}
