//! Interfaces as a table for the terminal.

use std::fmt::Write as _;

use super::{AddressState, Interface, InterfaceAddress, Interfaces, Scope};

impl Interfaces {
    /// Writes the table that `towline ifaces` prints: a heading, and a line for each interface.
    /// Below that line, indented, is a line for each of its addresses, and one for its default
    /// routes if it has any. Ends with a line end.
    #[must_use]
    pub fn table(&self) -> String {
        let heading = (HEADING.map(str::to_owned), Vec::new());
        let interfaces = self.list.iter().map(|it| (cells(it), details(it)));
        let rows: Vec<_> = std::iter::once(heading).chain(interfaces).collect();
        let mut widths = [0; COLUMNS];
        for (cells, _) in &rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for (cells, details) in &rows {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                write!(line, "{cell:<width$}  ").expect("writing to a String cannot fail");
            }
            text.push_str(line.trim_end());
            text.push('\n');
            for detail in details {
                writeln!(text, "{:width$}  {detail}", "", width = widths[0])
                    .expect("writing to a String cannot fail");
            }
        }
        text
    }
}

impl InterfaceAddress {
    /// Writes the address as the table shows it: `10.77.0.1/24`, with peer, scope and state where
    /// they are unusual.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.ip.to_string();
        if let Some(peer) = self.peer {
            write!(text, " peer {peer}").expect("writing to a String cannot fail");
        }
        match self.prefix {
            Some(prefix) => write!(text, "/{prefix}").expect("writing to a String cannot fail"),
            None => text.push_str(" (prefix unknown)"),
        }
        if !matches!(self.scope, Scope::Global | Scope::Host) {
            text.push(' ');
            text.push_str(self.scope.name());
        }
        if self.state != AddressState::Usable {
            text.push(' ');
            text.push_str(self.state.name());
        }
        text
    }
}

fn cells(interface: &Interface) -> [String; COLUMNS] {
    let multicast = match (interface.flags.multicast, interface.flags.loopback) {
        (true, _) => "yes",
        (false, true) => "this machine",
        (false, false) => "no",
    };
    let speed = interface.speed_bits_per_s;
    [
        interface.name.clone(),
        interface.index.to_string(),
        interface.kind.clone(),
        interface.driver.clone().unwrap_or_else(|| "-".to_owned()),
        speed.map_or_else(|| "-".to_owned(), speed_text),
        interface.condition().to_owned(),
        interface.mtu_bytes.to_string(),
        multicast.to_owned(),
    ]
}

/// Returns the addresses of an interface, and which default routes lead through it.
fn details(interface: &Interface) -> Vec<String> {
    let addresses = interface.addresses.iter().map(InterfaceAddress::describe);
    let default = match (interface.default_route_v4, interface.default_route_v6) {
        (true, true) => Some("default route of IPv4 and IPv6"),
        (true, false) => Some("default route of IPv4"),
        (false, true) => Some("default route of IPv6"),
        (false, false) => None,
    };
    addresses.chain(default.map(str::to_owned)).collect()
}

/// Writes a link's speed as data sheets do: `10 Gbit/s`, `2.5 Gbit/s`, `100 Mbit/s`.
fn speed_text(bits_per_s: u64) -> String {
    match bits_per_s {
        1_000_000_000.. => format!("{} Gbit/s", bits_per_s as f64 / 1e9),
        _ => format!("{} Mbit/s", bits_per_s as f64 / 1e6),
    }
}

const COLUMNS: usize = 8;
const HEADING: [&str; COLUMNS] = [
    "NAME",
    "INDEX",
    "KIND",
    "DRIVER",
    "SPEED",
    "STATE",
    "MTU",
    "MULTICAST",
];
