//! A file that is written in large pieces and ends, whatever happens, at the end of a record.

use std::{
    fs::File,
    io::{self, Write, stdout},
    path::{Path, PathBuf},
};

use crate::CaptureError;

/// A growing file. Records are appended to a buffer; after a failure, what the disk had no room
/// for is cut off behind the last whole record, and its packets are counted.
pub struct Output {
    path: PathBuf,
    target: Target,
    buffer: Vec<u8>,
    /// Where in the buffer each packet ends.
    packet_ends: Vec<usize>,
    written: u64,
    lost_packets: u64,
    has_failed: bool,
}

enum Target {
    File(File),
    Other(Box<dyn Write + Send>),
}

impl Output {
    /// Makes a file, or empties it; `-` is standard output.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        if path == Path::new("-") {
            return Ok(Self::new(path, Target::Other(Box::new(stdout()))));
        }
        let file = File::create(path).map_err(|cause| CaptureError::File {
            operation: "make",
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self::new(path, Target::File(file)))
    }

    /// Writes to anything; `path` is for messages.
    #[must_use]
    pub fn to_writer(path: &Path, writer: Box<dyn Write + Send>) -> Self {
        Self::new(path, Target::Other(writer))
    }

    fn new(path: &Path, target: Target) -> Self {
        Self {
            path: path.to_owned(),
            target,
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4),
            packet_ends: Vec::new(),
            written: 0,
            lost_packets: 0,
            has_failed: false,
        }
    }

    /// Appends something that is no packet.
    pub(super) fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), CaptureError> {
        if !self.has_failed {
            fill(&mut self.buffer);
        }
        self.flush_when_full()
    }

    /// Appends a packet.
    #[inline]
    pub(super) fn append_packet(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CaptureError> {
        if self.has_failed {
            self.lost_packets += 1;
            return Ok(());
        }
        fill(&mut self.buffer);
        self.packet_ends.push(self.buffer.len());
        self.flush_when_full()
    }

    #[inline]
    fn flush_when_full(&mut self) -> Result<(), CaptureError> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes the buffer out.
    pub(super) fn flush(&mut self) -> Result<(), CaptureError> {
        let mut done = 0;
        let mut failure = None;
        while done < self.buffer.len() && failure.is_none() {
            let rest = &self.buffer[done..];
            let result = match &mut self.target {
                Target::File(file) => file.write(rest),
                Target::Other(writer) => writer.write(rest),
            };
            match result {
                Ok(0) => failure = Some(io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => failure = Some(cause),
            }
        }
        if failure.is_none()
            && let Target::Other(writer) = &mut self.target
        {
            failure = writer.flush().err();
        }
        let outcome = match failure {
            None => {
                self.written += done as u64;
                Ok(())
            }
            Some(cause) => Err(self.fail(done, cause)),
        };
        self.buffer.clear();
        self.packet_ends.clear();
        outcome
    }

    /// Cuts the file behind the last packet of which everything was written.
    fn fail(&mut self, done: usize, cause: io::Error) -> CaptureError {
        self.has_failed = true;
        let whole = self.packet_ends.partition_point(|end| *end <= done);
        self.lost_packets += (self.packet_ends.len() - whole) as u64;
        let end = whole
            .checked_sub(1)
            .map_or(0, |last| self.packet_ends[last]);
        self.written += end as u64;
        if let Target::File(file) = &self.target {
            // A device that is no file has no length to be cut to.
            let _not_a_file = file.set_len(self.written);
        }
        CaptureError::File {
            operation: "write to",
            path: self.path.clone(),
            cause,
        }
    }

    /// Bytes written, and those gathered to be.
    pub(super) const fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Packets that were appended and are not in the file.
    pub(super) const fn lost_packets(&self) -> u64 {
        self.lost_packets
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("path", &self.path)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for some bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.0);
            self.0 -= len;
            if len == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_only_what_it_has_no_room_for() {
        let mut output = Output::to_writer(Path::new("disk"), Box::new(Disk(35)));
        output.append(|buffer| buffer.extend([0; 5])).unwrap();
        for _ in 0..5 {
            output
                .append_packet(|buffer| buffer.extend([1; 10]))
                .unwrap();
        }
        let error = output.flush().unwrap_err().to_string();
        assert!(error.starts_with("cannot write to disk: "), "{error}");
        assert_eq!((output.lost_packets(), output.written), (2, 35));
        output
            .append_packet(|buffer| buffer.extend([1; 10]))
            .unwrap();
        output.flush().unwrap();
        assert_eq!(output.lost_packets(), 3);
    }
}
