//! The destinations of the frames that `frames recv` receives: files, a page for browsers, the
//! terminal.

use std::io;

use gauge::frames::{Film, FilmCounts, Header, LabelReading, Preview};

use super::frames_display::Display;
use crate::{
    failure::Failure,
    plan::{FilmPlan, FrameSinkPlan},
    report::Output,
};

/// The destinations of received frames.
pub(super) struct Sinks {
    film: Option<Film>,
    preview: Option<Preview>,
    display: Option<Display>,
    reading: LabelReading,
}

impl Sinks {
    pub(super) fn open(plan: &FrameSinkPlan, output: &Output) -> Result<Self, Failure> {
        let film = plan.film.as_ref().map(FilmPlan::open).transpose()?;
        let film = film.map(Film::start).transpose();
        let serve = |address| {
            let doing = format!("serving the preview at {address} (--preview)");
            Preview::start(address).map_err(|error| Failure::system(&doing, &error))
        };
        let preview = plan.preview.map(serve).transpose()?;
        if let Some(preview) = &preview {
            output.note(&format!(
                "the frames are shown at http://{}/",
                preview.address()
            ));
        }
        let display = plan.is_displayed.then(Display::open).transpose()?;
        Ok(Self {
            film: film.map_err(|error| Failure::Environment(error.to_string()))?,
            preview,
            display,
            reading: LabelReading::default(),
        })
    }

    /// Passes a whole frame on to each destination, without ever waiting. `number` holds the
    /// sender's number and the frame's number.
    pub(super) fn take(&mut self, number: (u32, u64), label: &[u8], frame: &[u8]) {
        if let Some(film) = &mut self.film {
            film.take(number, label, frame);
        }
        if self.preview.is_none() && self.display.is_none() {
            return;
        }
        if let Some(shape) = self.reading.of(label, frame.len()).map(Header::shape) {
            if let Some(preview) = &self.preview {
                preview.offer(shape, frame);
            }
            if let Some(display) = &self.display {
                display.offer(shape, frame);
            }
        }
    }

    /// Shows a line beside the frames.
    pub(super) fn tell(&self, line: &str) {
        if let Some(preview) = &self.preview {
            preview.tell(line);
        }
        if let Some(display) = &self.display {
            display.tell(line);
        }
    }

    /// Returns true when no more frames are wanted: the user has left the display, or the output
    /// failed.
    pub(super) fn is_over(&self) -> bool {
        self.display.as_ref().is_some_and(Display::is_left)
            || self.film.as_ref().is_some_and(Film::is_over)
    }

    /// Gives the terminal back, and writes the frames that still wait.
    pub(super) fn finish(&mut self) -> Result<Option<FilmCounts>, Failure> {
        self.display = None;
        let counts = self.film.take().map(Film::finish).transpose();
        counts.map_err(|error| {
            let cause = error.errno().map(io::Error::from_raw_os_error);
            match cause.map(|cause| cause.kind()) {
                Some(io::ErrorKind::BrokenPipe) => Failure::PipeClosed,
                _ => Failure::Environment(error.to_string()),
            }
        })
    }
}
