//! Text for people: lines that fit the terminal, and the words that several reports have.

use std::{fmt::Display, path::Path};

use super::{Counters, UsageReport, name::shown, quantity};

/// Writes `value` on a line that begins with `start`. Where it needs more than 80 columns, it goes
/// on in further lines, indented. Text between backquotes, such as a command to type, stays on one
/// line.
pub(super) fn wrap(text: &mut String, start: &str, value: &str) {
    let indent = " ".repeat(width(start).min(INDENT_MAX));
    let mut line = start.to_owned();
    let (mut rest, mut is_first) = (Some(value), true);
    while let Some(value) = rest {
        let unit = unit(value);
        if !is_first && width(&line) + 1 + width(unit) > COLUMNS {
            *text += &line;
            text.push('\n');
            line.clone_from(&indent);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += unit;
        rest = value[unit.len()..].strip_prefix(' ');
        is_first = false;
    }
    *text += &line;
    text.push('\n');
}

/// Returns the first part of a text that no line end may divide: everything before the first blank
/// that is not between backquotes.
fn unit(text: &str) -> &str {
    let mut is_quoted = false;
    let end = text.find(|letter| {
        is_quoted ^= letter == '`';
        letter == ' ' && !is_quoted
    });
    &text[..end.unwrap_or(text.len())]
}

/// Writes `start`, and behind it the clauses with semicolons between them. Lines end within 80
/// columns, between two clauses where that is possible.
pub(super) fn clauses<T: AsRef<str>>(text: &mut String, start: &str, clauses: &[T]) {
    let indent = " ".repeat(width(start).min(INDENT_MAX));
    let (mut line_start, mut line) = (start, String::new());
    for clause in clauses {
        let clause = clause.as_ref();
        let longer = match line.as_str() {
            "" => clause.to_owned(),
            line => format!("{line}; {clause}"),
        };
        // The 2 columns are for a blank before `line`, and for a semicolon after `longer`.
        if !line.is_empty() && width(line_start) + width(&longer) + 2 > COLUMNS {
            wrap(text, line_start, &(line + ";"));
            (line_start, line) = (&indent, clause.to_owned());
        } else {
            line = longer;
        }
    }
    wrap(text, line_start, &line);
}

/// Returns how many columns a text without control characters takes.
fn width(text: &str) -> usize {
    text.chars().count()
}

const COLUMNS: usize = 80;
/// The deepest indent, in columns, of a line that continues another one.
const INDENT_MAX: usize = 20;

/// Returns the rates of messages and bits, such as `, 12.3 k/s, 45 Mbit/s`; empty for fewer than
/// two messages, or for a time too short to measure.
pub(super) fn rate(messages: u64, bytes: u64, seconds: f64) -> String {
    if messages < 2 || !quantity::is_measurable(seconds) {
        return String::new();
    }
    let messages = quantity::rate(messages, seconds);
    format!(
        ", {messages}, {}",
        quantity::bits_per_second(bytes, seconds)
    )
}

/// Returns the rates of messages and of their payload.
pub(super) fn rates(messages: u64, bytes: u64, seconds: f64) -> String {
    rates_of((messages, "messages"), (bytes, " of payload"), seconds)
}

/// Returns the rates of frames and of their bytes.
pub(super) fn frame_rates(frames: u64, bytes: u64, seconds: f64) -> String {
    rates_of((frames, "frames"), (bytes, ""), seconds)
}

fn rates_of((count, what): (u64, &str), (bytes, of): (u64, &str), seconds: f64) -> String {
    if count == 0 || !quantity::is_measurable(seconds) {
        return "too little to measure".to_owned();
    }
    format!(
        "{} of {what}, {}{of}",
        quantity::rate(count, seconds),
        quantity::bits_per_second(bytes, seconds)
    )
}

/// Returns the first words of the closing remark of a command that a signal ended.
pub(super) const fn interrupted(is_interrupted: bool) -> &'static str {
    if is_interrupted { "interrupted: " } else { "" }
}

/// Writes a line for each text, up to [`NAMED_MAX`], and one that counts the rest.
pub(super) fn named(what: &str, texts: impl ExactSizeIterator<Item = String>) -> String {
    let count = texts.len();
    let lines = texts.take(NAMED_MAX);
    let mut text: String = lines
        .map(|text| format!("{what}: {}\n", shown(Path::new(&text))))
        .collect();
    if count > NAMED_MAX {
        text += &format!("{what}: {} more\n", count - NAMED_MAX);
    }
    text
}

/// Returns a line that says which packets were dropped; empty without counters.
pub(super) fn dropped(drops: Option<&Counters>) -> String {
    let drops = drops.map(Counters::drops_told);
    drops.map_or_else(String::new, |drops| format!("dropped: {drops}\n"))
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and values in two columns.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) text: String,
}

impl Rows {
    pub(super) fn row(&mut self, name: &str, value: &impl Display) {
        wrap(&mut self.text, &format!("{name:<13}"), &value.to_string());
    }

    pub(super) fn interrupted(&mut self, is_interrupted: bool) {
        if is_interrupted {
            self.row("interrupted", &"by a signal: the figures end there");
        }
    }

    pub(super) fn usage(&mut self, usage: &UsageReport) {
        let share = |seconds: Option<f64>| match seconds {
            Some(seconds) if usage.wall_s > 0.0 => {
                format!("{:.0} %", seconds / usage.wall_s * 100.0)
            }
            _ => "unknown".to_owned(),
        };
        let process = share(usage.process_cpu_s);
        let machine = share(usage.machine_busy_s);
        let limit = u64::from(usage.cpu_count) * 100;
        let text = format!("{process} this process, {machine} the whole machine (of {limit} %)");
        self.row("processor", &text);
    }
}

/// The most files of a kind that the text form names; JSON has all of them.
const NAMED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_within_80_columns_between_clauses_or_words() {
        let mut text = String::new();
        let command = format!("`{} {}`", "a".repeat(30), "b".repeat(30));
        wrap(&mut text, "fix  ", &format!("type {command} or {command}"));
        let wanted = format!("fix   type {command} or\n      {command}\n");
        assert_eq!(text, wanted);
        text.clear();
        let [one, two] = ["x ", "y "].map(|it| it.repeat(25).trim_end().to_owned());
        clauses(&mut text, "239.192.0.1:", &[&one, &two]);
        assert_eq!(text, format!("239.192.0.1: {one};\n{:12} {two}\n", ""));
        text.clear();
        clauses(&mut text, "", &["short", "shorter"]);
        assert_eq!(text, "short; shorter\n");
        text.clear();
        let far = "a".repeat(60);
        clauses(&mut text, &far, &[&one, "end"]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains(&format!("\n{:20} x x", "")), "{text}");
    }
}
