//! Measures how well Towline keeps a schedule of 40,000 messages a second for a minute, with both
//! ends spinning. Compares this with the best that any thread can do on this machine.
//!
//! On a virtual machine the hypervisor takes processors away, and then even a loop that only reads
//! the clock misses its slots. The floor is such a loop: it has the same schedule, sends nothing,
//! and another thread spins as the reflector does. Measurement and floor take turns, so that they
//! meet the same machine.

use std::{
    fmt::Write as _,
    fs::File,
    io::BufReader,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::Lab;
use measure::{Counts, Delays, DisturbanceKind, Schedule, raw};
use serde_json::Value;

use super::{
    Load, Over,
    ours::{Removed, ours_into},
};
use crate::machine::Ticks;

/// Measures, and returns the table: how many slots were used or missed, and how late messages left,
/// beside the floor.
pub(super) fn run(lab: &Lab) -> Result<String, String> {
    let (mut ours, mut floor) = (Kept::default(), Kept::default());
    let mut counts = Counts::default();
    let before = Ticks::read();
    for turn in 1..=TURNS {
        let (load, result) = (
            Load {
                rate: Some(RATE),
                waits: ["spin"; 2],
                processors: None,
            },
            Removed::new(),
        );
        let report = ours_into(lab, Over::Udp, load, SECONDS, &result)?;
        counts.add(&counted(&report["runs"][0])?);
        ours.add(&sent(&result)?);
        floor.add(&kept_by_a_loop(Duration::from_secs(SECONDS.into())));
        eprintln!("turn {turn} of {TURNS}");
    }
    let steal_permille = Ticks::read().steal_permille_since(before);
    let asked = u64::from(RATE * SECONDS * TURNS);
    Ok(describe(&counts, asked, &ours, &floor, steal_permille))
}

/// How well a schedule was kept.
#[derive(Debug, Default)]
struct Kept {
    /// How late each slot was used.
    all: Delays,
    /// The same, without slots that a pause delayed.
    undisturbed: Delays,
    slots: u64,
    /// How many slots `undisturbed` leaves out.
    left_out: u64,
    pauses: u64,
    gaps: Gaps,
}

/// Times in which a loop that only reads the clock did not run: ticks, interrupts, other processes
/// and the hypervisor. No sender can use a slot that is due in such a time.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    /// How many were longer than [`GAP_NS`].
    count: u64,
    lasted_ns: u64,
}

impl Kept {
    /// Counts slots and pauses, in nanoseconds since the start of the run. `slots`: when each was
    /// due, in order, and how late it was used. `pauses`: when each began and ended.
    ///
    /// A slot that is due in a pause is left out of `undisturbed`. So are the slots after the pause
    /// until the sender has caught up, which means: until it used a slot before the next one was
    /// due.
    fn of(slots: impl Iterator<Item = (u64, u64)>, pauses: &[(u64, u64)], period_ns: u64) -> Self {
        let mut kept = Self {
            pauses: pauses.len() as u64,
            ..Self::default()
        };
        let (mut next, mut is_behind) = (pauses.iter().peekable(), false);
        for (due_ns, late_ns) in slots {
            kept.slots += 1;
            kept.all.take(late_ns);
            while let Some((_, end)) = next.next_if(|(start, _)| *start <= due_ns + late_ns) {
                // A pause that ended before this slot was due has not delayed it.
                is_behind |= *end >= due_ns;
            }
            if is_behind {
                kept.left_out += 1;
                is_behind = late_ns >= period_ns;
            } else {
                kept.undisturbed.take(late_ns);
            }
        }
        kept
    }

    fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.undisturbed.add(&other.undisturbed);
        self.slots += other.slots;
        self.left_out += other.left_out;
        self.pauses += other.pauses;
        self.gaps.count += other.gaps.count;
        self.gaps.lasted_ns += other.gaps.lasted_ns;
    }

    /// Returns, in microseconds, p50, p99 and p99.9 of all slots, and p99 of the undisturbed slots.
    fn figures(&self) -> [f64; 4] {
        let (all, undisturbed) = (self.all.percentiles(), self.undisturbed.percentiles());
        [all.p50_ns, all.p99_ns, all.p999_ns, undisturbed.p99_ns].map(|ns| ns as f64 / 1e3)
    }

    fn line(&self, text: &mut String, name: &str) {
        let [p50, p99, p999, undisturbed] = self.figures();
        let share = self.left_out as f64 * 100.0 / self.slots.max(1) as f64;
        let pauses = self.pauses;
        writeln!(
            text,
            "{name:<22} {p50:>8.2} {p99:>9.2} {p999:>10.2} {pauses:>8} {undisturbed:>12.2} \
             {share:>9.2} %"
        )
        .expect("writing to a String cannot fail");
    }
}

/// Measures how well a thread that sends nothing keeps the schedule while another thread spins.
fn kept_by_a_loop(duration: Duration) -> Kept {
    let schedule = schedule();
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let slots = schedule.slots_within(duration_ns);
    let stop = AtomicBool::new(false);
    let (mut late, mut pauses) = (Vec::with_capacity(slots as usize), Vec::new());
    let mut gaps = Gaps::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(Instant::now());
            }
        });
        let start = Instant::now();
        let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut last_ns = 0;
        for slot in 0..slots {
            let due_ns = schedule.due_ns(slot);
            let used_ns = loop {
                let now_ns = now();
                if now_ns - last_ns > GAP_NS {
                    gaps.count += 1;
                    gaps.lasted_ns += now_ns - last_ns;
                }
                if now_ns - last_ns > PAUSE_NS {
                    pauses.push((last_ns, now_ns));
                }
                last_ns = now_ns;
                if now_ns >= due_ns {
                    break now_ns;
                }
            };
            late.push(used_ns - due_ns);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let all = (0..).map(|slot| schedule.due_ns(slot)).zip(late);
    let kept = Kept::of(all, &pauses, period_ns());
    Kept { gaps, ..kept }
}

/// Reads from a result how well its messages kept the schedule.
fn sent(result: &Removed) -> Result<Kept, String> {
    let path = result.path().display();
    let file = File::open(result.path()).map_err(|error| format!("{path}: {error}"))?;
    let file = raw::read(BufReader::new(file)).map_err(|error| format!("{path}: {error}"))?;
    let run = file.runs.first().ok_or("towline: a result without a run")?;
    let is_pause = |kind| matches!(kind, DisturbanceKind::Pause | DisturbanceKind::Throttled);
    let pauses = run.disturbances.iter().filter(|what| is_pause(what.kind));
    let pauses: Vec<(u64, u64)> = pauses
        .map(|mark| (mark.at_ns, mark.at_ns + mark.lasted_ns))
        .collect();
    let slots = run.samples.iter();
    let slots = slots.map(|sample| (sample.intended_ns, sample.late_ns()));
    Ok(Kept::of(slots, &pauses, period_ns()))
}

fn counted(run: &Value) -> Result<Counts, String> {
    let counts = serde_json::from_value(run["counts"].clone());
    counts.map_err(|error| format!("towline: no counts in {run}: {error}"))
}

fn describe(counts: &Counts, asked: u64, ours: &Kept, floor: &Kept, steal_permille: u64) -> String {
    let Counts {
        slots,
        sent,
        missed,
        refused,
        answered,
        lost,
        ..
    } = counts;
    let is_whole = *slots == asked && sent + missed + refused == *slots;
    let told = if is_whole {
        ": all accounted for"
    } else {
        ": NOT ALL ACCOUNTED FOR"
    };
    let mut text = format!(
        "{RATE}/s for {} s in turns of {SECONDS} s, both ends spinning; bars: every slot accounted \
         for, pacing error p99 below 10 us where the machine lets a bare loop keep that\n\
         slots    {slots}: {sent} sent, {missed} missed, {refused} refused{told}\n\
         answers  {answered} of {sent}, {lost} lost; steal {steal_permille} permille\n{HEADINGS}",
        SECONDS * TURNS,
    );
    ours.line(&mut text, "towline");
    floor.line(&mut text, "a loop, nothing sent");
    let gaps = floor.gaps;
    let (ours, floor) = (ours.figures(), floor.figures());
    let [p50, p99, p999, undisturbed] =
        std::array::from_fn(|at| ours[at] / floor[at].max(f64::MIN_POSITIVE));
    writeln!(
        text,
        "{:<22} {p50:>8.2} {p99:>9.2} {p999:>10.2} {:>8} {undisturbed:>12.2}\n{LEFT_OUT}\n\
         taken from the loop for more than 10 us: {:.0} times a second, {:.0} us on average, \
         {:.2} % of the time",
        "ratio",
        "",
        gaps.count as f64 / f64::from(SECONDS * TURNS),
        gaps.lasted_ns as f64 / 1e3 / gaps.count.max(1) as f64,
        gaps.lasted_ns as f64 / 1e7 / f64::from(SECONDS * TURNS),
    )
    .expect("writing to a String cannot fail");
    text
}

fn schedule() -> Schedule {
    Schedule::new(RATE.into()).expect("the rate is a constant within the bounds")
}

fn period_ns() -> u64 {
    schedule().due_ns(1)
}

const HEADINGS: &str = "\
late by                  p50 us    p99 us   p99.9 us   pauses  p99 without   left out
";
const LEFT_OUT: &str = "\
pauses: more than 500 us taken from the thread; without: slots that were due in one, or before the
sender had caught up with it, are left out";
const RATE: u32 = 40_000;
const SECONDS: u32 = 10;
const TURNS: u32 = 6;
/// The loop did not run between two readings of the clock that are further apart than this.
const GAP_NS: u64 = 10_000;
/// A longer interruption counts as a pause, as in Towline's measuring thread.
const PAUSE_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_nobody_accounts_for_is_told() {
        let run = |sent: u64, missed: u64| Counts {
            slots: 2_400_000,
            sent,
            missed,
            answered: sent,
            ..Counts::default()
        };
        let gaps = Gaps {
            count: 15_000,
            lasted_ns: 600_000_000,
        };
        let kept = |late_ns: u64| Kept {
            gaps,
            ..Kept::of((0..1_000).map(|it| (it * 25_000, late_ns)), &[], 25_000)
        };
        let told = |counts: Counts| describe(&counts, 2_400_000, &kept(3_000), &kept(1_500), 4);
        let whole = told(run(2_399_999, 1));
        assert!(
            whole.contains("1 missed, 0 refused: all accounted for"),
            "{whole}"
        );
        assert!(whole.contains("steal 4 permille"), "{whole}");
        let ratio = whole
            .lines()
            .find(|line| line.starts_with("ratio"))
            .unwrap();
        assert_eq!(ratio.matches("2.00").count(), 4, "{ratio}");
        let taken = "more than 10 us: 250 times a second, 40 us on average, 1.00 % of the time";
        assert!(whole.contains(taken), "{whole}");
        assert!(told(run(2_399_999, 0)).contains("NOT ALL ACCOUNTED FOR"));
        assert!(counted(&Value::Null).is_err());
    }

    #[test]
    fn a_pause_and_what_it_holds_up_are_left_out_and_nothing_else() {
        // A pause of 1 ms starts at 10 ms; then the sender works the backlog of 40 slots off at 5
        // us each.
        let pause = (10_000_000, 11_000_000);
        let late = |due_ns: u64| {
            let nth = due_ns.saturating_sub(pause.0) / 25_000;
            let used = pause.1 + nth * 5_000;
            let is_held = due_ns >= pause.0 && used > due_ns;
            if is_held { used - due_ns } else { 200 }
        };
        let slots = || (0..4_000).map(|it| it * 25_000).map(|due| (due, late(due)));
        let kept = Kept::of(slots(), &[pause], 25_000);
        assert_eq!((kept.slots, kept.pauses), (4_000, 1));
        // Left out are all slots that were late by a period or more, and the first slot after them.
        let held = slots().filter(|(_, late)| *late >= 25_000).count() as u64;
        assert_eq!(kept.left_out, held + 1);
        assert!(kept.all.percentiles().max_ns >= 1_000_000);
        assert!(kept.undisturbed.percentiles().max_ns < 25_000);
        // A pause between two slots delays neither, so no slot is left out.
        let idle = Kept::of(slots().take(10), &[(110_000, 120_000)], 25_000);
        assert_eq!(idle.left_out, 0);
    }

    #[test]
    fn a_loop_uses_every_slot() {
        let kept = kept_by_a_loop(Duration::from_millis(50));
        assert_eq!(kept.slots, 2_000);
        assert_eq!(kept.all.percentiles().count, 2_000);
    }
}
