//! A file that is written in large pieces. Even after a failure it ends at the end of a record.

use std::{
    fs::File,
    io::{self, Write, stdout},
    path::{Path, PathBuf},
};

use crate::{CaptureError, Packet, Unwritten, account::UnwrittenList};

/// A growing file. Records are appended to a buffer. After a failure the file is cut after its last
/// complete packet, and the packets that are missing in it are counted. A pipe or device cannot be
/// cut.
pub struct Output {
    path: PathBuf,
    target: Target,
    buffer: Vec<u8>,
    packets: Vec<Gathered>,
    written: u64,
    unwritten: UnwrittenList,
    has_failed: bool,
}

/// A packet in the buffer.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    /// The place in the buffer where the packet ends.
    end: u32,
    interface: u32,
    bytes: u32,
    is_cut: bool,
}

enum Target {
    File(File),
    Other(Box<dyn Write + Send>),
}

impl Output {
    /// Makes a file, or empties it; `-` is standard output.
    ///
    /// # Errors
    /// When the file cannot be made.
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

    /// Makes an output that writes into any writer; `path` is for error messages.
    #[must_use]
    pub fn to_writer(path: &Path, writer: Box<dyn Write + Send>) -> Self {
        Self::new(path, Target::Other(writer))
    }

    fn new(path: &Path, target: Target) -> Self {
        Self {
            path: path.to_owned(),
            target,
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4),
            packets: Vec::new(),
            written: 0,
            unwritten: UnwrittenList::default(),
            has_failed: false,
        }
    }

    /// Appends bytes that are no packet.
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
        packet: &Packet<'_>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CaptureError> {
        if self.has_failed {
            self.unwritten.add(packet.interface, Unwritten::of(packet));
            return Ok(());
        }
        fill(&mut self.buffer);
        self.packets.push(Gathered {
            end: self.buffer.len() as u32,
            interface: packet.interface,
            bytes: packet.data.len() as u32,
            is_cut: packet.is_cut(),
        });
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
        self.packets.clear();
        outcome
    }

    /// Cuts the file after the last packet that was written completely.
    fn fail(&mut self, done: usize, cause: io::Error) -> CaptureError {
        self.has_failed = true;
        let whole = self
            .packets
            .partition_point(|packet| packet.end as usize <= done);
        for packet in &self.packets[whole..] {
            let lost = Unwritten {
                packets: 1,
                bytes: packet.bytes.into(),
                cut: packet.is_cut.into(),
            };
            self.unwritten.add(packet.interface, lost);
        }
        let end = whole
            .checked_sub(1)
            .map_or(0, |last| self.packets[last].end);
        self.written += u64::from(end);
        if let Target::File(file) = &self.target {
            // A device has no length, so it cannot be cut.
            let _not_a_file = file.set_len(self.written);
        }
        CaptureError::File {
            operation: "write to",
            path: self.path.clone(),
            cause,
        }
    }

    /// Returns the number of bytes that are written or in the buffer.
    pub(super) const fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Takes the counts of packets that were appended and are missing in the file. Each packet
    /// comes once.
    pub(super) fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.unwritten.take()
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

/// The buffer is written when it holds this many bytes.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::packet;

    /// A disk with room for this many bytes.
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
        let append = |output: &mut Output, interface| {
            let packet = Packet {
                interface,
                wire_len: 9,
                ..packet(&[1; 8], 0)
            };
            let fill = |buffer: &mut Vec<u8>| buffer.extend([1; 10]);
            output.append_packet(&packet, fill).unwrap();
        };
        for _ in 0..5 {
            append(&mut output, 1);
        }
        let error = output.flush().unwrap_err().to_string();
        assert!(error.starts_with("cannot write to disk: "), "{error}");
        let lost = |packets| Unwritten {
            packets,
            bytes: packets * 8,
            cut: packets,
        };
        let taken = output.take_unwritten();
        assert_eq!((taken, output.written), (vec![lost(0), lost(2)], 35));
        append(&mut output, 0);
        output.flush().unwrap();
        assert_eq!(output.take_unwritten(), [lost(1)], "each is told once");
    }
}
