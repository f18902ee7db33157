//! The reports of `udp`: a line for each combination of size, mode, sockets and direction. Rates
//! are those that the receiver counted.

use std::fmt::Write as _;

use gauge::udp::{Flow, Limit, Profile, Row, SweepReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, quantity, text::wrap};

/// `udp serve`: what the server did.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct UdpServeReport {
    pub(crate) trials: u64,
}

impl Document for UdpServeReport {
    const SCHEMA: &'static str = "towline.udp-serve";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        format!("{}\n", quantity::count(self.trials, "trial"))
    }
}

/// `udp run` and `udp plot`: what a sweep measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct UdpReport(pub(crate) SweepReport);

impl UdpReport {
    /// Reads a report from the JSON that [`Output::finish_after`](super::Output::finish_after)
    /// wrote: the report is the last document, and documents of intervals may come before it.
    pub(crate) fn parse(documents: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Envelope {
            schema: String,
            version: u32,
        }
        let say = |error: serde_json::Error| match error.is_eof() {
            true => format!("it was cut short: {error}"),
            false => error.to_string(),
        };
        let all = serde_json::Deserializer::from_slice(documents).into_iter();
        let all: Result<Vec<serde_json::Value>, _> = all.collect();
        let last = all.map_err(say)?.pop().ok_or("it is empty")?;
        let envelope = Envelope::deserialize(&last).map_err(say)?;
        let Envelope { schema, version } = envelope;
        if (schema.as_str(), version) != (Self::SCHEMA, Self::VERSION) {
            return Err(format!(
                "it is {schema}, version {version}, and not {}, version {}",
                Self::SCHEMA,
                Self::VERSION
            ));
        }
        serde_json::from_value(last).map(Self).map_err(say)
    }
}

impl Document for UdpReport {
    const SCHEMA: &'static str = "towline.udp";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let report = &self.0;
        let what = if report.is_load_given {
            "one trial each, at the load that was asked for".to_owned()
        } else {
            format!(
                "highest rates with at most {} % loss",
                report.loss_max_share * 100.0
            )
        };
        let group = report.group.map(|group| format!(" through {group}"));
        let mut text = format!(
            "to {}{}\nby {}, MTU {}; {what}, as received\n\n",
            report.servers.join(", "),
            group.unwrap_or_default(),
            report.interface,
            report.mtu_bytes,
        );
        text += HEADINGS;
        for row in &report.rows {
            line(&mut text, row);
        }
        notes(&mut text, &report.rows);
        for remark in &report.remarks {
            text.push('\n');
            wrap(&mut text, "finding      ", remark);
        }
        if let Some(cut) = &report.cut {
            let cut = format!("{cut}; the rows above were measured before");
            text.push('\n');
            wrap(&mut text, "cut short    ", &cut);
        }
        text
    }
}

fn line(text: &mut String, row: &Row) {
    let flood: Vec<String> = row
        .flood_received_per_s
        .iter()
        .map(|&it| quantity::whole_rate(it))
        .collect();
    let start = format!(
        "{:>5} {:<5} {:<8} {:<5}",
        row.size_bytes,
        row.mode.name(),
        profile(row.profile),
        row.direction.name()
    );
    if row.flows.is_empty() {
        push(text, &format!("{start} {:>9}", "-"));
    }
    for (nth, flow) in row.flows.iter().enumerate() {
        let [send, receive] = flow.cpu_ns_per_datagram();
        let start = if nth == 0 {
            start.clone()
        } else {
            " ".repeat(start.len())
        };
        push(
            text,
            &format!(
                "{start} {:>9} {:>11} {:>7.3} {:>6.2} {:>6.2} {:>9}",
                quantity::whole_rate(flow.received_per_s),
                quantity::bits(flow.received_per_s * row.size_bytes as f64 * 8.0),
                flow.loss() * 100.0,
                send / 1e3,
                receive / 1e3,
                flood.get(nth).map_or("-", String::as_str),
            ),
        );
        if flow.losses.total() > 0 {
            wrap(text, &format!("{:>20}", "lost:"), &losses(flow));
        }
    }
    // A row that was not measured has a note that says why.
    if row.limit != Limit::NotMeasured {
        wrap(text, &format!("{:>20}", "limited by:"), limit(row.limit));
    }
}

/// Writes the remarks of the rows: each remark once, with the datagram sizes of the rows that have
/// it.
fn notes(text: &mut String, rows: &[Row]) {
    let mut told: Vec<(&str, Vec<usize>)> = Vec::new();
    for row in rows {
        for remark in &row.remarks {
            let known = told.iter_mut().find(|(known, _)| known == remark);
            match known {
                Some((_, sizes)) if sizes.last() == Some(&row.size_bytes) => {}
                Some((_, sizes)) => sizes.push(row.size_bytes),
                None => told.push((remark, vec![row.size_bytes])),
            }
        }
    }
    if !told.is_empty() {
        text.push('\n');
    }
    for (remark, sizes) in told {
        let sizes: Vec<String> = sizes.iter().map(|size| format!("{size} B")).collect();
        wrap(
            text,
            "note         ",
            &format!("{}: {remark}", sizes.join(", ")),
        );
    }
}

fn push(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("writing to a String cannot fail");
}

fn losses(flow: &Flow) -> String {
    let losses = flow.losses;
    let causes = [
        (losses.at_sender, "by the sender's interface"),
        (losses.at_socket, "at the full socket"),
        (losses.in_reassembly, "in reassembly"),
        (losses.in_network, "on the way"),
    ];
    let told = causes.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told
        .map(|(count, cause)| format!("{count} {cause}"))
        .collect();
    told.join(", ")
}

const fn profile(profile: Profile) -> &'static str {
    match profile {
        Profile::Standard => "standard",
        Profile::Tuned => "tuned",
    }
}

const fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Sender => "sender's processor",
        Limit::SenderInterface => "sender's interface",
        Limit::ReceiverSocket => "receiver's socket",
        Limit::Reassembly => "reassembly",
        Limit::Network => "the path",
        Limit::Asked => "as asked",
        Limit::Server => "the server's --rate-max",
        Limit::NothingArrives => "nothing arrives",
        Limit::NotMeasured => "not measured",
    }
}

const HEADINGS: &str = "\
 size mode  sockets  who        rate     payload  loss %   CPU us each   flooded
                                                           send   recv
";

#[cfg(test)]
mod tests {
    use gauge::udp::{Direction, Dispatch, KernelCounters, Losses, Mode, Receipt};

    use super::*;

    fn row(size: usize) -> Row {
        let dispatch = Dispatch {
            sent: 1_000_000,
            refused: 9_000_000,
            cpu_ns: 123_450_000_000,
            ..Dispatch::default()
        };
        let flow = Flow {
            is_back: false,
            dispatch,
            receipt: Receipt::default(),
            received_per_s: 123_456_789.0,
            losses: Losses {
                at_sender: 9_000_000,
                at_socket: 1_234_567,
                in_reassembly: 1_234_567,
                in_network: 1_234_567,
            },
            sender: KernelCounters::default(),
            receiver: KernelCounters::default(),
        };
        Row {
            size_bytes: size,
            mode: Mode::Batch,
            profile: Profile::Standard,
            direction: Direction::There,
            trials: 1,
            flows: vec![flow; 2],
            flood_received_per_s: vec![123_456_789.0; 2],
            limit: Limit::SenderInterface,
            remarks: vec![["every"; 30].join(" "), format!("{size} is its own")],
        }
    }

    fn report() -> UdpReport {
        UdpReport(SweepReport {
            servers: vec!["10.71.0.2:7701 (vm, e0)".to_owned()],
            group: None,
            interface: "e0".to_owned(),
            mtu_bytes: 1500,
            link: None,
            is_ipv6: false,
            loss_max_share: 0.001,
            is_load_given: false,
            rows: [1472, 8192, 65507].map(row).into(),
            remarks: vec![["finding"; 20].join(" ")],
            cut: Some(["cut"; 40].join(" ")),
        })
    }

    #[test]
    fn a_report_fits_into_80_columns_and_says_each_note_once() {
        let text = report().text();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let common = text.matches("1472 B, 8192 B, 65507 B: every every").count();
        assert_eq!(common, 1, "{text}");
        assert!(
            text.contains("note          8192 B: 8192 is its own\n"),
            "{text}"
        );
        let limited = text.matches("limited by: sender's interface\n").count();
        assert_eq!(limited, 3, "{text}");
    }

    #[test]
    fn a_load_that_was_given_is_no_highest_rate() {
        let mut report = report();
        assert!(
            report
                .text()
                .contains("highest rates with at most 0.1 % loss")
        );
        report.0.is_load_given = true;
        let text = report.text();
        assert!(
            !text.contains("highest") && text.contains("asked for"),
            "{text}"
        );
    }
}
