//! Messages through the library's own [`Publisher`] and [`Subscriber`], without reports: only the
//! transmit window can hold a message back.
//!
//! ```text
//!   client publishes to the group        -->  reflector subscribes
//!   client subscribes to the next group  <--  reflector publishes
//! ```

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use measure::Repairs;
use net::{Group, SystemError};
use towline::{Publisher, Received, Selector, SendStatus, SessionBuilder, Snapshot, Subscriber};

use super::carrier::{Carrier, Rooms};
use crate::Error;

#[derive(Debug)]
pub(super) struct Pgm {
    publisher: Publisher,
    subscriber: Subscriber,
    /// Receive calls since the last turn that this carrier gave the publisher.
    receives: u32,
}

impl Pgm {
    /// Opens the client's end; `group` is the one that the reflectors listen to.
    ///
    /// # Errors
    /// When the sessions cannot be opened.
    pub(super) fn towards(group: SocketAddr, wanted: Option<&Selector>) -> Result<Self, Error> {
        Self::open(group, up(group)?, wanted)
    }

    /// Opens the reflector's end.
    ///
    /// # Errors
    /// When the sessions cannot be opened.
    pub(super) fn at(group: SocketAddr, wanted: Option<&Selector>) -> Result<Self, Error> {
        Self::open(up(group)?, group, wanted)
    }

    fn open(to: SocketAddr, from: SocketAddr, wanted: Option<&Selector>) -> Result<Self, Error> {
        let session = |address| {
            let session = SessionBuilder::new(Group::new(address)?).interface(wanted.cloned());
            Ok::<_, Error>(session.reports(false))
        };
        Ok(Self {
            subscriber: Subscriber::open(&session(from)?)?,
            publisher: Publisher::builder(session(to)?).open()?,
            receives: 0,
        })
    }

    /// Returns the counters of both sessions, added up.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.publisher.snapshot(&mut snapshot);
        self.subscriber.snapshot(&mut snapshot);
        snapshot
    }

    /// Gives the publisher a turn.
    fn turn(&mut self) -> io::Result<()> {
        self.receives = 0;
        self.publisher.turn().map(drop).map_err(io::Error::other)
    }
}

impl Carrier for Pgm {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let status = self.publisher.try_send(message).map_err(io::Error::other)?;
        // A message leaves at once, without waiting for a fuller run.
        self.publisher.send_ready();
        match status {
            SendStatus::Taken => Ok(()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        // Reading the clock at each receive would delay a spinning thread.
        self.receives += 1;
        if self.receives >= RECEIVES_PER_TURN {
            self.turn()?;
        }
        match self.subscriber.try_recv().map_err(io::Error::other)? {
            Ok(Received::Message { data: bytes, .. }) => {
                let room = rooms.first();
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                rooms.set_len(0, len);
                Ok(1)
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let limit = limit.min(TURN_INTERVAL);
        let now = self.subscriber.now();
        if now.since(self.publisher.turned_at()) >= NAKS_INTERVAL {
            self.turn()?;
        }
        self.subscriber.wait(Some(now + limit));
        Ok(())
    }

    fn repairs(&self) -> Option<Repairs> {
        let mut repairs = Repairs::default();
        for (set, info, value) in self.snapshot().iter() {
            match (set, info.name) {
                ("source", "naks") => repairs.naks_received = value,
                ("source", "rdata_packets") => repairs.repairs_sent = value,
                ("source", "rdata_bytes") => repairs.repair_bytes_sent = value,
                ("receiver", "nak_packets") => repairs.naks_sent = value,
                ("receiver", "rdata_packets") => repairs.repairs_received = value,
                _ => {}
            }
        }
        Some(repairs)
    }

    fn socket_drops(&self) -> Option<u64> {
        let snapshot = self.snapshot();
        let is_drops = |set: &str, name: &str| (set, name) == ("udp", "kernel_drops");
        let drops = snapshot
            .iter()
            .filter(|(set, info, _)| is_drops(set, info.name));
        Some(drops.map(|(_, _, count)| count).sum())
    }
}

/// Returns the group for answers: the next address. With one group for both ways, each end would
/// hear its own messages.
fn up(group: SocketAddr) -> Result<SocketAddr, Error> {
    let next: Option<IpAddr> = match group.ip() {
        IpAddr::V4(ip) => ip
            .to_bits()
            .checked_add(1)
            .map(|it| Ipv4Addr::from_bits(it).into()),
        IpAddr::V6(ip) => ip
            .to_bits()
            .checked_add(1)
            .map(|it| Ipv6Addr::from_bits(it).into()),
    };
    let next = next.filter(IpAddr::is_multicast).ok_or_else(|| {
        let (cause, advice) = match group.ip().is_multicast() {
            true => (
                "answers use the next group address, and none follows this one",
                "name a group with a lower address",
            ),
            false => (
                "it is not a multicast group",
                "give both ends the same group",
            ),
        };
        SystemError::refused("measure over PGM with", group, cause).advise(advice)
    })?;
    let mut answers = group;
    answers.set_ip(next);
    Ok(answers)
}

/// The longest time that a sleeping thread leaves the publisher without a turn: long enough for the
/// subscriber to sleep in its socket. In a thread that spins, the publisher gets a turn after
/// `RECEIVES_PER_TURN` receive calls.
const TURN_INTERVAL: Duration = Duration::from_millis(10);
const RECEIVES_PER_TURN: u32 = 256;
/// The time between two looks of the publisher at NAKs while messages come and go.
const NAKS_INTERVAL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_through_the_group_after() {
        let next = |text: &str| up(text.parse().unwrap()).map(|it| it.to_string());
        assert_eq!(next("239.192.0.255:7720").unwrap(), "239.192.1.0:7720");
        assert_eq!(next("[ff15::1%3]:7720").unwrap(), "[ff15::2%3]:7720");
        let last = next("239.255.255.255:7720").unwrap_err().to_string();
        assert!(
            last.contains("answers use the next group address"),
            "{last}"
        );
    }
}
