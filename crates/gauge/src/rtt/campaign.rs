//! A whole measurement: its runs, one after the other or in alternating slices, and a description
//! of the machine.

use std::{
    fmt,
    io::{self, Write},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use measure::{
    Latencies, Series, Transport,
    raw::{self, Manifest, Setup},
};
use net::interface::Selector;
use sys::{errno, hardware_stamp::HardwareStamping};

use super::{
    Client, Cut, Engine, Readiness, Recorder, RunOutcome, Scheduling, Wait, Watch, host, link_of,
    prepare,
};
use crate::Error;

/// The task of a whole measurement.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The reflector, or the group of reflectors.
    pub peer: SocketAddr,
    /// The interface by which a group is reached; with `None` the kernel's route decides.
    pub interface: Option<Selector>,
    /// What carries the messages.
    pub transport: Transport,
    /// The target as the user wrote it.
    pub target: String,
    /// The variants to compare: each becomes a panel of the picture.
    pub variants: Vec<Variant>,
    /// Payload bytes of a message.
    pub size_bytes: usize,
    /// How long each variant is measured, all its slices added up.
    pub duration: Duration,
    /// How long a slice is: several variants take turns, one slice each. With `None`, they run one
    /// after the other.
    pub slice: Option<Duration>,
    /// How long each variant runs before its messages count.
    pub warm_up: Duration,
    /// The most messages that may wait for an answer at a time.
    pub window_messages: Option<u32>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The number from which the tokens of the runs count up.
    pub seed: u64,
    /// The kernel stamps one message in this many; 0 for none.
    pub stamp_every_messages: u64,
    /// The processor for the measuring thread.
    pub cpu: Option<u32>,
    /// True to lock the process's memory.
    pub lock_memory: bool,
    /// The link's speed in bits a second, when the system does not know it or is wrong.
    pub link_bits_per_s: Option<u64>,
    /// The command line, for the manifest.
    pub command: Vec<String>,
}

/// One way to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The variant's name on the picture.
    pub label: String,
    /// Messages each second; `None` for ping-pong.
    pub per_second: Option<u64>,
    /// Scheduling class of the measuring thread.
    pub scheduling: Scheduling,
    /// Which system calls move the packets.
    pub engine: Engine,
    /// How the measuring thread waits.
    pub wait: Wait,
}

/// A result in memory. The recording thread writes it, and the caller takes it.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn take(&self) -> Vec<u8> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut bytes)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Campaign {
    /// Describes a measurement of 10 s in ping-pong over `transport`, after a second of warm-up.
    /// Messages have 64 bytes and no kernel stamps. The tokens count from 0. The calling thread
    /// measures, in the ordinary class. The fields can be changed.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), towline_gauge::Error> {
    /// use towline_gauge::rtt::{Campaign, Transport};
    ///
    /// # let reflector = todo!();
    /// let rtt = Campaign::new(reflector, Transport::Udp).measure()?;
    /// println!("99 of 100 within {} ns", rtt[0].actual().p99_ns);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(peer: SocketAddr, transport: Transport) -> Self {
        let variant = Variant {
            label: "ping-pong".to_owned(),
            per_second: None,
            scheduling: Scheduling::Other,
            engine: Engine::default(),
            wait: Wait::default(),
        };
        Self {
            peer,
            interface: None,
            transport,
            target: peer.to_string(),
            variants: vec![variant],
            size_bytes: 64,
            duration: Duration::from_secs(10),
            slice: None,
            warm_up: Duration::from_secs(1),
            window_messages: None,
            timeout: Duration::from_secs(2),
            seed: 0,
            stamp_every_messages: 0,
            cpu: None,
            lock_memory: false,
            link_bits_per_s: None,
            command: Vec::new(),
        }
    }

    /// Measures all variants as [`Campaign::run`] does, and returns the round trips of each, in
    /// order, from the intended and from the actual time of sending.
    ///
    /// **Cost**: keeps every round trip in memory until it returns.
    ///
    /// # Errors
    /// Those of [`Campaign::run`].
    pub fn measure(&self) -> Result<Vec<Latencies>, Error> {
        let memory = Memory::default();
        self.run(memory.clone(), &|| false, &mut |_| {}, None)?;
        let bytes = memory.take();
        let results = raw::read(&bytes[..]).map_err(|error| {
            Error::Measurement(format!(
                "cannot read the results in memory, which is a fault of Towline: {error}"
            ))
        })?;
        let series = Series::of(&results).into_iter();
        Ok(series.map(|series| series.latencies).collect())
    }

    /// Measures all variants on the calling thread, which it binds to processors and moves to
    /// scheduling classes as the variants ask. Calls `tell` with remarks for the user, and `watch`
    /// with the figures of each stretch of time.
    ///
    /// # Errors
    /// When no reflector answers, when [`Client::run`] refuses a size or rate, or when the system
    /// or `output` refuses. `output` has what was measured before the error.
    pub fn run(
        &self,
        output: impl Write + Send + 'static,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
        watch: Option<Watch>,
    ) -> Result<Vec<RunOutcome>, Error> {
        let mut client = Client::connect_over(
            self.transport,
            self.peer,
            self.interface.as_ref(),
            self.seed,
            self.timeout,
        )?;
        let mut remarks = Vec::new();
        let (stamp_every, refusal) = self.stamps();
        remarks.extend(refusal);
        if let Err(error) = client.set_stamping(stamp_every) {
            remarks.push(error.to_string());
        }
        let variants = self.possible(&client, &mut remarks);
        // When this is dropped, the device gets its setting back.
        let _device = match stamp_every {
            0 => None,
            _ => stamping_device(&client, &mut remarks),
        };
        for remark in &remarks {
            tell(remark);
        }
        let mut recorder = Recorder::start(output, &self.manifest(&client, remarks), watch)?;
        let result = self.turns(&mut client, &variants, &mut recorder, is_stopped, tell);
        let _ordinary = prepare(Scheduling::Other, None, false);
        recorder.finish()?;
        result
    }

    fn turns(
        &self,
        client: &mut Client,
        variants: &[Variant],
        recorder: &mut Recorder,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<RunOutcome>, Error> {
        let slice = self.slice.unwrap_or(self.duration).min(self.duration);
        let rounds = self.duration.as_nanos().div_ceil(slice.as_nanos().max(1));
        let mut outcomes = Vec::new();
        let mut left = self.duration;
        for round in 0..rounds {
            for variant in variants {
                let ready = self.prepare(variant.scheduling);
                let setup = self.setup(variant, &ready);
                let engine = (variant.engine, variant.wait);
                if round == 0 && !self.warm_up.is_zero() {
                    client.run(&setup, engine, self.warm_up, None, is_stopped)?;
                }
                if rounds == 1 {
                    tell(&format!("{}: {:?}", variant.label, slice));
                }
                let this = slice.min(left);
                let outcome = client.run(&setup, engine, this, Some(recorder), is_stopped)?;
                let cut = outcome.cut;
                outcomes.push(outcome);
                if let Some(cut) = cut {
                    tell(&self.describe(cut));
                    return Ok(outcomes);
                }
            }
            left = left.saturating_sub(slice);
        }
        Ok(outcomes)
    }

    /// Returns how often a message is stamped (one in this many), and a remark when none can be.
    fn stamps(&self) -> (u64, Option<String>) {
        if self.transport == Transport::Udp || self.stamp_every_messages == 0 {
            return (self.stamp_every_messages, None);
        }
        let text = format!(
            "no stamps: over {} the kernel cannot stamp single messages",
            self.transport
        );
        (0, Some(text))
    }

    /// Returns the variants as this machine can run them; `remarks` gets a sentence for each
    /// setting that is refused.
    ///
    /// The variants are tried before the manifest is written, so that the manifest says what was
    /// refused. Each is tried on a thread of its own, because the recorder's thread will inherit
    /// the settings of the calling thread. On the processor of a measuring thread that spins in a
    /// real-time class, the recorder's thread would never run.
    fn possible(&self, client: &Client, remarks: &mut Vec<String>) -> Vec<Variant> {
        let mut add = |remark: String| {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        };
        let mut granted = Vec::new();
        for variant in &self.variants {
            let refusal = client.refusal(variant.engine);
            let engine = match &refusal {
                Some(_) => Engine::default(),
                None => variant.engine,
            };
            let trial =
                std::thread::scope(|scope| scope.spawn(|| self.prepare(variant.scheduling)).join());
            let (scheduling, texts) = trial.map_or_else(
                |_| (Scheduling::Other, Vec::new()),
                |ready| (ready.scheduling, ready.remarks),
            );
            refusal.into_iter().chain(texts).for_each(&mut add);
            granted.push((engine, scheduling));
        }
        let variants = substituted(&self.variants, &granted);
        variants.iter().filter_map(limit_remark).for_each(&mut add);
        let dropped = self.variants.len() - variants.len();
        if dropped > 0 {
            add(format!(
                "{dropped} of {} variants are left out: without the refused settings they are the \
                 same as others",
                self.variants.len()
            ));
        }
        variants
    }

    fn prepare(&self, scheduling: Scheduling) -> Readiness {
        prepare(scheduling, self.cpu, self.lock_memory)
    }

    fn setup(&self, variant: &Variant, ready: &Readiness) -> Setup {
        Setup {
            label: variant.label.clone(),
            per_second: variant.per_second,
            size_bytes: self.size_bytes,
            transport: self.transport,
            is_ipv6: self.peer.is_ipv6(),
            sched: ready.scheduling.to_string(),
            engine: variant.engine.to_string(),
            wait: variant.wait.to_string(),
            cpu: ready.cpu,
            window_messages: self.window_messages,
        }
    }

    fn manifest(&self, client: &Client, remarks: Vec<String>) -> Manifest {
        let found = client.local().and_then(|local| link_of(local.ip()));
        let (interface, driver, mut link) = match found {
            Some((name, driver, link)) => (Some(name), driver, link),
            None => (None, None, None),
        };
        if let Some(bits_per_s) = self.link_bits_per_s {
            let mtu_bytes = link.map_or(MTU_BYTES, |link| link.mtu_bytes);
            link = Some(measure::Link {
                bits_per_s,
                mtu_bytes,
            });
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Manifest {
            towline: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.command.clone(),
            began_unix_s: now.map_or(0, |since| since.as_secs()),
            host: host(),
            target: self.target.clone(),
            interface,
            driver,
            link,
            seed: self.seed,
            remarks,
        }
    }

    fn describe(&self, cut: Cut) -> String {
        let target = &self.target;
        match cut {
            Cut::Stopped => "stopped; what was measured is kept".to_owned(),
            Cut::Unrecorded => {
                "the result cannot be written any more: the run ends, what was written is kept"
                    .to_owned()
            }
            Cut::Silent => format!(
                "{target} has not answered for {:?}: the run ends, and what was measured is kept",
                self.timeout * 2
            ),
            Cut::Refused => format!(
                "the reflector at {target} is gone (its port is closed): the run ends, and what \
                 was measured is kept"
            ),
        }
    }
}

/// Returns the variants as they will really run: each with the engine and the class that were
/// `granted`, and with a label that says so. Of two variants that this makes equal, one is left
/// out.
fn substituted(wanted: &[Variant], granted: &[(Engine, Scheduling)]) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for (asked, &(engine, scheduling)) in wanted.iter().zip(granted) {
        let replaced = |label: &str, from: &dyn fmt::Display, to: &dyn fmt::Display| {
            label.replace(&from.to_string(), &to.to_string())
        };
        let label = replaced(&asked.label, &asked.engine, &engine);
        let variant = Variant {
            label: replaced(&label, &asked.scheduling, &scheduling),
            engine,
            scheduling,
            ..asked.clone()
        };
        let is_elsewhere = variant != *asked && wanted.contains(&variant);
        if !is_elsewhere && !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    variants
}

/// Makes the network device stamp by its own clock where it can. Where it cannot, the kernel
/// stamps, and `remarks` say why.
fn stamping_device(client: &Client, remarks: &mut Vec<String>) -> Option<HardwareStamping> {
    let (name, _, _) = link_of(client.local()?.ip())?;
    match HardwareStamping::start(&name) {
        Ok(stamping) => Some(stamping),
        Err(error) => {
            remarks.push(no_device(&name, &error));
            None
        }
    }
}

fn no_device(name: &str, error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(errno::EPERM) => {
            format!("{error}; give CAP_NET_ADMIN (as root: `setcap cap_net_admin+ep PROGRAM`)")
        }
        None | Some(errno::EOPNOTSUPP) => "its driver does not stamp all packets".to_owned(),
        _ => sys::with_usual_remedy(error),
    };
    format!("the kernel stamps the messages, because the device {name} does not: {why}")
}

/// Warns that the kernel limits a real-time thread that never waits.
fn limit_remark(variant: &Variant) -> Option<String> {
    let (Scheduling::Fifo(_), Wait::Spin) = (variant.scheduling, variant.wait) else {
        return None;
    };
    let (runtime, period) = sys::scheduler::realtime_limit_ns()?;
    Some(format!(
        "real-time threads may run {} ms of every {} ms (kernel.sched_rt_runtime_us): when other \
         threads want the processor, the measuring thread stops for the rest of that time, and \
         the result marks the stop",
        runtime / 1_000_000,
        period / 1_000_000
    ))
}

/// The MTU in bytes where the system does not tell it.
const MTU_BYTES: u32 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(label: &str, engine: Engine, scheduling: Scheduling) -> Variant {
        Variant {
            label: label.to_owned(),
            per_second: Some(20_000),
            scheduling,
            engine,
            wait: Wait::Spin,
        }
    }

    #[test]
    fn a_variant_is_called_what_it_was_granted_and_none_is_measured_twice() {
        use Engine::{IoUring, Recv};
        let (other, fifo) = (Scheduling::Other, Scheduling::Fifo(50));
        let both = [
            variant("20000/s other", Recv, other),
            variant("20000/s fifo:50", Recv, fifo),
        ];
        assert_eq!(substituted(&both, &[(Recv, other), (Recv, fifo)]), both);
        let refused = substituted(&both, &[(Recv, other), (Recv, other)]);
        assert_eq!(refused, both[..1]);
        // Alone, the variant is measured and named as what it is; an ordinary thread has no limit.
        let alone = substituted(&both[1..], &[(Recv, other)]);
        assert_eq!(alone, both[..1]);
        assert_eq!(limit_remark(&alone[0]), None);
        // Two refusals turn two variants into one that nobody asked for.
        let asked = [
            variant("20000/s fifo:50 recv", Recv, fifo),
            variant("20000/s fifo:50 io_uring", IoUring, fifo),
        ];
        let one = substituted(&asked, &[(Recv, other), (Recv, other)]);
        assert_eq!(one, [variant("20000/s other recv", Recv, other)]);
    }

    #[test]
    fn a_device_that_does_not_stamp_is_named_with_the_reason() {
        let told = |error: io::Error| no_device("eth0", &error);
        let missing = told(io::ErrorKind::Unsupported.into());
        assert!(
            missing.ends_with("its driver does not stamp all packets"),
            "{missing}"
        );
        let refused = told(io::Error::from_raw_os_error(errno::EPERM));
        assert!(refused.contains("cap_net_admin+ep"), "{refused}");
    }
}
