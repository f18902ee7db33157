//! The lab as a whole: built, changed and taken down.

use std::{
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use sys::{
    namespace::{Namespace, NamespaceId, end_processes_in},
    netlink::{Link, LinkState, Rtnetlink, TokenBucket, Veth},
};

use crate::{
    Host, LabError, LabSpec, LongPath,
    host::{INTERFACE, SECOND_INTERFACE, in_namespace},
    isolation,
    switch::Switch,
};

/// A running lab. Dropping it kills every process in it and removes all of it.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<Host>,
    switch: Option<Switch>,
}

impl Lab {
    /// Builds a lab and waits until packets pass between all hosts.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] when this process may not make network namespaces: see
    /// [`isolated`](crate::isolated) and
    /// [`enter_user_namespace_or_explain`](crate::enter_user_namespace_or_explain).
    pub fn new(spec: &LabSpec) -> Result<Self, LabError> {
        spec.check()?;
        isolation::check_permitted()?;
        let hosts = (1..=spec.host_count())
            .map(Host::new)
            .collect::<Result<Vec<_>, _>>()?;
        let switch = if spec.is_direct() {
            connect(INTERFACE, spec.mtu_bytes(), &hosts[0], &hosts[1])?;
            None
        } else {
            Some(Switch::new(spec, &hosts)?)
        };
        let lab = Self { hosts, switch };
        for host in &lab.hosts {
            host.configure()?;
        }
        lab.await_ready()?;
        Ok(lab)
    }

    /// Returns the host at `index`, from 0.
    ///
    /// **Panics**: when the lab has fewer hosts.
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Returns all hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Makes the switch send at most `bytes_per_s` to the host at `index`, link headers included,
    /// with room for `queue_bytes` in its queue. The switch sends single packets or short bursts,
    /// as a slow cable would.
    ///
    /// # Errors
    /// When the hosts are joined directly, or the kernel lacks `sch_tbf`.
    pub fn set_bottleneck(
        &self,
        index: usize,
        bytes_per_s: u32,
        queue_bytes: u32,
    ) -> Result<(), LabError> {
        let bucket = TokenBucket {
            bytes_per_s,
            burst_bytes: (bytes_per_s / BURSTS_PER_S).max(BURST_BYTES_MIN),
            queue_bytes,
        };
        self.switch()?.set_bottleneck(&self.hosts[index], &bucket)
    }

    /// Makes the path between the switch and the host at `index` long: a packet takes `delay` in
    /// each direction. Dropping the returned path cuts it. Two threads of this process carry the
    /// packets, at most some Gbit/s. Call this at most once for each host, and before
    /// [`Lab::set_bottleneck`].
    ///
    /// # Errors
    /// When the hosts are joined directly, or the kernel refuses.
    pub fn lengthen(&self, index: usize, delay: Duration) -> Result<LongPath, LabError> {
        let switch = self.switch()?;
        let path = switch.lengthen(&self.hosts[index], delay)?;
        await_that("a long path", || switch.is_ready())?;
        Ok(path)
    }

    /// Returns the number of bytes that the switch has sent to the host at `index`, link headers
    /// included.
    ///
    /// # Errors
    /// When the hosts are joined directly, or the kernel does not answer.
    pub fn bytes_to(&self, index: usize) -> Result<u64, LabError> {
        Ok(self.switch()?.sent_to(&self.hosts[index])?.tx_bytes)
    }

    /// Unplugs the cable of the host at `index`, and waits until the kernel has noticed. The host's
    /// interface keeps its addresses and routes, and loses its carrier.
    ///
    /// # Errors
    /// When the hosts are joined directly, or the kernel refuses.
    pub fn unplug(&self, index: usize) -> Result<(), LabError> {
        self.set_cable(index, false)?;
        self.await_loss_of_carrier(index)
    }

    /// Plugs the cable of the host at `index` in again, and waits until packets pass, if the host's
    /// interface is on.
    ///
    /// # Errors
    /// When the hosts are joined directly, or the kernel refuses.
    pub fn plug(&self, index: usize) -> Result<(), LabError> {
        self.set_cable(index, true)?;
        self.await_cable(index)
    }

    /// Switches the interface of the host at `index` on or off. Off removes its IPv6 addresses and
    /// all its routes; on restores them. Waits until the kernel has noticed. After switching on,
    /// this means until packets pass, unless the far end of the cable is off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_interface_up(&self, index: usize, up: bool) -> Result<(), LabError> {
        let host = &self.hosts[index];
        if up {
            host.configure()?;
            return self.await_cable(index);
        }
        host.switch_off()?;
        self.await_loss_of_carrier(index)
    }

    /// Joins two hosts by a cable of their own beside the switch: a second network. Each end has
    /// the interface `e1`, with an address in 10.78.0.0/24 and one in fd78::/64 that end with the
    /// host's number. Waits until packets pass. No host has a route from one network to the other.
    ///
    /// # Errors
    /// When the kernel refuses, for example because a host has a second cable already.
    pub fn add_cable(&self, one: usize, other: usize) -> Result<(), LabError> {
        let ends = [&self.hosts[one], &self.hosts[other]];
        connect(SECOND_INTERFACE, None, ends[0], ends[1])?;
        ends.iter().try_for_each(|host| host.configure_second())?;
        await_that("the second cable", || {
            Ok(ends[0].is_second_passing()? && ends[1].is_second_passing()?)
        })
    }

    fn set_cable(&self, index: usize, up: bool) -> Result<(), LabError> {
        self.switch()?.set_port(&self.hosts[index], up)
    }

    fn switch(&self) -> Result<&Switch, LabError> {
        self.switch.as_ref().ok_or(LabError::Spec(
            "hosts that are joined directly have no switch to pull a cable from, or to slow down",
        ))
    }

    /// Returns the other end of the cable of the host at `index`.
    fn far_end(&self, index: usize) -> Result<Link, LabError> {
        match &self.switch {
            Some(switch) => switch.port(&self.hosts[index]),
            None => self.hosts[1 - index].link(),
        }
    }

    /// Waits until both ends of the cable of the host at `index` pass packets, unless one end is
    /// off.
    fn await_cable(&self, index: usize) -> Result<(), LabError> {
        let host = &self.hosts[index];
        if !(host.link()?.flags.is_up() && self.far_end(index)?.flags.is_up()) {
            return Ok(());
        }
        await_that(&format!("the cable of host {}", host.number()), || {
            Ok(self.far_end(index)?.is_passing() && host.is_ready()?)
        })
    }

    /// Waits until both ends of a host's cable know that no packet passes. The kernel takes up to a
    /// second for that; a check before then would see the old state.
    fn await_loss_of_carrier(&self, index: usize) -> Result<(), LabError> {
        let host = &self.hosts[index];
        let what = format!("the loss of carrier at host {}", host.number());
        await_that(&what, || {
            let ends = [host.link()?, self.far_end(index)?];
            Ok(ends.iter().all(|end| end.state != LinkState::Up))
        })
    }

    fn await_ready(&self) -> Result<(), LabError> {
        let switch_ready = || self.switch.as_ref().map_or(Ok(true), Switch::is_ready);
        await_that("the lab's switch", switch_ready)?;
        for host in &self.hosts {
            await_that(&format!("host {}", host.number()), || host.is_ready())?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let switch = self.switch.iter().map(Switch::namespace);
        let namespaces: Vec<NamespaceId> = self
            .hosts
            .iter()
            .map(Host::namespace)
            .chain(switch)
            .filter_map(|namespace| namespace.id().ok())
            .collect();
        let _ended = end_processes_in(&namespaces);
    }
}

/// Makes a cable between two hosts, with an interface called `interface` at each end.
fn connect(
    interface: &str,
    mtu_bytes: Option<u32>,
    one: &Host,
    other: &Host,
) -> Result<(), LabError> {
    let namespace: &Namespace = one.namespace();
    in_namespace(namespace, || {
        Ok(Rtnetlink::open()?.add_veth(&Veth {
            name: interface,
            peer_name: interface,
            peer_namespace: other.namespace().as_fd(),
            // When the two ends of a cable have different interface numbers, the kernel looks at
            // the carrier at once; when they have the same number, it looks within a second.
            index: Some(NEAR_INDEX),
            mtu_bytes,
        })?)
    })?
}

fn await_that(what: &str, is_ready: impl Fn() -> Result<bool, LabError>) -> Result<(), LabError> {
    let start = Instant::now();
    while !is_ready()? {
        if start.elapsed() > READY_LIMIT {
            return Err(LabError::NotReady {
                what: what.to_owned(),
                waited_ms: start.elapsed().as_millis(),
            });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Bursts a second of a slow link. On a busy machine a timer may be late, so one burst holds a
/// 4,000th of a second's bytes, and at least two packets.
const BURSTS_PER_S: u32 = 4_000;
const BURST_BYTES_MIN: u32 = 3_028;
/// The interface number at the first end of a cable that joins two hosts; no other interface of a
/// host has so high a number.
const NEAR_INDEX: u32 = 1_000;
/// How long to wait for a host. The kernel may take 1 s to see a carrier, and 2 s to check an IPv6
/// address for duplicates.
const READY_LIMIT: Duration = Duration::from_secs(10);
