//! A picture of what ways of writing cost: the time of a call, by the size of a write.

use std::io::{self, Write};

use measure::{
    Format,
    plot::{CallCurve, CallPoint, calls},
    write_picture,
};

use super::{Cell, WritesReport};

/// Draws a measurement of ways of writing, with a curve for each way. The page of [`Format::Html`]
/// shows the figures of the point under the pointer, and the report below the picture.
///
/// # Errors
/// When `output` fails, or when `format` is no picture.
pub fn draw(output: &mut impl Write, format: Format, report: &WritesReport) -> io::Result<()> {
    let calls_made: u32 = report.rows.iter().map(|row| row.calls).sum();
    let lines = [
        format!(
            "{} writes, then the read of a short answer, to {}; {calls_made} calls",
            report.writes, report.server
        ),
        "a step of 40 ms: the last write waits for an acknowledgement that the other end delays"
            .to_owned(),
    ];
    let scene = calls(
        "What a call costs, by bytes of each write",
        &lines,
        &curves(report),
    );
    let about = serde_json::to_string_pretty(report).unwrap_or_default();
    write_picture(output, format, &scene, "towline tcp writes", &about)?;
    output.flush()
}

fn curves(report: &WritesReport) -> Vec<CallCurve> {
    let mut curves: Vec<CallCurve> = Vec::new();
    for row in &report.rows {
        let name = name(row);
        let at = curves.iter().position(|curve| curve.name == name);
        let at = at.unwrap_or_else(|| {
            let points = Vec::new();
            curves.push(CallCurve { name, points });
            curves.len() - 1
        });
        curves[at].points.push(CallPoint {
            size_bytes: row.write_bytes,
            p50_ms: row.p50_ms,
            max_ms: row.max_ms,
        });
    }
    for curve in &mut curves {
        curve.points.sort_by_key(|point| point.size_bytes);
    }
    curves
}

fn name(row: &Cell) -> String {
    let mode = format!("{:?}", row.coalescing).to_lowercase();
    match row.send_buffer_bytes {
        Some(bytes) => format!("{mode}, send buffer {bytes} B"),
        None => mode,
    }
}
