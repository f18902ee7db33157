//! The report of `demo`.

use std::time::Duration;

use gauge::demo::{self, Checksums};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Document, quantity, text::clauses};

/// The report of `demo`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DemoDocument {
    pub(crate) is_proven: bool,
    /// Where the sender and the receivers ran, in words.
    pub(crate) place: String,
    pub(crate) paths: Vec<String>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) loss_percent: f64,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_s: f64,
    /// The program that checked the directories.
    pub(crate) tool: &'static str,
    /// The tool's hash over all files sent.
    pub(crate) tool_root: String,
    /// One hash for each receiver: the tool's hash over that receiver's directory.
    pub(crate) tool_roots: Vec<String>,
    /// Towline's own root; when the tool is b3sum, equal to `tool_root`.
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
            "{:<12} {:<8} {:>9} {:>12} {:>13} {:>11} {:>9}\n",
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
                "{:<12} {:<8} {:>9} {:>12} {:>13} {:>11} {:>9}\n",
                text_of("name"),
                text_of("state"),
                quantity::bytes(count("bytes")),
                count("packets_lost"),
                count("repairs_asked"),
                count("repairs_got"),
                time.unwrap_or_default(),
            );
        }
        text.push('\n');
        let tool = self.tool;
        let mut root = |of: &str, root: &str| text += &format!("{of:<15} {root}\n");
        root("towline root", self.root.as_deref().unwrap_or("unknown"));
        root(&format!("{tool} sent"), &self.tool_root);
        for (number, hash) in self.tool_roots.iter().enumerate() {
            root(&format!("{tool} at {}", number + 1), hash);
        }
        text += &self.comparison();
        let verdict = if self.is_proven {
            "proven"
        } else {
            "NOT PROVEN"
        };
        let receivers = self.received.len();
        let told = [
            format!(
                "{} files, {} to {receivers} receivers in {}",
                self.files,
                quantity::bytes(self.bytes),
                quantity::seconds(self.seconds),
            ),
            format!(
                "{} ({} delivered)",
                quantity::bits_per_second(self.bytes, self.seconds),
                quantity::bits_per_second(self.bytes * receivers as u64, self.seconds),
            ),
        ];
        text.push('\n');
        clauses(&mut text, &format!("{verdict}:"), &told);
        text
    }
}

impl DemoDocument {
    /// Says at which receivers the tool's hash differs from its hash over the files sent.
    fn comparison(&self) -> String {
        let hashes = self.tool_roots.iter().enumerate();
        let different: Vec<String> = hashes
            .filter(|(_, hash)| **hash != self.tool_root)
            .map(|(number, _)| (number + 1).to_string())
            .collect();
        if different.is_empty() {
            return "equal at every receiver\n".to_owned();
        }
        format!("DIFFERENT at {}\n", different.join(", "))
    }
}

/// The report of `demo` when a signal ended it.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct InterruptedDemo {
    is_proven: bool,
    is_interrupted: bool,
    /// True when the files that receivers wrote are still there, because the user asked for that.
    pub(crate) is_kept: bool,
}

impl InterruptedDemo {
    pub(crate) const fn new(is_kept: bool) -> Self {
        Self {
            is_proven: false,
            is_interrupted: true,
            is_kept,
        }
    }
}

impl Document for InterruptedDemo {
    const SCHEMA: &'static str = "towline.demo-interrupted";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let rest = if self.is_kept {
            "what the receivers have got so far is kept"
        } else {
            "nothing is left behind"
        };
        format!("interrupted: {rest}\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_fits_into_80_columns_and_names_who_has_something_else() {
        let receivers = (1..=16).map(|number| {
            json!({
                "name": format!("receiver-{number}"), "state": "unproven", "bytes": 999_900_000,
                "packets_lost": 123_456, "repairs_asked": 1_234_567, "repairs_got": 123_456,
                "seconds": 123.4,
            })
        });
        let mut document = DemoDocument {
            is_proven: false,
            place: "17 hosts (network namespaces) on a virtual switch".into(),
            paths: vec!["/usr".into()],
            files: 12_345,
            bytes: 999_900_000,
            loss_percent: 12.5,
            seconds: 123.4,
            bytes_per_s: 8e6,
            tool: "sha256sum",
            tool_root: "a7".repeat(32),
            tool_roots: vec!["a7".repeat(32); 16],
            root: Some("6e".repeat(32)),
            sent: json!({"receivers": receivers.collect::<Vec<_>>()}),
            received: vec![Value::Null; 16],
        };
        let text = document.text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("\nequal at every receiver\n"), "{text}");
        for at in [2, 15] {
            document.tool_roots[at] = "b0".repeat(32);
        }
        let text = document.text();
        assert!(text.contains("\nDIFFERENT at 3, 16\n"), "{text}");
    }
}
