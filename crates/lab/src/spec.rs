//! The specification of a lab.

use crate::LabError;

/// The specification of a lab, made with chained setters; [`Lab::new`](crate::Lab::new) checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabSpec {
    hosts: u8,
    mtu: Option<u32>,
    is_direct: bool,
    segments_at_switch: bool,
}

impl LabSpec {
    /// Specifies `hosts` hosts on one switch, with an MTU of 1500 bytes; the switch keeps GSO runs
    /// whole.
    #[must_use]
    pub const fn new(hosts: u8) -> Self {
        Self {
            hosts,
            mtu: None,
            is_direct: false,
            segments_at_switch: false,
        }
    }

    /// Sets the largest IP packet, in bytes, on every interface. Default 1500; IPv6 needs 1280.
    #[must_use]
    pub const fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Connects two hosts by one cable without a switch: the fastest path there is.
    #[must_use]
    pub const fn direct(mut self) -> Self {
        self.is_direct = true;
        self
    }

    /// Makes the switch cut GSO runs of UDP and TCP into single packets, so that random loss drops
    /// packets and not whole runs. The switch's ports cut them: cutting at the sender costs twice
    /// as much.
    #[must_use]
    pub const fn segments_at_switch(mut self) -> Self {
        self.segments_at_switch = true;
        self
    }

    pub(crate) const fn host_count(&self) -> u8 {
        self.hosts
    }

    pub(crate) const fn mtu_bytes(&self) -> Option<u32> {
        self.mtu
    }

    pub(crate) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub(crate) const fn is_segmenting(&self) -> bool {
        self.segments_at_switch
    }

    pub(crate) fn check(&self) -> Result<(), LabError> {
        if !(1..=HOSTS_MAX).contains(&self.hosts) {
            return Err(LabError::Spec("a lab has 1 to 250 hosts"));
        }
        if self.is_direct && self.hosts != 2 {
            return Err(LabError::Spec("a direct cable joins exactly two hosts"));
        }
        if self.is_direct && self.segments_at_switch {
            return Err(LabError::Spec(
                "only a switch segments packets, and a direct cable has none",
            ));
        }
        if self.mtu.is_some_and(|mtu| !(68..=65_535).contains(&mtu)) {
            return Err(LabError::Spec("an MTU is 68 to 65535 bytes"));
        }
        Ok(())
    }
}

/// The most hosts of a lab: numbers from 1 to 250 fit the last octet of an address, and leave some
/// of the /24 free.
const HOSTS_MAX: u8 = 250;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_labs_are_refused() {
        assert!(
            LabSpec::new(4)
                .mtu(9000)
                .segments_at_switch()
                .check()
                .is_ok()
        );
        assert!(LabSpec::new(2).direct().check().is_ok());
        for spec in [
            LabSpec::new(0),
            LabSpec::new(251),
            LabSpec::new(3).direct(),
            LabSpec::new(2).direct().segments_at_switch(),
            LabSpec::new(2).mtu(67),
        ] {
            assert!(spec.check().is_err(), "{spec:?}");
        }
    }
}
