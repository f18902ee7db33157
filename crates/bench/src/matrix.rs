//! Messages by size, loss and number of receivers, compared with bare UDP under the same loss.
//!
//! One receiver without loss has one virtual cable to the sender, which keeps GSO runs whole. With
//! loss or several receivers there is a switch, which cuts runs into single packets as a wire
//! would. Without loss, the switch still has a loss rule, one that drops nothing: it costs as much
//! as a rule that drops.

use lab::{Lab, LabSpec};

use crate::{
    measure_valid,
    peer::{Peer, RawUdp, Towline},
    record,
    sample::Series,
};

/// One case of the matrix: the size of the messages, the receivers and their loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Payload bytes of a message.
    pub(crate) size: usize,
    pub(crate) receivers: usize,
    /// How many of 1,000 packets each receiver loses; `None` for no loss rule at all.
    pub(crate) lost_permille: Option<u32>,
}

/// Runs every case and returns the table.
pub(crate) fn run(pairs: usize) -> Result<String, String> {
    let direct = Lab::new(&LabSpec::new(2).direct()).map_err(|e| e.to_string())?;
    let spec = LabSpec::new(1 + RECEIVERS_MAX).segments_at_switch();
    let switched = Lab::new(&spec).map_err(|e| e.to_string())?;
    let title = format!("messages by size, loss and receivers, {pairs} pairs");
    let mut text = format!("{title}\n{}", head());
    let mut all = Vec::new();
    for size in [64, 256, 1400, 8_000, 60_000] {
        let case = Case {
            size,
            receivers: 1,
            lost_permille: None,
        };
        let [ours, bare] = both(&direct, case, pairs)?;
        text += &row(case, &ours, &bare);
        all.extend([ours, bare]);
    }
    for receivers in [1, 3, usize::from(RECEIVERS_MAX)] {
        let mut lossless = None;
        for lost in [0, 1, 10, 50] {
            let case = Case {
                size: 1400,
                receivers,
                lost_permille: Some(lost),
            };
            let [ours, bare] = both(&switched, case, pairs)?;
            text += &row(case, &ours, &bare);
            let base = lossless.get_or_insert_with(|| ours.clone());
            let [low, ratio, high] = ours.ratio_to(base);
            text += &format!("{:>64}{ratio:.2} ({low:.2} .. {high:.2}) of lossless\n", "");
            all.extend([ours, bare]);
        }
    }
    record::write("matrix", &title, "msg/s", &all, 2)?;
    Ok(text)
}

fn head() -> String {
    format!(
        "{:<44} {:>12} {:>12} {:>9} {:>22}\n",
        "case", "ours msg/s", "bare UDP", "CPU s/GB", "ours / bare (spread)"
    )
}

/// Runs Towline and bare UDP in turn.
fn both(lab: &Lab, case: Case, pairs: usize) -> Result<[Series; 2], String> {
    case.set_loss(lab)?;
    let ours = case.towline("towline load", &[])?;
    let bare = RawUdp::new(case.size, case.receivers)?;
    let mut series =
        ["ours", "bare UDP"].map(|who| Series::new(&format!("{}: {who}", case.title())));
    for pair in 1..=pairs {
        let peers: [&dyn Peer; 2] = [&ours, &bare];
        for (peer, series) in peers.into_iter().zip(&mut series) {
            let sample = measure_valid(peer, lab)?;
            eprintln!(
                "{} pair {pair} {}: {sample} msg/s",
                case.title(),
                peer.name()
            );
            series.push(sample);
        }
    }
    Ok(series)
}

fn row(case: Case, ours: &Series, bare: &Series) -> String {
    let [low, ratio, high] = ours.ratio_to(bare);
    format!(
        "{:<44} {:>12.0} {:>12.0} {:>9.2} {:>22}\n",
        case.title(),
        ours.rate()[1],
        bare.rate()[1],
        ours.cpu_seconds_per_gb(),
        format!("{ratio:.2} ({low:.2} .. {high:.2})"),
    )
}

impl Case {
    /// Gives every receiver the loss of this case.
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

    /// Makes the peer that sends this case's messages with Towline, with `more` on the sender's
    /// command line.
    pub(crate) fn towline(
        self,
        name: &'static str,
        more: &'static [&'static str],
    ) -> Result<Towline, String> {
        Towline::told(name, self.size, self.receivers, more)
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

const RECEIVERS_MAX: u8 = 8;
