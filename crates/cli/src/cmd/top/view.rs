//! What `top` shows on a terminal: a row for each session, and the counters of the session that the
//! user opened. The view does no input or output, so tests can draw it into a buffer.
//!
//! ```text
//!   list: PID ROLE GROUP RATE LOSS LOST RECEIVERS LAG   --Enter-->   counters of one session
//!                                                   <--Esc---
//! ```

use std::time::{Duration, Instant};

use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent},
    layout::{Constraint, Rect},
    widgets::{Cell, Row, Table},
};
use towline::counters::{ProcessCounters, SessionCounters};

use crate::{
    cmd::screen::{
        LiveView, Wish, draw_bar, draw_empty, draw_table, heads, is_leave, moved, parts, right,
        steps,
    },
    report::{TopReport, bits, count},
};

/// Everything that is shown, and the user's cursor in it.
#[derive(Debug)]
pub(super) struct View {
    report: TopReport,
    taken: Option<Instant>,
    interval: Duration,
    /// Process id of the session under the cursor, and the session's number in that process.
    chosen: Option<(u32, u64)>,
    page: Page,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Sessions,
    /// The counters of the chosen session; the first counter on the screen has the index `first`.
    Counters {
        first: usize,
    },
}

impl View {
    pub(super) const fn new(interval: Duration, is_complete: bool) -> Self {
        Self {
            report: TopReport {
                processes: Vec::new(),
                before: None,
                is_complete,
            },
            taken: None,
            interval,
            chosen: None,
            page: Page::Sessions,
        }
    }

    /// Takes the counters that were read at `now`.
    pub(super) fn look(&mut self, processes: Vec<ProcessCounters>, now: Instant) {
        let before = std::mem::replace(&mut self.report.processes, processes);
        let since = self.taken.map(|taken| (now - taken).as_secs_f64());
        self.report.before = since.map(|seconds| (before, seconds));
        self.taken = Some(now);
        if self.session().is_none() {
            // No session is chosen yet, or the chosen one is over: the cursor goes to the first
            // session, and the page of counters is closed.
            self.page = Page::Sessions;
            let first = self.sessions().next();
            self.chosen = first.map(|(process, session)| (process.pid, session.id));
        }
    }

    /// Moves the cursor, or scrolls the counters.
    fn go(&mut self, steps: isize) {
        match &mut self.page {
            // If `first` becomes too large, drawing lowers it.
            Page::Counters { first } => *first = first.saturating_add_signed(steps),
            Page::Sessions => {
                let all: Vec<_> = self
                    .sessions()
                    .map(|(process, it)| (process.pid, it.id))
                    .collect();
                let at = all.iter().position(|it| Some(*it) == self.chosen);
                self.chosen = all.get(moved(at, steps, all.len())).copied();
            }
        }
    }

    fn sessions(&self) -> impl Iterator<Item = (&ProcessCounters, &SessionCounters)> {
        let processes = self.report.processes.iter();
        processes.flat_map(|process| {
            process
                .sessions
                .iter()
                .map(move |session| (process, session))
        })
    }

    /// Returns the session under the cursor, while it is there.
    fn session(&self) -> Option<(&ProcessCounters, &SessionCounters)> {
        let mut sessions = self.sessions();
        sessions.find(|(process, session)| Some((process.pid, session.id)) == self.chosen)
    }

    fn draw_sessions(&self, frame: &mut Frame<'_>, top: Rect, middle: Rect) {
        let sessions = count(self.sessions().count() as u64, "session");
        let title = format!("towline top: {sessions}, updated every {:?}", self.interval);
        draw_bar(frame, top, &title);
        if self.chosen.is_none() {
            return draw_empty(
                frame,
                middle,
                "no process of this user has a session of Towline",
            );
        }
        let is_wide = middle.width >= WIDE;
        let rows = self.sessions().map(|(process, session)| {
            let Figures {
                rate,
                loss,
                lost,
                receivers,
                lag,
            } = self.line(process.pid, session);
            let mut cells = vec![
                right(&process.pid.to_string()),
                Cell::new(session.role.as_str()),
                Cell::new(session.name.as_str()),
                right(&rate),
                right(&loss),
                right(&lost),
                right(&receivers),
                right(&lag),
            ];
            if is_wide {
                cells.push(Cell::new(process.command.as_str()));
            }
            Row::new(cells)
        });
        let mut names = vec![
            right("PID"),
            Cell::new("ROLE"),
            Cell::new("GROUP"),
            right("RATE"),
            right("LOSS"),
            right("LOST"),
            right("RECEIVERS"),
            right("LAG"),
        ];
        let mut widths = vec![
            Constraint::Length(7),
            Constraint::Length(10),
            Constraint::Fill(1),
            Constraint::Length(11),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Length(9),
            Constraint::Length(5),
        ];
        if is_wide {
            names.push(Cell::new("COMMAND"));
            widths.push(Constraint::Fill(2));
        }
        let table = Table::new(rows, widths).header(heads(names));
        let mut sessions = self.sessions();
        let at = sessions.position(|(process, it)| Some((process.pid, it.id)) == self.chosen);
        draw_table(frame, middle, table, at);
    }

    fn draw_counters(&mut self, frame: &mut Frame<'_>, top: Rect, middle: Rect, first: usize) {
        let Some((process, session)) = self.session() else {
            return;
        };
        let title = format!(
            "{} {} {}: {}",
            process.pid, session.role, session.name, process.command
        );
        draw_bar(frame, top, &title);
        let is_shown = |value| value > 0 || self.report.is_complete;
        let counters = session
            .counters
            .iter()
            .filter(|counter| is_shown(counter.value));
        let rows: Vec<Row<'_>> = counters
            .map(|counter| {
                let rate = self.report.rate(process.pid, session, counter);
                let rate = rate.filter(|rate| *rate > 0.0);
                let rate = rate.map(|rate| format!("{rate:.0}/s")).unwrap_or_default();
                Row::new([
                    Cell::new(format!("{}.{}", counter.set, counter.name)),
                    right(&counter.value.to_string()),
                    right(&rate),
                    Cell::new(counter.help.as_str()),
                ])
            })
            .collect();
        // The header takes a row. The list scrolls until its last row is at the bottom, no further.
        let room = usize::from(middle.height).saturating_sub(1);
        let first = first.min(rows.len().saturating_sub(room));
        let widths = [
            Constraint::Length(34),
            Constraint::Length(16),
            Constraint::Length(14),
            Constraint::Fill(1),
        ];
        let names = [
            Cell::new("COUNTER"),
            right("COUNT"),
            right("RATE"),
            Cell::new("COUNTS"),
        ];
        let table = Table::new(rows.into_iter().skip(first), widths).header(heads(names));
        frame.render_widget(table, middle);
        self.page = Page::Counters { first };
    }

    /// Makes the row of a session; `-` stands for a figure that the session cannot know.
    fn line(&self, pid: u32, session: &SessionCounters) -> Figures {
        let rate_of = |name: &str| {
            let counter = session
                .counters
                .iter()
                .find(|counter| counter.is_called(name))?;
            self.report.rate(pid, session, counter)
        };
        let none = || "-".to_owned();
        let share = |part: Option<f64>, whole: Option<f64>| match (part, whole) {
            (Some(part), Some(whole)) if whole > 0.0 => percent(100.0 * part / whole),
            _ => none(),
        };
        let is_sender = session.value_of("source.odata_packets").is_some();
        let (bytes, loss) = if is_sender {
            // A sender sends a packet again when a receiver missed it. So the share sent again
            // shows loss.
            let again = share(
                rate_of("source.rdata_packets"),
                rate_of("source.odata_packets"),
            );
            (rate_of("source.wire_bytes"), again)
        } else {
            let missed = rate_of("receiver.missed_sqns");
            let came = rate_of("receiver.odata_packets");
            let all = came.zip(missed).map(|(came, missed)| came + missed);
            (rate_of("received_bytes"), share(missed, all))
        };
        Figures {
            rate: bytes.map_or_else(none, |bytes| bits(bytes * 8.0)),
            loss,
            lost: session
                .value_of("receiver.lost_sqns")
                .map_or_else(none, |lost| lost.to_string()),
            receivers: session
                .receivers
                .map_or_else(none, |receivers| receivers.to_string()),
            lag: session
                .behind
                .map_or_else(none, |packets| packets.to_string()),
        }
    }
}

impl LiveView for View {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] = parts(frame.area());
        let keys = match self.page {
            Page::Sessions => {
                self.draw_sessions(frame, top, middle);
                "Enter counters   Up Down choose   q leave"
            }
            Page::Counters { first } => {
                self.draw_counters(frame, top, middle, first);
                "Esc back   Up Down PgUp PgDn scroll   a zero counters too   q leave"
            }
        };
        draw_bar(frame, bottom, keys);
    }

    fn press(&mut self, key: KeyEvent) -> Wish {
        match (key.code, self.page) {
            _ if is_leave(key) => return Wish::Leave,
            (KeyCode::Esc, Page::Sessions) => return Wish::Leave,
            (KeyCode::Char('a'), _) => self.report.is_complete = !self.report.is_complete,
            (KeyCode::Enter, Page::Sessions) if self.chosen.is_some() => {
                self.page = Page::Counters { first: 0 };
            }
            (KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace, Page::Counters { .. }) => {
                self.page = Page::Sessions;
            }
            (code, _) => {
                if let Some(steps) = steps(code) {
                    self.go(steps);
                }
            }
        }
        Wish::Stay
    }
}

/// Writes a share: `0.25 %`, `12.5 %`, `100 %`.
fn percent(percent: f64) -> String {
    let decimals = match percent {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{percent:.decimals$} %")
}

/// The figures of a session's row, as text.
struct Figures {
    rate: String,
    /// Share of packets since the last reading that a receiver missed, or that a sender sent again.
    loss: String,
    /// Number of packets that a receiver missed and that were never repaired.
    lost: String,
    receivers: String,
    /// Number of packets that the slowest receiver does not have yet.
    lag: String,
}

/// The least width of the list, in columns, at which it also shows each process's command line.
const WIDE: u16 = 100;

#[cfg(test)]
mod tests;
