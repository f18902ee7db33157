//! Messages by size, loss and number of receivers, ours beside what the kernel carries under the
//! same rule.
//!
//! Runs kept whole go over one virtual cable; loss and several receivers over a switch that cuts
//! runs into single packets, as a wire would. "Lossless" there is a rule that drops none: it costs
//! the same as one that does.

use std::{path::PathBuf, process::Command, thread, time::Duration};

use lab::{Lab, LabSpec};
use serde_json::Value;

use crate::{
    machine::Ticks,
    measure_valid,
    peer::Peer,
    program::{self, Running, number_after},
    sample::{Sample, Series},
};

/// One column of the matrix: what is sent to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Payload bytes of a message.
    pub(crate) size: usize,
    pub(crate) receivers: usize,
    /// Packets of a thousand that each receiver loses; `None` for no rule at all.
    pub(crate) lost_permille: Option<u32>,
}

/// Runs every case and gives the table.
pub(crate) fn run(pairs: usize) -> Result<String, String> {
    let direct = Lab::new(&LabSpec::new(2).direct()).map_err(|e| e.to_string())?;
    let spec = LabSpec::new(1 + RECEIVERS_MAX).segments_at_switch();
    let switched = Lab::new(&spec).map_err(|e| e.to_string())?;
    let mut text = format!(
        "messages by size, loss and receivers, {pairs} pairs\n{}",
        head()
    );
    for size in [64, 256, 1400, 8_000, 60_000] {
        let case = Case {
            size,
            receivers: 1,
            lost_permille: None,
        };
        text += &row(&direct, case, pairs)?.0;
    }
    for receivers in [1, 3, usize::from(RECEIVERS_MAX)] {
        let mut lossless = None;
        for lost in [0, 1, 10, 50] {
            let case = Case {
                size: 1400,
                receivers,
                lost_permille: Some(lost),
            };
            let (line, ours) = row(&switched, case, pairs)?;
            text += &line;
            let base = lossless.get_or_insert_with(|| ours.clone());
            let [low, ratio, high] = ours.ratio_to(base);
            text += &format!("{:>64}{ratio:.2} ({low:.2} .. {high:.2}) of lossless\n", "");
        }
    }
    Ok(text)
}

fn head() -> String {
    format!(
        "{:<44} {:>12} {:>12} {:>9} {:>22}\n",
        "case", "ours msg/s", "bare UDP", "CPU s/GB", "ours / bare (spread)"
    )
}

/// Ours and bare UDP in turn; the line, and ours.
fn row(lab: &Lab, case: Case, pairs: usize) -> Result<(String, Series), String> {
    case.set_loss(lab)?;
    let ours = Ours::new("towline load", case, &[])?;
    let bare = Bare {
        program: program::compile("udplimit.c", &[])?,
        case,
    };
    let (mut our_series, mut bare_series) = (Series::new("ours"), Series::new("bare"));
    for pair in 1..=pairs {
        for (peer, series) in [
            (&ours as &dyn Peer, &mut our_series),
            (&bare, &mut bare_series),
        ] {
            let sample = measure_valid(peer, lab)?;
            eprintln!(
                "{} pair {pair} {}: {sample} msg/s",
                case.title(),
                peer.name()
            );
            series.push(sample);
        }
    }
    let [low, ratio, high] = our_series.ratio_to(&bare_series);
    let line = format!(
        "{:<44} {:>12.0} {:>12.0} {:>9.2} {:>22}\n",
        case.title(),
        our_series.rate()[1],
        bare_series.rate()[1],
        our_series.cpu_seconds_per_gb(),
        format!("{ratio:.2} ({low:.2} .. {high:.2})"),
    );
    Ok((line, our_series))
}

impl Case {
    /// Lets every receiver lose as much as the case says.
    pub(crate) fn set_loss(self, lab: &Lab) -> Result<(), String> {
        for receiver in 1..=self.receivers {
            let host = lab.host(receiver);
            match self.lost_permille {
                Some(lost) => host.set_loss(lost, 1000).map_err(|e| e.to_string())?,
                None => host.clear_loss().map_err(|e| e.to_string())?,
            }
        }
        Ok(())
    }

    pub(crate) fn title(self) -> String {
        let Self {
            size, receivers, ..
        } = self;
        match self.lost_permille {
            None => format!("{size} B, 1 receiver, runs kept whole"),
            Some(lost) => {
                let percent = f64::from(lost) / 10.0;
                format!("{size} B, {receivers} receivers, cut, {percent} % lost")
            }
        }
    }
}

/// `towline load`, at its defaults but for what its sender is told, until every receiver has
/// everything.
#[derive(Debug)]
pub(crate) struct Ours {
    name: &'static str,
    program: PathBuf,
    case: Case,
    more: &'static [&'static str],
}

impl Ours {
    pub(crate) fn new(
        name: &'static str,
        case: Case,
        more: &'static [&'static str],
    ) -> Result<Self, String> {
        let program = program::ours()?;
        Ok(Self {
            name,
            program,
            case,
            more,
        })
    }

    fn command(&self, lab: &Lab, host: usize, verb: &str) -> Command {
        let mut command = lab.host(host).command(&self.program);
        command.args(["load", verb, "--group", GROUP, "--iface", "e0", "--json"]);
        command
    }
}

impl Peer for Ours {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let Case {
            size, receivers, ..
        } = self.case;
        let mut running = Vec::new();
        for host in 1..=receivers {
            running.push(Running::start(&mut self.command(lab, host, "recv"))?);
        }
        thread::sleep(SETTLE);
        let before = Ticks::read();
        let mut send = self.command(lab, 0, "send");
        let [size_text, count] = [size, receivers].map(|number| number.to_string());
        send.args([
            "--seconds",
            "3",
            "--size",
            &size_text,
            "--receivers",
            &count,
        ]);
        send.args(self.more);
        let sent = document(&Running::start(&mut send)?.finish(RUN_LIMIT)?)?;
        let mut sample = Sample {
            rate: f64::INFINITY,
            repairs_permille: repairs_permille(&sent["counters"]),
            ..Sample::default()
        };
        for receiver in running {
            let received = document(&receiver.finish(RUN_LIMIT)?)?;
            let wrong = ["missing", "corrupt", "duplicates", "out_of_order"];
            let wrong: f64 = wrong.iter().map(|key| number(&received, key)).sum();
            let lacking = number(&sent, "messages") - number(&received, "messages");
            sample.missing += u64::from(lacking != 0.0 || wrong != 0.0);
            sample.rate = sample.rate.min(number(&received, "messages_per_s"));
            sample.bytes = number(&received, "bytes");
        }
        Ok(timed(sample, before))
    }
}

/// Datagrams of the same length, as many as a message takes, that nobody asks for again. The rate
/// is that of the receiver that got least.
#[derive(Debug)]
struct Bare {
    program: PathBuf,
    case: Case,
}

impl Peer for Bare {
    fn name(&self) -> &'static str {
        "bare UDP"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let Case {
            size, receivers, ..
        } = self.case;
        let command = |host: usize, verb: &str| {
            let host = lab.host(host);
            let mut command = host.command(&self.program);
            command.args([verb, &host.ipv4().to_string(), BARE_GROUP]);
            command
        };
        let mut running = Vec::new();
        for host in 1..=receivers {
            running.push(Running::start(command(host, "recv").args(["4.5", "gro"]))?);
        }
        thread::sleep(SETTLE);
        let before = Ticks::read();
        let pieces = size.div_ceil(PACKET_PAYLOAD);
        let datagram = (size.div_ceil(pieces) + PGM_HEADER_BYTES).to_string();
        Running::start(command(0, "send").args([&datagram, "3", "gso"]))?.finish(RUN_LIMIT)?;
        let mut least = f64::INFINITY;
        for receiver in running {
            let text = receiver.finish(RUN_LIMIT)?;
            let datagrams = number_after(&text, "received").ok_or("no rate of udplimit")?;
            least = least.min(datagrams / pieces as f64);
        }
        let sample = Sample {
            rate: least,
            bytes: least * 3.0 * size as f64,
            ..Sample::default()
        };
        Ok(timed(sample, before))
    }
}

/// A run's sample, with what the machine did since `before`.
fn timed(sample: Sample, before: Ticks) -> Sample {
    let after = Ticks::read();
    Sample {
        cpu_seconds: after.busy_seconds_since(before),
        steal_permille: after.steal_permille_since(before),
        ..sample
    }
}

fn document(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text}"))
}

/// Repairs and parity, for a thousand packets of new data.
fn repairs_permille(counters: &Value) -> f64 {
    let repairs = ["rdata_packets", "parity_packets", "parity_unasked"];
    let count = |name: &str| number(counters, &format!("source.{name}"));
    let repairs: f64 = repairs.iter().map(|name| count(name)).sum();
    1000.0 * repairs / count("odata_packets")
}

fn number(document: &Value, key: &str) -> f64 {
    document[key].as_f64().unwrap_or(f64::NAN)
}

const RECEIVERS_MAX: u8 = 8;
const GROUP: &str = "239.192.7.3:7500";
const BARE_GROUP: &str = "239.192.7.4";
/// What a message is cut into at MTU 1500, nearly.
const PACKET_PAYLOAD: usize = 1428;
const PGM_HEADER_BYTES: usize = 24;
const SETTLE: Duration = Duration::from_millis(500);
const RUN_LIMIT: Duration = Duration::from_secs(120);
