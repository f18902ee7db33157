//! What every command with a session does besides its work: it serves its counters to `top` and
//! `stat`, and measures times for closing reports.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use towline::{
    Place, Snapshot, UsageMeter,
    counters::{CounterServer, CounterSlot, MetricsServer},
};

use crate::{
    failure::Failure,
    plan::SessionPlan,
    report::{Counters, Output, UsageReport},
};

/// The counters of this process, served to others.
#[derive(Debug)]
pub(super) struct Station {
    /// The counter server, this session's slot in it, and the server for `--metrics`.
    slot: Option<(CounterServer, CounterSlot, Option<MetricsServer>)>,
    due: Instant,
}

impl Station {
    /// Starts to serve the command's counters. A failure is an error only with `--metrics`.
    pub(super) fn open(role: &str, plan: &SessionPlan, output: &Output) -> Result<Self, Failure> {
        Self::at(role, &plan.place.to_string(), plan.metrics, output)
    }

    /// Starts to serve the counters, as [`Station::open`] does, for a command that works at
    /// `place`.
    pub(super) fn at(
        role: &str,
        place: &str,
        metrics: Option<SocketAddr>,
        output: &Output,
    ) -> Result<Self, Failure> {
        let command: Vec<String> = std::env::args().collect();
        let server = CounterServer::start(&command.join(" "));
        let slot = match server {
            Ok(server) => {
                let served = metrics.map(|address| serve(&server, address, output));
                let served = served.transpose()?;
                let slot = server.slot(role, place);
                Some((server, slot, served))
            }
            Err(error) if metrics.is_some() => {
                return Err(Failure::system("serving the counters (--metrics)", &error));
            }
            Err(error) => {
                let cause = sys::with_usual_remedy(&error);
                output.detail(&format!("`towline top` cannot see this process: {cause}"));
                None
            }
        };
        Ok(Self {
            slot,
            due: Instant::now(),
        })
    }

    /// Publishes new values, at most once in a [`TICK`].
    pub(super) fn show(&mut self, fill: impl FnOnce(&mut Snapshot)) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        if let Some((_, slot, _)) = &self.slot {
            slot.publish(fill);
        }
        self.due = now + TICK;
    }
}

/// Answers Prometheus on `address`.
fn serve(
    server: &CounterServer,
    address: SocketAddr,
    output: &Output,
) -> Result<MetricsServer, Failure> {
    let metrics = server.serve_metrics(address).map_err(|error| {
        Failure::system(
            &format!("answering Prometheus on {address} (--metrics)"),
            &error,
        )
    })?;
    output.note(&format!("metrics at http://{}/metrics", metrics.address()));
    Ok(metrics)
}

/// A line that is printed once, when nothing has come for a moment. It says what the command waits
/// for.
#[derive(Debug)]
pub(crate) struct Patience {
    began: Instant,
    is_said: bool,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            is_said: false,
        }
    }

    /// Prints the line when it is due. Call it every [`TICK`] while nothing has come; `what`
    /// completes "waiting for".
    pub(crate) fn look(&mut self, output: &Output, what: impl FnOnce() -> String) {
        if !self.is_said && self.began.elapsed() >= SILENT_AT_FIRST {
            self.is_said = true;
            output.note(&format!("waiting for {}", what()));
        }
    }
}

/// Describes the sender that a receiving command waits for at first.
pub(crate) fn a_sender(plan: &SessionPlan, (interface, address): (&str, IpAddr)) -> String {
    match &plan.place {
        Place::Listen(address) => format!("a sender that sends to this host, TCP at {address}"),
        place => format!("a sender on {place} by {interface} ({address})"),
    }
}

/// Prints the warnings of a session's sockets and, with `-v`, by which interface the session works.
/// `doing` is the text before the interface.
pub(super) fn opened(
    output: &Output,
    warnings: &[String],
    doing: &str,
    (interface, address): (&str, IpAddr),
) {
    warnings.iter().for_each(|warning| output.warn(warning));
    output.detail(&format!("{doing} {interface} ({address})"));
}

/// Makes the counters for a closing report.
pub(super) fn counters(fill: impl FnOnce(&mut Snapshot)) -> Counters {
    let mut snapshot = Snapshot::default();
    fill(&mut snapshot);
    Counters::new(&snapshot)
}

/// The time from the first message or frame to the last, and the processor time used meanwhile.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    first: Option<(Instant, UsageMeter)>,
    last: Option<Instant>,
    seen: u64,
}

impl Stretch {
    /// Notes the present time if `received`, a count, has changed since the last call. The data may
    /// have arrived earlier, by at most one turn of the loop.
    pub(super) fn take(&mut self, received: u64) {
        if received != self.seen {
            self.seen = received;
            self.mark();
        }
    }

    /// Notes the present time as that of the last arrival, and of the first if there was none.
    pub(super) fn mark(&mut self) {
        let now = Instant::now();
        self.last = Some(now);
        self.first.get_or_insert_with(|| (now, UsageMeter::start()));
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    pub(super) fn since_first(&self) -> Duration {
        self.first
            .as_ref()
            .map_or(Duration::ZERO, |(first, _)| first.elapsed())
    }

    pub(super) fn time(&self) -> Duration {
        let first = self.first.as_ref().map(|(first, _)| *first);
        first
            .zip(self.last)
            .map_or(Duration::ZERO, |(first, last)| last - first)
    }

    pub(super) fn usage(&self) -> UsageReport {
        match &self.first {
            Some((_, meter)) => meter.read().into(),
            None => UsageMeter::start().read().into(),
        }
    }
}

/// The longest sleep of a command's loop, so that it notices signals and other events that are no
/// packets.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// How long a command waits before it says that it waits.
const SILENT_AT_FIRST: Duration = Duration::from_secs(1);
