//! `pcapng:FILE`: time stamps in nanoseconds, directions, and the account as interface statistics.

use sys::packet::{Checksum, Direction};
use wire::pcapng::{Encoder, InterfaceText, PacketNotes, SectionText, StatisticsValues};

use super::{Output, Sink};
use crate::{Account, CaptureError, Interface, Packet, Unwritten};

/// A sink that writes a pcapng file.
#[derive(Debug)]
pub struct PcapngSink {
    output: Output,
    interfaces: u32,
    comment: String,
}

impl PcapngSink {
    /// Makes a sink that writes into `output`.
    #[must_use]
    pub const fn new(output: Output) -> Self {
        Self {
            output,
            interfaces: 0,
            comment: String::new(),
        }
    }
}

impl Sink for PcapngSink {
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        let is_first = self.interfaces == 0;
        self.interfaces += 1;
        self.output.append(|buffer| {
            if is_first {
                let section = SectionText {
                    hardware: std::env::consts::ARCH,
                    system: "Linux",
                    application: concat!("towline ", env!("CARGO_PKG_VERSION")),
                    comment: &self.comment,
                };
                Encoder.section(buffer, &section);
            }
            let text = InterfaceText {
                link_type: interface.link_type,
                snap_len: interface.snap_len,
                name: &interface.name,
                description: &interface.description,
                filter: "",
            };
            Encoder.interface(buffer, &text);
        })
    }

    #[inline]
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let notes = PacketNotes {
            flags: packet
                .direction
                .map(|direction| flags(direction, packet.checksum)),
            carried: packet.notes,
            ..PacketNotes::default()
        };
        self.output.append_packet(packet, |buffer| {
            Encoder.packet(
                buffer,
                packet.interface,
                packet.stamp_ns,
                packet.wire_len,
                packet.data,
                &notes,
            );
        })
    }

    /// Notes each interface's own figures; those of all interfaces together stand with the first.
    fn note(&mut self, account: &Account, stamp_ns: u64) -> Result<(), CaptureError> {
        for (number, interface) in (0..self.interfaces).zip(&account.interfaces) {
            let losses = &interface.losses;
            let comment = (number == 0).then(|| comment(account, self.interfaces));
            let values = StatisticsValues {
                received: losses.seen.map(|seen| seen + losses.interface),
                dropped: Some(losses.interface),
                accepted: Some(interface.passed),
                system_dropped: Some(losses.ring),
                delivered: Some(interface.delivered),
                comment: comment.as_deref(),
            };
            self.output
                .append(|buffer| Encoder.statistics(buffer, number, stamp_ns, &values))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.output.flush()
    }

    fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    fn describe(&mut self, comment: &str) -> Result<(), CaptureError> {
        comment.clone_into(&mut self.comment);
        Ok(())
    }

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.output.take_unwritten()
    }
}

fn comment(account: &Account, interfaces: u32) -> String {
    let scope = if interfaces > 1 {
        "all interfaces together; "
    } else {
        ""
    };
    let named = account.named_losses.iter();
    let named: String = named
        .map(|(name, count)| format!("; {name} {count}"))
        .collect();
    format!(
        "{scope}filtered {}, cut {}, unread {}; delivered counts {}s{named}",
        account.filtered,
        account.cut,
        account.unread,
        account.unit.name()
    )
}

/// Makes the `epb_flags`: bits 0-1 direction (1 in, 2 out), bits 2-4 reception (1 unicast, 2
/// multicast, 3 broadcast, 4 promiscuous), bit 9 "checksum not ready", bit 10 "checksum valid".
const fn flags(direction: Direction, checksum: Checksum) -> u32 {
    let direction = match direction {
        Direction::Host => 1 | 1 << 2,
        Direction::Multicast => 1 | 2 << 2,
        Direction::Broadcast => 1 | 3 << 2,
        Direction::OtherHost => 1 | 4 << 2,
        Direction::Outgoing => 2,
    };
    let checksum = match checksum {
        Checksum::Unknown => 0,
        Checksum::Missing => 1 << 9,
        Checksum::Valid => 1 << 10,
    };
    direction | checksum
}
