//! Keeps frames: writes all of them to a stream, or the last of them to a directory.
//!
//! ```text
//!   receiving thread --take--> [ queue of QUEUE_FRAMES ] --> writer (thread) --> stream, or files
//!                    <-- memory to use again -------------'
//! ```
//! The receiving thread waits neither for the disk nor for a pipe: a frame that finds the queue
//! full is counted and not written.

use std::{
    collections::VecDeque,
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
};

use net::SystemError;
use video::{Container, VideoError, VideoWriter, y4m::Header};

use super::LabelReading;
use crate::error::no_thread;

/// Where frames are kept.
pub enum FilmPlace {
    /// All frames go into a stream, one after the other.
    Stream {
        /// The output that takes the frames.
        output: Box<dyn Write + Send>,
        /// The container format around the frames.
        container: Container,
    },
    /// The last frames of all senders go into a directory, each as a file. A frame of the first
    /// sender is called `frame-NUMBER.y4m`, and a frame of a further sender
    /// `sender-SESSION-frame-NUMBER.y4m`. The ending is `.raw` when Y4M has no such pixels, or when
    /// the label does not say how to read the frame. A file of an earlier run stays, unless a frame
    /// gets the same name.
    Last {
        /// The directory; it is made when it does not exist.
        directory: PathBuf,
        /// The number of frames to keep.
        frames: usize,
    },
}

/// A thread that writes frames.
#[derive(Debug)]
pub struct Film {
    queue: Sender<Job>,
    /// Memory for frames: it bounds how many frames wait.
    free: Receiver<Vec<u8>>,
    thread: JoinHandle<Result<FilmCounts, SystemError>>,
    skipped: u64,
}

impl Film {
    /// Starts a thread that writes what [`Film::take`] gives it.
    ///
    /// # Errors
    /// When the directory cannot be made, or the system gives no thread.
    pub fn start(place: FilmPlace) -> Result<Self, SystemError> {
        if let FilmPlace::Last { directory, .. } = &place {
            let made = fs::create_dir_all(directory);
            made.map_err(|error| failed("make", directory.display(), &error))?;
        }
        let (queue, jobs) = mpsc::channel::<Job>();
        let (used, free) = mpsc::channel();
        // One buffer more than the queue holds: the writer has it.
        for _ in 0..=QUEUE_FRAMES {
            drop(used.send(Vec::new()));
        }
        let writing = move || {
            let mut writer = Writer::new(place);
            for job in jobs {
                writer.write(&job)?;
                // This fails when the receiving thread has ended.
                drop(used.send(job.data));
            }
            writer.finish()
        };
        let thread = thread::Builder::new().name("film".into()).spawn(writing);
        Ok(Self {
            queue,
            free,
            thread: thread.map_err(|error| no_thread("that writes frames", &error))?,
            skipped: 0,
        })
    }

    /// Takes a frame with the numbers of its sender and of the frame. `label` ([`Header::label`])
    /// says how to read it. Returns false when the frame is not written, because the writer is
    /// behind or has ended.
    ///
    /// **Cost**: one copy of a frame that is taken; it never waits.
    pub fn take(&mut self, (sender, number): (u32, u64), label: &[u8], frame: &[u8]) -> bool {
        let is_taken = self.free.try_recv().is_ok_and(|mut data| {
            data.clear();
            data.extend_from_slice(frame);
            let label = label.to_vec();
            let job = Job {
                sender,
                number,
                label,
                data,
            };
            self.queue.send(job).is_ok()
        });
        self.skipped += u64::from(!is_taken);
        is_taken
    }

    /// Returns true when the writer has ended early, because its output refused something.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until all frames that were taken are written.
    ///
    /// # Errors
    /// The error of the output.
    pub fn finish(self) -> Result<FilmCounts, SystemError> {
        let Self {
            queue,
            thread,
            skipped,
            ..
        } = self;
        drop(queue);
        let panicked = |_| Err(unwritten(sys::panicked("that writes them")));
        let counts = thread.join().unwrap_or_else(panicked)?;
        Ok(FilmCounts { skipped, ..counts })
    }
}

impl fmt::Debug for FilmPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { container, .. } => f.debug_tuple("Stream").field(container).finish(),
            Self::Last { directory, frames } => f
                .debug_tuple("Last")
                .field(directory)
                .field(frames)
                .finish(),
        }
    }
}

/// What became of the frames that a film was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilmCounts {
    /// Frames written.
    pub written: u64,
    /// Number of bytes of these frames.
    pub bytes: u64,
    /// Frames that came while the queue was full, or after the output had failed.
    pub skipped: u64,
    /// Frames that a Y4M stream could not take: those without a header line, those whose length is
    /// not what their header line says, and those with another header than the first frame of the
    /// stream.
    pub unreadable: u64,
}

struct Job {
    sender: u32,
    number: u64,
    label: Vec<u8>,
    data: Vec<u8>,
}

/// The state of the thread that writes.
struct Writer {
    place: Place,
    counts: FilmCounts,
    reading: LabelReading,
}

enum Place {
    /// A Y4M stream before its first frame, which determines the stream's header.
    Waiting(Box<dyn Write + Send>),
    Y4m(VideoWriter<Box<dyn Write + Send>>, Header),
    Raw(Box<dyn Write + Send>),
    Last {
        directory: PathBuf,
        frames: usize,
        written: VecDeque<PathBuf>,
        /// The sender that was heard first.
        first: Option<u32>,
    },
    /// The state while a value moves from one variant to another.
    Moving,
}

impl Writer {
    fn new(place: FilmPlace) -> Self {
        let place = match place {
            FilmPlace::Stream { output, container } => match container {
                Container::Y4m => Place::Waiting(output),
                Container::Raw => Place::Raw(output),
            },
            FilmPlace::Last { directory, frames } => Place::Last {
                directory,
                frames: frames.max(1),
                written: VecDeque::new(),
                first: None,
            },
        };
        Self {
            place,
            counts: FilmCounts::default(),
            reading: LabelReading::default(),
        }
    }

    fn write(&mut self, job: &Job) -> Result<(), SystemError> {
        let header = self.reading.of(&job.label, job.data.len());
        let is_written = match (&mut self.place, header) {
            (Place::Raw(output), _) => {
                output.write_all(&job.data).map_err(unwritten)?;
                true
            }
            (
                Place::Last {
                    directory,
                    frames,
                    written,
                    first,
                },
                header,
            ) => {
                let is_first = *first.get_or_insert(job.sender) == job.sender;
                let name = match is_first {
                    true => format!("frame-{:010}", job.number),
                    false => format!("sender-{}-frame-{:010}", job.sender, job.number),
                };
                write_last((directory, &name), job, header, written, *frames)?;
                true
            }
            (Place::Y4m(writer, first), Some(header)) if first == header => {
                writer.write_frame(&job.data).map_err(refused)?;
                true
            }
            (place @ Place::Waiting(_), Some(header)) => {
                if let Place::Waiting(output) = std::mem::replace(place, Place::Moving) {
                    let mut writer =
                        VideoWriter::new(output, Container::Y4m, header).map_err(refused)?;
                    writer.write_frame(&job.data).map_err(refused)?;
                    *place = Place::Y4m(writer, header.clone());
                }
                true
            }
            (Place::Y4m(..) | Place::Waiting(_) | Place::Moving, _) => false,
        };
        if is_written {
            self.counts.written += 1;
            self.counts.bytes += job.data.len() as u64;
        } else {
            self.counts.unreadable += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<FilmCounts, SystemError> {
        match self.place {
            Place::Y4m(writer, _) => drop(writer.finish().map_err(refused)?),
            Place::Raw(mut output) | Place::Waiting(mut output) => {
                output.flush().map_err(unwritten)?;
            }
            Place::Last { .. } | Place::Moving => {}
        }
        Ok(self.counts)
    }
}

/// Writes one frame as a file, whole or not at all, and deletes the oldest files beyond `keep`.
fn write_last(
    (directory, name): (&Path, &str),
    job: &Job,
    header: Option<&Header>,
    written: &mut VecDeque<PathBuf>,
    keep: usize,
) -> Result<(), SystemError> {
    let mut content = Vec::with_capacity(job.data.len());
    let y4m = header.and_then(|header| VideoWriter::new(&mut content, Container::Y4m, header).ok());
    let (ending, content) = match y4m {
        Some(mut writer) => {
            writer.write_frame(&job.data).map_err(refused)?;
            ("y4m", &content)
        }
        None => ("raw", &job.data),
    };
    let path = directory.join(format!("{name}.{ending}"));
    let part = directory.join(format!(".{name}.part"));
    fs::write(&part, content)
        .and_then(|()| fs::rename(&part, &path))
        .map_err(|error| failed("write", path.display(), &error))?;
    written.push_back(path);
    while written.len() > keep {
        if let Some(oldest) = written.pop_front() {
            match fs::remove_file(&oldest) {
                // The file may be gone: somebody who looks at frames may have taken it away.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("delete", oldest.display(), &error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn failed(what: &'static str, target: impl fmt::Display, error: &io::Error) -> SystemError {
    SystemError::system(what, target, error)
}

fn unwritten(error: io::Error) -> SystemError {
    failed("write", "frames", &error)
}

fn refused(error: VideoError) -> SystemError {
    match error {
        VideoError::Io(error) => unwritten(error),
        other => SystemError::refused("write", "frames", other),
    }
}

/// The most frames that wait for the writer. At 25 frames a second, 8 frames bridge a pause of a
/// third of a second, such as a disk may make.
const QUEUE_FRAMES: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use base::Rng;
    use video::{FrameRate, PixelFormat, Shape, VideoReader};

    use super::*;

    /// Memory that both sides see; while it is shut, writing waits.
    #[derive(Clone, Default)]
    struct Shared(Arc<Gate>);

    #[derive(Default)]
    struct Gate {
        state: Mutex<Content>,
        opened: Condvar,
    }

    #[derive(Default)]
    struct Content {
        bytes: Vec<u8>,
        is_shut: bool,
    }

    impl Shared {
        fn shut(&self, is_shut: bool) {
            self.0.state.lock().unwrap().is_shut = is_shut;
            self.0.opened.notify_all();
        }

        fn bytes(&self) -> Vec<u8> {
            self.0.state.lock().unwrap().bytes.clone()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let locked = self.0.state.lock().unwrap();
            let waited = self.0.opened.wait_while(locked, |it| it.is_shut);
            waited.unwrap().bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shape(format: PixelFormat) -> Shape {
        Shape::new(16, 4, format).unwrap()
    }

    fn label(format: PixelFormat) -> Vec<u8> {
        Header::new(shape(format), FrameRate::new(20, 1))
            .label()
            .into_bytes()
    }

    fn frame(format: PixelFormat, number: u64) -> Vec<u8> {
        let mut frame = vec![0; shape(format).frame_bytes()];
        Rng::new(number).fill(&mut frame);
        frame
    }

    fn stream(output: impl Write + Send + 'static, container: Container) -> Film {
        let output = Box::new(output);
        Film::start(FilmPlace::Stream { output, container }).unwrap()
    }

    /// Gives a frame, and waits while the writer is behind.
    fn give(film: &mut Film, number: u64, label: &[u8], frame: &[u8]) {
        while !film.take((0, number), label, frame) {
            assert!(!film.is_over());
            thread::yield_now();
        }
    }

    #[test]
    fn a_stream_of_y4m_is_read_as_it_was() {
        let (shared, format) = (Shared::default(), PixelFormat::Mono16);
        let mut film = stream(shared.clone(), Container::Y4m);
        for number in 0..20 {
            give(&mut film, number, &label(format), &frame(format, number));
        }
        // Another kind of frame, one of another length, and one that nobody can read.
        give(
            &mut film,
            20,
            &label(PixelFormat::Mono8),
            &frame(PixelFormat::Mono8, 20),
        );
        give(&mut film, 21, &label(format), &[1; 99]);
        give(&mut film, 22, b"what", &frame(format, 22));
        let counts = film.finish().unwrap();
        assert_eq!(
            (counts.written, counts.bytes, counts.unreadable),
            (20, 20 * 128, 3)
        );
        let bytes = shared.bytes();
        let mut reader = VideoReader::y4m(&bytes[..]).unwrap();
        let mut read = vec![0; 128];
        for number in 0..20 {
            assert!(reader.read_frame(&mut read).unwrap());
            assert_eq!(read, frame(format, number));
        }
        assert!(!reader.read_frame(&mut read).unwrap());
    }

    #[test]
    fn raw_frames_are_written_whatever_they_are() {
        let shared = Shared::default();
        let mut film = stream(shared.clone(), Container::Raw);
        give(&mut film, 0, b"", b"abc");
        give(&mut film, 1, b"what", b"defg");
        let written = FilmCounts {
            written: 2,
            bytes: 7,
            ..FilmCounts::default()
        };
        let skipped = film.skipped;
        assert_eq!(film.finish().unwrap(), FilmCounts { skipped, ..written });
        assert_eq!(shared.bytes(), b"abcdefg");
    }

    #[test]
    fn a_slow_output_costs_frames_and_no_time() {
        let shared = Shared::default();
        shared.shut(true);
        let mut film = stream(shared.clone(), Container::Raw);
        let taken = (0..100)
            .filter(|number| film.take((0, *number), b"", b"x"))
            .count();
        // The queue, and perhaps one that the writer holds.
        assert!(
            (QUEUE_FRAMES..=QUEUE_FRAMES + 1).contains(&taken),
            "{taken}"
        );
        shared.shut(false);
        let counts = film.finish().unwrap();
        assert_eq!(
            (counts.written, counts.skipped),
            (taken as u64, 100 - taken as u64)
        );
    }

    #[test]
    fn a_full_disk_is_told() {
        let mut film = stream(Full, Container::Raw);
        film.take((0, 0), b"", b"x");
        while !film.is_over() {
            thread::yield_now();
        }
        assert!(!film.take((0, 1), b"", b"x"));
        let error = film.finish().unwrap_err().to_string();
        assert!(error.starts_with("cannot write frames: "), "{error}");
    }

    #[test]
    fn frames_of_two_senders_do_not_replace_each_other() {
        let name = format!("towline-film-two-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let place = FilmPlace::Last {
            directory: directory.clone(),
            frames: 4,
        };
        let mut film = Film::start(place).unwrap();
        for number in 0..3 {
            for sender in [5, 6] {
                while !film.take((sender, number), b"", &[sender as u8]) {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(film.finish().unwrap().written, 6);
        let mut files: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|it| {
                (
                    it.file_name().into_string().unwrap(),
                    fs::read(it.path()).unwrap(),
                )
            })
            .collect();
        files.sort();
        let kept = [
            ("frame-0000000001.raw", 5),
            ("frame-0000000002.raw", 5),
            ("sender-6-frame-0000000001.raw", 6),
            ("sender-6-frame-0000000002.raw", 6),
        ];
        assert_eq!(
            files,
            kept.map(|(name, byte)| (name.to_owned(), vec![byte]))
        );
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_last_frames_are_kept_as_files() {
        let name = format!("towline-film-{}", std::process::id());
        let directory = std::env::temp_dir().join(name).join("inner");
        let frames = 3;
        let place = FilmPlace::Last {
            directory: directory.clone(),
            frames,
        };
        let mut film = Film::start(place).unwrap();
        let (packed, colours) = (PixelFormat::Mono12p, PixelFormat::Rgb8);
        for number in 0..9 {
            give(&mut film, number, &label(packed), &frame(packed, number));
        }
        give(&mut film, 9, &label(colours), &frame(colours, 9));
        assert_eq!(film.finish().unwrap().written, 10);
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let kept = [
            "frame-0000000007.y4m",
            "frame-0000000008.y4m",
            "frame-0000000009.raw",
        ];
        assert_eq!(names, kept);
        let y4m = fs::read(directory.join(kept[1])).unwrap();
        let mut reader = VideoReader::y4m(&y4m[..]).unwrap();
        assert_eq!(reader.header().shape().format(), PixelFormat::Mono12);
        assert!(reader.read_frame(&mut [0; 128]).unwrap());
        assert_eq!(
            fs::read(directory.join(kept[2])).unwrap(),
            frame(colours, 9)
        );
        fs::remove_dir_all(directory.parent().unwrap()).unwrap();
    }
}
