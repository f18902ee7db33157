//! The end that asks: makes trial after trial, until the highest rate of every row is known.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        atomic::{AtomicBool, AtomicU64},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use measure::sweep::{Load, RateSearch, Trial};
use net::{Interfaces, Remedy, SystemError, interface::Selector};

use super::{
    Direction, Flow, Limit, Losses, Mode, Profile, Row, SIZES, SweepReport,
    counters::{CounterReader, Port, reassembly_timeout_s},
    limits::DURATION_MS_MAX,
    path::DataPath,
    protocol::{Outcome, Request, Response, TrialSpec, VERSION},
    receiver::{Expectation, receive},
    report::{asymmetries, limit_of},
    sender::send,
    server::{join, send_plan},
    watch::{TrialPassage, TrialWatch},
};
use crate::{Error, control_link::ControlLink, shown};

/// The task of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The servers; there can be more than one only with a group.
    pub servers: Vec<SocketAddr>,
    /// A group to send to, instead of the server.
    pub group: Option<SocketAddr>,
    /// The interface by which datagrams to the group leave; with `None`, that of the way to the
    /// first server.
    pub interface: Option<Selector>,
    /// Time to live of packets to the group.
    pub hops: u8,
    /// Payload bytes of a datagram, one entry for each size to measure.
    pub sizes: Vec<usize>,
    /// How the ends pass datagrams to the kernel.
    pub modes: Vec<Mode>,
    /// How the sockets are set up.
    pub profiles: Vec<Profile>,
    /// Who sends.
    pub directions: Vec<Direction>,
    /// The load of the only trial of each row; with `None`, the highest rate is searched for.
    pub load: Option<Load>,
    /// How long each trial sends.
    pub duration: Duration,
    /// The highest acceptable share of lost datagrams, 0 to 1.
    pub loss_max_share: f64,
    /// The number from which the tokens of the trials count up.
    pub seed: u64,
}

impl Sweep {
    /// Measures all rows. Calls `tell` with a line for each finished row, and `watch` with what
    /// this end did in each stretch of time.
    ///
    /// When a sweep ends early, the report says why, and has the rows that were finished by then.
    ///
    /// # Errors
    /// When a size or the time of a trial is out of range. When a server cannot be reached or
    /// refuses, or the system refuses, before any row is known.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
        watch: Option<TrialWatch<'_>>,
    ) -> Result<SweepReport, Error> {
        let mut bench = Bench::open(self, watch, is_stopped)?;
        let mut rows = Vec::new();
        let result = self.rows(&mut bench, &mut rows, is_stopped, tell);
        let mut report = bench.report(rows);
        match result {
            Err(error) if report.rows.is_empty() => return Err(error),
            Err(error) => report.cut = Some(error.to_string()),
            Ok(()) if is_stopped() => report.cut = Some("stopped by the user".to_owned()),
            Ok(()) => {}
        }
        Ok(report)
    }

    fn rows(
        &self,
        bench: &mut Bench<'_, '_>,
        rows: &mut Vec<Row>,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        for &size in &self.sizes {
            for &mode in &self.modes {
                for &profile in &self.profiles {
                    for &direction in &self.directions {
                        if is_stopped() {
                            return Ok(());
                        }
                        let row = bench.row(size, mode, profile, direction, is_stopped)?;
                        if row.flows.is_empty() && is_stopped() {
                            // The user stopped the sweep before any rate was found, so this size
                            // has no figure.
                            return Ok(());
                        }
                        tell(&row.line());
                        rows.push(row);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A sweep under way.
struct Bench<'a, 'w> {
    sweep: &'a Sweep,
    watch: Option<TrialWatch<'w>>,
    peers: Vec<Peer>,
    port: Port,
    /// This host's address on the way to the server.
    local: IpAddr,
    token: u64,
}

/// A server.
struct Peer {
    link: ControlLink,
    address: SocketAddr,
    name: String,
    mtu_bytes: u32,
}

impl<'a, 'w> Bench<'a, 'w> {
    fn open(
        sweep: &'a Sweep,
        watch: Option<TrialWatch<'w>>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        if let Some(size) = sweep.sizes.iter().find(|size| !SIZES.contains(size)) {
            let text =
                format!("cannot measure with datagrams of {size} bytes: choose 20 to 65507 bytes");
            return Err(Error::Measurement(text));
        }
        if sweep.duration > Duration::from_millis(DURATION_MS_MAX) {
            let text = format!(
                "cannot measure with trials of {:?}: choose at most 60 s",
                sweep.duration
            );
            return Err(Error::Measurement(text));
        }
        let peers = sweep
            .servers
            .iter()
            .map(|&address| Peer::open(address, is_stopped));
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        let first = peers.first().ok_or_else(|| {
            Error::Measurement("no server was named; name one at least".to_owned())
        })?;
        let refused = |error: io::Error| {
            SystemError::system(
                "find this end's address on the connection to",
                first.address,
                &error,
            )
        };
        let mut local = first.link.local().map_err(refused)?.ip();
        if let (Some(group), Some(wanted)) = (sweep.group, &sweep.interface) {
            local = Interfaces::read()?.choose(Some(wanted), group.ip())?.local;
        }
        let port = Port::of(local).ok_or_else(|| {
            let cause = format!("no interface of this host has this end's address, {local}");
            SystemError::refused("measure with", first.address, cause)
                .advise("look at the interfaces' addresses (`ip address`)")
        })?;
        Ok(Self {
            sweep,
            watch,
            port,
            local,
            peers,
            token: sweep.seed,
        })
    }

    fn report(&self, rows: Vec<Row>) -> SweepReport {
        SweepReport {
            servers: self.peers.iter().map(|peer| peer.name.clone()).collect(),
            group: self.sweep.group,
            interface: self.port.name.clone(),
            mtu_bytes: self.port.mtu_bytes,
            link: self.peers.first().and_then(Peer::link),
            is_ipv6: self.peers.iter().any(|peer| peer.address.is_ipv6()),
            loss_max_share: self.sweep.loss_max_share,
            is_load_given: self.sweep.load.is_some(),
            remarks: asymmetries(&rows),
            cut: None,
            rows,
        }
    }

    fn row(
        &mut self,
        size_bytes: usize,
        mode: Mode,
        profile: Profile,
        direction: Direction,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Row, Error> {
        let mut row = Row {
            size_bytes,
            mode,
            profile,
            direction,
            trials: 0,
            flows: Vec::new(),
            flood_received_per_s: Vec::new(),
            limit: Limit::NotMeasured,
            remarks: Vec::new(),
        };
        let mtus = self.peers.iter().map(|peer| peer.mtu_bytes);
        let mtu = mtus.fold(self.port.mtu_bytes, u32::min);
        let is_ipv6 = self.peers[0].address.is_ipv6();
        let headers = if is_ipv6 { 48 } else { 28 };
        if mode == Mode::Gso && size_bytes + headers > mtu as usize {
            row.remarks.push(format!(
                "not measured: GSO sends only datagrams that fit the MTU of {mtu}"
            ));
            return Ok(row);
        }
        let mut search = RateSearch::new(self.sweep.loss_max_share);
        let (mut flooded, mut failed) = (Losses::default(), Losses::default());
        let mut rate_per_s_max = None;
        while let Some(load) = search.next() {
            if is_stopped() {
                let text = "stopped before the search was over: the best rate by then";
                row.remarks.push(text.to_owned());
                break;
            }
            let load = self.sweep.load.unwrap_or(load);
            row.trials += 1;
            let (flows, limit) = self.trial(&row, load)?;
            rate_per_s_max = rate_per_s_max.or(limit);
            if load == Load::Flood {
                row.flood_received_per_s = flows.iter().map(|flow| flow.received_per_s).collect();
            }
            let trial = outcome_of(&flows);
            if self.sweep.load.is_some() {
                row.take_asked(load, flows, self.sweep.loss_max_share);
                break;
            }
            if trial.loss > self.sweep.loss_max_share {
                // The causes of loss show best near the limit; a flood may have other causes.
                let sum = if load == Load::Flood {
                    &mut flooded
                } else {
                    &mut failed
                };
                for flow in &flows {
                    sum.add(&flow.losses.per_million(&flow.dispatch));
                }
            }
            if search.take(&trial) {
                row.flows = flows;
            }
        }
        if self.sweep.load.is_none() {
            let losses = if failed.total() > 0 { failed } else { flooded };
            row.limit = limit_of(&row.flows, &losses);
        }
        if let Some(limit) = rate_per_s_max {
            row.take_server_limit(limit);
        }
        row.remark(mtu, is_ipv6, reassembly_timeout_s());
        Ok(row)
    }

    /// Makes one trial. Returns its flows, and the rate to which the server limited itself if that
    /// was lower than `load`. Of the flows to several servers, returns only the one that lost most.
    fn trial(&mut self, row: &Row, load: Load) -> Result<(Vec<Flow>, Option<u64>), Error> {
        let &Row {
            size_bytes,
            mode,
            profile,
            direction,
            ..
        } = row;
        // A trial takes two tokens: one for each direction.
        self.token = self.token.wrapping_add(2);
        let spec = TrialSpec {
            token: self.token,
            size_bytes,
            mode,
            profile,
            rate_per_s: match load {
                Load::Flood => None,
                Load::Rate(rate) => Some(rate),
            },
            duration_ms: u64::try_from(self.sweep.duration.as_millis()).unwrap_or(DURATION_MS_MAX),
            is_there: direction != Direction::Back,
            is_back: direction != Direction::There,
            group: self.sweep.group,
            hops: self.sweep.hops,
        };
        let (ours, theirs) = self.exchange(&spec, row.trial_name())?;
        let each = if mode == Mode::Gso {
            GSO_DATAGRAMS_MAX
        } else {
            1
        };
        let mut flows = Vec::new();
        let there = theirs
            .iter()
            .filter_map(|theirs| flow(false, &ours, theirs, each));
        flows.extend(there.max_by(|a, b| a.loss().total_cmp(&b.loss())));
        flows.extend(
            theirs
                .first()
                .and_then(|theirs| flow(true, theirs, &ours, each)),
        );
        Ok((flows, theirs.first().and_then(|it| it.rate_per_s_max)))
    }

    /// Runs a trial at this end, and returns what both ends counted.
    fn exchange(
        &mut self,
        spec: &TrialSpec,
        trial: String,
    ) -> Result<(Outcome, Vec<Outcome>), Error> {
        let server = self.peers[0].address;
        let refused = |operation: &'static str| {
            move |error: io::Error| SystemError::system(operation, server, &error)
        };
        // The group reaches a server on this host by loopback, whatever the interface.
        let local = self.peers[0].link.local();
        let local = local.map_err(refused("find this end's address on the connection to"))?;
        let is_same_host = local.ip() == server.ip();
        let port = (&self.port, self.local);
        let path = DataPath::client(spec, server, port, is_same_host)
            .map_err(refused("open this end's sockets for datagrams to and from"))?;
        for peer in &mut self.peers {
            peer.begin(spec, &path)?;
        }
        let mut counters = CounterReader::new(self.port.index, server.is_ipv6());
        let before = counters.read();
        let (expectation, stop) = (Expectation::new(), AtomicBool::new(false));
        let sent = AtomicU64::new(0);
        let (result, receipt) = thread::scope(|scope| {
            let (going, is_over) = channel();
            if let Some(watch) = &mut self.watch {
                let about = TrialPassage {
                    trial,
                    from: Duration::ZERO,
                    to: Duration::ZERO,
                    size_bytes: spec.size_bytes,
                    sent: spec.is_there.then_some(0),
                    received: spec.is_back.then_some(0),
                };
                let counts = (&sent, &expectation);
                scope.spawn(move || watch.follow(about, counts, &is_over));
            }
            let receiver = spec.is_back.then(|| {
                let plan = (spec.token.wrapping_add(1), spec.size_bytes, spec.mode);
                let (path, expectation) = (&path, &expectation);
                scope.spawn(move || receive(path.inbound(), plan, expectation))
            });
            let result = exchange_with(&mut self.peers, spec, &path, (&stop, &sent));
            match &result {
                Ok((_, theirs)) => {
                    let sent = theirs.first().and_then(|it| it.dispatch);
                    expectation.set_sent(sent.map_or(0, |it| it.sent));
                }
                Err(_) => expectation.set_sent(0),
            }
            let receipt = join(receiver);
            drop::<Sender<()>>(going);
            (result, receipt)
        });
        let (dispatch, theirs) = result?;
        let ours = Outcome {
            dispatch,
            receipt: receipt.map_err(refused("receive datagrams from"))?,
            counters: counters.read().since(&before),
            rate_per_s_max: None,
        };
        Ok((ours, theirs))
    }
}

/// Starts the trial at all ends, sends its datagrams, and collects the results.
fn exchange_with(
    peers: &mut [Peer],
    spec: &TrialSpec,
    path: &DataPath,
    (stop, count): (&AtomicBool, &AtomicU64),
) -> Result<(Option<super::Dispatch>, Vec<Outcome>), Error> {
    for peer in &mut *peers {
        peer.say(&Request::Go)?;
    }
    let server = peers[0].address;
    let refused = |error| SystemError::system("send datagrams in the trial with", server, &error);
    let sent = if spec.is_there {
        let result = send(path.outbound(), &send_plan(spec, spec.token), stop, count);
        Some(result.map_err(refused)?)
    } else {
        None
    };
    for peer in &mut *peers {
        peer.say(&Request::Sent(sent.map_or(0, |it| it.sent)))?;
    }
    let limit = Duration::from_millis(spec.duration_ms) + ANSWER_TIME_MAX;
    let outcomes = peers.iter_mut().map(|peer| match peer.hear(limit)? {
        Response::Outcome(outcome) => Ok(outcome),
        other => Err(peer.nonsense(&other)),
    });
    Ok((sent, outcomes.collect::<Result<_, _>>()?))
}

/// Connects. When the host refuses, tries again for 1 s, because a server that is starting listens
/// a moment later. The caller can stop this.
fn connect(address: SocketAddr, is_stopped: &dyn Fn() -> bool) -> io::Result<TcpStream> {
    let end = Instant::now() + START_TIME_MAX;
    loop {
        let connected = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX);
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if !connected.as_ref().is_err_and(refused) || Instant::now() >= end || is_stopped() {
            return connected;
        }
        thread::sleep(START_PAUSE);
    }
}

impl Peer {
    fn open(address: SocketAddr, is_stopped: &dyn Fn() -> bool) -> Result<Self, Error> {
        let stream = connect(address, is_stopped).map_err(|error| {
            SystemError::system("reach the server at", address, &error)
                .advise(Remedy::StartSweepServer)
        })?;
        let refused =
            |error: io::Error| SystemError::system("talk to the server at", address, &error);
        let mut peer = Self {
            link: ControlLink::new(stream).map_err(refused)?,
            address,
            name: address.to_string(),
            mtu_bytes: u32::MAX,
        };
        peer.say(&Request::Hello { version: VERSION })?;
        match peer.hear(ANSWER_TIME_MAX)? {
            Response::Welcome {
                version,
                name,
                interface,
                mtu_bytes,
            } if version == VERSION => {
                let [name, interface] = [name, interface].map(|it| shown(&it));
                peer.name = format!("{address} ({name}, {interface})");
                peer.mtu_bytes = mtu_bytes;
                Ok(peer)
            }
            other => Err(peer.nonsense(&other)),
        }
    }

    /// Announces a trial, and sends greetings until the server is ready.
    fn begin(&mut self, spec: &TrialSpec, path: &DataPath) -> Result<(), Error> {
        self.say(&Request::Trial(*spec))?;
        let end = sys::clock::monotonic() + ANSWER_TIME_MAX;
        while sys::clock::monotonic() < end {
            path.greet(spec.token);
            let heard = self.link.hear(GREETING_GAP);
            match heard.map_err(|error| self.broken(&error))? {
                None => {}
                Some(Response::Ready) => return Ok(()),
                Some(other) => return Err(self.nonsense(&other)),
            }
        }
        Err(self.silent())
    }

    /// Returns the link of this host that leads to the server.
    fn link(&self) -> Option<measure::Link> {
        let local = self.link.local().ok()?;
        crate::rtt::link_of(local.ip()).and_then(|(_, _, link)| link)
    }

    fn say(&mut self, request: &Request) -> Result<(), Error> {
        self.link.say(request).map_err(|error| self.broken(&error))
    }

    fn hear(&mut self, limit: Duration) -> Result<Response, Error> {
        let heard = self.link.hear(limit).map_err(|error| self.broken(&error))?;
        heard.ok_or_else(|| self.silent())
    }

    fn broken(&self, error: &io::Error) -> Error {
        SystemError::system("talk to the server at", self.address, error).into()
    }

    fn nonsense(&self, response: &Response) -> Error {
        match response {
            Response::Refused { reason } => {
                self.nonsense_text(&format!("the server says: {}", shown(reason)))
            }
            Response::Welcome { version, .. } if *version != VERSION => {
                self.nonsense_text(&format!(
                    "it speaks version {version} of the protocol, and this end {VERSION}: use the \
                     same release at both ends"
                ))
            }
            _ => self.nonsense_text(
                "it answered something else than was asked: use the same release at both ends, or \
                 look which program has that address",
            ),
        }
    }

    fn silent(&self) -> Error {
        SystemError::refused("measure with", self.address, "it does not answer")
            .advise(Remedy::StartSweepServer)
            .into()
    }

    fn nonsense_text(&self, cause: &str) -> Error {
        SystemError::refused("measure with", self.address, cause).into()
    }
}

impl Row {
    /// Makes a name for the trial that runs.
    fn trial_name(&self) -> String {
        let (mode, direction) = (self.mode.name(), self.direction.name());
        format!(
            "{} B, {mode}, {direction}, trial {}",
            self.size_bytes, self.trials
        )
    }

    /// Makes a line about the row, for the user.
    fn line(&self) -> String {
        let rates: Vec<String> = self
            .flows
            .iter()
            .map(|flow| format!("{:.0}/s", flow.received_per_s))
            .collect();
        let rates = if rates.is_empty() {
            "-".to_owned()
        } else {
            rates.join(", ")
        };
        let (mode, direction) = (self.mode.name(), self.direction.name());
        format!("{} B, {mode}, {direction}: {rates}", self.size_bytes)
    }
}

fn flow(is_back: bool, sender: &Outcome, receiver: &Outcome, each: u64) -> Option<Flow> {
    let (dispatch, receipt) = (sender.dispatch?, receiver.receipt?);
    Some(Flow {
        is_back,
        dispatch,
        receipt,
        received_per_s: receipt.received_per_s(dispatch.lasted_ns),
        losses: Losses::of(&dispatch, &receipt, &receiver.counters, each),
        sender: sender.counters,
        receiver: receiver.counters,
    })
}

/// Makes the result of a trial: each figure is that of the flow in which it is worst.
fn outcome_of(flows: &[Flow]) -> Trial {
    let least = |value: fn(&Flow) -> f64| flows.iter().map(value).fold(f64::INFINITY, f64::min);
    Trial {
        offered_per_s: least(|flow| flow.dispatch.offered_per_s()),
        received_per_s: least(|flow| flow.received_per_s),
        loss: flows.iter().map(Flow::loss).fold(0.0, f64::max),
    }
}

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a server may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(1);
/// How long to wait between two tries to connect.
const START_PAUSE: Duration = Duration::from_millis(20);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);
/// How long to wait between two greetings.
const GREETING_GAP: Duration = Duration::from_millis(20);
/// The most datagrams in a super-packet.
const GSO_DATAGRAMS_MAX: u64 = 64;
