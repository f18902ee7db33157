//! One cell of the matrix: who sends to whom, over what, and what happens meanwhile.

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};

use super::peer::{self, Content, Outcome, Peer};
use crate::{ends::End, signals::Place};

/// What a session travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    UdpV4,
    UdpV6,
    RawV4,
    RawV6,
}

impl Carrier {
    pub(super) const ALL: [Self; 4] = [Self::UdpV4, Self::UdpV6, Self::RawV4, Self::RawV6];

    pub(super) const fn is_ipv6(self) -> bool {
        matches!(self, Self::UdpV6 | Self::RawV6)
    }

    pub(super) const fn is_raw(self) -> bool {
        matches!(self, Self::RawV4 | Self::RawV6)
    }
}

/// The parity that the sender offers, for groups of [`FEC_GROUP`] packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parity {
    No,
    OnDemand,
    /// One packet after each group, and on demand.
    Proactive,
}

/// What happens during the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Story {
    Plain,
    /// The receiver starts in the middle, and gets all that follows.
    LateJoin,
    /// The sender ends and another one starts.
    Restart,
}

/// How Towline is told what the other end expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// By a flag for each setting.
    Flags,
    /// By `--profile` alone.
    Profile,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) from: Peer,
    pub(super) to: Peer,
    pub(super) carrier: Carrier,
    pub(super) content: Content,
    pub(super) parity: Parity,
    pub(super) loss_percent: u32,
    pub(super) story: Story,
    pub(super) manner: Manner,
}

impl Cell {
    /// The cells of a pair that differ from the plain one in one thing, each without loss and with
    /// it.
    pub(super) fn each(from: Peer, to: Peer) -> Vec<Self> {
        Self::kinds(from, to, &[Carrier::UdpV4])
    }

    /// Every cell that a pair of peers can have, with whatever carries it.
    pub(super) fn all(from: Peer, to: Peer) -> Vec<Self> {
        Self::kinds(from, to, &Carrier::ALL)
    }

    /// The plain cell over every carrier; and over those named, what differs from it in content,
    /// parity, story or manner.
    fn kinds(from: Peer, to: Peer, carriers: &[Carrier]) -> Vec<Self> {
        let plain = Self {
            from,
            to,
            carrier: Carrier::UdpV4,
            content: Content::Short,
            parity: Parity::No,
            loss_percent: 0,
            story: Story::Plain,
            manner: Manner::Flags,
        };
        let mut kinds = Vec::new();
        if from.sends_long() {
            let content = Content::Long;
            kinds.push(Self { content, ..plain });
        }
        for &parity in from.parity_to(to) {
            kinds.push(Self { parity, ..plain });
        }
        for story in [Story::LateJoin, Story::Restart] {
            kinds.push(Self { story, ..plain });
        }
        if [from, to].contains(&Peer::Towline) && from != to {
            let manner = Manner::Profile;
            kinds.push(Self { manner, ..plain });
        }
        let over = |&carrier: &Carrier| kinds.iter().map(move |kind| Self { carrier, ..*kind });
        let kinds: Vec<Self> = carriers.iter().flat_map(over).collect();
        // A profile means UDP.
        let is_there = |kind: &Self| kind.manner == Manner::Flags || !kind.carrier.is_raw();
        let plain = Carrier::ALL.map(|carrier| Self { carrier, ..plain });
        let with_loss = |kind: Self| {
            [0, 2].map(|loss_percent| Self {
                loss_percent,
                ..kind
            })
        };
        let all = plain.into_iter().chain(kinds).filter(is_there);
        all.flat_map(with_loss).collect()
    }

    /// The same cell without Towline: the other peer with itself. `None` where there is no other,
    /// or it does not send such messages.
    pub(super) fn control(self) -> Option<Self> {
        let mut ends = [self.from, self.to].into_iter();
        let other = ends.find(|&peer| peer != Peer::Towline)?;
        (self.content == Content::Short || other.sends_long()).then_some(Self {
            from: other,
            to: other,
            ..self
        })
    }

    /// Runs the cell on two hosts of its own, and looks at the sender when the receiver has ended.
    /// Returns the rate of the messages, as a part of the sender's. Fails with what is wrong.
    pub(super) fn run(
        self,
        place: &Place,
        scale: Scale,
        look: impl FnOnce(&End),
    ) -> Result<f64, String> {
        self.run_on(&Self::hosts(), place, scale, look)
    }

    /// The two hosts of a cell.
    pub(super) fn hosts() -> Lab {
        Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap()
    }

    /// As [`Cell::run`], on these hosts.
    pub(super) fn run_on(
        self,
        lab: &Lab,
        place: &Place,
        scale: Scale,
        look: impl FnOnce(&End),
    ) -> Result<f64, String> {
        if self.loss_percent > 0 {
            lab.host(1).set_loss(self.loss_percent, 100).unwrap();
        }
        let send = || End::start(self.from.send(lab.host(0), self, scale, place));
        let (mut sender, mut receiver);
        if self.story == Story::LateJoin {
            sender = send();
            thread::sleep(self.from.start_time() + scale.time() / 3);
            receiver = self.to.receive(lab.host(1), self, scale);
        } else {
            receiver = self.to.receive(lab.host(1), self, scale);
            sender = send();
        }
        if self.story == Story::Restart {
            let (status, _, said) = sender.finish_all(self.limit(scale));
            if !status.success() {
                return Err(format!("the first sender: {status}: {said}"));
            }
            sender = send();
        }
        let has_parity = self.parity != Parity::No && self.loss_percent > 0;
        let mut parity = None;
        if has_parity && self.to == Peer::Towline {
            let name = "receiver.recovered_sqns";
            parity = Some((name, receiver.watch_counter(name, self.limit(scale))));
        }
        let outcome = self.to.outcome(receiver, self, scale, place);
        if has_parity && (self.from, self.to) == (Peer::Towline, Peer::OpenPgm) {
            let name = "source.parity_packets";
            parity = Some((name, sender.counter(name).unwrap()));
        }
        look(&sender);
        drop(sender);
        if self.loss_percent > 0 && lab.host(1).lost_packets().unwrap() == 0 {
            return Err("no packet was lost".to_owned());
        }
        let share = self.judge(&outcome, scale)?;
        match parity {
            Some((name, count)) if (count > 0) != peer::repairs_by_parity(self.from, self.to) => {
                Err(format!("complete, but {name} is {count}"))
            }
            _ => Ok(share),
        }
    }

    /// The longest time that an end of the cell may take.
    pub(super) fn limit(self, scale: Scale) -> Duration {
        FIXED_TIME_MAX + self.sessions() * TIMES_MAX * scale.time()
    }

    /// How many senders there are, one after the other.
    pub(super) fn sessions(self) -> u32 {
        if self.story == Story::Restart { 2 } else { 1 }
    }

    fn judge(self, outcome: &Outcome, scale: Scale) -> Result<f64, String> {
        let share = outcome.bytes_per_s / f64::from(scale.bytes_per_s);
        // A late one or a second sender adds time in which nobody sends.
        let share_min = match self.parity {
            Parity::Proactive => scale.share_min * f64::from(FEC_GROUP) / f64::from(FEC_GROUP + 1),
            Parity::No | Parity::OnDemand => scale.share_min,
        };
        let is_slow = self.story == Story::Plain && share < share_min;
        let is_right = match self.story {
            Story::Plain => outcome.received == scale.count,
            Story::Restart => outcome.received == 2 * scale.count,
            // It starts after a third, and that takes a while.
            Story::LateJoin => (scale.count / 10..scale.count).contains(&outcome.received),
        };
        match &outcome.fault {
            Some(fault) => Err(format!("{} received, {fault}", outcome.received)),
            None if !is_right => Err(format!("{} received", outcome.received)),
            None if is_slow => Err(format!("complete, but at {share:.2} of the rate")),
            None => Ok(share),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = format!("{:?} -> {:?}", self.from, self.to);
        let (carrier, content) = (format!("{:?}", self.carrier), format!("{:?}", self.content));
        let (parity, story) = (format!("{:?}", self.parity), format!("{:?}", self.story));
        let (loss, manner) = (self.loss_percent, format!("{:?}", self.manner));
        write!(
            f,
            "{ends:<20} {carrier:<6} {content:<5} {parity:<9} {loss} %  {story:<8} {manner:<7}"
        )
    }
}

/// How many messages, and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) count: u32,
    /// As the sender counts it: payload with headers.
    pub(super) bytes_per_s: u32,
    /// The least rate of the messages that arrive, as a part of that: headers and the last repairs
    /// take their share.
    pub(super) share_min: f64,
}

impl Scale {
    /// About how long a transfer takes.
    fn time(self) -> Duration {
        let bytes = u64::from(self.count) * u64::from(MESSAGE_BYTES);
        Duration::from_millis(bytes * 1000 / u64::from(self.bytes_per_s))
    }
}

/// Runs cells, several at a time as most of their time is waiting, and prints the table of results.
///
/// **Panics**: when one of them is not complete.
pub(super) fn run(cells: &[Cell], scale: Scale, at_a_time: usize) {
    let failed = failures(cells, scale, at_a_time);
    let lines: Vec<&str> = failed.iter().map(|(_, line)| line.as_str()).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// As [`run`]; returns those that are not complete, with their lines.
pub(super) fn failures(cells: &[Cell], scale: Scale, at_a_time: usize) -> Vec<(Cell, String)> {
    let place = Place::new(&format!("interop-{}", scale.count));
    Content::write_all(&place, scale.count);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut lines = Vec::new();
        while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let result = thread::scope(|scope| {
                let run = scope.spawn(|| cell.run(&place, scale, |_| ()));
                run.join()
                    .unwrap_or_else(|_| Err("panicked: see above".to_owned()))
            });
            let seconds = began.elapsed().as_secs_f64();
            let word = match &result {
                Ok(share) => &format!("complete, at {share:.2} of the rate"),
                Err(why) => why,
            };
            println!("{cell} {} in {seconds:4.1} s: {word}", scale.count);
            if result.is_err() {
                lines.push((*cell, format!("{cell} {word}")));
            }
        }
        lines
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
        let lines = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        lines.collect()
    })
}

/// Packets of a parity group.
pub(super) const FEC_GROUP: u32 = 8;
/// Length of the messages on average, with headers.
const MESSAGE_BYTES: u32 = 760;
/// How many times as long as its rate says a transfer may take: repairs take their time, too.
const TIMES_MAX: u32 = 3;
/// The longest time that does not depend on how much is sent: programs start, and a receiver waits
/// 40 s for more before it gives up.
const FIXED_TIME_MAX: Duration = Duration::from_secs(90);
