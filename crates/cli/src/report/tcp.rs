//! The reports of `tcp`: connections with what held each back, and how long calls take with each
//! way of writing.

use std::collections::BTreeSet;

use gauge::tcp::{Cell, Coalescing, Connection, WritesReport};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, quantity, text::wrap};

/// `tcp watch --json`: one connection since the previous reading, as one line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct TcpConnectionLine(pub(crate) Connection);

impl Document for TcpConnectionLine {
    const SCHEMA: &'static str = "towline.tcp-connection";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        connection(&self.0)
    }
}

/// `tcp watch`: all connections over the whole time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TcpWatchReport {
    /// How long the watch lasted.
    pub(crate) seconds: f64,
    /// The connections, the busiest first.
    pub(crate) connections: Vec<Connection>,
}

impl Document for TcpWatchReport {
    const SCHEMA: &'static str = "towline.tcp-watch";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let time = quantity::seconds(self.seconds);
        let count = quantity::count(self.connections.len() as u64, "connection");
        let mut text = format!("{count} in {time}\n");
        for one in &self.connections {
            text += &connection(one);
        }
        text
    }
}

fn connection(one: &Connection) -> String {
    let mut text = String::new();
    let mut head = format!("{} -> {}", one.local, one.remote);
    if let Some(process) = &one.process {
        head += &format!(", {} (process {})", process.name, process.pid);
    }
    wrap(&mut text, "", &head);
    let [rtt, least] = ["rtt_us", "min_rtt_us"].map(|name| one.field(name) as f64 / 1e3);
    let moved = format!(
        "{} out, {} in, round trip {rtt:.2} ms (least {least:.2}), {:.2} % sent again, {}",
        quantity::bits(one.sent_per_s * 8.0),
        quantity::bits(one.received_per_s * 8.0),
        one.resent_percent,
        one.congestion,
    );
    wrap(&mut text, "   ", &moved);
    // If an end sends nothing, only its application holds it back.
    if let Some(shares) = one.shares.filter(|_| one.sent_per_s > 0.0) {
        let limit = one.limited_by.map_or("nothing", |limit| limit.words());
        let told = format!(
            "held back by: application {:.0} %, receiver {:.0} %, send buffer {:.0} %, network \
             {:.0} %; most by: {limit}",
            shares.application_percent,
            shares.receiver_percent,
            shares.send_buffer_percent,
            shares.network_percent,
        );
        wrap(&mut text, "   ", &told);
    }
    text
}

/// `tcp writes`: a row for each combination of write size, send buffer and way of writing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct TcpWritesReport(pub(crate) WritesReport);

impl Document for TcpWritesReport {
    const SCHEMA: &'static str = "towline.tcp-writes";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let report = &self.0;
        let mut text = String::new();
        let told = format!(
            "calls of {} and the read of a short answer; ms is the median of a call",
            quantity::count(report.writes as u64, "write"),
        );
        wrap(&mut text, &format!("{}:", report.server), &told);
        text +=
            "   bytes  mode      buffer           ms  0.01     0.1      1        10       100\n";
        for row in &report.rows {
            let buffer = match row.send_buffer_bytes {
                Some(bytes) => quantity::bytes(bytes as u64),
                None => "kernel's".to_owned(),
            };
            let mode = mode(row.coalescing);
            text += &format!(
                "{:>8}  {mode:<8}  {buffer:<8}  {:>11.3}  {}\n",
                row.write_bytes,
                row.p50_ms,
                bar(row.p50_ms)
            );
        }
        let delayed = report
            .rows
            .iter()
            .filter(|row| is_delayed(row, &report.rows));
        let sizes: BTreeSet<usize> = delayed.map(|row| row.write_bytes).collect();
        if !sizes.is_empty() {
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            let told = format!(
                "Calls with writes of {} B wait for an acknowledgement that the other end delays. \
                 Write each call as a whole, or set TCP_NODELAY",
                sizes.join(", "),
            );
            wrap(&mut text, "", &told);
        }
        text
    }
}

const fn mode(coalescing: Coalescing) -> &'static str {
    match coalescing {
        Coalescing::Nagle => "nagle",
        Coalescing::NoDelay => "no-delay",
        Coalescing::Cork => "cork",
    }
}

/// Draws a time on a scale of powers of ten, from 0.01 ms.
fn bar(ms: f64) -> String {
    let steps = (ms.max(0.01) / 0.01).log10() * COLUMNS_A_POWER;
    "#".repeat((steps.round() as usize).clamp(1, COLUMNS_MAX))
}

/// Returns true for a row that takes as long as a delayed acknowledgement, while the same row
/// without Nagle's rule takes at most a tenth of that time.
fn is_delayed(row: &Cell, rows: &[Cell]) -> bool {
    let is_same = |other: &&Cell| {
        other.coalescing == Coalescing::NoDelay
            && (other.write_bytes, other.send_buffer_bytes)
                == (row.write_bytes, row.send_buffer_bytes)
    };
    let at_once = rows.iter().find(is_same);
    row.p50_ms >= DELAY_MS_MIN && at_once.is_some_and(|other| other.p50_ms * 10.0 <= row.p50_ms)
}

const COLUMNS_A_POWER: f64 = 9.0;
const COLUMNS_MAX: usize = 36;
/// Milliseconds, a little less than the shortest time by which most systems delay acknowledgements.
const DELAY_MS_MIN: f64 = 30.0;

/// `tcp serve`: how many calls the responder answered.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct TcpServeReport {
    pub(crate) calls: u64,
}

impl Document for TcpServeReport {
    const SCHEMA: &'static str = "towline.tcp-serve";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        format!("{}\n", quantity::count(self.calls, "call"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(write_bytes: usize, coalescing: Coalescing, p50_ms: f64) -> Cell {
        Cell {
            write_bytes,
            coalescing,
            send_buffer_bytes: None,
            granted_bytes: None,
            calls: 20,
            p50_ms,
            p90_ms: p50_ms,
            max_ms: p50_ms,
        }
    }

    #[test]
    fn the_delayed_acknowledgement_is_drawn_and_named_once() {
        use Coalescing::{Nagle, NoDelay};
        let text = TcpWritesReport(WritesReport {
            server: ([10, 0, 0, 1], 7_702).into(),
            writes: 2,
            rows: vec![
                cell(64, Nagle, 44.0),
                cell(64, NoDelay, 0.03),
                cell(512, Nagle, 44.0),
                cell(512, NoDelay, 0.03),
                // A slow network: calls take this long in any mode.
                cell(65_536, Nagle, 44.0),
                cell(65_536, NoDelay, 40.0),
            ],
        })
        .text();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(
            text.matches("writes of 64, 512 B wait").count(),
            1,
            "{text}"
        );
        let bars: Vec<_> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars[3..5], [33, 4], "{text}");
    }
}
