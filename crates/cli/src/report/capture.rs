//! The account of a capture, as document and as text.

use std::{collections::BTreeMap, fmt::Write as _};

use capture::{
    Account, Ended, InterfaceAccount, LinkSpeed, ReplayTiming, Second, Session, Workers,
    generated::SequenceCheck,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Document, quantity,
    text::{clauses, wrap},
};
use crate::plan::{CapturePlan, ReplayPlan};

/// The report of `capture`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CaptureReport {
    pub(crate) sources: Vec<String>,
    pub(crate) sink: String,
    /// `source`, `limit`, `stopped`, `sink` or `error`.
    pub(crate) ended_by: &'static str,
    pub(crate) elapsed_s: f64,
    /// The unit of `delivered`, `cut` and `unwritten`. In contrast, `received`, `filtered`,
    /// `unread` and the losses count frames as captured.
    pub(crate) unit: &'static str,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) received: u64,
    pub(crate) filtered: u64,
    /// Frames that hold several packets of the wire in one piece.
    pub(crate) super_frames: u64,
    /// With `--segment`: super-frames that could not be cut up and were delivered whole.
    pub(crate) super_frames_left_whole: u64,
    /// Packets added by cutting super-frames up: for each super-frame, one less than the number of
    /// its packets.
    pub(crate) pieces: u64,
    pub(crate) cut: u64,
    pub(crate) unread: u64,
    pub(crate) unwritten: u64,
    pub(crate) unwritten_bytes: u64,
    pub(crate) lost: LostReport,
    /// How many packets the sockets saw by the kernel's count, drops included.
    pub(crate) seen: Option<u64>,
    /// `seen` minus all packets that are accounted for. 0 means that the account closes: no packet
    /// is missing from it.
    pub(crate) residual: Option<i128>,
    /// Packets that passed the filter, plus `pieces`, minus `delivered` and `unwritten`; 0 when the
    /// account closes.
    pub(crate) sink_residual: i128,
    /// With `--check-gen`: what became of generated frames.
    pub(crate) generated: Option<SequenceReport>,
    /// What each worker delivered; the sum is `delivered`.
    pub(crate) delivered_by_worker: Vec<u64>,
    /// Interfaces whose packets the host did not receive, because `xdp:` took them.
    pub(crate) taken_from_host: Vec<String>,
    /// The interfaces, in the order of their numbers in the file.
    pub(crate) interfaces: Vec<InterfaceReport>,
    /// The counts of each of the last seconds, for at most 86,400 seconds (one day).
    pub(crate) per_second: Vec<SecondReport>,
    /// How many seconds came before those of `per_second`; only their sums are known.
    pub(crate) seconds_unlisted: u64,
}

/// One interface's share of the account.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct InterfaceReport {
    pub(crate) seen: Option<u64>,
    pub(crate) passed: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) unwritten: u64,
    pub(crate) lost_ring: u64,
    pub(crate) lost_interface: u64,
}

/// The losses of a capture, by cause.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LostReport {
    pub(crate) ring: u64,
    pub(crate) ring_full_times: Option<u64>,
    pub(crate) interface: u64,
    /// Losses under the names that interfaces and drivers give them. They overlap, so their sum
    /// means nothing.
    pub(crate) by_name: BTreeMap<String, u64>,
    pub(crate) damaged_records: u64,
    pub(crate) unreadable_bytes: u64,
}

/// Generated frames by their sequence numbers.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct SequenceReport {
    pub(crate) frames: u64,
    /// Missing numbers below the highest number that arrived.
    pub(crate) missing: u64,
    pub(crate) duplicates: u64,
    pub(crate) late: u64,
    pub(crate) corrupt: u64,
}

impl From<&InterfaceAccount> for InterfaceReport {
    fn from(interface: &InterfaceAccount) -> Self {
        Self {
            seen: interface.losses.seen,
            passed: interface.passed,
            delivered: interface.delivered,
            delivered_bytes: interface.delivered_bytes,
            unwritten: interface.unwritten,
            lost_ring: interface.losses.ring,
            lost_interface: interface.losses.interface,
        }
    }
}

impl From<&SequenceCheck> for SequenceReport {
    fn from(check: &SequenceCheck) -> Self {
        Self {
            frames: check.frames,
            missing: check.missing(),
            duplicates: check.duplicates,
            late: check.late,
            corrupt: check.corrupt,
        }
    }
}

/// The value of `ended_by` when a signal ended the capture or replay.
const STOPPED: &str = "stopped";

fn end_name(ended: Option<&Ended>) -> &'static str {
    match ended {
        Some(Ended::Source) => "source",
        Some(Ended::Limit) => "limit",
        Some(Ended::Stopped) => STOPPED,
        Some(Ended::Sink) => "sink",
        None => "error",
    }
}

/// Returns the words for a value of `ended_by`.
fn end_words(ended_by: &str) -> &'static str {
    match ended_by {
        "source" => "the source ended",
        "limit" => "stopped at the limit given",
        STOPPED => "interrupted",
        "sink" => "stopped because the sink failed",
        _ => "stopped by an error",
    }
}

/// Says what to change when the ring lost packets; `None` when it lost none.
pub(crate) fn ring_remedy(lost: u64) -> Option<String> {
    (lost > 0).then(|| {
        format!(
            "the ring was full and lost {}: give it more memory (--ring 256MiB), keep less of each \
             packet (-s 128), or fewer packets (--filter)",
            quantity::count(lost, "packet")
        )
    })
}

/// Describes the state of an account, with its last second, in one line.
pub(crate) fn last_second(account: &Account) -> String {
    let second = account.seconds.last().copied().unwrap_or_default();
    format!(
        "{} packets, {} lost; {}/s, {}, {} lost/s",
        account.delivered,
        account.lost(),
        second.delivered,
        quantity::bits(second.delivered_bytes as f64 * 8.0),
        second.lost(),
    )
}

/// Makes the last line of an account: whether all packets are accounted for.
pub(super) fn account_end(residual: Option<i128>, sink_residual: i128) -> String {
    if sink_residual != 0 {
        let text = "packets were not delivered, and no counter of unwritten packets has them";
        return format!("the account does NOT close: {sink_residual} {text}\n");
    }
    match residual {
        Some(0) => "the account closes\n".to_owned(),
        Some(residual) => {
            format!("the account does NOT close: {residual} packets are unexplained\n")
        }
        None => String::new(),
    }
}

/// The report of `replay`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReplayReport {
    pub(crate) sources: Vec<String>,
    pub(crate) sink: String,
    /// `source`, `limit`, `stopped`, `sink` or `error`.
    pub(crate) ended_by: &'static str,
    pub(crate) elapsed_s: f64,
    /// Packets that the kernel took.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) packets_per_s: f64,
    /// Bits of frames as captured, without check sequence, preamble and gap.
    pub(crate) bits_per_s: f64,
    /// The rate that `--pps` or `--rate` asked for, in packets of the mean size a second; null
    /// without these options, and with `--rate` when nothing was sent.
    pub(crate) asked_packets_per_s: Option<f64>,
    /// The attained rate as a share of the rate that an option or the stamps asked for; null at top
    /// speed, and when the replay was too short to tell.
    pub(crate) attained_share: Option<f64>,
    /// The most that the link can carry if all packets have the mean size of those sent; null when
    /// its driver names no speed, or nothing was sent.
    pub(crate) link: Option<LinkReport>,
    /// Packets that were sent cut short, because only a part of them had been captured.
    pub(crate) cut: u64,
    /// Packets that the kernel did not take: they were too long for the interface, or it had no
    /// carrier or was switched off.
    pub(crate) refused: u64,
    pub(crate) refused_bytes: u64,
    /// Packets that the interface dropped on their way out and that were not sent again. The count
    /// comes from the interface's own counter, which includes packets of other programs.
    pub(crate) dropped_by_interface: u64,
    pub(crate) gap_error: Option<GapErrorReport>,
}

/// The most that a link can carry.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct LinkReport {
    /// The speed that the driver names.
    pub(crate) speed_bits_per_s: u64,
    /// The mean length of the frames that were sent, in bytes, without check sequence.
    pub(crate) frame_bytes: f64,
    /// How many frames of this mean size the link carries each second, when each also takes check
    /// sequence, preamble and gap.
    pub(crate) packets_per_s_max: f64,
    /// The bits of these `packets_per_s_max` frames, without check sequence, preamble and gap.
    pub(crate) bits_per_s_max: f64,
}

impl LinkReport {
    fn new(speed: LinkSpeed, frame_bytes: f64) -> Self {
        let packets_per_s_max = speed.frames(frame_bytes);
        Self {
            speed_bits_per_s: speed.bits,
            frame_bytes,
            packets_per_s_max,
            bits_per_s_max: packets_per_s_max * frame_bytes * 8.0,
        }
    }
}

/// How far gaps between packets were from the wanted gaps.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct GapErrorReport {
    pub(crate) gaps: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl ReplayReport {
    pub(crate) fn new(plan: &ReplayPlan, session: &mut Session, ended: Option<&Ended>) -> Self {
        let dropped_by_interface = session.dropped_later();
        let elapsed_s = session.elapsed().as_secs_f64();
        let account = session.account();
        let frame_bytes = account.delivered_bytes as f64 / account.delivered.max(1) as f64;
        let speed = plan.sink.interface().and_then(LinkSpeed::find);
        let has_sent = account.delivered > 0;
        let asked_packets_per_s = match plan.limits.pace {
            ReplayTiming::Packets(rate) => Some(rate as f64),
            ReplayTiming::Bits(bits) if has_sent => Some(bits as f64 / 8.0 / frame_bytes),
            ReplayTiming::Bits(_) | ReplayTiming::Stamps(_) | ReplayTiming::TopSpeed => None,
        };
        Self {
            sources: plan.sources.iter().map(ToString::to_string).collect(),
            sink: plan.sink.to_string(),
            ended_by: end_name(ended),
            elapsed_s,
            bits_per_s: quantity::per_second(account.delivered_bytes * 8, elapsed_s),
            asked_packets_per_s,
            attained_share: session.attained(),
            link: speed
                .filter(|_| has_sent)
                .map(|speed| LinkReport::new(speed, frame_bytes)),
            sent: account.delivered,
            sent_bytes: account.delivered_bytes,
            packets_per_s: quantity::per_second(account.delivered, elapsed_s),
            cut: account.cut,
            refused: account.unwritten,
            refused_bytes: account.unwritten_bytes,
            dropped_by_interface,
            gap_error: session.gap_errors().map(|errors| GapErrorReport {
                gaps: errors.count(),
                p50_ns: errors.quantile_ns(0.5),
                p99_ns: errors.quantile_ns(0.99),
                p999_ns: errors.quantile_ns(0.999),
                max_ns: errors.max_ns(),
            }),
        }
    }
}

impl Document for ReplayReport {
    const SCHEMA: &'static str = "towline.replay";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let is_stopped = self.ended_by == STOPPED;
        let sent = [
            format!(
                "{}sent {} packets, {}, in {:.3} s: {:.0} packets/s",
                if is_stopped { "interrupted: " } else { "" },
                self.sent,
                quantity::bytes(self.sent_bytes),
                self.elapsed_s,
                self.packets_per_s,
            ),
            format!(
                "{} refused, {} dropped by the interface",
                self.refused, self.dropped_by_interface
            ),
        ];
        let mut text = String::new();
        let ends = format!("{} -> {}:", self.sources.join(" "), self.sink);
        clauses(&mut text, &ends, &sent);
        self.rates(&mut text);
        if let Some(error) = &self.gap_error {
            let us = |ns: u64| ns as f64 / 1e3;
            let told = format!(
                "gaps between packets were off by {:.1} us (p50), {:.1} (p99), {:.1} (p99.9), \
                 {:.1} (max)",
                us(error.p50_ns),
                us(error.p99_ns),
                us(error.p999_ns),
                us(error.max_ns),
            );
            wrap(&mut text, "", &told);
        }
        text
    }
}

impl ReplayReport {
    /// Lists what the user should know about the rate.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.cut > 0 {
            remarks.push(format!(
                "{} packets were cut short when they were captured, and were sent like that",
                self.cut
            ));
        }
        let rate = self.asked_packets_per_s.unwrap_or(self.packets_per_s);
        if let Some(link) = self.link
            && rate > link.packets_per_s_max
        {
            let verb = if self.asked_packets_per_s.is_some() {
                "asked for"
            } else {
                "sent"
            };
            remarks.push(format!(
                "{} were {verb}, but a line of {} carries {} of {:.0} B frames",
                quantity::whole_rate(rate),
                quantity::bits(link.speed_bits_per_s as f64),
                quantity::whole_rate(link.packets_per_s_max),
                link.frame_bytes
            ));
        }
        if let Some(share) = self
            .attained_share
            .filter(|share| *share < gauge::rtt::ATTAINED_MIN)
        {
            remarks.push(format!(
                "only {:.1} % of the rate asked for was reached",
                share * 100.0
            ));
        }
        remarks
    }

    /// Writes the rate that was asked for, beside the rate that the link carries.
    fn rates(&self, text: &mut String) {
        let asked = self
            .asked_packets_per_s
            .map(|rate| format!("asked for {}", quantity::whole_rate(rate)));
        let link = self.link.map(|link| {
            format!(
                "the line carries {} of {:.0} B frames: {} of {} with preamble and gap",
                quantity::whole_rate(link.packets_per_s_max),
                link.frame_bytes,
                quantity::bits(link.bits_per_s_max),
                quantity::bits(link.speed_bits_per_s as f64),
            )
        });
        let parts: Vec<String> = asked.into_iter().chain(link).collect();
        if !parts.is_empty() {
            clauses(text, "", &parts);
        }
    }
}

/// The counts of one second of a capture.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct SecondReport {
    pub(crate) at_s: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) cut: u64,
    pub(crate) unwritten: u64,
    pub(crate) filtered: u64,
    pub(crate) unread: u64,
    pub(crate) lost_ring: u64,
    pub(crate) lost_interface: u64,
    pub(crate) damaged_records: u64,
}

impl From<&Second> for SecondReport {
    fn from(second: &Second) -> Self {
        Self {
            at_s: second.at,
            delivered: second.delivered,
            delivered_bytes: second.delivered_bytes,
            cut: second.cut,
            unwritten: second.unwritten,
            filtered: second.filtered,
            unread: second.unread,
            lost_ring: second.ring,
            lost_interface: second.interface,
            damaged_records: second.damaged,
        }
    }
}

impl CaptureReport {
    pub(crate) fn new(plan: &CapturePlan, workers: &Workers, ended: Option<&Ended>) -> Self {
        let account = workers.account();
        let losses = account.losses;
        Self {
            sources: plan.sources.iter().map(ToString::to_string).collect(),
            sink: plan.sink.to_string(),
            ended_by: end_name(ended),
            elapsed_s: workers.elapsed().as_secs_f64(),
            unit: account.unit.name(),
            delivered: account.delivered,
            delivered_bytes: account.delivered_bytes,
            received: account.received,
            filtered: account.filtered,
            super_frames: account.super_frames,
            super_frames_left_whole: account.uncut_super_frames,
            pieces: account.pieces,
            cut: account.cut,
            unread: account.unread,
            unwritten: account.unwritten,
            unwritten_bytes: account.unwritten_bytes,
            lost: LostReport {
                ring: losses.ring,
                // Only block rings and XDP sockets count how often the ring was full. So a count of
                // 0 despite losses means that the times were not counted.
                ring_full_times: Some(losses.freezes)
                    .filter(|times| *times > 0 || losses.ring == 0),
                interface: losses.interface,
                by_name: account.named_losses.iter().cloned().collect(),
                damaged_records: losses.damaged,
                unreadable_bytes: losses.lost_bytes,
            },
            seen: losses.seen,
            residual: account.residual(),
            sink_residual: account.sink_residual(),
            generated: workers.sequence().as_ref().map(SequenceReport::from),
            delivered_by_worker: workers.accounts().map(|one| one.delivered).collect(),
            taken_from_host: plan
                .sources
                .iter()
                .filter_map(|source| source.taken().map(str::to_owned))
                .collect(),
            interfaces: account.interfaces.iter().map(Into::into).collect(),
            per_second: account.seconds.iter().map(Into::into).collect(),
            seconds_unlisted: account.seconds_unlisted,
        }
    }

    /// Returns true when generated frames came damaged, or when more are missing than the filter
    /// rejected. Rejected frames also count as missing, because their numbers are not looked at.
    pub(crate) fn has_gaps(&self) -> bool {
        let check = self.generated.as_ref();
        check.is_some_and(|check| check.corrupt > 0 || check.missing > self.filtered)
    }

    /// Writes what was lost, and what became of generated frames: a line for each count.
    fn rest_of_the_account(&self, line: &mut impl FnMut(u64, &str)) {
        if let Some(seen) = self.seen {
            let times = match self.lost.ring_full_times {
                Some(times) => format!(" ({times} times)"),
                None => String::new(),
            };
            line(
                self.lost.ring,
                &format!("lost because the ring was full{times}"),
            );
            line(self.lost.interface, "lost by the interface or its driver");
            for (name, count) in &self.lost.by_name {
                line(
                    *count,
                    &format!("of these, counted by the driver as {name}"),
                );
            }
            line(
                seen,
                "seen by the socket, including those that the ring lost",
            );
        }
        if let Some(check) = &self.generated {
            line(check.frames, "generated frames, without duplicates");
            let rejected = if self.filtered > 0 {
                ", including those that the filter rejected"
            } else {
                ""
            };
            line(
                check.missing,
                &format!("generated frames missing{rejected}"),
            );
            line(check.duplicates, "duplicates");
            line(check.corrupt, "damaged");
        }
    }

    /// Returns the account in one line.
    pub(crate) fn one_line(&self) -> String {
        format!(
            "{} delivered, {} lost in the ring, {} by the interface, {} not written",
            self.delivered, self.lost.ring, self.lost.interface, self.unwritten
        )
    }
}

impl Document for CaptureReport {
    const SCHEMA: &'static str = "towline.capture";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let mut text = format!(
            "{} -> {}: {}\n",
            self.sources.join(" "),
            self.sink,
            end_words(self.ended_by)
        );
        let bytes = quantity::bytes(self.delivered_bytes);
        let mut line = |count: u64, what: &str| {
            writeln!(text, "{count:>14}  {what}").expect("text grows in memory");
        };
        line(
            self.delivered,
            &format!("delivered, {bytes} (each a {})", self.unit),
        );
        let rows = [
            (self.cut, "of these cut short"),
            (
                self.super_frames,
                "super-packets received: several packets in one piece",
            ),
            (
                self.super_frames_left_whole,
                "of these could not be cut up, and were delivered in one piece",
            ),
            (self.filtered, "rejected by the filter"),
            (self.unread, "left unread because a limit was reached"),
            (self.unwritten, "not written: the sink failed"),
            (self.lost.damaged_records, "records damaged"),
            (
                self.lost.unreadable_bytes,
                "bytes of the file could not be read",
            ),
        ];
        rows.iter()
            .filter(|(count, _)| *count > 0)
            .for_each(|(count, what)| line(*count, what));
        if self.delivered_by_worker.len() > 1 {
            for (number, count) in self.delivered_by_worker.iter().enumerate() {
                line(*count, &format!("delivered by worker {number}"));
            }
        }
        self.rest_of_the_account(&mut line);
        for name in &self.taken_from_host {
            writeln!(
                text,
                "this host received nothing through {name} meanwhile: xdp: took every packet"
            )
            .expect("text grows in memory");
        }
        text += &account_end(self.residual, self.sink_residual);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lost_packets_in_the_ring_is_told_what_to_change() {
        let said = ring_remedy(1).expect("one was lost");
        for word in ["1 packet:", "--ring", "-s 128", "--filter"] {
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(ring_remedy(0), None);
    }
}
