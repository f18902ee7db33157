//! The terminal that `top` is watched on: its size, and the keys that are pressed.
//!
//! Its modes are read and set by `stty`, which POSIX systems have: keys are to come at once and
//! unechoed. Where there is no `stty` or no keyboard, only a signal leaves, and a size is assumed.

use std::{
    fs::File,
    io::{self, Read as _},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::{consts::SIGWINCH, flag};

use crate::failure::Failure;

/// The controlling terminal, put back as it was when this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    /// None where there is none to ask.
    keyboard: Option<Keyboard>,
    size: Size,
    has_new_size: Arc<AtomicBool>,
}

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

#[derive(Debug)]
struct Keyboard {
    device: File,
    /// The modes as they were, in the words of `stty -g`.
    modes: String,
}

impl Terminal {
    /// Takes the keyboard over.
    pub(super) fn open() -> Result<Self, Failure> {
        let has_new_size = Arc::new(AtomicBool::new(false));
        flag::register(SIGWINCH, Arc::clone(&has_new_size))
            .map_err(|error| Failure::environment("watching for signals", &error))?;
        let keyboard = Keyboard::open().ok();
        Ok(Self {
            size: size(keyboard.as_ref()),
            keyboard,
            has_new_size,
        })
    }

    pub(super) const fn size(&self) -> Size {
        self.size
    }

    /// True when the window has got another size since the last question.
    pub(super) fn is_resized(&mut self) -> bool {
        let is_resized = self.has_new_size.swap(false, Ordering::Relaxed);
        if is_resized {
            self.size = size(self.keyboard.as_ref());
        }
        is_resized
    }

    /// Takes the keys that were pressed; true when one of them is q.
    pub(super) fn wants_to_leave(&mut self) -> bool {
        let Some(keyboard) = &mut self.keyboard else {
            return false;
        };
        let mut keys = [0; 64];
        let count = keyboard.device.read(&mut keys).unwrap_or(0);
        keys[..count].iter().any(|key| b"qQ".contains(key))
    }
}

impl Keyboard {
    fn open() -> io::Result<Self> {
        let device = File::open("/dev/tty")?;
        let modes = stty(&device, &["-g"])?;
        let keyboard = Self { device, modes };
        // A read gives what is there and does not wait.
        stty(
            &keyboard.device,
            &["-icanon", "-echo", "min", "0", "time", "0"],
        )?;
        Ok(keyboard)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A terminal that is gone needs no modes.
        let _gone = stty(&self.device, &[self.modes.trim()]);
    }
}

fn size(keyboard: Option<&Keyboard>) -> Size {
    keyboard
        .and_then(|keyboard| stty(&keyboard.device, &["size"]).ok())
        .and_then(|text| parse_size(&text))
        .unwrap_or(ASSUMED)
}

/// `24 80`; a terminal that does not know its size says `0 0`.
fn parse_size(text: &str) -> Option<Size> {
    let (rows, columns) = text.trim().split_once(' ')?;
    let size = Size {
        rows: rows.parse().ok()?,
        columns: columns.parse().ok()?,
    };
    (size.rows > 0 && size.columns > 0).then_some(size)
}

fn stty(device: &File, words: &[&str]) -> io::Result<String> {
    let output = Command::new("stty")
        .args(words)
        .stdin(device.try_clone()?)
        .stderr(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("stty failed"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What terminals were made like.
const ASSUMED: Size = Size {
    rows: 24,
    columns: 80,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_and_neither_is_nothing() {
        let size = |rows, columns| Some(Size { rows, columns });
        assert_eq!(parse_size("20 132\n"), size(20, 132));
        for unknown in ["0 0\n", "0 80", "", "24", "x y"] {
            assert_eq!(parse_size(unknown), None, "{unknown:?}");
        }
    }
}
