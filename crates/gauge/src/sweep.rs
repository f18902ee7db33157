//! Measures how much captures lose and cost, by the size of their memory or of the packets. Three
//! sources take turns on a virtual cable between two hosts of a lab: one system call for each
//! packet (`int:`), the ring of blocks (`ring:`) and the ring of slots (`ring2:`).
//!
//! ```text
//! host 0: gen: --ring--> cable --> host 1: int: | ring: | ring2: -> null:
//!         |<- not measured ->|<- processor time of the machine ->|<- not measured ->|
//! ```
//! The cost of sending without a capture is subtracted. The capture's account and the numbers in
//! the generated frames tell the losses.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use capture::{
    CaptureError, Limits, LiveOptions, ReplayTiming, SendOptions, Session, Sink, Source, sink,
    source,
};
use lab::{Host, Lab, LabSpec};
use measure::{
    Format,
    plot::{SizeCurve, SizePoint, captures},
    write_picture,
};
use serde::Serialize;
use towline::UsageMeter;

use crate::Error;

/// What changes from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SweepBy {
    /// The size of the memory that a capture shares with the kernel; packets have 64 to 1518 bytes
    /// on the wire.
    RingSize,
    /// The size of the packets, which is the same for all packets of a run.
    PacketSize,
}

/// A sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CaptureSweep {
    /// What changes.
    pub by: SweepBy,
    /// Packets a second, sent in bursts every 1.7 ms.
    pub packets_per_s: u64,
    /// How long each run is. The processor time of its first and last fifth is not measured.
    pub time: Duration,
    /// Bytes of the memory that a capture shares with the kernel, when the size of packets changes.
    pub ring_bytes: usize,
}

/// The result of one capture source at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepRow {
    /// `int`, `ring` or `ring2`.
    pub source: &'static str,
    /// Bytes of memory, or of a packet without its check sequence.
    pub size_bytes: usize,
    /// Packets that were sent.
    pub sent: u64,
    /// How many of them were captured.
    pub captured: u64,
    /// Packets that the kernel dropped because the ring was full.
    pub lost_ring: u64,
    /// What the account cannot explain, in packets: 0 when it adds up.
    pub residual: Option<i128>,
    /// Nanoseconds of the machine's processor time for each packet that was asked for, without
    /// those of sending alone; none where the system does not tell.
    pub cpu_ns: Option<f64>,
    /// Sending alone took more than sending and capturing: `cpu_ns` is 0, and the true cost is
    /// below what can be measured.
    pub cpu_is_noise: bool,
}

impl SweepRow {
    /// Subtracts the cost of sending without a capture.
    fn less(mut self, alone: Option<f64>) -> Self {
        let left = self.cpu_ns.zip(alone).map(|(all, alone)| all - alone);
        self.cpu_is_noise = left.is_some_and(|left| left < 0.0);
        self.cpu_ns = left.map(|left| left.max(0.0));
        self
    }

    /// Returns the share of the sent packets that were not captured, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.sent.saturating_sub(self.captured) as f64 / self.sent.max(1) as f64
    }
}

impl CaptureSweep {
    /// Makes all runs, and passes each row to `show` as soon as it is measured.
    ///
    /// # Errors
    /// When a lab cannot be made, when a capture cannot be opened, or [`Error::Interrupted`].
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        show: &mut dyn FnMut(&SweepRow),
    ) -> Result<Vec<SweepRow>, Error> {
        let lab = Lab::new(&LabSpec::new(2).direct()).map_err(failure)?;
        let sizes: &[usize] = match self.by {
            SweepBy::RingSize => &RING_SIZES,
            SweepBy::PacketSize => &PACKET_SIZES,
        };
        let mut rows = Vec::new();
        let mut alone = None;
        for size in sizes {
            // For all sizes of the ring the packets are the same, so the cost of sending is
            // measured once.
            if alone.is_none() || self.by == SweepBy::PacketSize {
                alone = self.run_one(&lab, None, *size, is_stopped)?.cpu_ns;
            }
            for kind in KINDS {
                let row = self.run_one(&lab, Some(kind), *size, is_stopped)?;
                let row = row.less(alone);
                show(&row);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Makes one run. Without a capture, only the cost of the run means something.
    fn run_one(
        &self,
        lab: &Lab,
        kind: Option<&'static str>,
        size: usize,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<SweepRow, Error> {
        let (frames, ring_bytes) = match self.by {
            SweepBy::RingSize => (MIXED_SIZES.to_owned(), size),
            SweepBy::PacketSize => (size.to_string(), self.ring_bytes),
        };
        let mut load = self.load(lab.host(0), &frames)?;
        let mut capture = match kind {
            Some(kind) => Some(capturing(lab.host(1), kind, ring_bytes)?),
            None => None,
        };
        let (is_over, is_broken) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let cpu_s = thread::scope(|scope| {
            let capture = capture.as_mut().map(|session| {
                let ends = || is_over.load(Ordering::Acquire);
                scope.spawn(move || session.run(&ends, &mut |_| {}))
            });
            let breaks = || is_broken.load(Ordering::Acquire);
            let load = &mut load;
            let sending = scope.spawn(move || load.run(&breaks, &mut |_| {}));
            let wait = |time| {
                let end = Instant::now() + time;
                while Instant::now() < end && !is_broken.load(Ordering::Relaxed) {
                    thread::sleep(LOOK_PAUSE.min(time));
                    is_broken.store(is_stopped(), Ordering::Release);
                }
            };
            wait(self.time / 5);
            let meter = UsageMeter::start();
            wait(self.time * 3 / 5);
            let usage = meter.read();
            let sent = sending.join().expect("a session does not panic");
            is_over.store(true, Ordering::Release);
            let ended = capture.map(|one| one.join().expect("a session does not panic"));
            sent.and_then(|_| ended.transpose()).map_err(failure)?;
            let cpu_s = usage.machine_busy_s;
            Ok::<_, Error>(cpu_s.map(|busy_s| busy_s / usage.wall.as_secs_f64()))
        })?;
        if is_broken.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        let sent = load.account().delivered;
        let account = capture.as_ref().map(Session::account);
        let sequence = capture.as_ref().and_then(Session::sequence);
        Ok(SweepRow {
            source: kind.unwrap_or("none"),
            size_bytes: size,
            sent,
            captured: sequence.map_or(0, |check| check.frames),
            lost_ring: account.map_or(0, |account| account.losses.ring),
            residual: account.and_then(capture::Account::residual),
            cpu_ns: cpu_s.map(|share| share * 1e9 / self.packets_per_s as f64),
            cpu_is_noise: false,
        })
    }

    fn load(&self, host: &Host, frames: &str) -> Result<Session, Error> {
        let rate = self.packets_per_s.max(1);
        let count = u128::from(rate) * self.time.as_millis() / 1000;
        let spec = format!("gen:size={frames},count={count},flows=16");
        let sink = format!("ring:{}", host.interface());
        let limits = Limits {
            pace: ReplayTiming::Packets(rate),
            // Between bursts the source sleeps, because the processor time to measure is the
            // capture's.
            burst_packets: (rate * BURST_US / 1_000_000).max(1),
            ..Limits::default()
        };
        opened(host, || {
            let source = source::open(&spec.parse()?, &LiveOptions::default())?;
            let sink = sink::open(&sink.parse()?, &SendOptions::default())?;
            Session::new(vec![source], sink, limits)
        })
    }
}

/// Draws a sweep. The page of [`Format::Html`] has the rows below the picture.
///
/// # Errors
/// When `output` fails, or when `format` is no picture.
pub fn draw(
    output: &mut impl Write,
    format: Format,
    sweep: &CaptureSweep,
    rows: &[SweepRow],
) -> io::Result<()> {
    let curve = |kind: &str| SizeCurve {
        name: format!("{kind}:"),
        points: rows
            .iter()
            .filter(|row| row.source == kind)
            .map(|row| SizePoint {
                size_bytes: row.size_bytes,
                received_per_s: row.captured as f64 / sweep.time.as_secs_f64(),
                loss: Some(row.loss()),
                cpu_ns: row.cpu_ns,
            })
            .collect(),
    };
    let what = match sweep.by {
        SweepBy::RingSize => "by bytes of memory shared with the kernel",
        SweepBy::PacketSize => "by bytes of a packet",
    };
    let line = format!(
        "{} packets/s on a virtual cable; processor time less that of the source alone",
        sweep.packets_per_s
    );
    let title = format!("Loss and cost of captures, {what}");
    let scene = captures(&title, &[line], &KINDS.map(curve));
    let about = serde_json::to_string_pretty(rows).unwrap_or_default();
    write_picture(output, format, &scene, "towline stats --sweep", &about)?;
    output.flush()
}

fn capturing(host: &Host, kind: &str, ring_bytes: usize) -> Result<Session, Error> {
    let address = format!("{kind}:{}", host.interface());
    let options = LiveOptions {
        ring_bytes,
        ignores_outgoing: true,
        ..LiveOptions::default()
    };
    let limits = Limits {
        checks_sequence: true,
        ..Limits::default()
    };
    opened(host, || {
        let source: Box<dyn Source> = source::open(&address.parse()?, &options)?;
        let sink: Box<dyn Sink> = Box::new(sink::NullSink);
        Session::new(vec![source], sink, limits)
    })
}

/// Opens a session inside a host; sockets opened there stay in that host.
fn opened(
    host: &Host,
    open: impl FnOnce() -> Result<Session, CaptureError> + Send,
) -> Result<Session, Error> {
    host.enter(open).map_err(failure)?.map_err(failure)
}

fn failure(error: impl std::fmt::Display) -> Error {
    Error::Measurement(error.to_string())
}

const KINDS: [&str; 3] = ["int", "ring", "ring2"];
const RING_SIZES: [usize; 6] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Bytes of packets without check sequence; on the wire these are 64 to 1518 bytes.
const PACKET_SIZES: [usize; 6] = [60, 124, 252, 508, 1020, 1514];
const MIXED_SIZES: &str = "60-1514";
/// How often to ask the caller whether to go on.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// The time between two bursts in microseconds; not a multiple of the kernel's clock tick.
const BURST_US: u64 = 1_700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_a_row_for_each_source_and_size_whose_account_closes() {
        lab::isolated(|| {
            let sweep = CaptureSweep {
                by: SweepBy::PacketSize,
                packets_per_s: 2_000,
                time: Duration::from_millis(100),
                ring_bytes: 1 << 20,
            };
            let mut shown = 0;
            let rows = sweep.run(&|| false, &mut |_| shown += 1).unwrap();
            assert_eq!((rows.len(), shown), (18, 18));
            for row in &rows {
                assert_eq!((row.sent, row.residual), (200, Some(0)), "{row:?}");
                assert!(row.captured + row.lost_ring >= 200, "{row:?}");
                assert!(row.cpu_ns.is_none_or(|ns| ns >= 0.0), "{row:?}");
            }
            let row = rows[0];
            let of = |all, alone| {
                let row = SweepRow {
                    cpu_ns: Some(all),
                    ..row
                };
                let row = row.less(Some(alone));
                (row.cpu_ns, row.cpu_is_noise)
            };
            assert_eq!(of(900.0, 400.0), (Some(500.0), false));
            assert_eq!(
                of(400.0, 900.0),
                (Some(0.0), true),
                "nothing costs less than nothing"
            );
            let mut picture = Vec::new();
            draw(&mut picture, Format::Svg, &sweep, &rows).unwrap();
            let picture = String::from_utf8(picture).unwrap();
            assert!(picture.contains("ring2:") && picture.contains("1514"));
            let stopped = sweep.run(&|| true, &mut |_| {}).unwrap_err();
            assert!(matches!(stopped, Error::Interrupted), "{stopped}");
        });
    }
}
