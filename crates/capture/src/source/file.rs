//! `pcap:FILE` and `pcapng:FILE`: the packets of a file, as far as it can be read. The first bytes
//! show whether the file is packed by gzip or zstd.

use std::{
    fs::File,
    io::{self, BufReader, Read, stdin},
    path::{Path, PathBuf},
};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use sys::packet::{Checksum, Direction};
use wire::{
    pcapng::{self, Block, OptionField, Options},
    trace_file::{Damage, Record, Step, TraceDecoder},
};

use super::{Progress, Source, Visit, read_buffer::ReadBuffer};
use crate::{CaptureError, Interface, Losses, Packet};

/// The packets of one file, in either format.
pub struct FileSource {
    path: PathBuf,
    is_compressed: bool,
    decoder: TraceDecoder,
    buffer: ReadBuffer,
    /// The place in the unpacked file where `buffer` begins: bytes before it are decoded or left
    /// out.
    offset: u64,
    is_at_end: bool,
    interfaces: Vec<Interface>,
    losses: Losses,
    remarks: Vec<String>,
    /// The number of remarks so far; only the first [`REMARKS_MAX`] are told.
    remark_count: u64,
}

impl FileSource {
    /// Opens a file and reads its beginning; `-` is standard input.
    ///
    /// # Errors
    /// When the file cannot be opened, or is no capture file.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        if path == Path::new("-") {
            return Self::new(path, Box::new(stdin()));
        }
        let file = File::open(path).map_err(|cause| CaptureError::File {
            operation: "open",
            path: path.to_owned(),
            cause,
        })?;
        // Input that arrives slowly, such as that of a pipe, is decoded while it arrives.
        let is_at_hand = file.metadata().is_ok_and(|about| about.is_file());
        Self::begin(path, Box::new(file), is_at_hand)
    }

    /// Reads a file from any input; `path` is for error messages.
    ///
    /// # Errors
    /// When the input is no capture file.
    pub fn new(path: &Path, input: Box<dyn Read + Send>) -> Result<Self, CaptureError> {
        Self::begin(path, input, false)
    }

    fn begin(
        path: &Path,
        input: Box<dyn Read + Send>,
        may_read_ahead: bool,
    ) -> Result<Self, CaptureError> {
        let opened = decompressed(input).map_err(|cause| CaptureError::File {
            operation: "read",
            path: path.to_owned(),
            cause,
        });
        let (input, is_compressed) = opened?;
        let mut source = Self {
            path: path.to_owned(),
            is_compressed,
            decoder: TraceDecoder::new(),
            buffer: ReadBuffer::new(input, may_read_ahead),
            offset: 0,
            is_at_end: false,
            interfaces: Vec::new(),
            losses: Losses::default(),
            remarks: Vec::new(),
            remark_count: 0,
        };
        source.fill(4)?;
        // A clone tells the format without consuming anything.
        let mut probe = source.decoder.clone();
        match probe.step(source.buffer.bytes()).1 {
            Step::Lost(damage) => Err(source.format_error(&damage.to_string())),
            _ if source.buffer.bytes().len() < 4 => {
                let reason = source.too_short();
                Err(source.format_error(&reason))
            }
            _ => Ok(source),
        }
    }

    /// Says why the file is too short for its first four bytes.
    fn too_short(&self) -> String {
        match (self.remarks.first(), self.buffer.bytes().len()) {
            // A packed file that could not be unpacked.
            (Some(remark), _) => {
                let path = format!("{}: ", self.path.display());
                remark.trim_start_matches(path.as_str()).to_owned()
            }
            (None, 0) => "it is empty".to_owned(),
            (None, bytes) => format!("it is cut short after {bytes} bytes"),
        }
    }

    fn format_error(&self, reason: &str) -> CaptureError {
        CaptureError::Format {
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Reads until `needed` bytes are in memory, or until the file ends.
    fn fill(&mut self, needed: usize) -> Result<(), CaptureError> {
        if self.is_at_end {
            return Ok(());
        }
        match self.buffer.fill(needed) {
            Ok(is_whole) => self.is_at_end = !is_whole,
            Err(cause) if self.is_compressed => {
                // The packets before the damage are good; how many are missing is unknown.
                self.is_at_end = true;
                self.losses.damaged += 1;
                let path = self.path.display();
                let text = format!("{path}: {cause}; the rest of the file cannot be unpacked");
                self.remark(text);
            }
            Err(cause) => {
                return Err(CaptureError::File {
                    operation: "read",
                    path: self.path.clone(),
                    cause,
                });
            }
        }
        Ok(())
    }

    /// Keeps the first remarks, and counts the others: a small packed file can hold millions of
    /// damaged records.
    fn remark(&mut self, text: String) {
        self.remark_count += 1;
        if self.remark_count <= REMARKS_MAX {
            self.remarks.push(text);
        }
    }

    /// Does what decoding needs to continue. Returns `None` when decoding can go on at once.
    fn pause(&mut self, pause: Pause) -> Result<Option<Progress>, CaptureError> {
        let (path, offset) = (self.path.display(), self.offset);
        match pause {
            Pause::Enough => {}
            // A caller with a list of interfaces must learn of a new one before its first packet.
            Pause::Interface(interface) => self.interfaces.push(interface),
            Pause::Damaged(damage, len) => {
                self.losses.damaged += 1;
                let at = offset - len as u64;
                let text = format!("{path}: at byte {at}: {damage}; its {len} bytes were left out");
                self.remark(text);
            }
            Pause::More(needed) => {
                let had = self.buffer.bytes().len();
                self.fill(needed)?;
                if self.buffer.bytes().len() == had && self.is_at_end {
                    if had > 0 {
                        self.losses.lost_bytes += had as u64;
                        self.buffer.clear();
                        let path = self.path.display();
                        let text = format!(
                            "{path}: the last record, at byte {offset}, is cut short: {needed} \
                             bytes needed but {had} left by the file's end"
                        );
                        self.remark(text);
                    }
                    return Ok(Some(Progress::End));
                }
                return Ok((had == 0).then_some(Progress::Some));
            }
            Pause::Lost(damage) => {
                self.losses.damaged += 1;
                self.losses.lost_bytes += self.buffer.skip_rest();
                let text = format!(
                    "{path}: at byte {offset}: {damage}; the rest of the file cannot be read"
                );
                self.remark(text);
                self.is_at_end = true;
                self.decoder = TraceDecoder::new();
                return Ok(Some(Progress::End));
            }
        }
        Ok(Some(Progress::Some))
    }
}

/// Why decoding pauses.
enum Pause {
    /// The visitor wants no more packets.
    Enough,
    /// The file describes an interface.
    Interface(Interface),
    /// This many bytes were damaged and are left out.
    Damaged(Damage, usize),
    /// The decoder needs this many bytes to continue.
    More(usize),
    /// After this damage nothing can be read.
    Lost(Damage),
}

impl Source for FileSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        loop {
            let bytes = self.buffer.bytes();
            let mut at = 0;
            let pause = loop {
                // First come all packets in a row, then whatever ended the row.
                let show = &mut |record: &Record<'_>| visit(&packet(record));
                let (taken, end) = self.decoder.packets(&bytes[at..], show);
                at += taken;
                if end.is_break() {
                    break Pause::Enough;
                }
                let (taken, step) = self.decoder.step(&bytes[at..]);
                at += taken;
                match step {
                    Step::Packet(record) => {
                        if visit(&packet(&record)).is_break() {
                            break Pause::Enough;
                        }
                    }
                    Step::Block(block) => {
                        if let Some(interface) = described(&block) {
                            break Pause::Interface(interface);
                        }
                    }
                    Step::Damaged(damage) => break Pause::Damaged(damage, taken),
                    Step::More(needed) => break Pause::More(needed),
                    Step::Lost(damage) => break Pause::Lost(damage),
                }
            };
            self.buffer.consume(at);
            self.offset += at as u64;
            if let Some(progress) = self.pause(pause)? {
                return Ok(progress);
            }
        }
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        Ok(self.losses)
    }

    fn take_remarks(&mut self) -> Vec<String> {
        let untold = self.remark_count.saturating_sub(REMARKS_MAX);
        if untold > 0 {
            let path = self.path.display();
            self.remarks.push(format!(
                "{path}: {untold} more places are damaged; the first {REMARKS_MAX} are listed"
            ));
            self.remark_count = REMARKS_MAX;
        }
        std::mem::take(&mut self.remarks)
    }
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            path, interfaces, ..
        } = self;
        f.debug_struct("FileSource")
            .field("path", path)
            .field("interfaces", interfaces)
            .finish_non_exhaustive()
    }
}

/// Returns the input, decompressed if it was compressed, and whether it was.
fn decompressed(mut input: Box<dyn Read + Send>) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let mut first = Vec::new();
    input.by_ref().take(MAGIC_LEN).read_to_end(&mut first)?;
    let is_gzip = first.starts_with(&GZIP);
    let is_zstd = first.starts_with(&ZSTD);
    let whole = io::Cursor::new(first).chain(input);
    let opened: Box<dyn Read + Send> = if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            BUFFER_BYTES,
            whole,
        )))
    } else if is_zstd {
        let input = BufReader::with_capacity(BUFFER_BYTES, whole);
        Box::new(StreamingDecoder::new(input).map_err(io::Error::other)?)
    } else {
        Box::new(whole)
    };
    Ok((opened, is_gzip || is_zstd))
}

#[inline]
fn packet<'a>(record: &Record<'a>) -> Packet<'a> {
    let is_commented =
        !record.options.has_no_bytes() && record.options.find(pcapng::OPTION_COMMENT).is_some();
    Packet {
        data: record.data,
        wire_len: record.wire_len,
        stamp_ns: record.stamp_ns.unwrap_or(0),
        interface: record.interface,
        direction: direction(record),
        checksum: Checksum::Unknown,
        offload: None,
        notes: if is_commented {
            record.options
        } else {
            Options::empty()
        },
        is_rejected: false,
    }
}

/// Reads the flags word: bits 0-1 are the direction, bits 2-4 the kind of reception.
#[inline]
fn direction(record: &Record<'_>) -> Option<Direction> {
    if record.options.has_no_bytes() {
        return None;
    }
    let flags = record.options.find(pcapng::PACKET_FLAGS);
    let flags = flags.as_ref().and_then(OptionField::u32)?;
    match (flags & 3, flags >> 2 & 7) {
        (2, _) => Some(Direction::Outgoing),
        (1, 2) => Some(Direction::Multicast),
        (1, 3) => Some(Direction::Broadcast),
        (1, 4) => Some(Direction::OtherHost),
        (1, _) => Some(Direction::Host),
        _ => None,
    }
}

fn described(block: &Block<'_>) -> Option<Interface> {
    match block {
        Block::Pcap(header) => Some(Interface {
            link_type: header.link_type,
            snap_len: header.snap_len,
            ..Interface::default()
        }),
        Block::Interface(interface) => {
            let text = |code| {
                let mut text = interface.options.find(code)?.text();
                text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
                text.shrink_to_fit();
                Some(text)
            };
            Some(Interface {
                name: text(pcapng::IF_NAME).unwrap_or_default(),
                link_type: interface.link_type,
                snap_len: interface.snap_len,
                description: text(pcapng::IF_DESCRIPTION).unwrap_or_default(),
            })
        }
        _ => None,
    }
}

/// Bytes read at once, so few that the second-level cache still has them when they are decoded.
const BUFFER_BYTES: usize = 256 << 10;
const MAGIC_LEN: u64 = 4;
const REMARKS_MAX: u64 = 16;
/// The most bytes that are kept of an interface's name and of its description. A packed file may
/// have 65,536 of each, and each may have up to 64 KiB.
const TEXT_BYTES_MAX: usize = 256;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[cfg(test)]
mod tests {
    use std::{io::Write as _, ops::ControlFlow};

    use super::*;

    fn section() -> Vec<u8> {
        let mut section = Vec::new();
        for word in [0x0A0D_0D0A_u32, 28, 0x1A2B_3C4D, 1, u32::MAX, u32::MAX, 28] {
            section.extend(word.to_le_bytes());
        }
        section
    }

    /// An interface of Ethernet with this name.
    fn interface(name: &[u8]) -> Vec<u8> {
        let padded = name.len().next_multiple_of(4);
        let len = (24 + padded) as u32;
        let mut block = Vec::new();
        for word in [1, len, 1, 0, 2 | (name.len() as u32) << 16] {
            block.extend(word.to_le_bytes());
        }
        block.extend(name);
        block.resize(20 + padded, 0);
        block.extend(len.to_le_bytes());
        block
    }

    fn read(file: Vec<u8>) -> FileSource {
        let input = Box::new(io::Cursor::new(file));
        let mut source = FileSource::new(Path::new("many.pcapng"), input).unwrap();
        let visit: &mut Visit<'_> = &mut |_| ControlFlow::Continue(());
        while source.read(visit).unwrap() != Progress::End {}
        source
    }

    #[test]
    fn a_file_of_many_interfaces_takes_little_memory() {
        let more = 1_000;
        let mut file = section();
        for _ in 0..pcapng::INTERFACES_MAX + more {
            file.extend(interface(b"e0"));
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&file).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < file.len() / 100, "{}", packed.len());
        for file in [file, packed] {
            let mut source = read(file);
            assert_eq!(source.interfaces().len(), pcapng::INTERFACES_MAX);
            assert_eq!(source.losses().unwrap().damaged, more as u64);
            let remarks = source.take_remarks();
            assert_eq!(remarks.len() as u64, REMARKS_MAX + 1);
            let last = remarks.last().unwrap();
            assert!(last.contains("984 more places are damaged"), "{last}");
            assert!(source.take_remarks().is_empty());
        }
    }

    #[test]
    fn what_is_kept_of_a_name_is_short() {
        let name = "n".to_owned() + &"\u{fc}".repeat(20_000);
        let source = read([section(), interface(name.as_bytes())].concat());
        let kept = &source.interfaces()[0].name;
        assert!(
            name.starts_with(kept.as_str()) && kept.len() == TEXT_BYTES_MAX - 1,
            "{kept}"
        );
    }
}
