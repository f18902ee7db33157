//! What went over the simulated wire, by packet type, and which data got lost on it.
//!
//! Reads just enough of a packet to count it; the trace shows it whole.

use std::{collections::BTreeSet, fmt};

use wire::pgm::{Body, NakList, Packet, PgmOption};

/// Packets that reached the switch, each once however many receivers take it.
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
    /// Sequence numbers asked for in NAK packets.
    pub naked_sqns: u64,
    /// NAK confirmations.
    pub ncf: u64,
    /// Requests for session messages.
    pub spmr: u64,
    /// Anything else, damaged packets too.
    pub other: u64,
}

impl WireCounts {
    /// All packets.
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
    /// Losses of new data, each receiver's apart.
    pub(crate) data_lost: u64,
    /// Numbers of new data that at least one receiver did not get at first.
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

/// One line for the trace.
pub(crate) fn describe(tpdu: &[u8]) -> String {
    match Packet::parse(tpdu) {
        Ok(packet) => packet.to_string(),
        Err(error) => format!("{} bytes: {error}", tpdu.len()),
    }
}
