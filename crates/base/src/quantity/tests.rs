use proptest::prelude::*;

use super::*;
use crate::Rng;

#[test]
fn every_form_of_a_time_is_read() {
    let times = [
        ("200ns", 200),
        ("200us", 200_000),
        ("200\u{b5}s", 200_000),
        ("200\u{3bc}s", 200_000),
        ("2ms", 2_000_000),
        ("500ms", 500_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("3 s", 3_000_000_000),
        ("3sec", 3_000_000_000),
        ("30_000ms", 30_000_000_000),
        ("2m", 120_000_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("7d", 604_800_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1h 30m 5s", 5_405_000_000_000),
        ("1d12h", 129_600_000_000_000),
        ("30", 30_000_000_000),
        ("0.25", 250_000_000),
        ("0", 0),
        (" 2ms ", 2_000_000),
        ("1e-3", 1_000_000),
    ];
    for (text, ns) in times {
        assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
    }
}

#[test]
fn every_form_of_a_size_is_read() {
    let sizes = [
        ("1500", 1_500),
        ("1500B", 1_500),
        ("1_500", 1_500),
        ("64k", 64_000),
        ("64K", 64_000),
        ("64kB", 64_000),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("64Ki", 65_536),
        ("1.5KiB", 1_536),
        ("64M", 64_000_000),
        ("2 MB", 2_000_000),
        ("64MiB", 67_108_864),
        ("1GiB", 1 << 30),
        ("1T", 1_000_000_000_000),
        ("2TiB", 2 << 40),
        ("1e6", 1_000_000),
        ("0", 0),
    ];
    for (text, bytes) in sizes {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
}

#[test]
fn every_form_of_a_rate_is_read() {
    let rates = [
        ("12MB/s", 12_000_000),
        ("12MBps", 12_000_000),
        ("100B/s", 100),
        ("1GiB/s", 1 << 30),
        ("100M", 12_500_000),
        ("100Mbit", 12_500_000),
        ("100Mbit/s", 12_500_000),
        ("100 Mbit/s", 12_500_000),
        ("100Mbps", 12_500_000),
        ("100Mb/s", 12_500_000),
        ("1Gbit", 125_000_000),
        ("1.5G", 187_500_000),
        ("64kbit/s", 8_000),
        ("800bit/s", 100),
    ];
    for (text, bytes) in rates {
        assert_eq!(byte_rate(text), Ok(bytes), "{text}");
        assert_eq!(bit_rate(text), Ok(bytes * 8), "{text}");
    }
    assert_eq!((byte_rate("0"), bit_rate("0")), (Ok(0), Ok(0)));
    assert_eq!(bit_rate("5000"), Ok(5_000));
}

#[test]
fn every_form_of_a_number_is_read() {
    let counts = [
        ("500", 500),
        ("40k", 40_000),
        ("1.5M", 1_500_000),
        ("1.001k", 1_001),
        ("2G", 2_000_000_000),
        ("40k/s", 40_000),
        ("500/s", 500),
        ("1_000", 1_000),
        ("1e6", 1_000_000),
    ];
    for (text, number) in counts {
        assert_eq!(count(text), Ok(number), "{text}");
    }
}

#[test]
fn every_form_of_a_chance_is_read() {
    let chances = [
        ("5%", (1, 20)),
        ("0.1%", (1, 1_000)),
        ("1/1000", (1, 1_000)),
        ("3/1000", (3, 1_000)),
        ("1.5/100", (3, 200)),
        ("0.05", (1, 20)),
        ("1e-3", (1, 1_000)),
        ("100%", (1, 1)),
        ("0", (0, 1)),
    ];
    for (text, (numerator, denominator)) in chances {
        let wanted = Chance::new(numerator, denominator);
        assert_eq!(text.parse(), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_not_exact_or_has_two_meanings_is_refused() {
    let times =
        "|s|.|..5s|-1s|0.1ns|1 parsec|1M|1S|5 5s|30m1h|1h1h|1h30|99999999999h|1,5s|s5|1e99s";
    for wrong in times.split('|') {
        let error = duration(wrong).unwrap_err().to_string();
        assert!(error.ends_with(DURATION_FORM), "{wrong}: {error}");
    }
    let sizes = "|x|k|-1|1.0.0|1500 apples|64m|64kb|1.0001k|0.5|99999999999G|1e|1e40|\
                 99999999999999999999999999999999999999999";
    for wrong in sizes.split('|') {
        assert!(size(wrong).is_err(), "{wrong}");
    }
    for wrong in ["", "fast", "100m", "12MB", "1mbps", "auto", "1/s", "-1M"] {
        assert!(byte_rate(wrong).is_err(), "{wrong}");
        assert!(bit_rate(wrong).is_err(), "{wrong}");
    }
    // Bits or bytes? And an eighth of a byte.
    for wrong in ["1000", "1_000", "1bit/s", "1.001k"] {
        assert!(byte_rate(wrong).is_err(), "{wrong}");
    }
    for wrong in [
        "", "40kB", "k", "1KiB", "1Ki", "-1", "0.5", "40 k /s", "1/h",
    ] {
        assert!(count(wrong).is_err(), "{wrong}");
    }
    for wrong in [
        "", "%", "101%", "-1%", "2", "5", "1/0", "7/3", "nan", "x%", "inf", "1/1.5",
    ] {
        assert!(wrong.parse::<Chance>().is_err(), "{wrong}");
    }
    let error = size("2 lots").unwrap_err().to_string();
    assert_eq!(
        error,
        "\"2 lots\" is not a size such as 1500, 64k, 2MB or 64MiB"
    );
}

#[test]
fn chances_print_as_percent_where_that_is_exact() {
    let texts = ["5%", "1/1000", "1/3", "100%", "0"].map(|text| text.parse::<Chance>().unwrap());
    let printed = texts.map(|chance| chance.to_string());
    assert_eq!(printed, ["5%", "0.1%", "1/3", "100%", "0%"]);
}

#[test]
fn a_chance_is_drawn_as_often_as_it_says() {
    let mut rng = Rng::new(1);
    let chance = Chance::new(30, 100);
    let hits = (0..10_000).filter(|_| chance.draw(&mut rng)).count();
    assert!((2_800..3_200).contains(&hits), "{hits}");
    let before = rng.clone().next_u64();
    assert!(!Chance::NEVER.draw(&mut rng));
    assert_eq!(rng.next_u64(), before, "never draws nothing");
}

proptest! {
    #[test]
    fn what_is_written_reads_back(number: u64, unit in 0..13_u32, chance in 0..=u32::MAX) {
        // Round numbers too, which are written with units.
        let number = number.wrapping_mul(10_u64.pow(unit));
        prop_assert_eq!(size(&size_text(number)), Ok(number));
        prop_assert_eq!(byte_rate(&byte_rate_text(number)), Ok(number));
        prop_assert_eq!(bit_rate(&number.to_string()), Ok(number));
        prop_assert_eq!(count(&number.to_string()), Ok(number));
        let time = Duration::from_nanos(number);
        prop_assert_eq!(duration(&duration_text(time)), Ok(time));
        prop_assert_eq!(duration(&format!("{time:?}")), Ok(time), "as Rust prints it");
        let chance = Chance::new(chance.into(), u32::MAX.into());
        prop_assert_eq!(chance.to_string().parse(), Ok(chance));
    }

    #[test]
    fn round_chances_print_and_read_back(millionths in 0..=1_000_000_u64) {
        let chance = Chance::new(millionths, 1_000_000);
        let text = chance.to_string();
        prop_assert!(text.ends_with('%'), "{}", text);
        prop_assert_eq!(text.parse(), Ok(chance));
    }

    #[test]
    fn a_fraction_and_its_unit_give_what_the_unit_says(whole in 0..1_000_u64, tenths in 0..10_u64) {
        let number = format!("{whole}.{tenths}");
        let milli = whole * 1_000 + tenths * 100;
        prop_assert_eq!(size(&format!("{number}k")), Ok(milli));
        prop_assert_eq!(count(&format!("{number}k")), Ok(milli));
        prop_assert_eq!(bit_rate(&format!("{number}kbit/s")), Ok(milli));
        let seconds = duration(&number);
        prop_assert_eq!(seconds, Ok(Duration::from_millis(milli)));
        prop_assert_eq!(duration(&format!("{number}m")), Ok(Duration::from_millis(milli) * 60));
        prop_assert_eq!(duration(&format!("{whole}h{tenths}s")).map(|time| time.as_secs()),
            Ok(whole * 3_600 + tenths));
    }

    #[test]
    fn no_text_panics(text in "[0-9._eE+kKMGTihBbpsmdnuit/% -]{0,24}") {
        let _times = (duration(&text), size(&text), byte_rate(&text), bit_rate(&text));
        let _numbers = (count(&text), text.parse::<Chance>());
    }
}
