//! The kernel's counters outside this process's sockets: of one interface, and of IP and UDP as a
//! whole.

use std::{fs, net::IpAddr};

use net::Interfaces;
use serde::{Deserialize, Serialize};
use sys::netlink::{LinkStatistics, Rtnetlink};

/// Counts of one trial at one end. The interface counts the packets: a super-packet that stays
/// whole is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct KernelCounters {
    /// Packets that the interface sent.
    pub tx_packets: u64,
    /// Bytes that the interface sent, with Ethernet headers.
    pub tx_bytes: u64,
    /// Packets that the interface or its queue dropped instead of sending.
    pub tx_dropped: u64,
    /// Packets that the interface received.
    pub rx_packets: u64,
    /// Bytes that the interface received.
    pub rx_bytes: u64,
    /// Packets that arrived at the interface and were dropped before any socket.
    pub rx_lost: u64,
    /// Fragments into which this host cut datagrams that it sent.
    pub fragments_made: u64,
    /// Fragments that arrived.
    pub fragments_received: u64,
    /// Datagrams that this host could not put together from their fragments, for whatever reason.
    pub reassembly_failures: u64,
    /// How many of these failed because fragments did not come in time.
    pub reassembly_timeouts: u64,
    /// UDP datagrams that any socket of the host dropped because it was full.
    pub udp_receive_buffer_errors: u64,
}

/// A reader of the counters of one interface and of the host.
#[derive(Debug)]
pub(super) struct CounterReader {
    netlink: Option<Rtnetlink>,
    interface: u32,
    is_ipv6: bool,
}

/// The facts about an interface that a sweep needs.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu_bytes: u32,
}

impl Port {
    /// Returns the interface that has the address `local`.
    pub(super) fn of(local: IpAddr) -> Option<Self> {
        let all = Interfaces::read().ok()?;
        all.with_address(local).map(|found| Self {
            name: found.name.clone(),
            index: found.index,
            mtu_bytes: found.mtu_bytes,
        })
    }
}

impl CounterReader {
    pub(super) fn new(interface: u32, is_ipv6: bool) -> Self {
        Self {
            netlink: Rtnetlink::open().ok(),
            interface,
            is_ipv6,
        }
    }

    /// Reads the counters. A counter that the kernel does not tell stays 0.
    pub(super) fn read(&mut self) -> KernelCounters {
        let link = self
            .netlink
            .as_mut()
            .and_then(|netlink| netlink.statistics(self.interface).ok())
            .unwrap_or_default();
        // These files are of this thread's network namespace, which may not be the process's.
        let text = |name: &str| {
            fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        };
        let host = if self.is_ipv6 {
            parse_snmp6(&text("snmp6"))
        } else {
            parse_snmp(&text("snmp"))
        };
        with_link(host, &link)
    }
}

impl KernelCounters {
    /// Returns the counts since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            tx_packets: self.tx_packets.saturating_sub(earlier.tx_packets),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
            rx_packets: self.rx_packets.saturating_sub(earlier.rx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            rx_lost: self.rx_lost.saturating_sub(earlier.rx_lost),
            fragments_made: self.fragments_made.saturating_sub(earlier.fragments_made),
            fragments_received: self
                .fragments_received
                .saturating_sub(earlier.fragments_received),
            reassembly_failures: self
                .reassembly_failures
                .saturating_sub(earlier.reassembly_failures),
            reassembly_timeouts: self
                .reassembly_timeouts
                .saturating_sub(earlier.reassembly_timeouts),
            udp_receive_buffer_errors: self
                .udp_receive_buffer_errors
                .saturating_sub(earlier.udp_receive_buffer_errors),
        }
    }
}

const fn with_link(host: KernelCounters, link: &LinkStatistics) -> KernelCounters {
    KernelCounters {
        tx_packets: link.tx_packets,
        tx_bytes: link.tx_bytes,
        tx_dropped: link.tx_dropped,
        rx_packets: link.rx_packets,
        rx_bytes: link.rx_bytes,
        rx_lost: link.rx_lost(),
        ..host
    }
}

/// Reads `/proc/net/snmp`: for each protocol a line of names and a line of values.
fn parse_snmp(text: &str) -> KernelCounters {
    let value = |protocol: &str, name: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next()?, lines.next()?);
        let at = names.split_whitespace().position(|it| it == name)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    let count = |protocol, name| value(protocol, name).unwrap_or(0);
    KernelCounters {
        fragments_made: count("Ip:", "FragCreates"),
        fragments_received: count("Ip:", "ReasmReqds"),
        reassembly_failures: count("Ip:", "ReasmFails"),
        reassembly_timeouts: count("Ip:", "ReasmTimeout"),
        udp_receive_buffer_errors: count("Udp:", "RcvbufErrors"),
        ..KernelCounters::default()
    }
}

/// Reads `/proc/net/snmp6`: a name and a value on each line.
fn parse_snmp6(text: &str) -> KernelCounters {
    let count = |name: &str| {
        let mut fields = text
            .lines()
            .filter_map(|line| line.split_once(char::is_whitespace));
        let found = fields.find(|(key, _)| *key == name);
        found.map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
    };
    KernelCounters {
        fragments_made: count("Ip6FragCreates"),
        fragments_received: count("Ip6ReasmReqds"),
        reassembly_failures: count("Ip6ReasmFails"),
        reassembly_timeouts: count("Ip6ReasmTimeout"),
        udp_receive_buffer_errors: count("Udp6RcvbufErrors"),
        ..KernelCounters::default()
    }
}

/// Returns how many seconds the kernel keeps the fragments of an incomplete datagram.
pub(super) fn reassembly_timeout_s() -> u64 {
    fs::read_to_string("/proc/sys/net/ipv4/ipfrag_time")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(REASSEMBLY_TIMEOUT_S)
}

/// Seconds for which the kernel keeps fragments by default.
const REASSEMBLY_TIMEOUT_S: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read_by_name() {
        let snmp = "Ip: Forwarding ReasmTimeout ReasmReqds ReasmFails FragCreates\n\
                    Ip: 1 3 40 5 60\n\
                    Udp: InDatagrams RcvbufErrors\nUdp: 7 8\n\
                    UdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 0\n";
        let counters = parse_snmp(snmp);
        assert_eq!(counters.reassembly_timeouts, 3);
        assert_eq!(counters.reassembly_failures, 5);
        assert_eq!(counters.fragments_received, 40);
        assert_eq!(counters.fragments_made, 60);
        assert_eq!(counters.udp_receive_buffer_errors, 8);
        let snmp6 = "Ip6ReasmFails                  \t9\nUdp6RcvbufErrors \t4\n";
        let counters = parse_snmp6(snmp6);
        assert_eq!(counters.reassembly_failures, 9);
        assert_eq!(counters.udp_receive_buffer_errors, 4);
        assert_eq!(parse_snmp(""), KernelCounters::default());
    }

    #[test]
    fn the_loopback_interface_counts() {
        let port = Port::of("127.0.0.1".parse().unwrap()).unwrap();
        let mut reader = CounterReader::new(port.index, false);
        let before = reader.read();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(&[0; 100], socket.local_addr().unwrap())
            .unwrap();
        let counted = reader.read().since(&before);
        assert!(counted.tx_packets >= 1 && counted.tx_bytes >= 100);
    }
}
