//! Text for people.

use std::{fmt::Display, time::Duration};

use towline::counters::{CounterReading, ProcessCounters, SessionCounters};

use super::{
    DelayReport, Document, InterfacesReport, InterruptedDemo, LoadRecvReport, LoadSendReport,
    PublishReport, SenderEnds, StatReport, SubscribeReport, TopReport, UsageReport, quantity,
};

/// Writes a line that begins with `start`, and as many more below its value as it takes to stay
/// within 80 columns. What stands between backquotes, as a command to type, stays in one line.
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

/// Returns what no line end may divide at the beginning of a text: a word, or all between
/// backquotes.
fn unit(text: &str) -> &str {
    let mut is_quoted = false;
    let end = text.find(|letter| {
        is_quoted ^= letter == '`';
        letter == ' ' && !is_quoted
    });
    &text[..end.unwrap_or(text.len())]
}

/// Writes clauses with semicolons between them behind `start`. Lines end within 80 columns, between
/// two clauses where that is possible.
pub(super) fn clauses<T: AsRef<str>>(text: &mut String, start: &str, clauses: &[T]) {
    let indent = " ".repeat(width(start).min(INDENT_MAX));
    let (mut line_start, mut line) = (start, String::new());
    for clause in clauses {
        let clause = clause.as_ref();
        let longer = match line.as_str() {
            "" => clause.to_owned(),
            line => format!("{line}; {clause}"),
        };
        // A blank stands in front of the line, and perhaps a semicolon behind it.
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
/// The deepest indent of a line that continues another one.
const INDENT_MAX: usize = 20;

impl Document for PublishReport {
    const SCHEMA: &'static str = "towline.pub";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let mut told = vec![format!(
            "{}sent {}, {}, in {}{}",
            interrupted(self.is_interrupted),
            quantity::count(self.messages, "message"),
            quantity::bytes(self.bytes),
            quantity::time(Duration::from_secs_f64(self.seconds)),
            rate(self.messages, self.bytes, self.seconds),
        )];
        if self.discarded > 0 {
            told.push(format!("{} dropped (window full)", self.discarded));
        }
        if self.receivers > 0 {
            let is_confirmed = self.is_confirmed && self.given_up == 0;
            let state = if is_confirmed { "" } else { "NOT " };
            let receivers = match self.receivers {
                1 => "the receiver".to_owned(),
                receivers => format!("all {receivers} receivers"),
            };
            told.push(format!("{state}confirmed by {receivers}"));
        } else {
            told.push("no receiver reported".to_owned());
        }
        if self.given_up > 0 {
            told.push(format!("{} given up", self.given_up));
        }
        if let Some(limited_by) = &self.limited_by {
            told.push(format!("last {limited_by}"));
        }
        told.push(format!("dropped: {}", self.drops.drops_told()));
        let mut text = String::new();
        clauses(&mut text, &format!("{}:", self.group), &told);
        text
    }
}

impl Document for SubscribeReport {
    const SCHEMA: &'static str = "towline.sub";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        // All messages may have come at one moment.
        let time = quantity::time(Duration::from_secs_f64(self.seconds));
        let time = if self.seconds > 0.0 {
            format!(", in {time}")
        } else {
            String::new()
        };
        let mut told = vec![
            format!(
                "{}{}, {}{time}{}",
                interrupted(self.is_interrupted),
                quantity::count(self.messages, "message"),
                quantity::bytes(self.bytes),
                rate(self.messages, self.bytes, self.seconds),
            ),
            format!("{} lost", quantity::count(self.lost_packets, "packet")),
        ];
        if self.discarded > 0 {
            let discarded = quantity::count(self.discarded, "message");
            told.push(format!("{discarded} dropped (output slow)"));
        }
        told.push(format!("senders: {}", senders(&self.senders)));
        told.push(format!("dropped: {}", self.drops.drops_told()));
        let mut text = String::new();
        clauses(&mut text, &format!("{}:", self.group), &told);
        text
    }
}

impl Document for LoadSendReport {
    const SCHEMA: &'static str = "towline.load-send";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        table.row("messages", &self.messages);
        table.row("payload", &quantity::bytes(self.bytes));
        table.row(
            "time",
            &quantity::time(Duration::from_secs_f64(self.seconds)),
        );
        table.row("rate", &rates(self.messages, self.bytes, self.seconds));
        let repaired = ["rdata_packets", "parity_packets"]
            .map(|name| self.counters.get(&format!("source.{name}")))
            .iter()
            .sum::<u64>();
        let sent = self.counters.get("source.odata_packets");
        table.row("packets", &format!("{sent} and {repaired} repairs"));
        let mut receivers = format!("{} reporting, ", self.receivers);
        receivers += match (self.is_confirmed, self.receivers) {
            (true, _) => "confirmed",
            (false, 0) => "none could confirm",
            (false, _) => "NOT confirmed by all",
        };
        if self.given_up > 0 {
            receivers += &format!(", {} given up", self.given_up);
        }
        table.row("receivers", &receivers);
        if let Some(failure) = &self.failure {
            table.row("failure", failure);
        }
        if let Some(limited_by) = &self.limited_by {
            table.row("last", limited_by);
        }
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}

impl Document for LoadRecvReport {
    const SCHEMA: &'static str = "towline.load-recv";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        table.row("messages", &self.messages);
        table.row("payload", &quantity::bytes(self.bytes));
        table.row("missing", &self.missing);
        table.row("corrupt", &self.corrupt);
        table.row("duplicates", &self.duplicates);
        table.row("out of order", &self.out_of_order);
        table.row("lost packets", &self.lost_packets);
        table.row(
            "time",
            &quantity::time(Duration::from_secs_f64(self.seconds)),
        );
        table.row("rate", &rates(self.messages, self.bytes, self.seconds));
        if let Some(delay) = &self.delay {
            table.row("delay", &delays(delay));
            table.row("clock error", &clock_error(delay));
        }
        table.row("senders", &senders(&self.senders));
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}

fn delays(delay: &DelayReport) -> String {
    let time = |ns| quantity::time(Duration::from_nanos(ns));
    let at = &delay.percentiles;
    let mut text = format!(
        "p50 {}, p99 {}, p99.9 {}, max {}; {} of {} later than {}",
        time(at.p50_ns),
        time(at.p99_ns),
        time(at.p999_ns),
        time(at.max_ns),
        delay.messages_late,
        at.count,
        time(delay.late_ns),
    );
    if delay.negative > 0 {
        text += &format!(
            "; {} arrived before they were due: the clocks disagree",
            delay.negative
        );
    }
    text
}

fn clock_error(delay: &DelayReport) -> String {
    match delay.clock_error_ns_max {
        Some(error_ns) => {
            let error = quantity::time(Duration::from_nanos(error_ns));
            format!("up to {error} between two hosts, none on one host")
        }
        None => "unknown between two hosts: a clock is not synchronised".to_owned(),
    }
}

impl Document for InterruptedDemo {
    const SCHEMA: &'static str = "towline.demo-interrupted";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let rest = if self.is_kept {
            "the directories were to be kept"
        } else {
            "nothing is left behind"
        };
        format!("interrupted: {rest}\n")
    }
}

impl Document for InterfacesReport {
    const SCHEMA: &'static str = "towline.ifaces";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        self.table.clone()
    }
}

impl Document for TopReport {
    const SCHEMA: &'static str = "towline.top";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        if self.processes.is_empty() {
            return "no towline command of this user has an open session\n".to_owned();
        }
        let mut text = String::new();
        for process in &self.processes {
            text += &format!("{:<8} {}\n", process.pid, process.command);
            for session in &process.sessions {
                text += &self.session(process, session);
            }
        }
        text
    }
}

impl TopReport {
    fn session(&self, process: &ProcessCounters, session: &SessionCounters) -> String {
        let mut text = format!("  {} {}\n", session.role, session.name);
        for counter in &session.counters {
            if counter.value == 0 && !self.is_complete {
                continue;
            }
            let rate = self
                .rate(process.pid, session, counter)
                .filter(|rate| *rate > 0.0);
            let rate = rate
                .map(|rate| format!("{rate:>14.0}/s"))
                .unwrap_or_default();
            text += &format!(
                "    {:<34} {:>18}{rate}\n",
                full_name(counter),
                counter.value
            );
        }
        text
    }
}

impl Document for StatReport {
    const SCHEMA: &'static str = "towline.stat";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for session in &self.process.sessions {
            if !self.is_one_counter {
                text += &format!("# {} {}\n", session.role, session.name);
            }
            for counter in &session.counters {
                if self.is_one_counter {
                    text += &format!("{}\n", counter.value);
                } else {
                    let CounterReading {
                        value, unit, help, ..
                    } = counter;
                    text += &format!("{:<34} {value:>18} {unit:<8}  {help}\n", full_name(counter));
                }
            }
        }
        text
    }
}

fn full_name(counter: &CounterReading) -> String {
    format!("{}.{}", counter.set, counter.name)
}

/// Words the rate, `, 12.3 k/s, 45 Mbit/s`; empty for a single message, or a time too short to
/// measure.
fn rate(messages: u64, bytes: u64, seconds: f64) -> String {
    if messages < 2 || !quantity::is_measurable(seconds) {
        return String::new();
    }
    let messages = quantity::rate(messages, seconds);
    format!(
        ", {messages}, {}",
        quantity::bits_per_second(bytes, seconds)
    )
}

fn rates(messages: u64, bytes: u64, seconds: f64) -> String {
    if messages == 0 || !quantity::is_measurable(seconds) {
        return "too little to measure".to_owned();
    }
    let messages = quantity::rate(messages, seconds);
    format!(
        "{messages} of messages, {} of payload",
        quantity::bits_per_second(bytes, seconds)
    )
}

/// Returns the first words of a closing remark.
const fn interrupted(is_interrupted: bool) -> &'static str {
    if is_interrupted { "interrupted: " } else { "" }
}

fn senders(ends: &SenderEnds) -> String {
    let mut text = format!("{} found, {} ended", ends.found, ends.ended);
    let others = [
        (ends.expired, "vanished"),
        (ends.reset, "broke off"),
        (ends.dropped, "dropped this receiver"),
    ];
    for (count, fate) in others.iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {fate}");
    }
    text
}

/// Names and values in two columns.
#[derive(Default)]
struct Rows {
    text: String,
}

impl Rows {
    fn row(&mut self, name: &str, value: &impl Display) {
        wrap(&mut self.text, &format!("{name:<13}"), &value.to_string());
    }

    fn interrupted(&mut self, is_interrupted: bool) {
        if is_interrupted {
            self.row("interrupted", &"by a signal: the figures end there");
        }
    }

    fn usage(&mut self, usage: &UsageReport) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::Counters;

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

    #[test]
    fn a_subscriber_tells_what_was_dropped() {
        let mut report = SubscribeReport {
            group: "239.192.0.1:7500".into(),
            messages: 0,
            bytes: 0,
            lost_packets: 0,
            discarded: 0,
            senders: SenderEnds::default(),
            is_interrupted: false,
            seconds: 0.0,
            failure: None,
            drops: Counters::default(),
            counters: Counters::default(),
        };
        let text = report.text();
        assert!(
            text.ends_with("senders: 0 found, 0 ended;\n                  dropped: none\n"),
            "{text}"
        );
        (report.messages, report.bytes, report.seconds) = (2_000, 250_000, 2.0);
        let text = report.text();
        assert!(
            text.contains("in 2 s, 1 k/s, 1 Mbit/s;\n") && text.contains("  0 packets lost"),
            "{text}"
        );
        let counters = [
            ("drop.no_room", 1),
            ("drop.stale", 0),
            ("drop.ended", 6),
            ("udp.kernel_drops", 7),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        report.drops = Counters(BTreeMap::from(counters)).drops();
        let text = report.text();
        assert!(text.ends_with(" dropped: kernel 7, no_room 1\n"), "{text}");
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(
            json["drops"],
            serde_json::json!({"kernel": 7, "no_room": 1, "ended": 6})
        );
    }
}
