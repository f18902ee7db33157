//! Bars that move on a terminal; nothing elsewhere.

use std::{
    fmt::Write,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::quantity;

/// The bars on standard error: one set for the process. They are hidden while a line is printed. If
/// the work of a bar fails, call `abandon`, which leaves the bar as it is: `finish` would fill it.
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

    /// Returns true when a person can see the bars.
    pub(crate) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Adds a bar towards a known number of bytes. The bar's length depends only on the terminal's
    /// width. Text to the right of the bar is cut at the end of the line.
    pub(crate) fn bytes(&self, name: &str, total: u64) -> ProgressBar {
        let rest = columns().saturating_sub(BYTES_COLUMNS);
        let length = (rest / 3).clamp(BAR_MIN, BAR_MAX);
        self.bar(
            name,
            Some(total),
            &BYTES.replace("BAR", &length.to_string()),
        )
    }

    /// Adds a display of how many messages there are so far; with `total`, a bar towards that
    /// total.
    pub(crate) fn messages(&self, name: &str, total: Option<u64>) -> ProgressBar {
        let template = if total.is_some() {
            MESSAGES
        } else {
            MESSAGES_ENDLESS
        };
        self.bar(name, total, template)
    }

    /// Adds lines that [`ProgressBar::set_message`] overwrites.
    pub(crate) fn lines(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
        // The lines are drawn only when they change: no thread redraws them in between.
        self.bars.add(ProgressBar::no_length().with_style(style))
    }

    /// Hides the bars, calls `print`, and shows the bars again.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bars.suspend(print)
    }

    fn bar(&self, name: &str, total: Option<u64>, template: &str) -> ProgressBar {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let style = style
            .progress_chars("=> ")
            .with_key("left", |state: &ProgressState, out: &mut dyn Write| {
                if state.elapsed() >= RATE_AFTER && state.pos() < state.len().unwrap_or(0) {
                    put(out, &left(state.eta()));
                }
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

/// Writes the rate, but not at first: at first the rate shows only how fast a queue fills.
fn put_rate(state: &ProgressState, out: &mut dyn Write, text: impl Fn(f64) -> String) {
    if state.elapsed() >= RATE_AFTER {
        put(out, &text(state.per_sec()));
    }
}

/// Returns the time left in words: `12 s left`, `5 min left`; nothing below 1 s, and nothing from
/// 100 h on, because such a time is only a guess.
fn left(time: Duration) -> String {
    match time.as_secs() {
        0 => String::new(),
        seconds @ 1..=99 => format!("{seconds} s left"),
        seconds @ 100..=5_999 => format!("{} min left", seconds / 60),
        seconds @ 6_000..=359_999 => format!("{} h left", seconds / 3_600),
        _ => String::new(),
    }
}

/// Returns the terminal's width in columns; 80 where there is no terminal.
pub(crate) fn columns() -> u16 {
    let size = ratatui::crossterm::terminal::size();
    size.map_or(COLUMNS, |(columns, _)| columns)
}

const COLUMNS: u16 = 80;
const RATE_AFTER: Duration = Duration::from_secs(1);
const REDRAWS_PER_SECOND: u8 = 5;
const BYTES: &str = "{prefix:16!} [{bar:BAR}] {percent:>3} % {bits:>11} {left:>11}  {wide_msg}";
/// The columns that a line with a bar of bytes needs besides the bar and the message.
const BYTES_COLUMNS: u16 = 51;
const BAR_MIN: u16 = 10;
const BAR_MAX: u16 = 40;
// The bar gets all columns that the other parts leave.
const MESSAGES: &str = "{prefix:20!} [{wide_bar}] {human_pos:>11} of {human_len} {each:>10}  {msg}";
const MESSAGES_ENDLESS: &str = "{prefix} {spinner} {human_pos} messages {each:>10}  {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_short_and_of_one_unit() {
        let said = [0, 1, 99, 100, 5_999, 6_000, 1_000_000];
        let said = said.map(|seconds| left(Duration::from_secs(seconds)));
        let wanted = [
            "",
            "1 s left",
            "99 s left",
            "1 min left",
            "99 min left",
            "1 h left",
            "",
        ];
        assert_eq!(said, wanted);
        assert!(said.iter().all(|text| text.len() <= 11));
    }
}
