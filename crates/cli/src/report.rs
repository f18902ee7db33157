//! What a command prints: documents (plain data) with their text and JSON, their schemas, and
//! progress bars.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use serde::Serialize;
use towline::text::printable_lines;

use crate::{
    args::{OutputArgs, with_flags},
    failure::Failure,
    log,
    plan::Plan,
};

mod capture;
pub(crate) use capture::{CaptureReport, ReplayReport, last_second, ring_remedy};

mod clock;
pub(crate) use clock::ClockDocument;

mod counters;
pub(crate) use counters::{Counters, UsageReport};

mod demo;
pub(crate) use demo::{DemoDocument, InterruptedDemo};

mod frames_advise;
pub(crate) use frames_advise::FramesAdviseReport;

mod frames_recv;
pub(crate) use frames_recv::{FeedReport, FrameLossReport, FrameLosses, FramesRecvReport};

mod frames_send;
pub(crate) use frames_send::{FeedSentReport, FramesSendReport};

mod ifaces;
pub(crate) use ifaces::{InterfaceRow, InterfacesReport};

mod interval;
pub(crate) use interval::{Counted, Done, Interval};

mod json;
pub(crate) use json::MessageLine;

mod leftovers;
pub(crate) use leftovers::LeftoversReport;

mod load_recv;
pub(crate) use load_recv::{DelayReport, LoadRecvReport};

mod load_send;
pub(crate) use load_send::LoadSendReport;

mod mtu;
pub(crate) use mtu::{GroupMtuDocument, MtuReport};

mod name;
pub(crate) use name::shown;

mod plain;
pub(crate) use plain::PlainReport;

mod progress;
pub(crate) use progress::{Progress, columns};

mod publish;
pub(crate) use publish::{CensusReport, LimitedBy, PublishReport, lacking};

mod quantity;
pub(crate) use quantity::{bits, bytes, count, per_second};

mod reach;
pub(crate) use reach::ReachDocument;

mod recv;
pub(crate) use recv::{RecvReport, ServeReport};

mod relay;
pub(crate) use relay::{RelayNetwork, RelayReport};

mod rtt;
pub(crate) use rtt::{RttReflectReport, RttReport, RttRow};

mod schema;
pub(crate) use schema::{Described, schemas};

mod send;
pub(crate) use send::{FileListing, SendReport, SumRow, limit_of};

mod stat;
pub(crate) use stat::StatReport;

mod stats;
pub(crate) use stats::{StatsReport, StatsSweepReport, flow_scene, most_of, sweep_line};

mod subscribe;
pub(crate) use subscribe::{SenderEnds, SubscribeReport};

mod tcp;
pub(crate) use tcp::{TcpConnectionLine, TcpServeReport, TcpWatchReport, TcpWritesReport};

mod text;
pub(crate) use text::hex;

mod top;
pub(crate) use top::TopReport;

mod udp;
pub(crate) use udp::{UdpReport, UdpServeReport};

#[cfg(test)]
mod tests;

/// Where a command prints, and in which form.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    is_json: bool,
    is_quiet: bool,
    is_dry_run: bool,
    verbosity: u8,
    /// True when the command runs until it is stopped, so that its lines are read later.
    is_service: bool,
    progress: Progress,
}

impl Output {
    pub(crate) fn new(args: &OutputArgs) -> Self {
        Self {
            progress: Progress::new(!args.quiet),
            is_json: args.json,
            is_quiet: args.quiet,
            is_dry_run: args.dry_run,
            verbosity: args.verbose,
            is_service: false,
        }
    }

    /// Returns this output, with `is_service` for a service: a command that runs until it is
    /// stopped. [`Output::stamp`] says which lines of a service begin with the time.
    pub(crate) fn serving(&self, is_service: bool) -> Self {
        Self {
            is_service,
            ..self.clone()
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    pub(crate) const fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// With `--dry-run`, prints the plan and returns true: the command then has nothing else to do.
    pub(crate) fn shows_only<P: Plan>(&self, plan: &P) -> Result<bool, Failure> {
        if self.is_dry_run {
            json::write(&mut io::stdout().lock(), P::SCHEMA, P::VERSION, plan)?;
        }
        Ok(self.is_dry_run)
    }

    /// Prints a line for the person who watches, unless `--quiet` was given.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            self.log(text);
        }
    }

    /// Prints a line as [`Output::note`] does, about something that works, but not as the user
    /// asked. Spells settings that the library names as flags.
    pub(crate) fn warn(&self, text: &str) {
        self.note(&format!("warning: {}", with_flags(text)));
    }

    /// Prints a line for the person who wants to know more, with `--verbose`.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbosity > 0 {
            self.log(text);
        }
    }

    /// Returns the progress bars; `--quiet` hides them, and so does a missing terminal.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Prints the document that ends a command: as JSON, or as text. Text that is not the command's
    /// data goes to standard error, as the lines of [`Output::note`] do.
    pub(crate) fn finish<D: Document>(&self, document: &D) -> Result<(), Failure> {
        self.tell(document, json::write)
    }

    /// Prints one of several documents of a command; as JSON, each is a line.
    pub(crate) fn one_of_many<D: Document>(&self, document: &D) -> Result<(), Failure> {
        if self.is_service && !self.is_json && D::IS_DATA {
            let stamp = self.stamp(io::stdout().is_terminal());
            return self.print(&(stamp + &shown_text(document)));
        }
        self.tell(document, json::write_line)
    }

    /// Prints the document that ends a command. With `every`, the command has printed a document
    /// for each interval before, so this one is printed as one of many.
    pub(crate) fn finish_after<D: Document>(
        &self,
        every: Option<Duration>,
        document: &D,
    ) -> Result<(), Failure> {
        match every {
            Some(_) => self.one_of_many(document),
            None => self.finish(document),
        }
    }

    fn tell<D: Document>(&self, document: &D, write: JsonWriter<D>) -> Result<(), Failure> {
        if self.is_json {
            let mut output = io::stdout().lock();
            self.progress
                .suspend(|| write(&mut output, D::SCHEMA, D::VERSION, document))?;
        } else if D::IS_DATA {
            self.print(&shown_text(document))?;
        } else {
            self.note(shown_text(document).trim_end());
        }
        Ok(())
    }

    fn print(&self, text: &str) -> Result<(), Failure> {
        let mut output = io::stdout().lock();
        Ok(self
            .progress
            .suspend(|| output.write_all(text.as_bytes()))?)
    }

    /// Returns the time with which a line begins, and a space; empty for a line without a time.
    /// With `--verbose`, or from a service, lines have a time. Lines on a terminal have none.
    /// Without `--verbose`, lines to the systemd journal have none, because it adds times itself.
    fn stamp(&self, is_terminal: bool) -> String {
        let is_in_journal = || env::var_os("JOURNAL_STREAM").is_some();
        let is_read_later = self.verbosity > 0 || self.is_service && !is_in_journal();
        if is_terminal || !is_read_later {
            return String::new();
        }
        log::now() + " "
    }

    #[expect(clippy::print_stderr, reason = "the log goes to standard error")]
    fn log(&self, text: &str) {
        let (stamp, text) = (
            self.stamp(io::stderr().is_terminal()),
            printable_lines(text),
        );
        self.progress.suspend(|| eprintln!("{stamp}{text}"));
    }
}

/// Returns a document's text, fit for a terminal: no text from another host can control the
/// terminal.
fn shown_text<D: Document>(document: &D) -> String {
    let text = document.text();
    if D::HAS_COLOURS {
        return text;
    }
    printable_lines(&text).into_owned()
}

/// One of the ways in which a document is written as JSON.
type JsonWriter<D> = fn(&mut io::StdoutLock<'static>, &str, u32, &D) -> io::Result<()>;

/// What a command prints as one JSON document, or as text.
pub(crate) trait Document: Serialize {
    /// Name of the JSON document's schema.
    const SCHEMA: &'static str;
    /// The schema's version, raised with every change that an old reader would misread.
    const VERSION: u32 = 1;
    /// True when the text is the command's data, for standard output. Otherwise it is a
    /// remark, for standard error.
    const IS_DATA: bool;

    /// True when the text has colours, as escape sequences for a terminal. Such a document must
    /// itself make texts from other hosts printable.
    const HAS_COLOURS: bool = false;

    /// Writes the document as text, with line ends.
    fn text(&self) -> String;
}
