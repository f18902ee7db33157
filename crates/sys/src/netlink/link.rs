//! Links (network interfaces): listing, making, changing and removing them.

use std::{
    fmt,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::{
    Attributes, Malformed, NetlinkError, Request, Rtnetlink,
    message::{fixed, u16_at, u32_at},
    socket::flag,
};

/// One network interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's number in its namespace.
    pub index: u32,
    /// The interface's name.
    pub name: String,
    /// Kind of driver of a virtual link (`veth`, `bridge`, `vlan`, `tun`, ...); `None` for real
    /// devices.
    pub kind: Option<String>,
    /// Kind of hardware (`ARPHRD_*`): 1 Ethernet, 772 loopback.
    pub hardware: u16,
    /// `IFF_*` bits.
    pub flags: LinkFlags,
    /// Operational state.
    pub state: LinkState,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: u32,
    /// The hardware address; `None` for links without an address of six bytes.
    pub address: Option<[u8; 6]>,
    /// Number of receive queues that the link was made with; perhaps not all of them are in use. 1
    /// when the kernel does not say.
    pub receive_queues: u32,
    /// Number of the XDP program on the interface, if there is one.
    pub program: Option<u32>,
    /// The bridge or bond that the interface belongs to.
    pub master: Option<u32>,
    /// The longest packet, in bytes with all headers, that the kernel hands to the driver for the
    /// driver to cut (GSO).
    pub gso_max_size: Option<u32>,
    /// The most segments into which the driver cuts one packet (GSO).
    pub gso_max_segs: Option<u32>,
}

impl Link {
    /// Reads the payload of an `RTM_NEWLINK` message.
    ///
    /// # Errors
    /// When the payload ends early.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = fixed::<HEADER_LEN>(payload, "link header")?;
        let mut link = Self {
            index: u32_at(header, 4),
            name: String::new(),
            kind: None,
            hardware: u16_at(header, 2),
            flags: LinkFlags(u32_at(header, 8)),
            state: LinkState::Unknown,
            mtu_bytes: 0,
            address: None,
            receive_queues: 1,
            program: None,
            master: None,
            gso_max_size: None,
            gso_max_segs: None,
        };
        for attribute in Attributes::parse(rest)? {
            match attribute.kind {
                libc::IFLA_IFNAME => link.name = attribute.text(),
                libc::IFLA_MTU => link.mtu_bytes = attribute.number().unwrap_or(0),
                libc::IFLA_ADDRESS => link.address = attribute.payload.try_into().ok(),
                libc::IFLA_NUM_RX_QUEUES => {
                    link.receive_queues = attribute.number().unwrap_or(1).max(1);
                }
                libc::IFLA_XDP => {
                    link.program = attribute
                        .nested()?
                        .find(|inner| inner.kind == XDP_PROGRAM)
                        .and_then(|inner| inner.number());
                }
                libc::IFLA_MASTER => link.master = attribute.number(),
                libc::IFLA_GSO_MAX_SIZE => link.gso_max_size = attribute.number(),
                libc::IFLA_GSO_MAX_SEGS => link.gso_max_segs = attribute.number(),
                libc::IFLA_OPERSTATE => {
                    link.state = LinkState::from_number(attribute.byte().unwrap_or(0));
                }
                libc::IFLA_LINKINFO => {
                    link.kind = attribute
                        .nested()?
                        .find(|inner| inner.kind == libc::IFLA_INFO_KIND)
                        .map(|inner| inner.text());
                }
                _ => {}
            }
        }
        Ok(link)
    }

    /// Returns true when the kernel says that packets can pass now. Returns false for loopback and
    /// tunnels, which do not tell their state.
    ///
    /// [`LinkFlags`] alone do not show whether packets can pass: a link that was just made counts
    /// as running until the kernel has looked at its carrier.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        self.flags.is_running() && matches!(self.state, LinkState::Up)
    }
}

/// `IFF_*` bits of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFlags(pub u32);

impl LinkFlags {
    /// Returns true when the administrator has switched the link on.
    #[must_use]
    pub const fn is_up(self) -> bool {
        self.has(libc::IFF_UP)
    }

    /// Returns true when the link can send to all stations.
    #[must_use]
    pub const fn is_broadcast(self) -> bool {
        self.has(libc::IFF_BROADCAST)
    }

    /// Returns true for the loopback interface.
    #[must_use]
    pub const fn is_loopback(self) -> bool {
        self.has(libc::IFF_LOOPBACK)
    }

    /// Returns true when the link has exactly one peer.
    #[must_use]
    pub const fn is_point_to_point(self) -> bool {
        self.has(libc::IFF_POINTOPOINT)
    }

    /// Returns true when the link carries multicast.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.has(libc::IFF_MULTICAST)
    }

    /// Returns true when the link is up and, as far as the kernel knows, has a carrier: see
    /// [`Link::is_passing`].
    #[must_use]
    pub const fn is_running(self) -> bool {
        self.has(libc::IFF_RUNNING)
    }

    const fn has(self, bit: libc::c_int) -> bool {
        self.0 & bit.cast_unsigned() != 0
    }
}

/// The operational state of a link (RFC 2863).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The driver does not say; usual for loopback and tunnels.
    Unknown,
    /// A component is missing.
    NotPresent,
    /// No carrier, or switched off by the administrator.
    Down,
    /// The link beneath it is down.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waiting for an outside event, such as authentication.
    Dormant,
    /// Packets pass.
    Up,
}

impl LinkState {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::NotPresent,
            2 => Self::Down,
            3 => Self::LowerLayerDown,
            4 => Self::Testing,
            5 => Self::Dormant,
            6 => Self::Up,
            _ => Self::Unknown,
        }
    }

    /// Returns the state's name for output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotPresent => "not-present",
            Self::Down => "down",
            Self::LowerLayerDown => "lower-layer-down",
            Self::Testing => "testing",
            Self::Dormant => "dormant",
            Self::Up => "up",
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A virtual cable: one end here, the other in a namespace of the caller's choice.
#[derive(Clone, Copy, Debug)]
pub struct Veth<'a> {
    /// Name of the end in the netlink socket's own namespace.
    pub name: &'a str,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// The network namespace of the other end.
    pub peer_namespace: BorrowedFd<'a>,
    /// Interface number of the end called `name`; with `None`, the next free number.
    pub index: Option<u32>,
    /// The largest IP packet in bytes, for both ends; with `None`, the kernel's 1500.
    pub mtu_bytes: Option<u32>,
}

impl Rtnetlink {
    /// Returns all links, those that are down included, in the kernel's order.
    ///
    /// # Errors
    /// When the kernel refuses or its answer is malformed.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.fixed(&header(0, 0, 0));
        self.list(
            &request,
            libc::RTM_NEWLINK,
            "list the interfaces",
            Link::parse,
        )
    }

    /// Returns the number of the link called `name`.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn link_index(&mut self, name: &str) -> Result<u32, NetlinkError> {
        self.link(name).map(|link| link.index)
    }

    /// Returns the link called `name`.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        self.links()?
            .into_iter()
            .find(|link| link.name == name)
            .ok_or_else(|| NetlinkError::missing(format!("find the interface {name}")))
    }

    /// Makes a bridge that floods multicast to all its ports (snooping off).
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, when the name is taken, or when the kernel has no bridge.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, create_flags());
        request
            .fixed(&header(0, 0, 0))
            .text(libc::IFLA_IFNAME, name);
        request.nested(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "bridge");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.attribute(BRIDGE_MULTICAST_SNOOPING, &[0]);
            });
        });
        self.change(request, || format!("make the bridge {name}"))
    }

    /// Makes a virtual cable.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN in both namespaces, when a name is taken, or without veth support.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> Result<(), NetlinkError> {
        let namespace = veth.peer_namespace.as_raw_fd().cast_unsigned();
        let mut request = Request::new(libc::RTM_NEWLINK, create_flags());
        request
            .fixed(&header(veth.index.unwrap_or(0), 0, 0))
            .text(libc::IFLA_IFNAME, veth.name);
        let with_mtu = |request: &mut Request| {
            if let Some(mtu) = veth.mtu_bytes {
                request.number(libc::IFLA_MTU, mtu);
            }
        };
        with_mtu(&mut request);
        request.nested(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.fixed(&header(0, 0, 0))
                        .text(libc::IFLA_IFNAME, veth.peer_name);
                    with_mtu(peer);
                    peer.number(libc::IFLA_NET_NS_FD, namespace);
                });
            });
        });
        self.change(request, || {
            format!("make the veth pair {} - {}", veth.name, veth.peer_name)
        })
    }

    /// Makes the link `index` a port of the bridge `master`; with `None`, takes the link out of its
    /// bridge.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the link or the bridge does not exist.
    pub fn set_master(&mut self, index: u32, master: Option<u32>) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_SETLINK, 0);
        request.fixed(&header(index, 0, 0));
        request.number(libc::IFLA_MASTER, master.unwrap_or(0));
        self.change(request, || {
            format!("attach interface {index} to bridge {master:?}")
        })
    }

    /// Switches a link on or off.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when there is no such link.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), NetlinkError> {
        let bit = libc::IFF_UP.cast_unsigned();
        let mut request = Request::new(libc::RTM_SETLINK, 0);
        request.fixed(&header(index, if up { bit } else { 0 }, bit));
        let word = if up { "up" } else { "down" };
        self.change(request, || format!("set interface {index} {word}"))
    }

    /// Sets the largest IP packet, in bytes.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the link cannot carry that size.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_SETLINK, 0);
        request
            .fixed(&header(index, 0, 0))
            .number(libc::IFLA_MTU, mtu);
        self.change(request, || {
            format!("set the MTU of interface {index} to {mtu}")
        })
    }
}

/// Makes a `struct ifinfomsg`: family u8, padding, hardware u16, index i32, flags u32, mask of
/// flags u32.
fn header(index: u32, flags: u32, mask: u32) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

pub(super) const fn create_flags() -> u16 {
    flag(libc::NLM_F_CREATE | libc::NLM_F_EXCL)
}

const HEADER_LEN: usize = 16;
/// `IFLA_XDP_PROG_ID`.
const XDP_PROGRAM: u16 = 4;
/// `IFLA_BR_MCAST_SNOOPING`.
const BRIDGE_MULTICAST_SNOOPING: u16 = 23;
/// `VETH_INFO_PEER`.
const VETH_INFO_PEER: u16 = 1;
