//! The reports of `stats` about packets: a JSON document, a text, and a picture of the packet rate.

use std::fmt::Write as _;

use capture::{
    Session,
    stats::{Count, Summary},
};
use gauge::sweep::{CaptureSweep, SweepRow};
use measure::plot::{FlowStep, Scene, flow};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, capture::account_end, quantity, text::wrap};
use crate::plan::StatsPlan;

/// The report of `stats`: packets counted by protocol, size, pair of addresses, filter and time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatsReport {
    pub(crate) sources: Vec<String>,
    /// What each packet is: `frame as captured` or `packet on the wire`.
    pub(crate) unit: &'static str,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Seconds from the first packet's time stamp to the last's.
    pub(crate) span_s: f64,
    pub(crate) packets_per_s: f64,
    pub(crate) bits_per_s: f64,
    pub(crate) filters: Vec<Row>,
    pub(crate) protocols: Vec<Row>,
    /// Packets counted by size: bytes on the wire without the frame check sequence. Each class of
    /// sizes includes its upper bound.
    pub(crate) sizes: Vec<SizeRow>,
    pub(crate) talkers: Vec<TalkerRow>,
    /// The number of pairs of addresses that were counted separately; `packets_of_other_pairs`
    /// counts the packets of all other pairs.
    pub(crate) pairs: u64,
    pub(crate) packets_of_other_pairs: u64,
    pub(crate) tagged_packets: u64,
    pub(crate) fragments: u64,
    /// Packets that end within or in front of an Ethernet, VLAN or IP header, extension headers of
    /// IPv6 included. They were captured in part, or were sent like that.
    pub(crate) cut_packets: u64,
    pub(crate) lost_ring: u64,
    pub(crate) lost_interface: u64,
    pub(crate) damaged_records: u64,
    /// The packets that the sources counted, minus those that passed the filter, were filtered out,
    /// left unread or lost in the ring. 0 means that the account closes: no packet is missing.
    pub(crate) residual: Option<i128>,
    /// Packets that passed the filter minus those that were counted: 0 when the account closes.
    pub(crate) sink_residual: i128,
    /// Packets that had arrived, and were left unread when the command ended.
    pub(crate) unread: u64,
    pub(crate) step_s: f64,
    /// Packets and bytes in each step of `step_s` seconds, from the first time stamp on.
    pub(crate) rate: Vec<StepRow>,
}

/// The packets and bytes of one filter or protocol.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// The packets and bytes of one class of packet sizes.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct SizeRow {
    /// The largest size in the class; null for the class of the largest packets.
    pub(crate) up_to_bytes: Option<u32>,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// The packets and bytes that one address sent to another.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TalkerRow {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// The packets and bytes of one step of time.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct StepRow {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl StatsReport {
    pub(crate) fn new(plan: &StatsPlan, session: &Session, summary: &Summary) -> Self {
        let account = session.account();
        let span_ns = summary.stamps_ns.map_or(0, |(first, last)| last - first);
        let span_s = span_ns as f64 / 1e9;
        let named = |rows: &[(String, Count)]| {
            let row = |(name, count): &(String, Count)| Row {
                name: name.clone(),
                packets: count.packets,
                bytes: count.bytes,
            };
            rows.iter().map(row).collect()
        };
        Self {
            sources: plan.sources.iter().map(ToString::to_string).collect(),
            unit: account.unit.name(),
            packets: summary.all.packets,
            bytes: summary.all.bytes,
            span_s,
            packets_per_s: quantity::per_second(summary.all.packets, span_s),
            bits_per_s: quantity::per_second(summary.all.bytes * 8, span_s),
            filters: named(&summary.filters),
            protocols: named(&summary.protocols),
            sizes: summary
                .sizes
                .iter()
                .map(|(limit, count)| SizeRow {
                    up_to_bytes: (*limit < u32::MAX).then_some(*limit),
                    packets: count.packets,
                    bytes: count.bytes,
                })
                .collect(),
            talkers: summary
                .talkers
                .iter()
                .map(|(from, to, count)| TalkerRow {
                    from: from.to_string(),
                    to: to.to_string(),
                    packets: count.packets,
                    bytes: count.bytes,
                })
                .collect(),
            pairs: summary.pairs,
            packets_of_other_pairs: summary.untold.packets,
            tagged_packets: summary.tagged.packets,
            fragments: summary.fragments.packets,
            cut_packets: summary.cut.packets,
            lost_ring: account.losses.ring,
            lost_interface: account.losses.interface,
            damaged_records: account.losses.damaged,
            residual: account.residual(),
            sink_residual: account.sink_residual(),
            unread: account.unread,
            step_s: summary.step.as_secs_f64(),
            rate: summary
                .rate
                .iter()
                .map(|count| StepRow {
                    packets: count.packets,
                    bytes: count.bytes,
                })
                .collect(),
        }
    }

    /// Writes the line above a table.
    fn heading(text: &mut String, what: &str) {
        writeln!(
            text,
            "{:>14}  {:>12} {:>8}  {what}",
            "packets", "bytes", "of bytes"
        )
        .expect("text grows in memory");
    }

    /// Writes how many packets were lost, left unread, or unusual (fragments, tagged, cut short).
    fn losses(&self, text: &mut String) {
        let lost = [
            (self.lost_ring, "lost because the ring was full"),
            (self.lost_interface, "lost by the interface or its driver"),
            (self.damaged_records, "records damaged"),
        ];
        let seen = [
            (self.unread, "left unread because a limit was reached"),
            (self.fragments, "parts of IP packets"),
            (self.tagged_packets, "with a VLAN tag"),
            (self.cut_packets, "cut short within their headers"),
        ];
        let seen = seen.iter().filter(|(count, _)| *count > 0);
        // Losses are printed even when they are 0, which shows that they were counted.
        for (count, what) in lost.iter().chain(seen) {
            writeln!(text, "{count:>14}  {what}").expect("text grows in memory");
        }
    }

    fn rows(&self, text: &mut String, name: &str, packets: u64, bytes: u64) {
        let share = 100.0 * bytes as f64 / self.bytes.max(1) as f64;
        let bytes = quantity::bytes(bytes);
        writeln!(text, "{packets:>14}  {bytes:>12} {share:>6.2} %  {name}")
            .expect("text grows in memory");
    }
}

impl Document for StatsReport {
    const SCHEMA: &'static str = "towline.stats";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let told = format!(
            "{} packets, {}, in {:.3} s: {:.0} packets/s, {}",
            self.packets,
            quantity::bytes(self.bytes),
            self.span_s,
            self.packets_per_s,
            quantity::bits(self.bits_per_s),
        );
        let mut text = String::new();
        wrap(&mut text, &format!("{}:", self.sources.join(" ")), &told);
        self.losses(&mut text);
        text += &account_end(self.residual, self.sink_residual);
        for (title, rows) in [("filter", &self.filters), ("protocol", &self.protocols)] {
            if !rows.is_empty() {
                Self::heading(&mut text, title);
            }
            for row in rows {
                self.rows(&mut text, &row.name, row.packets, row.bytes);
            }
        }
        Self::heading(&mut text, "size of a packet");
        for row in self.sizes.iter().filter(|row| row.packets > 0) {
            let name = match row.up_to_bytes {
                Some(limit) => format!("up to {limit} bytes"),
                None => "longer".to_owned(),
            };
            self.rows(&mut text, &name, row.packets, row.bytes);
        }
        if self.pairs > 0 {
            let pairs = quantity::count(self.pairs, "pair");
            Self::heading(&mut text, &format!("from > to, of {pairs}"));
        }
        for row in &self.talkers {
            let name = format!("{} > {}", row.from, row.to);
            self.rows(&mut text, &name, row.packets, row.bytes);
        }
        if self.packets_of_other_pairs > 0 {
            let count = self.packets_of_other_pairs;
            writeln!(text, "{count:>14}  of other pairs").expect("text grows in memory");
        }
        let bits: Vec<f64> = self
            .rate
            .iter()
            .map(|step| step.bytes as f64 * 8.0)
            .collect();
        if bits.len() > 1 {
            let line = sparkline(&bits, SPARK_COLUMNS);
            let highest = highest_mean(&bits, SPARK_COLUMNS) / self.step_s;
            writeln!(
                text,
                "rate over {:.3} s, highest {}\n|{line}|",
                self.span_s,
                quantity::bits(highest)
            )
            .expect("text grows in memory");
        }
        text
    }
}

/// The report of `stats --sweep`: what capturing lost and cost, a row for each source and size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatsSweepReport {
    pub(crate) sweep: CaptureSweep,
    pub(crate) rows: Vec<SweepRow>,
}

impl Document for StatsSweepReport {
    const SCHEMA: &'static str = "towline.stats-sweep";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let rate = quantity::whole_rate(self.sweep.packets_per_s as f64);
        let mut text = format!("packets at {rate}\n");
        for row in &self.rows {
            text += &sweep_line(row);
            text.push('\n');
        }
        text
    }
}

/// Returns the line that says what a capture lost and cost at one packet size.
pub(crate) fn sweep_line(row: &SweepRow) -> String {
    let cost = match row.cpu_ns {
        None => String::new(),
        Some(_) if row.cpu_is_noise => ", processor time within the noise".to_owned(),
        Some(ns) => format!(", {:.2} us of processor time each", ns / 1e3),
    };
    let account = match row.residual {
        Some(0) => "",
        _ => "; the account does NOT close",
    };
    format!(
        "{:>6} {:>9} B: {:>7.3} % lost, {} because the ring was full{cost}{account}",
        format!("{}:", row.source),
        row.size_bytes,
        row.loss() * 100.0,
        row.lost_ring,
    )
}

/// Lists the counts so far: a line for each filter, for each of the [`MOST_ROWS`] protocols with
/// most bytes, and for each of the [`MOST_ROWS`] pairs of addresses with most bytes.
pub(crate) fn most_of(summary: &Summary) -> String {
    let mut text = String::new();
    let mut line = |name: &str, count: &Count| {
        let share = 100.0 * count.bytes as f64 / summary.all.bytes.max(1) as f64;
        let bytes = quantity::bytes(count.bytes);
        write!(
            text,
            "\n{:>14}  {bytes:>12} {share:>6.2} %  {name}",
            count.packets
        )
        .expect("text grows in memory");
    };
    let filters = summary.filters.iter();
    let named = filters.chain(summary.protocols.iter().take(MOST_ROWS));
    named.for_each(|(name, count)| line(name, count));
    for (from, to, count) in summary.talkers.iter().take(MOST_ROWS) {
        line(&format!("{from} > {to}"), count);
    }
    text
}

/// Draws a line of bars; each column is the mean of the values that fall into it.
fn sparkline(values: &[f64], columns: usize) -> String {
    let means = means(values, columns);
    let most = highest_mean(values, columns).max(f64::MIN_POSITIVE);
    let bar = |value: &f64| {
        let height = (value / most * (BARS.len() - 1) as f64).round() as usize;
        BARS[height.min(BARS.len() - 1)]
    };
    means.iter().map(bar).collect()
}

/// Returns the value that the highest bar of a [`sparkline`] stands for.
fn highest_mean(values: &[f64], columns: usize) -> f64 {
    means(values, columns).into_iter().fold(0.0, f64::max)
}

/// Returns the mean of the values that fall into each column.
fn means(values: &[f64], columns: usize) -> Vec<f64> {
    let columns = columns.min(values.len());
    let mean = |column: usize| {
        let from = column * values.len() / columns;
        let to = ((column + 1) * values.len() / columns).max(from + 1);
        values[from..to].iter().sum::<f64>() / (to - from) as f64
    };
    (0..columns).map(mean).collect()
}

/// Draws the rate of packets and bytes over time.
pub(crate) fn flow_scene(summary: &Summary, sources: &[String]) -> Scene {
    let steps = summary.rate.iter().map(|count| FlowStep {
        packets: count.packets,
        bytes: count.bytes,
    });
    let steps: Vec<FlowStep> = steps.collect();
    let Count { packets, bytes } = summary.all;
    let total = format!(
        "{}, {} of frames without check sequence",
        quantity::count(packets, "packet"),
        quantity::bytes(bytes)
    );
    let lines = [sources.join(", "), total];
    flow("Packets over time", &lines, summary.step, &steps)
}

/// While packets are counted, at most this many protocols and this many pairs of addresses are
/// shown.
const MOST_ROWS: usize = 5;
const SPARK_COLUMNS: usize = 64;
const BARS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_packets_are_counted_filters_stand_before_what_there_is_most_of() {
        let count = |packets| Count {
            packets,
            bytes: packets * 100,
        };
        let protocol = |at: u64| (format!("protocol {at}"), count(10 - at));
        let summary = Summary {
            all: count(40),
            filters: vec![("udp".to_owned(), count(20))],
            protocols: (0..7).map(protocol).collect(),
            talkers: vec![([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), count(40))],
            ..Summary::default()
        };
        let text = most_of(&summary);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 1 + MOST_ROWS + 1, "{text}");
        assert!(lines[0].ends_with("2 kB  50.00 %  udp"), "{text}");
        assert!(
            lines[6].ends_with("100.00 %  10.0.0.1 > 10.0.0.2"),
            "{text}"
        );
    }

    #[test]
    fn bars_are_as_high_as_their_means() {
        assert_eq!(sparkline(&[0.0, 8.0, 4.0, 4.0], 2), "\u{2588}\u{2588}");
        assert_eq!(sparkline(&[0.0, 8.0], 9), " \u{2588}");
        assert_eq!(highest_mean(&[0.0, 8.0, 4.0, 4.0], 2).to_string(), "4");
        assert_eq!(highest_mean(&[], 2).to_string(), "0");
    }
}
