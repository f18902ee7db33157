//! Frames in the terminal: two pixels a character, as half blocks in 24-bit colours.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gauge::frames::{Glimpse, HalfBlock, Picture, Shape};
use ratatui::{
    Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::Color,
    text::Text,
};

use super::screen::{Screen, lost};
use crate::failure::Failure;

/// The terminal's whole screen, drawn by a thread of its own.
pub(super) struct Display {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    glimpse: Glimpse,
    line: Mutex<String>,
    is_left: AtomicBool,
}

impl Display {
    pub(super) fn open() -> Result<Self, Failure> {
        let mut screen = Screen::open()?;
        let shared = Arc::new(Shared::default());
        let showing = Arc::clone(&shared);
        let show = move || {
            // When drawing fails, there is no terminal to show the error on, so the command ends as
            // if the user had left.
            drop(showing.show(&mut screen));
            showing.is_left.store(true, Ordering::Relaxed);
        };
        let thread = thread::Builder::new().name("display".into()).spawn(show);
        let thread = thread.map_err(|error| Failure::thread("that draws the frames", &error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Offers a frame to the drawing thread. A frame that comes while an earlier one waits to be
    /// drawn is not shown.
    pub(super) fn offer(&self, shape: Shape, frame: &[u8]) {
        self.shared.glimpse.offer(shape, frame);
    }

    /// Sets the line below the frame.
    pub(super) fn tell(&self, line: &str) {
        line.clone_into(
            &mut self
                .shared
                .line
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Returns true when the user has left the display.
    pub(super) fn is_left(&self) -> bool {
        self.shared.is_left.load(Ordering::Relaxed)
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.shared.glimpse.end();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its panic was printed and the terminal was given back.
            drop(thread.join());
        }
    }
}

impl Shared {
    /// Draws until the user leaves or the command ends the display.
    fn show(&self, screen: &mut Screen) -> Result<(), Failure> {
        let failed = |error| lost(&error);
        let (mut frame, mut newest) = (Vec::new(), None);
        while !self.glimpse.is_over() && !wants_to_leave().map_err(failed)? {
            newest = self.glimpse.take(&mut frame, DRAW_TIME).or(newest);
            let line = self
                .line
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            screen.draw(|target| {
                let shown = newest.map(|shape| (shape, frame.as_slice()));
                draw(target, shown, &line);
            })?;
        }
        Ok(())
    }
}

/// Draws a frame as large as fits the terminal, and `line` below it.
fn draw(target: &mut Frame<'_>, frame: Option<(Shape, &[u8])>, line: &str) {
    let [room, foot] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(target.area());
    target.render_widget(Text::raw(line), foot);
    let Some((shape, bytes)) = frame else {
        target.render_widget(Text::raw("waiting for frames; q leaves"), room);
        return;
    };
    let picture = Picture::of(shape, bytes, room.width, room.height.saturating_mul(2));
    let left = room.x + (room.width - picture.width.min(room.width)) / 2;
    let colour = |[red, green, blue]: [u8; 3]| Color::Rgb(red, green, blue);
    for row in 0..picture.height.div_ceil(2).min(room.height) {
        for column in 0..picture.width.min(room.width) {
            let Some(HalfBlock { upper, lower }) = picture.half_block(column, row) else {
                continue;
            };
            if let Some(cell) = target.buffer_mut().cell_mut((left + column, room.y + row)) {
                cell.set_char(HalfBlock::CHARACTER)
                    .set_fg(colour(upper))
                    .set_bg(colour(lower));
            }
        }
    }
}

/// Reads the keys that were pressed; returns true for `q`, Escape or Ctrl-C.
fn wants_to_leave() -> std::io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let is_ctrl_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if is_ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The longest wait for a frame. After that, the screen is drawn again and pressed keys are read.
const DRAW_TIME: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use gauge::frames::PixelFormat;
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    #[test]
    fn a_frame_fills_the_terminal_with_its_colours() {
        let mut terminal = Terminal::new(TestBackend::new(8, 3)).unwrap();
        let shape = Shape::new(4, 4, PixelFormat::Mono8).unwrap();
        let frame: Vec<u8> = (0..16).map(|pixel| pixel * 16).collect();
        terminal
            .draw(|target| draw(target, Some((shape, &frame)), "20 frames/s"))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let grey = |value: u8| Color::Rgb(value, value, value);
        // The four pixels of a line are in the middle of eight columns. The second row shows lines
        // 2 and 3 of the frame.
        let cell = buffer.cell((3, 1)).unwrap();
        assert_eq!(cell.symbol(), "▀");
        assert_eq!((cell.fg, cell.bg), (grey(9 * 16), grey(13 * 16)));
        assert_eq!(buffer.cell((1, 1)).unwrap().symbol(), " ");
        let foot: String = (0..8)
            .map(|x| buffer.cell((x, 2)).unwrap().symbol())
            .collect();
        assert_eq!(foot, "20 frame");
    }

    #[test]
    fn without_a_frame_the_keys_are_told() {
        let mut terminal = Terminal::new(TestBackend::new(40, 4)).unwrap();
        terminal.draw(|target| draw(target, None, "")).unwrap();
        let row: String = (0..40)
            .map(|x| terminal.backend().buffer().cell((x, 0)).unwrap().symbol())
            .collect();
        assert_eq!(row.trim_end(), "waiting for frames; q leaves");
    }
}
