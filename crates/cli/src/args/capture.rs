//! `capture`.

use std::time::Duration;

use capture::{LiveOptions, RETIRE_MAX, SinkAddress, SourceAddress, sink::Rotation};
use clap::Args;

use super::{FailOn, bytes, duration};

/// Capture packets, with an account of every packet lost.
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_HELP)]
pub(crate) struct CaptureArgs {
    /// ring:IF, ring2:IF, int:IF, xdp:IF, pcap:FILE, pcapng:FILE or gen:SPEC; several are brought
    /// together
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) sources: Vec<SourceAddress>,
    /// pcapng:FILE, pcap:FILE or null: ('-' is standard output)
    #[arg(long, short, value_name = "SINK", default_value = "null:")]
    pub(crate) output: SinkAddress,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Keep what this filter accepts, in tcpdump's language; the rest is counted
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Stop after so many packets
    #[arg(long, short = 'c', value_name = "COUNT", conflicts_with = "workers")]
    pub(crate) count: Option<u64>,
    /// Stop after this time; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Share the packets of one ring:IF among so many threads, each flow with one; each has its
    /// part of the ring's memory and a file of its own, numbered from 0
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// Cut super-packets (GSO) into the packets that the wire would carry, checksums filled in
    #[arg(long)]
    pub(crate) segment: bool,
    /// Look for generated frames, and count what is missing of them by their numbers
    #[arg(long)]
    pub(crate) check_gen: bool,
    /// A remark on the whole, for a pcapng:FILE to hold; packets' own are kept anyway
    #[arg(long, value_name = "TEXT", help_heading = "Files")]
    pub(crate) comment: Option<String>,
    /// Begin another file when one has so many bytes
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Files")]
    pub(crate) rotate_size: Option<u64>,
    /// Begin another file when one spans this time
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Files")]
    pub(crate) rotate_time: Option<Duration>,
    /// Keep so many files, and remove the oldest
    #[arg(long, value_name = "COUNT", help_heading = "Files")]
    pub(crate) rotate_files: Option<usize>,
    /// Keep capabilities; otherwise they are given up once all is open, where files follow but for
    /// that to open them
    #[arg(long, help_heading = "Files")]
    pub(crate) keep_privileges: bool,
    /// Go on as this user once the interfaces are open; files are made by them
    #[arg(long, value_name = "NAME", help_heading = "Files")]
    pub(crate) user: Option<String>,
    /// Exit 1: by 'loss' when packets were lost, by 'any' also when generated ones (--check-gen)
    /// are missing beyond those that the filter rejected, or damaged
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub(crate) fail_on: FailOn,
}

impl CaptureArgs {
    /// When files follow each other, if they do.
    pub(crate) fn rotation(&self) -> Option<Rotation> {
        let rotation = Rotation {
            bytes: self.rotate_size,
            time: self.rotate_time,
            files: self.rotate_files,
        };
        (rotation != Rotation::default()).then_some(rotation)
    }
}

/// How interfaces are captured from.
#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgs {
    /// Memory shared with the kernel, for each interface; 'max' is a quarter of what is free
    #[arg(long, value_name = "SIZE", value_parser = ring, default_value = "32MiB")]
    #[arg(help_heading = "Interfaces")]
    pub(crate) ring: u64,
    /// Longest time that a packet waits in the ring at low rates
    #[arg(long, value_name = "TIME", value_parser = retire, default_value = "20ms")]
    #[arg(help_heading = "Interfaces")]
    pub(crate) retire: Duration,
    /// Keep only so many bytes of each packet; 0 is all of them
    #[arg(long, short, value_name = "BYTES", value_parser = bytes)]
    #[arg(help_heading = "Interfaces")]
    pub(crate) snaplen: Option<u64>,
    /// Leave out what is addressed to others
    #[arg(long, short = 'p', help_heading = "Interfaces")]
    pub(crate) no_promiscuous: bool,
    /// Leave out what this machine sends
    #[arg(long, help_heading = "Interfaces")]
    pub(crate) incoming: bool,
    /// Take the adapter's time stamps where it makes some
    #[arg(long, help_heading = "Interfaces")]
    pub(crate) hardware_stamps: bool,
}

impl LiveArgs {
    /// In the library's form.
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

/// A size, or the most there is.
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
        return Err(format!("a packet waits at most {} s", RETIRE_MAX.as_secs()));
    }
    Ok(retire)
}

const CAPTURE_HELP: &str = "\
Ctrl-C ends a capture properly: the packets in the ring are read, the file is closed, the account
is printed, and the exit code is that of any other end: 0, or 1 by --fail-on.

Every packet that reached the socket is delivered, dropped for want of room in the ring, or left
unread behind a limit; the account says when these do not add up. Frames longer than the MTU are
several packets in one piece that never crossed a wire so.

xdp:IF (AF_XDP) takes all that arrives at IF AWAY FROM THE HOST: nothing else on it, a login through
IF included, receives anything by IF until the capture ends; what the host sends is not seen. It is
for machines that only listen, and is never used unless it is named. --for ends it by itself. It
needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW, and Linux 5.9. On virtual interfaces ring:IF costs
less.

Examples:
  towline capture ring:eth0 -o pcapng:trace.pcapng
  towline capture ring:eth0 ring:eth1 -o pcapng:both.pcapng --for 10s --json
  towline capture ring:eth0 --filter 'udp port 7500' -o pcapng:trace.pcapng
  towline capture ring:eth0 --ring max -o pcapng:day.pcapng --rotate-time 1h --rotate-files 24
  towline capture ring:eth0 --workers 4 -o pcapng:trace.pcapng
  towline capture xdp:eth1 -o pcapng:monitor.pcapng --for 60s
  towline capture ring2:lo -o pcap:- | tshark -r -
  towline capture pcap:old.pcap -o pcapng:new.pcapng";
