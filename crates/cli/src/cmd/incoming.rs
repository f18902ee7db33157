//! The transfers of a receiver: their progress and reports, and the programs that run after them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use towline::{
    Completed, DoneNumbers, ErrorCode, FileReceiver, Hook, ObjectReceiverEvent, Offer,
    ReceiverProgress, StallWatch, Surplus, TransferReceiverEvent, Unset,
};

use super::hook;
use crate::{
    failure::Failure,
    plan::RecvPlan,
    report::{self, Output, Progress, RecvReport, ServeReport, hex},
};

/// All transfers of one run.
pub(super) struct Incoming<'a> {
    plan: &'a RecvPlan,
    output: &'a Output,
    progress: Progress,
    transfers: BTreeMap<u32, Transfer>,
    hook: Hook,
    /// How many transfers have begun.
    pub(super) count: u64,
    complete: u64,
    failed: u64,
    interrupted: u64,
    /// The service was told to stop: from then on, an unfinished transfer does not count as failed.
    pub(super) is_leaving: bool,
    bytes: u64,
    /// How many senders were passed over: this end did not dial them, or declined their manifest.
    /// `passed_over_why` is the reason for the last of them.
    passed_over: u64,
    passed_over_why: Option<String>,
}

/// One transfer.
struct Transfer {
    offer: Option<Offer>,
    path: PathBuf,
    began: Instant,
    bar: Option<ProgressBar>,
    progress: Option<ReceiverProgress>,
    stall: StallWatch,
    root: Option<String>,
    error: Option<String>,
    /// The files that the transfer's sender has left out.
    absent: Vec<String>,
    /// True when the sender left out further files, whose names are not in the manifest.
    is_incomplete: bool,
    /// Files and directories of this receiver that the sender does not have.
    surplus: Vec<Surplus>,
    unset: Vec<Unset>,
    /// Why the transfer's sender has given this receiver up; `None` if it has not, or has come
    /// back.
    given_up: Option<String>,
    /// The time from the transfer's beginning to its end.
    time: Option<Duration>,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(plan: &'a RecvPlan, output: &'a Output) -> Self {
        Self {
            plan,
            output,
            progress: output.progress(),
            transfers: BTreeMap::new(),
            hook: Hook::new(plan.exec.clone()).limit(plan.exec_timeout),
            count: 0,
            complete: 0,
            failed: 0,
            interrupted: 0,
            is_leaving: false,
            bytes: 0,
            passed_over: 0,
            passed_over_why: None,
        }
    }

    pub(super) fn take(
        &mut self,
        event: ObjectReceiverEvent,
        receiver: &FileReceiver,
    ) -> Result<(), Failure> {
        match event {
            ObjectReceiverEvent::Refused { sender, text } => {
                self.pass_over(sender.address.ip(), &text);
            }
            ObjectReceiverEvent::Transfer {
                event: TransferReceiverEvent::PassedOver { peer, text, .. },
                ..
            } => self.pass_over(peer.ip(), &text),
            ObjectReceiverEvent::Transfer {
                event: TransferReceiverEvent::NameTaken { peer },
                ..
            } => self.output.warn(&format!(
                "sender {} has a receiver of this name already; if that one is dead, the sender \
                 lets go of it within 7 s; if it lives, give this one another --name",
                peer.ip()
            )),
            ObjectReceiverEvent::Accepted { transfer, offer } => {
                self.count += 1;
                let (peer, manifest) = (offer.peer.ip(), offer.manifest);
                self.output
                    .detail(&format!("{peer} offers manifest {manifest}"));
                self.transfers.insert(transfer, Transfer::new(Some(offer)));
            }
            ObjectReceiverEvent::Continued { transfer, sender } => {
                let host = sender.address.ip();
                if let Some(transfer) = self.transfers.get_mut(&transfer) {
                    transfer.given_up = None;
                    transfer.stall.stir(Instant::now());
                }
                self.output.note(&format!(
                    "the sender is back at {host}: transfer {transfer} goes on"
                ));
            }
            ObjectReceiverEvent::Transfer { transfer, event } => {
                self.transfer(transfer, event, receiver);
            }
            ObjectReceiverEvent::Left { transfer, progress } => {
                // A short transfer may end before `look` has noted any progress of it.
                if let Some(transfer) = self.transfers.get_mut(&transfer) {
                    transfer.progress = Some(progress);
                }
                self.finish(transfer)?;
            }
            other => self.output.detail(&format!("{other:?}")),
        }
        Ok(())
    }

    /// Shows how far each transfer is.
    pub(super) fn look(&mut self, receiver: &FileReceiver) {
        let now = Instant::now();
        for (number, progress) in receiver.progress() {
            let Some(transfer) = self.transfers.get_mut(&number) else {
                continue;
            };
            transfer.progress = Some(progress);
            transfer.stall.note(now, &progress);
            if let Some(bar) = &transfer.bar {
                let numbers = &progress.numbers;
                bar.set_position(numbers.held);
                bar.set_message(format!(
                    "lost {}, repaired {}; {}",
                    numbers.lost, numbers.repairs_got, progress.phase
                ));
            }
        }
    }

    /// Looks after the programs that run after complete transfers. Returns true when none runs or
    /// waits to run.
    pub(super) fn look_after_hook(&mut self) -> bool {
        hook::look(&mut self.hook, self.output)
    }

    /// Returns the numbers of the unfinished transfers in which nothing has moved for `timeout`.
    pub(super) fn stuck(&self, timeout: Duration) -> Vec<u32> {
        let now = Instant::now();
        let is_stuck = |transfer: &Transfer| {
            transfer.time.is_none() && transfer.stall.is_stalled(now, timeout)
        };
        let transfers = self.transfers.iter();
        let stuck = transfers.filter(|(_, transfer)| is_stuck(transfer));
        stuck.map(|(&number, _)| number).collect()
    }

    /// Makes the report of `recv` without `--serve`.
    pub(super) fn single(&mut self, receiver: &FileReceiver) -> RecvReport {
        self.look(receiver);
        let last = self.transfers.pop_last().map(|(_, transfer)| transfer);
        let mut report = self.report_of(&last.unwrap_or_else(|| Transfer::new(None)));
        report.passed_over = self.passed_over;
        report.passed_over_why.clone_from(&self.passed_over_why);
        report.exec_failures = self.hook.failed();
        report
    }

    /// Reports the transfers of a service that were still under way at its end.
    pub(super) fn finish_all(&mut self, receiver: &FileReceiver) -> Result<(), Failure> {
        self.look(receiver);
        let left: Vec<u32> = self.transfers.keys().copied().collect();
        left.into_iter().try_for_each(|number| self.finish(number))
    }

    /// Writes the totals of a service into its report.
    pub(super) fn sum(&self, report: &mut ServeReport) {
        report.transfers = self.count;
        report.complete = self.complete;
        report.failed = self.failed;
        report.interrupted = self.interrupted;
        report.bytes = self.bytes;
        report.passed_over = self.passed_over;
        report.passed_over_why.clone_from(&self.passed_over_why);
        report.exec_runs = self.hook.started();
        report.exec_failures = self.hook.failed();
    }

    fn pass_over(&mut self, host: IpAddr, text: &str) {
        self.passed_over += 1;
        if self.passed_over <= REMARKS_MAX {
            self.output
                .note(&format!("sender {host} is passed over: {text}"));
        }
        self.passed_over_why = Some(format!("{host}: {text}"));
    }

    fn transfer(&mut self, number: u32, event: TransferReceiverEvent, receiver: &FileReceiver) {
        let new = || Transfer::new(None);
        let transfer = self.transfers.entry(number).or_insert_with(new);
        match event {
            TransferReceiverEvent::ManifestKnown {
                entries,
                bytes,
                is_incomplete,
            } => {
                transfer.is_incomplete = is_incomplete;
                transfer.path = path_of(self.plan, number, receiver);
                let path = report::shown(&transfer.path);
                let size = report::bytes(bytes);
                self.output
                    .detail(&format!("{path}: {entries} entries, {size}"));
                let name = transfer.path.file_name().unwrap_or_default();
                let name = report::shown(Path::new(name));
                transfer.bar = Some(self.progress.bytes(&name, bytes));
            }
            TransferReceiverEvent::GivenUp { text } => {
                let sender = transfer.offer.map(|offer| offer.peer.ip().to_string());
                let sender = sender.unwrap_or_else(|| "the sender".to_owned());
                self.output.note(&format!(
                    "{sender} has given this receiver up: {text}; this receiver finishes putting \
                     verified files in place, and keeps the rest for when the sender sends again"
                ));
                transfer.given_up = Some(text);
            }
            TransferReceiverEvent::SlabBad { path, .. } => {
                self.output.note(&format!(
                    "a part of {path} has a wrong hash and is fetched again"
                ));
            }
            TransferReceiverEvent::Withdrawn { paths } => {
                transfer.absent.extend(paths.iter().map(|path| lossy(path)));
            }
            TransferReceiverEvent::Surplus(found) => transfer.surplus.extend(found),
            TransferReceiverEvent::Unset(unset) => transfer.unset.extend(unset),
            TransferReceiverEvent::Delivered {
                root,
                numbers,
                sealer,
            } => self.delivered(number, &hex(&root), &numbers, sealer, receiver),
            TransferReceiverEvent::Failed { code, text } => {
                transfer.fail(code, text);
            }
            // Other events are shown elsewhere, or mean nothing to a user.
            _ => {}
        }
    }

    fn delivered(
        &mut self,
        number: u32,
        root: &str,
        numbers: &DoneNumbers,
        sealer: SocketAddr,
        receiver: &FileReceiver,
    ) {
        let Some(transfer) = self.transfers.get_mut(&number) else {
            return;
        };
        // When another sender has taken the transfer over, the sender that sealed the content
        // counts as the transfer's sender.
        if let Some(offer) = &mut transfer.offer {
            offer.peer = sealer;
        }
        transfer.root = Some(root.to_owned());
        transfer.time = Some(Duration::from_nanos(numbers.time_ns));
        if let Some(why) = transfer.given_up.take() {
            self.output.note(&format!(
                "{} is whole and in place, but the sender does not know that: it gave this \
                 receiver up before ({why})",
                report::shown(&transfer.path)
            ));
        }
        transfer.end();
        let manifest = transfer.offer.map(|offer| offer.manifest.to_string());
        self.hook.push(Completed {
            items: items_of(self.plan, number, receiver, &transfer.absent),
            path: transfer.path.clone(),
            manifest: manifest.unwrap_or_default(),
            sender: sealer.ip().to_string(),
            bytes: numbers.bytes,
            root: root.to_owned(),
        });
    }

    /// With `--serve`, reports a transfer, finished or not, and forgets it. Otherwise does nothing.
    fn finish(&mut self, number: u32) -> Result<(), Failure> {
        if !self.plan.is_serving {
            return Ok(());
        }
        let Some(mut transfer) = self.transfers.remove(&number) else {
            return Ok(());
        };
        transfer.end();
        let report = self.report_of(&transfer);
        if report.is_complete {
            self.complete += 1;
            self.bytes += report.bytes;
        } else if self.is_leaving {
            self.interrupted += 1;
        } else {
            self.failed += 1;
        }
        self.output.one_of_many(&report)
    }

    fn report_of(&self, transfer: &Transfer) -> RecvReport {
        let group = self.plan.session.place.to_string();
        let time = transfer.time.unwrap_or_else(|| transfer.began.elapsed());
        let mut report = RecvReport::new(group, transfer.progress.as_ref(), time);
        report.is_complete = transfer.root.is_some() && transfer.error.is_none();
        report.sender = transfer.offer.map(|offer| offer.peer.ip().to_string());
        report.manifest = transfer.offer.map(|offer| offer.manifest.to_string());
        report.path = Some(transfer.path.display().to_string()).filter(|path| !path.is_empty());
        report.root.clone_from(&transfer.root);
        report.error.clone_from(&transfer.error);
        report.absent.clone_from(&transfer.absent);
        report.is_incomplete = transfer.is_incomplete;
        report.note_surplus(&transfer.surplus);
        report.note_unset(&transfer.unset);
        report
    }
}

impl Transfer {
    fn fail(&mut self, code: ErrorCode, mut text: String) {
        // The sender prints this text, too, so it names no flag of `recv`. The flag is added here.
        if code == ErrorCode::Exists {
            text += " (recv --overwrite)";
        }
        self.error = Some(match self.given_up.take() {
            Some(why) if !text.contains(&why) => {
                format!("{text}; the sender had given this receiver up: {why}")
            }
            _ => text,
        });
        self.end();
    }

    fn new(offer: Option<Offer>) -> Self {
        Self {
            offer,
            path: PathBuf::new(),
            began: Instant::now(),
            bar: None,
            progress: None,
            stall: StallWatch::new(Instant::now()),
            root: None,
            error: None,
            absent: Vec::new(),
            is_incomplete: false,
            surplus: Vec::new(),
            unset: Vec::new(),
            given_up: None,
            time: None,
        }
    }

    fn end(&mut self) {
        if self.time.is_none() {
            self.time = Some(self.began.elapsed());
        }
        match &self.bar {
            Some(bar) if self.error.is_none() && self.root.is_some() => bar.finish_and_clear(),
            Some(bar) => bar.abandon(),
            None => {}
        }
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Returns the path of the file or directory that a transfer puts into the target directory; if
/// there are several, the target directory itself. Without a target directory, `-`.
fn path_of(plan: &RecvPlan, number: u32, receiver: &FileReceiver) -> PathBuf {
    let Some(directory) = &plan.directory else {
        return PathBuf::from("-");
    };
    match receiver.only_entry(number) {
        Some(name) => directory.join(name),
        None => directory.clone(),
    }
}

/// Returns the top-level paths that a transfer has put into the target directory, for the program
/// that runs afterwards. Returns none without a target directory or without a program.
fn items_of(
    plan: &RecvPlan,
    number: u32,
    receiver: &FileReceiver,
    absent: &[String],
) -> Vec<PathBuf> {
    let Some(directory) = plan.directory.as_ref().filter(|_| !plan.exec.is_empty()) else {
        return Vec::new();
    };
    let is_there = |name: &&OsStr| {
        !absent
            .iter()
            .any(|absent| name.to_str() == Some(absent.as_str()))
    };
    let tops = receiver.top_entries(number).filter(is_there);
    tops.map(|name| directory.join(name)).collect()
}

/// The most lines that are printed about senders that were passed over.
const REMARKS_MAX: u64 = 32;
