//! The report of `send --plain`.

use gauge::tcp::Shares;
use schemars::JsonSchema;
use serde::Serialize;
use towline::{PlainEnd, PlainSender};

use super::{Document, name::shown, quantity, text::wrap};
use crate::plan::PlainPlan;

/// The report of `send --plain`: how much of a file has reached a peer that confirms nothing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PlainReport {
    path: String,
    to: String,
    /// The peer's kernel has acknowledged everything, and the peer closed its side of the
    /// connection after this end did, without a reset. The peer's application has confirmed
    /// nothing.
    is_acknowledged: bool,
    /// The outcome in words.
    verdict: String,
    /// The length of the input in bytes; null for a pipe or a terminal, whose length nobody knows
    /// beforehand.
    bytes: Option<u64>,
    /// Bytes that the socket has taken.
    bytes_written: u64,
    /// Bytes that the peer's kernel has acknowledged; its application may have read fewer.
    bytes_acknowledged: u64,
    /// The peer's side of the connection has ended without a reset.
    has_peer_closed: bool,
    /// Bytes that the peer has sent; they were thrown away.
    bytes_answered: u64,
    seconds: f64,
    /// Acknowledged bytes each second.
    bytes_per_s: f64,
    /// What held the connection back, in per cent of the time, as the kernel counts it.
    held_back: Option<Shares>,
    /// A signal ended the command.
    is_interrupted: bool,
}

impl PlainReport {
    pub(crate) fn new(plan: &PlainPlan, sender: &PlainSender, is_interrupted: bool) -> Self {
        let seconds = sender.elapsed().as_secs_f64();
        let bytes_acknowledged = sender.acknowledged_bytes();
        let verdict = match sender.end() {
            Some(PlainEnd::Acknowledged) => ACKNOWLEDGED.to_owned(),
            Some(PlainEnd::Failed(why)) => why.clone(),
            end => format!("{end:?}"),
        };
        Self {
            path: plan.path.display().to_string(),
            to: plan.to.clone(),
            is_acknowledged: sender.end() == Some(&PlainEnd::Acknowledged),
            verdict,
            bytes: sender.total_bytes(),
            bytes_written: sender.written_bytes(),
            bytes_acknowledged,
            has_peer_closed: sender.has_peer_ended(),
            bytes_answered: sender.answered_bytes(),
            seconds,
            bytes_per_s: quantity::per_second(bytes_acknowledged, seconds),
            held_back: sender.shares().map(Shares::from),
            is_interrupted,
        }
    }
}

impl Document for PlainReport {
    const SCHEMA: &'static str = "towline.send-plain";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        let path = shown(std::path::Path::new(&self.path));
        let head = format!(
            "{path} to {}: {} bytes acknowledged in {}, {}",
            self.to,
            self.bytes_acknowledged,
            quantity::seconds(self.seconds),
            quantity::bits(self.bytes_per_s * 8.0),
        );
        wrap(&mut text, "", &head);
        let of = match self.bytes {
            Some(bytes) => format!(" of {bytes}"),
            None => String::new(),
        };
        if !self.is_acknowledged {
            let told = format!(
                "the peer's kernel has acknowledged {}{of} bytes; its application may have read \
                 fewer",
                self.bytes_acknowledged
            );
            wrap(&mut text, "   ", &told);
        }
        if self.bytes_answered > 0 {
            let told = format!("the peer answered {} bytes", self.bytes_answered);
            wrap(&mut text, "   ", &told);
        }
        if let Some(it) = &self.held_back {
            let told = format!(
                "held back by: sender {:.0} %, receiver {:.0} %, send buffer {:.0} %, network \
                 {:.0} %",
                it.application_percent,
                it.receiver_percent,
                it.send_buffer_percent,
                it.network_percent
            );
            wrap(&mut text, "   ", &told);
        }
        let verdict = match self.is_acknowledged {
            true => self.verdict.clone(),
            false => format!("NOT DELIVERED: {}", self.verdict),
        };
        wrap(&mut text, "", &verdict);
        text
    }
}

/// The verdict on a transfer that succeeded.
const ACKNOWLEDGED: &str = "acknowledged by the peer's kernel, not confirmed by its application";

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PlainReport {
        PlainReport {
            path: "image.iso".into(),
            to: "10.0.0.7:9000".into(),
            is_acknowledged: true,
            verdict: ACKNOWLEDGED.into(),
            bytes: Some(104_512_345),
            bytes_written: 104_512_345,
            bytes_acknowledged: 104_512_345,
            has_peer_closed: true,
            bytes_answered: 0,
            seconds: 1.5,
            bytes_per_s: 69_674_896.7,
            held_back: None,
            is_interrupted: false,
        }
    }

    #[test]
    fn the_best_outcome_claims_no_more_than_is_known_and_others_say_how_far_it_got() {
        let mut text = report().text();
        assert!(
            text.ends_with("kernel, not confirmed by its application\n"),
            "{text}"
        );
        assert!(!text.contains("proven"), "{text}");
        let failed = PlainReport {
            is_acknowledged: false,
            verdict: "the peer reset the connection".into(),
            bytes_acknowledged: 2_000_000,
            bytes_answered: 17,
            ..report()
        };
        text += &failed.text();
        assert!(
            text.contains("acknowledged 2000000 of 104512345 bytes"),
            "{text}"
        );
        assert!(
            text.ends_with("NOT DELIVERED: the peer reset the connection\n"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
