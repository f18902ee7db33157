//! The report of `frames send`.

use schemars::JsonSchema;
use serde::Serialize;
use towline::FeedSent;

use super::{
    Counters, Document, UsageReport, quantity,
    text::{Rows, frame_rates},
};
use crate::{args::PerSecond, plan::FrameSourcePlan};

/// `frames send`: how many frames were sent, and what receivers lost.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FramesSendReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) source: FrameSourcePlan,
    /// The frame format that receivers are told.
    pub(crate) format: String,
    pub(crate) frame_bytes: usize,
    /// The rate that was asked for, in frames a second.
    pub(crate) per_second: PerSecond,
    /// Frames sent.
    pub(crate) frames: u64,
    /// Bytes of the frames that were sent, without headers.
    pub(crate) bytes: u64,
    /// Frames not sent, because the frames before them had not left. Receivers count them as lost.
    pub(crate) overrun: u64,
    /// Frames not sent, because no receiver listened.
    pub(crate) unheard: u64,
    /// Seconds from the first frame until the last packet had left.
    pub(crate) seconds: f64,
    pub(crate) frames_per_s: f64,
    /// Bits of frames each second, without headers.
    pub(crate) bits_per_s: f64,
    /// Seconds for which a frame is of use, counted from the frame's timestamp.
    pub(crate) deadline_s: f64,
    /// Receivers that reported; with two feeds, the greater of the two numbers.
    pub(crate) receivers: u64,
    /// What was sent over each of two feeds; empty without `--also`.
    pub(crate) feeds: Vec<FeedSentReport>,
    /// Packets that receivers gave up, summed over all receivers.
    pub(crate) lost_packets: u64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// What was sent over one of two feeds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FeedSentReport {
    group: String,
    interface: String,
    /// Frames sent.
    frames: u64,
    /// Frames not sent by this feed, because the frames before them had not left.
    overrun: u64,
    /// Data packets sent.
    packets: u64,
    /// Repair packets sent: data sent again, or parity.
    repairs: u64,
    /// Receivers that reported.
    receivers: u64,
    /// Why the feed could not be used any more.
    failure: Option<String>,
}

impl FeedSentReport {
    pub(crate) fn new(group: String, receivers: u64, sent: FeedSent) -> Self {
        Self {
            group,
            interface: sent.interface,
            frames: sent.frames,
            overrun: sent.overrun,
            packets: sent.packets,
            repairs: sent.repairs,
            receivers,
            failure: sent.error,
        }
    }

    fn told(&self) -> String {
        let mut text = format!(
            "{} by {}: {} frames, {} overrun; {} packets and {} repairs; {} reporting",
            self.group,
            self.interface,
            self.frames,
            self.overrun,
            self.packets,
            self.repairs,
            self.receivers,
        );
        if let Some(failure) = &self.failure {
            text += &format!("; {failure}");
        }
        text
    }
}

impl Document for FramesSendReport {
    const SCHEMA: &'static str = "towline.frames-send";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        let frames = format!(
            "{} of {}",
            self.frames,
            quantity::bytes(self.frame_bytes as u64)
        );
        table.row("frames", &frames);
        table.row("overrun", &self.overrun);
        table.row("unheard", &self.unheard);
        table.row("time", &quantity::seconds(self.seconds));
        table.row("rate", &frame_rates(self.frames, self.bytes, self.seconds));
        table.row("packets", &self.counters.packets_told());
        for (number, feed) in (1..).zip(&self.feeds) {
            table.row(&format!("feed {number}"), &feed.told());
        }
        table.row("receivers", &format!("{} reporting", self.receivers));
        table.row("given up", &format!("{} packets", self.lost_packets));
        if let Some(failure) = &self.failure {
            table.row("failure", failure);
        }
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}
