//! Bars that move on a terminal; nothing elsewhere.

use std::{
    fmt::Write,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::quantity;

/// The bars on standard error: one set for the process, which every line that is printed goes
/// around. A bar whose work has failed is to be left where it stands (`abandon`): `finish` would
/// fill it.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bars: MultiProgress,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        let is_shown = is_wanted && stderr().is_terminal();
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

    /// Lines that are written over: [`ProgressBar::set_message`].
    pub(crate) fn lines(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
        // Drawn when they change: no thread of their own, and no clock asked in between.
        self.bars.add(ProgressBar::no_length().with_style(style))
    }

    /// Prints while the bars are out of the way.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bars.suspend(print)
    }

    fn bar(&self, name: &str, total: Option<u64>, template: &str) -> ProgressBar {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let style = style
            .progress_chars("=> ")
            .with_key("held", |state: &ProgressState, out: &mut dyn Write| {
                put(out, &quantity::bytes(state.pos()));
            })
            .with_key("all", |state: &ProgressState, out: &mut dyn Write| {
                put(out, &quantity::bytes(state.len().unwrap_or(0)));
            })
            .with_key("bits", |state: &ProgressState, out: &mut dyn Write| {
                put_rate(state, out, |rate| quantity::bits(rate * 8.0));
            })
            .with_key("each", |state: &ProgressState, out: &mut dyn Write| {
                put_rate(state, out, quantity::whole_rate);
            });
        let bar = self.bars.add(bar.with_style(style));
        bar.set_prefix(name.to_owned());
        if self.is_shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }
}

fn put(out: &mut dyn Write, text: &str) {
    // A bar that cannot be drawn is no reason to fail.
    out.write_str(text).unwrap_or_default();
}

/// Nothing at first: a rate over a moment is that of a full queue.
fn put_rate(state: &ProgressState, out: &mut dyn Write, text: impl Fn(f64) -> String) {
    if state.elapsed() >= RATE_AFTER {
        put(out, &text(state.per_sec()));
    }
}

const RATE_AFTER: Duration = Duration::from_secs(1);
const REDRAWS_PER_SECOND: u8 = 5;
// The bar takes what the terminal's width leaves.
const BYTES: &str = "{prefix:16!} [{wide_bar}] {held:>8} of {all:<8} {bits:>12}  {msg}";
const MESSAGES: &str = "{prefix:20!} [{wide_bar}] {human_pos:>11} of {human_len} {each:>10}  {msg}";
const MESSAGES_ENDLESS: &str = "{prefix} {spinner} {human_pos} messages {each:>10}  {msg}";
