//! Tests only: control connections between machines, in memory. As with TCP, a send may be partial,
//! and received bytes may come in two parts; a seed decides how the bytes are split.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    thread,
};

use base::{Instant, LinkEvent, LinkId, Rng};

use crate::LinkCommand;

/// The methods by which the fabric drives a machine.
pub(crate) trait Linked {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]);
    fn poll_link(&mut self) -> Option<LinkCommand<'_>>;
    fn link_sent(&mut self, link: LinkId, taken: usize);
    fn link_opened(&mut self, key: u32, link: LinkId);
}

/// Runs a test with IPv4 addresses, then with IPv6 addresses. These are the addresses of control
/// connections; the fabric has no multicast group.
pub(crate) fn over_ipv4_and_ipv6(test: impl Fn() + Copy + Send + 'static) {
    test();
    over_ipv6(test);
}

/// Runs a test with addresses of IPv6, all of one network. The test runs on a thread named `IPV6`:
/// there, [`Fabric::address`] gives addresses of IPv6.
#[allow(
    clippy::disallowed_types,
    reason = "the test has a thread anyway; here its name says more"
)]
pub(crate) fn over_ipv6(test: impl Fn() + Send + 'static) {
    let run = thread::Builder::new().name(IPV6.to_owned());
    run.spawn(test).unwrap().join().unwrap();
}

const IPV6: &str = "over IPv6";

/// All connections. Nodes are numbered; node `n` has the address 10.0.0.`n`, or fd00::`n`.
#[derive(Debug)]
pub(crate) struct Fabric {
    rng: Rng,
    next: u32,
    /// For each link: its node, and the node and link of the other end.
    ends: BTreeMap<LinkId, (usize, usize, LinkId)>,
    inbox: BTreeMap<usize, VecDeque<(LinkId, LinkEvent, Vec<u8>)>>,
    /// Nodes that accept connections.
    pub(crate) listening: Vec<usize>,
    pub(crate) bytes: u64,
    /// The links whose node has paused reading, so that their data waits.
    pub(crate) paused: BTreeSet<LinkId>,
}

impl Fabric {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            next: 1,
            ends: BTreeMap::new(),
            inbox: BTreeMap::new(),
            listening: vec![0],
            bytes: 0,
            paused: BTreeSet::new(),
        }
    }

    pub(crate) fn address(node: usize) -> SocketAddr {
        let last = u8::try_from(node).unwrap();
        let address: IpAddr = if thread::current().name() == Some(IPV6) {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, last).into()
        };
        SocketAddr::new(address, 4000)
    }

    /// Carries out the next commands of the machine at `node`, at most 64. Returns true when there
    /// was at least one.
    pub(crate) fn pump(&mut self, node: usize, machine: &mut dyn Linked) -> bool {
        let mut is_busy = false;
        for _ in 0..64 {
            match machine.poll_link() {
                None => break,
                Some(LinkCommand::Open { peer, key }) => {
                    let link = self.open(node, peer);
                    machine.link_opened(key, link);
                }
                Some(LinkCommand::Send { link, bytes }) => {
                    let most = self.rng.between(1, 2 * bytes.len() as u64 + 40_000);
                    let taken = bytes.len().min(usize::try_from(most).unwrap());
                    let (bytes, is_short) = (bytes[..taken].to_vec(), taken < bytes.len());
                    self.send(node, link, bytes, is_short);
                    machine.link_sent(link, taken);
                }
                Some(LinkCommand::Pause { link, is_paused }) => {
                    if is_paused {
                        self.paused.insert(link);
                    } else {
                        self.paused.remove(&link);
                    }
                }
                Some(LinkCommand::Close { link }) => self.close(link),
            }
            is_busy = true;
        }
        is_busy
    }

    /// Gives `node` up to `count` of its events. Returns true when there was at least one.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        node: usize,
        machine: &mut dyn Linked,
        count: usize,
    ) -> bool {
        for n in 0..count {
            // On a paused end, every event except `Writable` waits, even `Closed`.
            let inbox = self.inbox.entry(node).or_default();
            let next = inbox.iter().position(|(link, event, _)| {
                !self.paused.contains(link) || *event == LinkEvent::Writable
            });
            let Some((link, event, data)) = next.and_then(|next| inbox.remove(next)) else {
                return n > 0;
            };
            if event == LinkEvent::Data && data.len() > 1 && self.rng.chance(1, 4) {
                let cut = usize::try_from(self.rng.between(1, data.len() as u64 - 1)).unwrap();
                machine.handle_link(now, link, event, &data[..cut]);
                machine.handle_link(now, link, event, &data[cut..]);
            } else {
                machine.handle_link(now, link, event, &data);
            }
        }
        true
    }

    /// Ends a node's process: resets its connections, and discards its events.
    pub(crate) fn crash(&mut self, node: usize) {
        self.inbox.remove(&node);
        let gone: Vec<_> = self
            .ends
            .iter()
            .filter(|(_, end)| end.0 == node)
            .map(|(l, _)| *l)
            .collect();
        for link in gone {
            self.close(link);
        }
    }

    /// Resets every connection of a node without killing it.
    pub(crate) fn cut(&mut self, node: usize) {
        let links: Vec<_> = self
            .ends
            .iter()
            .filter(|(_, end)| end.0 == node)
            .map(|(l, _)| *l)
            .collect();
        for link in links {
            self.close(link);
            self.push(node, link, LinkEvent::Closed, Vec::new());
        }
    }

    fn open(&mut self, node: usize, peer: SocketAddr) -> LinkId {
        let (near, far) = (LinkId(self.next), LinkId(self.next + 1));
        self.next += 2;
        let target = self
            .listening
            .iter()
            .copied()
            .find(|&node| Self::address(node) == peer);
        let Some(target) = target else {
            self.push(node, near, LinkEvent::Closed, Vec::new());
            return near;
        };
        self.ends.insert(near, (node, target, far));
        self.ends.insert(far, (target, node, near));
        self.push(node, near, LinkEvent::Opened, Vec::new());
        let peer = Self::address(node);
        self.push(target, far, LinkEvent::Accepted { peer }, Vec::new());
        near
    }

    pub(crate) fn send(&mut self, node: usize, link: LinkId, bytes: Vec<u8>, is_short: bool) {
        if let Some(&(_, target, far)) = self.ends.get(&link) {
            self.bytes += bytes.len() as u64;
            self.push(target, far, LinkEvent::Data, bytes);
        }
        if is_short {
            self.push(node, link, LinkEvent::Writable, Vec::new());
        }
    }

    fn close(&mut self, link: LinkId) {
        if let Some((_, target, far)) = self.ends.remove(&link) {
            self.ends.remove(&far);
            self.push(target, far, LinkEvent::Closed, Vec::new());
        }
    }

    /// Opens a connection on which the test itself can send any bytes.
    pub(crate) fn dial(&mut self, node: usize, target: usize) -> LinkId {
        self.open(node, Self::address(target))
    }

    /// Takes all events of a node that has no machine, because the test itself plays the node.
    pub(crate) fn take(&mut self, node: usize) -> Vec<(LinkEvent, Vec<u8>)> {
        let events = self.inbox.remove(&node).unwrap_or_default();
        events
            .into_iter()
            .map(|(_, event, data)| (event, data))
            .collect()
    }

    fn push(&mut self, node: usize, link: LinkId, event: LinkEvent, data: Vec<u8>) {
        self.inbox
            .entry(node)
            .or_default()
            .push_back((link, event, data));
    }
}

macro_rules! linked {
    ($($type:ty),+) => {
        $(impl $crate::fabric::Linked for $type {
            fn handle_link(
                &mut self,
                now: ::base::Instant,
                link: ::base::LinkId,
                event: ::base::LinkEvent,
                data: &[u8],
            ) {
                <$type>::handle_link(self, now, link, event, data);
            }
            fn poll_link(&mut self) -> Option<$crate::LinkCommand<'_>> {
                <$type>::poll_link(self)
            }
            fn link_sent(&mut self, link: ::base::LinkId, taken: usize) {
                <$type>::link_sent(self, link, taken);
            }
            fn link_opened(&mut self, key: u32, link: ::base::LinkId) {
                <$type>::link_opened(self, key, link);
            }
        })+
    };
}
pub(crate) use linked;
