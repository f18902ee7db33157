//! The sending end of a PGM session, without input or output: window, repairs, confirmations, SPMs,
//! rate.
//!
//! A source does not open sockets, read clocks or judge receivers; its owner says with
//! [`Source::set_hold`] what must stay repairable. In: messages ([`Source::offer`],
//! [`Source::reserve`]), what receivers send upstream ([`Source::handle`]), time. Out: runs of
//! complete packets.
//!
//! ```text
//!   offer / reserve+commit --> transmit log --poll_run--> ODATA   (sent as it lies in the log)
//!                                  |  ^
//!   NAK --handle--> repair set ----+  +-- turned into RDATA in place, checksum by RFC 1624
//!               \-> NCF queue -----------poll_run--> NCF
//!   timers, SPMR, POLR -----------------poll_run--> SPM, POLL
//!
//!   trail <= hold <= unsent <= lead          64-bit positions, low 32 bits on the wire
//!   |  sent, can be repaired  |  waits  |    lead is one past the newest packet
//! ```
//!
//! Order of sending (RFC 3208 section 5.1.3): NCF, SPM and POLL, then the parity of complete
//! groups. Repairs follow, within their share of the rate and in turns for the receivers that ask,
//! then new data. The rate limit counts every packet with its IP and UDP headers; it is never
//! exceeded by more than one burst plus the configured catch-up.
//!
//! Invariants:
//! - every position is sent as ODATA at most once, in order, and from then on only as RDATA;
//! - a packet is not evicted while it is unsent, waits for repair, is needed for parity, or is held
//!   by `set_hold`; when that leaves no room, the application gets [`Full::Window`]: this is the
//!   back-pressure;
//! - the window's memory is what the configuration says, and is allocated by [`Source::new`];
//! - each upstream packet is counted as handled, or as dropped for one reason.
//!
//! Comments mark deviations from the RFC where they are: in this file, in `upstream` (confirmations
//! for data never sent), in `spm` (the active interval) and in `parity` (selective NAKs).
//!
//! **Spec**: RFC 3208 sections 3.3, 5, 8.1, 8.2, 9.2, 9.3.4, 9.4, 9.6.2, 9.7.2, 13.4, 14.4, 16.2.

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::Duration,
};

use base::{Contract, DropCounters, Instant, Pace, PathId, Rng, earliest};
use wire::{
    Sqn,
    object::StreamPhase,
    pgm::{Addressing, Fragment, Mark, PgmOption, Rst, Tsi},
};

use crate::Config;

mod askers;
mod cork;
mod counters;
mod ending;
mod limits;
mod log;
mod ncf;
mod pacer;
mod parity;
mod pieces;
mod polling;
mod position_set;
mod repair;
mod reporters;
mod row;
mod spm;
mod strangers;
mod transmit;
mod upstream;
mod write;

pub use counters::SourceCounters;
pub use polling::Census;
pub use write::{Burst, Slot};

use askers::Askers;
use cork::Cork;
use ending::{Closing, Ending};
use limits::Limits;
use log::TransmitLog;
use ncf::NcfQueue;
use pacer::{Pacer, time_of};
use parity::Parity;
use polling::Polling;
use repair::RepairQueue;
use spm::SpmSchedule;
use transmit::Pending;

/// The sending end of one session. The module's description says what it does.
///
/// Commands: `offer`, `reserve`, `reserve_burst`, `set_*`, `close`. Input: `handle`,
/// `handle_timeout`. Output: `poll_run` with `run_done`, until `poll_run` gives `None`. The order
/// of the calls is that of every sans-IO type (see the base crate).
#[derive(Debug)]
pub struct Source {
    config: Config,
    setup: SourceSetup,
    addressing: Addressing,
    log: TransmitLog,
    repairs: RepairQueue,
    askers: Askers,
    parity: Option<Box<Parity>>,
    ncfs: NcfQueue,
    spm: SpmSchedule,
    polling: Polling,
    pacers: Pacers,
    cork: Cork,
    reports: Reports,
    limits: Limits,
    ending: Ending,
    now: Instant,
    contract: Contract,
    out: Outgoing,
    counters: SourceCounters,
    drops: DropCounters,
}

/// The pacers that keep the sending rate within its limits.
#[derive(Debug)]
struct Pacers {
    /// The rate limit for all packets that are sent.
    all: Pacer,
    repairs: Pacer,
    ncfs: Pacer,
}

/// The state that reporting receivers impose on the source.
#[derive(Clone, Copy, Debug)]
struct Reports {
    /// The window keeps every packet from this position on; `u64::MAX` when it need not keep any.
    hold: u64,
    /// True while new data waits for receivers that have not joined yet.
    is_waiting: bool,
    /// The oldest position that was in the window when it was last too full to take data.
    refused_at: u64,
    /// The elimination interval: a packet is repaired at most once in this time.
    elimination: Duration,
}

/// The run that was given out last, and the memory that runs are built in.
#[derive(Debug)]
struct Outgoing {
    pending: Pending,
    /// True when the network had no room for the last run.
    is_blocked: bool,
    /// The bytes of an SPM, a POLL or a confirmation.
    control: Vec<u8>,
    ranges: Vec<Range<usize>>,
    /// The positions of the repairs in the run.
    repaired: Vec<u64>,
}

/// What a source needs besides its parameters.
#[derive(Clone, Copy, Debug)]
pub struct SourceSetup {
    /// The session's identifier; hosts off the path must not be able to predict it.
    pub tsi: Tsi,
    /// The data-destination port that receivers listen for.
    pub destination_port: u16,
    /// The address that downstream packets go to; a unicast address serves a single receiver.
    pub group: SocketAddr,
    /// The address that all packets come from, and that receivers send NAKs to.
    pub nla: IpAddr,
    /// The interface that packets leave by.
    pub path: PathId,
    /// The sequence number of the first packet.
    pub first_sqn: u32,
    /// The seed that determines every random choice, such as the number of the first SPM.
    pub seed: u64,
    /// The mark, Towline's own SPM option; left out when the configuration says `strict_pgm`.
    pub mark: Option<Mark>,
}

impl SourceSetup {
    /// Returns the position of the first packet.
    const fn first_position(&self) -> u64 {
        (1 << 32) + self.first_sqn as u64
    }

    /// Returns true when the session's packets are protected with a key.
    pub(super) fn is_protected(&self) -> bool {
        self.mark.is_some_and(|mark| mark.is_protected())
    }
}

impl Source {
    /// Makes a source whose first SPM is due at `now`.
    ///
    /// **Cost**: allocates mainly the window (`tx_window_bytes`) and 16 bytes for each of its
    /// packets; the operating system supplies the memory as it is first used.
    #[must_use]
    pub fn new(config: Config, mut setup: SourceSetup, now: Instant) -> Self {
        if config.strict_pgm() {
            setup.mark = None;
        }
        let form = config.fec_form().reading();
        setup.mark = setup.mark.map(|mark| mark.with_parity(form));
        let first = setup.first_position();
        let log = TransmitLog::new(config.tx_window_bytes(), config.tx_window_sqns(), first);
        let repairs = RepairQueue::new(log.index_slots());
        let limits = Limits::new(&config, &setup);
        let parity = Parity::new(&config, &limits, &log);
        let catch_up = config.pacing_catch_up();
        let mut source = Self {
            config,
            setup,
            addressing: Addressing::downstream(setup.tsi, setup.destination_port),
            log,
            repairs,
            askers: Askers::new(&config, now),
            parity,
            ncfs: NcfQueue::new(),
            spm: SpmSchedule::new(&config, now),
            polling: Polling::new(&config, setup.seed, now),
            pacers: Pacers {
                all: Pacer::new(config.rate().pace(), catch_up, now),
                repairs: Pacer::new(Pace::Unlimited, catch_up, Instant::ZERO),
                ncfs: Pacer::new(Pace::Unlimited, NCF_BURST, Instant::ZERO),
            },
            cork: Cork::new(config.cork()),
            reports: Reports {
                hold: u64::MAX,
                is_waiting: false,
                refused_at: u64::MAX,
                elimination: elimination(&config, ELIMINATION_START),
            },
            limits,
            ending: Ending {
                closing: Closing::Open,
                reset: None,
            },
            now,
            contract: Contract::default(),
            out: Outgoing {
                pending: Pending::None,
                is_blocked: false,
                control: Vec::with_capacity(CONTROL_BYTES),
                ranges: Vec::with_capacity(IOVECS_MAX),
                repaired: Vec::with_capacity(IOVECS_MAX),
            },
            counters: SourceCounters::default(),
            drops: DropCounters::default(),
        };
        // The first SPM's number must be below 2^31: OpenPGM compares a new peer's first SPM number
        // with 0, so it ignores an SPM from the upper half of the number space. Without an SPM it
        // gives up the packets that it misses.
        source.spm.sqn = Sqn(Rng::new(setup.seed).next_u32() >> 1);
        source.set_pace(config.rate().pace());
        source
    }

    /// Changes the rate limit for all packets that are sent. The limits for repairs, confirmations
    /// and SPMs follow it.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pacers.all.set_pace(pace);
        if let Some(bytes_per_s) = pace.bytes_per_s() {
            let share = u128::from(bytes_per_s) * u128::from(self.config.repair_share()) / 100;
            let share = u64::try_from(share).unwrap_or(bytes_per_s);
            self.pacers.repairs.set_pace(Pace::at_most(share));
            self.pacers
                .ncfs
                .set_pace(Pace::at_most(bytes_per_s / NCF_PART));
            let spm_bytes = self.spm_bytes_max() + self.limits.datagram_overhead;
            self.spm
                .set_spacing(time_of(spm_bytes, bytes_per_s / SPM_PART));
        } else {
            let repairs = Pace::of(self.config.repair_bytes_per_s_max());
            self.pacers.repairs.set_pace(repairs);
            self.pacers.ncfs.set_pace(Pace::Unlimited);
            self.spm.set_spacing(Duration::ZERO);
        }
    }

    /// Returns the length of this source's longest SPM in bytes, rounded up.
    fn spm_bytes_max(&self) -> usize {
        SPM_BYTES + self.setup.mark.map_or(0, |mark| mark.extra_len())
    }

    /// Sets the longest round trip to a receiver. The first heartbeat and the elimination interval
    /// follow it, unless the configuration sets them. In the elimination interval, a packet is
    /// repaired only once: for a round trip after a repair, NAKs may arrive that receivers sent
    /// before they got it. An interval that follows the round trip is at most 50 ms, and at most a
    /// fixed `nak_rdata_interval`.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        let measured = (round_trip + ELIMINATION_SLACK).clamp(ELIMINATION_MIN, ELIMINATION_MAX);
        self.reports.elimination = elimination(&self.config, measured);
        self.spm.set_round_trip(round_trip);
    }

    /// Keeps every packet from `position` on in the window, even if the application must then wait
    /// for room. Sends new data only up to the flow window beyond `position`: receivers that report
    /// control the flow. With `None` the window moves freely.
    pub const fn set_hold(&mut self, position: Option<u64>) {
        self.reports.hold = match position {
            Some(position) => position,
            None => u64::MAX,
        };
    }

    /// Makes new data wait in the window while `is_waiting` is true: some of the receivers that the
    /// data is meant for have not joined yet.
    pub const fn set_waiting(&mut self, is_waiting: bool) {
        self.reports.is_waiting = is_waiting;
    }

    /// Notes that handing over a run to the network ended at `end` and took `took`. How long the
    /// cork holds new data back follows `took`, unless the configuration sets that time.
    pub fn run_took(&mut self, end: Instant, took: Duration) {
        self.cork.run_took(end, took);
    }

    /// Releases new data that the cork holds back: it may leave at once.
    pub const fn uncork(&mut self) {
        self.cork.release(self.log.lead());
    }

    /// Returns the time when the cork lets waiting data leave: at once while the session closes.
    fn cork_due(&self) -> Instant {
        if !matches!(self.ending.closing, Closing::Open) {
            return Instant::ZERO;
        }
        let (unsent, lead) = (self.log.unsent(), self.log.lead());
        self.cork.due(unsent, lead, self.log.unsent_bytes())
    }

    /// Changes what SPMs announce: the pace, the number of receivers, and the slot of the receiver
    /// that limits the pace ([`Mark::NO_RECEIVER`] for none). Does nothing without a mark.
    pub const fn set_announced(&mut self, pace: Pace, receiver_count: u32, limiting: u32) {
        if let Some(mark) = &mut self.setup.mark {
            mark.announced_pace = pace;
            mark.receiver_count = receiver_count;
            mark.limiting_receiver = limiting;
        }
    }

    /// Takes no more data. When everything has been sent, SPMs carry OPT_FIN, the first three in
    /// quick succession, and the source answers NAKs for `linger` longer.
    ///
    /// Deviation: the RFC keeps a closed session for TXW_SECS, the window's length in seconds. Here
    /// the window is measured in bytes, so `linger` is a parameter of its own.
    /// **Spec**: RFC 3208 section 9.7.2.
    pub fn close(&mut self, now: Instant) {
        self.tell_time(now);
        if matches!(self.ending.closing, Closing::Open) {
            self.ending.closing = Closing::SENDING;
        }
        self.advance_closing(now);
    }

    /// Breaks the session off: unsent data is never sent, and SPMs carry OPT_RST for `linger`.
    /// `reason` is the application's own number (6 bits, 0 for unknown). During `linger` the source
    /// answers NAKs only when `repairs` is true.
    ///
    /// **Spec**: RFC 3208 section 9.8.2.
    pub fn abort(&mut self, now: Instant, reason: u8, repairs: bool) {
        self.tell_time(now);
        self.log.discard_unsent();
        self.ending.reset = Some(Rst {
            is_deaf: !repairs,
            reason,
        });
        if !repairs {
            self.repairs.clear();
            self.parity.iter_mut().for_each(|parity| parity.clear());
        }
        match self.ending.closing {
            Closing::Open => self.ending.closing = Closing::SENDING,
            // SPMs have announced a normal end, so an SPM that corrects this must leave at once.
            Closing::Finished { .. } => self.spm.quicken(now, self.config.linger()),
            Closing::Sending { .. } | Closing::Over => {}
        }
        self.advance_closing(now);
    }

    /// Makes a closed source fall silent no later than `linger` after `now`: the owner knows that
    /// no receiver is left to ask for repairs. Does nothing while data is unsent.
    pub fn shorten_linger(&mut self, now: Instant, linger: Duration) {
        if let Closing::Finished { until } = &mut self.ending.closing {
            *until = (*until).min(now + linger);
        }
    }

    /// Keeps a closed source from falling silent before `until`: the owner knows that a receiver
    /// still lacks something. Does nothing before [`Source::close`], or when the source is over.
    pub fn extend_linger(&mut self, until: Instant) {
        if let Closing::Sending { at_least: end } | Closing::Finished { until: end } =
            &mut self.ending.closing
        {
            *end = until.max(*end);
        }
    }

    /// Does the work that is due at `now`. [`Source::poll_run`] then gives what there is to send.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tell_time(now);
        self.polling.advance(now);
        self.advance_closing(now);
    }

    /// Returns the time when `poll_run` or `handle_timeout` next has something to do; a past time
    /// means now. After [`base::Outcome::Blocked`], overdue packets do not count: they wait for
    /// room in the network.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let end = match self.ending.closing {
            Closing::Over => return None,
            Closing::Finished { until } => Some(until),
            Closing::Open | Closing::Sending { .. } => None,
        };
        let mut due = self.spm.due().min(self.polling.due());
        if !self.ncfs.is_empty() {
            due = due.min(self.pacers.ncfs.due());
        }
        if self.has_repairs() {
            due = due.min(self.pacers.repairs.due());
        }
        if self.has_sendable() {
            due = due.min(self.cork_due());
        }
        if self.is_proactive_due() {
            due = Instant::ZERO;
        }
        let due = due.max(self.pacers.all.due());
        let waits_for_room = self.out.is_blocked && due <= self.now;
        earliest(end, (!waits_for_room).then_some(due))
    }

    /// Returns true while something waits to be sent and the rate limit lets nothing leave.
    #[must_use]
    pub fn is_rate_limited(&self, now: Instant) -> bool {
        let waits = self.has_sendable() || self.has_repairs() || !self.ncfs.is_empty();
        waits && !self.pacers.all.is_ready(now)
    }

    /// Returns true while new data waits for receivers that report: they are as far behind as the
    /// flow window allows, or the transmit window has refused data because it is full of packets
    /// that they lack.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let is_behind = self.log.unsent() < self.log.lead() && self.flow_room() == 0;
        !self.reports.is_waiting && (is_behind || self.is_full())
    }

    /// Returns true when the source asks receivers to report.
    #[must_use]
    pub const fn takes_reports(&self) -> bool {
        matches!(self.setup.mark, Some(mark) if mark.control_port != 0)
    }

    /// Returns true when new data may leave now: it does not wait for more data, for the rate limit
    /// or for receivers.
    #[must_use]
    pub fn has_due(&self, now: Instant) -> bool {
        self.has_sendable() && self.cork_due() <= now && self.pacers.all.is_ready(now)
    }

    /// Returns true when no data is unsent, no repair is queued and no parity is due.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_sent = self.log.unsent() == self.log.lead();
        is_sent && !self.has_repairs() && !self.is_proactive_due()
    }

    /// Returns true when the source was closed and its time to answer NAKs is over: it sends
    /// nothing more.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.ending.closing, Closing::Over)
    }

    /// Returns whether more data will follow. SPMs announce this, too.
    #[must_use]
    pub const fn phase(&self) -> StreamPhase {
        match (&self.ending.reset, &self.ending.closing) {
            (Some(_), _) => StreamPhase::BrokenOff,
            (None, Closing::Finished { .. } | Closing::Over) => StreamPhase::Ended,
            (None, Closing::Open | Closing::Sending { .. }) => StreamPhase::Open,
        }
    }

    /// Returns true once [`Source::close`] or [`Source::abort`] was called.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        !matches!(self.ending.closing, Closing::Open)
    }

    /// Returns the longest message that fits one packet, in bytes.
    #[must_use]
    pub const fn max_tsdu(&self) -> usize {
        if self.config.pack() {
            self.longest_in_row()
        } else {
            self.limits.tsdu
        }
    }

    /// Returns the longest piece of a message that is cut into several packets, in bytes.
    #[must_use]
    pub const fn max_fragment_tsdu(&self) -> usize {
        self.limits.fragment_tsdu
    }

    /// Returns the longest message that [`Source::offer`] takes, in bytes.
    #[must_use]
    pub const fn max_apdu(&self) -> usize {
        self.limits.apdu
    }

    /// Returns the name of the parameter that limits the length of messages. For longer messages,
    /// raise this parameter first.
    #[must_use]
    pub const fn apdu_limit(&self) -> &'static str {
        self.limits.apdu_limit
    }

    /// Returns the position of the oldest packet that can be repaired.
    #[must_use]
    pub const fn trail(&self) -> u64 {
        self.log.trail()
    }

    /// Returns the position of the first packet that must stay in the window: unsent, waiting for
    /// repair, needed for parity, or held by flow control.
    #[must_use]
    pub fn hold(&self) -> u64 {
        let unsent = self.log.unsent();
        let edge = unsent.min(self.repairs.oldest());
        let edge = match &self.parity {
            None => edge,
            Some(parity) => edge.min(parity.hold(unsent)),
        };
        edge.min(self.reports.hold).max(self.log.trail())
    }

    /// Returns the position of the first packet that was never sent. TXW_LEAD on the wire is the
    /// packet before it.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.log.unsent()
    }

    /// Returns the position after the newest packet taken.
    #[must_use]
    pub const fn lead(&self) -> u64 {
        self.log.lead()
    }

    /// Returns the length of all packets taken and not yet sent, in bytes.
    #[must_use]
    pub const fn backlog_bytes(&self) -> usize {
        self.log.unsent_bytes()
    }

    /// Returns the rate limit for all packets that are sent.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.pacers.all.pace()
    }

    /// Returns the session's identifier.
    #[must_use]
    pub const fn tsi(&self) -> Tsi {
        self.setup.tsi
    }

    /// Returns the parameters.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters of what the source has done.
    #[must_use]
    pub const fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    /// Returns the number of upstream packets thrown away, by reason.
    #[must_use]
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Notes the time. Every call with a parameter `now` begins with this.
    #[inline]
    #[track_caller]
    fn tell_time(&mut self, now: Instant) {
        self.contract.tell_time(now);
        self.now = now;
    }

    /// Returns true when new data waits and the flow window has room for it.
    fn has_sendable(&self) -> bool {
        self.log.unsent() < self.log.lead() && self.flow_room() > 0
    }

    fn has_repairs(&self) -> bool {
        let is_wanted = |parity: &Parity| parity.is_wanted();
        !self.repairs.is_empty() || self.parity.as_deref().is_some_and(is_wanted)
    }

    fn advance_closing(&mut self, now: Instant) {
        match self.ending.closing {
            Closing::Sending { at_least } if self.log.unsent() == self.log.lead() => {
                let until = at_least.max(now + self.config.linger());
                self.ending.closing = Closing::Finished { until };
                if let (Some(parity), None) = (&mut self.parity, self.ending.reset) {
                    parity.end(self.log.trail(), self.log.lead());
                }
                self.spm.quicken(now, self.config.linger());
            }
            Closing::Finished { until } if now >= until => self.ending.closing = Closing::Over,
            _ => {}
        }
    }
}

/// The reason why the source took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Unsent data, queued repairs or flow control hold the window: send, then try again.
    Window,
    /// What was offered is longer than the source can ever take.
    TooLong {
        /// The most bytes that the source takes at once.
        max: usize,
    },
    /// The source was closed.
    Closed,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Window => f.write_str("the transmit window is full"),
            Self::TooLong { max } => {
                write!(f, "this is longer than the {max} bytes that can be taken")
            }
            Self::Closed => f.write_str("the source was closed"),
        }
    }
}

impl std::error::Error for Full {}

/// Returns the elimination interval that the configuration sets, or else `measured`. A fixed
/// `nak_rdata_interval` limits `measured`: receivers repeat a NAK after that time, and the source
/// must answer the repeated NAK.
fn elimination(config: &Config, measured: Duration) -> Duration {
    let measured = measured.min(config.nak_rdata_interval().or(measured));
    config.elimination_interval().or(measured)
}

/// Length of an IPv6 SPM with every option, but without tag and partner, in bytes, rounded up.
const SPM_BYTES: usize = 136;
/// Capacity of the buffer in which SPMs, POLLs and NCFs are built, in bytes.
const CONTROL_BYTES: usize = 512;
/// The most repairs in one run, and the most pieces that the source gives to one send call.
const IOVECS_MAX: usize = 128;
/// Confirmations (NCFs) take at most an eighth of a limited rate.
const NCF_PART: u64 = 8;
/// After a pause, as many NCFs may leave at once as their rate limit allows in this time.
const NCF_BURST: Duration = Duration::from_millis(5);
/// The elimination interval while the round trip is unknown: longer than the NAK back-offs of a
/// group on a LAN. Once the round trip is known, the interval is the round trip plus
/// `ELIMINATION_SLACK`, which allows for hosts that answer late.
const ELIMINATION_START: Duration = Duration::from_millis(4);
const ELIMINATION_SLACK: Duration = Duration::from_micros(500);
const ELIMINATION_MIN: Duration = Duration::from_millis(1);
/// The longest elimination interval that follows the round trip. Judgement: after a lost repair,
/// another receiver's long round trip delays the next repair by at most this time. Over paths with
/// a longer round trip, the source may send one repair too many.
const ELIMINATION_MAX: Duration = Duration::from_millis(50);
/// SPMs take at most a sixteenth of a limited rate.
const SPM_PART: u64 = 16;
