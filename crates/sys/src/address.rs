//! Socket addresses in the kernel's form.

use std::{
    mem::{offset_of, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// An IPv4 or IPv6 socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
pub struct RawAddress {
    bytes: Storage,
    len: socklen_t,
}

/// Room for either form. Only ever zeroed or written as one of the members as a whole, so every
/// byte is initialised and reading any member is defined.
#[derive(Clone, Copy)]
#[repr(C)]
union Storage {
    v4: sockaddr_in,
    v6: sockaddr_in6,
    any: sockaddr_storage,
}

impl RawAddress {
    /// All zero: room for the kernel to write an address into.
    #[must_use]
    pub fn empty() -> Self {
        // SAFETY: `sockaddr_storage` is a C structure of integers; all zero is a valid value.
        let any: sockaddr_storage = unsafe { std::mem::zeroed() };
        Self {
            bytes: Storage { any },
            len: LEN_MAX,
        }
    }

    /// The address to hand to a call; valid while `self` is borrowed.
    pub(crate) const fn as_ptr(&self) -> *const sockaddr {
        std::ptr::from_ref(&self.bytes).cast()
    }

    /// Where a call may write an address of up to [`LEN_MAX`] bytes.
    pub(crate) const fn as_mut_ptr(&mut self) -> *mut sockaddr {
        std::ptr::from_mut(&mut self.bytes).cast()
    }

    pub(crate) const fn len(&self) -> socklen_t {
        self.len
    }

    pub(crate) const fn len_mut(&mut self) -> &mut socklen_t {
        &mut self.len
    }

    pub(crate) const fn storage(&self) -> sockaddr_storage {
        // SAFETY: every byte of the union is initialised (see `Storage`), and `sockaddr_storage`
        // is made of integers, for which any bytes are valid.
        unsafe { self.bytes.any }
    }

    /// The address in Rust's form; `None` when the kernel wrote none or another family.
    #[must_use]
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        match libc::c_int::from(self.storage().ss_family) {
            libc::AF_INET => {
                // SAFETY: every byte of the union is initialised, and any bytes are a valid
                // `sockaddr_in`.
                let v4 = unsafe { self.bytes.v4 };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above for `sockaddr_in6`.
                let v6 = unsafe { self.bytes.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                // The flow label plays no part in who a peer is; leaving it out keeps equal peers
                // equal.
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                raw.bytes.v4 = sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*v4.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                raw.len = LEN_V4;
            }
            SocketAddr::V6(v6) => {
                raw.bytes.v6 = sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                raw.len = LEN_V6;
            }
        }
        raw
    }
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_socket_addr().fmt(f)
    }
}

fn family(family: libc::c_int) -> sa_family_t {
    sa_family_t::try_from(family).expect("address families are small numbers")
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of small structures")]
const LEN_V4: socklen_t = size_of::<sockaddr_in>() as socklen_t;
#[expect(clippy::cast_possible_truncation, reason = "sizes of small structures")]
const LEN_V6: socklen_t = size_of::<sockaddr_in6>() as socklen_t;
/// Room for every address family.
#[expect(clippy::cast_possible_truncation, reason = "sizes of small structures")]
pub(crate) const LEN_MAX: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

const _: () = assert!(size_of::<Storage>() == size_of::<sockaddr_storage>());
const _: () = assert!(offset_of!(sockaddr_in, sin_family) == 0);
const _: () = assert!(offset_of!(sockaddr_in6, sin6_family) == 0);

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
