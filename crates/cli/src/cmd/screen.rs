//! The terminal while a live view has it, and the loop that draws and listens to keys.

use std::{io, time::Instant};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Text,
    widgets::{Cell, Paragraph, Row, Table, TableState},
};

use super::TICK;
use crate::{failure::Failure, interrupt::Interrupt};

/// The whole terminal. When this is dropped, even by a panic, the terminal is given back as it was.
pub(super) struct Screen(DefaultTerminal);

/// What is shown on the whole terminal. A view does no input or output, so tests can draw it into a
/// buffer.
pub(super) trait LiveView {
    /// Draws everything.
    fn draw(&mut self, frame: &mut Frame<'_>);

    /// Does what the key asks for.
    fn press(&mut self, key: KeyEvent) -> Wish;
}

/// What the user asks for with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Leave,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init();
        terminal.map(Self).map_err(|error| {
            Failure::environment(
                "taking over the terminal",
                &format!("{error}; run the command in the foreground of a terminal"),
            )
        })
    }

    /// Draws the screen once: writes only what has changed, and follows a new size of the terminal.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        let drawn = self.0.draw(draw);
        drawn.map(drop).map_err(|error| lost(&error))
    }

    /// Draws `view` and passes keys to it, until `due` or until the user leaves.
    pub(super) fn show_until(
        &mut self,
        due: Instant,
        interrupt: &Interrupt,
        view: &mut impl LiveView,
    ) -> Result<Wish, Failure> {
        let failed = |error: io::Error| lost(&error);
        loop {
            self.draw(|frame| view.draw(frame))?;
            let left = due.saturating_duration_since(Instant::now());
            if interrupt.is_requested() {
                return Ok(Wish::Leave);
            }
            if left.is_zero() {
                return Ok(Wish::Stay);
            }
            if !event::poll(left.min(TICK)).map_err(failed)? {
                continue;
            }
            if let Event::Key(key) = event::read().map_err(failed)?
                && key.kind == KeyEventKind::Press
                && view.press(key) == Wish::Leave
            {
                return Ok(Wish::Leave);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Makes the failure of a terminal that can no longer be read or written.
pub(super) fn lost(error: &io::Error) -> Failure {
    Failure::environment("using the terminal, which may be closed by now", error)
}

/// Divides the area of a view into the top line, the room between, and the bottom line.
pub(super) fn parts(area: Rect) -> [Rect; 3] {
    let rows = [
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    Layout::vertical(rows).areas(area)
}

/// Draws one of the lines above and below a view.
pub(super) fn draw_bar(frame: &mut Frame<'_>, area: Rect, text: &str) {
    frame.render_widget(Paragraph::new(text).style(BAR), area);
}

/// Says, in the middle of a view, why the view has no rows.
pub(super) fn draw_empty(frame: &mut Frame<'_>, area: Rect, text: &str) {
    let text = Paragraph::new(format!("\n{text}"));
    frame.render_widget(text.alignment(Alignment::Center), area);
}

/// Draws a table with the cursor on row `at`, if there is one.
pub(super) fn draw_table(frame: &mut Frame<'_>, area: Rect, table: Table<'_>, at: Option<usize>) {
    let table = table.row_highlight_style(CHOSEN);
    let mut state = TableState::default().with_selected(at);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Returns the heads of a table's columns.
pub(super) fn heads<'a>(cells: impl IntoIterator<Item = Cell<'a>>) -> Row<'a> {
    Row::new(cells).style(HEAD)
}

/// Returns true for a key that ends any view: `q` or Ctrl-C. While a view has the terminal, Ctrl-C
/// comes as a key, not as a signal.
pub(super) fn is_leave(key: KeyEvent) -> bool {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    matches!(key.code, KeyCode::Char('q' | 'Q')) || (key.code == KeyCode::Char('c') && has_control)
}

/// Returns the number of the row to which `steps` move the cursor from row `at`, in a table of
/// `len` rows. A cursor that is on no row starts at the first.
pub(super) fn moved(at: Option<usize>, steps: isize, len: usize) -> usize {
    let next = at.unwrap_or(0).saturating_add_signed(steps);
    next.min(len.saturating_sub(1))
}

/// Returns a table cell with its text aligned to the right.
pub(super) fn right(text: &str) -> Cell<'static> {
    Cell::new(Text::from(text.to_owned()).alignment(Alignment::Right))
}

/// Returns how many rows a key moves the cursor; `None` for other keys.
pub(super) const fn steps(code: KeyCode) -> Option<isize> {
    Some(match code {
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -PAGE,
        KeyCode::PageDown | KeyCode::Char(' ') => PAGE,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        _ => return None,
    })
}

const PAGE: isize = 10;
/// The style of the lines above and below a view.
const BAR: Style = Style::new().add_modifier(Modifier::REVERSED);
/// The style of column heads.
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
/// The style of the row under the cursor.
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
