//! Flags of `replay`.

use std::{net::IpAddr, time::Duration};

use capture::{Edits, ReplayTiming, SendOptions, SinkAddress, SourceAddress, TagEdit};
use clap::{ArgGroup, Args};

use super::{bytes, duration, positive_bit_rate, positive_count};

/// Send packets of a file, or generated ones, at a given pace, and report how well it was kept.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
#[command(group(ArgGroup::new("pace").args(["pps", "rate", "speed", "top_speed"])))]
pub(crate) struct ReplayArgs {
    /// File (FILE, pcap:FILE or pcapng:FILE) or generated frames (gen:SPEC); with several sources,
    /// packets are sent in the order of their time stamps
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) sources: Vec<SourceAddress>,
    /// Interface to send on: IF (the same as ring:IF), or int:IF (one system call for each packet)
    #[arg(long, short, value_name = "SINK")]
    pub(crate) output: SinkAddress,
    /// Send this many packets a second
    #[arg(long, value_name = "COUNT", value_parser = positive_count, help_heading = "Pace")]
    pub(crate) pps: Option<u64>,
    /// Send this many bits a second, such as 100M; preambles and gaps between frames do not count
    #[arg(long, value_name = "BITS", value_parser = positive_bit_rate, help_heading = "Pace")]
    pub(crate) rate: Option<u64>,
    /// Follow the packets' time stamps, but this many times as fast: 2 takes half the time
    /// [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = speed, help_heading = "Pace")]
    pub(crate) speed: Option<f64>,
    /// Send as fast as the interface takes packets; the default with generated packets that have no
    /// rate
    #[arg(long, help_heading = "Pace")]
    pub(crate) top_speed: bool,
    /// Stop after this many packets
    #[arg(long, short = 'c', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Send packets in bursts of this many; with more than 1, the thread sleeps between bursts
    /// instead of spinning. At top speed there are no bursts
    #[arg(long, value_name = "COUNT", default_value = "1", help_heading = "Pace")]
    pub(crate) burst: u64,
    /// Send everything this many times; 0 repeats without end
    #[arg(long = "loop", value_name = "TIMES", default_value = "1")]
    pub(crate) rounds: u64,
    /// At top speed, send this many packets in one system call; int:IF always sends 1
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "64",
        help_heading = "Interface"
    )]
    pub(crate) batch: usize,
    /// Memory for packets that wait to be sent; int:IF needs none
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1MiB")]
    #[arg(help_heading = "Interface")]
    pub(crate) ring: u64,
    /// Send through the kernel's queueing discipline: slower, but other captures on this host then
    /// see the packets
    #[arg(long, help_heading = "Interface")]
    pub(crate) queue: bool,
    #[command(flatten)]
    pub(crate) edits: EditArgs,
}

/// What is changed in each packet.
#[derive(Clone, Debug, Args)]
pub(crate) struct EditArgs {
    /// Replace the destination hardware address
    #[arg(long, value_name = "MAC", value_parser = hardware, help_heading = "Changes")]
    pub(crate) to_mac: Option<[u8; 6]>,
    /// Replace the source hardware address
    #[arg(long, value_name = "MAC", value_parser = hardware, help_heading = "Changes")]
    pub(crate) from_mac: Option<[u8; 6]>,
    /// Replace an IP address in IP headers and ARP, and correct checksums; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = pair, help_heading = "Changes")]
    pub(crate) address: Vec<(IpAddr, IpAddr)>,
    /// Remove all VLAN tags of each packet and add this one; 'none' only removes them
    #[arg(long, value_name = "ID[:PRIORITY]", value_parser = tag, help_heading = "Changes")]
    pub(crate) vlan: Option<TagEdit>,
}

impl EditArgs {
    /// Converts the flags to the library's form.
    pub(crate) fn edits(&self) -> Edits {
        Edits {
            to: self.to_mac,
            from: self.from_mac,
            addresses: self.address.clone(),
            tag: self.vlan.unwrap_or_default(),
        }
    }
}

impl ReplayArgs {
    pub(crate) fn pace(&self) -> ReplayTiming {
        match (self.pps, self.rate, self.speed) {
            (Some(pps), _, _) => ReplayTiming::Packets(pps),
            (_, Some(bits), _) => ReplayTiming::Bits(bits),
            (_, _, Some(speed)) => ReplayTiming::Stamps(speed),
            _ if self.top_speed || self.sources.iter().any(is_unpaced) => ReplayTiming::TopSpeed,
            _ => ReplayTiming::Stamps(1.0),
        }
    }

    pub(crate) fn send_options(&self) -> SendOptions {
        SendOptions {
            ring_bytes: usize::try_from(self.ring).unwrap_or(usize::MAX),
            batch: self.batch,
            bypasses_queue: !self.queue,
            ..SendOptions::default()
        }
    }
}

/// Returns true for generated frames that have no rate of their own.
const fn is_unpaced(source: &SourceAddress) -> bool {
    matches!(source, SourceAddress::Generated(spec) if spec.frames_per_s.is_none())
}

fn hardware(text: &str) -> Result<[u8; 6], String> {
    let error = || format!("{text:?} is not a hardware address such as 02:00:00:00:00:02");
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| error())?;
    bytes.try_into().map_err(|_| error())
}

fn pair(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let parts = text.split_once('=');
    match parts.map(|(old, new)| (old.parse(), new.parse())) {
        Some((Ok(old), Ok(new))) if IpAddr::is_ipv4(&old) == IpAddr::is_ipv4(&new) => {
            Ok((old, new))
        }
        _ => Err(format!(
            "{text:?} is not OLD=NEW, two IPv4 addresses or two IPv6 addresses"
        )),
    }
}

fn tag(text: &str) -> Result<TagEdit, String> {
    if text == "none" {
        return Ok(TagEdit::Remove);
    }
    let (id, priority) = text.split_once(':').unwrap_or((text, "0"));
    match (id.parse::<u16>(), priority.parse::<u16>()) {
        (Ok(id), Ok(priority)) if id < 4096 && priority < 8 => {
            Ok(TagEdit::Set(priority << 13 | id))
        }
        _ => Err(format!(
            "{text:?} is neither 'none' nor a tag such as 5 or 5:7 (ID to 4095, priority to 7)"
        )),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if speed > 0.0 && speed < 1e9 => Ok(speed),
        _ => Err(format!(
            "{text:?} is not a factor above 0, such as 0.5 or 2"
        )),
    }
}

const REPLAY_HELP: &str = "\
Each packet's time counts from the first packet, so that lateness does not add up. The report
compares intended gaps between packets with actual ones, taken when each system call returned.

Examples:
  towline replay pcapng:trace.pcapng -o ring:eth0
  towline replay pcap:trace.pcap -o ring:eth0 --speed 2 --loop 0
  towline replay pcap:a.pcap pcap:b.pcap -o ring:eth0 --address 10.0.0.1=10.9.0.1
  towline replay gen:size=60-1514,count=1000000 -o ring:eth0 --pps 100k --json
  towline replay gen:size=60*7+570*4+1514,rate=20k,flows=16 -o ring:eth0 --for 10s";
