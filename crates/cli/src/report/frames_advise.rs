//! The report of `frames advise`.

use gauge::frames::Advice;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, quantity, text::Rows};
use crate::args::{FrameSize, PerSecond};

/// `frames advise`: advice for sending frames of one size at one rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FramesAdviseReport {
    size: FrameSize,
    per_second: PerSecond,
    #[serde(flatten)]
    advice: Advice,
}

impl FramesAdviseReport {
    pub(crate) const fn new(size: FrameSize, per_second: PerSecond, advice: Advice) -> Self {
        Self {
            size,
            per_second,
            advice,
        }
    }
}

impl Document for FramesAdviseReport {
    const SCHEMA: &'static str = "towline.frames-advise";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let Advice {
            path,
            losses,
            limits,
            findings,
            ..
        } = &self.advice;
        let it = &self.advice;
        let mut table = Rows::default();
        let frame = quantity::bytes(self.size.bytes as u64);
        table.row(
            "frames",
            &format!("{frame}, {} each second", self.per_second.0),
        );
        let packets = format!(
            "{} each frame with {} bytes of it, {:.0}/s",
            it.packets_per_frame, it.payload_bytes, it.packets_per_s
        );
        table.row("packets", &packets);
        let wire = format!(
            "{}, of which {:.1} % are frames",
            quantity::bits(it.wire_bits_per_s),
            it.efficiency * 100.0
        );
        table.row("on the wire", &wire);
        let buffer = format!(
            "{} for a frame at once, {} for the pause",
            quantity::bytes(it.frame_buffer_bytes),
            quantity::bytes(it.pause_buffer_bytes)
        );
        table.row("socket buffer", &buffer);
        let window = format!(
            "{} packets are kept until their deadline",
            it.window_packets
        );
        table.row("window", &window);
        let mtu = path.mtu_bytes;
        table.row("interface", &format!("{}, MTU {mtu}", path.interface));
        for limit in limits {
            let text = format!("{:.1} frames/s: {}", limit.frames_per_s_max, limit.resource);
            table.row("limit", &text);
        }
        for loss in losses {
            let text = format!(
                "{:.4} % of frames, repairs: {}",
                loss.frame_loss * 100.0,
                loss.repair
            );
            table.row("lost", &text);
        }
        for finding in findings {
            table.row("change", finding);
        }
        if findings.is_empty() {
            table.row("change", &"nothing");
        }
        table.text
    }
}
