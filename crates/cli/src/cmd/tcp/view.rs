//! What `tcp watch` shows on a terminal: a row for each connection, and the fields of the
//! connection that the user opened.

use std::time::Duration;

use gauge::tcp::Connection;
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent},
    layout::{Constraint, Rect},
    widgets::{Cell, Paragraph, Row, Table},
};

use crate::{
    cmd::screen::{
        LiveView, Wish, draw_bar, draw_empty, draw_table, heads, is_leave, moved, parts, right,
        steps,
    },
    report::{bits, count},
};

/// Everything that is shown, and the user's cursor in it.
#[derive(Debug)]
pub(super) struct View {
    rows: Vec<Connection>,
    interval: Duration,
    /// The connection under the cursor, by the number (cookie) that the kernel gives its socket.
    chosen: Option<u64>,
    /// While the fields of the chosen connection are shown: the index of the line at the top of the
    /// screen. `None` while the list is shown.
    opened: Option<usize>,
}

impl View {
    pub(super) const fn new(interval: Duration) -> Self {
        Self {
            rows: Vec::new(),
            interval,
            chosen: None,
            opened: None,
        }
    }

    /// Takes the connections, with what was measured since the previous call.
    pub(super) fn look(&mut self, rows: Vec<Connection>) {
        self.rows = rows;
        if self.at().is_none() {
            self.opened = None;
            self.chosen = self.rows.first().map(|row| row.cookie);
        }
    }

    fn at(&self) -> Option<usize> {
        let mut rows = self.rows.iter();
        rows.position(|row| Some(row.cookie) == self.chosen)
    }

    fn go(&mut self, steps: isize) {
        if let Some(first) = &mut self.opened {
            // Drawing lowers `first` when it is beyond the last fields.
            *first = first.saturating_add_signed(steps);
            return;
        }
        let next = moved(self.at(), steps, self.rows.len());
        self.chosen = self.rows.get(next).map(|row| row.cookie);
    }

    fn draw_rows(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.rows.is_empty() {
            return draw_empty(frame, area, "nothing has moved on any connection");
        }
        let rows = self.rows.iter().map(|row| {
            let process = row.process.as_ref().map_or("", |it| it.name.as_str());
            let [application, receiver, buffer, network] = row.shares.map_or_else(
                || [String::new(), String::new(), String::new(), String::new()],
                |it| {
                    [
                        it.application_percent,
                        it.receiver_percent,
                        it.send_buffer_percent,
                        it.network_percent,
                    ]
                    .map(|share| format!("{share:.0}"))
                },
            );
            Row::new([
                Cell::new(process.to_owned()),
                Cell::new(row.remote.to_string()),
                right(&bits(row.sent_per_s * 8.0)),
                right(&bits(row.received_per_s * 8.0)),
                right(&format!("{:.1}", row.field("rtt_us") as f64 / 1e3)),
                right(&application),
                right(&receiver),
                right(&buffer),
                right(&network),
            ])
        });
        let heads = heads([
            Cell::new("PROCESS"),
            Cell::new("PEER"),
            right("OUT"),
            right("IN"),
            right("RTT ms"),
            right("APP"),
            right("RCV"),
            right("BUF"),
            right("NET"),
        ]);
        let widths = [
            Constraint::Length(9),
            Constraint::Fill(1),
            Constraint::Length(11),
            Constraint::Length(11),
            Constraint::Length(6),
            Constraint::Length(3),
            Constraint::Length(3),
            Constraint::Length(3),
            Constraint::Length(3),
        ];
        let table = Table::new(rows, widths).header(heads);
        draw_table(frame, area, table, self.at());
    }

    /// Draws the fields of the connection that the user has opened; returns false when none is
    /// open.
    fn draw_fields(&mut self, frame: &mut Frame<'_>, area: Rect) -> bool {
        let (Some(first), Some(row)) = (&mut self.opened, {
            let chosen = self.chosen;
            self.rows.iter().find(|row| Some(row.cookie) == chosen)
        }) else {
            return false;
        };
        let limit = row.limited_by.map_or("nothing", |limit| limit.words());
        let mut lines = vec![
            format!("{} -> {}", row.local, row.remote),
            format!("held back most by: {limit}"),
            format!("congestion control: {}", row.congestion),
            format!("unread: {} B", row.socket.unread_bytes),
            format!("not acknowledged: {} B", row.socket.unacknowledged_bytes),
            format!("send buffer: {} B", row.socket.send_buffer_bytes),
            format!("receive buffer: {} B", row.socket.receive_buffer_bytes),
            format!("dropped at the socket: {}", row.socket.drops),
        ];
        let fields = row.info.iter();
        lines.extend(fields.map(|(name, value)| format!("{name}: {value}")));
        *first = (*first).min(lines.len().saturating_sub(usize::from(area.height)));
        let text = lines.split_off(*first).join("\n");
        frame.render_widget(Paragraph::new(text), area);
        true
    }
}

impl LiveView for View {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] = parts(frame.area());
        let connections = count(self.rows.len() as u64, "connection");
        let title = format!(
            "towline tcp watch: {connections}, every {:?}; APP RCV BUF NET: % of time",
            self.interval
        );
        draw_bar(frame, top, &title);
        let keys = if self.draw_fields(frame, middle) {
            "Esc back   Up Down PgUp PgDn scroll   q leave"
        } else {
            self.draw_rows(frame, middle);
            "Enter fields   Up Down choose   q leave"
        };
        draw_bar(frame, bottom, keys);
    }

    fn press(&mut self, key: KeyEvent) -> Wish {
        match key.code {
            _ if is_leave(key) => return Wish::Leave,
            KeyCode::Esc if self.opened.is_none() => return Wish::Leave,
            KeyCode::Esc | KeyCode::Backspace => self.opened = None,
            KeyCode::Enter if self.opened.is_none() => {
                self.opened = self.at().map(|_| 0);
            }
            code => {
                if let Some(steps) = steps(code) {
                    self.go(steps);
                }
            }
        }
        Wish::Stay
    }
}

#[cfg(test)]
mod tests {
    use gauge::tcp::{LimitedBy, Process, Queues, Shares};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn connection(cookie: u64, name: &str) -> Connection {
        Connection {
            local: ([10, 0, 0, 1], 4_000).into(),
            remote: ([10, 0, 0, 2], 7_500).into(),
            cookie,
            process: Some(Process {
                pid: 7,
                name: name.to_owned(),
            }),
            seconds: 1.0,
            shares: Some(Shares {
                application_percent: 10.0,
                receiver_percent: 80.0,
                send_buffer_percent: 0.0,
                network_percent: 10.0,
            }),
            limited_by: Some(LimitedBy::Receiver),
            sent_per_s: 125_000_000.0,
            received_per_s: 0.0,
            resent_percent: 0.0,
            socket: Queues {
                unread_bytes: 0,
                unacknowledged_bytes: 5,
                send_buffer_bytes: 6,
                receive_buffer_bytes: 7,
                drops: 0,
            },
            congestion: "cubic".to_owned(),
            info: [("rtt_us".to_owned(), 1_500), ("state".to_owned(), 1)].into(),
        }
    }

    fn drawn(view: &mut View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 16)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_row_says_what_holds_a_connection_back_and_opens_to_its_fields() {
        let mut view = View::new(Duration::from_secs(1));
        assert!(drawn(&mut view).contains("nothing has moved"));
        view.look(vec![connection(1, "one"), connection(2, "two")]);
        let text = drawn(&mut view);
        for part in ["one", "two", "10.0.0.2:7500", "1 Gbit/s", "1.5", " 80 "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(view.press(KeyCode::Down.into()), Wish::Stay);
        assert_eq!(view.press(KeyCode::Enter.into()), Wish::Stay);
        let text = drawn(&mut view);
        for part in [
            "most by: receiver",
            "rtt_us: 1500",
            "congestion control: cubic",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The connection ends while its fields are shown.
        view.look(vec![connection(1, "one")]);
        assert!(drawn(&mut view).contains("Enter fields"));
        assert_eq!(view.press(KeyCode::Esc.into()), Wish::Leave);
    }
}
