//! Counts what went over the simulated wire, by packet type, and which new data was lost on it.
//!
//! It reads just enough of a packet to count it.

use std::{collections::BTreeSet, fmt};

use wire::pgm::{Body, NakList, Packet, PgmOption};

/// Packets that reached the switch. A packet counts once, however many receivers take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Session messages.
    pub spm: u64,
    /// New data.
    pub odata: u64,
    /// Repairs.
    pub rdata: u64,
    /// NAK packets.
    pub nak: u64,
    /// Sequence numbers requested in NAK packets.
    pub naked_sqns: u64,
    /// NAK confirmations.
    pub ncf: u64,
    /// Requests for session messages.
    pub spmr: u64,
    /// All other packets, damaged ones included.
    pub other: u64,
}

impl WireCounts {
    /// Returns the number of all packets.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.spm + self.odata + self.rdata + self.nak + self.ncf + self.spmr + self.other
    }

    fn count(&mut self, tpdu: &[u8]) {
        let Ok(packet) = Packet::parse(tpdu) else {
            self.other += 1;
            return;
        };
        match packet.body() {
            Body::Spm(_) => self.spm += 1,
            Body::Odata(_) => self.odata += 1,
            Body::Rdata(_) => self.rdata += 1,
            Body::Nak(_) => {
                self.nak += 1;
                let listed = |option| match option {
                    PgmOption::NakList(list) => NakList::iter(&list).count() as u64,
                    _ => 0,
                };
                self.naked_sqns += 1 + packet.options().map(listed).sum::<u64>();
            }
            Body::Ncf(_) => self.ncf += 1,
            Body::Spmr => self.spmr += 1,
            _ => self.other += 1,
        }
    }
}

impl fmt::Display for WireCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            spm,
            odata,
            rdata,
            nak,
            naked_sqns,
            ncf,
            spmr,
            other,
        } = self;
        write!(
            f,
            "{odata} ODATA {rdata} RDATA {spm} SPM {nak} NAK ({naked_sqns}) {ncf} NCF {spmr} SPMR \
             {other} other"
        )
    }
}

/// The tally of one world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: WireCounts,
    /// Lost packets of new data, counted for each receiver.
    pub(crate) data_lost: u64,
    /// Sequence numbers of new data that at least one receiver lost.
    pub(crate) sqns_lost: BTreeSet<u32>,
}

impl Tally {
    pub(crate) fn sent(&mut self, tpdu: &[u8]) {
        self.counts.count(tpdu);
    }

    pub(crate) fn lost(&mut self, tpdu: &[u8]) {
        if let Some(sqn) = odata_sqn(tpdu) {
            self.data_lost += 1;
            self.sqns_lost.insert(sqn);
        }
    }
}

fn odata_sqn(tpdu: &[u8]) -> Option<u32> {
    const ODATA: u8 = 4;
    if *tpdu.get(4)? != ODATA {
        return None;
    }
    Some(u32::from_be_bytes(tpdu.get(16..20)?.try_into().ok()?))
}

/// Returns a line about a packet, for the trace.
pub(crate) fn describe(tpdu: &[u8]) -> String {
    match Packet::parse(tpdu) {
        Ok(packet) => packet.to_string(),
        Err(error) => format!("{} bytes: {error}", tpdu.len()),
    }
}
