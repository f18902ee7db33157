//! A sweep as a picture: rates, losses and processor time by size.

use std::io::{self, Write};

use measure::{
    Format,
    plot::{SizeCurve, SizePoint, sizes},
    write_picture,
};

use super::{Direction, Flow, Row, SweepReport};

/// Draws a sweep. The page of [`Format::Html`] shows the figures of the point under the pointer,
/// and the report below the picture.
///
/// # Errors
/// When `output` fails, or when `format` is no picture.
pub fn draw(output: &mut impl Write, format: Format, report: &SweepReport) -> io::Result<()> {
    let scene = sizes(
        "What the path carries, by payload bytes of a datagram",
        &lines(report),
        &curves(report),
    );
    let about = serde_json::to_string_pretty(report).unwrap_or_default();
    write_picture(output, format, &scene, "towline udp", &about)?;
    output.flush()
}

/// Makes the lines that say where the figures come from and what they mean.
fn lines(report: &SweepReport) -> Vec<String> {
    let way = report
        .group
        .map_or_else(String::new, |group| format!(" through {group}"));
    let from = format!(
        "to {}{way} by {}, MTU {}",
        report.servers.join(", "),
        report.interface,
        report.mtu_bytes
    );
    let datagrams: u64 = report
        .rows
        .iter()
        .flat_map(|row| &row.flows)
        .map(|flow| flow.dispatch.sent)
        .sum();
    let link = match report.link {
        Some(link) => format!("the line takes {:.3} Gbit/s", link.bits_per_s as f64 / 1e9),
        None => "line rate not known".to_owned(),
    };
    let meaning = format!(
        "rates as received, one way, with at most {} % loss unless the rate was given",
        report.loss_max_share * 100.0
    );
    let most = format!("{datagrams} datagrams sent at these rates; {link}");
    let mut lines = vec![from, meaning, most];
    if let Some(cut) = &report.cut {
        lines.push(format!("CUT SHORT: {cut}"));
    }
    lines
}

/// Makes a curve for each way of sending, and one for the most that the link carries.
fn curves(report: &SweepReport) -> Vec<SizeCurve> {
    let mut curves: Vec<SizeCurve> = Vec::new();
    for (row, flow) in report
        .rows
        .iter()
        .flat_map(|row| row.flows.iter().map(move |flow| (row, flow)))
    {
        let name = name(row, flow);
        let at = curves.iter().position(|curve| curve.name == name);
        let at = at.unwrap_or_else(|| {
            let points = Vec::new();
            curves.push(SizeCurve { name, points });
            curves.len() - 1
        });
        let [send, receive] = flow.cpu_ns_per_datagram();
        curves[at].points.push(SizePoint {
            size_bytes: row.size_bytes,
            received_per_s: flow.received_per_s,
            loss: Some(flow.loss()),
            cpu_ns: Some(send + receive),
        });
    }
    if let Some(link) = report.link {
        let most = |row: &Row| SizePoint {
            size_bytes: row.size_bytes,
            received_per_s: link.datagrams_per_s(row.size_bytes, report.is_ipv6) as f64,
            loss: None,
            cpu_ns: None,
        };
        curves.push(SizeCurve {
            name: "the line's maximum".to_owned(),
            points: report.rows.iter().map(most).collect(),
        });
    }
    for curve in &mut curves {
        curve.points.sort_by_key(|point| point.size_bytes);
        curve.points.dedup_by_key(|point| point.size_bytes);
    }
    curves
}

fn name(row: &Row, flow: &Flow) -> String {
    let way = if flow.is_back { "back" } else { "there" };
    let both = if row.direction == Direction::Both {
        " while both"
    } else {
        ""
    };
    let (mode, profile) = (row.mode, row.profile);
    format!("{way}{both}, {mode:?}, {profile:?}").to_lowercase()
}
