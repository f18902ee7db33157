//! Bars that move on a terminal; nothing elsewhere.

use std::{io::IsTerminal as _, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A set of bars on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bars: MultiProgress,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        let is_shown = is_wanted && std::io::stderr().is_terminal();
        let target = if is_shown {
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        Self {
            bars: MultiProgress::with_draw_target(target),
            is_shown,
        }
    }

    /// True when somebody sees the bars.
    pub(crate) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// A bar towards a known number of bytes.
    pub(crate) fn bytes(&self, name: &str, total: u64) -> ProgressBar {
        self.bar(name, Some(total), BYTES)
    }

    /// A count of messages, towards a total where there is one.
    pub(crate) fn messages(&self, name: &str, total: Option<u64>) -> ProgressBar {
        let template = if total.is_some() {
            MESSAGES
        } else {
            MESSAGES_ENDLESS
        };
        self.bar(name, total, template)
    }

    fn bar(&self, name: &str, total: Option<u64>, template: &str) -> ProgressBar {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = self.bars.add(bar.with_style(style.progress_chars("=> ")));
        bar.set_prefix(name.to_owned());
        if self.is_shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }
}

const REDRAWS_PER_SECOND: u8 = 5;
const BYTES: &str = "{prefix:20!} [{bar:30}] {bytes:>10}/{total_bytes} {bytes_per_sec:>12} {msg}";
const MESSAGES: &str = "{prefix:20!} [{bar:30}] {human_pos:>12}/{human_len} {per_sec:>14} {msg}";
const MESSAGES_ENDLESS: &str =
    "{prefix:20!} {spinner} {human_pos:>12} messages {per_sec:>14} {msg}";
