//! Counters of an interface's driver, by the driver's own names (`ethtool -S`).
//!
//! **Spec**: include/uapi/linux/ethtool.h, `ETHTOOL_GSSET_INFO`, `ETHTOOL_GSTRINGS`,
//! `ETHTOOL_GSTATS`.

use std::{
    io,
    mem::zeroed,
    os::fd::{AsRawFd as _, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::call::check;

/// The counters of one interface's driver.
#[derive(Debug)]
pub struct DriverCounters {
    socket: OwnedFd,
    interface: String,
    names: Vec<String>,
}

impl DriverCounters {
    /// Opens the counters of the driver of `interface`, and reads their names from the driver. The
    /// list of names is empty when the driver has no counters.
    ///
    /// # Errors
    /// ENODEV when there is no such interface, EOPNOTSUPP from a driver that does not answer.
    pub fn open(interface: &str) -> io::Result<Self> {
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
        let mut counters = Self {
            socket,
            interface: interface.to_owned(),
            names: Vec::new(),
        };
        counters.names = counters.read_names()?;
        Ok(counters)
    }

    /// Returns the names of the counters, in the driver's order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Reads the counters, in the order of [`DriverCounters::names`].
    ///
    /// # Errors
    /// ENODEV when the interface is gone.
    ///
    /// **Cost**: a system call, which takes microseconds to milliseconds, depending on the driver.
    pub fn read(&self) -> io::Result<Vec<u64>> {
        if self.names.is_empty() {
            return Ok(Vec::new());
        }
        // A header of 8 bytes, then the counters. The request is for as many counters as the driver
        // announced.
        let mut words = vec![0_u64; 1 + self.names.len()];
        words[0] = join(READ_COUNTERS, self.names.len() as u32);
        self.request(&mut words)?;
        words.remove(0);
        Ok(words)
    }

    fn read_names(&self) -> io::Result<Vec<String>> {
        // Command and reserved field, mask of the wanted sets, then the length of each set.
        let mut sizes = [join(READ_SIZES, 0), 1 << COUNTERS, 0];
        self.request(&mut sizes)?;
        let count = if sizes[1] == 0 {
            0
        } else {
            low(sizes[2]) as usize
        };
        if count == 0 || count > NAMES_MAX {
            return Ok(Vec::new());
        }
        // Command, set and length are 12 bytes: the names begin in the middle of a word.
        let mut words = vec![0_u64; 2 + count * NAME_LEN / 8];
        words[0] = join(READ_NAMES, COUNTERS);
        words[1] = join(count as u32, 0);
        self.request(&mut words)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes[12..].chunks_exact(NAME_LEN).take(count);
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&name[..end.unwrap_or(NAME_LEN)])
                .trim()
                .to_owned()
        };
        Ok(names.map(text).collect())
    }

    /// Sends the driver the command at the beginning of `words`. The driver writes its answer into
    /// `words`.
    fn request(&self, words: &mut [u64]) -> io::Result<()> {
        // SAFETY: an `ifreq` is a name, integers and pointers; all zero is a valid value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let name = self.interface.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name) {
            *place = byte.cast_signed();
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: `request` is live and points at `words`. These are exclusively borrowed and have
        // room for the answer to their command: as many counters or names as the driver said it
        // has. This relies on the driver not changing these numbers while its interface
        // exists.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), ETHTOOL, &raw mut request) })?;
        Ok(())
    }
}

/// Joins two 32-bit fields that follow each other in memory.
fn join(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the first of the two fields that [`join`] joined.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// `SIOCETHTOOL`.
const ETHTOOL: libc::Ioctl = 0x8946;
const READ_NAMES: u32 = 0x1b;
const READ_COUNTERS: u32 = 0x1d;
const READ_SIZES: u32 = 0x37;
/// `ETH_SS_STATS`.
const COUNTERS: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_LEN: usize = 32;
/// The most counters that a driver may announce; a driver that announces more counts as having
/// none. Large adapters have a few thousand.
const NAMES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_counters_says_so() {
        // Some kernels answer for loopback, others do not support the request.
        match DriverCounters::open("lo") {
            Ok(counters) => assert_eq!(
                (counters.names().len(), counters.read().unwrap().len()),
                (0, 0)
            ),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
        let error = DriverCounters::open("no-such-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(DriverCounters::open("a name that is too long for it").is_err());
        assert_eq!((low(join(7, 9)), size_of::<libc::ifreq>() >= 32), (7, true));
    }
}
