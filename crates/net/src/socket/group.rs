//! The address of a session, as a person writes it: a multicast group or a unicast host.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    str::FromStr,
};

use crate::SystemError;

/// A multicast group or a unicast host, with its port and, where written, a source and an
/// interface.
///
/// ```text
/// [SOURCE @] GROUP [@ INTERFACE] [: PORT]        239.192.0.1   239.1.1.1@eth0:7500
///                                                [ff15::1%eth0]:7500   10.0.0.9@232.1.1.1
/// HOST [: PORT]                                  receiver.example:7500   192.0.2.7
/// ```
///
/// It is text only: parsing looks up neither names nor interfaces. The port is both the UDP port
/// and the PGM destination port; it is 7500 when none is written.
///
/// [`fmt::Display`] writes a form that parses back to the same value, unless the port is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    target: Target,
    port: u16,
    source: Option<IpAddr>,
    interface: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Target {
    Multicast(IpAddr),
    Unicast(IpAddr),
    Name(String),
}

impl Group {
    /// The default port, for a group written without a port. ZeroMQ's and OpenPGM's examples use
    /// it.
    pub const PORT: u16 = 7500;

    /// Makes a multicast group or unicast host by address.
    ///
    /// # Errors
    /// For addresses that no session can use: unspecified, broadcast, IPv4 written as IPv6,
    /// reserved scopes.
    pub fn new(address: SocketAddr) -> Result<Self, SystemError> {
        let mut group = Self {
            target: Target::of(address.ip(), &address.to_string())?,
            port: address.port(),
            source: None,
            interface: None,
        };
        if let SocketAddr::V6(v6) = address
            && v6.scope_id() != 0
        {
            group.interface = Some(v6.scope_id().to_string());
        }
        Ok(group)
    }

    /// Replaces the port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Returns the UDP port, which is the PGM destination port too.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the only source to receive from, for source-specific multicast.
    #[must_use]
    pub const fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Returns the interface as written: a name, number, address or prefix.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Returns true for a multicast group, false for a unicast host.
    #[must_use]
    pub const fn is_multicast(&self) -> bool {
        matches!(self.target, Target::Multicast(_))
    }

    /// Returns the address; `None` when a name was written.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self.target {
            Target::Multicast(ip) | Target::Unicast(ip) => Some(ip),
            Target::Name(_) => None,
        }
    }

    /// Returns address and port. Looks a name up, which may take seconds, and takes the first
    /// address found.
    ///
    /// # Errors
    /// When the name cannot be resolved, or names a multicast group.
    pub fn resolve(&self) -> Result<SocketAddr, SystemError> {
        let name = match &self.target {
            Target::Multicast(ip) | Target::Unicast(ip) => {
                return Ok(SocketAddr::new(*ip, self.port));
            }
            Target::Name(name) => name,
        };
        let remedy = "write the address, or check the name with `getent hosts`";
        let mut found = (name.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| SystemError::system("look up", name, &error).advise(remedy))?;
        let address = found.next().ok_or_else(|| {
            SystemError::refused("look up", name, "it has no address").advise(remedy)
        })?;
        if address.ip().is_multicast() {
            let cause = format!("the name stands for the group {}", address.ip());
            return Err(SystemError::refused("use", name, cause)
                .advise("write the group's address in place of the name"));
        }
        Ok(address)
    }

    /// Returns a warning when this group is allowed but may not work as hoped.
    #[must_use]
    pub fn caution(&self) -> Option<&'static str> {
        match self.target {
            Target::Multicast(IpAddr::V4(ip)) => match ip.octets() {
                [224, 0, 0, _] => Some(
                    "224.0.0.0/24 belongs to local control protocols and is never routed; \
                     239.192.0.0/14 is meant for uses like this",
                ),
                [232, ..] if self.source.is_none() => Some(
                    "232.0.0.0/8 is source-specific: many networks deliver it only to receivers \
                     that write SOURCE@GROUP",
                ),
                _ => None,
            },
            Target::Multicast(IpAddr::V6(ip)) => match (scope(ip), flags(ip)) {
                (1, _) => Some("a group of interface-local scope never leaves this host"),
                (_, 3) if self.source.is_none() => Some(
                    "ff3x::/32 is source-specific: many networks deliver it only to receivers \
                     that write SOURCE@GROUP",
                ),
                (_, 0) => {
                    Some("ff0x::/16 holds permanently assigned groups; for others use ff1x::/16")
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Makes a group as [`Group::new`] does.
impl TryFrom<SocketAddr> for Group {
    type Error = SystemError;

    fn try_from(address: SocketAddr) -> Result<Self, SystemError> {
        Self::new(address)
    }
}

/// Makes a group as [`Group::new`] does.
impl TryFrom<(IpAddr, u16)> for Group {
    type Error = SystemError;

    fn try_from(address: (IpAddr, u16)) -> Result<Self, SystemError> {
        Self::new(address.into())
    }
}

impl FromStr for Group {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        Self::parse(text, Self::PORT)
    }
}

impl Group {
    /// Reads a group as [`FromStr`] does, with `default_port` where the text has no port.
    ///
    /// # Errors When the text has none of the forms, or an address that no session can use; the
    /// error lists the forms.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, SystemError> {
        let refuse =
            |cause: &str| SystemError::refused("use group", quoted(text), cause).advise(FORMS);
        let parts: Vec<&str> = text.split('@').collect();
        let (source, target, interface) = match parts[..] {
            [target] => (None, target, None),
            // The part before a group is its source; the part after it is the interface.
            [first, second] if is_group(first) => (None, first, Some(second)),
            [first, second] if is_group(without_port(second)) => (Some(first), second, None),
            [_, _] => return Err(refuse("neither side of the @ is a multicast group")),
            [source, target, interface] if is_group(target) => {
                (Some(source), target, Some(interface))
            }
            [_, _, _] => return Err(refuse("the middle part is not a multicast group")),
            _ => return Err(refuse("it has more than two @")),
        };
        let (target, interface, port) = match interface {
            None => {
                let (target, port) = split_port(target).ok_or_else(|| refuse(BAD_PORT))?;
                (target, None, port)
            }
            Some(interface) => {
                let (interface, port) = split_port(interface).ok_or_else(|| refuse(BAD_PORT))?;
                (target, Some(interface), port)
            }
        };
        let (address, zone) = split_zone(target);
        let interface = match (zone, interface) {
            (Some(_), Some(_)) => return Err(refuse("the interface is written twice")),
            (Some(""), _) | (_, Some("")) => return Err(refuse("the interface is empty")),
            (zone, interface) => zone.or(interface).map(|name| unbracketed(name).to_owned()),
        };
        let target = match unbracketed(address).parse() {
            Ok(ip) => Target::of(ip, text)?,
            Err(_) if is_host_name(address) => Target::Name(address.to_owned()),
            Err(_) => return Err(refuse("it is neither an address nor a host name")),
        };
        let has_scope = match target {
            Target::Multicast(_) => true,
            Target::Unicast(ip) => ip.is_ipv6(),
            Target::Name(_) => false,
        };
        if interface.is_some() && !has_scope {
            return Err(refuse(
                "only a group or an IPv6 address can have an interface",
            ));
        }
        let source = match source {
            None => None,
            Some(source) => Some(parse_source(source, &target).map_err(refuse)?),
        };
        Ok(Self {
            target,
            port: port.unwrap_or(default_port),
            source,
            interface,
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = self.source {
            write!(f, "{source}@")?;
        }
        match (&self.target, &self.interface) {
            (Target::Multicast(IpAddr::V6(ip)) | Target::Unicast(IpAddr::V6(ip)), Some(name)) => {
                write!(f, "[{ip}%{name}]")?;
            }
            (Target::Multicast(IpAddr::V6(ip)) | Target::Unicast(IpAddr::V6(ip)), None) => {
                write!(f, "[{ip}]")?;
            }
            (Target::Multicast(ip) | Target::Unicast(ip), Some(name)) => write!(f, "{ip}@{name}")?,
            (Target::Multicast(ip) | Target::Unicast(ip), None) => write!(f, "{ip}")?,
            (Target::Name(name), _) => f.write_str(name)?,
        }
        write!(f, ":{}", self.port)
    }
}

impl Target {
    fn of(ip: IpAddr, text: &str) -> Result<Self, SystemError> {
        let refuse =
            |cause: &str| SystemError::refused("use group", quoted(text), cause).advise(FORMS);
        match ip {
            IpAddr::V6(v6) if v6.is_multicast() && matches!(scope(v6), 0 | 15) => Err(refuse(
                "its scope (the fourth digit) is 0 or f, which are reserved",
            )),
            ip if ip.is_multicast() => Ok(Self::Multicast(ip)),
            ip if ip.is_unspecified() => Err(refuse("the unspecified address names no host")),
            IpAddr::V4(v4) if v4.is_broadcast() => {
                Err(refuse("it is the broadcast address, not a group"))
            }
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(refuse(
                "it is an IPv4 address written as IPv6: write the IPv4 address",
            )),
            ip => Ok(Self::Unicast(ip)),
        }
    }
}

/// Reads a source, which must be a unicast address of the group's family.
fn parse_source(text: &str, target: &Target) -> Result<IpAddr, &'static str> {
    let source: IpAddr = unbracketed(text)
        .parse()
        .map_err(|_| "the source before the @ is not an address")?;
    let Target::Multicast(group) = target else {
        return Err("a source can only be given for a group");
    };
    if source.is_multicast() || source.is_unspecified() {
        return Err("the source before the @ is not one host's address");
    }
    if source.is_ipv4() != group.is_ipv4() {
        return Err("of source and group, one is IPv4 and the other IPv6");
    }
    Ok(source)
}

/// Splits a port off the end; `None` when the text after the colon is not a port.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let colon = match text.rfind(']') {
        Some(bracket) => text[bracket..].find(':').map(|at| bracket + at),
        // Two or more colons without brackets are an IPv6 address.
        None if text.matches(':').count() > 1 => None,
        None => text.find(':'),
    };
    match colon {
        None => Some((text, None)),
        Some(at) => {
            let port = text[at + 1..].parse().ok().filter(|&port| port != 0)?;
            Some((&text[..at], Some(port)))
        }
    }
}

fn without_port(text: &str) -> &str {
    split_port(text).map_or(text, |(target, _)| target)
}

fn is_group(text: &str) -> bool {
    let ip = unbracketed(split_zone(text).0).parse::<IpAddr>();
    ip.is_ok_and(|ip| ip.is_multicast())
}

/// Splits `address%zone`, with or without brackets around it.
fn split_zone(text: &str) -> (&str, Option<&str>) {
    match unbracketed(text).split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    }
}

fn unbracketed(text: &str) -> &str {
    text.strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text)
}

/// Returns true for labels of letters, digits, `-` and `_` with dots between. Returns false if the
/// last label has only digits: then the text is a mistyped address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(allowed)
    };
    let last = text.rsplit('.').next().unwrap_or("");
    text.len() <= 253 && text.split('.').all(is_label) && !last.bytes().all(|c| c.is_ascii_digit())
}

const fn scope(ip: Ipv6Addr) -> u16 {
    ip.segments()[0] & 0xf
}

const fn flags(ip: Ipv6Addr) -> u16 {
    ip.segments()[0] >> 4 & 0xf
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

const BAD_PORT: &str = "the port is not a number from 1 to 65535";
const FORMS: &str = "write GROUP, GROUP:PORT, GROUP@INTERFACE:PORT, [V6GROUP%INTERFACE]:PORT, \
                     SOURCE@GROUP or HOST:PORT, for example 239.192.0.1:7500";

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> Group {
        text.parse().unwrap()
    }

    #[test]
    fn every_documented_form_is_read() {
        let all = [
            ("239.192.0.1", "239.192.0.1:7500"),
            ("239.192.0.1:9", "239.192.0.1:9"),
            ("239.1.1.1@eth0:7500", "239.1.1.1@eth0:7500"),
            ("239.1.1.1@eth0.100", "239.1.1.1@eth0.100:7500"),
            ("239.1.1.1@10.0.0.0/8", "239.1.1.1@10.0.0.0/8:7500"),
            ("239.1.1.1@10.0.0.9:1", "239.1.1.1@10.0.0.9:1"),
            ("[ff15::1%eth0]:7500", "[ff15::1%eth0]:7500"),
            ("ff15::1%eth0", "[ff15::1%eth0]:7500"),
            ("ff15::1", "[ff15::1]:7500"),
            ("[ff15::1]@eth0:8", "[ff15::1%eth0]:8"),
            ("10.0.0.9@232.1.1.1", "10.0.0.9@232.1.1.1:7500"),
            ("10.0.0.9@232.1.1.1@eth0:8", "10.0.0.9@232.1.1.1@eth0:8"),
            ("2001:db8::1@[ff35::1]:8", "2001:db8::1@[ff35::1]:8"),
            ("[2001:db8::1]@ff35::1", "2001:db8::1@[ff35::1]:7500"),
            ("192.0.2.7", "192.0.2.7:7500"),
            ("[fe80::1%eth0]:8", "[fe80::1%eth0]:8"),
            ("receiver-3.example:8", "receiver-3.example:8"),
        ];
        for (text, expected) in all {
            let parsed = group(text);
            assert_eq!(parsed.to_string(), expected);
            assert_eq!(group(expected), parsed, "{expected} does not read back");
        }
    }

    #[test]
    fn a_port_that_is_written_goes_before_the_default() {
        for (text, port) in [
            ("239.192.0.1", 7_700),
            ("239.192.0.1:7500", 7_500),
            ("239.192.0.1@eth0:7500", 7_500),
            ("ff15::7500", 7_700),
            ("[ff15::7500]:7500", 7_500),
            ("host.example:1", 1),
        ] {
            let group = Group::parse(text, 7_700).unwrap();
            assert_eq!(group.port(), port, "{text}");
        }
    }

    #[test]
    fn parts_come_out_as_they_went_in() {
        let all = group("10.0.0.9@232.1.1.1@eth0:8");
        assert_eq!(all.source(), Some([10, 0, 0, 9].into()));
        assert_eq!((all.interface(), all.port()), (Some("eth0"), 8));
        assert!(all.is_multicast() && !group("192.0.2.7").is_multicast());
        assert_eq!(group("h.example").ip(), None);
        let resolved = group("239.1.1.1:8").resolve().unwrap();
        assert_eq!(resolved, "239.1.1.1:8".parse().unwrap());
        assert_eq!(Group::new(resolved).unwrap(), group("239.1.1.1:8"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_forms() {
        for text in [
            "",
            ":7500",
            "239.1.1.1:",
            "239.1.1.1:0",
            "239.1.1.1:65536",
            "239.1.1.1:x",
            "239.1.1.256",
            "239.1.1.1@",
            "@239.1.1.1",
            "10.0.0.1@eth0",
            "10.0.0.1@10.0.0.2",
            "239.1.1.1@239.1.1.2@eth0",
            "10.0.0.1@ff15::1",
            "a@b@c@d",
            "a@b@c",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "ff10::1",
            "[ff15::1%]:8",
            "[ff15::1%eth0]@eth1",
            "::ffff:10.0.0.1",
            "host name",
            "host%eth0",
            "10.0.0.1%eth0",
            "[ff15::1",
        ] {
            let error = text.parse::<Group>().unwrap_err().to_string();
            assert!(
                error.contains("for example 239.192.0.1:7500"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let alphabet = b"0123459.:@%[]/abcefgh ";
        let mut rng = base::Rng::new(1);
        for _ in 0..20_000 {
            let len = rng.below(24);
            let mut letter = || {
                let at = usize::try_from(rng.below(alphabet.len() as u64)).unwrap();
                char::from(alphabet[at])
            };
            let text: String = (0..len).map(|_| letter()).collect();
            if let Ok(group) = text.parse::<Group>() {
                assert_eq!(group.to_string().parse::<Group>().unwrap(), group, "{text}");
            }
        }
    }

    #[test]
    fn groups_with_a_catch_say_so() {
        for text in ["224.0.0.1", "232.1.1.1", "ff11::1", "ff35::1", "ff05::1"] {
            assert!(group(text).caution().is_some(), "{text}");
        }
        for text in ["239.192.0.1", "10.0.0.1@232.1.1.1", "ff15::1", "h.example"] {
            assert_eq!(group(text).caution(), None, "{text}");
        }
    }
}
