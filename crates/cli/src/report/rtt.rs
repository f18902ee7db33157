//! The reports of `rtt`: figures of each variant, with times of whole round trips.

use gauge::rtt::{
    Counts, DisturbanceKind, Percentiles, ReflectCounts, Repairs, Series, StampCounts,
    StampingCost, Strain, strains,
};
use schemars::JsonSchema;
use serde::Serialize;
use towline::{Group, text::printable_lines};

use super::{Document, count, text::wrap};

/// `rtt reflect`: what the reflector did.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct RttReflectReport {
    greeted: u64,
    answered: u64,
    foreign: u64,
    refused: u64,
    /// With `--over tcp`: clients that were refused because all places were taken, or that lost
    /// their place because they sent nothing.
    turned_away: u64,
    /// Datagrams that the kernel dropped at the reflector's sockets, mostly because a receive
    /// buffer was full.
    socket_drops: u64,
}

impl From<ReflectCounts> for RttReflectReport {
    fn from(counts: ReflectCounts) -> Self {
        Self {
            greeted: counts.greeted,
            answered: counts.answered,
            foreign: counts.foreign,
            refused: counts.refused,
            turned_away: counts.turned_away,
            socket_drops: counts.socket_drops,
        }
    }
}

impl Document for RttReflectReport {
    const SCHEMA: &'static str = "towline.rtt-reflect";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = format!(
            "answered {} of {}; {} ignored, {} refused by the system, {} dropped at the socket",
            count(self.answered, "message"),
            count(self.greeted, "measurement"),
            count(self.foreign, "foreign datagram"),
            count(self.refused, "answer"),
            self.socket_drops,
        );
        if self.turned_away > 0 {
            text += &format!("; {} turned away", count(self.turned_away, "client"));
        }
        text + "\n"
    }
}

/// `rtt run` and `rtt plot`: one measurement, or several results beside one another.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RttReport {
    files: Vec<String>,
    pub(crate) remarks: Vec<String>,
    runs: Vec<RttRow>,
    #[serde(skip)]
    maps: Vec<String>,
}

/// What was measured for one variant, that is, for one combination of settings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RttRow {
    label: String,
    size_bytes: usize,
    over: String,
    sched: String,
    engine: String,
    wait: String,
    lasted_s: f64,
    sent_per_s: f64,
    link_max_per_s: Option<u64>,
    counts: Counts,
    /// Datagrams that the kernel dropped at this end's sockets, mostly because a receive buffer was
    /// full; null over TCP, and for a stored result without this number.
    socket_drops: Option<u64>,
    rtt_intended: Percentiles,
    rtt_actual: Percentiles,
    pacing_error: Percentiles,
    hops: Option<HopsReport>,
    /// What PGM repaired at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    repairs: Option<RepairsReport>,
    /// Why this rate is at or beyond the knee of its sweep. The knee is the first rate that the
    /// path carries worse than lower rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond_knee: Option<&'static str>,
    pauses: usize,
    throttled: usize,
    clock_steps: usize,
    is_cut: bool,
    /// What a reader must know before believing the figures.
    remarks: Vec<String>,
    /// p50 and p99.9 of `rtt_intended`, each divided by the same figure of the first file.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_first: Option<[f64; 2]>,
}

/// Where the messages with time stamps spent their time.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct HopsReport {
    messages: usize,
    /// Counts of the stamped messages, by what stamped them.
    stamps: StampCounts,
    send_path_p50_ns: u64,
    link_p50_ns: u64,
    wake_up_p50_ns: u64,
    /// The median of the extra time that a stamped message takes, compared with the message before
    /// it.
    stamping_cost_p50_ns: Option<i64>,
    /// A stamping cost at or below this is noise.
    stamping_noise_ns: Option<u64>,
    #[serde(skip)]
    cost: Option<StampingCost>,
}

/// What PGM repaired.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct RepairsReport {
    #[serde(flatten)]
    counts: Repairs,
    repair_bytes_sent_per_s: f64,
}

impl RttRow {
    /// Makes a row for each variant, with the knee of its sweep.
    pub(crate) fn all(series: &[Series<'_>]) -> Vec<Self> {
        let strains = strains(series);
        let pairs = series.iter().zip(strains);
        pairs.map(|(one, strain)| Self::new(one, strain)).collect()
    }

    fn new(series: &Series<'_>, strain: Option<Strain>) -> Self {
        let setup = series.setup;
        let marked = |kind| {
            series
                .disturbances()
                .filter(|mark| mark.kind == kind)
                .count()
        };
        Self {
            label: series.name.clone(),
            size_bytes: setup.size_bytes,
            sched: setup.sched.clone(),
            engine: setup.engine.clone(),
            wait: setup.wait.clone(),
            lasted_s: series.lasted_ns as f64 / 1e9,
            sent_per_s: series.sent_per_s(),
            link_max_per_s: series.link_max_per_s(),
            over: setup.transport.to_string(),
            counts: series.counts,
            socket_drops: series.socket_drops,
            rtt_intended: series.latencies.intended(),
            rtt_actual: series.latencies.actual(),
            pacing_error: series.latencies.late(),
            hops: HopsReport::new(series),
            repairs: series.repairs.map(|counts| RepairsReport {
                counts,
                repair_bytes_sent_per_s: counts.repair_bytes_sent as f64
                    / (series.lasted_ns.max(1) as f64 / 1e9),
            }),
            beyond_knee: strain.map(Strain::words),
            pauses: marked(DisturbanceKind::Pause),
            throttled: marked(DisturbanceKind::Throttled),
            clock_steps: marked(DisturbanceKind::ClockStep),
            is_cut: series.is_cut(),
            remarks: series
                .shortfalls()
                .into_iter()
                .chain(series.silence_words())
                .chain(second_answers(&series.manifest.target, &series.counts))
                .collect(),
            ratio_to_first: None,
        }
    }

    /// Compares each row with the row of the same label in the first file. When a file and the
    /// first file have one row each, these are compared, whatever their labels. Otherwise a row
    /// whose label the first file does not have gets a remark.
    pub(crate) fn compare(rows: &mut [Self], series: &[Series<'_>]) {
        let Some(first) = series.first().map(|one| std::ptr::from_ref(one.manifest)) else {
            return;
        };
        let rows_of = |manifest: *const _| {
            let same = series
                .iter()
                .filter(|one| std::ptr::eq(one.manifest, manifest));
            same.count()
        };
        for index in 0..rows.len() {
            let label = &series[index].setup.label;
            let own = std::ptr::from_ref(series[index].manifest);
            let is_base = |one: &Series<'_>| std::ptr::eq(one.manifest, first);
            let same = series
                .iter()
                .position(|one| is_base(one) && one.setup.label == *label);
            let are_single = rows_of(own) == 1 && rows_of(first) == 1;
            let base = same.or(are_single.then_some(0));
            if base.is_none() {
                let known: Vec<&str> = series
                    .iter()
                    .filter(|one| is_base(one))
                    .map(|one| one.setup.label.as_str())
                    .collect();
                rows[index].remarks.push(format!(
                    "not compared: the first file has no run called {label}; it has {}",
                    known.join(", ")
                ));
            }
            if let Some(base) = base.filter(|base| *base != index) {
                let (base, this) = (rows[base].rtt_intended, rows[index].rtt_intended);
                let ratio = |ours: u64, theirs: u64| ours as f64 / theirs.max(1) as f64;
                rows[index].ratio_to_first = Some([
                    ratio(this.p50_ns, base.p50_ns),
                    ratio(this.p999_ns, base.p999_ns),
                ]);
            }
        }
    }

    fn text(&self, text: &mut String) {
        let mut line = |name: &str, value: &str| push(text, name, value);
        line(
            "run",
            &format!(
                "{}, {} B over {}, {}, engine {}, wait {}",
                self.label, self.size_bytes, self.over, self.sched, self.engine, self.wait
            ),
        );
        let most = self.link_max_per_s.map_or_else(
            || "the line's rate is not known".to_owned(),
            |most| format!("the line takes {most}/s at most"),
        );
        line(
            "rate",
            &format!(
                "{:.0}/s one way for {:.1} s; {most}",
                self.sent_per_s, self.lasted_s
            ),
        );
        line("messages", &accounts(&self.counts));
        match self.socket_drops {
            None => {}
            Some(0) => line("dropped", "none at this end's sockets"),
            Some(drops) => {
                let drops = count(drops, "datagram");
                line("dropped", &format!("{drops} at this end's sockets"));
            }
        }
        line(
            "",
            "   p50        p90        p99      p99.9     p99.99        max",
        );
        line("RTT intended", &figures(&self.rtt_intended));
        line("RTT actual", &figures(&self.rtt_actual));
        line("pacing error", &figures(&self.pacing_error));
        self.findings(&mut line);
    }

    /// Writes the lines that only some runs have.
    fn findings(&self, line: &mut dyn FnMut(&str, &str)) {
        if let Some(hops) = &self.hops {
            line(
                "hops, p50",
                &format!(
                    "send path {}, network and far end {}, wake-up {}; {} stamped ({} by \
                     the kernel, {} by the device, {} more incomplete), {}",
                    time(hops.send_path_p50_ns),
                    time(hops.link_p50_ns),
                    time(hops.wake_up_p50_ns),
                    hops.messages,
                    hops.stamps.software,
                    hops.stamps.hardware,
                    hops.stamps.incomplete,
                    cost(hops.cost),
                ),
            );
        }
        if let Some(repairs) = &self.repairs {
            let counts = &repairs.counts;
            line(
                "PGM here",
                &format!(
                    "{} NAKs received, {} repairs sent ({:.0} B/s); {} NAKs sent, {} repairs \
                     received",
                    counts.naks_received,
                    counts.repairs_sent,
                    repairs.repair_bytes_sent_per_s,
                    counts.naks_sent,
                    counts.repairs_received,
                ),
            );
        }
        if let Some(why) = self.beyond_knee {
            line("knee", &format!("this rate lies beyond the knee: {why}"));
        }
        if self.pauses + self.throttled + self.clock_steps > 0 {
            line(
                "disturbed",
                &format!(
                    "{} of the measuring thread, {} by the kernel; wall clock set {}",
                    count(self.pauses as u64, "pause"),
                    count(self.throttled as u64, "throttling"),
                    count(self.clock_steps as u64, "time")
                ),
            );
        }
        if let Some([p50, p999]) = self.ratio_to_first {
            line(
                "to the first",
                &format!("p50 x {p50:.2}, p99.9 x {p999:.2}"),
            );
        }
        for remark in &self.remarks {
            line("note", remark);
        }
        if self.is_cut {
            line("cut short", "what follows the cut was not measured");
        }
    }
}

impl HopsReport {
    fn new(series: &Series<'_>) -> Option<Self> {
        let splits: Vec<_> = series.splits().map(|(_, split)| split).collect();
        let middle = |part: fn(&gauge::rtt::Split) -> u64| {
            let mut parts: Vec<u64> = splits.iter().map(|split| part(split)).collect();
            parts.sort_unstable();
            parts.get(parts.len() / 2).copied()
        };
        let cost = series.stamping_cost();
        Some(Self {
            messages: splits.len(),
            stamps: series.stamps,
            send_path_p50_ns: middle(gauge::rtt::Split::send_path_ns)?,
            link_p50_ns: middle(|split| split.link_ns)?,
            wake_up_p50_ns: middle(|split| split.wake_ns)?,
            stamping_cost_p50_ns: cost.map(|cost| cost.p50_ns),
            stamping_noise_ns: cost.map(|cost| cost.noise_ns),
            cost,
        })
    }
}

/// Says what stamping costs, as far as that is known.
fn cost(cost: Option<StampingCost>) -> String {
    let Some(cost) = cost else {
        return "too few to tell what that costs".to_owned();
    };
    let noise = time(cost.noise_ns);
    match cost.known_ns() {
        Some(known) => format!("at a cost of {} +- {noise} each", time(known)),
        None => format!("at a cost below the noise of {noise}"),
    }
}

impl RttReport {
    pub(crate) const fn new(files: Vec<String>, runs: Vec<RttRow>, maps: Vec<String>) -> Self {
        Self {
            files,
            remarks: Vec::new(),
            runs,
            maps,
        }
    }
}

impl Document for RttReport {
    const SCHEMA: &'static str = "towline.rtt";
    const IS_DATA: bool = true;
    const HAS_COLOURS: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for (index, run) in self.runs.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            let mut row = String::new();
            run.text(&mut row);
            text += &printable_lines(&row);
            if let Some(map) = self.maps.get(index) {
                text.push_str(map);
            }
        }
        text
    }
}

/// Writes a value behind its name, on as many lines as it takes.
fn push(text: &mut String, name: &str, value: &str) {
    wrap(text, &format!("{name:<13}"), value);
}

/// Says that several reflectors of a group answered the same messages. `None` when `target` is no
/// group, or when late or repeated answers are at most half as many as answered messages.
fn second_answers(target: &str, counts: &Counts) -> Option<String> {
    let is_group = target
        .parse()
        .is_ok_and(|group: Group| group.is_multicast());
    (is_group && counts.late_or_twice > counts.answered / 2).then(|| {
        let text = "the figures are of the first answer to each message";
        format!(
            "several reflectors of {target} answered: {text}; {} further answers are in the count \
             of those that came late or twice. Name a host instead to measure one of them",
            counts.late_or_twice
        )
    })
}

fn accounts(counts: &Counts) -> String {
    let mut text = format!(
        "{} slots, {} sent, {} answered, {} lost, {} missed",
        counts.slots, counts.sent, counts.answered, counts.lost, counts.missed
    );
    for (count, what) in [
        (counts.refused, "refused by the system"),
        (counts.late_or_twice, "late or twice"),
        (counts.out_of_order, "out of order"),
        (counts.foreign, "of strangers"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

fn figures(percentiles: &Percentiles) -> String {
    let p = percentiles;
    if p.count == 0 {
        return "     none".to_owned();
    }
    let all = [
        p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.p9999_ns, p.max_ns,
    ];
    all.map(|ns| format!("{:>10}", time(ns))).join(" ")
}

fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_answers_of_a_group_are_told_as_such() {
        let counts = Counts {
            answered: 1_000,
            late_or_twice: 990,
            ..Counts::default()
        };
        let told = second_answers("239.192.0.5@eth0:7700", &counts).expect("a group");
        assert!(told.contains("first answer"), "{told}");
        assert!(told.contains("990 further answers"), "{told}");
        assert_eq!(second_answers("10.0.0.1:7700", &counts), None, "a host");
        let few = Counts {
            late_or_twice: 3,
            ..counts
        };
        assert_eq!(second_answers("239.192.0.5", &few), None);
    }
}
