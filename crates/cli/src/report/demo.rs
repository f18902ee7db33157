//! The report of `demo`.

use std::time::Duration;

use gauge::demo::{self, Checksums};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Document, quantity};

/// `demo`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DemoDocument {
    pub(crate) is_proven: bool,
    /// Where the ends ran.
    pub(crate) place: String,
    pub(crate) paths: Vec<String>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) loss_percent: f64,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_s: f64,
    /// The program that checked the directories.
    pub(crate) tool: &'static str,
    /// The tool's hash over all files sent, and what it says of each receiver's directory.
    pub(crate) tool_root: String,
    pub(crate) tool_roots: Vec<String>,
    /// Towline's own root, equal to the tool's when the tool is b3sum.
    pub(crate) root: Option<String>,
    /// The sender's report.
    pub(crate) sent: Value,
    /// Each receiver's report.
    pub(crate) received: Vec<Value>,
}

impl DemoDocument {
    pub(crate) fn new(demo: &demo::Demo, report: demo::DemoReport) -> Self {
        let seconds = report.sent["seconds"].as_f64().unwrap_or(0.0);
        let Checksums {
            tool,
            sent,
            received,
        } = &report.checksums;
        Self {
            is_proven: report.is_proven(),
            paths: demo
                .tree
                .paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            files: demo.tree.files,
            bytes: demo.tree.bytes,
            loss_percent: demo.loss_percent,
            seconds,
            bytes_per_s: quantity::per_second(demo.tree.bytes, seconds),
            tool: tool.name(),
            tool_root: sent.clone(),
            tool_roots: received.clone(),
            root: report.sent["root"].as_str().map(str::to_owned),
            place: report.place,
            sent: report.sent,
            received: report.received,
        }
    }
}

impl Document for DemoDocument {
    const SCHEMA: &'static str = "towline.demo";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = format!(
            "{}; each receiver loses {} %\n\n",
            self.place, self.loss_percent
        );
        text += &format!(
            "{:<14} {:<8} {:>12} {:>13} {:>14} {:>12} {:>9}\n",
            "receiver", "state", "bytes", "packets lost", "repairs asked", "repairs got", "time"
        );
        let rows = self.sent["receivers"].as_array();
        for row in rows.into_iter().flatten() {
            let text_of = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
            let count = |key: &str| row[key].as_u64().unwrap_or(0);
            let time = row["seconds"]
                .as_f64()
                .map(Duration::from_secs_f64)
                .map(quantity::time);
            text += &format!(
                "{:<14} {:<8} {:>12} {:>13} {:>14} {:>12} {:>9}\n",
                text_of("name"),
                text_of("state"),
                quantity::bytes(count("bytes")),
                count("packets_lost"),
                count("repairs_asked"),
                count("repairs_got"),
                time.unwrap_or_default(),
            );
        }
        text += &format!(
            "\ntowline root   {}\n",
            self.root.as_deref().unwrap_or("unknown")
        );
        text += &format!("{:<10} sent {}\n", self.tool, self.tool_root);
        for (number, root) in self.tool_roots.iter().enumerate() {
            let verdict = if *root == self.tool_root {
                "equal"
            } else {
                "DIFFERENT"
            };
            text += &format!("{:<10} at {} {root} {verdict}\n", self.tool, number + 1);
        }
        let verdict = if self.is_proven {
            "proven"
        } else {
            "NOT PROVEN"
        };
        text + &format!(
            "\n{verdict}: {} files, {} to {} receivers in {}: {} ({} delivered)\n",
            self.files,
            quantity::bytes(self.bytes),
            self.received.len(),
            quantity::time(Duration::from_secs_f64(self.seconds)),
            quantity::bits_per_second(self.bytes, self.seconds),
            quantity::bits_per_second(self.bytes * self.received.len() as u64, self.seconds),
        )
    }
}
