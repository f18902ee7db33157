//! Socket addresses in the kernel's form.

use std::{
    mem::{offset_of, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// An IPv4 or IPv6 socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
pub struct RawAddress {
    bytes: AddressBytes,
    len: socklen_t,
}

/// The bytes of a `struct sockaddr_storage`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct AddressBytes([u8; LEN_MAX as usize]);

impl RawAddress {
    /// Makes an address of zeros: room for the kernel to write an address into.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            bytes: AddressBytes([0; LEN_MAX as usize]),
            len: LEN_MAX,
        }
    }

    /// Returns the pointer to hand to a call; valid while `self` is borrowed.
    pub(crate) const fn as_ptr(&self) -> *const sockaddr {
        std::ptr::from_ref(&self.bytes).cast()
    }

    /// Returns the place where a call may write an address of up to [`LEN_MAX`] bytes.
    pub(crate) const fn as_mut_ptr(&mut self) -> *mut sockaddr {
        std::ptr::from_mut(&mut self.bytes).cast()
    }

    pub(crate) const fn len(&self) -> socklen_t {
        self.len
    }

    #[cfg(feature = "rings")]
    pub(crate) const fn len_mut(&mut self) -> &mut socklen_t {
        &mut self.len
    }

    /// Returns the address's bytes, for the structures of socket options.
    pub(crate) const fn bytes(&self) -> AddressBytes {
        self.bytes
    }

    /// Returns the address in Rust's form; `None` when the kernel wrote no address, or an address
    /// of a family other than IPv4 and IPv6.
    #[must_use]
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.field(PORT));
        match libc::c_int::from(u16::from_ne_bytes(self.field(FAMILY))) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(self.field::<4>(IPV4));
                Some(SocketAddrV4::new(ip, port).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(self.field::<16>(IPV6));
                let scope = u32::from_ne_bytes(self.field(SCOPE));
                // The flow label is left out: it does not identify a peer, and addresses that
                // differ only in the label must compare equal.
                Some(SocketAddrV6::new(ip, port, 0, scope).into())
            }
            _ => None,
        }
    }

    /// Reads the address that a packet socket gives with a packet. Returns the interface's number
    /// and the packet's kind (`sll_pkttype`).
    pub(crate) fn link(&self) -> (u32, u8) {
        let [kind] = self.field(LINK_KIND);
        (u32::from_ne_bytes(self.field(LINK_INTERFACE)), kind)
    }

    /// Makes an address of a packet socket; the protocol is in the network's byte order.
    pub(crate) fn of_link(interface: u32, protocol: u16) -> Self {
        let mut raw = Self::of_family(libc::AF_PACKET, size_of::<libc::sockaddr_ll>());
        raw.put(LINK_PROTOCOL, protocol.to_ne_bytes());
        raw.put(LINK_INTERFACE, interface.to_ne_bytes());
        raw
    }

    fn of_family(family: libc::c_int, len: usize) -> Self {
        let mut raw = Self::empty();
        raw.put(FAMILY, (family as u16).to_ne_bytes());
        raw.len = len as socklen_t;
        raw
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|byte| self.bytes.0[at + byte])
    }

    fn put<const N: usize>(&mut self, at: usize, field: [u8; N]) {
        self.bytes.0[at..at + N].copy_from_slice(&field);
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = match address {
            SocketAddr::V4(v4) => {
                let mut raw = Self::of_family(libc::AF_INET, size_of::<sockaddr_in>());
                raw.put(IPV4, v4.ip().octets());
                raw
            }
            SocketAddr::V6(v6) => {
                let mut raw = Self::of_family(libc::AF_INET6, size_of::<sockaddr_in6>());
                raw.put(IPV6, v6.ip().octets());
                raw.put(SCOPE, v6.scope_id().to_ne_bytes());
                raw
            }
        };
        raw.put(PORT, address.port().to_be_bytes());
        raw
    }
}

// SAFETY: the pointer is to `bytes`, and `len` is at most the number of these bytes. All of the
// bytes are initialised, and live while `self` is borrowed. They hold an address or zeros; the
// kernel checks the bytes that it reads.
unsafe impl SocketAddrArg for RawAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(self.as_ptr().cast(), self.len)
    }
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_socket_addr().fmt(f)
    }
}

/// Length of the longest address of any family, in bytes.
pub(crate) const LEN_MAX: socklen_t = size_of::<sockaddr_storage>() as socklen_t;
const FAMILY: usize = 0;
const PORT: usize = offset_of!(sockaddr_in, sin_port);
const IPV4: usize = offset_of!(sockaddr_in, sin_addr);
const IPV6: usize = offset_of!(sockaddr_in6, sin6_addr);
const SCOPE: usize = offset_of!(sockaddr_in6, sin6_scope_id);
const LINK_PROTOCOL: usize = offset_of!(libc::sockaddr_ll, sll_protocol);
const LINK_INTERFACE: usize = offset_of!(libc::sockaddr_ll, sll_ifindex);
const LINK_KIND: usize = offset_of!(libc::sockaddr_ll, sll_pkttype);

const _: () = {
    assert!(size_of::<AddressBytes>() == size_of::<sockaddr_storage>());
    assert!(align_of::<AddressBytes>() >= align_of::<sockaddr_storage>());
    assert!(offset_of!(sockaddr_in, sin_family) == FAMILY);
    assert!(offset_of!(sockaddr_in6, sin6_family) == FAMILY);
    assert!(offset_of!(libc::sockaddr_ll, sll_family) == FAMILY);
    assert!(offset_of!(sockaddr_in6, sin6_port) == PORT);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["239.192.0.1:7500", "[ff15::1]:7500", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::from(address).to_socket_addr(), Some(address));
        }
        assert_eq!(RawAddress::empty().to_socket_addr(), None);
    }
}
