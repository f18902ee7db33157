//! Routes: listing them, adding one, and asking which of them a packet would take.

use std::net::IpAddr;

use super::{
    Attributes, Malformed, NetlinkError, Request, Rtnetlink,
    address::family,
    message::{fixed, u32_at},
    socket::flag,
};

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// True for IPv6.
    pub is_ipv6: bool,
    /// The network that the route leads to; `None` for the default route.
    pub destination: Option<IpAddr>,
    /// Number of leading bits of the destination that must match.
    pub prefix: u8,
    /// The next router; `None` when the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The link that packets leave by; most routes that refuse packets have none.
    pub interface: Option<u32>,
    /// The source address that the kernel prefers.
    pub source: Option<IpAddr>,
    /// The route's metric: of two routes to the same network, the kernel takes the one with the
    /// smaller metric.
    pub metric: u32,
    /// Routing table: 254 main, 255 local.
    pub table: u32,
    /// What becomes of packets that take the route.
    pub kind: RouteKind,
}

impl Route {
    /// Reads the payload of an `RTM_NEWROUTE` message.
    ///
    /// # Errors
    /// When the payload ends early.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = fixed::<HEADER_LEN>(payload, "route header")?;
        let [
            family,
            prefix,
            _source_prefix,
            _tos,
            table,
            _protocol,
            _scope,
            kind,
            ..,
        ] = *header;
        let mut route = Self {
            is_ipv6: i32::from(family) == libc::AF_INET6,
            destination: None,
            prefix,
            gateway: None,
            interface: None,
            source: None,
            metric: 0,
            table: u32::from(table),
            kind: RouteKind::from_number(kind),
        };
        for attribute in Attributes::parse(rest)? {
            match attribute.kind {
                libc::RTA_DST => route.destination = attribute.address(),
                libc::RTA_GATEWAY => route.gateway = attribute.address(),
                libc::RTA_OIF => route.interface = attribute.number(),
                libc::RTA_PREFSRC => route.source = attribute.address(),
                libc::RTA_PRIORITY => route.metric = attribute.number().unwrap_or(0),
                libc::RTA_TABLE => route.table = attribute.number().unwrap_or(route.table),
                libc::RTA_MULTIPATH if route.interface.is_none() => {
                    route.read_first_hop(attribute.payload)?;
                }
                _ => {}
            }
        }
        Ok(route)
    }

    /// Reads the first of several next hops that share the traffic. [`Route`] shows none of the
    /// others.
    fn read_first_hop(&mut self, hops: &[u8]) -> Result<(), Malformed> {
        // struct rtnexthop: length u16, flags u8, hops u8, interface i32.
        let (header, _) = fixed::<8>(hops, "route next hop")?;
        self.interface = Some(u32_at(header, 4));
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let attributes = hops.get(8..len).unwrap_or_default();
        self.gateway = Attributes::parse(attributes)?
            .find(|attribute| attribute.kind == libc::RTA_GATEWAY)
            .and_then(|attribute| attribute.address());
        Ok(())
    }

    /// Returns true for the default route of the main table.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.prefix == 0 && matches!(self.kind, RouteKind::Unicast) && self.table == TABLE_MAIN
    }
}

/// The fate of a packet that takes a route (`RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sent to a gateway or a neighbour.
    Unicast,
    /// Delivered on this host.
    Local,
    /// Sent to all stations of a link.
    Broadcast,
    /// Sent to a group.
    Multicast,
    /// Refused: `blackhole`, `unreachable` or `prohibit`.
    Refused,
    /// Another kind.
    Other(u8),
}

impl RouteKind {
    const fn from_number(number: u8) -> Self {
        match number {
            libc::RTN_UNICAST => Self::Unicast,
            libc::RTN_LOCAL => Self::Local,
            libc::RTN_BROADCAST => Self::Broadcast,
            libc::RTN_MULTICAST => Self::Multicast,
            libc::RTN_BLACKHOLE | libc::RTN_UNREACHABLE | libc::RTN_PROHIBIT => Self::Refused,
            other => Self::Other(other),
        }
    }
}

/// The properties of a packet that decide its route.
#[derive(Clone, Copy, Debug)]
pub struct RouteQuery {
    /// The address that the packet goes to.
    pub to: IpAddr,
    /// The source address, when it is already chosen.
    pub from: Option<IpAddr>,
    /// The link that the packet must leave by, when it is already chosen.
    pub interface: Option<u32>,
}

impl Rtnetlink {
    /// Returns all routes of both families, in all tables.
    ///
    /// # Errors
    /// When the kernel refuses or its answer is malformed.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETROUTE, 0);
        request.fixed(&[0; HEADER_LEN]);
        self.list(
            &request,
            libc::RTM_NEWROUTE,
            "list the routes",
            Route::parse,
        )
    }

    /// Returns the route that a packet would take.
    ///
    /// # Errors
    /// When the kernel knows no route (ENETUNREACH), or the source address is not this host's
    /// (EINVAL).
    pub fn route_to(&mut self, query: &RouteQuery) -> Result<Route, NetlinkError> {
        let what = || format!("find a route to {}", query.to);
        let mut request = Request::new(libc::RTM_GETROUTE, 0);
        let mut header = [0; HEADER_LEN];
        header[0] = family(query.to);
        header[1] = full_prefix(query.to);
        header[2] = query.from.map_or(0, full_prefix);
        request.fixed(&header).address(libc::RTA_DST, query.to);
        if let Some(from) = query.from {
            request.address(libc::RTA_SRC, from);
        }
        if let Some(interface) = query.interface {
            request.number(libc::RTA_OIF, interface);
        }
        let mut route = None;
        self.socket_mut()
            .request(request, &mut |reply| {
                if reply.kind == libc::RTM_NEWROUTE {
                    route = Some(Route::parse(reply.payload)?);
                }
                Ok(())
            })
            .map_err(|error| error.during(what()))?;
        route.ok_or_else(|| NetlinkError::missing(what()))
    }

    /// Adds a route to `destination/prefix` over a link, in the main table. Replaces the route to
    /// the same network, if there is one.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the link does not exist or is down.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix: u8,
        interface: u32,
        gateway: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        let flags = flag(libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        let mut request = Request::new(libc::RTM_NEWROUTE, flags);
        let mut header = [0; HEADER_LEN];
        header[0] = family(destination);
        header[1] = prefix;
        header[4] = libc::RT_TABLE_MAIN;
        header[5] = libc::RTPROT_STATIC;
        header[6] = if gateway.is_some() || destination.is_ipv6() {
            libc::RT_SCOPE_UNIVERSE
        } else {
            libc::RT_SCOPE_LINK
        };
        header[7] = libc::RTN_UNICAST;
        request.fixed(&header);
        if prefix > 0 {
            request.address(libc::RTA_DST, destination);
        }
        if let Some(gateway) = gateway {
            request.address(libc::RTA_GATEWAY, gateway);
        }
        request.number(libc::RTA_OIF, interface);
        self.change(request, || {
            format!("add a route to {destination}/{prefix} by interface {interface}")
        })
    }
}

const fn full_prefix(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Length of `struct rtmsg`: family, prefix, source prefix, TOS, table, protocol, scope, kind: u8;
/// flags u32.
const HEADER_LEN: usize = 12;
const TABLE_MAIN: u32 = libc::RT_TABLE_MAIN as u32;
