//! Flags of `capture`.

use std::time::Duration;

use capture::{LiveOptions, RETIRE_MAX, SinkAddress, SourceAddress, sink::Rotation};
use clap::Args;

use super::{EveryArgs, FailOn, bytes, duration};

/// Capture packets, with an account of every packet lost.
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_HELP)]
pub(crate) struct CaptureArgs {
    /// Interface, read by a ring of blocks (IF or ring:IF), a ring of slots (ring2:IF), system
    /// calls (int:IF) or XDP (xdp:IF); file (FILE, pcap:FILE or pcapng:FILE); or generated frames
    /// (gen:SPEC). Several sources are merged
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) sources: Vec<SourceAddress>,
    /// Write packets to pcapng:FILE or pcap:FILE ('-' is standard output); 'null:' discards them
    #[arg(long, short, value_name = "SINK", default_value = "null:")]
    pub(crate) output: SinkAddress,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Keep packets that match this filter, in tcpdump's language; the rest are only counted
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Stop after this many packets
    #[arg(long, short = 'c', value_name = "COUNT", conflicts_with = "workers")]
    pub(crate) count: Option<u64>,
    /// Stop after this time; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    /// Divide the packets of one ring:IF among this many threads, by flow. Each thread has an equal
    /// part of the ring's memory, and writes its own file, numbered from 0
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// Cut super-packets (GSO) into the packets that a wire would carry, and fill in their
    /// checksums
    #[arg(long)]
    pub(crate) segment: bool,
    /// Look for generated frames (gen:) and count the missing ones by their numbers
    #[arg(long)]
    pub(crate) check_gen: bool,
    /// Write this comment into the pcapng:FILE; comments on packets are always kept
    #[arg(long, value_name = "TEXT", help_heading = "Files")]
    pub(crate) comment: Option<String>,
    /// Begin a new file when one reaches this size
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Files")]
    pub(crate) rotate_size: Option<u64>,
    /// Begin a new file when one spans this time
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Files")]
    pub(crate) rotate_time: Option<Duration>,
    /// Keep only this many files, the newest; needs --rotate-size or --rotate-time to begin new
    /// ones
    #[arg(long, value_name = "COUNT", help_heading = "Files")]
    pub(crate) rotate_files: Option<usize>,
    /// Keep all capabilities; without this flag the capture drops them when everything is open, but
    /// keeps CAP_DAC_OVERRIDE when it has to open further files (--rotate-*)
    #[arg(long, help_heading = "Files")]
    pub(crate) keep_privileges: bool,
    /// Become this user when the interfaces are open; the files then belong to this user
    #[arg(long, value_name = "NAME", help_heading = "Files")]
    pub(crate) user: Option<String>,
    /// Exit with code 1 when packets were lost ('loss'), or also when generated frames
    /// (--check-gen) are damaged or missing ('any'); frames that the filter rejected are not
    /// missing
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub(crate) fail_on: FailOn,
}

impl CaptureArgs {
    /// Says when one file ends and the next begins; `None` when everything goes into one file.
    pub(crate) fn rotation(&self) -> Option<Rotation> {
        let rotation = Rotation {
            bytes: self.rotate_size,
            time: self.rotate_time,
            files: self.rotate_files,
        };
        (rotation != Rotation::default()).then_some(rotation)
    }
}

/// How packets are captured from interfaces.
#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgs {
    /// Memory for packets that wait to be read, for each interface; 'max' is a quarter of the free
    /// memory, 32MiB at least, 2GiB at most
    #[arg(long, value_name = "SIZE", value_parser = ring, default_value = "32MiB")]
    #[arg(help_heading = "Interfaces")]
    pub(crate) ring: u64,
    /// Longest time that a packet waits to be read together with others, 2s at most; at low rates,
    /// every packet may wait that long
    #[arg(long, value_name = "TIME", value_parser = retire, default_value = "20ms")]
    #[arg(help_heading = "Interfaces")]
    pub(crate) retire: Duration,
    /// Keep only this many bytes of each packet; 0 keeps all [default: all]
    #[arg(long, short, value_name = "BYTES", value_parser = bytes)]
    #[arg(help_heading = "Interfaces")]
    pub(crate) snaplen: Option<u64>,
    /// Do not ask interfaces for packets that are addressed to other hosts; such packets still come
    /// when another program asks for them
    #[arg(long, short = 'p', help_heading = "Interfaces")]
    pub(crate) no_promiscuous: bool,
    /// Leave out packets that this machine sends
    #[arg(long, help_heading = "Interfaces")]
    pub(crate) incoming: bool,
    /// Use the adapter's time stamps where it has them
    #[arg(long, help_heading = "Interfaces")]
    pub(crate) hardware_stamps: bool,
}

impl LiveArgs {
    /// Converts the flags to the library's form.
    pub(crate) fn options(&self) -> LiveOptions {
        let defaults = LiveOptions::default();
        let snap_len = self.snaplen.and_then(|len| u32::try_from(len).ok());
        let snap_len = snap_len.filter(|len| *len > 0);
        LiveOptions {
            ring_bytes: usize::try_from(self.ring).unwrap_or(usize::MAX),
            retire: self.retire,
            snap_len: snap_len.map_or(defaults.snap_len, |len| len.min(defaults.snap_len)),
            is_promiscuous: !self.no_promiscuous,
            ignores_outgoing: self.incoming,
            wants_hardware_stamps: self.hardware_stamps,
            ..defaults
        }
    }
}

/// Reads a size. `max` becomes the largest number, which the capture lowers to what it may take.
fn ring(text: &str) -> Result<u64, String> {
    if text == "max" {
        Ok(u64::MAX)
    } else {
        bytes(text).map_err(|error| error.to_string())
    }
}

fn retire(text: &str) -> Result<Duration, String> {
    let retire = duration(text).map_err(|error| error.to_string())?;
    if retire > RETIRE_MAX {
        return Err(format!("--retire is at most {} s", RETIRE_MAX.as_secs()));
    }
    Ok(retire)
}

const CAPTURE_HELP: &str = "\
Ctrl-C ends a capture properly: it reads the packets in the ring, closes the file, prints the
account and exits with 0, or 1 by --fail-on.

Every packet that reached the socket is delivered, rejected by the filter, dropped because the ring
was full, left unread because a limit (such as --count) was reached, or not written because the sink
failed. The account says when these do not add up. If the ring overflows, give it more memory
(--ring), keep less of each packet (-s), or filter. Frames longer than the MTU are several packets
in one piece (GSO, GRO) and never crossed a wire like that.

A source without a kind is a FILE if it ends in .pcap, .pcapng or .cap (also with .gz or .zst behind
it), if it has a '/', or if it is '-' (standard input). Otherwise it is an interface. An example of
gen:SPEC is gen:size=60-1514,rate=20k,count=1000.

xdp:IF (AF_XDP) takes all arriving packets AWAY FROM THE HOST: until the capture ends, no other
program receives anything by IF, not even your login through it. What the host sends is not seen. It
is for machines that only listen; give --for to end it. It needs CAP_NET_ADMIN, CAP_BPF, CAP_NET_RAW
and Linux 5.9. On virtual interfaces ring:IF costs less.

Examples:
  towline capture ring:eth0 -o pcapng:trace.pcapng
  towline capture ring:eth0 ring:eth1 -o pcapng:both.pcapng --for 10s --json
  towline capture ring:eth0 --filter 'udp port 7500' -o pcapng:trace.pcapng
  towline capture ring:eth0 --ring max -o pcapng:day.pcapng --rotate-time 1h --rotate-files 24
  towline capture ring:eth0 --workers 4 -o pcapng:trace.pcapng
  towline capture xdp:eth1 -o pcapng:monitor.pcapng --for 60s
  towline capture ring2:lo -o pcap:- | tshark -r -
  towline capture pcap:old.pcap -o pcapng:new.pcapng";
