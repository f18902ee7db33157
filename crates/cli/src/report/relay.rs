//! The report of `relay`: what it carried, and who repaired what.

use schemars::JsonSchema;
use serde::Serialize;
use towline::RelayWay;

use super::{Counters, Document, bytes, count, text::Rows};

/// `relay`: what it did until it was interrupted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RelayReport {
    pub(crate) networks: Vec<RelayNetwork>,
    pub(crate) seconds: f64,
    /// Sessions that were found, on any of the networks.
    pub(crate) sessions: u64,
    /// How many receivers' connections the relay has joined to their senders; a receiver that
    /// connects again counts again.
    pub(crate) receivers: u64,
    /// Data packets forwarded; a packet counts once for each network that it went to.
    pub(crate) data_packets: u64,
    /// Repairs sent from the packets that the relay had kept, without asking a sender.
    pub(crate) repairs_kept: u64,
    /// Repairs that the relay had to ask senders for; a repair counts once for each network that it
    /// went to.
    pub(crate) repairs_fetched: u64,
    /// Requests for repairs that receivers have sent to the relay.
    pub(crate) naks: u64,
    /// Requests that the relay has sent to senders.
    pub(crate) naks_forwarded: u64,
    /// Bytes of reports and answers that receivers have sent to senders.
    pub(crate) report_bytes_up: u64,
    /// Bytes that senders have sent to single receivers.
    pub(crate) report_bytes_down: u64,
    /// Packets that the relay dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// A network that the relay had joined.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RelayNetwork {
    /// The group or host, as the user wrote it.
    place: String,
    interface: String,
    /// The relay's address on this network, which receivers take for the sender's.
    address: String,
    control_port: u16,
}

impl From<&RelayWay> for RelayNetwork {
    fn from(way: &RelayWay) -> Self {
        Self {
            place: way.place.clone(),
            interface: way.interface.clone(),
            address: way.local.to_string(),
            control_port: way.control_port,
        }
    }
}

impl Document for RelayReport {
    const SCHEMA: &'static str = "towline.relay";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        for network in &self.networks {
            let RelayNetwork {
                place,
                interface,
                address,
                ..
            } = network;
            table.row("network", &format!("{place} on {interface} ({address})"));
        }
        table.row("time", &format!("{:.1} s", self.seconds));
        table.row("sessions", &self.sessions);
        table.row(
            "connections",
            &format!("{} of receivers, joined to senders", self.receivers),
        );
        table.row("data sent on", &count(self.data_packets, "packet"));
        table.row(
            "repairs",
            &format!(
                "{} from here, {} from senders",
                count(self.repairs_kept, "packet"),
                self.repairs_fetched
            ),
        );
        table.row(
            "requests",
            &format!(
                "{} of receivers, {} to senders",
                count(self.naks, "NAK"),
                self.naks_forwarded
            ),
        );
        table.row(
            "reports",
            &format!(
                "{} to senders, {} to receivers",
                bytes(self.report_bytes_up),
                bytes(self.report_bytes_down)
            ),
        );
        table.row("dropped", &self.drops.drops_told());
        table.text
    }
}
