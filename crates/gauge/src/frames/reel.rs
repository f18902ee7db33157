//! Reads frames ahead from a file, a pipe or standard input.
//!
//! ```text
//!   VideoReader --> reader (thread) --> [ queue of QUEUE_FRAMES ] --next--> sending thread
//!                           ^-------- memory to use again ---------'
//! ```
//! A thread that sends frames must not wait for a pipe. So another thread reads ahead, and waits
//! while the queue is full; the program that makes the frames then waits, too.

use std::{
    io::Read,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
};

use net::SystemError;
use video::{VideoError, VideoReader, y4m::Header};

use crate::error::no_thread;

/// A thread that reads frames ahead.
///
/// When this is dropped, the thread reads on until the frame that it waits for has come: it cannot
/// leave a pipe earlier.
#[derive(Debug)]
pub struct Reel {
    header: Header,
    frames: Receiver<Result<Vec<u8>, VideoError>>,
    used: Sender<Vec<u8>>,
}

/// The next thing that a [`Reel`] gives.
#[derive(Debug)]
pub enum Next {
    /// A frame; [`Reel::give_back`] takes its memory.
    Frame(Vec<u8>),
    /// There is no frame yet: the program that makes frames is slower than the caller.
    NotYet,
    /// There are no more frames.
    Over,
}

impl Reel {
    /// Starts to read frames ahead.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(mut reader: VideoReader<impl Read + Send + 'static>) -> Result<Self, SystemError> {
        let header = reader.header().clone();
        let frame_bytes = header.shape().frame_bytes();
        let (sender, frames) = mpsc::sync_channel(QUEUE_FRAMES);
        let (used, free) = mpsc::channel::<Vec<u8>>();
        let reading = move || {
            loop {
                let memory = free.try_recv();
                let mut frame = memory.unwrap_or_else(|_| vec![0; frame_bytes]);
                let read = match reader.read_frame(&mut frame) {
                    Ok(false) => return,
                    Ok(true) => Ok(frame),
                    Err(error) => Err(error),
                };
                let is_last = read.is_err();
                // The send fails when the reel was dropped: nobody takes more frames.
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("reel".into()).spawn(reading);
        thread.map_err(|error| no_thread("that reads frames", &error))?;
        Ok(Self {
            header,
            frames,
            used,
        })
    }

    /// Returns the header, which says how to read the frames.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns what comes next, without waiting.
    ///
    /// # Errors
    /// The error of the stream, once; [`Next::Over`] follows.
    pub fn next_frame(&mut self) -> Result<Next, VideoError> {
        match self.frames.try_recv() {
            Ok(frame) => frame.map(Next::Frame),
            Err(TryRecvError::Empty) => Ok(Next::NotYet),
            Err(TryRecvError::Disconnected) => Ok(Next::Over),
        }
    }

    /// Takes the memory of a frame, to be used again.
    pub fn give_back(&self, frame: Vec<u8>) {
        if frame.len() == self.header.shape().frame_bytes() {
            // This fails when the thread has ended.
            drop(self.used.send(frame));
        }
    }
}

/// The most frames that are read ahead.
const QUEUE_FRAMES: usize = 4;

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};

    use video::{FrameRate, PixelFormat, Shape};

    use super::*;

    fn header() -> Header {
        let shape = Shape::new(4, 2, PixelFormat::Mono8).unwrap();
        Header::new(shape, FrameRate::new(20, 1))
    }

    /// All that comes, up to the end or an error.
    fn all(mut reel: Reel) -> (Vec<Vec<u8>>, Option<VideoError>) {
        let mut frames = Vec::new();
        loop {
            match reel.next_frame() {
                Ok(Next::Frame(frame)) => {
                    frames.push(frame.clone());
                    reel.give_back(frame);
                }
                Ok(Next::NotYet) => thread::yield_now(),
                Ok(Next::Over) => return (frames, None),
                Err(error) => return (frames, Some(error)),
            }
        }
    }

    #[test]
    fn frames_come_in_order_and_a_cut_one_is_told() {
        let content: Vec<u8> = (0..8 * 20 + 3).collect();
        let whole = io::Cursor::new(content[..8 * 20].to_vec());
        let reel = Reel::start(VideoReader::raw(whole, header())).unwrap();
        let (frames, error) = all(reel);
        assert!(error.is_none());
        assert_eq!(frames.concat(), content[..8 * 20]);
        let cut = io::Cursor::new(content.clone());
        let (frames, error) = all(Reel::start(VideoReader::raw(cut, header())).unwrap());
        assert_eq!(frames.len(), 20);
        assert!(matches!(
            error,
            Some(VideoError::Cut {
                frame: 20,
                read: 3,
                ..
            })
        ));
    }

    #[test]
    fn a_pipe_that_gives_nothing_is_not_waited_for() {
        let (pipe, mut end) = io::pipe().unwrap();
        let mut reel = Reel::start(VideoReader::raw(pipe, header())).unwrap();
        assert!(matches!(reel.next_frame(), Ok(Next::NotYet)));
        end.write_all(&[7; 8]).unwrap();
        drop(end);
        let (frames, error) = all(reel);
        assert!(error.is_none());
        assert_eq!(frames, [[7; 8]]);
    }
}
