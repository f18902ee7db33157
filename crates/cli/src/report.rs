//! What a command prints: documents (plain data), one file for each format, and progress bars.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::{args::OutputArgs, failure::Failure};

mod document;
pub(crate) use document::{
    Counters, InterfaceRow, InterfacesReport, LoadRecvReport, LoadSendReport, PublishReport,
    SenderEnds, StatReport, SubscribeReport, TopReport, UsageReport,
};

mod json;
pub(crate) use json::MessageStream;

mod progress;
pub(crate) use progress::Progress;

mod quantity;

mod text;

mod transfer;
pub(crate) use transfer::{DemoDocument, RecvReport, SendReport, hex};

/// Where and how a command speaks.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    is_json: bool,
    is_quiet: bool,
    is_dry_run: bool,
    verbosity: u8,
}

impl Output {
    pub(crate) const fn new(args: &OutputArgs) -> Self {
        Self {
            is_json: args.json,
            is_quiet: args.quiet,
            is_dry_run: args.dry_run,
            verbosity: args.verbose,
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    /// For `--dry-run`: prints the plan; true when that is all there is to do.
    pub(crate) fn shows_only(&self, command: &str, plan: &impl Serialize) -> Result<bool, Failure> {
        if self.is_dry_run {
            json::write(
                &mut io::stdout().lock(),
                &format!("towline.plan.{command}"),
                1,
                plan,
            )?;
        }
        Ok(self.is_dry_run)
    }

    /// A line for the person who watches; nothing with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            log(text);
        }
    }

    /// A line for the person who wants to know more: `--verbose`.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbosity > 0 {
            log(text);
        }
    }

    /// Bars that move on a terminal, unless nobody wants to see them.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(!self.is_quiet)
    }

    /// The end of a command: its document as JSON, or as text where the text belongs.
    pub(crate) fn finish<D: Document>(&self, document: &D) -> Result<(), Failure> {
        if self.is_json {
            json::write(&mut io::stdout().lock(), D::SCHEMA, D::VERSION, document)?;
        } else if D::IS_DATA {
            io::stdout().lock().write_all(document.text().as_bytes())?;
        } else {
            self.note(document.text().trim_end());
        }
        Ok(())
    }
}

/// Something a command has to say when it ends.
pub(crate) trait Document: Serialize {
    /// Name of the JSON document's schema.
    const SCHEMA: &'static str;
    /// Grows with every change that an old reader would misread.
    const VERSION: u32 = 1;
    /// Its text is the command's data and goes to standard output; otherwise it is a closing
    /// remark beside the data.
    const IS_DATA: bool;

    /// As text, with line ends.
    fn text(&self) -> String;
}

#[expect(clippy::print_stderr, reason = "the log goes to standard error")]
fn log(text: &str) {
    eprintln!("{text}");
}
