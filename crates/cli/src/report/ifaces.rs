//! The report of `ifaces`.

use schemars::JsonSchema;
use serde::Serialize;
use towline::Interface;

use super::Document;

/// The report of `ifaces`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct InterfacesReport {
    pub(crate) interfaces: Vec<InterfaceRow>,
    /// The interfaces as a table of text, made by the library.
    #[serde(skip)]
    pub(crate) table: String,
}

/// One interface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct InterfaceRow {
    name: String,
    index: u32,
    kind: String,
    /// `up`, `down` or `no carrier`.
    condition: &'static str,
    /// The operational state as the kernel names it.
    state: String,
    mtu_bytes: u32,
    is_up: bool,
    is_running: bool,
    is_loopback: bool,
    has_broadcast: bool,
    has_multicast: bool,
    is_point_to_point: bool,
    has_default_route_v4: bool,
    has_default_route_v6: bool,
    gso_bytes_max: Option<u32>,
    /// The kernel's driver of the device; null for virtual interfaces, whose `kind` says what they
    /// are.
    driver: Option<String>,
    /// The speed that the driver names. Virtual interfaces do not keep to the speed that they name.
    speed_bits_per_s: Option<u64>,
    addresses: Vec<AddressRow>,
}

/// One address of an interface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct AddressRow {
    ip: String,
    /// Length of the prefix; absent when it cannot be known.
    prefix: Option<u8>,
    scope: String,
    peer: Option<String>,
    state: String,
}

impl From<&Interface> for InterfaceRow {
    fn from(interface: &Interface) -> Self {
        let addresses = interface.addresses.iter().map(|address| AddressRow {
            ip: address.ip.to_string(),
            prefix: address.prefix,
            scope: address.scope.name().to_owned(),
            peer: address.peer.map(|peer| peer.to_string()),
            state: address.state.name().to_owned(),
        });
        Self {
            name: interface.name.clone(),
            index: interface.index,
            kind: interface.kind.clone(),
            condition: interface.condition(),
            state: interface.state.name().to_owned(),
            mtu_bytes: interface.mtu_bytes,
            is_up: interface.flags.up,
            is_running: interface.flags.running,
            is_loopback: interface.flags.loopback,
            has_broadcast: interface.flags.broadcast,
            has_multicast: interface.flags.multicast,
            is_point_to_point: interface.flags.point_to_point,
            has_default_route_v4: interface.default_route_v4,
            has_default_route_v6: interface.default_route_v6,
            gso_bytes_max: interface.gso_bytes_max,
            driver: interface.driver.clone(),
            speed_bits_per_s: interface.speed_bits_per_s,
            addresses: addresses.collect(),
        }
    }
}

impl Document for InterfacesReport {
    const SCHEMA: &'static str = "towline.ifaces";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        self.table.clone()
    }
}
