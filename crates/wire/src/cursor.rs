//! Bounds-checked reading and writing of the big-endian fields of packets. Control messages,
//! manifests and capture files are read by code of their own.

use std::net::IpAddr;

use crate::{Fault, ParseError, Sqn};

/// A reader of consecutive fields. When the bytes end within a field, the error says how many bytes
/// the field needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
    layer: &'static str,
    limited_by: &'static str,
}

impl<'a> Reader<'a> {
    /// Makes a reader of `bytes`, which begin `base` bytes into the packet. `limited_by` names what
    /// set the end of `bytes`.
    #[inline]
    pub(crate) const fn new(
        bytes: &'a [u8],
        base: usize,
        layer: &'static str,
        limited_by: &'static str,
    ) -> Self {
        Self {
            bytes,
            at: 0,
            base,
            layer,
            limited_by,
        }
    }

    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<N>) {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(self.too_short(N)),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.take::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.take().map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn sqn(&mut self) -> Result<Sqn, ParseError> {
        self.u32().map(Sqn)
    }

    /// Reads an address without its family; the address's length follows from `afi`.
    pub(crate) fn address(&mut self, afi: u16) -> Result<IpAddr, ParseError> {
        match afi {
            AFI_IPV4 => self.take::<4>().map(IpAddr::from),
            AFI_IPV6 => self.take::<16>().map(IpAddr::from),
            _ => Err(self.fault(Fault::AddressFamily(afi))),
        }
    }

    /// Reads a network-layer address: family, 16 reserved bits (ignored), address.
    pub(crate) fn nla(&mut self) -> Result<IpAddr, ParseError> {
        let start = *self;
        let afi = self.u16()?;
        self.u16()?;
        match afi {
            AFI_IPV4 | AFI_IPV6 => self.address(afi),
            _ => Err(start.fault(Fault::AddressFamily(afi))),
        }
    }

    /// Returns the number of bytes read so far.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Returns the bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Skips the bytes that have not been read.
    pub(crate) const fn skip_all(&mut self) {
        self.at = self.bytes.len();
    }

    /// Makes an error at the current position.
    pub(crate) const fn fault(&self, what: Fault) -> ParseError {
        ParseError {
            layer: self.layer,
            offset: self.base + self.at,
            needed: 0,
            available: self.bytes.len() - self.at,
            limited_by: self.limited_by,
            what,
        }
    }

    /// Makes the error for bytes that end too early: `needed` bytes must follow the current
    /// position.
    #[cold]
    pub(crate) const fn too_short(&self, needed: usize) -> ParseError {
        let mut error = self.fault(Fault::Truncated);
        error.needed = needed;
        error
    }
}

/// A writer of consecutive fields into room that its maker measured beforehand.
///
/// **Panics** (bug): when the room is too small.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub(crate) fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    #[inline]
    pub(crate) fn sqn(&mut self, value: Sqn) {
        self.u32(value.0);
    }

    /// Writes an address without its family.
    pub(crate) fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.put(&v4.octets()),
            IpAddr::V6(v6) => self.put(&v6.octets()),
        }
    }

    /// Writes a network-layer address: family, 16 reserved bits (zero), address.
    pub(crate) fn nla(&mut self, address: IpAddr) {
        self.u16(afi(address));
        self.u16(0);
        self.address(address);
    }

    /// Returns the number of bytes written so far.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }
}

/// Returns the `N` bytes at `at`.
///
/// **Panics** (bug): when the bytes end earlier. Views check their length when they are made.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes[at..].first_chunk();
    *field.expect("a view is as long as its fixed fields")
}

/// Returns the 16-bit field at `at`.
///
/// **Panics** (bug): as [`array_at`] does.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// Writes the 16-bit field at `at`.
///
/// **Panics** (bug): as [`array_at`] does.
#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Returns the address family number of an address.
pub(crate) const fn afi(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => AFI_IPV4,
        IpAddr::V6(_) => AFI_IPV6,
    }
}

/// Returns the length of an address without its family, in bytes.
pub(crate) const fn address_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    }
}

/// Returns the length of a network-layer address with its family, in bytes.
pub(crate) const fn nla_len(address: IpAddr) -> usize {
    4 + address_len(address)
}

/// IANA address family number of IPv4.
pub(crate) const AFI_IPV4: u16 = 1;
/// IANA address family number of IPv6.
pub(crate) const AFI_IPV6: u16 = 2;
