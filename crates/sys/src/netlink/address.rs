//! Addresses of links: listing and adding them.

use std::net::IpAddr;

use super::{
    Attributes, Malformed, NetlinkError, Request, Rtnetlink,
    message::{fixed, u32_at},
    socket::flag,
};

/// One address of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Number of the link that has the address.
    pub index: u32,
    /// The address itself.
    pub ip: IpAddr,
    /// Number of leading bits that name the network.
    pub prefix: u8,
    /// The other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The scope in which the address is valid.
    pub scope: Scope,
    /// The `IFA_F_*` bits that the kernel keeps for the address.
    pub flags: AddressFlags,
}

impl Address {
    /// Reads the payload of an `RTM_NEWADDR` message; `None` when it holds no address.
    ///
    /// # Errors
    /// When the payload ends early.
    pub fn parse(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (header, rest) = fixed::<HEADER_LEN>(payload, "address header")?;
        let [_family, prefix, flags, scope, ..] = *header;
        let (mut local, mut address, mut flags) = (None, None, u32::from(flags));
        for attribute in Attributes::parse(rest)? {
            match attribute.kind {
                libc::IFA_LOCAL => local = attribute.address(),
                libc::IFA_ADDRESS => address = attribute.address(),
                libc::IFA_FLAGS => flags = attribute.number().unwrap_or(flags),
                _ => {}
            }
        }
        // IFA_ADDRESS is the peer's address on a point-to-point link, and the link's own address on
        // any other link.
        let Some(ip) = local.or(address) else {
            return Ok(None);
        };
        Ok(Some(Self {
            index: u32_at(header, 4),
            ip,
            prefix,
            peer: address.filter(|&peer| peer != ip),
            scope: Scope::from_number(scope),
            flags: AddressFlags(flags),
        }))
    }
}

/// The scope in which an address or route is valid (`RT_SCOPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// Within the site (deprecated IPv6).
    Site,
    /// On this link only.
    Link,
    /// On this host only.
    Host,
    /// A number that the kernel has no name for.
    Other(u8),
}

impl Scope {
    const fn from_number(number: u8) -> Self {
        match number {
            libc::RT_SCOPE_UNIVERSE => Self::Global,
            libc::RT_SCOPE_SITE => Self::Site,
            libc::RT_SCOPE_LINK => Self::Link,
            libc::RT_SCOPE_HOST => Self::Host,
            other => Self::Other(other),
        }
    }

    /// Returns the scope's name for output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Site => "site",
            Self::Link => "link",
            Self::Host => "host",
            Self::Other(_) => "other",
        }
    }
}

/// `IFA_F_*` bits of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressFlags(pub u32);

impl AddressFlags {
    /// Returns true when the address is not usable yet: duplicate address detection runs.
    #[must_use]
    pub const fn is_tentative(self) -> bool {
        self.0 & libc::IFA_F_TENTATIVE != 0
    }

    /// Returns true when the address is not usable: another station has it.
    #[must_use]
    pub const fn is_duplicate(self) -> bool {
        self.0 & libc::IFA_F_DADFAILED != 0
    }

    /// Returns true when the address is usable, but not for new connections.
    #[must_use]
    pub const fn is_deprecated(self) -> bool {
        self.0 & libc::IFA_F_DEPRECATED != 0
    }
}

impl Rtnetlink {
    /// Returns all addresses, IPv4 and IPv6.
    ///
    /// # Errors
    /// When the kernel refuses or its answer is malformed.
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETADDR, 0);
        request.fixed(&[0; HEADER_LEN]);
        let what = "list the addresses";
        let addresses = self.list(&request, libc::RTM_NEWADDR, what, Address::parse)?;
        Ok(addresses.into_iter().flatten().collect())
    }

    /// Gives a link an address, without duplicate address detection. Succeeds also when the link
    /// has the address already.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when there is no such link.
    pub fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), NetlinkError> {
        let flags = flag(libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        let mut request = Request::new(libc::RTM_NEWADDR, flags);
        let mut header = [0; HEADER_LEN];
        header[0] = family(ip);
        header[1] = prefix;
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        request.fixed(&header);
        request
            .address(libc::IFA_LOCAL, ip)
            .address(libc::IFA_ADDRESS, ip);
        match ip {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                let broadcast = u32::from(v4) | host;
                request.attribute(libc::IFA_BROADCAST, &broadcast.to_be_bytes());
            }
            IpAddr::V6(_) => {
                request.number(libc::IFA_FLAGS, libc::IFA_F_NODAD);
            }
        }
        self.change(request, || {
            format!("add {ip}/{prefix} to interface {index}")
        })
    }
}

/// Returns the address family number of an address.
pub(super) const fn family(ip: IpAddr) -> u8 {
    let number = match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    number.to_ne_bytes()[if cfg!(target_endian = "little") { 0 } else { 3 }]
}

/// Length of `struct ifaddrmsg`: family u8, prefix u8, flags u8, scope u8, index u32.
const HEADER_LEN: usize = 8;
