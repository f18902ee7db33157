//! Files that follow each other. When a file is large or old enough, the next one begins. When
//! there are too many files, the oldest is removed.
//!
//! ```text
//! trace.pcapng  ->  trace.00001.pcapng  trace.00002.pcapng  trace.00003.pcapng  ...
//! ```
//! Every file can be read by itself, because it begins with the descriptions of all interfaces. The
//! packets' time stamps decide a file's age, so copying a capture rotates files at the same packets
//! as the live capture.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{SendOptions, Sink};
use crate::{
    Account, CaptureError, Interface, Packet, SinkAddress, Unwritten, account::UnwrittenList,
};

/// When the next file begins, and how many are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The next file begins when a file has this many bytes.
    pub bytes: Option<u64>,
    /// The next file begins when the packets of one file span this much time.
    pub time: Option<Duration>,
    /// How many files are kept; `None` for all.
    pub files: Option<usize>,
}

/// A sink that writes several files.
#[derive(Debug)]
pub struct RotatingSink {
    address: SinkAddress,
    rotation: Rotation,
    sink: Box<dyn Sink>,
    comment: Option<String>,
    interfaces: Vec<Interface>,
    kept: VecDeque<PathBuf>,
    number: u64,
    first_ns: Option<u64>,
    /// Packets not reported yet: those that the previous file could not keep, and those for which
    /// no file could be made.
    unwritten: UnwrittenList,
    last_note: Option<(Account, u64)>,
    /// The remark that an old file could not be removed, until somebody takes it; there is only
    /// one.
    remark: Option<String>,
    has_remarked: bool,
}

impl RotatingSink {
    /// Makes the first file. `address` must be a file's; the names of all files are made from it.
    ///
    /// # Errors
    /// When `address` is not a file's, or when the file cannot be made.
    pub fn open(address: &SinkAddress, rotation: Rotation) -> Result<Self, CaptureError> {
        let (sink, path) = make(address, 1)?;
        Ok(Self {
            address: address.clone(),
            rotation,
            sink,
            comment: None,
            interfaces: Vec::new(),
            kept: VecDeque::from([path]),
            number: 1,
            first_ns: None,
            unwritten: UnwrittenList::default(),
            last_note: None,
            remark: None,
            has_remarked: false,
        })
    }

    fn is_due(&self, packet: &Packet<'_>) -> bool {
        let is_large = self
            .rotation
            .bytes
            .is_some_and(|bytes| self.sink.bytes() >= bytes);
        let is_old = self.rotation.time.is_some_and(|time| {
            let age_ns = packet
                .stamp_ns
                .saturating_sub(self.first_ns.unwrap_or(packet.stamp_ns));
            u128::from(age_ns) >= time.as_nanos()
        });
        is_large || is_old
    }

    fn begin_next(&mut self) -> Result<(), CaptureError> {
        if let Some((account, stamp_ns)) = &self.last_note {
            self.sink.note(account, *stamp_ns)?;
        }
        self.sink.flush()?;
        let (mut sink, path) = make(&self.address, self.number + 1)?;
        if let Some(comment) = &self.comment {
            sink.describe(comment)?;
        }
        for interface in &self.interfaces {
            sink.interface(interface)?;
        }
        self.unwritten.append(self.sink.take_unwritten());
        self.sink = sink;
        self.number += 1;
        self.first_ns = None;
        self.kept.push_back(path);
        self.remove_oldest();
        Ok(())
    }

    /// Removes the oldest file when there are too many. The first file that cannot be removed
    /// leaves a remark, unless it is already gone; the capture goes on.
    fn remove_oldest(&mut self) {
        if let Some(files) = self.rotation.files
            && self.kept.len() > files.max(1)
            && let Some(oldest) = self.kept.pop_front()
            && let Err(cause) = fs::remove_file(&oldest)
            && cause.kind() != io::ErrorKind::NotFound
            && !self.has_remarked
        {
            let path = oldest.display();
            self.remark = Some(format!(
                "cannot remove {path}: {}; it is kept, and so are later files that cannot be \
                 removed",
                sys::with_usual_remedy(&cause)
            ));
            self.has_remarked = true;
        }
    }
}

impl Sink for RotatingSink {
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        self.interfaces.push(interface.clone());
        self.sink.interface(interface)
    }

    fn describe(&mut self, comment: &str) -> Result<(), CaptureError> {
        self.comment = Some(comment.to_owned());
        self.sink.describe(comment)
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        if self.is_due(packet)
            && let Err(failure) = self.begin_next()
        {
            self.unwritten.add(packet.interface, Unwritten::of(packet));
            return Err(failure);
        }
        self.first_ns.get_or_insert(packet.stamp_ns);
        self.sink.write(packet)
    }

    fn note(&mut self, account: &Account, stamp_ns: u64) -> Result<(), CaptureError> {
        // The list of seconds is left out: it is long, and files do not show it.
        let account = Account {
            seconds: Vec::new(),
            interfaces: account.interfaces.clone(),
            named_losses: account.named_losses.clone(),
            ..*account
        };
        self.sink.note(&account, stamp_ns)?;
        self.last_note = Some((account, stamp_ns));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.sink.flush()
    }

    fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.unwritten.append(self.sink.take_unwritten());
        self.unwritten.take()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        self.remark.take().into_iter().collect()
    }
}

/// Makes the file with this number.
fn make(address: &SinkAddress, number: u64) -> Result<(Box<dyn Sink>, PathBuf), CaptureError> {
    let (address, path) = match address {
        SinkAddress::Pcap(path) if path != Path::new("-") => {
            let path = numbered(path, number);
            (SinkAddress::Pcap(path.clone()), path)
        }
        SinkAddress::Pcapng(path) if path != Path::new("-") => {
            let path = numbered(path, number);
            (SinkAddress::Pcapng(path.clone()), path)
        }
        other => {
            let reason = match other.is_standard_output() {
                true => "standard output cannot be several files; name a file",
                false => "write pcapng:FILE or pcap:FILE",
            };
            return Err(CaptureError::Address {
                address: other.to_string(),
                what: "sink of several files",
                reason: reason.to_owned(),
            });
        }
    };
    Ok((super::open(&address, &SendOptions::default())?, path))
}

/// Returns the path with the number before the ending of its name.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let end = path
        .extension()
        .map(|end| end.to_string_lossy().into_owned());
    let end = end.unwrap_or_else(|| "pcapng".to_owned());
    path.with_extension(format!("{number:05}.{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::packet;

    #[test]
    fn files_follow_each_other_and_the_oldest_goes() {
        let folder = std::env::temp_dir().join(format!("towline-rotate-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let address = SinkAddress::Pcap(folder.join("x.pcap"));
        let rotation = Rotation {
            bytes: Some(24 + 3 * 76),
            time: Some(Duration::from_secs(10)),
            files: Some(3),
        };
        let mut sink = RotatingSink::open(&address, rotation).unwrap();
        let interface = Interface {
            link_type: 1,
            ..Interface::default()
        };
        sink.interface(&interface).unwrap();
        let frame = [7; 60];
        // Three packets fill a file; the time puts the last packet into a file of its own.
        for second in [0, 1, 2, 3, 4, 5, 6, 7, 8, 20] {
            sink.write(&packet(&frame, second * 1_000_000_000)).unwrap();
        }
        sink.flush().unwrap();
        let len = |number: u64| {
            let path = numbered(&folder.join("x.pcap"), number);
            fs::metadata(path).ok().map(|metadata| metadata.len())
        };
        let (full, single) = (Some(24 + 3 * 76), Some(24 + 76));
        assert_eq!([len(1), len(2), len(3), len(4)], [None, full, full, single]);
        assert!(sink.take_unwritten().is_empty());
        assert!(sink.take_remarks().is_empty());
        // Somebody else removes the oldest file; one that cannot be removed stays, with a remark.
        let name = |number| numbered(&folder.join("x.pcap"), number);
        fs::remove_file(name(2)).unwrap();
        fs::remove_file(name(3)).unwrap();
        fs::create_dir(name(3)).unwrap();
        for second in [40, 60, 80] {
            sink.write(&packet(&frame, second * 1_000_000_000)).unwrap();
        }
        assert_eq!((len(4), sink.number), (None, 7));
        let remarks = sink.take_remarks();
        assert!(remarks[0].contains("00003.pcap: ") && remarks[0].contains("it is kept"));
        assert_eq!(remarks.len(), 1);
        fs::remove_dir_all(&folder).unwrap();
        let error = RotatingSink::open(&SinkAddress::Null, rotation).unwrap_err();
        assert!(
            error.to_string().contains("is not a sink of several files"),
            "{error}"
        );
    }
}
