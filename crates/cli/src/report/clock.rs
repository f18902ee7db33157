//! The report of `clock`.

use gauge::{
    clock::{Between, ClockReport, Keeper, PtpClock},
    rtt::{ClockState, OneWayTimes},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Document,
    text::{clauses, wrap},
};

/// `clock`: this host's clocks, and what a comparison with another host's clocks showed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ClockDocument {
    #[serde(flatten)]
    pub(crate) clock: ClockReport,
    /// The comparison with another host's clocks; absent when no host was named, and
    /// after a signal that came before the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) between: Option<Between>,
}

impl Document for ClockDocument {
    const SCHEMA: &'static str = "towline.clock";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        host(&mut text, &self.clock);
        match &self.between {
            Some(found) => between(&mut text, found),
            None => line(&mut text, "one-way", &self.clock.one_way),
        }
        text
    }
}

fn host(text: &mut String, report: &ClockReport) {
    let sources = report.sources.join(", ");
    let (source, step, reading) = (&report.source, report.step_ns, report.reading_ns);
    let told = format!("{source} (of {sources}); steps of {step} ns, {reading} ns a reading");
    line(text, "source", &told);
    if report.ptp.is_empty() {
        line(text, "PTP", "no hardware clock");
    }
    for clock in &report.ptp {
        line(text, "PTP", &ptp(clock));
    }
    if report.keepers.is_empty() {
        let told = "no chronyd, ntpd, systemd-timesyncd, ptp4l or phc2sys is seen here";
        line(text, "kept by", told);
    }
    for one in &report.keepers {
        line(text, "kept by", &keeper(one));
    }
    let kept = state(&ClockState {
        is_synchronised: report.is_synchronised,
        error_ns_max: report.error_ns_max,
    });
    let mut told = vec![
        format!("{kept}, estimated {}", time_up(report.error_ns_estimated)),
        format!(
            "{} us still to correct, runs {} ppb fast, TAI less UTC {} s",
            report.offset_ns / 1_000,
            report.frequency_ppb,
            report.tai_offset_s
        ),
    ];
    if report.has_leap {
        told.push("a leap second is to come".to_owned());
    }
    clauses(text, "wall clock", &told);
}

fn ptp(clock: &PtpClock) -> String {
    let name = format!("{} ({})", clock.device, clock.name);
    let Some(offset) = &clock.offset else {
        let remark = clock.remark.as_deref().unwrap_or("not asked");
        return format!("{name}; offset not known: {remark}");
    };
    let error = time_up(offset.error_ns_max);
    let from = match offset.from_utc_ns {
        Some(ns) => format!("{:+.3} us from the wall clock, in atomic time", micros(ns)),
        None => format!("{:+.3} us from the wall clock", micros(offset.offset_ns)),
    };
    format!("{name}, {from} +- {error} ({})", offset.method)
}

fn keeper(keeper: &Keeper) -> String {
    let mut text = keeper.program.clone();
    if let Some(process) = keeper.process {
        text += &format!(" (process {process})");
    }
    let Some(state) = &keeper.state else {
        return text + ", which did not say how well";
    };
    text += if state.is_synchronised {
        ", synchronised"
    } else {
        ", not synchronised"
    };
    if let Some(stratum) = state.stratum {
        text += &format!(", stratum {stratum}");
    }
    if let Some(offset) = state.offset_ns {
        text += &format!(", {:+.3} us off by its estimate", micros(offset));
    }
    if let Some(error) = state.error_ns_max {
        text += &format!(", {} at most", time_up(error));
    }
    text
}

fn between(text: &mut String, found: &Between) {
    let lost = match (found.lost, found.disturbed) {
        (0, 0) => String::new(),
        (lost, disturbed) => format!(", {lost} lost, {disturbed} while the clock was set"),
    };
    let there = if found.is_one_clock {
        "this host itself: both ends read one clock".to_owned()
    } else {
        state(&found.there)
    };
    line(text, "far end", &format!("{}, {there}", found.peer));
    let round_trip = found.round_trip_p50_ns as f64 / 1e3;
    let told = format!(
        "p50 {round_trip:.1} us with the far end's time, {} exchanges{lost}",
        found.exchanges
    );
    line(text, "round trip", &told);
    if let Some(reason) = &found.refusal {
        line(text, "one-way", &format!("refused: {reason}"));
    }
    if let Some(one_way) = &found.one_way {
        let error = time_up(one_way.error_ns_max);
        let times = |times: &OneWayTimes| {
            let [min, p50, p99, max] =
                [times.min_ns, times.p50_ns, times.p99_ns, times.max_ns].map(micros);
            format!("{p50:.1} us +- {error} (min {min:.1} us, p99 {p99:.1}, max {max:.1})")
        };
        line(text, "there", &times(&one_way.there));
        line(text, "back", &times(&one_way.back));
    }
}

fn state(state: &ClockState) -> String {
    let kept = if state.is_synchronised {
        "synchronised"
    } else {
        "not synchronised"
    };
    format!("{kept}, wrong by at most {}", time_up(state.error_ns_max))
}

fn micros(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// Writes a bound in the unit that suits it, and never rounds it down: `16.0 s`, `13 ms`, `90 us`.
fn time_up(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{} us", ns.div_ceil(1_000)),
        10_000_000..10_000_000_000 => format!("{} ms", ns.div_ceil(1_000_000)),
        _ => {
            let tenths = ns.div_ceil(100_000_000);
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    wrap(text, &format!("{name:<10}"), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_has_few_digits_and_is_never_rounded_down() {
        for (ns, text) in [
            (0, "0 us"),
            (90_001, "91 us"),
            (9_999_999, "10000 us"),
            (12_000_001, "13 ms"),
            (16_000_000_000, "16.0 s"),
            (16_000_000_001, "16.1 s"),
        ] {
            assert_eq!(time_up(ns), text);
        }
    }
}
