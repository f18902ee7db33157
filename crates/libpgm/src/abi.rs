//! The structures and numbers of `<pgm/pgm.h>` that programs share with this library. All of them
//! are laid out as on 64-bit Linux.

use std::{
    ffi::{c_char, c_int, c_void},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::AtomicU32,
};

/// A global session identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Gsi(pub(crate) [u8; 6]);

/// A transport session identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Tsi {
    pub(crate) gsi: Gsi,
    /// The data-source port, in network order except where a program binds.
    pub(crate) sport: u16,
}

impl Tsi {
    /// Makes the identifier as packets have it.
    pub(crate) const fn of(tsi: towline::Tsi) -> Self {
        Self {
            gsi: Gsi(tsi.gsi.0),
            sport: tsi.port.to_be(),
        }
    }
}

/// The address of one end of a session.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SockAddr {
    /// The data-destination port: in host order in a bind, in network order in results.
    pub(crate) port: u16,
    pub(crate) tsi: Tsi,
}

/// An interface to bind.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct InterfaceReq {
    pub(crate) index: u32,
    pub(crate) scope_id: u32,
    pub(crate) address: Address,
}

/// A group to join or to send to. A program may hand over a shorter structure with the same
/// beginning.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct GroupReq {
    pub(crate) interface: u32,
    pub(crate) group: Address,
    pub(crate) source: Address,
    pub(crate) address: Address,
}

/// What a network string stands for. Made as one allocation, with the groups after it.
#[repr(C)]
pub(crate) struct AddrInfo {
    pub(crate) family: u16,
    pub(crate) recv_len: u32,
    pub(crate) recv: *mut GroupReq,
    pub(crate) send_len: u32,
    pub(crate) send: *mut GroupReq,
}

/// A `struct sockaddr_storage`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Address([u8; 128]);

impl Address {
    pub(crate) const UNSET: Self = Self([0; 128]);

    /// Returns the address and port; `None` for another family.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes([self.0[2], self.0[3]]);
        match c_int::from(self.family()) {
            libc::AF_INET => {
                let octets: [u8; 4] = self.0[4..8].try_into().ok()?;
                Some((Ipv4Addr::from(octets), port).into())
            }
            libc::AF_INET6 => {
                let octets: [u8; 16] = self.0[8..24].try_into().ok()?;
                Some((Ipv6Addr::from(octets), port).into())
            }
            _ => None,
        }
    }

    pub(crate) const fn family(&self) -> u16 {
        u16::from_ne_bytes([self.0[0], self.0[1]])
    }

    /// Reads an address from the first bytes of a longer or shorter structure.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut address = Self::UNSET;
        let len = bytes.len().min(address.0.len());
        address.0[..len].copy_from_slice(&bytes[..len]);
        address
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        let mut address = Self::UNSET;
        match ip {
            IpAddr::V4(ip) => {
                address.0[..2].copy_from_slice(&family_of(ip.into()).to_ne_bytes());
                address.0[4..8].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                address.0[..2].copy_from_slice(&family_of(ip.into()).to_ne_bytes());
                address.0[8..24].copy_from_slice(&ip.octets());
            }
        }
        address
    }
}

/// Returns the number of an address's family.
pub(crate) const fn family_of(ip: IpAddr) -> u16 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u16,
        IpAddr::V6(_) => libc::AF_INET6 as u16,
    }
}

/// Parts of a message to send: a `struct iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IoVec {
    pub(crate) base: *const c_void,
    pub(crate) len: usize,
}

/// A received message, as its fragments. This library joins fragments, so there is one.
#[repr(C)]
pub(crate) struct MsgV {
    pub(crate) len: u32,
    pub(crate) skb: [*mut Skb; FRAGMENTS_MAX],
}

/// A buffer with one packet.
#[repr(C)]
pub(crate) struct Skb {
    pub(crate) link: [*mut c_void; 3],
    pub(crate) sock: *const c_void,
    /// When it arrived, in microseconds since 1970.
    pub(crate) tstamp: u64,
    pub(crate) tsi: Tsi,
    pub(crate) sequence: u32,
    pub(crate) padding: u32,
    pub(crate) control: [u8; 48],
    pub(crate) len: u16,
    pub(crate) flags: [u16; 3],
    pub(crate) header: *mut u8,
    pub(crate) fragment: *mut c_void,
    pub(crate) pgmcc: *mut c_void,
    pub(crate) data_header: *mut u8,
    pub(crate) head: *mut u8,
    pub(crate) data: *mut u8,
    pub(crate) tail: *mut u8,
    pub(crate) end: *mut u8,
    pub(crate) true_size: u32,
    /// How many users hold the buffer; the last to let go frees it.
    pub(crate) users: AtomicU32,
}

/// Parity parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FecInfo {
    pub(crate) block: u8,
    pub(crate) proactive: u8,
    pub(crate) group: u8,
    pub(crate) on_demand: bool,
    pub(crate) var_pktlen: bool,
}

/// An error, allocated for the program, which frees it.
#[repr(C)]
pub(crate) struct Error {
    pub(crate) domain: c_int,
    pub(crate) code: c_int,
    pub(crate) message: *mut c_char,
}

/// The most fragments of a message, and its most bytes.
pub(crate) const FRAGMENTS_MAX: usize = 16;
pub(crate) const APDU_BYTES_MAX: usize = u16::MAX as usize;
/// The lengths of a `struct group_req` and a `struct group_source_req` in bytes, and the offsets of
/// their parts.
pub(crate) const GROUP_REQ_BYTES: usize = 136;
pub(crate) const GROUP_SOURCE_REQ_BYTES: usize = 264;
pub(crate) const GROUP_AT: usize = 8;
pub(crate) const SOURCE_AT: usize = 136;
pub(crate) const ADDRESS_AT: usize = 264;
/// The length of PGMCC's parameters in bytes.
pub(crate) const PGMCC_BYTES: usize = 12;
/// The IP protocol of PGM, and the level of its socket options.
pub(crate) const IPPROTO_PGM: c_int = 113;

/// What a call came to: `PGM_IO_STATUS_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum Status {
    Error = 0,
    Normal = 1,
    Reset = 2,
    Eof = 4,
    WouldBlock = 5,
    RateLimited = 6,
    TimerPending = 7,
}

impl From<Status> for c_int {
    fn from(status: Status) -> Self {
        status as Self
    }
}

// What is read byte by byte. `tests/layouts.txt` has the rest.
const _: () = {
    assert!(std::mem::offset_of!(GroupReq, group) == GROUP_AT);
    assert!(std::mem::offset_of!(GroupReq, source) == SOURCE_AT);
    assert!(std::mem::offset_of!(GroupReq, address) == ADDRESS_AT);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `tests/layouts.txt` for a structure and its members, by their names in C.
    macro_rules! layout {
        ($lines:ident, $whole:literal $kind:ty $(, $part:literal $member:ident)*) => {
            $lines.push(format!("{} {}", $whole, size_of::<$kind>()));
            $({
                $lines.push(format!(
                    "{}.{} {} {}",
                    $whole,
                    $part,
                    std::mem::offset_of!($kind, $member),
                    size_of_member(|whole: &$kind| &whole.$member),
                ));
            })*
        };
    }

    fn size_of_member<T, M>(_: fn(&T) -> &M) -> usize {
        size_of::<M>()
    }

    /// The list is what `<pgm/pgm.h>` has: `tests/peers/api.rs` compares it with the header.
    #[test]
    fn structures_are_laid_out_as_listed() {
        let mut lines: Vec<String> = Vec::new();
        layout!(lines, "pgm_gsi_t" Gsi);
        layout!(lines, "pgm_tsi_t" Tsi, "gsi" gsi, "sport" sport);
        layout!(lines, "pgm_sockaddr_t" SockAddr, "sa_port" port, "sa_addr" tsi);
        layout!(lines, "pgm_interface_req_t" InterfaceReq, "ir_interface" index,
            "ir_scope_id" scope_id, "ir_address" address);
        layout!(lines, "pgm_group_source_req" GroupReq, "gsr_interface" interface,
            "gsr_group" group, "gsr_source" source, "gsr_addr" address);
        layout!(lines, "pgm_addrinfo_t" AddrInfo, "ai_family" family,
            "ai_recv_addrs_len" recv_len, "ai_recv_addrs" recv, "ai_send_addrs_len" send_len,
            "ai_send_addrs" send);
        layout!(lines, "pgm_fecinfo_t" FecInfo, "block_size" block,
            "proactive_packets" proactive, "group_size" group,
            "ondemand_parity_enabled" on_demand, "var_pktlen_enabled" var_pktlen);
        layout!(lines, "pgm_pgmccinfo_t" [u8; PGMCC_BYTES]);
        layout!(lines, "pgm_iovec" IoVec, "iov_base" base, "iov_len" len);
        layout!(lines, "pgm_msgv_t" MsgV, "msgv_len" len, "msgv_skb" skb);
        layout!(lines, "pgm_sk_buff_t" Skb, "link_" link, "sock" sock, "tstamp" tstamp,
            "tsi" tsi, "sequence" sequence, "__padding" padding, "cb" control, "len" len,
            "pgm_header" header, "pgm_opt_fragment" fragment, "pgm_opt_pgmcc_data" pgmcc,
            "pgm_data" data_header, "head" head, "data" data, "tail" tail, "end" end,
            "truesize" true_size, "users" users);
        layout!(lines, "pgm_error_t" Error, "domain" domain, "code" code, "message" message);
        layout!(lines, "group_req" [u8; GROUP_REQ_BYTES]);
        layout!(lines, "group_source_req" [u8; GROUP_SOURCE_REQ_BYTES]);
        layout!(lines, "pgm_header" [u8; crate::packet::PGM_HEADER_BYTES]);
        layout!(lines, "pgm_data" [u8; crate::packet::DATA_HEADER_BYTES]);
        let listed: Vec<&str> = include_str!("../tests/layouts.txt").lines().collect();
        assert_eq!(lines, listed);
    }
}
