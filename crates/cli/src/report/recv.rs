//! The reports of `recv`.

use std::{path::Path, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use towline::{ReceiverProgress, Surplus, Unset};

use super::{
    Counters, Document, count,
    name::shown,
    quantity,
    send::UnsentRow,
    text::{dropped, named},
};

/// `recv`: one transfer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RecvReport {
    pub(crate) group: String,
    /// Everything is verified, synced and in place. The sender has been told, unless it had given
    /// this receiver up before.
    pub(crate) is_complete: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) sender: Option<String>,
    pub(crate) manifest: Option<String>,
    /// The receive directory; for a transfer of only one path, that path in the directory; `-` when
    /// the file goes to a stream.
    pub(crate) path: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) bytes_held: u64,
    pub(crate) packets_lost: u64,
    pub(crate) repairs_asked: u64,
    pub(crate) repairs_got: u64,
    pub(crate) seconds: f64,
    pub(crate) error: Option<String>,
    /// Files that the sender has left out, by their paths: it could not read them, or they changed
    /// while they were sent. A file that this receiver has under such a name is from before this
    /// transfer.
    pub(crate) absent: Vec<String>,
    /// True when the sender also left out files that `absent` does not name, because the sender
    /// could not list them; the sender's report says more.
    pub(crate) is_incomplete: bool,
    /// With `--delete`: paths that the sender does not have, and that were deleted with all that
    /// was in them.
    pub(crate) deleted: Vec<String>,
    /// With `--delete=list`: paths that the sender does not have, and that were not deleted.
    pub(crate) listed: Vec<String>,
    /// With `--delete`: paths that the sender does not have, and that could not be deleted.
    pub(crate) kept: Vec<UnsentRow>,
    /// Owners and extended attributes that the sender has sent and that could not be set here.
    pub(crate) unset: Vec<UnsetRow>,
    /// How many senders were passed over: the receiver took nothing from them.
    pub(crate) passed_over: u64,
    /// Why the receiver took nothing from the last sender that it passed over.
    pub(crate) passed_over_why: Option<String>,
    pub(crate) exec_failures: u64,
    /// Counters of the session; absent with `--serve`, where only the service's final report has
    /// counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counters: Option<Counters>,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drops: Option<Counters>,
}

impl RecvReport {
    pub(crate) fn new(group: String, progress: Option<&ReceiverProgress>, time: Duration) -> Self {
        let numbers = progress
            .map(|progress| progress.numbers)
            .unwrap_or_default();
        Self {
            group,
            is_complete: false,
            is_interrupted: false,
            sender: None,
            manifest: None,
            path: None,
            root: None,
            bytes: progress.map_or(0, |progress| progress.content_bytes),
            bytes_held: numbers.held,
            packets_lost: numbers.lost,
            repairs_asked: numbers.repairs_asked,
            repairs_got: numbers.repairs_got,
            seconds: time.as_secs_f64(),
            error: None,
            absent: Vec::new(),
            is_incomplete: false,
            deleted: Vec::new(),
            listed: Vec::new(),
            kept: Vec::new(),
            unset: Vec::new(),
            passed_over: 0,
            passed_over_why: None,
            exec_failures: 0,
            counters: None,
            drops: None,
        }
    }

    /// Adds the paths that the receiver has and the sender does not have.
    pub(crate) fn note_surplus(&mut self, surplus: &[Surplus]) {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        for found in surplus {
            match found {
                Surplus::Deleted { path } => self.deleted.push(text(path)),
                Surplus::Listed { path } => self.listed.push(text(path)),
                Surplus::Kept { path, why } => self.kept.push(UnsentRow {
                    path: text(path),
                    why: why.clone(),
                }),
                other => self.kept.push(UnsentRow {
                    path: String::new(),
                    why: format!("{other:?}"),
                }),
            }
        }
    }

    /// Adds the owners and attributes that could not be set.
    pub(crate) fn note_unset(&mut self, unset: &[Unset]) {
        let rows = unset.iter().map(|unset| UnsetRow {
            what: unset.what.clone(),
            entries: unset.entries,
        });
        self.unset.extend(rows);
    }

    /// Writes lines for what could not be set, and for paths that were deleted, would be deleted,
    /// or could not be deleted.
    fn surplus_lines(&self) -> String {
        let kept = self.kept.iter().map(|row| match &*row.path {
            "" => row.why.clone(),
            path => format!("{path}: {}", row.why),
        });
        let unset = self.unset.iter().map(|row| match row.entries {
            1 => format!("{}, of 1 entry", row.what),
            entries => format!("{}, of {entries} entries", row.what),
        });
        named("not set", unset)
            + &named("deleted", self.deleted.iter().cloned())
            + &named("would delete", self.listed.iter().cloned())
            + &named("not deleted", kept)
    }

    /// Adds the session's counters.
    pub(crate) fn count(&mut self, counters: Counters) {
        self.drops = Some(counters.drops());
        self.counters = Some(counters);
    }
}

impl Document for RecvReport {
    const SCHEMA: &'static str = "towline.recv";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let held = quantity::bytes(self.bytes_held);
        let numbers = format!(
            "lost {}, repairs asked {}, got {}",
            self.packets_lost, self.repairs_asked, self.repairs_got
        );
        let news = match (self.packets_lost, self.repairs_asked) {
            (0, 0) => String::new(),
            _ => format!("; {numbers}"),
        };
        let path = self.path.as_deref().map(|path| shown(Path::new(path)));
        let path = path.unwrap_or_else(|| "transfer".to_owned());
        let from = self.sender.as_ref().map(|sender| format!(" from {sender}"));
        let from = from.unwrap_or_default();
        let text = match (&self.error, &self.root) {
            // Without a path, this receiver does not know what the transfer would have brought.
            (Some(error), _) if self.path.is_none() => {
                format!("nothing received{from}: {error}{news}\n")
            }
            (Some(error), _) => format!(
                "{path}: FAILED with {held} of {}{from}: {error}\n{numbers}\n",
                quantity::bytes(self.bytes)
            ),
            (None, Some(root)) => format!(
                "{path}: complete, {held} in {}{from}\n{numbers}\nroot {root}\n",
                quantity::seconds(self.seconds)
            ),
            (None, None) => format!("nothing received{news}\n"),
        };
        let passed_over = passed_over(self.passed_over, self.passed_over_why.as_deref());
        let absent = self.absent.iter();
        let absent =
            absent.map(|path| format!("{path}: the sender could not read it, or it changed"));
        let mut absent = named("left out", absent);
        if self.is_incomplete {
            absent += "left out: the sender could not list all that it was to send; its own report \
                       names it\n";
        }
        text + &absent + &self.surplus_lines() + &dropped(self.drops.as_ref()) + &passed_over
    }
}

/// `recv --serve`: all transfers of the service together.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ServeReport {
    pub(crate) group: String,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) transfers: u64,
    pub(crate) complete: u64,
    pub(crate) failed: u64,
    /// Transfers under way when the service was stopped; the bytes that they hold are kept.
    pub(crate) interrupted: u64,
    /// Bytes of complete transfers.
    pub(crate) bytes: u64,
    pub(crate) passed_over: u64,
    pub(crate) passed_over_why: Option<String>,
    pub(crate) exec_runs: u64,
    pub(crate) exec_failures: u64,
    pub(crate) seconds: f64,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

impl ServeReport {
    pub(crate) fn new(group: String, time: Duration) -> Self {
        Self {
            group,
            seconds: time.as_secs_f64(),
            ..Self::default()
        }
    }
}

impl Document for ServeReport {
    const SCHEMA: &'static str = "towline.recv-serve";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = format!(
            "{}, {} complete ({}), {} failed, in {}\n",
            count(self.transfers, "transfer"),
            self.complete,
            quantity::bytes(self.bytes),
            self.failed,
            quantity::seconds(self.seconds),
        );
        if self.interrupted > 0 {
            let transfers = count(self.interrupted, "transfer");
            text += &format!("{transfers} under way when the service was stopped\n");
        }
        if self.exec_failures > 0 {
            let runs = count(self.exec_failures, "run");
            text += &format!("{runs} of the program after a transfer failed\n");
        }
        let passed_over = passed_over(self.passed_over, self.passed_over_why.as_deref());
        text + &dropped(Some(&self.drops)) + &passed_over
    }
}

/// An owner or attribute that could not be given to files, directories or links.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnsetRow {
    /// The user, group or extended attribute that was sent, and why it could not be set.
    what: String,
    entries: u64,
}

fn passed_over(count: u64, why: Option<&str>) -> String {
    match (count, why) {
        (0, _) | (_, None) => String::new(),
        (1, Some(why)) => format!("1 sender passed over: {why}\n"),
        (count, Some(why)) => format!("{count} senders passed over, the last {why}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_tells_what_its_session_dropped() {
        let mut report = RecvReport::new("239.192.0.1:7500".into(), None, Duration::ZERO);
        assert!(!report.text().contains("dropped"));
        report.count(Counters::of_losses());
        let text = report.text();
        assert!(
            text.ends_with("\ndropped: bad_checksum 3, kernel 12\n"),
            "{text}"
        );
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(
            json["drops"],
            serde_json::json!({"bad_checksum": 3, "kernel": 12})
        );
    }

    #[test]
    fn a_service_tells_what_it_dropped() {
        let mut report = ServeReport::new("239.192.0.1:7500".into(), Duration::ZERO);
        assert!(report.text().ends_with("\ndropped: none\n"));
        report.drops = Counters::of_losses().drops();
        let text = report.text();
        assert!(
            text.ends_with("\ndropped: bad_checksum 3, kernel 12\n"),
            "{text}"
        );
    }
}
