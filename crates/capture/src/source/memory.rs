//! How much memory a source shares with the kernel: as much as was asked for, if the machine can
//! spare it.
//!
//! The kernel does not refuse a ring that is larger than the free memory: it kills other processes
//! to get memory. So a ring asks for a share of the available memory at most, unless that is too
//! little to work with. When the kernel has no pieces of the size that a ring needs, half of the
//! memory is tried, then a quarter, and so on. A remark says when the ring is smaller than asked.

use std::io;

use sys::errno::ENOMEM;

use crate::CaptureError;

/// Memory for one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory<'a> {
    /// The interface, for remarks.
    pub(super) name: &'a str,
    /// Bytes asked for, or [`RING_BYTES_MAX`].
    pub(super) asked: usize,
    /// The fewest bytes that the source can work with.
    pub(super) least: usize,
    /// Bytes that the machine can spare.
    pub(super) available: usize,
}

impl<'a> Memory<'a> {
    pub(super) fn new(name: &'a str, asked: usize, least: usize) -> Self {
        Self {
            name,
            asked,
            least,
            available: available(),
        }
    }

    /// Returns how many bytes to ask the kernel for.
    pub(super) fn wanted(&self) -> usize {
        let bytes = if self.asked == RING_BYTES_MAX {
            // Three quarters are left for the file that is written.
            (self.available / 4).clamp(DEFAULT_BYTES, LARGEST_BYTES)
        } else {
            self.asked.min(self.available / 2)
        };
        bytes.max(self.least)
    }

    /// Calls `ask` with the wanted number of bytes, and with fewer while the kernel has no room.
    /// `bytes` gives the size of the result.
    pub(super) fn make<R>(
        &self,
        remarks: &mut Vec<String>,
        bytes: impl Fn(&R) -> usize,
        mut ask: impl FnMut(usize) -> Result<io::Result<R>, CaptureError>,
    ) -> Result<R, CaptureError> {
        let wanted = self.wanted();
        let mut asking = wanted;
        let made = loop {
            match ask(asking)? {
                Ok(made) => break made,
                Err(cause) if cause.raw_os_error() == Some(ENOMEM) && asking > self.least => {
                    asking = (asking / 2).max(self.least);
                }
                Err(cause) => {
                    let operation = format!("make a ring of {asking} bytes for {}", self.name);
                    return Err(CaptureError::os(operation, cause));
                }
            }
        };
        let granted = bytes(&made);
        remarks.extend(self.remark(wanted, granted));
        Ok(made)
    }

    /// Returns the remark, if there is one, on a ring of `granted` bytes when `wanted` were asked
    /// for.
    pub(super) fn remark(&self, wanted: usize, granted: usize) -> Option<String> {
        let Self { name, asked, .. } = self;
        if *asked == RING_BYTES_MAX {
            return Some(format!("{name}: a ring of {granted} bytes"));
        }
        if granted < wanted && granted > wanted / 2 {
            return Some(format!(
                "{name}: a ring of {granted} bytes, in whole blocks, instead of {asked}"
            ));
        }
        if granted < wanted {
            return Some(format!(
                "{name}: the kernel has no memory for a ring of {asked} bytes; the ring has \
                 {granted}"
            ));
        }
        (wanted < *asked).then(|| {
            let available = self.available;
            format!(
                "{name}: a ring of {asked} bytes would take more than half of the {available} \
                 bytes of free memory; the ring has {granted}"
            )
        })
    }
}

/// Returns how many bytes a process can take without making another process give some up.
fn available() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available_of(&info).unwrap_or(2 * LARGEST_BYTES)
}

fn available_of(info: &str) -> Option<usize> {
    let mut lines = info.lines();
    let rest = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// A value of [`LiveOptions::ring_bytes`](super::LiveOptions) that asks for a quarter of the
/// available memory, but for at least 32 MiB and at most 2 GiB.
pub const RING_BYTES_MAX: usize = usize::MAX;
const DEFAULT_BYTES: usize = 32 << 20;
/// Larger rings have not helped in any measurement; a user who wants one must give its size.
const LARGEST_BYTES: usize = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    /// Which sizes are tried with a kernel that has room for `room` bytes, and the remarks.
    fn asked(memory: &Memory<'_>, room: usize) -> (Vec<usize>, Vec<String>) {
        let (mut tries, mut remarks) = (Vec::new(), Vec::new());
        let made = memory.make(
            &mut remarks,
            |bytes| *bytes,
            |bytes| {
                tries.push(bytes);
                let refused = || io::Error::from_raw_os_error(ENOMEM);
                Ok((bytes <= room).then_some(bytes).ok_or_else(refused))
            },
        );
        assert_eq!(made.unwrap(), *tries.last().unwrap());
        (tries, remarks)
    }

    #[test]
    fn more_than_the_machine_can_spare_is_never_asked_for() {
        let memory = Memory {
            name: "e0",
            asked: 60 * GIB,
            least: 8192,
            available: 20 * GIB,
        };
        let (tries, remarks) = asked(&memory, usize::MAX);
        assert_eq!(tries, [10 * GIB]);
        assert!(remarks[0].contains("more than half of the 21474836480 bytes"));
        assert!(
            remarks[0].ends_with("; the ring has 10737418240"),
            "{remarks:?}"
        );
        let (tries, remarks) = asked(&memory, 3 * GIB);
        assert_eq!(tries, [10 * GIB, 5 * GIB, 5 * GIB / 2]);
        assert!(remarks[0].starts_with("e0: the kernel has no memory for a ring of 64424509440"));
        assert_eq!(
            memory.remark(16_000, 12_288).unwrap(),
            "e0: a ring of 12288 bytes, in whole blocks, instead of 64424509440"
        );
        let fits = Memory {
            asked: 32 << 20,
            ..memory
        };
        assert_eq!(asked(&fits, usize::MAX), (vec![32 << 20], Vec::new()));
        let tiny = Memory { asked: 1, ..memory };
        assert_eq!(asked(&tiny, usize::MAX), (vec![8192], Vec::new()));
        let most = Memory {
            asked: RING_BYTES_MAX,
            available: 4 * GIB,
            ..memory
        };
        let (tries, remarks) = asked(&most, usize::MAX);
        assert_eq!(
            (tries, remarks),
            (vec![GIB], vec![format!("e0: a ring of {GIB} bytes")])
        );
    }

    #[test]
    fn what_is_no_want_of_memory_is_an_error() {
        let memory = Memory::new("e0", 1 << 20, 8192);
        assert!(memory.available > 0);
        let refused = io::ErrorKind::InvalidInput;
        let made = memory.make(&mut Vec::new(), |()| 0, |_| Ok(Err(refused.into())));
        let error = made.unwrap_err().to_string();
        assert!(
            error.contains("make a ring of 1048576 bytes for e0"),
            "{error}"
        );
        assert_eq!(
            available_of("MemFree: 1 kB\nMemAvailable:   20 kB\n"),
            Some(20_480)
        );
        assert_eq!(available_of("MemFree: 1 kB\n"), None);
    }
}
