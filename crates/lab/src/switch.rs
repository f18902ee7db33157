//! The switch between the hosts: a bridge in its own namespace.

use std::{os::fd::AsFd as _, time::Duration};

use sys::{
    namespace::Namespace,
    netlink::{Ethtool, Link, LinkStatistics, Rtnetlink, TokenBucket, Veth},
};

use crate::{
    Host, LabError, LabSpec, LongPath,
    host::{INTERFACE, in_namespace},
};

/// A bridge `br0` with a port `p1`, `p2`, ... for each host.
#[derive(Debug)]
pub(crate) struct Switch {
    namespace: Namespace,
}

impl Switch {
    /// Makes the bridge and a cable from it to every host.
    pub(crate) fn new(spec: &LabSpec, hosts: &[Host]) -> Result<Self, LabError> {
        let namespace = Namespace::network()
            .map_err(|cause| LabError::no_network("make the switch's network namespace", cause))?;
        in_namespace(&namespace, || -> Result<(), LabError> {
            let mut netlink = Rtnetlink::open()?;
            netlink.add_bridge(BRIDGE)?;
            let bridge = netlink.link_index(BRIDGE)?;
            for host in hosts {
                let port = port_name(host);
                netlink.add_veth(&Veth {
                    name: &port,
                    peer_name: INTERFACE,
                    peer_namespace: host.namespace().as_fd(),
                    index: None,
                    mtu_bytes: spec.mtu_bytes(),
                })?;
                let index = netlink.link_index(&port)?;
                netlink.set_master(index, Some(bridge))?;
                netlink.set_up(index, true)?;
                if spec.is_segmenting() {
                    let mut ethtool = Ethtool::open()?;
                    for feature in SEGMENTATION {
                        ethtool.set_feature(index, feature, false)?;
                    }
                }
            }
            if let Some(mtu) = spec.mtu_bytes() {
                netlink.set_mtu(bridge, mtu)?;
            }
            netlink.set_up(bridge, true)?;
            Ok(())
        })??;
        Ok(Self { namespace })
    }

    /// Switches the port of one host on or off. While the port is off, the host's `e0` has no
    /// carrier; it keeps its addresses.
    pub(crate) fn set_port(&self, host: &Host, up: bool) -> Result<(), LabError> {
        in_namespace(&self.namespace, || {
            let mut netlink = Rtnetlink::open()?;
            let index = netlink.link_index(&port_name(host))?;
            Ok(netlink.set_up(index, up)?)
        })?
    }

    pub(crate) fn set_bottleneck(&self, host: &Host, bucket: &TokenBucket) -> Result<(), LabError> {
        in_namespace(&self.namespace, || {
            let mut netlink = Rtnetlink::open()?;
            let index = netlink.link_index(&port_name(host))?;
            Ok(netlink.set_token_bucket(index, bucket)?)
        })?
    }

    /// Takes a host's port out of the bridge, and joins it to the bridge by a long path.
    pub(crate) fn lengthen(&self, host: &Host, delay: Duration) -> Result<LongPath, LabError> {
        let number = host.number();
        let (near, far) = (format!("d{number}"), format!("q{number}"));
        in_namespace(&self.namespace, || {
            let mut netlink = Rtnetlink::open()?;
            let port = netlink.link_index(&port_name(host))?;
            let mtu_bytes = Some(netlink.link(&port_name(host))?.mtu_bytes);
            netlink.add_veth(&Veth {
                name: &near,
                peer_name: &far,
                peer_namespace: self.namespace.as_fd(),
                index: None,
                mtu_bytes,
            })?;
            let [near, far] = [netlink.link_index(&near)?, netlink.link_index(&far)?];
            let bridge = netlink.link_index(BRIDGE)?;
            netlink.set_master(port, None)?;
            netlink.set_master(far, Some(bridge))?;
            for index in [near, far] {
                netlink.set_up(index, true)?;
            }
            LongPath::between(port, near, delay)
        })?
    }

    /// Returns the switch's count of what it has sent to one host so far.
    pub(crate) fn sent_to(&self, host: &Host) -> Result<LinkStatistics, LabError> {
        in_namespace(&self.namespace, || {
            let mut netlink = Rtnetlink::open()?;
            let index = netlink.link_index(&port_name(host))?;
            Ok(netlink.statistics(index)?)
        })?
    }

    /// Returns true when every port passes packets. The bridge `br0` itself does not count: it
    /// sends nothing.
    pub(crate) fn is_ready(&self) -> Result<bool, LabError> {
        in_namespace(&self.namespace, || {
            let links = Rtnetlink::open()?.links()?;
            let mut ports = links.iter().filter(|link| link.master.is_some());
            Ok(ports.all(Link::is_passing))
        })?
    }

    /// Returns the port that leads to one host.
    pub(crate) fn port(&self, host: &Host) -> Result<Link, LabError> {
        in_namespace(&self.namespace, || {
            Ok(Rtnetlink::open()?.link(&port_name(host))?)
        })?
    }

    pub(crate) const fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

fn port_name(host: &Host) -> String {
    format!("p{}", host.number())
}

const BRIDGE: &str = "br0";
/// The features by which a port passes on runs of UDP and TCP in one piece.
const SEGMENTATION: [&str; 3] = [
    "tx-udp-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];
