//! Addresses of sources and sinks: `KIND:REST`.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::{CaptureError, generated::GeneratorSpec};

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceAddress {
    /// `ring:IF`, or an interface's name: a ring of blocks.
    Ring(String),
    /// `ring2:IF`: a ring of slots.
    Ring2(String),
    /// `int:IF`: one system call for each packet.
    Int(String),
    /// `xdp:IF`: frames are taken off the interface; the host does not receive them.
    Xdp(String),
    /// `gen:SPEC`: frames made on the spot.
    Generated(GeneratorSpec),
    /// `pcap:FILE`, `pcapng:FILE` or `file:FILE`, which all take a file of either format. A name
    /// alone means a file when it ends in `.pcap`, `.pcapng` or `.cap` (also packed: `.gz`, `.zst`)
    /// or has a `/`. `-` is standard input.
    File(PathBuf),
}

/// Where packets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkAddress {
    /// `pcap:FILE`; `-` is standard output.
    Pcap(PathBuf),
    /// `pcapng:FILE`; `-` is standard output.
    Pcapng(PathBuf),
    /// `ring:IF`, or an interface's name: packets are sent through a transmit ring.
    Ring(String),
    /// `int:IF`: each packet is sent with a system call.
    Int(String),
    /// `null:`: packets are counted and forgotten.
    Null,
}

impl SourceAddress {
    /// Returns true for an interface, whose packets come at any time.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(
            self,
            Self::Ring(_) | Self::Ring2(_) | Self::Int(_) | Self::Xdp(_)
        )
    }

    /// Returns the interface whose packets this source takes away from the host while it is open;
    /// `None` for a source that takes none away.
    #[must_use]
    pub fn taken(&self) -> Option<&str> {
        match self {
            Self::Xdp(name) => Some(name),
            Self::Ring(_) | Self::Ring2(_) | Self::Int(_) | Self::Generated(_) | Self::File(_) => {
                None
            }
        }
    }
}

impl SinkAddress {
    /// Returns the name of the interface that packets leave by, if the sink is an interface.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Ring(name) | Self::Int(name) => Some(name),
            Self::Pcap(_) | Self::Pcapng(_) | Self::Null => None,
        }
    }

    /// Returns the address for one of several workers that each have a file: the worker's number
    /// stands before the file name's ending.
    #[must_use]
    pub fn numbered(&self, number: usize) -> Self {
        let file = |path: &PathBuf| {
            let end = path.extension().unwrap_or_default().to_string_lossy();
            path.with_extension(format!("{number}.{end}").trim_end_matches('.'))
        };
        match self {
            Self::Pcap(path) => Self::Pcap(file(path)),
            Self::Pcapng(path) => Self::Pcapng(file(path)),
            other => other.clone(),
        }
    }

    /// Returns true when the packets go to standard output.
    #[must_use]
    pub fn is_standard_output(&self) -> bool {
        match self {
            Self::Pcap(path) | Self::Pcapng(path) => path.as_os_str() == "-",
            Self::Ring(_) | Self::Int(_) | Self::Null => false,
        }
    }
}

impl FromStr for SourceAddress {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let error = |reason: &str| CaptureError::Address {
            address: text.to_owned(),
            what: "source of packets",
            reason: reason.to_owned(),
        };
        let Some((kind, rest)) = text.split_once(':') else {
            return match text {
                file if is_file_name(file) => Ok(Self::File(file.into())),
                interface if is_interface_name(interface) => Ok(Self::Ring(interface.to_owned())),
                other => Err(error(&(no_name(other).to_owned() + SOURCE_FORM))),
            };
        };
        if rest.is_empty() && kind != "gen" {
            return Err(error("a name is missing after the colon"));
        }
        match kind {
            "ring" => Ok(Self::Ring(rest.to_owned())),
            "ring2" => Ok(Self::Ring2(rest.to_owned())),
            "gen" => rest.parse().map(Self::Generated),
            "int" => Ok(Self::Int(rest.to_owned())),
            "xdp" => Ok(Self::Xdp(rest.to_owned())),
            "pcap" | "pcapng" | "file" => Ok(Self::File(rest.into())),
            _ => Err(error(SOURCE_FORM)),
        }
    }
}

impl FromStr for SinkAddress {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let error = |reason: &str| CaptureError::Address {
            address: text.to_owned(),
            what: "sink of packets",
            reason: reason.to_owned(),
        };
        if is_packed(text) {
            return Err(error(UNPACKED));
        }
        let Some((kind, rest)) = text.split_once(':') else {
            return match text.rsplit_once('.').map(|(_, end)| end) {
                Some("pcap") => Ok(Self::Pcap(text.into())),
                Some("pcapng") => Ok(Self::Pcapng(text.into())),
                _ if is_interface_name(text) => Ok(Self::Ring(text.to_owned())),
                _ => Err(error(&(no_name(text).to_owned() + SINK_FORM))),
            };
        };
        match (kind, rest) {
            ("null", "") => Ok(Self::Null),
            (_, "") => Err(error("a name is missing after the colon")),
            ("ring", name) => Ok(Self::Ring(name.to_owned())),
            ("int", name) => Ok(Self::Int(name.to_owned())),
            ("pcap", path) => Ok(Self::Pcap(path.into())),
            ("pcapng", path) => Ok(Self::Pcapng(path.into())),
            _ => Err(error(SINK_FORM)),
        }
    }
}

impl fmt::Display for SourceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(name) => write!(f, "ring:{name}"),
            Self::Ring2(name) => write!(f, "ring2:{name}"),
            Self::Int(name) => write!(f, "int:{name}"),
            Self::Xdp(name) => write!(f, "xdp:{name}"),
            Self::Generated(_) => f.write_str("gen:"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Display for SinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcap(path) => write!(f, "pcap:{}", path.display()),
            Self::Pcapng(path) => write!(f, "pcapng:{}", path.display()),
            Self::Ring(name) => write!(f, "ring:{name}"),
            Self::Int(name) => write!(f, "int:{name}"),
            Self::Null => f.write_str("null:"),
        }
    }
}

/// Returns true for a name that an interface can have, except the name of a packed file.
fn is_interface_name(text: &str) -> bool {
    let is_long = text.len() > INTERFACE_NAME_MAX;
    let has_odd = text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    !(text.is_empty() || is_long || has_odd || is_packed(text) || text == "-")
}

/// Says why a text without a colon cannot be an interface's name. Returns nothing for a text that
/// is neither empty nor too long.
const fn no_name(text: &str) -> &'static str {
    match text.len() {
        0 => "it is empty; ",
        len if len > INTERFACE_NAME_MAX => {
            "it is too long for an interface, and has no ending of a capture file; "
        }
        _ => "",
    }
}

fn is_packed(text: &str) -> bool {
    text.ends_with(".gz") || text.ends_with(".zst")
}

fn is_file_name(text: &str) -> bool {
    let packed = text
        .strip_suffix(".gz")
        .or_else(|| text.strip_suffix(".zst"));
    let end = packed.unwrap_or(text).rsplit_once('.').map(|(_, end)| end);
    text == "-" || text.contains('/') || matches!(end, Some("pcap" | "pcapng" | "cap"))
}

const SOURCE_FORM: &str = "write IF, ring:IF, ring2:IF, int:IF, xdp:IF, gen:SPEC, FILE.pcap, \
                           FILE.pcapng, pcap:FILE or pcapng:FILE";
const SINK_FORM: &str = "write FILE.pcapng, FILE.pcap, pcapng:FILE, pcap:FILE, IF, ring:IF, \
                         int:IF or null:";
const UNPACKED: &str = "captures are not packed while they are written: write pcapng:- to a pipe \
                        that packs, such as `| zstd > FILE.pcapng.zst`, or pack the file \
                        afterwards";
/// Bytes of the longest name that the kernel lets an interface have.
const INTERFACE_NAME_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told_apart() {
        let source = |text: &str| text.parse::<SourceAddress>().unwrap();
        assert_eq!(source("ring:e0"), SourceAddress::Ring("e0".to_owned()));
        let xdp = source("xdp:e0");
        assert_eq!(
            (xdp.to_string().as_str(), xdp.taken()),
            ("xdp:e0", Some("e0"))
        );
        assert!(xdp.is_live() && source("ring:e0").taken().is_none());
        assert_eq!(source("pcap:a:b"), SourceAddress::File("a:b".into()));
        assert_eq!(source("x.pcapng"), SourceAddress::File("x.pcapng".into()));
        for packed in ["c.pcap.gz", "x/c.pcapng.zst", "c.cap.gz"] {
            assert_eq!(source(packed), SourceAddress::File(packed.into()));
        }
        for (bare, meant) in [
            ("e0", "ring:e0"),
            ("e0.100", "ring:e0.100"),
            ("./e0", "file:./e0"),
            ("-", "file:-"),
        ] {
            assert_eq!(source(bare).to_string(), meant);
        }
        let long = "an-interface-name-of-more-than-15";
        for wrong in ["", "ring:", "what:e0", "c.gz", "e0.zst", "a b", long] {
            let error = wrong.parse::<SourceAddress>().unwrap_err().to_string();
            assert!(error.contains("is not a source of packets"), "{error}");
        }
        assert_eq!("null:".parse::<SinkAddress>().unwrap(), SinkAddress::Null);
        assert_eq!(
            "pcapng:-".parse::<SinkAddress>().unwrap().to_string(),
            "pcapng:-"
        );
        let interface = |text: &str| {
            let sink = text.parse::<SinkAddress>().unwrap();
            sink.interface().map(str::to_owned)
        };
        assert_eq!(interface("int:e0").as_deref(), Some("e0"));
        assert_eq!(interface("pcap:e0"), None);
        let numbered = |text: &str| text.parse::<SinkAddress>().unwrap().numbered(2).to_string();
        assert_eq!(numbered("pcap:a.b/c.pcap"), "pcap:a.b/c.2.pcap");
        assert_eq!(numbered("pcapng:a.b/c"), "pcapng:a.b/c.2");
        assert_eq!(numbered("null:"), "null:");
        assert_eq!(interface("e0").as_deref(), Some("e0"));
        for packed in ["x.zst", "x.pcapng.gz", "pcapng:x.pcapng.zst", "pcap:x.gz"] {
            let error = packed.parse::<SinkAddress>().unwrap_err().to_string();
            assert!(
                error.contains("`| zstd > FILE.pcapng.zst`"),
                "{packed}: {error}"
            );
        }
        for wrong in ["null:x", "", "-", "./e0", "pcap:", "ring:"] {
            assert!(wrong.parse::<SinkAddress>().is_err(), "{wrong}");
        }
    }
}
