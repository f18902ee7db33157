//! What `udp` has to say: a line for each size and direction, rates by the receiver's count.

use std::fmt::Write as _;

use gauge::udp::{Flow, Limit, Profile, Row, SweepReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, quantity};

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

/// `udp run` and `udp plot`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct UdpReport(pub(crate) SweepReport);

impl UdpReport {
    /// Reads what [`Output::finish_after`](super::Output::finish_after) has written as JSON: the
    /// last document, whatever intervals stand before it.
    pub(crate) fn parse(documents: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Envelope {
            schema: String,
            version: u32,
        }
        let say = |error: serde_json::Error| error.to_string();
        let all = serde_json::Deserializer::from_slice(documents).into_iter();
        let all: Result<Vec<serde_json::Value>, _> = all.collect();
        let last = all.map_err(say)?.pop().unwrap_or_default();
        let envelope = Envelope::deserialize(&last).map_err(say)?;
        let Envelope { schema, version } = envelope;
        if (schema.as_str(), version) != (Self::SCHEMA, Self::VERSION) {
            return Err(format!("it is {schema}, version {version}"));
        }
        serde_json::from_value(last).map(Self).map_err(say)
    }
}

impl Document for UdpReport {
    const SCHEMA: &'static str = "towline.udp";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let report = &self.0;
        let mut text = format!(
            "to {}{}\nby {}, MTU {}; highest rates with at most {} % loss, as received\n\n",
            report.servers.join(", "),
            report
                .group
                .map_or_else(String::new, |group| format!(" through {group}")),
            report.interface,
            report.mtu,
            report.loss_max * 100.0,
        );
        text += HEADINGS;
        for row in &report.rows {
            line(&mut text, row);
        }
        for remark in &report.remarks {
            text += &format!("\nfinding       {remark}");
        }
        if !report.remarks.is_empty() {
            text.push('\n');
        }
        if let Some(cut) = &report.cut {
            text += &format!("\ncut short     {cut}; the rows above were measured before\n");
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
        "{:>6} {:<5} {:<8} {:<6}",
        row.size,
        row.mode.name(),
        profile(row.profile),
        row.direction.name()
    );
    if row.flows.is_empty() {
        push(text, &format!("{start} {:>11}", "-"));
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
                "{start} {:>11} {:>12} {:>7.3} {:>6.2} {:>6.2} {:>11}  {}",
                quantity::whole_rate(flow.received_per_s),
                quantity::bits(flow.received_per_s * row.size as f64 * 8.0),
                flow.loss() * 100.0,
                send / 1e3,
                receive / 1e3,
                flood.get(nth).map_or("-", String::as_str),
                if nth == 0 { limit(row.limit) } else { "" },
            ),
        );
        if flow.losses.total() > 0 {
            push(text, &format!("{:>27} {}", "lost:", losses(flow)));
        }
    }
    for remark in &row.remarks {
        push(text, &format!("{:>27} {remark}", "note:"));
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
        Limit::NothingArrives => "nothing arrives",
        Limit::NotMeasured => "not measured",
    }
}

const HEADINGS: &str = "\
  size mode  sockets  who           rate      payload  loss %  CPU us each       flooded  limited by
                                                             send   recv
";
